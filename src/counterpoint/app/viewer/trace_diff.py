"""`Diff` for the page: two traces side by side, as `audit.diff` aligns them.

Always true: the rows follow the first trace's story, and what only the second has stands after what it follows there, behind
what only the first has at that place; so the first row that differs is where `audit.diff` says that they part. Every event of
both is counted. In a fork the event that was edited is `edited`, what changed with it is `changed`. Of a long pair,
rows that are the same are told only near a difference.
"""

from __future__ import annotations

import numpy as np

from counterpoint.app.viewer.events import cut_text
from counterpoint.app.viewer.shapes import Diff, DiffRow
from counterpoint.app.viewer.trace_view import TraceView, view_of
from counterpoint.audits.diff import aligned, fingerprint
from counterpoint.trace import Event, Trace
from counterpoint.trace.steering import is_steered

_CUT = 400
_WHOLE = 20_000
_AROUND = 3


def diff(a: Trace, b: Trace) -> Diff:
    """Two traces, such as a run and its fork."""
    one, two = view_of(a), view_of(b)
    rows = _rows(one, two)
    same = sum(row.what == "same" for row in rows)
    kept = _near(rows) if len(rows) > _WHOLE else rows
    first = next((k for k, row in enumerate(kept) if row.what != "same"), -1)
    return Diff(
        a=a.trace_id,
        b=b.trace_id,
        rows=kept,
        same=same,
        different=len(rows) - same,
        first=first,
        sums=_sums(one, two),
        agents=_agents(one, two),
        steered=[one.trace_id for one in (a, b) if is_steered(one)],
    )


def _rows(one: TraceView, two: TraceView) -> list[DiffRow]:
    names_a, names_b = aligned(one.trace.events), aligned(two.trace.events)
    at_a, at_b = ({name: i for i, name in enumerate(names)} for names in (names_a, names_b))
    after: dict[int, list[int]] = {}
    last = -1
    for j in two.team.order_E.tolist():
        if names_b[j] in at_a:
            last = at_a[names_b[j]]
        else:
            after.setdefault(last, []).append(j)
    edited = _edited(two.trace)
    rows: list[DiffRow] = []
    waiting = after.get(-1, [])
    for i in one.team.order_E.tolist():
        row = _row(one, two, i, at_b.get(names_a[i], -1), edited)
        if row.b >= 0:
            rows += [_only_b(two, j) for j in waiting]
            waiting = after.get(i, [])
        rows.append(row)
    return rows + [_only_b(two, j) for j in waiting]


def _edited(fork: Trace) -> str | None:
    """The event of the first trace that a fork says it edited last."""
    edits = fork.meta.get("edits")
    last = edits[-1] if isinstance(edits, list) and edits else None
    at = last.get("at") if isinstance(last, dict) else None
    return at if isinstance(at, str) else None


def _row(one: TraceView, two: TraceView, i: int, j: int, edited: str | None) -> DiffRow:
    event = one.trace.events[i]
    n = int(one.team.place_E[i])
    if j < 0:
        what = "edited" if event.id == edited else "only-a"
        return DiffRow(what=what, a=n, b=-1, type=event.type, agent=event.agent, before=_cell_text(one, event), after="")
    twin = two.trace.events[j]
    m = int(two.team.place_E[j])
    if fingerprint(event) == fingerprint(twin):
        return DiffRow(what="same", a=n, b=m, type=event.type, agent=event.agent, before="", after="")
    what = "edited" if event.id == edited else "changed"
    before, after = _cell_text(one, event), _cell_text(two, twin)
    return DiffRow(what=what, a=n, b=m, type=event.type, agent=event.agent, before=before, after=after)


def _only_b(two: TraceView, j: int) -> DiffRow:
    event, m = two.trace.events[j], int(two.team.place_E[j])
    return DiffRow(what="only-b", a=-1, b=m, type=event.type, agent=event.agent, before="", after=_cell_text(two, event))


def _cell_text(view: TraceView, event: Event) -> str:
    """What an event says, or what it is about."""
    text = view.trace.text(event) or event.error or event.tool or event.to or event.decision or ""
    cut, size = cut_text(text, _CUT)
    return cut if size <= _CUT else cut + "…"


def _near(rows: list[DiffRow]) -> list[DiffRow]:
    differs = np.array([row.what != "same" for row in rows], np.bool_)
    near = differs.copy()
    for shift in range(1, _AROUND + 1):
        near[shift:] |= differs[:-shift]
        near[:-shift] |= differs[shift:]
    return [rows[k] for k in np.flatnonzero(near).tolist()]


def _sums(one: TraceView, two: TraceView) -> dict[str, list[float | None]]:
    def of(view: TraceView) -> dict[str, float | None]:
        trace = view.trace
        sums = {
            "tokens": trace.tokens,
            "seconds": trace.duration_s,
            "cost_usd": trace.cost_usd,
            "reward": trace.rewards.get("team"),
        }
        return {name: None if value is None else float(value) for name, value in sums.items()}

    left, right = of(one), of(two)
    return {name: [left[name], right[name]] for name in left}


def _agents(one: TraceView, two: TraceView) -> dict[str, list[float]]:
    """Tokens of each agent in both, where they differ."""
    sums: dict[str, list[float]] = {}
    for side, view in enumerate((one, two)):
        for name, tokens in zip(view.team.names, view.team.per_agent(view.facts.tokens_E).tolist(), strict=True):
            sums.setdefault(name, [0.0, 0.0])[side] = float(tokens)
    return {name: both for name, both in sums.items() if both[0] != both[1]}
