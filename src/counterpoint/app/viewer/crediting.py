"""Who earned it, for the page: every mechanism of the registry, what it says about a trace, and whether its sums close.

Always true: the numbers are the mechanism's own; a refusal is an answer with its reason, not an error. For an additive
mechanism the agents plus `unassigned` are the team's reward, and `closes` says that its rows add up to what it declares; for
the others there is no target, and the total is the method's own. Only mechanisms that are shipped can be asked for: a name
that leads to other code cannot.
"""

from __future__ import annotations

import counterpoint.registry as registry
from counterpoint.app.api.credit import credit_of, mechanism
from counterpoint.app.forking import can_fork, world_of
from counterpoint.app.viewer.prepared import Prepared, prepared
from counterpoint.app.viewer.shapes import Credit, CreditRow, MethodInfo
from counterpoint.credit.mechanism import Mechanism
from counterpoint.errors import CounterpointError, NotFound, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.rows import Credit as Earned
from counterpoint.trace.rows import CreditRow as Row

_Z = 1.959963984540054
"""Half the width of a 95 % interval, in standard errors."""
# Up to this many events every mechanism is tried to see whether it answers; beyond it only what it says it needs is looked at.
_TRIED = 5_000
_EVENT_UNITS = ("orchestrator", "message", "tool")
# What a mechanism may need that no trace holds.
_NOT_IN_TRACES = ("critic", "weights", "credit")


def methods(trace: Trace) -> list[MethodInfo]:
    """Every mechanism, those that answer first."""
    look = prepared(trace)
    if "methods" not in look.kept:
        every = [_info(look, name) for name in registry.ids("credit")]
        look.kept["methods"] = sorted(every, key=lambda method: method.refusal is not None)
    kept: list[MethodInfo] = look.kept["methods"]
    return kept


def _info(look: Prepared, name: str) -> MethodInfo:
    chosen = mechanism(name)
    return MethodInfo(
        id=name,
        about=registry.summary("credit", name),
        unit=chosen.unit,
        is_additive=chosen.additive,
        refusal=_refusal(look, name, chosen),
    )


def _refusal(look: Prepared, name: str, chosen: Mechanism) -> str | None:
    """Why a mechanism has no answer here; None where it has one, or where finding out means forking."""
    needs_replay = "replay" in chosen.needs
    if needs_replay and can_fork(look.trace):
        return None
    if look.n <= _TRIED:
        found = _earned(look, name)
        return found.one_line() if isinstance(found, CounterpointError) else _nothing(found)
    if needs_replay:
        return "it asks what else would have happened, and this trace cannot be forked"
    missing = [need for need in chosen.needs if need in _NOT_IN_TRACES]
    if missing:
        return f"it needs what no trace holds: {missing[0]}"
    return None if "team" in look.trace.rewards else "the trace has no reward 'team'"


def _nothing(found: Earned) -> str | None:
    if found.rows:
        return None
    return next(iter(found.unidentified.values()), "no unit of this trace gets a row")


def _earned(look: Prepared, name: str) -> Earned | CounterpointError:
    """What the mechanism says, or its refusal."""
    key = ("credit", name)
    if key not in look.kept:
        try:
            look.kept[key] = credit_of(name, [look.trace], replay=world_of)
        except CounterpointError as error:
            look.kept[key] = error.with_traceback(None)
    kept: Earned | CounterpointError = look.kept[key]
    return kept


def credit(trace: Trace, method: str, unit: str = "") -> Credit:
    """What a method says at a unit; without a unit by agent, else at the coarsest that it has rows for."""
    name, look = method.replace("-", "_"), prepared(trace)
    known = registry.ids("credit")
    if name not in known:
        raise NotFound(f"no credit method named {method!r}", fix=did_you_mean(name, known))
    additive = mechanism(name).additive
    if look.is_large:
        why = f"{look.n:,} events are more than the page waits for"
        return _refused(name, unit, [], additive, why, f"counterpoint credit {trace.trace_id} --method {name}")
    found = _earned(look, name)
    if isinstance(found, CounterpointError):
        return _refused(name, unit, [], additive, found.what, found.fix)
    if not found.rows:
        return _refused(name, unit, [], additive, _nothing(found) or "", None)
    units = _units(found)
    chosen = unit or ("agent" if "agent" in units else units[0])
    if chosen not in units:
        return _refused(name, chosen, units, additive, f"{name} gives no {chosen} rows here", f"it has: {', '.join(units)}")
    return _told(look, found, chosen)


def _units(found: Earned) -> list[str]:
    """What can be asked for: the units that have rows, and `event` where some of them are events."""
    return [*found.units, *(["event"] if _on_events(found) else [])]


def _on_events(found: Earned) -> list[str]:
    """The units of `event`: all whose ids are events; of an additive mechanism the finest alone, for each adds up by itself."""
    units = [unit for unit in found.units if unit in _EVENT_UNITS]
    return units[-1:] if found.additive else units


def _refused(method: str, unit: str, units: list[str], additive: bool, why: str, fix: str | None) -> Credit:
    return Credit(
        method=method, unit=unit, units=units, rows=[], by_agent={}, total=None, target=None, unassigned=None,
        is_additive=additive, closes=None, refusal=why, fix=fix,
    )  # fmt: skip


def _told(look: Prepared, found: Earned, unit: str) -> Credit:
    wanted = _on_events(found) if unit == "event" else [unit]
    rows = [_row(look, row) for row in found.rows if row.unit in wanted]
    by_agent: dict[str, float] = {}
    for row in rows:
        if row.agent >= 0:
            name = look.team.names[row.agent]
            by_agent[name] = by_agent.get(name, 0.0) + row.value
    total, size = sum(row.value for row in rows), sum(abs(row.value) for row in rows)
    declared = float(found.declared[0]) if found.additive and found.declared is not None else None
    reward = look.trace.rewards.get("team")
    target = (float(reward) if reward is not None else declared) if declared is not None else None
    return Credit(
        method=found.mechanism,
        unit=unit,
        units=_units(found),
        rows=rows,
        by_agent=by_agent,
        total=total,
        target=target,
        unassigned=None if target is None else target - sum(by_agent.values()),
        is_additive=found.additive,
        closes=None if declared is None else abs(total - declared) <= 1e-9 * max(1.0, size),
        refusal=None,
        fix=None,
    )


def _row(look: Prepared, row: Row) -> CreditRow:
    """A row with the event and the agent that its id names."""
    event, agent = _where(look, row)
    half = None if row.se is None else _Z * row.se
    return CreditRow(
        label=row.unit_id or "team",
        event=int(look.team.place_E[event]) if event >= 0 else -1,
        agent=agent,
        value=row.value,
        low=None if half is None else row.value - half,
        high=None if half is None else row.value + half,
    )


def _where(look: Prepared, row: Row) -> tuple[int, int]:
    """The event (in file order) and the agent of a unit's id, -1 for none."""
    team, index = look.team, look.trace.index
    if row.unit in ("team", "role"):
        return -1, -1
    if row.unit_id in index and row.unit not in ("agent", "turn"):
        return index[row.unit_id], int(team.agent_E[index[row.unit_id]])
    if row.unit_id in team.number:
        return -1, team.number[row.unit_id]
    first, _, last = row.unit_id.rpartition("#")
    if row.unit == "token" and first in index:
        return index[first], int(team.agent_E[index[first]])
    if row.unit == "turn":
        event = _turns(look).get((first, last), index.get(first or row.unit_id, -1))
        return event, team.number.get(first, int(team.agent_E[event]) if event >= 0 else -1)
    return -1, -1


def _turns(look: Prepared) -> dict[tuple[str, str], int]:
    """(agent, turn) to its first event in the story."""
    if "turns" not in look.kept:
        first: dict[tuple[str, str], int] = {}
        for i in look.team.order_E.tolist():
            event = look.trace.events[i]
            if event.turn is not None:
                first.setdefault((event.agent, str(event.turn)), i)
        look.kept["turns"] = first
    kept: dict[tuple[str, str], int] = look.kept["turns"]
    return kept
