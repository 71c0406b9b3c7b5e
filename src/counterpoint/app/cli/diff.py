"""Compare two traces: where they part, what each has alone.

Always true: nothing is written; events are aligned by their stable keys, and the counts cover every event of both.
"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from counterpoint.app.api.fork import diff as compare
from counterpoint.app.load_save import load
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, table
from counterpoint.app.terminal.store import store_option
from counterpoint.app.words import plain_text
from counterpoint.audits.diff import Diff, Divergence, Pair
from counterpoint.display import number
from counterpoint.trace import Trace
from counterpoint.trace.steering import is_steered

_SHOWN = 8


@click.command(
    epilog="\b\nExamples:\n  counterpoint diff wide_verify-0-reference wide_verify-1-reference\n"
    "  counterpoint diff run.jsonl fork.jsonl --json\n\n"
    "Exit codes: 0 compared, 2 a trace could not be read, 3 no such trace."
)
@click.argument("a")
@click.argument("b")
@store_option
@json_option
def diff(a: str, b: str, store: Path | None, as_json: bool) -> None:
    """Compare two traces: the first divergence, what changed, came and went.

    A and B are files or ids in the store, such as a run and its fork.
    """
    first, second = load(a, store=store), load(b, store=store)
    found = compare(first, second)
    if as_json:
        counts = {"same": found.same, "changed": len(found.changed), "new": len(found.new), "gone": len(found.gone)}
        rest = msgspec.to_builtins(found)
        marks = [trace.trace_id for trace in (first, second) if is_steered(trace)]
        emit({"schema": SCHEMA_VERSION, "counts": counts, "effect": found.effect, "steered": marks, **rest})
    else:
        click.echo(_text(first, second, found))


def _where(found: Divergence | None) -> str:
    if found is None:
        return "no event differs"
    said = ""
    if found.text_a is not None or found.text_b is not None:
        said = f": {_cut(found.text_a)} -> {_cut(found.text_b)}"
    return f"first divergence {found.event.a or found.event.b} ({found.how}), {found.event.key}{said}"


def _cut(text: str | None) -> str:
    return "-" if text is None else text if len(text) <= 60 else text[:59] + "…"


def _text(a: Trace, b: Trace, found: Diff) -> str:
    counts = f"same {found.same:,} · changed {len(found.changed):,} · new {len(found.new):,} · gone {len(found.gone):,}"
    lines = [f"{name} was steered by hand: {trace.trace_id}" for name, trace in (("A", a), ("B", b)) if is_steered(trace)]
    lines += [_where(found.first), counts]
    parts: list[str] = [plain_text("\n".join(lines), keep_lines=True)]
    rows = [(name, *_change(*pair)) for name, pair in (*found.rewards.items(), *found.costs.items()) if pair[0] != pair[1]]
    if rows:
        parts.append(table(("", a.trace_id, b.trace_id, "difference"), rows, right=(1, 2, 3)))
    events = [(how, *row) for how, pairs in _kinds(found) for row in _rows(a, b, pairs)]
    if events:
        parts.append(table(("", "event", "key", "in A", "in B"), events))
    if any(len(pairs) > _SHOWN for _, pairs in _kinds(found)):
        parts.append("the first of each kind; --json lists all")
    return "\n\n".join(parts)


def _kinds(found: Diff) -> list[tuple[str, tuple[Pair, ...]]]:
    return [("changed", found.changed), ("new", found.new), ("gone", found.gone)]


def _change(a: float | None, b: float | None) -> tuple[str, str, str]:
    return number(a), number(b), "-" if a is None or b is None else f"{b - a:+.4g}"


def _rows(a: Trace, b: Trace, pairs: tuple[Pair, ...]) -> list[tuple[str, str, str, str]]:
    out = []
    for pair in pairs[:_SHOWN]:
        out.append((pair.a or pair.b or "", pair.key, _said(a, pair.a), _said(b, pair.b)))
    return out


def _said(trace: Trace, event: str | None) -> str:
    return "·" if event is None else _cut(trace.text(trace.events[trace.index[event]]))
