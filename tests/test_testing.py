"""The contracts can fail: each check catches a plug-in that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import click
import pytest
from msgspec.structs import replace as replaced

from counterpoint import registry, testing
from counterpoint.credits.mechanism import Mechanism
from counterpoint.errors import NotIdentified
from counterpoint.formats.format import Format
from counterpoint.lab.lm.model import Call, Completion, ModelFailed
from counterpoint.lab.tasks.task import Choice
from counterpoint.lab.team.tool import ToolResult
from counterpoint.lab.team.topology import Topology
from counterpoint.rewards.reward import Reward
from counterpoint.testing import (
    CHECKS,
    ConformanceError,
    check_claim,
    check_command,
    check_credit,
    check_format,
    check_model,
    check_preset,
    check_reward,
    check_tool,
    check_topology,
    odd_trace,
)
from counterpoint.trace import Edge, Trace, problems, wire
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, CreditRow, Signal


def _survey() -> Format:
    format_: Format = registry.get("format", "survey")
    return format_


def test_the_odd_trace_is_valid() -> None:
    assert problems(odd_trace()) == []


def _forgets(data: Any) -> Iterator[Trace]:
    trace = wire.decode(data)
    yield Trace(trace_id=trace.trace_id, task_id=trace.task_id, events=trace.events)


def _crashes(data: Any) -> Iterator[Trace]:
    try:
        yield wire.decode(data)
    except ValueError as error:
        raise KeyError("oops") from error


_calls = iter(range(10**6))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"suffixes": ("json",)}, "dot"),
        ({"lost": " "}, "lost"),
        ({"keeps": ("everything",)}, "keeps"),
        ({"sniff": lambda head: True}, "for its own"),
        ({"sniff": lambda head: False}, "own file"),
        ({"read": _forgets}, "differs"),
        ({"read": lambda data: iter(())}, "read 0"),
        ({"read": _crashes}, "KeyError"),
        ({"write": lambda trace: wire.encode(trace) + b" " * next(_calls)}, "second time"),
        ({"write": None, "read": None}, "neither reads nor writes"),
    ],
)
def test_a_broken_format_is_caught(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_format(replace(_survey(), **change))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sample": None}, "no sample"),
        ({"sample": {"x.json": b"{}"}}, "reads no trace"),
        ({"read": lambda data: iter([Trace(trace_id="t", task_id="t", events=[])])}, "without an event"),
        ({"read": lambda data: iter([odd_trace(), odd_trace()])}, "two traces one id"),
        ({"read": lambda data: iter([replaced(odd_trace(), trace_id=f"t{next(_calls)}")])}, "second time"),
        ({"read": lambda data: iter([replaced(odd_trace(), edges=[Edge("c", "gone", "causal")])])}, "not valid"),
        ({"read": _crashes}, "KeyError"),
    ],
)
def test_a_broken_reader_is_caught(change: dict[str, Any], says: str) -> None:
    given = {"sample": {"odd.trace.json": wire.encode(odd_trace())}, **change}
    sample = given.pop("sample")
    with pytest.raises(ConformanceError, match=says):
        check_format(replace(_survey(), write=None, **given), sample)


# -- credit and rewards --------------------------------------------------------------------------------------------------


def _even(traces: Sequence[Trace], *, change: Callable[[list[CreditRow]], list[CreditRow]] = lambda rows: rows) -> Credit:
    """Every agent gets the team reward: simple, and not additive."""
    rows = [CreditRow(i, "agent", a, float(t.rewards.get("team", 0.0))) for i, t in enumerate(traces) for a in t.agents]
    return Credit("even", "R", False, tuple(t.trace_id for t in traces), tuple(change(rows)))


def _mechanism(run: Callable[..., Any] = _even, **changes: Any) -> Mechanism:
    said: dict[str, Any] = {"estimand": "R", "assumptions": "none", "cost": "nothing", "source": "a test", "additive": False}
    return Mechanism(**{**said, "unit": "agent", "run": run, "example": lambda: Example(rollouts()), **changes})


def _with_rows(change: Callable[[list[CreditRow]], list[CreditRow]]) -> Mechanism:
    return _mechanism(lambda traces: _even(traces, change=change))


def _refuses(traces: Sequence[Trace]) -> Credit:
    raise NotIdentified("nobody knows", "ask somebody")


def _marks(traces: Sequence[Trace]) -> Credit:
    for trace in traces:
        trace.meta["seen"] = True
    return _even(traces)


def _only_lists(traces: Sequence[Trace]) -> Credit:
    return _even(traces, change=lambda rows: [r._replace(value=r.value + next(_calls)) for r in rows])


def test_an_honest_mechanism_and_an_honest_reward_conform() -> None:
    check_credit(_mechanism())
    check_reward(_reward())


@pytest.mark.parametrize(
    ("mechanism", "says"),
    [
        (3, "not a Mechanism"),
        (_mechanism(source=" "), "states no source"),
        (_mechanism(unit="crowd"), "unit 'crowd' is none of"),
        (_mechanism(example=None), "ships no example"),
        (_mechanism(example=lambda: Example([])), "no traces"),
        (_mechanism(example=lambda: Example(rollouts(), {"weight": 1})), "refuses its own example.*no option 'weight'"),
        (_mechanism(_refuses), "refuses its own example.*nobody knows"),
        (_mechanism(lambda traces: 1 / 0), "ZeroDivisionError"),
        (_mechanism(lambda traces: [1.0]), "not a Credit"),
        (_mechanism(_marks), "changes a trace"),
        (_mechanism(_only_lists), "second time"),
        (_mechanism(lambda traces: _even(traces[:1])), "names other traces"),
        (_mechanism(unit="team"), "gives no team a row"),
        (_mechanism(additive=True), "says additive=True"),
        (_with_rows(lambda rows: []), "gives no agent a row"),
        (_with_rows(lambda rows: rows[::-1]), "order of the traces"),
        (_with_rows(lambda rows: [rows[0], *rows]), "two rows"),
        (_with_rows(lambda rows: [r._replace(value=1.0) for r in rows]), "alike"),
        (_with_rows(lambda rows: [rows[0]._replace(unit_id="nobody"), *rows]), "no agent 'nobody'"),
        (_with_rows(lambda rows: [rows[0]._replace(se=-1.0), *rows[1:]]), "standard error"),
        (_mechanism(lambda traces: _even(traces[: len(traces) * len(traces[0].events[0].id)])), "no event ends in IndexError"),
    ],
)
def test_a_broken_mechanism_is_caught(mechanism: Any, says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_credit(mechanism)


def _pays(trace: Trace, *, value: float = 1.0, unit_id: str = "") -> list[Signal]:
    return [Signal("team", unit_id, "R1", value)]


def _reward(score: Callable[..., Any] = _pays, **changes: Any) -> Reward:
    return Reward(
        **{"family": "R1", "unit": "team", "source": "a test", "example": lambda: Example(rollouts()), **changes}, score=score
    )


@pytest.mark.parametrize(
    ("reward", "says"),
    [
        (_reward(family="R9"), "none of R1"),
        (_reward(unit="crowd"), "names no unit"),
        (_reward(example=None), "ships no example"),
        (_reward(unit="agent"), "pays no agent in its example.*it pays .'team'."),
        (_reward(lambda trace: []), "pays nobody"),
        (_reward(lambda trace: _pays(trace, unit_id="us")), "no team 'us'"),
        (_reward(lambda trace: _pays(trace, value=float("nan"))), "refuses its own example"),
        (_reward(lambda trace: _pays(trace, value=next(_calls))), "second time"),
        (_reward(lambda trace: trace.meta.update(seen=True) or _pays(trace)), "changes the trace"),
        (_reward(lambda trace: [3]), "AttributeError"),
        (_reward(lambda trace: _pays(trace, value=trace.rewards["team"])), "no reward ends in KeyError"),
    ],
)
def test_a_broken_reward_is_caught(reward: Any, says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_reward(reward)


# -- presets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"source": " "}, "states no source"),
        ({"reward": {}}, "pays nothing"),
        ({"reward": {"team_outcome": {"weight": min}}}, "holds code"),
        ({"rates": {"policy": 1e-3}}, "rates name"),
        ({"rates": {"policy": 0.0, "spawn": 1e-3, "critic": 1e-3}}, "above 0"),
        ({"credit": {"no_such_credit": {}}}, "names what there is not"),
        ({"credit": {"group_relative": {"no_such_option": 1}}}, "names what there is not.*no_such_option"),
        ({"credit": {"vdn": {}}}, "names what there is not.*do not go together"),
    ],
)
def test_a_broken_preset_is_caught(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_preset(replace(registry.get("preset", "grpo"), **change))


# -- topologies, tools, models -------------------------------------------------------------------------------------------


async def _alone(team: Any) -> str:
    lead = team.root("orchestrator")
    await lead.choose("turn", [Choice("stop", "", "none")], key="lead|turn|1")
    return "none"


async def _drifting(team: Any) -> str:
    lead = team.root("orchestrator")
    await lead.choose("turn", [Choice("stop", "", "none")], key=f"lead|turn|{next(_calls)}")
    return "none"


async def _silent_team(team: Any) -> Any:
    return None


@pytest.mark.parametrize(
    ("topology", "says"),
    [
        (3, "not a Topology"),
        (Topology(run=lambda team: "answer"), "no coroutine"),  # type: ignore[arg-type, return-value]
        (Topology(run=_alone, root=""), "no role for its root"),
        (Topology(run=_alone, more={"judge": ("sql",)}), "a role that does not work"),
        (Topology(run=_silent_team), "a small team ends in TypeError"),
        (Topology(run=_alone, root="chair"), "role of its root, 'chair'"),
        (Topology(run=_drifting), "second time"),
    ],
)
def test_a_broken_topology_is_caught(topology: Any, says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_topology(topology)


class _Doubles:
    """A tool that doubles a number."""

    name, version, effect, about, main = "double", "1", "pure", "doubles a number; argument: the number", "number"
    arguments = {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]}
    example: Any = {"number": "21"}

    def __init__(self, instance: Any, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self, name, value)

    async def call(self, args: Any, place: Any) -> Any:
        try:
            return ToolResult(str(2 * int(args["number"])))
        except ValueError:
            return ToolResult("no number", ok=False, error="malformed")

    async def close(self) -> None: ...


async def _raises(args: Any, place: Any) -> ToolResult:
    return ToolResult(str(2 * int(args["number"])))


async def _drifts(args: Any, place: Any) -> ToolResult:
    return ToolResult(str(next(_calls)))


async def _talks(args: Any, place: Any) -> str:
    return "42"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": ""}, "no name, version"),
        ({"effect": "harmless"}, "none of pure"),
        ({"arguments": {"type": "string"}}, "no schema of an object"),
        ({"main": "digits"}, "main argument 'digits'"),
        ({"example": None}, "no `example`"),
        ({"example": {"number": 21}}, "refuses its own example"),
        ({"example": {"number": "many"}}, "own example is not answered"),
        ({"call": _talks}, "not a ToolResult"),
        ({"call": _drifts}, "another result"),
        ({"call": _raises}, "ends in ValueError"),
    ],
)
def test_a_broken_tool_is_caught(change: dict[str, Any], says: str) -> None:
    check_tool(_Doubles)
    with pytest.raises(ConformanceError, match=says):
        check_tool(_Doubles, **change)


class _Echo:
    """A model that says the same thing always."""

    name, version = "echo", "1"

    def __init__(self, say: Callable[[], Any] = lambda: Completion(text="RETURN: 42", tokens_out=2), **changes: Any) -> None:
        self._say = say
        for name, value in changes.items():
            setattr(self, name, value)

    async def complete(self, call: Call) -> Any:
        return self._say()

    async def close(self) -> None: ...


def _fails() -> Completion:
    raise ModelFailed("down", "nobody is there")


@pytest.mark.parametrize(
    ("factory", "given", "says"),
    [
        (3, (), "not a function"),
        (lambda: _Echo(), (), "no docstring"),
        (dict, (), "makes a dict"),
        (_Echo, (lambda: "42",), "not a Completion"),
        (_Echo, (lambda: Completion(text="x", tokens_out=-1),), "tokens_out is -1"),
        (_Echo, (lambda: Completion(text="x", logps=(-1.0,), token_ids=(1, 2)),), "differ in length"),
        (_Echo, (lambda: Completion(text=str(next(_calls))),), "another text"),
        (_Echo, (_fails,), "does not answer a plain call.*nobody is there"),
    ],
)
def test_a_broken_model_is_caught(factory: Any, given: tuple[Any, ...], says: str) -> None:
    check_model(_Echo)
    with pytest.raises(ConformanceError, match=says):
        check_model(factory, *given)


# -- commands and claims -------------------------------------------------------------------------------------------------


def test_a_command_without_examples_or_json_is_caught() -> None:
    @click.command()
    def silent() -> None:
        """Says nothing."""

    with pytest.raises(ConformanceError, match="two examples"):
        check_command(silent)
    silent.epilog = "\b\nExamples:\n  counterpoint silent\n  counterpoint silent twice"
    with pytest.raises(ConformanceError, match="--json"):
        check_command(silent)


def _holds(*, seed: int, seeds: int, scale: float = 1.0) -> Iterator[Any]:
    """Would cost an hour: a check does not run it."""
    raise AssertionError("a claim was run")


def _positional(seed: int, seeds: int) -> None:
    """Takes its seeds by place."""


def _demanding(*, seed: int, seeds: int, model: str) -> None:
    """Needs something that nobody gives it."""


def _silent(*, seed: int, seeds: int) -> None: ...


def test_a_claim_is_looked_at_and_not_run() -> None:
    check_claim(_holds)
    assert CHECKS["claim"] is check_claim


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        (3, "not a function"),
        (lambda: None, "`seed`"),
        (_positional, "keyword-only"),
        (_demanding, "model"),
        (_silent, "docstring"),
    ],
)
def test_a_broken_claim_is_caught(claim: Any, says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_claim(claim)


def test_public_names_are_there() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)
