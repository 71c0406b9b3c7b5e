"""Are the recorded edges all there are? Random events are changed by fork; what changes outside their cone shows a missing edge.

    miss rate = changed events outside the recorded descendants of the edited one / changed events, the edited one apart

Always true: the same seed audits the same events; a fork that the replay refuses is counted and never taken as a clean one. The
upper end is Clopper and Pearson's, one-sided, 95 %. Events that change in one fork are not independent, so the share of forks
with a miss, and its own upper end, stand beside it. Above `limit` (1 %) causal-cone advantages are biased: use full returns
(research.md B5).
"""

from __future__ import annotations

from math import exp, lgamma, log, log1p
from typing import Literal, NamedTuple

import numpy as np

from counterpoint.audit.diff import aligned, fingerprint
from counterpoint.audit.facts import Facts
from counterpoint.errors import InputError
from counterpoint.trace import Event, Trace
from counterpoint.trace.replay import Delete, Do, Replay, Substitute

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
    def bad_forks(self) -> int:
        """Forks that showed a miss."""
        return len({miss.edited for miss in self.misses})

    @property
    def verdict(self) -> Literal["complete", "audit more", "fall back"]:
        """`fall back` to full-return advantages above the limit; `audit more` while the upper end is above it."""
        if self.rate is not None and self.rate > self.limit:
            return "fall back"
        return "complete" if self.rate_upper <= self.limit else "audit more"

    @property
    def says(self) -> str:
        """The finding in one line."""
        seen = f"{len(self.misses):,} of {self.changed:,} changes outside the recorded cones (at most {self.rate_upper:.2%})"
        match self.verdict:
            case "fall back":
                return f"edges are missing: {seen}; fall back to full-return advantages"
            case "complete":
                return f"edges look complete: {seen}"
        return f"not sure yet: {seen}; audit more events"


def upper(hits: int, trials: int, confidence: float = 0.95) -> float:
    """Clopper and Pearson's one-sided upper end: the p at which `hits` or fewer have the chance 1 - confidence."""
    if not 0 <= hits <= trials:
        raise InputError(f"{hits} of {trials} is no share", fix="0 <= hits <= trials")
    if hits == trials:
        return 1.0
    choose = [lgamma(trials + 1) - lgamma(k + 1) - lgamma(trials - k + 1) for k in range(hits + 1)]
    low, high = hits / trials, 1.0
    for _ in range(60):
        p = (low + high) / 2
        tail = sum(exp(c + k * log(p) + (trials - k) * log1p(-p)) for k, c in enumerate(choose)) if p < 1 else 0.0
        low, high = (p, high) if tail > 1 - confidence else (low, p)
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
    facts = Facts(trace)
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
