"""Where it went: tokens, cost and time by agent, role or tool.

Always true: a total is its own figures plus those of every agent below it; nothing is left out unsaid: rows cut by --limit
and tokens that no event accounts for are counted in words, and siblings that differ only in their number are one line (xN).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click

from counterpoint.app.api.top import FIGURES, rank, top_of
from counterpoint.app.cli._output import SCHEMA_VERSION, emit, json_option, table
from counterpoint.app.cli._store import store_option
from counterpoint.app.library import about, load
from counterpoint.audit.facts import Facts
from counterpoint.audit.rollups import BY, Coverage, Row, behind
from counterpoint.display import number
from counterpoint.trace import Trace

_NUMBER = re.compile(r"[-_#.: ]*\d+$")
_SHOWN = 20


@dataclass
class _Line:
    """One line of the tree: an agent, or several alike."""

    rows: list[Row]
    children: list[_Line] = field(default_factory=list)

    def label(self) -> str:
        if len(self.rows) == 1:
            return self.rows[0].name or "(none)"
        return f"{_stem(self.rows[0].name or '')} (x{len(self.rows)})"

    def sum(self, figure: str) -> float | None:
        values = [v for row in self.rows if (v := getattr(row, figure)) is not None]
        return sum(values) if values else None


@click.command(
    epilog="\b\nExamples:\n  counterpoint top run.trace.json --by tokens\n  counterpoint top t1 --group tool --json"
)
@click.argument("trace", metavar="TRACE")
@click.option("--by", type=click.Choice(list(FIGURES)), help="Sort by this (default: the first that is recorded).")
@click.option("--group", type=click.Choice(BY), default="agent", show_default=True, help="One line for each of these.")
@click.option("--limit", type=click.IntRange(min=1), help=f"Show this many lines (default: {_SHOWN}; with --json all).")
@click.option("--unfold", is_flag=True, help="A line for every agent, alike or not.")
@click.option("--of", "name", metavar="NAME", help="List the events behind one line.")
@store_option
@json_option
def top(
    trace: str, by: str | None, group: str, limit: int | None, unfold: bool, name: str | None, store: str | None, as_json: bool
) -> None:
    """Show where tokens, money and time went, own and with children.

    busy is time in which an agent worked, path% its share of the critical path (of time, else tokens, else steps).
    """
    loaded = load(trace, store=store)
    with about(trace):
        facts = Facts(loaded)
    found = top_of(loaded, group=group, by=by, limit=limit if as_json else None, facts=facts)  # type: ignore[arg-type]
    rows, by = list(found.rows), found.by
    if name is not None:
        _behind(loaded, facts, group, name, by, limit, as_json=as_json)
        return
    if as_json:
        emit({"schema": SCHEMA_VERSION, **found.as_dict()})
        return
    lines = _tree(rows, by, is_folded=not unfold) if group == "agent" else [_Line([row]) for row in rows]
    if group != "agent":
        lines.sort(key=lambda line: -rank(line.rows[0], by))
    click.echo(_table(lines, by, group, limit or _SHOWN))
    click.echo(_accounted(found.coverage))


def _stem(name: str) -> str:
    return _NUMBER.sub("", name) or name


def _tree(rows: list[Row], by: str, *, is_folded: bool) -> list[_Line]:
    """The spawn tree as lines, siblings by what they and theirs spent; alike siblings as one line, their children together."""
    below: dict[str | None, list[Row]] = {}
    for row in rows:
        below.setdefault(row.parent, []).append(row)
    own = FIGURES[by][0]
    tops = [_Line([row]) for row in below.get(None, [])]
    stack = list(tops)
    order: list[_Line] = []
    while stack:
        line = stack.pop()
        order.append(line)
        groups: dict[Any, _Line] = {}
        for row in (child for parent in line.rows for child in below.get(parent.name, [])):
            key = (_stem(row.name or ""), row.role) if is_folded else row.name
            groups.setdefault(key, _Line([])).rows.append(row)
        line.children = list(groups.values())
        stack += line.children
    totals: dict[int, float] = {}
    for line in reversed(order):
        totals[id(line)] = (line.sum(own) or 0) + sum(totals[id(child)] for child in line.children)
        line.children.sort(key=lambda child: -totals[id(child)])
    return sorted(tops, key=lambda line: -totals[id(line)])


def _drawn(lines: list[_Line]) -> list[tuple[str, _Line]]:
    """Every line with the branches before it, depth first, without recursion: spawn chains can be long."""
    out: list[tuple[str, _Line]] = []
    stack = [("", "", line) for line in reversed(lines)]
    while stack:
        lead, branch, line = stack.pop()
        out.append((lead + branch, line))
        inner = lead + {"": "", "├ ": "│ ", "└ ": "  "}[branch]
        last = len(line.children) - 1
        stack += [(inner, "└ " if k == last else "├ ", child) for k, child in reversed(list(enumerate(line.children)))]
    return out


def _table(lines: list[_Line], by: str, group: str, limit: int) -> str:
    drawn = _drawn(lines)
    own, total = FIGURES[by]
    weight = {id(line): float(line.sum(total) or line.sum(own) or 0) for _, line in drawn}
    # The largest lines; a parent's total is at least its child's, and it comes first, so the tree stays whole.
    kept = set(sorted(range(len(drawn)), key=lambda k: (-weight[id(drawn[k][1])], k))[:limit])
    cells = [_cells(lead, line) for k, (lead, line) in enumerate(drawn) if k in kept]
    cut = [line for k, (_, line) in enumerate(drawn) if k not in kept]
    if cut:
        figures = [sum(v for line in cut if (v := line.sum(f)) is not None) for f in ("events", "calls", "errors")]
        tokens = _tokens(sum(line.sum("tokens_own") or 0 for line in cut))
        cells.append([f"… {len(cut):,} more lines (--limit)", tokens, "", "", "", "", *map(number, figures)])
    return table((group, "own", "total", "cost", "busy", "path%", "events", "calls", "errors"), cells, right=range(1, 9))


def _cells(lead: str, line: _Line) -> list[Any]:
    show: list[tuple[str, Callable[[float | None], str]]] = [
        ("tokens_own", _tokens), ("tokens_total", _tokens), ("cost_own", _money), ("busy_s", _time), ("path", _percent),
        ("events", number), ("calls", number), ("errors", number),
    ]  # fmt: skip
    return [lead + line.label(), *(how(line.sum(figure)) for figure, how in show)]


def _tokens(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{int(value):,}" if value < 10_000 else f"{value / 1000:,.0f} k"


def _money(value: float | None) -> str:
    return "-" if value is None else f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def _time(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}s" if value < 60 else f"{int(value) // 60:,}m{int(value) % 60:02}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}"


def _accounted(covered: Coverage) -> str:
    if not covered.total:
        return "tokens: none recorded"
    share = f"{100 * covered.share:.0f} %" if covered.share is not None else f"{covered.missing:,} agents have no transcript"
    least = "at least " if covered.missing else ""
    text = f"accounted {_tokens(covered.accounted)} of {least}{_tokens(covered.total)} tokens ({share})"
    left = covered.total - covered.accounted
    text += f"; {_tokens(left)} have no usage record" if left else ""
    return text + (f"; {covered.no_record:,} acts carry no tokens" if covered.no_record else "")


def _behind(trace: Trace, facts: Facts, group: str, name: str, by: str, limit: int | None, *, as_json: bool) -> None:
    numbers = behind(trace, group, name, facts=facts)  # type: ignore[arg-type]
    if as_json:
        listed = [trace.events[i].id for i in numbers]
        emit({"schema": SCHEMA_VERSION, "trace_id": trace.trace_id, "group": group, "name": name, "events": listed})
        return
    field_: dict[str, Callable[[int], float]] = {
        "tokens": lambda i: int(facts.tokens_E[i]), "cost": lambda i: float(facts.cost_E[i]),
        "time": lambda i: float(facts.dur_E[i]), "events": lambda i: 0,
    }  # fmt: skip
    shown = sorted(numbers, key=lambda i: -field_[by](i))[: limit or _SHOWN]
    rows = []
    for i in shown:
        e = trace.events[i]
        tokens = int(facts.tokens_E[i]) if facts.has_tokens_E[i] else None
        rows.append((e.id, e.t, e.type, e.tool or e.to or "", _tokens(tokens), _money(e.cost_usd), _time(e.dur)))
    click.echo(table(("event", "t", "type", "tool or to", "tokens", "cost", "busy"), rows, right=(1, 4, 5, 6)))
    click.echo(f"{len(shown):,} of {len(numbers):,} events, the largest by {by} first")
