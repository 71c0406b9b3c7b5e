"""For tests, benchmarks and authors of plug-ins: invented traces, and contracts that can be called.

Always true: nothing in the package imports this module; a check returns nothing when a plug-in keeps its contract and raises
`ConformanceError`, which says what was expected and what came instead, when it does not. There is one check per kind of
plug-in: `CHECKS` has those of the core, `checks()` also those of kinds that installed packages add, such as the laboratory's
(`counterpoint.lab.testing`). `tests/test_conformance.py` runs them over everything the registry knows.

    from counterpoint.testing import check_format
    check_format(my_format)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec
from msgspec.structs import replace

import counterpoint.registry as registry
from counterpoint.app.viewer.panel import Panel, panels
from counterpoint.app.viewer.typescript import interfaces
from counterpoint.credits.foreign import known_ids
from counterpoint.credits.mechanism import Mechanism
from counterpoint.errors import CounterpointError, InputError
from counterpoint.formats.contract import check_format as check_bytes
from counterpoint.formats.format import Format
from counterpoint.rewards.reward import Reward
from counterpoint.trace import Edge, Event, Trace, problems
from counterpoint.trace.batch import TraceBatch
from counterpoint.trace.lines import encode_lines
from counterpoint.trace.rows import Credit, Signal
from counterpoint.trace.synthetic import SHAPES, SIZES, synthetic_trace
from counterpoint.trace.vocabulary import REWARD_FAMILIES, UNITS

__all__ = [
    "CHECKS",
    "NO_OPTION",
    "SHAPES",
    "SIZES",
    "ConformanceError",
    "check_command",
    "check_format",
    "check_mechanism",
    "check_panel",
    "check_reward",
    "checks",
    "odd_trace",
    "refuses_options",
    "require",
    "synthetic_trace",
]


class ConformanceError(AssertionError):
    """A plug-in breaks the contract of its kind."""


def require(holds: bool, what: str) -> None:
    """Raise `ConformanceError` with what was expected unless it holds."""
    if not holds:
        raise ConformanceError(what)


NO_OPTION = "no_such_option"


def refuses_options(call: Callable[[], Any]) -> None:
    """Raise unless the call, which is given the option `NO_OPTION`, ends in an `InputError`."""
    try:
        call()
    except InputError:
        return
    except Exception as error:
        raise ConformanceError(f"an unknown option ends in {type(error).__name__} and not in an InputError: {error}") from error
    raise ConformanceError("takes an option that it does not have")


def odd_trace() -> Trace:
    """A small valid trace with everything that is easily lost: unknown fields, nulls, other scripts, whole and huge numbers."""
    decided = Event(id="=a", t=0, type="orchestrator_decision", agent="@lead", decision="stop", options=[], logp=-0.5, ok=False)
    call: dict[str, Any] = {"tool": "", "trusted": True, "dur": 2, "tokens_in": 1 << 70, "cost_usd": 0}
    fields: dict[str, Any] = {"from_": "Ω agent", "to": "@lead", "reward": {}, "extra": {"x": None, "y": [1]}}
    alarm: dict[str, Any] = {"source": "peer", "reward": {"a": 1, "b": 0.25}, "at": 1.7e9, "error": "\u2028"}
    return Trace(
        trace_id="odd/1 é",
        task_id="-task",
        events=[
            decided,
            Event(id='b,"\n', t=1.5, type="tool_call", agent="Ω agent", **call),
            Event(id="c", t=2, type="message", agent="Ω agent", **fields),
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
    check_bytes(format_, traces, dict(sample or {}), require)


# -- commands ------------------------------------------------------------------------------------------------------------


def check_command(command: click.Command) -> None:
    """A command says in one line what it does, gives two examples, and takes `--json`; so does each part of a group."""
    require(isinstance(command, click.Command), f"is a {type(command).__name__}, not a click command")
    require(bool((command.help or "").strip()), f"{command.name}: has no docstring")
    first = (command.help or "").strip().splitlines()[0]
    require(first.endswith((".", ":")), f"{command.name}: the first help line is a sentence: {first!r}")
    context = click.Context(command, info_name=command.name)
    text = command.get_help(context)
    examples = [line for line in text.splitlines() if line.strip().startswith("counterpoint ")]
    require(len(examples) >= 2, f"{command.name}: --help ends with two examples, and has {len(examples)}")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            require(part is not None, f"{command.name}: there is no part {name}")
            check_command(part)  # type: ignore[arg-type]
        return
    flags = {flag for parameter in command.params for flag in parameter.opts}
    require("--json" in flags, f"{command.name}: takes no --json")


def check_panel(panel: Panel) -> None:
    """A panel has a name and a key of its own, answers every trace the same way twice, and lists each shape of its answers."""
    require(isinstance(panel, Panel), f"is a {type(panel).__name__}, not a Panel")
    require(bool(panel.name.strip()), "has no name for its tab")
    require(len(panel.key) == 1 and panel.key not in "1234", f"key {panel.key!r}: one character, and none of 1 to 4")
    others = [name for name, other in panels().items() if other.key == panel.key and other is not panel]
    require(not others, f"key {panel.key!r} is that of {', '.join(others)}")
    for trace in [odd_trace(), *(synthetic_trace(3, 12, shape, contents=True) for shape in SHAPES)]:
        try:
            first, again = (msgspec.json.encode(panel.answer(replace(trace))) for _ in range(2))
        except Exception as error:
            raise ConformanceError(f"{trace.trace_id}: the answer ends in {type(error).__name__}: {error}") from error
        require(first == again, f"{trace.trace_id}: two answers to one trace differ")
        msgspec.json.decode(first, type=panel.shapes[-1])
    try:
        typescript = interfaces(panel.shapes)
    except TypeError as error:
        raise ConformanceError(f"its shapes have no TypeScript: {error}") from error
    names = re.findall(r": (?:\()?([A-Z]\w+)", typescript)
    lost = [name for name in names if f"interface {name} " not in typescript and name != "Record"]
    require(not lost, f"`shapes` leaves out {', '.join(lost)}")


# -- rewards and credit --------------------------------------------------------------------------------------------------


def _check_unit(unit: str, unit_id: str, known: dict[str, set[str]], what: str) -> None:
    first = unit_id.rsplit("#", 1)[0] if unit in ("token", "turn") else unit_id
    require(unit in known, f"{what}: {unit!r} is no unit")
    require(first in known[unit] or unit_id in known[unit], f"{what}: no {unit} {unit_id!r} in the trace")


def _example(plugin: Reward | Mechanism) -> tuple[list[Trace], dict[str, Any]]:
    """The traces and options of a plug-in's example: valid, and the same at every call."""
    if plugin.example is None:
        raise ConformanceError("ships no example: example=lambda: Example(traces, options), on which it answers")
    example = plugin.example()
    traces = list(example.traces)
    require(bool(traces), "its example has no traces")
    for trace in traces:
        wrong = [str(p) for p in problems(trace) if p.severity == "error"]
        require(not wrong, f"its example holds a trace that is not valid: {wrong[:1]}")
    again = [encode_lines(t) for t in plugin.example().traces]
    require(again == [encode_lines(t) for t in traces], "its example has other traces at the second call")
    return traces, dict(example.options)


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
    require(isinstance(reward, Reward), f"is a {type(reward).__name__}, not a Reward")
    require(reward.family in REWARD_FAMILIES, f"family {reward.family!r} is none of {', '.join(REWARD_FAMILIES)}")
    require(reward.unit in UNITS and bool(reward.source.strip()), "names no unit, or no source")
    traces, options = _example(reward)
    refuses_options(lambda: reward(traces[0], **{NO_OPTION: 1}))
    units: set[str] = set()
    for trace in traces:
        before, known = encode_lines(trace), known_ids(trace)
        signals = _answer(lambda trace=trace: reward(trace, **options))  # type: ignore[misc]
        for s in signals:
            require(isinstance(s, Signal), f"gives a {type(s).__name__}, not a Signal")
            _check_unit(s.unit, s.unit_id, known, "pays")
            require(math.isfinite(s.value), f"pays {s.value} to {s.unit} {s.unit_id!r}")
            require(bool(s.channel), f"pays {s.unit} {s.unit_id!r} in a channel without a name")
        units |= {s.unit for s in signals}
        require(signals == reward(trace, **options), "pays something else the second time")
        require(encode_lines(trace) == before, "changes the trace")
    require(
        reward.unit in units,
        f"pays no {reward.unit} in its example, though that is its unit; it pays {sorted(units) or 'nobody'}",
    )
    for what, some in _odd(traces).items():
        _says_why_not(lambda some=some: [reward(t, **options) for t in some], what)  # type: ignore[misc]


def check_mechanism(mechanism: Mechanism) -> None:
    """A mechanism states its estimand and, on its own example, credits units that are there, twice alike, changing no trace.

    It credits one trace, a list and a batch alike, sums to what it declares where it calls itself additive, and says why where it
    cannot answer.
    """
    require(isinstance(mechanism, Mechanism), f"is a {type(mechanism).__name__}, not a Mechanism")
    for name in ("estimand", "assumptions", "cost", "source"):
        require(bool(getattr(mechanism, name).strip()), f"states no {name}")
    require(mechanism.unit in UNITS, f"unit {mechanism.unit!r} is none of {', '.join(UNITS)}")
    traces, options = _example(mechanism)
    refuses_options(lambda: mechanism(traces, **{NO_OPTION: 1}))
    before = [encode_lines(t) for t in traces]
    credit = _answer(lambda: mechanism(traces, **options))
    _check_rows(mechanism, credit, traces)
    require(credit.rows == mechanism(traces, **options).rows, "credits something else the second time")
    require(credit.rows == mechanism(TraceBatch.of(traces), **options).rows, "a batch is credited otherwise than its traces")
    require([encode_lines(t) for t in traces] == before, "changes a trace")
    _says_why_not(lambda: mechanism(traces), "a call without options")
    for what, some in _odd(traces).items():
        _says_why_not(lambda some=some: mechanism(some, **options), what)  # type: ignore[misc]


def _check_rows(mechanism: Mechanism, credit: Credit, traces: list[Trace]) -> None:
    require(isinstance(credit, Credit), f"gives a {type(credit).__name__}, not a Credit")
    require(credit.trace_ids == tuple(t.trace_id for t in traces), "its credit names other traces than it was given")
    require(bool(credit.mechanism and credit.estimand), "its credit does not say which mechanism it is of, or what it estimates")
    require(mechanism.unit in credit.units, f"gives no {mechanism.unit} a row in its example, though that is its unit")
    known = [known_ids(t) for t in traces]
    for row in credit.rows:
        require(0 <= row.trace < len(traces), f"credits trace {row.trace} of {len(traces)}")
        _check_unit(row.unit, row.unit_id, known[row.trace], "credits")
        require(row.se is None or row.se >= 0, f"the standard error of {row.unit} {row.unit_id!r} is {row.se}")
    places = [row.trace for row in credit.rows]
    require(places == sorted(places), "its rows do not follow the order of the traces")
    require(len({(r.trace, r.unit, r.unit_id) for r in credit.rows}) == len(places), "one unit of a trace has two rows")
    answered = {(r.trace, r.unit_id) for r in credit.rows if r.unit == mechanism.unit}
    require(not answered & set(credit.unidentified), "a unit has a row, and a reason why it has none")
    require(credit.additive == mechanism.additive, f"says additive={mechanism.additive}, and its credit says {credit.additive}")
    require(len({row.value for row in credit.rows}) > 1, "credits everybody alike in its example, which shows nothing")


CHECKS: Mapping[str, Callable[..., None]] = {
    "panel": check_panel,
    "format": check_format,
    "command": check_command,
    "reward": check_reward,
    "mechanism": check_mechanism,
}
"""Each kind of plug-in of the core, and its check."""


def checks() -> dict[str, Callable[..., None]]:
    """Every kind of plug-in that has a contract, and its check: ours, and those that installed packages add (hook `checks`)."""
    out = dict(CHECKS)
    for hook in registry.hooks("checks"):
        out |= hook()
    return out
