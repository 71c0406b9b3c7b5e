"""For tests, benchmarks and authors of plug-ins: invented traces, and contracts that can be called.

Always true: nothing in the package imports this module; a check returns nothing when a plug-in keeps its contract and raises
`ConformanceError`, which says what was expected and what came instead, when it does not. There is one check per kind of
plug-in, `CHECKS` names them, and `tests/test_conformance.py` runs them over everything the registry knows.

    from counterpoint.testing import check_format
    check_format(my_format)
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import click
import msgspec
import numpy as np
from msgspec.structs import replace

from counterpoint.app.viewer.panel import Panel, panels
from counterpoint.app.viewer.typescript import interfaces
from counterpoint.credits.foreign import known_ids
from counterpoint.credits.mechanism import Mechanism
from counterpoint.errors import CounterpointError, InputError
from counterpoint.formats.contract import check_format as check_bytes
from counterpoint.formats.format import Format
from counterpoint.lab.tasks.contract import check_task as check_text_task
from counterpoint.lab.tasks.task import TextTask
from counterpoint.lab.team import contracts as team_contracts
from counterpoint.lab.team.topology import Topology
from counterpoint.lab.train.preset import Preset
from counterpoint.lab.trainers.contract import check_trainer as check_trainer_files
from counterpoint.lab.worlds.contract import check_world
from counterpoint.lab.worlds.world import World
from counterpoint.rewards.reward import Reward
from counterpoint.trace import Edge, Event, Trace, problems
from counterpoint.trace.batch import TraceBatch
from counterpoint.trace.lines import encode_lines
from counterpoint.trace.rows import Credit, Signal
from counterpoint.trace.synthetic import SHAPES, SIZES, synthetic_trace
from counterpoint.trace.vocabulary import REWARD_FAMILIES, UNITS

__all__ = [
    "CHECKS",
    "SHAPES",
    "SIZES",
    "ConformanceError",
    "check_claim",
    "check_command",
    "check_credit",
    "check_env",
    "check_format",
    "check_loss",
    "check_model",
    "check_panel",
    "check_preset",
    "check_reward",
    "check_task",
    "check_tool",
    "check_topology",
    "check_trainer",
    "odd_trace",
    "synthetic_trace",
]


class ConformanceError(AssertionError):
    """A plug-in breaks the contract of its kind."""


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ConformanceError(what)


def odd_trace() -> Trace:
    """A small valid trace with everything that is easily lost: unknown fields, nulls, other scripts, whole and huge numbers."""
    decided = Event(id="=a", t=0, type="orchestrator_decision", agent="@lead", decision="stop", options=[], logp=-0.5, ok=False)
    call: dict[str, Any] = {"tool": "", "trusted": True, "dur": 2, "tokens_in": 1 << 70, "cost_usd": 0}
    said: dict[str, Any] = {"from_": "Ω agent", "to": "@lead", "reward": {}, "extra": {"x": None, "y": [1]}}
    alarm: dict[str, Any] = {"source": "peer", "reward": {"a": 1, "b": 0.25}, "at": 1.7e9, "error": "\u2028"}
    return Trace(
        trace_id="odd/1 é",
        task_id="-task",
        events=[
            decided,
            Event(id='b,"\n', t=1.5, type="tool_call", agent="Ω agent", **call),
            Event(id="c", t=2, type="message", agent="Ω agent", **said),
            Event(id="d", t=2, type="safety_event", agent="@lead", **alarm),
        ],
        edges=[Edge("=a", 'b,"\n', "causal"), Edge("c", "d", "safety_flow")],
        rewards={"team": 1, "process": -0.25},
        costs={"tokens": 1 << 70, "wall_clock_s": 2.0, "other": 3},
        meta={"from": "a test"},
        contents={"sha256:0": "text"},
    )


# -- formats -------------------------------------------------------------------------------------------------------------


def check_format(format_: Format, sample: Mapping[str, bytes] | None = None) -> None:
    """A format describes itself, knows its own files, writes the same bytes twice, and reads back what it wrote.

    One that only reads is checked on a `sample`: the files of at least one session, by name.
    """
    traces = [*(synthetic_trace(3, 9, shape, contents=True) for shape in SHAPES), odd_trace()]
    check_bytes(format_, traces, dict(sample or {}), _require)


# -- commands ------------------------------------------------------------------------------------------------------------


def check_command(command: click.Command) -> None:
    """A command says in one line what it does, gives two examples, and takes `--json`; so does each part of a group."""
    _require(isinstance(command, click.Command), f"is a {type(command).__name__}, not a click command")
    _require(bool((command.help or "").strip()), f"{command.name}: has no docstring")
    first = (command.help or "").strip().splitlines()[0]
    _require(first.endswith((".", ":")), f"{command.name}: the first help line is a sentence: {first!r}")
    context = click.Context(command, info_name=command.name)
    text = command.get_help(context)
    examples = [line for line in text.splitlines() if line.strip().startswith("counterpoint ")]
    _require(len(examples) >= 2, f"{command.name}: --help ends with two examples, and has {len(examples)}")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            _require(part is not None, f"{command.name}: there is no part {name}")
            check_command(part)  # type: ignore[arg-type]
        return
    flags = {flag for parameter in command.params for flag in parameter.opts}
    _require("--json" in flags, f"{command.name}: takes no --json")


def check_panel(panel: Panel) -> None:
    """A panel has a name and a key of its own, answers every trace the same way twice, and lists each shape of its answers."""
    _require(isinstance(panel, Panel), f"is a {type(panel).__name__}, not a Panel")
    _require(bool(panel.name.strip()), "has no name for its tab")
    _require(len(panel.key) == 1 and panel.key not in "1234", f"key {panel.key!r}: one character, and none of 1 to 4")
    others = [name for name, other in panels().items() if other.key == panel.key and other is not panel]
    _require(not others, f"key {panel.key!r} is that of {', '.join(others)}")
    for trace in [odd_trace(), *(synthetic_trace(3, 12, shape, contents=True) for shape in SHAPES)]:
        try:
            told, again = (msgspec.json.encode(panel.answer(replace(trace))) for _ in range(2))
        except Exception as error:
            raise ConformanceError(f"{trace.trace_id}: the answer ends in {type(error).__name__}: {error}") from error
        _require(told == again, f"{trace.trace_id}: two answers to one trace differ")
        msgspec.json.decode(told, type=panel.shapes[-1])
    try:
        made = interfaces(panel.shapes)
    except TypeError as error:
        raise ConformanceError(f"its shapes have no TypeScript: {error}") from error
    lost = [name for name in re.findall(r": (?:\()?([A-Z]\w+)", made) if f"interface {name} " not in made and name != "Record"]
    _require(not lost, f"`shapes` leaves out {', '.join(lost)}")


# -- environments --------------------------------------------------------------------------------------------------------


def check_env(world: World, *, episodes: int = 60) -> None:
    """A world declares itself, plays each seed one way however it is asked, logs valid traces, and is not beaten.

    `episodes` is how many each policy plays against the optimum, which its mean may pass by four standard errors at most.
    """
    try:
        check_world(world, _require, episodes=episodes)
    except ConformanceError:
        raise
    except Exception as error:
        raise ConformanceError(f"the world ends in {type(error).__name__}: {error}") from error


# -- live teams ----------------------------------------------------------------------------------------------------------


def check_task(task: TextTask) -> None:
    """A text task declares itself, makes each instance one way, scores any text, and is solved by its own player."""
    try:
        check_text_task(task, _require)
    except ConformanceError:
        raise
    except Exception as error:
        raise ConformanceError(f"the task ends in {type(error).__name__}: {error}") from error


def check_topology(topology: Topology) -> None:
    """A topology names its root's role and who works; a team of fakes runs a small task in it to its end, twice the same way."""
    team_contracts.check_topology(topology, _require)


def check_tool(maker: Callable[..., Any], **options: Any) -> None:
    """A tool describes itself, answers its own `example`, and meets odd arguments with a result and not with an exception.

    It is really called: for a tool that cannot be undone, give options under which a call does no harm.
    """
    team_contracts.check_tool(maker, _require, **options)


def check_model(factory: Callable[..., Any], *given: Any, **options: Any) -> None:
    """A model is made by a documented function of what is given here, says name and version, and answers a call twice alike."""
    team_contracts.check_model(factory, _require, *given, **options)


# -- claims --------------------------------------------------------------------------------------------------------------


def check_claim(claim: Callable[..., Any]) -> None:
    """A claim is a documented function of `seed` and `seeds`, by keyword. It is not run: that is what `reproduce` does."""
    _require(callable(claim), f"is a {type(claim).__name__}, not a function")
    found = inspect.signature(claim).parameters
    for name in ("seed", "seeds"):
        _require(name in found and found[name].kind is inspect.Parameter.KEYWORD_ONLY, f"takes no keyword-only `{name}`")
    open_ = [p.name for p in found.values() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    _require(set(open_) <= {"seed", "seeds"}, f"needs more than seed and seeds: {', '.join(open_)}")
    _require(bool((inspect.getdoc(claim) or "").strip()), "has no docstring")


# -- rewards and credit --------------------------------------------------------------------------------------------------


def _check_unit(unit: str, unit_id: str, known: dict[str, set[str]], what: str) -> None:
    first = unit_id.rsplit("#", 1)[0] if unit in ("token", "turn") else unit_id
    _require(unit in known, f"{what}: {unit!r} is no unit")
    _require(first in known[unit] or unit_id in known[unit], f"{what}: no {unit} {unit_id!r} in the trace")


def _example(plugin: Reward | Mechanism) -> tuple[list[Trace], dict[str, Any]]:
    """The traces and options of a plug-in's example: valid, and the same at every call."""
    if plugin.example is None:
        raise ConformanceError("ships no example: example=lambda: Example(traces, options), on which it answers")
    given = plugin.example()
    traces = list(given.traces)
    _require(bool(traces), "its example has no traces")
    for trace in traces:
        wrong = [str(p) for p in problems(trace) if p.severity == "error"]
        _require(not wrong, f"its example holds a trace that is not valid: {wrong[:1]}")
    again = [encode_lines(t) for t in plugin.example().traces]
    _require(again == [encode_lines(t) for t in traces], "its example has other traces at the second call")
    return traces, dict(given.options)


def _answer(call: Callable[[], Any]) -> Any:
    """What the call gives; the example is there to be answered, so that no error is one too many."""
    try:
        return call()
    except CounterpointError as error:
        raise ConformanceError(f"refuses its own example: {error}") from error
    except Exception as error:
        raise ConformanceError(f"its own example ends in {type(error).__name__}: {error}") from error


def _says_why_not(call: Callable[[], Any], what: str) -> None:
    """What cannot be answered is a clear error of ours, and no crash."""
    try:
        call()
    except CounterpointError:
        return
    except Exception as error:
        raise ConformanceError(f"{what} ends in {type(error).__name__} and not in an answer or a clear error: {error}") from error


def _odd(traces: list[Trace]) -> dict[str, list[Trace]]:
    bare = [replace(t, events=[], edges=[]) for t in traces]
    return {
        "no reward": [replace(t, rewards={}) for t in traces],
        "no event": bare,
        "one trace": traces[:1],
        "an odd trace": [odd_trace()],
    }


def check_reward(reward: Reward) -> None:
    """A reward is tagged and, on its own example, pays finite numbers to units that are there, twice alike, changing no trace."""
    _require(isinstance(reward, Reward), f"is a {type(reward).__name__}, not a Reward")
    _require(reward.family in REWARD_FAMILIES, f"family {reward.family!r} is none of {', '.join(REWARD_FAMILIES)}")
    _require(reward.unit in UNITS and bool(reward.source.strip()), "names no unit, or no source")
    traces, options = _example(reward)
    _refuses_options(lambda: reward(traces[0], **{_NO_OPTION: 1}))
    units: set[str] = set()
    for trace in traces:
        before, known = encode_lines(trace), known_ids(trace)
        signals = _answer(lambda trace=trace: reward(trace, **options))  # type: ignore[misc]
        for s in signals:
            _require(isinstance(s, Signal), f"gives a {type(s).__name__}, not a Signal")
            _check_unit(s.unit, s.unit_id, known, "pays")
            _require(math.isfinite(s.value), f"pays {s.value} to {s.unit} {s.unit_id!r}")
            _require(bool(s.channel), f"pays {s.unit} {s.unit_id!r} in a channel without a name")
        units |= {s.unit for s in signals}
        _require(signals == reward(trace, **options), "pays something else the second time")
        _require(encode_lines(trace) == before, "changes the trace")
    _require(
        reward.unit in units,
        f"pays no {reward.unit} in its example, though that is its unit; it pays {sorted(units) or 'nobody'}",
    )
    for what, some in _odd(traces).items():
        _says_why_not(lambda some=some: [reward(t, **options) for t in some], what)  # type: ignore[misc]


def check_credit(mechanism: Mechanism) -> None:
    """A mechanism states its estimand and, on its own example, credits units that are there, twice alike, changing no trace.

    It credits one trace, a list and a batch alike, sums to what it declares where it calls itself additive, and says why where it
    cannot answer.
    """
    _require(isinstance(mechanism, Mechanism), f"is a {type(mechanism).__name__}, not a Mechanism")
    for name in ("estimand", "assumptions", "cost", "source"):
        _require(bool(getattr(mechanism, name).strip()), f"states no {name}")
    _require(mechanism.unit in UNITS, f"unit {mechanism.unit!r} is none of {', '.join(UNITS)}")
    traces, options = _example(mechanism)
    _refuses_options(lambda: mechanism(traces, **{_NO_OPTION: 1}))
    before = [encode_lines(t) for t in traces]
    credit = _answer(lambda: mechanism(traces, **options))
    _check_rows(mechanism, credit, traces)
    _require(credit.rows == mechanism(traces, **options).rows, "credits something else the second time")
    _require(credit.rows == mechanism(TraceBatch.of(traces), **options).rows, "a batch is credited otherwise than its traces")
    _require([encode_lines(t) for t in traces] == before, "changes a trace")
    _says_why_not(lambda: mechanism(traces), "a call without options")
    for what, some in _odd(traces).items():
        _says_why_not(lambda some=some: mechanism(some, **options), what)  # type: ignore[misc]


def _check_rows(mechanism: Mechanism, credit: Credit, traces: list[Trace]) -> None:
    _require(isinstance(credit, Credit), f"gives a {type(credit).__name__}, not a Credit")
    _require(credit.trace_ids == tuple(t.trace_id for t in traces), "its credit names other traces than it was given")
    _require(bool(credit.mechanism and credit.estimand), "its credit does not say which mechanism it is of, or what it estimates")
    _require(mechanism.unit in credit.units, f"gives no {mechanism.unit} a row in its example, though that is its unit")
    known = [known_ids(t) for t in traces]
    for row in credit.rows:
        _require(0 <= row.trace < len(traces), f"credits trace {row.trace} of {len(traces)}")
        _check_unit(row.unit, row.unit_id, known[row.trace], "credits")
        _require(row.se is None or row.se >= 0, f"the standard error of {row.unit} {row.unit_id!r} is {row.se}")
    places = [row.trace for row in credit.rows]
    _require(places == sorted(places), "its rows do not follow the order of the traces")
    _require(len({(r.trace, r.unit, r.unit_id) for r in credit.rows}) == len(places), "one unit of a trace has two rows")
    answered = {(r.trace, r.unit_id) for r in credit.rows if r.unit == mechanism.unit}
    _require(not answered & set(credit.unidentified), "a unit has a row, and a reason why it has none")
    _require(credit.additive == mechanism.additive, f"says additive={mechanism.additive}, and its credit says {credit.additive}")
    _require(len({row.value for row in credit.rows}) > 1, "credits everybody alike in its example, which shows nothing")


# -- presets -------------------------------------------------------------------------------------------------------------


def check_preset(preset: Preset) -> None:
    """A preset is data, states source and departures, names only what there is, and learns: one update on a small world."""
    from counterpoint.lab.train.row_credit import check

    _require(isinstance(preset, Preset), f"is a {type(preset).__name__}, not a Preset")
    for name in ("source", "departures"):
        _require(bool(getattr(preset, name).strip()), f"states no {name}")
    for part in (preset.reward, preset.credit, preset.loss, preset.rates):
        _require(not any(callable(value) for value in _leaves(part)), "holds code: a preset is names and numbers")
    _require(set(preset.rates) == {"policy", "spawn", "critic"}, f"rates name policy, spawn, critic, not {sorted(preset.rates)}")
    _require(all(rate > 0 for rate in preset.rates.values()), "a learning rate is above 0")
    _require(bool(preset.reward), "pays nothing")
    # a stop that was written down and not carried out is in no trace
    _require(not (preset.goes_on and preset.uses_traces), "goes on after stops, which credit judged on traces cannot see")
    for form in (preset, preset.changed(preset.as_released), preset.changed(preset.knob)):
        try:
            check(form)
        except CounterpointError as error:
            raise ConformanceError(f"names what there is not: {error}") from error
    row = _one_update(preset)
    _require(row.get("decisions", 0) > 0, "an update learns from no decision")
    odd = sorted(name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value))
    _require(not odd, f"an update ends with numbers that are none: {', '.join(odd)}")


def _one_update(preset: Preset) -> Mapping[str, Any]:
    """What the first update says, on a small world that has workers and votes; the run's folder goes away."""
    from counterpoint.lab.train.run import train_run

    holder = ModuleType("counterpoint_preset_under_check")
    holder.__dict__["preset"] = preset
    sys.modules[holder.__name__] = holder
    small = {"vote_items": 4, "max_agents": 4, **preset.world}
    few = {"updates": 1, "episodes": 2 * preset.group, "eval_episodes": 1, "keep_traces": 0}
    try:
        with TemporaryDirectory() as folder:
            run = train_run(Path(folder) / "run", {"preset": f"{holder.__name__}:preset", "world": "W1", "set": small, **few})
            return dict(list(run.metrics())[-1])
    except CounterpointError as error:
        raise ConformanceError(f"does not learn on a small world: {error}") from error
    finally:
        del sys.modules[holder.__name__]


def check_loss(loss: Any) -> None:
    """A loss states its source, has a default for every option and refuses others; one update changes the network, the same one
    each time, and leaves finite weights. It is played in a small world, for a few episodes."""
    from counterpoint.lab.train.jobs import play
    from counterpoint.lab.train.loss import Loss
    from counterpoint.lab.train.settings import Settings
    from counterpoint.lab.train.training import Training

    _require(isinstance(loss, Loss), f"is a {type(loss).__name__}, not a Loss")
    _require(bool(loss.source.strip()), "states no source")
    _require(dataclasses.is_dataclass(loss.takes), f"takes {loss.takes!r}, not a dataclass of options")
    for option in dataclasses.fields(loss.takes):
        _require(option.default is not dataclasses.MISSING, f"option {option.name} has no default")
    _refuses_options(lambda: loss.resolved({_NO_OPTION: 1}))
    tiny = {"vote_items": 4, "max_agents": 4, "max_rounds": 5}
    settings = Settings(preset="grpo", world="wide_verify", set=tiny, updates=4, episodes=16)
    ends = []
    for _ in range(2):
        training = Training(settings, loss=loss)
        begin = training.weights()
        job = training.job(0, 0, begin)
        training.learn([play(job.payload, job.weights)])
        ends.append(training.weights())
    _require(all(np.isfinite(w).all() for w in ends[0].values()), "leaves weights that are no finite numbers")
    _require(any((begin[k] != w).any() for k, w in ends[0].items()), "changes nothing")
    _require(all((ends[0][k] == ends[1][k]).all() for k in begin), "another time the same episodes teach something else")


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for part in value.values() for leaf in _leaves(part)]
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, list | tuple) else [value]


_NO_OPTION = "no_such_option"


def _refuses_options(call: Callable[[], Any]) -> None:
    try:
        call()
    except InputError:
        return
    except Exception as error:
        raise ConformanceError(f"an unknown option ends in {type(error).__name__} and not in an InputError: {error}") from error
    raise ConformanceError("takes an option that it does not have")


def check_trainer(trainer: Any) -> None:
    """A trainer says what it holds and what is lost; rows come back from its files the same, in their order, as far as 1e-6, and
    those with too few of anything, or with what is no number, are refused."""
    check_trainer_files(trainer, _require)


CHECKS: Mapping[str, Callable[..., None]] = {
    "panel": check_panel,
    "format": check_format,
    "command": check_command,
    "world": check_env,
    "claim": check_claim,
    "reward": check_reward,
    "mechanism": check_credit,
    "preset": check_preset,
    "loss": check_loss,
    "task": check_task,
    "model": check_model,
    "tool": check_tool,
    "topology": check_topology,
    "trainer": check_trainer,
}
"""Kind of plug-in to its check; a kind that is not here has no contract yet."""
