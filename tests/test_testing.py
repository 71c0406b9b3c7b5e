"""The contracts can fail: each check catches a plug-in that breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click
import pytest

from counterpoint import registry, testing
from counterpoint.formats.format import Format
from counterpoint.testing import CHECKS, ConformanceError, check_claim, check_command, check_format, odd_trace
from counterpoint.trace import Trace, problems, wire


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
