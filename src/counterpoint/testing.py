"""For tests, benchmarks and authors of plug-ins: invented traces, and contracts that can be called.

Always true: nothing in the package imports this module; a check returns nothing when a plug-in keeps its contract and raises
`ConformanceError`, which says what was expected and what came instead, when it does not. There is one check per kind of
plug-in, `CHECKS` names them, and `tests/test_conformance.py` runs them over everything the registry knows.

    from counterpoint.testing import check_format
    check_format(my_format)
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import click
from msgspec.structs import replace

from counterpoint.credit.mechanism import Mechanism
from counterpoint.envs.synthetic import SHAPES, SIZES, synthetic_trace
from counterpoint.envs.task import TextTask
from counterpoint.envs.task_contract import check_task as check_text_task
from counterpoint.envs.world import World
from counterpoint.envs.world_contract import check_world
from counterpoint.errors import CounterpointError, InputError
from counterpoint.formats.format import Format
from counterpoint.reward.reward import Reward
from counterpoint.team import contracts as team_contracts
from counterpoint.team.topology import Topology
from counterpoint.trace import Edge, Event, Trace, encode
from counterpoint.trace.batch import TraceBatch
from counterpoint.trace.lines import encode_lines
from counterpoint.trace.vocabulary import REWARD_FAMILIES, UNITS
from counterpoint.train.preset import Preset

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
    "check_model",
    "check_preset",
    "check_reward",
    "check_task",
    "check_tool",
    "check_topology",
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


def check_format(format_: Format) -> None:
    """A format describes itself, knows its own files, writes the same bytes twice, and reads back what it wrote."""
    _require(isinstance(format_, Format), f"is a {type(format_).__name__}, not a Format")
    _require(bool(format_.suffixes) and all(s.startswith(".") for s in format_.suffixes), "suffixes begin with a dot")
    _require(bool(format_.lost.strip()), "`lost` says what is lost, or 'nothing'")
    _require(set(format_.keeps) <= {"contents", "meta"}, "`keeps` names contents or meta")
    _require(bool(format_.columns), "`columns` says what a file holds")
    one, many = format_.write is not None, format_.write_tables is not None
    _require(not (one and many), "has `write` or `write_tables`, not both")
    _require(one or many or format_.read is not None, "neither reads nor writes")
    for head in (b"", b"\x00", b"\xff\xfe", b"{", b"[]", b"plain words", b'{"a":1}'):
        _require(format_.sniff(head) is False, f"takes {head!r} for its own")
    for trace in [*(synthetic_trace(3, 9, shape, contents=True) for shape in SHAPES), odd_trace()]:
        _check_one(format_, trace) if one else _check_tables(format_, trace) if many else None
    _check_garbage(format_)


def _carried(format_: Format, trace: Trace) -> Trace:
    """What of a trace a format promises to bring back."""
    return replace(trace, **{name: {} for name in ("contents", "meta") if name not in format_.keeps})


def _check_one(format_: Format, trace: Trace) -> None:
    assert format_.write is not None
    before = encode_lines(trace)
    data = format_.write(trace)
    _require(isinstance(data, bytes), "`write` gives bytes")
    _require(format_.write(trace) == data, "the same trace gives other bytes the second time")
    _require(encode_lines(trace) == before, "`write` changed the trace")
    _require(format_.sniff(data[:4096]) is True, "does not know its own file")
    if format_.read is not None:
        _same(list(format_.read(data)), format_, trace)
        _same(list(format_.read(memoryview(data))), format_, trace)


def _check_tables(format_: Format, trace: Trace) -> None:
    assert format_.write_tables is not None
    other = replace(trace, trace_id=trace.trace_id + "-2")
    files = format_.write_tables([trace, other])
    _require(bool(files), "`write_tables` gives no file")
    _require(format_.write_tables([trace, other]) == files, "the same traces give other bytes the second time")
    for name, table in files.items():
        _require(name.endswith(format_.suffixes), f"the file {name} has none of the suffixes")
        _require(name in format_.columns, f"`columns` does not say what is in {name}")
        _require(format_.sniff(table.data[:4096]) is True, f"does not know its own {name}")
    if format_.read_tables is not None:
        again = list(format_.read_tables({name: table.data for name, table in files.items()}))
        _require(len(again) == 2, f"wrote two traces and read {len(again)}")
        _same(again[:1], format_, trace)
        _same(again[1:], format_, other)


def _same(found: list[Trace], format_: Format, trace: Trace) -> None:
    wanted = _carried(format_, trace)
    _require(len(found) == 1, f"wrote one trace and read {len(found)}")
    _require(found[0] == wanted, f"what was read differs from what was written (trace {trace.trace_id!r})")
    # Equality takes 1 for 1.0; bytes do not.
    _require(encode(found[0]) == encode(wanted), f"numbers changed their kind (trace {trace.trace_id!r})")


def _check_garbage(format_: Format) -> None:
    garbage: tuple[bytes, ...] = (b"", b"\x00" * 9, b"\xff" * 9, b"{", b'{"a":1}', b"[]", b"words\n", b"PAR1PAR1", b"[" * 5000)
    for data in garbage:
        if format_.read is not None:
            _refuses(lambda data=data: list(format_.read(data)), data)  # type: ignore[misc]
        if format_.read_tables is not None:
            files = dict.fromkeys(format_.columns, data)
            _refuses(lambda files=files: list(format_.read_tables(files)), data)  # type: ignore[misc]
    if format_.read_tables is not None:
        _refuses(lambda: list(format_.read_tables({})), b"no file")  # type: ignore[misc]


def _refuses(reads: Callable[[], Any], data: bytes) -> None:
    try:
        reads()
    except InputError:
        return
    except Exception as error:
        raise ConformanceError(f"{data[:20]!r} ends in {type(error).__name__} and not in an InputError: {error}") from error
    raise ConformanceError(f"{data[:20]!r} is read as if it were a trace")


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
    """A topology names its root's role and who works, and a team of fakes runs a small task in it to its end."""
    team_contracts.check_topology(topology, _require)


def check_tool(maker: Callable[..., Any]) -> None:
    """A tool describes itself: name, version, effect, a schema with its main argument."""
    team_contracts.check_tool(maker, _require)


def check_model(factory: Callable[..., Any]) -> None:
    """A model is made by a documented function of what follows the colon, and its options by keyword."""
    team_contracts.check_model(factory, _require)


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


def _scored(count: int = 3) -> list[Trace]:
    """Runs of one task in every shape, with rewards that differ."""
    made = [synthetic_trace(4, 30, shape, seed=i, contents=True) for shape in SHAPES for i in range(count)]
    return [replace(t, trace_id=f"{t.trace_id}-{i}", task_id="task", rewards={"team": i % 5 - 1.5}) for i, t in enumerate(made)]


def _known_ids(trace: Trace) -> dict[str, set[str]]:
    """The ids that a unit may have in a trace; tokens and turns are checked by their first part."""
    agents, events = set(trace.agents), {e.id for e in trace.events}
    roles = {e.role for e in trace.events if e.role}
    some: dict[str, set[str]] = {"team": {""}, "agent": agents, "orchestrator": agents | events, "role": roles}
    return some | {"message": events, "tool": events, "token": events, "turn": agents | events}


def _check_unit(unit: str, unit_id: str, known: dict[str, set[str]], what: str) -> None:
    first = unit_id.rsplit("#", 1)[0] if unit in ("token", "turn") else unit_id
    _require(unit in known, f"{what}: {unit!r} is no unit")
    _require(first in known[unit] or unit_id in known[unit], f"{what}: no {unit} {unit_id!r} in the trace")


def check_reward(reward: Reward) -> None:
    """A reward is tagged, repeats itself, changes no trace, and pays finite numbers to units that are there, or says why not."""
    _require(isinstance(reward, Reward), f"is a {type(reward).__name__}, not a Reward")
    _require(reward.family in REWARD_FAMILIES, f"family {reward.family!r} is none of {', '.join(REWARD_FAMILIES)}")
    _require(reward.unit in UNITS and bool(reward.source.strip()), "names no unit, or no source")
    traces = _scored(1)
    _refuses_options(lambda: reward(traces[0], **{_NO_OPTION: 1}))
    for trace in traces:
        before, known = encode(trace), _known_ids(trace)
        try:
            signals = reward(trace)
        except CounterpointError:
            continue
        for s in signals:
            _check_unit(s.unit, s.unit_id, known, "pays")
            _require(math.isfinite(s.value), f"pays {s.value} to {s.unit} {s.unit_id!r}")
        _require(signals == reward(trace), "pays another time something else")
        _require(encode(trace) == before, "changes the trace")


def check_credit(mechanism: Mechanism) -> None:
    """A mechanism states its estimand, repeats itself, changes no trace, and credits units that are there, or says why not."""
    _require(isinstance(mechanism, Mechanism), f"is a {type(mechanism).__name__}, not a Mechanism")
    for name in ("estimand", "assumptions", "cost", "source"):
        _require(bool(getattr(mechanism, name).strip()), f"states no {name}")
    _require(mechanism.unit in UNITS, f"unit {mechanism.unit!r} is none of {', '.join(UNITS)}")
    traces = _scored()
    _refuses_options(lambda: mechanism(traces, **{_NO_OPTION: 1}))
    before = [encode(t) for t in traces]
    try:
        credit = mechanism(traces)
    except CounterpointError:
        return
    known = [_known_ids(t) for t in traces]
    for row in credit.rows:
        _check_unit(row.unit, row.unit_id, known[row.trace], "credits")
    _require(
        credit.additive == mechanism.additive or not credit.additive, "says that it is not additive, and its credit says it is"
    )
    _require(credit.rows == mechanism(traces).rows, "credits another time something else")
    _require(credit.rows == mechanism(TraceBatch.of(traces)).rows, "a batch is credited otherwise than its traces")
    _require([encode(t) for t in traces] == before, "changes a trace")


# -- presets -------------------------------------------------------------------------------------------------------------


def check_preset(preset: Preset) -> None:
    """A preset is data, states source and departures, and names only what there is. It is not trained: that takes a while."""
    from counterpoint.train.assign import check

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
    try:
        check(preset)
    except CounterpointError as error:
        raise ConformanceError(f"names what there is not: {error}") from error


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


CHECKS: Mapping[str, Callable[[Any], None]] = {
    "format": check_format,
    "command": check_command,
    "env": check_env,
    "claim": check_claim,
    "reward": check_reward,
    "credit": check_credit,
    "preset": check_preset,
    "task": check_task,
    "model": check_model,
    "tool": check_tool,
    "topology": check_topology,
}
"""Kind of plug-in to its check; a kind that is not here has no contract yet."""
