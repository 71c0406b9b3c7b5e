"""What an edit reaches: the closure, the true blast radius, and the least that has to run again, with early cut-off.

    closure         D(e) = the descendants of e by information edges
    blast radius    B(e, do) = the events whose hash changes under the edit
    re-executed     the events of which something that they read changed

Always true: re-executed events lie in the closure; where the edges are complete, every changed event is re-executed, so that the
hashes are those of a full replay. An event is run again only if something that it read changed; if its new hash is the old one,
its readers are left alone. A fence (an irreversible act) is run again only with consent, and is listed either way.

An agent keeps what it has read: when an event is run again because its input changed, the later events of that agent have
another context and are run again too, whatever its hash; between agents only content travels. Where the hash of an event carries
the whole state of its agent, give no `keeps`. Departure from research.md B8, which counts content alone: without the agents'
contexts, recall would be 1 only in worlds without memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from math import exp, lgamma, log, log1p
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.audits.diff import aligned, fingerprint
from counterpoint.audits.facts import facts_of
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.trace import Event, Graph, Trace
from counterpoint.trace.replay import Delete, Do, Replay, Substitute

Mask = NDArray[np.bool_]
Rerun = Callable[[int, Mapping[int, Hashable]], Hashable]
"""Run an event again, given those of its reads that changed, with their new hashes; its own new hash, or None when it no longer
happens."""


def closure(trace: Trace, at: str) -> Mask:
    """D(e): all that may depend on an event, itself included."""
    return facts_of(trace).info.descendants(_number(trace, at))


def fences_of(trace: Trace) -> list[int]:
    """The irreversible events: those that say so in `extra.irreversible`."""
    return [i for i, e in enumerate(trace.events) if (e.extra or {}).get("irreversible") is True]


class CutOff(NamedTuple):
    """What was run again, and what came of it."""

    hashes: list[Hashable]
    """Of every event, after the edit; None for one that no longer happens."""
    reran: Mask
    """The edited events, and those that were run again."""
    changed: Mask
    """Events whose hash is another one now."""
    crossed: tuple[int, ...]
    """Fences that were run again, with consent."""
    held: tuple[int, ...]
    """Fences that would have had to run again and were not: what follows from them is not known, and stays as recorded."""


def cut_off(
    graph: Graph,
    old: Sequence[Hashable],
    edited: Mapping[int, Hashable],
    rerun: Rerun,
    *,
    keeps: Mask | None = None,
    also: Collection[int] = (),
    fences: Collection[int] = (),
    allow: Collection[int] = (),
) -> CutOff:
    """Minimal re-execution, in topological order.

    `edited` gives the new hash of the edited events. `keeps[k]` says that edge k (in the graph's order) is within an agent, which
    keeps what it read. `also` are events known to read other events than before. `allow` are the fences with consent.
    """
    hashes = list(old)
    n = graph.n
    changed, reran = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    inputs: dict[int, dict[int, Hashable]] = {}
    wakes = set(also)
    fenced, free = set(fences), set(allow)
    crossed, held = [], []
    start, targets, within = _out_edges(graph, keeps)
    for i in graph.order.tolist():
        if i in edited:
            hashes[i] = edited[i]
        elif i in inputs or i in wakes:
            if i in fenced and i not in free:
                held.append(i)
                continue
            if i in fenced:
                crossed.append(i)
            hashes[i] = rerun(i, inputs.pop(i, {}))
        else:
            continue
        reran[i] = True
        changed[i] = hashes[i] != old[i]
        for k in range(start[i], start[i + 1]):
            if changed[i]:
                inputs.setdefault(targets[k], {})[i] = hashes[i]
            elif within[k]:
                wakes.add(targets[k])
    return CutOff(hashes, reran, changed, tuple(crossed), tuple(held))


def _out_edges(graph: Graph, keeps: Mask | None) -> tuple[list[int], list[int], list[bool]]:
    """Per event its readers, and whether they are of the same agent."""
    by = np.argsort(graph.src, kind="stable")
    start = np.searchsorted(graph.src[by], np.arange(graph.n + 1))
    within = np.zeros(graph.m, np.bool_) if keeps is None else keeps
    return start.tolist(), graph.dst[by].tolist(), within[by].tolist()


class Blast(NamedTuple):
    """An edit's reach in one trace, and what it takes to follow it. Masks are over the recorded events."""

    at: str
    closure: Mask
    changed: Mask
    """B(e, do) among the recorded events: other content, or no longer there; the edited event included."""
    reran: Mask
    new: int
    """Events of the fork that the record does not have: run for the first time."""
    missed: tuple[str, ...]
    """Recorded events that changed and would not have been run again: the record lacks an edge."""
    held: tuple[str, ...]
    """Fences in the way."""

    @property
    def recall(self) -> float:
        """Share of the changed events that were run again; 1 when nothing changed."""
        return 1 - len(self.missed) / max(1, int(self.changed.sum()))

    @property
    def is_exact(self) -> bool:
        """Whether re-execution gives the hashes of the full replay."""
        return not self.missed and not self.held

    @property
    def waste(self) -> float:
        """Re-executed over necessary."""
        return (int(self.reran.sum()) + self.new) / max(1, int(self.changed.sum()) + self.new)


def blast_radius(trace: Trace, fork: Trace, at: str) -> Blast:
    """The reach of an edit at event `at`; `fork` is its full replay."""
    facts = facts_of(trace)
    place, graph = _number(trace, at), facts.info
    names = aligned(trace.events)
    after = dict(zip(aligned(fork.events), fork.events, strict=True))
    old = [fingerprint(e) for e in trace.events]
    full = [fingerprint(after[name]) if name in after else None for name in names]
    agent = facts.team.agent_E
    cut = cut_off(
        graph,
        old,
        {place: full[place]},
        lambda i, _: full[i],
        keeps=agent[graph.src] == agent[graph.dst],
        also=_other_reads(trace, graph, fork, names),
        fences=fences_of(trace),
    )
    changed = np.array([a != b for a, b in zip(old, full, strict=True)], np.bool_)
    changed[place] = True
    events = trace.events
    return Blast(
        at=at,
        closure=graph.descendants(place),
        changed=changed,
        reran=cut.reran,
        new=len(after.keys() - set(names)),
        missed=tuple(events[i].id for i in np.flatnonzero(changed & ~cut.reran)),
        held=tuple(events[i].id for i in cut.held),
    )


def _other_reads(trace: Trace, graph: Graph, fork: Trace, names: list[str]) -> list[int]:
    """Recorded events that in the fork read other events than they did: an executor meets these as they come."""
    called = aligned(fork.events)
    before, after = _reads(graph, names), _reads(facts_of(fork).info, called)
    here = set(called)
    return [i for i, name in enumerate(names) if name in here and before.get(name) != after.get(name)]


def _reads(graph: Graph, names: list[str]) -> dict[str, set[str]]:
    out: dict[str, set[str]] = {}
    for s, d in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        out.setdefault(names[d], set()).add(names[s])
    return out


def _number(trace: Trace, at: str) -> int:
    if at not in trace.index:
        raise NotFound(f"no event {at!r}", where=trace.trace_id, fix=did_you_mean(at, list(trace.index)[:5000]))
    return trace.index[at]


# -- Are the recorded edges all there are? Random events are changed by fork ------------------------------------------
# What changes outside their cone shows a missing edge.
#
#     miss rate = changed events outside the recorded descendants of the edited one / changed events, the edited one apart
#
# Always true: the same seed audits the same events; a fork that the replay refuses is counted and never taken as a clean one.
# The upper end is Clopper and Pearson's, one-sided, 95 %. Events that change in one fork are not independent, so the share of
# forks with a miss, and its own upper end, stand beside it. Above `limit` (1 %) causal-cone advantages are biased: use full
# returns (research.md B5).

LIMIT = 0.01
_EDITABLE = ("return", "tool_result", "tool_call", "message", "spawn")


class Miss(NamedTuple):
    """An event that changed with another, and that the record does not show to depend on it."""

    edited: str
    changed: str


class EdgeAudit(NamedTuple):
    """How complete the edges of a trace are, as far as audited."""

    forks: int
    refused: int
    """Events that the replay could not change."""
    changed: int
    """Recorded events that changed, over all forks, the edited ones apart."""
    misses: tuple[Miss, ...]
    limit: float

    @property
    def rate(self) -> float | None:
        """The miss rate; None when nothing changed, so that nothing was audited."""
        return len(self.misses) / self.changed if self.changed else None

    @property
    def rate_upper(self) -> float:
        """Its upper end, 95 %, one-sided."""
        return upper(len(self.misses), self.changed)

    @property
    def verdict(self) -> Literal["complete", "audit more", "fall back"]:
        """`fall back` to full-return advantages above the limit; `audit more` while the upper end is above it."""
        if self.rate is not None and self.rate > self.limit:
            return "fall back"
        return "complete" if self.rate_upper <= self.limit else "audit more"

    @property
    def says(self) -> str:
        """The finding in one line."""
        share = f"{len(self.misses):,} of {self.changed:,} changes outside the recorded cones (at most {self.rate_upper:.2%})"
        match self.verdict:
            case "fall back":
                return f"edges are missing: {share}; fall back to full-return advantages"
            case "complete":
                return f"edges look complete: {share}"
        return f"not sure yet: {share}; audit more events"


def upper(hits: int, trials: int) -> float:
    """Clopper and Pearson's one-sided upper end of 95 %: the p at which `hits` or fewer have the chance 0.05."""
    if not 0 <= hits <= trials:
        raise InputError(f"{hits} of {trials} is not a share", fix="0 <= hits <= trials")
    if hits == trials:
        return 1.0
    choose = [lgamma(trials + 1) - lgamma(k + 1) - lgamma(trials - k + 1) for k in range(hits + 1)]
    low, high = hits / trials, 1.0
    for _ in range(60):
        p = (low + high) / 2
        tail = sum(exp(c + k * log(p) + (trials - k) * log1p(-p)) for k, c in enumerate(choose)) if p < 1 else 0.0
        low, high = (p, high) if tail > 0.05 else (low, p)
    return high


def other(event: Event) -> Do:
    """A change that an event can take: the other vote where it is one, else it never happens."""
    claim = (event.extra or {}).get("claim")
    return Substitute(1 - claim) if event.type == "return" and claim in (0, 1) else Delete()


def edge_audit(trace: Trace, replay: Replay, *, samples: int, seed: int, limit: float = LIMIT) -> EdgeAudit:
    """Change `samples` random events, each in a fork of its own with all other noise as it was.

    A replay that cannot fork this trace at all raises `NotIdentified`."""
    if samples < 1:
        raise InputError(f"samples is {samples}", fix="1 or more")
    facts = facts_of(trace)
    names, old = aligned(trace.events), [fingerprint(e) for e in trace.events]
    candidates = [i for i, e in enumerate(trace.events) if e.type in _EDITABLE]
    drawn = np.random.default_rng(seed).permutation(len(candidates))
    forks = refused = changed = 0
    misses: list[Miss] = []
    for place in drawn.tolist():
        if forks == samples:
            break
        i = candidates[place]
        try:
            fork = replay.fork(trace, trace.events[i].id, other(trace.events[i]))
        except InputError:
            refused += 1
            continue
        forks += 1
        after = {name: fingerprint(e) for name, e in zip(aligned(fork.events), fork.events, strict=True)}
        moved = [j for j, name in enumerate(names) if j != i and after.get(name) != old[j]]
        changed += len(moved)
        cone = facts.info.descendants(i)
        misses += [Miss(trace.events[i].id, trace.events[j].id) for j in moved if not cone[j]]
    return EdgeAudit(forks, refused, changed, tuple(misses), limit)
