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
from counterpoint.rewards.reward import Reward
from counterpoint.testing import (
    CHECKS,
    ConformanceError,
    check_command,
    check_format,
    check_mechanism,
    check_reward,
    checks,
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
    check_mechanism(_mechanism())
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
        check_mechanism(mechanism)


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


# -- commands -------------------------------------------------------------------------------------------------


def test_a_command_without_examples_or_json_is_caught() -> None:
    @click.command()
    def silent() -> None:
        """Says nothing."""

    with pytest.raises(ConformanceError, match="two examples"):
        check_command(silent)
    silent.epilog = "\b\nExamples:\n  counterpoint silent\n  counterpoint silent twice"
    with pytest.raises(ConformanceError, match="--json"):
        check_command(silent)


def test_public_names_are_there() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)


def test_checks_are_those_of_the_core_and_of_installed_packages() -> None:
    assert set(CHECKS) == {"panel", "format", "command", "reward", "mechanism"}
    assert CHECKS.items() < checks().items()
    assert checks()["world"].__module__ == "counterpoint.lab.testing"
