"""The merges of a recorded live team made again without some workers, or as they stood earlier: what the answer would score.

Always true: no model is called. With everybody present each merge comes out as it was recorded, which is checked; other agents'
behaviour is held fixed. A team that answered with something else than its last merge is `NotIdentified`.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from counterpoint.errors import NotIdentified
from counterpoint.lab.tasks.task import Instance, TextTask
from counterpoint.lab.team.session import Spec
from counterpoint.trace import Event, Trace

_FIX = "counterpoint credit TRACE --mechanism difference forks the team without each worker, which may ask its model"


@lru_cache(maxsize=4096)
def _instance(task: str, config: str, seed: int) -> tuple[TextTask, Instance]:
    """A task and its instance, made once for all runs of it."""
    made = Spec(task=task, config=json.loads(config), seed=seed).make_task()
    return made, made.instance(seed)


@dataclass
class Remerge:
    """The last merge of one recorded team, and what it was made of."""

    trace: Trace
    _scores: dict[str, float] = field(default_factory=dict)

    @cached_property
    def _made(self) -> tuple[TextTask, Instance]:
        spec = Spec.of(self.trace.meta.get("team") or {})
        return _instance(spec.task, json.dumps(dict(spec.config), sort_keys=True), spec.seed)

    @cached_property
    def runs_code(self) -> bool:
        """Whether the checker runs what the team wrote as a program: slow, and somebody else's code."""
        return bool(getattr(self._made[0], "runs_answers", False))

    @cached_property
    def merges(self) -> dict[str, tuple[Event, list[Event]]]:
        """Each merge by its id: the event, and the returns that it read, in the order in which it read them."""
        place = self.trace.index
        merging = [e for e in self.trace.events if e.type == "aggregate" and (e.extra or {}).get("rule")]
        found: dict[str, tuple[Event, list[Event]]] = {e.id: (e, []) for e in merging}
        for edge in self.trace.edges:
            if edge.dst in found and edge.type == "aggregate":
                found[edge.dst][1].append(self.trace.events[place[edge.src]])
        return found

    @cached_property
    def _below(self) -> dict[str, str]:
        """Return to the merge that its sender passed on with it."""
        last: dict[str, Event] = {}
        out: dict[str, str] = {}
        for event in self.trace.events:
            if event.id in self.merges:
                last[event.agent] = event
            elif event.type == "return" and event.agent in last and self._is_same(event, last[event.agent]):
                out[event.id] = last[event.agent].id
        return out

    def _is_same(self, a: Event, b: Event) -> bool:
        return self.trace.text(a) == self.trace.text(b)

    @cached_property
    def final(self) -> str:
        """The merge that became the answer."""
        answer = self.trace.meta.get("answer")
        spawned = {e.to for e in self.trace.events if e.type == "spawn"}
        mine = [e for e, _ in self.merges.values() if e.agent not in spawned]
        if not mine:
            raise NotIdentified("nothing was merged", _FIX, where=self.trace.trace_id)
        if self.trace.text(mine[-1]) != answer:
            raise NotIdentified("the team's answer differs from its last merge", _FIX, where=self.trace.trace_id)
        if self._merged(mine[-1].id, frozenset()) != answer:
            raise NotIdentified("the last merge cannot be reproduced", _FIX, where=self.trace.trace_id)
        return mine[-1].id

    @cached_property
    def is_identified(self) -> bool:
        """Whether the answer is a merge that comes out as it was recorded."""
        try:
            return bool(self.final)
        except NotIdentified:
            return False

    @cached_property
    def workers(self) -> list[str]:
        """Whose returns are in the last merge, through the merges of leads in between; in the order of the trace."""
        out: dict[str, None] = {}

        def read(merge: str) -> None:
            for back in self.merges[merge][1]:
                if back.id in self._below:
                    read(self._below[back.id])
                else:
                    out[back.agent] = None

        read(self.final)
        return list(out)

    def score(self, absent: Collection[str], *, until: int | None = None) -> float:
        """What the answer scores when nothing that these workers returned is merged, nor the returns with these ids; `until`: nor
        anything that came after the event at this place."""
        text = self._merged(self.final, frozenset(absent), until)
        if text not in self._scores:
            task, instance = self._made
            self._scores[text] = float(task.check(instance, text).value)
        return self._scores[text]

    def _merged(self, merge: str, absent: frozenset[str], until: int | None = None) -> str:
        event, backs = self.merges[merge]
        texts = []
        for back in backs:
            if back.id in absent or (until is not None and self.trace.index[back.id] > until):
                continue
            if back.id in self._below:
                texts.append(self._merged(self._below[back.id], absent, until))
            elif back.agent not in absent:
                texts.append(self.trace.text(back) or "")
        task, instance = self._made
        return task.merge(instance, str((event.extra or {})["rule"]), texts)
