"""AgentSpawn as a policy: a script that spawns while what it measures of the work crosses a threshold; nothing is learned.

    score = 0.5 backlog + 0.25 context + 0.25 repeats;      spawn where score > threshold and the parent's depth is below 3
    backlog: ready / (ready + workers)      context: mean load of a worker's context      repeats: calls made / calls allowed

Always true: everything but spawning is the reference's. Each worker may ask for one more in a round, so a team doubles at
most. The script is followed with chance 1 - EPSILON and turned round with EPSILON, and the log-probability says which: such
traces can be used to judge what spawning is worth (off-policy). Who must spawn, because nobody else could work, does so for
certain.

AgentSpawn arXiv 2602.07072 (abstract; the depth of 3 from a secondary source). Metrics, weights and threshold are ours. Its
transfer of a slice of memory is the brief here, its merging of concurrent edits the aggregation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from counterpoint.lab.worlds.teamworld.action import DECISIONS, Action, Spawns, rule
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.observation import Observation, limits
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts, Size, team_size

EPSILON = 0.05
WEIGHTS = (0.5, 0.25, 0.25)
THRESHOLD = 0.4
MAX_DEPTH = 3
_SPAWN = DECISIONS.index("spawn")


def spawn_trigger(
    metrics: Sequence[float] | np.ndarray,
    *,
    weights: Sequence[float] = WEIGHTS,
    threshold: float = THRESHOLD,
    depth: int | np.ndarray = 0,
    max_depth: int = MAX_DEPTH,
) -> tuple[np.ndarray, np.ndarray]:
    """(score, whether to spawn) of metrics in 0..1, which stand along the last axis."""
    score = np.asarray(metrics, np.float64) @ np.asarray(weights, np.float64)
    return score, (score > threshold) & (np.asarray(depth) < max_depth)


class AgentSpawn(ComposedPolicy):
    """The reference with a scripted team."""

    def __init__(self, config: Config, name: str = "agentspawn") -> None:
        super().__init__(config, Parts(), name)
        self._limits = limits(config)

    @cached_property
    def size(self) -> Size:
        """What calls are worth rests on the reference's plan; how many agents there are does not."""
        planned = team_size(self.config, "plan", only=None, alone=not self.config.orchestrator_works)
        return replace(planned, leads=0)

    def act(self, obs: Observation) -> Action:
        """Spawn what the trigger asks for, and work with who is there."""
        action = Action(stop=np.zeros(obs.episodes, np.bool_), rule=np.full(obs.episodes, rule(self.parts.aggregate)))
        logp = np.zeros((obs.episodes, len(DECISIONS)))
        if self.config.topology == "debate":  # a panel that cannot grow later comes at once
            if obs.round == 0:
                return replace(action, spawns=self.size.orders(obs), logp=logp)
            return replace(self.work(obs, action), logp=logp)
        worked = self.work(obs, action)
        number, parent, logp[:, _SPAWN] = self._wanted(obs, worked.stop)
        must = (number > 0) & (self._workers(obs) == 0)
        worked = replace(worked, stop=worked.stop & ~must)
        return replace(worked, spawns=self._orders(obs, number, parent), logp=logp)

    def _workers(self, obs: Observation) -> np.ndarray:
        return obs.alive[:, 1:].sum(axis=1) + self.config.orchestrator_works

    def _wanted(self, obs: Observation, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(agents to spawn, below whom, log-probability) by episode."""
        workers, ready = self._workers(obs), obs.ready.sum(axis=1)
        parent, depth = self._parents(obs)
        load = np.minimum(1.0, obs.taken / self.config.context_capacity) * obs.alive
        context = load[:, 1:].sum(axis=1) / np.maximum(1, obs.alive[:, 1:].sum(axis=1))
        repeats = (obs.ready * np.minimum(1.0, obs.calls / self._limits)).sum(axis=1) / np.maximum(1, ready)
        _, fires = spawn_trigger(np.stack([ready / np.maximum(1, ready + workers), context, repeats], axis=1), depth=depth)
        room = np.minimum(self.config.max_agents - obs.spawned, ready)
        may = obs.running & (room > 0) & (depth < self.config.max_depth if self.config.topology == "hierarchical" else True)
        must = may & (workers == 0)
        asked = may & ~stop & ~must
        turned = obs.uniform("spawn", 0) < EPSILON
        go = must | (asked & (fires ^ turned))
        logp = np.where(asked, np.where(turned, np.log(EPSILON), np.log1p(-EPSILON)), 0.0)
        return np.where(go, np.minimum(np.maximum(1, workers), room), 0), parent, logp

    def _parents(self, obs: Observation) -> tuple[np.ndarray, np.ndarray]:
        """Who would spawn, and how deep it stands: in a hierarchical team whoever took the most calls, else the orchestrator."""
        if self.config.topology != "hierarchical":
            return np.zeros(obs.episodes, np.int64), np.zeros(obs.episodes, np.int64)
        deepest = min(MAX_DEPTH, self.config.max_depth)
        parent = np.where(obs.alive & (obs.depth < deepest), obs.taken, -1).argmax(axis=1)
        return parent, obs.depth[np.arange(obs.episodes), parent].astype(np.int64)

    def _orders(self, obs: Observation, number: np.ndarray, parent: np.ndarray) -> Spawns:
        """Specialists of the type with the most ready items for each who is there, in the plan's mix of families."""
        every = np.arange(obs.episodes)
        types = [(obs.ready & (obs.item_type == t)).sum(axis=1) / (1 + (obs.alive & (obs.type == t)).sum(axis=1)) for t in
                 range(self.config.types)]  # fmt: skip
        kind = np.stack(types, axis=1).argmax(axis=1)
        total = max(1, sum(self.size.families))
        first = (obs.alive[:, 1:] & (obs.family[:, 1:] == 0)).sum(axis=1)
        goal = np.rint((obs.alive[:, 1:].sum(axis=1) + number) * self.size.families[0] / total).astype(np.int64)
        cheap = np.clip(goal - first, 0, number)
        parts = [Spawns.of(every, cheap, 0, kind, parent), Spawns.of(every, number - cheap, 1, kind, parent)]
        return Spawns(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("ep", "number", "family", "type", "parent")))
