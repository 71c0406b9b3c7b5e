"""The contracts can fail: each check catches a plug-in that breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click
import pytest

from counterpoint import registry, testing
from counterpoint.formats._format import Format
from counterpoint.testing import ConformanceError, check_command, check_format, odd_trace
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


def test_public_names_are_there() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)
