"""Rollouts in memory as traces: an event for each call, spawns and returns between parents and children, no tokens.

Always true: event `s#k` is the k-th call of the sample s; a trace holds how many tokens a call has and none of them. A child
begins after its parent's call `after` and ends before the next one; a sample whose parent is the same agent goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from counterpoint.errors import InputError
from counterpoint.lab.trainers.rollout import Rollout
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.trace import content_ref

Decode = Callable[[Sequence[int]], str]
_DEEPEST = 200


def trace_of(rollout: Rollout, *, name: str | None = None, decode: Decode | None = None) -> Trace:
    """The trace of one rollout; with `decode` it has the texts of its calls too, for the viewer."""
    walk = _Walk(rollout, decode)
    for place in walk.roots:
        walk.add(place, None, 0)
    if len(walk.done) < len(rollout.samples):
        raise InputError("samples that are each other's parents", where=rollout.name, fix="a parent that came before")
    rewards = {} if rollout.status == "aborted" else {"team": rollout.team_reward()}
    task, trace_id = rollout.task, name or rollout.name
    return Trace(trace_id=trace_id, task_id=task, events=walk.events, edges=walk.edges, rewards=rewards, contents=walk.contents)


class _Walk:
    """The samples of a rollout, parents around their children, as events in the order of time."""

    def __init__(self, rollout: Rollout, decode: Decode | None) -> None:
        self.samples, self.names, self.decode = rollout.samples, rollout.names(), decode
        self.where = rollout.name
        self.events: list[Event] = []
        self.edges: list[Edge] = []
        self.contents: dict[str, str] = {}
        self.done: set[int] = set()
        self.last: dict[str, str] = {}
        self.ends: dict[str, str] = {}
        self.children: dict[str, list[int]] = {}
        for i, sample in enumerate(self.samples):
            if sample.parent is not None:
                self.children.setdefault(sample.parent, []).append(i)
        self.roots = [i for i, sample in enumerate(self.samples) if sample.parent is None]

    def add(self, place: int, caller: str | None, depth: int) -> None:
        """The events of a sample and of all below it."""
        if depth > _DEEPEST:
            raise InputError(f"more than {_DEEPEST} samples below each other", where=self.where, fix="continue from one parent")
        sample, name = self.samples[place], self.names[place]
        self.done.add(place)
        read = [self.ends[other] for other in sample.reads if other in self.ends]
        if caller is not None and caller != sample.agent:
            read.append(self._event(f"{name}#spawn", "spawn", caller, to=sample.agent, role=sample.role))
        spans = sample.calls_at()
        below = self.children.get(name, [])
        for k, (a, b) in enumerate(spans):
            paid = {"team": sample.reward} if sample.reward is not None and k == len(spans) - 1 else None
            event_id = f"{name}#{k}"
            self._event(
                event_id, "message", sample.agent, role=sample.role, tokens_out=b - a, reward=paid, policy=_policy(sample),
                extra={"call": {}}, content_ref=self._text(sample.ids, a, b),
            )  # fmt: skip
            self.edges += [Edge(src, event_id, "causal") for src in read]
            read = self._below(below, k, k == len(spans) - 1, sample.agent, depth)
        if not spans:
            self._below(below, 0, True, sample.agent, depth)
        if caller is not None and caller != sample.agent and spans:
            self._event(f"{name}#return", "return", sample.agent, to=caller)
        self.ends[name] = self.last.get(sample.agent, "")

    def _below(self, places: Sequence[int], k: int, is_last: bool, agent: str, depth: int) -> list[str]:
        """The children that were called after the k-th call; gives the events with which they came back."""
        out = []
        for place in places:
            after = self.samples[place].after
            if after == k or (is_last and after > k):
                self.add(place, agent, depth + 1)
                end = self.ends[self.names[place]]
                if end and self.samples[place].agent != agent:
                    out.append(end)
        return out

    def _event(self, event_id: str, kind: Any, agent: str, **more: Any) -> str:
        before = self.last.get(agent)
        self.events.append(Event(id=event_id, t=float(len(self.events)), type=kind, agent=agent, **more))
        if before is not None:
            self.edges.append(Edge(before, event_id, "causal"))
        self.last[agent] = event_id
        return event_id

    def _text(self, ids: Any, a: int, b: int) -> str | None:
        if self.decode is None:
            return None
        text = self.decode([int(i) for i in ids[a:b]])
        ref = content_ref(text)
        self.contents[ref] = text
        return ref


def _policy(sample: Any) -> str:
    return sample.policy if sample.version is None else f"{sample.policy}@{sample.version}"
