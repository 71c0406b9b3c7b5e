"""What the examples of mechanisms share: a critic, and a replay that counts the recorded claims again.

Always true: `Recount` needs nothing but the trace and has no noise. It answers, of the traces in `counterpoint.trace.example`: a
claim that is not made, or made anew; a worker that is not spawned; a tool that does not answer; a team that stops at a draft.
"""

from __future__ import annotations

from hashlib import blake2b

from msgspec.structs import replace

from counterpoint.credits.masked_replay import majority, votes_of, worth_of
from counterpoint.errors import NotFound, NotIdentified
from counterpoint.trace import Event, Trace
from counterpoint.trace.replay import Delete, Do, Force, Substitute


def running_mean(trace: Trace) -> dict[str, float]:
    """A critic that can be computed by hand: before each event, the mean of the claims' scores so far, 0.5 before the first."""
    out, scores = {}, []  # type: dict[str, float], list[float]
    for event in trace.events:
        out[event.id] = sum(scores) / len(scores) if scores else 0.5
        scores += [event.reward["R2"]] if event.reward and "R2" in event.reward else []
    return out


class Recount:
    """A replay of teams that vote: what is left of the claims is counted again, item by item; nobody else reacts."""

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """The trace with the event changed, and what depends on it gone; the seed changes nothing, for there is no noise."""
        if at not in trace.index:
            raise NotFound(f"no event {at!r}", where=trace.trace_id)
        event = trace.events[trace.index[at]]
        if do is None:
            return trace
        if isinstance(do, Force) and do.action.get("stop") is not None and "stop" in (event.options or ()):
            return _stopped(trace, event) if do.action["stop"] else trace
        if isinstance(do, Substitute) and event.extra and "claim" in event.extra:
            return _recounted(trace, [_claims(e, _redrawn(e, do)) if e.id == at else e for e in trace.events])
        if isinstance(do, Delete):
            return _recounted(trace, [e for e in trace.events if not _falls(e, event)])
        raise NotIdentified(f"nothing was recorded of {type(do).__name__.lower()} at {at!r}", "delete it", where=trace.trace_id)


def _falls(e: Event, gone: Event) -> bool:
    """Whether an event does not happen without the one that is gone."""
    if gone.type == "orchestrator_decision" and gone.decision == "spawn":
        return e.id == gone.id or e.agent != gone.agent or e.type == "spawn"
    if gone.type == "spawn":
        return e.id == gone.id or e.agent == gone.to
    if gone.type in ("tool_call", "tool_result"):
        return e.t >= gone.t and e.agent == gone.agent
    return e.id == gone.id


def _redrawn(event: Event, do: Substitute) -> int:
    if do.value is not None:
        return int(do.value)
    return blake2b(f"{event.key}|{do.draw}".encode(), digest_size=1).digest()[0] % 2


def _claims(event: Event, claim: int) -> Event:
    return replace(event, extra={**(event.extra or {}), "claim": claim}, reward={"R2": float(claim)})


def _stopped(trace: Trace, event: Event) -> Trace:
    """The team stops here, and is paid for its last draft."""
    events = trace.events[: trace.index[event.id] + 1]
    drafts = [e.reward["draft"] for e in events if e.reward and "draft" in e.reward]
    return _without(trace, events, float(drafts[-1]) if drafts else 0.0)


def _recounted(trace: Trace, events: list[Event]) -> Trace:
    """The trace of these events; every item of the original is worth what its majority is worth, 0 where nobody is left."""
    fork = _without(trace, events, 0.0)
    votes = votes_of(fork)
    items = dict.fromkeys(v.task for v in votes_of(trace))
    worths = []
    for item in items:
        mine = [v for v in votes if v.task == item]
        answer = majority([v.claim for v in mine], [v.turn for v in mine])
        worths.append(worth_of(mine, item, answer) or 0.0)
    return replace(fork, rewards={"team": sum(worths) / len(worths) if worths else 0.0})


def _without(trace: Trace, events: list[Event], reward: float) -> Trace:
    ids = {e.id for e in events}
    edges = [e for e in trace.edges if e.src in ids and e.dst in ids]
    costs = {**trace.costs, "tokens": sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in events)}
    return replace(trace, trace_id=f"{trace.trace_id}'", events=events, edges=edges, rewards={"team": reward}, costs=costs)
