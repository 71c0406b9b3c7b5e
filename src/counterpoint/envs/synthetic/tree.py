"""Hierarchical: agents spawn agents, level under level; each returns to the one that spawned it.

Always true: an agent returns after all of its children have; at least two levels stand under the lead where there are enough
agents for it.
"""

from __future__ import annotations

from counterpoint.envs.synthetic import acts
from counterpoint.envs.synthetic.acts import Actor
from counterpoint.envs.synthetic.dice import shares
from counterpoint.envs.synthetic.script import Script
from counterpoint.envs.synthetic.star import close_wave
from counterpoint.trace.vocabulary import EdgeType


def tree(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Write the whole run: each wave is one tree under the lead."""
    boss = acts.lead()
    portions = shares(script.dice, steps, agents, is_heavy=True)
    at, last = acts.decide(script, boss, 0, "delegate", [])
    for wave in waves:
        grove = _Grove(script, wave, portions)
        at, last = acts.decide(script, boss, at, "spawn", [(last, "causal")])
        team, backs = grove.grow(boss, -1, at, last)
        at, last = close_wave(script, boss, team, last, grove.reads(boss, backs), min(backs))
    acts.decide(script, boss, at, "stop", [(last, "aggregate")], reward={})
    script.settle()


class _Grove:
    """The tree of one wave, laid out as a heap: the children of place p are the places p * fan + 1 ... p * fan + fan."""

    def __init__(self, script: Script, wave: range, portions: list[int]) -> None:
        self.script, self.wave, self.portions = script, wave, portions
        self.fan = 2 if len(wave) < 8 else 3 if len(wave) < 41 else 4
        self.reports: dict[str, list[tuple[int, EdgeType]]] = {}
        """What was reported to each agent by the ones under it."""

    def reads(self, who: Actor, backs: list[tuple[int, int]]) -> list[tuple[int, EdgeType]]:
        """What `who` reads when everybody under it is back."""
        return [*self.reports.pop(who.name, ()), *((back, "return") for _, back in backs)]

    def children(self, place: int) -> range:
        """Places of the agents under the one at `place`; the lead is at -1 and has the first few under it."""
        if place < 0:
            return range(min(self.fan, len(self.wave)))
        first = (place + 1) * self.fan
        return range(min(first, len(self.wave)), min(first + self.fan, len(self.wave)))

    def grow(self, parent: Actor, place: int, at: int, decision: int) -> tuple[list[Actor], list[tuple[int, int]]]:
        """Spawn everybody under `place` and let them live: the team, and when each returned, with its return's handle."""
        team, backs = [], []
        for under in self.children(place):
            i = self.wave[under]
            role = "manager" if self.children(under) else "worker"
            child = Actor(f"{role}-{i + 1}", role, i, path=parent.path)
            at, born = acts.spawn(self.script, parent, child, at, decision)
            team.append(child)
            backs.append(self._live(parent, child, under, at, born))
        return team, backs

    def _live(self, parent: Actor, who: Actor, place: int, at: int, born: int) -> tuple[int, int]:
        script, steps = self.script, self.portions[self.wave[place]]
        if not self.children(place):
            at, last = acts.work(script, who, at, born, "spawn", steps)
            at = acts.report(script, who, parent, at, last, self.reports.setdefault(parent.name, []))
            return acts.give_back(script, who, parent, at, last)
        before = (steps + 1) // 2
        at, last = acts.work(script, who, at, born, "spawn", before)
        at, chosen = acts.decide(script, who, at, "spawn", [(last, "causal")])
        team, backs = self.grow(who, place, at, chosen)
        reads = self.reads(who, backs)
        at, merged = acts.aggregate(script, who, max(over for over, _ in backs), [(chosen, "causal"), *reads])
        at = acts.despawn(script, who, team, at, merged)
        at, last = acts.work(script, who, at, merged, "aggregate", steps - before)
        return acts.give_back(script, who, parent, at, last, "causal" if before < steps else "aggregate")
