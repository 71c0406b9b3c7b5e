"""Tools that look: search, show, top, diff and sql.

Always true: each gives sections of masked texts, with the ids of the events they rest on; a figure nobody recorded is a dash.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from counterpoint.answer import Line, Section
from counterpoint.app.api.fork import diff as diff_of
from counterpoint.app.api.sums import GROUPS, WHOLE, Sum, sums_of_lines, sums_of_traces
from counterpoint.app.api.top import rank, top_of
from counterpoint.app.mcp.answers import Reply, cleaned, fitting, short
from counterpoint.app.mcp.reading import IMPORT, Reading
from counterpoint.app.price_file import cost_words
from counterpoint.app.search import period_of
from counterpoint.app.viewer.event_search import find
from counterpoint.app.viewer.trace_view import view_of
from counterpoint.audits.diff import Diff
from counterpoint.audits.rollups import BY, Row
from counterpoint.display import at_least, compact, counted, duration, local_moment, money, number
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.store.handles import short_ids
from counterpoint.store.query import VIEWS
from counterpoint.store.summary import Summary
from counterpoint.trace import Event, Trace
from counterpoint.trace.annotation import annotations_of, one_line
from counterpoint.trace.ending import ending_words
from counterpoint.trace.naming import models_of, short_model, title_of
from counterpoint.trace.outcome import in_words
from counterpoint.trace.team import team_of
from counterpoint.trace.wire import event_dict

_TEXT_TOKENS = 1_000
"""Of the text of one event."""
_AGENTS, _ASKED, _LARGEST, _PAIRS, _LINKS = 8, 5, 6, 6, 12
_SAID = (
    "type", "agent", "role", "t", "dur", "tool", "to", "from_", "decision", "ok", "error", "model", "tokens_in", "tokens_out",
    "cost_usd", "source", "task",
)  # fmt: skip
_SQL_CELL = 160


# -- sessions and events -------------------------------------------------------------------------------------------------


def search(reading: Reading, query: str, trace: str, limit: int, offset: int) -> Reply:
    """Sessions that match a query, the newest first; with a trace, its events that do."""
    if trace:
        return _events(reading.named(trace), query, limit, offset)
    every = reading.rows()
    rows = reading.rows(query) if query else every
    if not rows:
        raise NotFound("no session matches" if every else "there are no sessions yet", fix="fewer terms" if every else IMPORT)
    shown, names = rows[offset : offset + limit], short_ids(row.id for row in every)
    texts = cleaned([row.title or row.task_id for row in shown] + [row.project for row in shown])
    cells = [
        (names[row.id], local_moment(row.active), texts[k], texts[len(shown) + k], ", ".join(map(short_model, row.models[:2])),
         row.agents, row.events, at_least(compact(row.tokens), row.uncounted), _cost(row), duration(row.wall_clock_s), row.errors,
         "open" if row.is_open else "")
        for k, row in enumerate(shown)
    ]  # fmt: skip
    head = ("trace", "active", "title", "project", "model", "agents", "events", "tokens", "cost", "time", "errors", "")
    words = f"{counted(len(rows), 'session')}, the newest first; the newest in the store ended {local_moment(every[0].active)}"
    return Reply([Section(words=words, head=head, rows=cells, right=range(5, 11))], more=_rest(len(rows), len(shown), offset))


def _cost(row: Summary) -> str:
    return at_least(money(row.cost_usd), row.unpriced or row.uncounted)


def _rest(found: int, shown: int, offset: int) -> list[str]:
    left = found - offset - shown
    return [f"and {left:,} more: ask with offset={offset + shown}"] if left > 0 else []


_HEAD = ("event", "at", "type", "agent", "what", "tokens", "cost", "says")


def _events(trace: Trace, query: str, limit: int, offset: int) -> Reply:
    order, found = view_of(trace).team.order_E, find(trace, query)
    shown = [trace.events[int(order[n])] for n in found[offset : offset + limit]]
    words = f"{counted(len(found), 'event')} of {len(trace.events):,} in {trace.trace_id}"
    rows = [_cells(trace, event) for event in shown]
    return Reply([Section(words=words, head=_HEAD, rows=rows, right=(1, 5, 6))], more=_rest(len(found), len(shown), offset))


def _cells(trace: Trace, event: Event) -> tuple[Any, ...]:
    team = team_of(trace)
    spent = None if event.tokens_in is None and event.tokens_out is None else (event.tokens_in or 0) + (event.tokens_out or 0)
    what = event.tool or event.to or event.decision or ""
    says = event.error or (trace.text(event) or "")[:2000]
    who = team.label_A[int(team.agent_E[trace.index[event.id]])]
    return event.id, duration(event.t), event.type, who, what, compact(spent), money(event.cost_usd), short(says, 80)


def show(reading: Reading, trace: str, event: str, offset: int) -> Reply:
    """A session on a card; or one of its events, whole, a part of its text at a time."""
    name = reading.one(trace)
    loaded = reading.trace(name)
    if event:
        return _event(loaded, event, offset)
    row = next((one for one in reading.rows() if one.id == name), None)
    sections = [_card(reading, loaded, row), _agents(loaded)]
    is_asked = lambda e: e.type == "human_intervention" or (e.type == "message" and (e.role or e.agent) == "user")  # noqa: E731
    asked = [e for e in loaded.events if is_asked(e)]
    said = [(e.id, duration(e.t), short(loaded.text(e), 160)) for e in asked[:_ASKED]]
    if said:
        more = f"and {len(asked) - len(said):,} more" if len(asked) > len(said) else ""
        sections.append(Section("what people asked", head=("event", "at", "says"), rows=said, more=more))
    return Reply(sections, more=["one event: show with event=ID; events: search with trace; costs: top; errors: failures, blame"])


def _card(reading: Reading, trace: Trace, row: Summary | None) -> Section:
    lines: list[Line | tuple[str, str]] = [("trace", trace.trace_id), ("title", title_of(trace) or "-")]
    usual = None
    if row is not None:
        where = " (this folder's project)" if reading.is_here(row) else ""
        lines += [("project", f"{cleaned([row.project])[0] or '-'}{where}"), ("active", local_moment(row.active))]
        usual = reading.usual(row)
    size = [counted(len(trace.members), "agent"), counted(len(trace.events), "event"), counted(len(trace.failures), "error")]
    lines += [("models", ", ".join(models_of(trace.events, trace.meta)[:4]) or "-"), ("size", ", ".join(size))]
    costs, price = trace.known_costs, cost_words(trace.cost_usd, trace.unpriced)
    lines.append(("spent", f"{compact(costs.get('tokens'))} tokens, {duration(costs.get('wall_clock_s'))}, {price}"))
    if usual is not None:
        lines.append(("before", f"the {usual[1]} sessions of its project before it had a median cost of {money(usual[0])}"))
    lines += [("ending", words) for words in ending_words(trace)] + [("outcome", words) for words in in_words(trace)]
    lines += [("note", one_line(one)) for one in annotations_of(trace)[-3:]]
    return Section(lines=lines)


def _agents(trace: Trace) -> Section:
    rows = sorted(top_of(trace).rows, key=lambda row: -rank(row, "tokens"))
    left = len(rows) - _AGENTS
    more = f"and {left:,} more agents: top" if left > 0 else ""
    return _table("agents", "agent", rows[:_AGENTS], more)


def _event(trace: Trace, name: str, offset: int) -> Reply:
    if name not in trace.index:
        raise NotFound(f"no event {name[:80]!r} in this session", fix="search with trace lists its events")
    event = trace.events[trace.index[name]]
    fields = event_dict(event)
    lines = [("event", f"{name} of {trace.trace_id}")]
    lines += [(key.rstrip("_"), str(fields[key])) for key in _SAID if fields.get(key) is not None]
    for label, linked in (
        ("caused by", [f"{e.src} ({e.type})" for e in trace.edges if e.dst == name]),
        ("led to", [f"{e.dst} ({e.type})" for e in trace.edges if e.src == name]),
    ):
        left = f" and {len(linked) - _LINKS:,} more" if len(linked) > _LINKS else ""
        lines.append((label, (", ".join(linked[:_LINKS]) or "-") + left))
    lines += [("note", one_line(one)) for one in annotations_of(trace) if one.event == name]
    whole = trace.text(event)
    if whole is None:
        lines.append(("text", "not in the store" if event.content_ref else "-"))
    part = fitting((whole or "")[offset:], _TEXT_TOKENS)
    end = offset + len(part)
    more = [f"and {len(whole) - end:,} more characters: ask with offset={end}"] if whole and end < len(whole) else []
    return Reply([Section(lines=lines)], part, more)


# -- where it went -------------------------------------------------------------------------------------------------------


def top(reading: Reading, which: str, by: str, limit: int) -> Reply:
    """Where tokens, money and time went."""
    found = reading.one_or_many(which)
    if isinstance(found, str):
        _known(by or "agent", BY, "a session")
        return _top_of_one(reading.trace(found), by or "agent", limit)
    group = by or "trace"
    _known(group, GROUPS, "sessions")
    period, notes = period_of(which), []
    if group in WHOLE:
        told = sums_of_lines(found, group, period=period)
    else:
        read = reading.read(found)
        told, notes = sums_of_traces(read.traces, group, period=period), read.words  # type: ignore[arg-type]
    rows = told.rows[-limit:] if group == "day" else told.rows[:limit]
    names = cleaned([s.label or s.name or "(none)" for s in rows])
    keys = cleaned([s.name for s in rows]) if group == "trace" else None
    cells = [(*([keys[k]] if keys else []), names[k], *_sum_cells(s)) for k, s in enumerate(rows)]
    cells.append((*([""] if keys else []), "total", *_sum_cells(told.total)))
    head = (*(["trace"] if keys else []), group if not keys else "title", "traces", "events", "errors", "tokens", "cost", "time")
    more = [f"and {len(told.rows) - len(rows):,} more: ask with limit"] if len(rows) < len(told.rows) else []
    section = Section(words="a plus means at least that much", head=head, rows=cells, right=range(len(head) - 6, len(head)))
    return Reply([section], more=[*notes, *more])


def _sum_cells(s: Sum) -> list[str]:
    cost, tokens = at_least(money(s.cost_usd), s.unpriced or s.uncounted), at_least(compact(s.tokens), s.uncounted)
    return [number(s.traces), number(s.events), number(s.errors), tokens, cost, duration(s.seconds)]


def _known(by: str, groups: Sequence[str], what: str) -> None:
    if by not in groups:
        raise InputError(f"cannot group {what} by {by!r}", fix=did_you_mean(by, groups))


def _top_of_one(trace: Trace, by: str, limit: int) -> Reply:
    told = top_of(trace, group=by)  # type: ignore[arg-type]
    ordered = sorted(told.rows, key=lambda row: -rank(row, told.by))
    spent, covered = cost_words(trace.cost_usd, trace.unpriced), told.coverage
    known = f"{compact(covered.total)} tokens, {spent}; events account for {compact(covered.accounted)} tokens"
    words = f"{trace.trace_id}: {known if covered.total else 'no tokens are recorded'}"
    sections = [Section(words=words), _table(f"by {by}, the most {told.by} first", by, ordered[:limit], "")]
    largest = sorted(trace.events, key=lambda e: (-(e.cost_usd or 0.0), -((e.tokens_in or 0) + (e.tokens_out or 0))))
    rows = [_cells(trace, e) for e in largest[:_LARGEST] if e.cost_usd or e.tokens_in or e.tokens_out]
    if rows:
        sections.append(Section("the largest single events", head=_HEAD, rows=rows, right=(1, 5, 6)))
    return Reply(sections, more=[f"and {len(ordered) - limit:,} more: ask with limit"] if len(ordered) > limit else [])


def _table(title: str, what: str, rows: Sequence[Row], more: str) -> Section:
    head = (what, "tokens", "with children", "cost", "busy", "events", "calls", "errors")
    cells = [
        (row.label or row.name or "(none)", compact(row.tokens_own), compact(row.tokens_total), money(row.cost_own),
         duration(row.busy_s), row.events, row.calls, row.errors)
        for row in rows
    ]  # fmt: skip
    return Section(title, head=head, rows=cells, right=range(1, 8), more=more)


# -- two sessions --------------------------------------------------------------------------------------------------------


def diff(reading: Reading, a: str, b: str) -> Reply:
    """Two sessions side by side: where they part, and what changed, came and went."""
    first, second = reading.named(a), reading.named(b)
    found: Diff = diff_of(first, second)
    kinds = (("changed", found.changed), ("only in b", found.new), ("only in a", found.gone))
    counts = f"{found.same:,} events are the same; " + ", ".join(f"{len(pairs):,} {name}" for name, pairs in kinds)
    lines = [("a", f"{first.trace_id}: {title_of(first) or '-'}"), ("b", f"{second.trace_id}: {title_of(second) or '-'}")]
    lines.append(("events", counts))
    if found.first is not None:
        at = found.first.event
        lines.append(("they part", f"at {at.a or '-'} in a, {at.b or '-'} in b ({found.first.how})"))
    figures = [(name, number(x), number(y)) for name, (x, y) in (*found.rewards.items(), *found.costs.items()) if x != y]
    rows = [(name, p.a or "-", p.b or "-", _says(first, p.a), _says(second, p.b)) for name, ps in kinds for p in ps[:_PAIRS]]
    sections = [Section(lines=lines)]
    sections += [Section(head=("figure", "a", "b"), rows=figures, right=(1, 2))] if figures else []
    sections += [Section(head=("what", "event of a", "event of b", "says in a", "says in b"), rows=rows)] if rows else []
    left = sum(max(0, len(pairs) - _PAIRS) for _, pairs in kinds)
    return Reply(sections, more=[f"and {left:,} more events that differ: search with trace"] if left else [])


def _says(trace: Trace, name: str | None) -> str:
    return "" if name is None else short(trace.text(trace.events[trace.index[name]]), 60)


# -- SQL -----------------------------------------------------------------------------------------------------------------


def sql(reading: Reading, query: str, limit: int) -> Reply:
    """The answer to a query over the masked views; without a query, the views and their columns."""
    if not query.strip():
        columns = [(view, ", ".join(_columns(reading, view))) for view in VIEWS]
        return Reply([Section("views and columns, in DuckDB's SQL; quote \"to\"", lines=columns)])
    answer = reading.sql(query, limit)
    rows = [[_value(value) for value in row] for row in answer.rows]
    right = [i for i in range(len(answer.columns)) if rows and all(isinstance(r[i], int | float | None) for r in answer.rows)]
    said = Section(words="" if rows else "no row", head=[short(name, 40) for name in answer.columns], rows=rows, right=right)
    return Reply([said], more=[f"only the first {limit:,} rows: ask with limit, or for less"] if answer.is_cut else [])


def _columns(reading: Reading, view: str) -> list[str]:
    return reading.sql(f"select * from {view} limit 0", 1).columns


def _value(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return short(value.isoformat() if isinstance(value, date) else str(value), _SQL_CELL)


