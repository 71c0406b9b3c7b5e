"""Taint in two layers: what untrusted content may have reached, and what it really changed.

Always true: labels only grow along information edges; so where the edges are complete every event that an injection changed is
tainted (recall 1; precision falls with the length of the trace).
Did-influence asks the replay instead: the suspicious content is replaced by neutral content, one suspect after the other, and
what is different then was influenced.

Labels are sets of sources: the join of two is their union, `trusted` is the empty set. Layer 3, authority at sinks, is
`authority.py`; block on layers 1 and 3, confirm or release on layer 2 (research.md B9; NeuroTaint is the nearest work on text).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.audits.diff import aligned, fingerprint
from counterpoint.audits.facts import facts_of
from counterpoint.audits.injection import suspicious
from counterpoint.audits.outside import outside
from counterpoint.errors import NotFound, did_you_mean
from counterpoint.trace import Event, Trace
from counterpoint.trace.replay import Do, Replay, Substitute

LABELS = ("user", "tool", "peer", "memory", "unknown")
"""The sources of untrusted content; `trusted` is none of them. A label is a set of these, as bits."""
Mask = NDArray[np.bool_]


# -- layer 1: may-taint ----------------------------------------------------------------------------------------------


def untrusted(trace: Trace) -> list[str]:
    """Events whose content came from outside: `trusted: false`, and not the user's own files (`audit.outside`)."""
    return [trace.events[i].id for i in sorted(outside(trace))]


def planted(trace: Trace) -> list[str]:
    """Events in which a simulator planted an attack: the truth, which no defender has."""
    return [e.id for e in trace.events if (e.extra or {}).get("planted")]


def suspects(trace: Trace) -> list[str]:
    """Events that look wrong to somebody who reads the record: untrusted text that gives orders (`audit.injection`) and content
    of the shared memory; in a simulated team also a return that says otherwise than the tool result that it rests on, for there
    both are one short statement. Benign orders may be among them; layer 2 tells."""
    out = {i for i, _ in suspicious(trace)}
    out |= {i for i in outside(trace) if trace.events[i].source == "memory"}
    if "world" not in trace.meta:
        return [trace.events[i].id for i in sorted(out)]
    facts = facts_of(trace)
    for s, d in zip(facts.info.src.tolist(), facts.info.dst.tolist(), strict=True):
        before, after = trace.events[s], trace.events[d]
        if (before.type, after.type) == ("tool_result", "return") and before.agent == after.agent:
            input_text, says = trace.text(before), trace.text(after)
            if input_text is not None and says is not None and _claim(input_text) != _claim(says):
                out.add(d)
    return [trace.events[i].id for i in sorted(out)]


def _claim(text: str) -> str:
    """The first statement of a text."""
    return re.split(r"[,.(]", text, maxsplit=1)[0].strip()


class MayTaint(NamedTuple):
    """Layer 1 of one trace."""

    labels: list[int]
    """Per event the sources that may have reached it, as bits over `LABELS`; 0 is trusted."""
    sources: tuple[int, ...]
    parent: list[int]
    """Per tainted event the event that its taint came by first; -1 for a source."""

    @property
    def tainted(self) -> Mask:
        """Events with any label."""
        return np.array([bits != 0 for bits in self.labels], np.bool_)

    def names(self, event: int) -> tuple[str, ...]:
        """The label of an event in words."""
        return tuple(name for k, name in enumerate(LABELS) if self.labels[event] >> k & 1) or ("trusted",)

    def path(self, event: int) -> list[int]:
        """From a source to this event, along the edges by which its taint came first; empty for a trusted event."""
        if not self.labels[event]:
            return []
        out = [event]
        while self.parent[out[-1]] >= 0:
            out.append(self.parent[out[-1]])
        return out[::-1]


def label_of(event: Event) -> int:
    """The bit of an untrusted event's own source."""
    name = event.source if event.source in LABELS else "unknown"
    return 1 << LABELS.index(name)


def may_taint(trace: Trace, sources: Iterable[str] | None = None) -> MayTaint:
    """What untrusted content may have reached; the sources are the untrusted events, or those named."""
    facts = facts_of(trace)
    starts = _numbers(trace, untrusted(trace) if sources is None else sources)
    labels, parent = [0] * facts.n, [-1] * facts.n
    own = set(starts)
    for i in starts:
        labels[i] = label_of(trace.events[i])
    for s, d in zip(facts.info.src.tolist(), facts.info.dst.tolist(), strict=True):
        if labels[s]:
            if not labels[d] and d not in own:
                parent[d] = s
            labels[d] |= labels[s]
    return MayTaint(labels, tuple(starts), parent)


# -- layer 2: did-influence ------------------------------------------------------------------------------------------


def neutral(event: Event) -> Do:
    """What a replay is asked to put in the place of suspicious content: the same without what was planted."""
    return Substitute("neutral")


class Influence(NamedTuple):
    """Layer 2 of one trace."""

    influenced: Mask
    """Recorded events that would have been otherwise, or not at all; the suspects themselves only where their readers would have
    read other content."""
    confirmed: tuple[str, ...]
    """Suspects without which something else changes."""
    released: tuple[str, ...]
    """Suspects without which nothing else changes."""
    clean: Trace
    """The run without them."""
    forks: int


def did_influence(
    trace: Trace,
    replay: Replay,
    suspicious: Callable[[Trace], Iterable[str]] | Iterable[str] = suspects,
    *,
    neutral: Callable[[Event], Do] = neutral,
) -> Influence:
    """Replace the suspects by neutral content, in order, and see what is different.

    `suspicious` names events, or finds them in a trace: then suspects that turn up only in a fork (in a call that the original
    does not have) are replaced as well, so that what is left is a run without suspects.
    """
    find = suspicious if callable(suspicious) else None
    names = aligned(trace.events)
    first = [names[i] for i in _numbers(trace, find(trace) if find else suspicious)]  # type: ignore[arg-type]
    original = {name: event.id for name, event in zip(names, trace.events, strict=True)}
    current, forks, done = trace, 0, set[str]()
    confirmed: list[str] = []
    released: list[str] = []
    todo = set(first)
    while todo:
        called = aligned(current.events)
        i = next((i for i, name in enumerate(called) if name in todo), None)
        if i is None:
            break  # the rest no longer happens
        name, event = called[i], current.events[i]
        fork = replay.fork(current, event.id, neutral(event))
        forks += 1
        done.add(name)
        moved = influenced(current, fork)
        moved[i] = False
        if name in first:
            (confirmed if moved.any() else released).append(original[name])
        current = fork
        if find is not None:
            called = aligned(current.events)
            todo = {called[k] for k in _numbers(current, find(current))}
        todo = todo - done
    return Influence(influenced(trace, current), tuple(confirmed), tuple(released), current, forks)


def influenced(trace: Trace, clean: Trace) -> Mask:
    """Recorded events that are not the same, or not there, in the run without the attack."""
    after = {name: fingerprint(e) for name, e in zip(aligned(clean.events), clean.events, strict=True)}
    pairs = zip(aligned(trace.events), trace.events, strict=True)
    return np.array([after.get(name) != fingerprint(e) for name, e in pairs], np.bool_)


# -- how good it is --------------------------------------------------------------------------------------------------


class Score(NamedTuple):
    """A judgement of events against the truth about them."""

    true_positives: int
    false_positives: int
    false_negatives: int

    @property
    def precision(self) -> float:
        """Share of the accused that are guilty; 1 when nobody is accused."""
        accused = self.true_positives + self.false_positives
        return self.true_positives / accused if accused else 1.0

    @property
    def recall(self) -> float:
        """Share of the guilty that are accused; 1 when nobody is guilty."""
        guilty = self.true_positives + self.false_negatives
        return self.true_positives / guilty if guilty else 1.0

    @staticmethod
    def total(scores: Iterable[Score]) -> Score:
        """The counts of many traces together."""
        a, b, c = np.array([tuple(s) for s in scores], np.int64).reshape(-1, 3).sum(axis=0).tolist()
        return Score(a, b, c)


def score(accused: Mask, guilty: Mask) -> Score:
    """Count hits, false alarms and misses."""
    return Score(int((accused & guilty).sum()), int((accused & ~guilty).sum()), int((~accused & guilty).sum()))


def _numbers(trace: Trace, ids: Iterable[str]) -> list[int]:
    out = []
    for name in ids:
        if name not in trace.index:
            raise NotFound(f"no event {name!r}", where=trace.trace_id, fix=did_you_mean(name, list(trace.index)[:5000]))
        out.append(trace.index[name])
    return sorted(set(out))
