"""Who earned it, for the page: every mechanism of the registry, what it says about a trace, and whether its sums close.

Always true: the numbers are the mechanism's own; a refusal is an answer with its reason, not an error. For an additive
mechanism the agents plus `unassigned` are the team's reward, and `closes` says that its rows add up to what it declares; for
the others there is no target, and the total is the method's own. Only mechanisms that are shipped can be asked for: a name
that leads to other code cannot.
"""

from __future__ import annotations

import counterpoint.registry as registry
from counterpoint.app.api.credit import credit_of, mechanism
from counterpoint.app.contributions import contributions
from counterpoint.app.forks import can_fork, free_replay, last_merge, world_of
from counterpoint.app.viewer.shapes import Credit, CreditRow, MethodInfo, Work, WorkRow
from counterpoint.app.viewer.trace_view import TraceView, view_of
from counterpoint.audits.work.agents import TeamWork
from counterpoint.credits.choice import CreditChoice, choose
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.row_places import EVENT_UNITS, RowPlaces
from counterpoint.errors import CounterpointError, NotFound, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.rows import Credit as Earned
from counterpoint.trace.rows import CreditRow as Row

_Z = 1.959963984540054
"""Half the width of a 95 % interval, in standard errors."""
# Up to this many events every mechanism is tried to see whether it answers; beyond it only what it says it needs is looked at.
_TRIED = 5_000
_EXCERPT = 120


def methods(trace: Trace) -> list[MethodInfo]:
    """Every mechanism, those that answer first."""
    view = view_of(trace)
    return view.once("methods", lambda: _methods(view))


def _methods(view: TraceView) -> list[MethodInfo]:
    best = default_method(view)
    every = [_info(view, name, best) for name in registry.ids("mechanism")]
    return sorted(every, key=lambda method: (method.why is None, method.refusal is not None))


def team_work(view: TraceView) -> TeamWork:
    """What each agent cost and what became of its work."""
    return view.once("work", lambda: contributions(view.trace))


def work(trace: Trace) -> Work:
    """The same for the page, in the columns of `counterpoint credit`."""
    view = view_of(trace)
    told, found = team_work(view), default_method(view)
    if found is not None:
        why = None
    else:
        why = "no outcome is stated: nothing says how well the team did" if "team" not in trace.rewards else (
            "nothing here says what the team would have got without an agent")  # fmt: skip
    most = max((one.lines_kept or 0 for one in told.agents), default=0) or 1
    rows = [
        WorkRow(agent=view.team.number[one.agent], name=one.name, spent=one.expense, became=one.became,
                lines=(one.lines_kept or 0) / most)
        for one in told.agents
    ]  # fmt: skip
    return Work(rows=rows, headline=told.headline, notes=told.notes, why_no_credit=why)


def default_method(view: TraceView) -> CreditChoice | None:
    """The method that is shown where nobody chose another, as `counterpoint credit` chooses it; None where none answers."""
    return view.once("default", lambda: _chosen(view))


def _chosen(view: TraceView) -> CreditChoice | None:
    try:
        found = choose([view.trace], replay=free_replay(view.trace), merged=last_merge)
    except CounterpointError:
        return None
    view.kept["credit", found.credit.mechanism] = found.credit
    return found


def _info(view: TraceView, name: str, best: CreditChoice | None) -> MethodInfo:
    known = mechanism(name)
    is_best = best is not None and best.credit.mechanism == name
    return MethodInfo(
        id=name,
        about=registry.summary("mechanism", name),
        unit="agent" if is_best else known.unit,
        is_additive=known.additive,
        refusal=None if is_best else _refusal(view, name, known),
        why=best.why if is_best and best is not None else None,
    )


def _refusal(view: TraceView, name: str, known: Mechanism) -> str | None:
    """Why a mechanism has no answer here; None where it has one, or where finding out means forking."""
    needs_replay = "replay" in known.needs
    if needs_replay and can_fork(view.trace):
        return None
    if view.n <= _TRIED:
        found = _earned(view, name)
        return found.one_line() if isinstance(found, CounterpointError) else _nothing(found)
    if needs_replay:
        return "it needs to know what would have happened otherwise, and this trace cannot be forked"
    if known.outside_needs:
        return f"it needs something that is not in a trace: {known.outside_needs[0]}"
    return None if "team" in view.trace.rewards else "the trace has no reward 'team'"


def _nothing(found: Earned) -> str | None:
    if found.rows:
        return None
    return next(iter(found.unidentified.values()), "it has nothing to say about this trace")


def _earned(view: TraceView, name: str) -> Earned | CounterpointError:
    """What the mechanism says, or its refusal."""
    key = ("credit", name)
    if key not in view.kept:
        try:
            view.kept[key] = credit_of(name, [view.trace], mechanism(name).fallback, replay=world_of)
        except CounterpointError as error:
            view.kept[key] = error.with_traceback(None)
    kept: Earned | CounterpointError = view.kept[key]
    return kept


def credit(trace: Trace, method: str, unit: str = "") -> Credit:
    """What a method says at a unit; without a unit by agent, else at the coarsest that it has rows for."""
    name, view = method.replace("-", "_"), view_of(trace)
    known = registry.ids("mechanism")
    if name not in known:
        raise NotFound(f"no credit method named {method!r}", fix=did_you_mean(name, known))
    additive = mechanism(name).additive
    if view.is_large and ("credit", name) not in view.kept:
        why = f"{view.n:,} events are more than the page waits for"
        return _no_answer(name, unit, [], additive, why, f"counterpoint credit {trace.trace_id} --mechanism {name}")
    found = _earned(view, name)
    if isinstance(found, CounterpointError):
        return _no_answer(name, unit, [], additive, found.what, found.fix)
    if not found.rows:
        return _no_answer(name, unit, [], additive, _nothing(found) or "", None)
    units = _units(found)
    unit = unit or ("agent" if "agent" in units else units[0])
    if unit not in units:
        fix = f"it gives credit by {', '.join(units)}"
        return _no_answer(name, unit, units, additive, f"{name} gives no credit by {unit} here", fix)
    return _answer(view, found, unit)


def _units(found: Earned) -> list[str]:
    """What can be asked for: the units that have rows, and `event` where some of them are events."""
    return [*found.units, *(["event"] if _on_events(found) else [])]


def _on_events(found: Earned) -> list[str]:
    """The units of `event`: all whose ids are events; of an additive mechanism the finest alone, for each adds up by itself."""
    units = [unit for unit in found.units if unit in EVENT_UNITS]
    return units[-1:] if found.additive else units


def _no_answer(method: str, unit: str, units: list[str], additive: bool, why: str, fix: str | None) -> Credit:
    return Credit(
        method=method, unit=unit, units=units, rows=[], by_agent={}, total=None, target=None, unassigned=None,
        whole="R", notes=[], is_additive=additive, closes=None, refusal=why, fix=fix,
    )  # fmt: skip


def _answer(view: TraceView, found: Earned, unit: str) -> Credit:
    wanted = _on_events(found) if unit == "event" else [unit]
    rows = [_row(view, found, row) for row in found.rows if row.unit in wanted]
    if unit != "token":  # tokens are read in their order
        rows.sort(key=lambda row: -abs(row.value))
    by_agent: dict[str, float] = {}
    if unit == "event" and "agent" in found.units:  # the method's own word on agents, who may have no event of their own
        by_agent = _places(view).by_agent(found)
    else:
        for row in rows:
            if row.agent >= 0:
                name = view.team.names[row.agent]
                by_agent[name] = by_agent.get(name, 0.0) + row.value
    total, size = sum(row.value for row in rows), sum(abs(row.value) for row in rows)
    declared = float(found.declared[0]) if found.additive and found.declared is not None else None
    reward = view.trace.rewards.get("team")
    target = (float(reward) if reward is not None else declared) if declared is not None else None
    is_share = found.mechanism == "provenance"
    target = 1.0 if is_share else target
    return Credit(
        method=found.mechanism,
        unit=unit,
        units=_units(found),
        rows=rows,
        by_agent=by_agent,
        total=total,
        target=target,
        whole="result" if is_share else "R",
        notes=_notes(view, found) if is_share else [],
        unassigned=None if target is None else target - sum(by_agent.values()),
        is_additive=found.additive,
        closes=None if declared is None else abs(total - declared) <= 1e-9 * max(1.0, size),
        refusal=None,
        fix=None,
    )


def _notes(view: TraceView, found: Earned) -> list[str]:
    """What provenance gives to nobody, and who is not in the result."""
    about, labels = found.notes["traces"][0], dict(zip(view.team.names, view.team.label_A, strict=True))
    parts = f"{about['printed']:.0%} printed by tools, {about['given']:.0%} given by the user or the system, "
    parts += f"{about['new']:.0%} new in the result"
    out = [f"Of {about['words']:,} words: {about['traced']:.0%} traced to the team, {parts}, {about['unlinked']:.0%} said "
           "earlier by an agent that no recorded message connects to the result."]  # fmt: skip
    for name, heading in (("unused", "Not used in the result"), ("unread", "Never read by anybody")):
        if about[name]:
            more = f" and {len(about[name]) - 8:,} more" if len(about[name]) > 8 else ""
            out.append(f"{heading}: {', '.join(labels.get(one, one) for one in about[name][:8])}{more}.")
    return out


def _row(view: TraceView, found: Earned, row: Row) -> CreditRow:
    """A row with the event and the agent that its id names, and what was said there."""
    event, agent = _places(view).of(row)
    half = None if row.se is None else _Z * row.se
    return CreditRow(
        label=row.unit_id or "team",
        event=int(view.team.place_E[event]) if event >= 0 else -1,
        agent=agent,
        value=row.value,
        low=None if half is None else row.value - half,
        high=None if half is None else row.value + half,
        excerpt=_excerpt(view, found, event, agent),
    )


def _places(view: TraceView) -> RowPlaces:
    return view.once("places", lambda: RowPlaces(view.trace))


def _excerpt(view: TraceView, found: Earned, event: int, agent: int) -> str:
    """The words that the result has from there, where the method says so; else the beginning of the event's text."""
    if found.mechanism == "provenance":
        matched = found.notes["traces"][0]["matched"]
        trace, team = view.trace, view.team
        ids = [trace.events[event].id] if event >= 0 else [e for e in matched if team.agent_E[trace.index[e]] == agent]
        return max((run for name in ids for run in matched.get(name, ())), key=len, default="")[:_EXCERPT]
    text = view.trace.text(view.trace.events[event]) if event >= 0 else None
    return " ".join((text or "")[: 2 * _EXCERPT].split())[:_EXCERPT]
