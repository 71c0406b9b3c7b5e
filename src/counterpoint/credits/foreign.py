"""Credit from a mechanism that is not shipped: what is wrong with it is said to be its own, by its name.

Always true: its credit names the traces that it was given, and units that are in them, once each. What it refuses by one of our
own errors stays as it said it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from counterpoint.credits.mechanism import Mechanism
from counterpoint.errors import CounterpointError, InputError
from counterpoint.trace import Trace
from counterpoint.trace.rows import Credit

_FIX = "mend the plug-in; counterpoint.testing.check_mechanism shows more"
_OURS = "a bug in Counterpoint: please report it"


def foreign_credit(name: str, mechanism: Mechanism, traces: Sequence[Trace], options: Mapping[str, Any]) -> Credit:
    """What the mechanism `package.module:object` says, checked for its shape."""
    try:
        credit: Any = mechanism(traces, **options)
    except CounterpointError as error:
        if error.fix == _OURS:
            raise InputError(error.what, where=name, fix=_FIX) from error
        raise
    except Exception as error:
        raise InputError(f"the mechanism failed: {type(error).__name__}: {error}", where=name, fix=_FIX) from error
    wrong = _wrong(credit, traces)
    if wrong is not None:
        raise InputError(wrong, where=name, fix=_FIX)
    return credit


def _wrong(credit: Any, traces: Sequence[Trace]) -> str | None:
    """What is wrong with the shape of a credit; None where nothing is."""
    if not isinstance(credit, Credit):
        return f"it gives a {type(credit).__name__}, not a Credit"
    if credit.trace_ids != tuple(t.trace_id for t in traces):
        return "its credit names other traces than it was given"
    known = [known_ids(t) for t in traces]
    keys: set[tuple[int, str, str]] = set()
    for row in credit.rows:
        if not 0 <= row.trace < len(traces):
            return f"it credits trace {row.trace} of {len(traces)}, counted from 0"
        first = row.unit_id.rsplit("#", 1)[0] if row.unit in ("token", "turn") else row.unit_id
        if not {first, row.unit_id} & known[row.trace].get(row.unit, set()):
            return f"it credits {row.unit} {row.unit_id!r}, and {traces[row.trace].trace_id} has none of that name"
        if (row.trace, row.unit, row.unit_id) in keys:
            return f"it credits {row.unit} {row.unit_id!r} of {traces[row.trace].trace_id} twice"
        keys.add((row.trace, row.unit, row.unit_id))
    if lost := [i for i, _ in credit.unidentified if not 0 <= i < len(traces)]:
        return f"it refuses a unit of trace {lost[0]} of {len(traces)}, counted from 0"
    return None


def known_ids(trace: Trace) -> dict[str, set[str]]:
    """The ids that a unit may have in a trace; tokens and turns are known by their first part."""
    agents, events = set(trace.agents), {e.id for e in trace.events}
    roles = {e.role for e in trace.events if e.role}
    some: dict[str, set[str]] = {"team": {""}, "agent": agents, "orchestrator": agents | events, "role": roles}
    return some | {"message": events, "tool": events, "token": events, "turn": agents | events}
