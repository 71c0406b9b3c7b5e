"""Two traces side by side: the first divergence, and the events that only one of them has."""

from __future__ import annotations

import click
import msgspec

from counterpoint.app.api.fork import diff
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, table
from counterpoint.app.words import plain_text
from counterpoint.audits.diff import Diff, Divergence, Pair
from counterpoint.display import number
from counterpoint.trace import Trace
from counterpoint.trace.steering import is_steered

_ROWS = 8


def print_diff(first: Trace, second: Trace, *, as_json: bool) -> None:
    """The first divergence, what changed, came and went."""
    difference = diff(first, second)
    if as_json:
        steered = [trace.trace_id for trace in (first, second) if is_steered(trace)]
        about = {"counts": _counts(difference), "effect": difference.effect, "steered": steered}
        emit({"schema": SCHEMA_VERSION, **about, **msgspec.to_builtins(difference)})
    else:
        click.echo(_text(first, second, difference))


def _where(first: Divergence | None) -> str:
    if first is None:
        return "no event differs"
    texts = ""
    if first.text_a is not None or first.text_b is not None:
        texts = f": {_cut(first.text_a)} -> {_cut(first.text_b)}"
    return f"first divergence {first.event.a or first.event.b} ({first.how}), {first.event.key}{texts}"


def _cut(text: str | None) -> str:
    return "-" if text is None else text if len(text) <= 60 else text[:59] + "…"


def _text(a: Trace, b: Trace, difference: Diff) -> str:
    counts = " · ".join(f"{name} {n:,}" for name, n in _counts(difference).items())
    lines = [f"{name} was steered by hand: {trace.trace_id}" for name, trace in (("A", a), ("B", b)) if is_steered(trace)]
    lines += [_where(difference.first), counts]
    parts: list[str] = [plain_text("\n".join(lines), keep_lines=True)]
    rows = [
        (name, *_change(*pair)) for name, pair in (*difference.rewards.items(), *difference.costs.items()) if pair[0] != pair[1]
    ]
    if rows:
        parts.append(table(("", a.trace_id, b.trace_id, "difference"), rows, right=(1, 2, 3)))
    events = [(how, *row) for how, pairs in _kinds(difference) for row in _rows(a, b, pairs)]
    if events:
        parts.append(table(("", "event", "key", "in A", "in B"), events))
    if any(len(pairs) > _ROWS for _, pairs in _kinds(difference)):
        parts.append("the first of each kind; --json lists all")
    return "\n\n".join(parts)


def _counts(difference: Diff) -> dict[str, int]:
    return {"same": difference.same, **{name: len(pairs) for name, pairs in _kinds(difference)}}


def _kinds(difference: Diff) -> list[tuple[str, tuple[Pair, ...]]]:
    return [("changed", difference.changed), ("new", difference.new), ("gone", difference.gone)]


def _change(a: float | None, b: float | None) -> tuple[str, str, str]:
    return number(a), number(b), "-" if a is None or b is None else f"{b - a:+.4g}"


def _rows(a: Trace, b: Trace, pairs: tuple[Pair, ...]) -> list[tuple[str, str, str, str]]:
    out = []
    for pair in pairs[:_ROWS]:
        out.append((pair.a or pair.b or "", pair.key, _content(a, pair.a), _content(b, pair.b)))
    return out


def _content(trace: Trace, event: str | None) -> str:
    return "·" if event is None else _cut(trace.text(trace.events[trace.index[event]]))
