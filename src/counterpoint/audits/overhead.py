"""E4, overhead: tokens spent on the protocol, errors that spread, and how far untrusted content reaches.

Always true: corruption is what the records mark (`extra.corrupt`, `extra.planted`); nothing is called corrupt because it
failed. Reach is an upper bound: an event that could have been influenced, not one that was.
"""

from __future__ import annotations

import numpy as np

from counterpoint.audits.facts import Facts, Mask
from counterpoint.audits.outside import outside
from counterpoint.audits.records import Measure, ids, standing

_COORDINATION = ("spawn", "despawn", "aggregate")
_ACTS = ("spawn", "despawn", "message", "tool_call", "return")
"""What may follow from a decision."""


def overhead(facts: Facts) -> list[Measure]:
    """Every E4 measure (survey section 7)."""
    return [protocol_overhead(facts), error_amplification(facts), untrusted_reach(facts)]


def protocol_tokens_E(facts: Facts) -> np.ndarray:
    """The tokens of each event that were spent on coordination.

    All of a spawn, despawn, aggregate or inter-agent message; of a decision the share of what followed from it that
    coordinates (`coordinating_E`); what a tool call writes, its arguments, and what a return writes, the report. The rest is the
    task: a leader's own work, what calls, returns and results read, what is said to people. One agent alone has nobody to
    coordinate.
    """
    team = facts.team
    if int(team.is_member_A.sum()) < 2:
        return np.zeros(facts.n, np.int64)
    out = np.where(team.of_types(_COORDINATION), facts.tokens_E, 0)
    out[facts.messages] = facts.tokens_E[facts.messages]
    writes = team.of_types(("tool_call", "return"))
    out[writes] = facts.tokens_out_E[writes]
    decides = team.of_types(("orchestrator_decision",))
    out[decides] = np.rint(facts.tokens_E[decides] * coordinating_E(facts)[decides]).astype(np.int64)
    return out


def coordinating_E(facts: Facts) -> np.ndarray:
    """For each decision the share of it that coordinates: of the acts that follow from it, those that make or end an agent, hand
    over a result or speak to another. Where none is recorded, a decision to spawn, delegate, communicate, aggregate, stop or pass
    is coordination, and any other turn is not."""
    graph, team = facts.graph, facts.team
    acts, to_others = team.of_types(_ACTS), team.of_types(("spawn", "despawn", "return"))
    to_others[facts.messages] = True
    follows = acts[graph.dst] & (team.agent_E[graph.src] == team.agent_E[graph.dst])
    src, dst = graph.src[follows], graph.dst[follows]
    every = np.bincount(src, minlength=facts.n)
    share = np.bincount(src, to_others[dst], facts.n) / np.maximum(every, 1)
    is_decision = np.array([e.decision is not None for e in facts.events], np.bool_)
    return np.where(every > 0, share, is_decision.astype(np.float64))


def _stated(facts: Facts, name: str, why: str) -> Measure:
    """The value the source states in `metrics`, where we cannot compute it; else missing."""
    value = (facts.trace.metrics or {}).get(name)
    if value is None:
        return Measure.missing(name, why)
    return Measure.of(name, value, f"stated by the source in metrics; not computed here: {why}", status="estimated")


def protocol_overhead(facts: Facts) -> Measure:
    """Tokens for orchestration, messages and tool management / all tokens on events. What is protocol: `protocol_tokens_E`."""
    name, total = "protocol_overhead", int(facts.tokens_E.sum())
    if not total:
        return _stated(facts, name, "no event carries tokens")
    spent_E = protocol_tokens_E(facts)
    stated = facts.trace.costs.get("tokens", 0)
    text = f"{int(spent_E.sum()):,} of {total:,} tokens"
    silent = int((facts.thinks_E & ~facts.has_tokens_E).sum())
    if stated > total:
        text += f"; {stated - total:,} more tokens are stated for the trace and belong to no event"
    if silent:
        text += f"; {silent:,} acts have no token record"
    status, _ = standing(stated <= total and not silent)
    heaviest = np.flatnonzero(spent_E)
    heaviest = heaviest[np.lexsort((facts.team.place_E[heaviest], -spent_E[heaviest]))]
    return Measure.of(name, int(spent_E.sum()) / total, text, status=status, events=ids(facts.trace, heaviest.tolist()))


def _marks(facts: Facts) -> tuple[Mask, Mask, bool]:
    """Events marked corrupt, events marked planted, and whether any but planted ones carry the mark `corrupt` at all."""
    corrupt, planted = np.zeros(facts.n, np.bool_), np.zeros(facts.n, np.bool_)
    is_followed = False
    for i, event in enumerate(facts.events):
        if event.extra is None:
            continue
        planted[i] = bool(event.extra.get("planted"))
        corrupt[i] = planted[i] or event.extra.get("corrupt") is True
        is_followed = is_followed or ("corrupt" in event.extra and not planted[i])
    return corrupt, planted, is_followed


def error_amplification(facts: Facts) -> Measure:
    """Downstream corrupted events / initially corrupted events.

    Initially corrupted: `extra.planted`, or `extra.corrupt` with no corrupt event among what it read, directly or not.
    Downstream: the other corrupt events. Where only planted sources are marked, everything they reach (at most).
    """
    name = "error_amplification"
    corrupt, planted, is_followed = _marks(facts)
    if not bool(corrupt.any()):
        return _stated(facts, name, "no event is marked corrupt or planted (extra.corrupt, extra.planted)")
    below = np.zeros(facts.n, np.bool_)
    below[facts.info.dst[corrupt[facts.info.src]]] = True
    below = facts.info.reach(np.flatnonzero(below).tolist())
    initial = planted | (corrupt & ~below)
    if is_followed:
        spread, text = corrupt & ~initial, "marked corrupt"
    else:
        spread, text = below & ~initial, "reached; only the sources are marked"
    text = f"{int(spread.sum()):,} events {text}, {int(initial.sum()):,} at the start"
    events = ids(facts.trace, [*facts.in_story(initial), *facts.in_story(spread)])
    value = int(spread.sum()) / int(initial.sum())
    if is_followed:
        return Measure.of(name, value, text, events=events)
    return Measure.of(name, value, text, status="estimated", bound="at most", events=events)


def untrusted_reach(facts: Facts) -> Measure:
    """Events that depend on one from outside (`audit.outside`) through what was read, themselves included / all events."""
    name = "untrusted_reach"
    marks = [e.trusted for e in facts.events]
    if all(mark is None for mark in marks):
        return Measure.missing(name, "no event says whether its content is trusted")
    sources = sorted(outside(facts.trace))
    if sources and not facts.graph.m:
        return Measure.missing(name, "the trace has no edges: nothing says what was read")
    reached = facts.info.reach(sources)
    results = facts.team.of_types(("tool_result",))
    silent = sum(1 for i in np.flatnonzero(results).tolist() if marks[i] is None)
    text = f"{len(sources):,} events from outside reach {int(reached.sum()):,} of {facts.n:,}"
    text += f"; {silent:,} tool results are not marked either way" if silent else ""
    events = ids(facts.trace, facts.in_story(reached))
    return Measure.of(name, int(reached.sum()) / facts.n, text, status="estimated", bound="at most", events=events)
