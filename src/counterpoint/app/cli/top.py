"""Where it went: tokens, cost and time by agent, role or tool.

Always true: a total is its own figures plus those of every agent below it; nothing is left out silently: rows cut by --rows
and tokens that no event accounts for are counted in words, and siblings that differ only in their number are one line (xN).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from counterpoint.app.api.sums import GROUPS, WHOLE, Sum, Sums, sums_of_lines, sums_of_traces
from counterpoint.app.api.top import FIGURES, rank, top_of
from counterpoint.app.load_save import about
from counterpoint.app.price_file import cost_words, price_file
from counterpoint.app.side_words import sides_of_trace, sides_words
from counterpoint.app.terminal.options import full_option, group_option, ids_option, most_rows, rows_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, table
from counterpoint.app.terminal.selection import Selection, select
from counterpoint.app.terminal.store import prices_option, store_option
from counterpoint.audits.facts import Facts, facts_of
from counterpoint.audits.rollups import BY, Coverage, Row, behind
from counterpoint.display import at_least, compact, counted, duration, money, number, zone
from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace import Trace

HEADING = "Look"

_NUMBER = re.compile(r"[-_#.: ]*\d+$")
_ROWS, _PRICED = 20, 4


@dataclass
class _Line:
    """One line of the tree: an agent, or several alike."""

    rows: list[Row]
    children: list[_Line] = field(default_factory=list)

    def label(self, *, with_ids: bool) -> str:
        first = _said(self.rows[0], with_ids=with_ids)
        return first or "(none)" if len(self.rows) == 1 else f"{_stem(first)} (x{len(self.rows)})"

    def sum(self, figure: str) -> float | None:
        values = [v for row in self.rows if (v := getattr(row, figure)) is not None]
        return sum(values) if values else None


@click.command(
    epilog="\b\nExamples:\n  counterpoint top 3f2a --sort tokens\n  counterpoint top 'project:shop since:7d' --group model --json"
)
@click.argument("words", nargs=-1, metavar="[TRACE|QUERY]")
@click.option("--sort", metavar="FIGURE", help="Sort by cost, tokens, time, events or errors (default: the first recorded).")
@group_option(f"One line for each {', '.join(BY)}; of many traces also {', '.join(WHOLE)}.")
@rows_option(None, f"Print this many rows; 0 for all (default: {_ROWS}, in --json all).")
@full_option("Print a line for every agent, also for agents that are alike.")
@ids_option
@click.option("--events-of", metavar="NAME", help="List the events behind one line.")
@prices_option
@store_option
@json_option
def top(words: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show where tokens, money and time went: of one trace by agent, of many by project, model or day.

    Without TRACE: all of the store. busy is time in which an agent worked, path% its share of the critical path (of time, else
    tokens, else steps).
    """
    found = select(words, options["store"], options["prices"])
    if found.is_query or len(found) > 1:
        _many(found, options, as_json=as_json)
    else:
        _one(found, options, as_json=as_json)


def _one(found: Selection, options: dict[str, Any], *, as_json: bool) -> None:
    """One trace."""
    group, by, name = options["group"] or "agent", options["sort"], options["events_of"]
    most = most_rows(options["rows"], None if as_json else _ROWS)
    _known(group, BY, "group a trace by", fix=f"{group} is for many traces" if group in WHOLE else None)
    trace = found.one()
    with about(found.refs[0]):
        facts = facts_of(trace)
    told = top_of(trace, group=group, by=by, limit=most if as_json else None)  # type: ignore[arg-type]
    if name is not None:
        _behind(trace, facts, group, _id_of(told.rows, name), told.by, most, as_json=as_json)
        return
    if as_json:
        emit({"schema": SCHEMA_VERSION, **told.as_dict()})
        return
    with_ids = options["with_ids"]
    is_tree = group == "agent"
    lines = (
        _tree(list(told.rows), told.by, is_folded=not options["is_full"], with_ids=with_ids)
        if is_tree
        else [_Line([row]) for row in sorted(told.rows, key=lambda row: -rank(row, told.by))]
    )
    click.echo(_table(lines, told.by, group, most, with_ids=with_ids))
    click.echo(_accounted(told.coverage))
    if words := sides_of_trace(trace):
        click.echo(f"sides     {words}")
    if trace.unpriced and (trace.cost_usd is not None or any(trace.unpriced)):
        click.echo(f"cost      {cost_words(trace.cost_usd, trace.unpriced)}{_how_to_price(trace.unpriced)}")


def _how_to_price(unpriced: Mapping[str, int]) -> str:
    """Where prices go, and a file that only lacks them; of tokens of no named model nothing can be said."""
    text = price_file(unpriced, most=_PRICED)
    return f"; --prices FILE with this in it prices them, once dollars per million tokens stand for nan:\n{text}" if text else ""


def _many(found: Selection, options: dict[str, Any], *, as_json: bool) -> None:
    """Many traces, summed."""
    group = options["group"] or "trace"
    _known(group, GROUPS, "group traces by")
    if options["events_of"] is not None:
        raise InputError("--events-of lists the events of one trace", fix="name one trace")
    period = found.period
    if group in WHOLE:
        by_time = group == "day" or period is not None
        told = sums_of_lines(found.summaries(quiet=as_json, by_time=by_time), group, options["sort"], period=period)
    else:
        told = sums_of_traces(found.traces(quiet=as_json), group, options["sort"], period=period)  # type: ignore[arg-type]
    most = most_rows(options["rows"], None if as_json else _ROWS)
    if as_json:
        emit({"schema": SCHEMA_VERSION, **told.as_dict() | {"rows": told.as_dict()["rows"][:most]}})
        return
    click.echo(sums_table(told, most, with_ids=options["with_ids"]))


def _known(group: str, groups: Sequence[str], what: str, fix: str | None = None) -> None:
    if group not in groups:
        raise InputError(f"cannot {what} {group!r}", fix=fix or did_you_mean(group, groups))


def _id_of(rows: Sequence[Row], name: str) -> str:
    """The id of an agent that was named as people call it."""
    return next((row.name for row in rows if row.label == name and row.name), name)


def sums_table(told: Sums, most: int | None, *, with_ids: bool = False) -> str:
    """Lines of sums, and below them the total."""
    rows = told.rows[-(most or 0) :] if told.group == "day" else told.rows[:most]
    is_whole = told.group in WHOLE and told.group != "day"
    head = [told.group, "traces", "events", *([] if is_whole else ["calls"]), "errors", "tokens", "cost"]
    head.append("time" if told.group in WHOLE else "busy")
    cells = [_sum_cells((s.name if with_ids else s.label or s.name) or "(none)", s, is_whole=is_whole) for s in rows]
    if len(rows) < len(told.rows):
        cells.append([f"… {len(told.rows) - len(rows):,} more lines (--rows)", *[""] * (len(head) - 1)])
    cells.append(_sum_cells("total", told.total, is_whole=is_whole))
    text = table(head, cells, right=range(1, len(head)))
    left = told.total.unpriced
    has_words = left and (told.total.cost_usd is not None or any(left))
    if told.group == "day":
        text += f"\ndays      are of {zone()}; a trace is in the line of every day on which it was at work"
    if told.total.uncounted:
        who = counted(told.total.uncounted, "agent or model call has", "agents or model calls have") + " no true count"
        text += f"\ntokens    and cost are at least that: {who}"
    words = told.total.sides and sides_words(
        told.total.sides, told.total.tokens, told.total.cost_usd, unpriced=left, unknown=told.total.uncounted
    )
    text += f"\nsides     {words}" if words else ""
    return text + (f"\ncost      {cost_words(told.total.cost_usd, left)}{_how_to_price(left)}" if has_words else "")


def _sum_cells(name: str, s: Sum, *, is_whole: bool) -> list[str]:
    cost, tokens = at_least(money(s.cost_usd), s.unpriced or s.uncounted), at_least(compact(s.tokens), s.uncounted)
    calls = [] if is_whole else [number(s.calls)]
    return [name, number(s.traces), number(s.events), *calls, number(s.errors), tokens, cost, duration(s.seconds)]


def _said(row: Row, *, with_ids: bool) -> str:
    """The name of a row as it is shown: what people call an agent, or its id."""
    return (row.name if with_ids else row.label or row.name) or ""


def _stem(name: str) -> str:
    return _NUMBER.sub("", name) or name


def _tree(rows: list[Row], by: str, *, is_folded: bool, with_ids: bool) -> list[_Line]:
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
            key = (_stem(_said(row, with_ids=with_ids)), row.role) if is_folded else row.name
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


def _table(lines: list[_Line], by: str, group: str, most: int | None, *, with_ids: bool) -> str:
    drawn = _drawn(lines)
    own, total = FIGURES[by]
    weight = {id(line): float(line.sum(total) or line.sum(own) or 0) for _, line in drawn}
    # The largest lines; a parent's total is at least its child's, and it comes first, so the tree stays whole.
    kept = set(sorted(range(len(drawn)), key=lambda k: (-weight[id(drawn[k][1])], k))[:most])
    cells = [_cells(lead, line, with_ids=with_ids) for k, (lead, line) in enumerate(drawn) if k in kept]
    cut = [line for k, (_, line) in enumerate(drawn) if k not in kept]
    if cut:
        figures = [sum(v for line in cut if (v := line.sum(f)) is not None) for f in ("events", "calls", "errors")]
        tokens = compact(sum(line.sum("tokens_own") or 0 for line in cut))
        cells.append([f"… {len(cut):,} more lines (--rows)", tokens, "", "", "", "", *map(number, figures)])
    return table((group, "own", "total", "cost", "busy", "path%", "events", "calls", "errors"), cells, right=range(1, 9))


def _cells(lead: str, line: _Line, *, with_ids: bool) -> list[Any]:
    show: list[tuple[str, Callable[[float | None], str]]] = [
        ("tokens_own", compact), ("tokens_total", compact), ("cost_own", money), ("busy_s", duration), ("path", _percent),
        ("events", number), ("calls", number), ("errors", number),
    ]  # fmt: skip
    cells = [how(line.sum(figure)) for figure, how in show]
    cells[2] = at_least(cells[2], any(row.unpriced for row in line.rows))
    return [lead + line.label(with_ids=with_ids), *cells]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}"


def _accounted(covered: Coverage) -> str:
    if not covered.total:
        return "tokens: none recorded"
    unknown = [f"{counted(covered.missing, 'agent')} without a transcript"] if covered.missing else []
    if covered.placeholders:
        unknown.append(f"{counted(covered.placeholders, 'model call')} with a placeholder for the output")
    share = f"{100 * covered.share:.0f} %" if covered.share is not None else ", ".join(unknown)
    least = "at least " if unknown else ""
    text = f"accounted {compact(covered.accounted)} of {least}{compact(covered.total)} tokens ({share})"
    left = covered.total - covered.accounted
    text += f"; {compact(left)} have no usage record" if left else ""
    return text + (f"; {covered.no_record:,} acts carry no tokens" if covered.no_record else "")


def _behind(trace: Trace, facts: Facts, group: str, name: str, by: str, most: int | None, *, as_json: bool) -> None:
    numbers = behind(trace, group, name)  # type: ignore[arg-type]
    if as_json:
        listed = [trace.events[i].id for i in numbers]
        emit({"schema": SCHEMA_VERSION, "trace_id": trace.trace_id, "group": group, "name": name, "events": listed})
        return
    field_: dict[str, Callable[[int], float]] = {
        "tokens": lambda i: int(facts.tokens_E[i]), "cost": lambda i: float(facts.cost_E[i]),
        "time": lambda i: float(facts.dur_E[i]), "events": lambda i: 0,
    }  # fmt: skip
    shown = sorted(numbers, key=lambda i: -field_[by](i))[:most]
    rows = []
    for i in shown:
        e = trace.events[i]
        tokens = int(facts.tokens_E[i]) if facts.has_tokens_E[i] else None
        rows.append((e.id, e.t, e.type, e.tool or e.to or "", compact(tokens), money(e.cost_usd), duration(e.dur)))
    click.echo(table(("event", "t", "type", "tool or to", "tokens", "cost", "busy"), rows, right=(1, 4, 5, 6)))
    click.echo(f"{len(shown):,} of {len(numbers):,} events, the largest by {by} first")
