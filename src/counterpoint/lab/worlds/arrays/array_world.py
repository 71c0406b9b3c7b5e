"""A package's world as one of arrays, in which small networks learn: every action of an agent is a decision by numbers.

Always true: agents that act at once decide one after another, and none sees what another has chosen: the package's step is taken
when the last of them has decided, and pays what the team's reward grew by. The state is the package's array for the agent; the
options are its legal actions, each with a 1 at its place in the list of all actions.
"""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from counterpoint.errors import Refused
from counterpoint.lab.worlds.packages import Episode, package_world
from counterpoint.lab.worlds.rules.decision import Decision
from counterpoint.lab.worlds.rules.world import RulesWorld
from counterpoint.lab.worlds.world import Optimum
from counterpoint.trace.keyed import purpose, uniform

BY_HAND = "by_hand"


@dataclass(frozen=True)
class NoParameters:
    """A package's world has its parameters in its name."""


@dataclass(frozen=True, kw_only=True)
class Sight(Decision):
    """A decision with the words that go with its numbers, for players by hand."""

    text: str
    seed: int
    number: int
    """Decisions before it."""
    world: str


class ArrayEpisode:
    """One episode, decision by decision."""

    def __init__(self, name: str, seed: int) -> None:
        free = _FREE.setdefault(name, [])
        self.episode = free.pop() if free else package_world(name)
        self.seed, self.number = seed, 0
        self.chosen: dict[str, str] = {}
        self.episode.reset(seed)
        weakref.finalize(self, free.append, self.episode)

    def decision(self) -> Decision | None:
        """The next agent of the turn; None once nobody has one."""
        left = [agent for agent in self.episode.turn() if agent not in self.chosen]
        if not left:
            return None
        agent, known = left[0], self.episode.actions or ()
        state, legal = self.episode.array(agent), self.episode.legal(agent) or ()
        assert state is not None
        options = np.eye(len(known), dtype=np.float32)[[known.index(action) for action in legal]]
        return Sight(
            kind="delegate", state=state, options=options, names=legal, agent=agent, role=self.episode.role(agent),  # type: ignore[arg-type]
            text=self.episode.observe(agent), seed=self.seed, number=self.number, world=self.episode.name,
        )  # fmt: skip

    def act(self, option: int) -> float:
        """Take note of an action, and step once all have decided."""
        turn = self.episode.turn()
        agent = next(agent for agent in turn if agent not in self.chosen)
        self.chosen[agent] = (self.episode.legal(agent) or ())[option]
        self.number += 1
        if len(self.chosen) < len(turn):
            return 0.0
        before, actions, self.chosen = self.episode.team_reward, self.chosen, {}
        self.episode.step(actions)
        return self.episode.team_reward - before

    def __deepcopy__(self, memo: dict[int, Any]) -> ArrayEpisode:
        new = copy.copy(self)
        new.episode, new.chosen = self.episode.copy(), dict(self.chosen)
        return new


_FREE: dict[str, list[Episode]] = {}
"""Environments of a name that nobody plays any more: `reset` begins one again, and making one may take longer than playing it."""


@lru_cache(maxsize=8)
def _player(name: str) -> Episode:
    """An episode that is asked for its player by hand alone."""
    return package_world(name)


def _by_hand(decision: Decision) -> int:
    """The package's player by hand, from the words."""
    assert isinstance(decision, Sight)
    draw = lambda name: float(uniform(np.array([decision.seed]), purpose(name), decision.number)[0])  # noqa: E731
    action = _player(decision.world).by_hand(decision.text, tuple(decision.names), draw)
    return list(decision.names).index(action) if action in decision.names else 0


def array_world(name: str) -> RulesWorld:
    """The world of arrays of `PACKAGE:NAME`; refused where the package has words only."""
    first = package_world(name)
    first.reset(0)
    turn = first.turn()
    if not first.actions or not turn or first.array(turn[0]) is None:
        what = f"{name} has no list of actions" if not first.actions else f"{name} has no arrays"
        raise Refused(what, why="a network reads numbers and chooses by number", fix=f"counterpoint play --task {name}")

    def best(config: Any) -> Optimum:
        if first.bound is None:
            fix = "a `bound`, which no policy passes: of your class, or in the `metadata` of an environment of PettingZoo"
            raise Refused(f"nobody knows a bound of what {name} pays", fix=fix)
        return Optimum(value=first.bound, kind="upper bound", over="every policy", how="what its adapter states")

    return RulesWorld(
        name=name,
        config=NoParameters(),
        begin=lambda config, seed: ArrayEpisode(name, seed),
        best=best,
        rules={BY_HAND: _by_hand},
        silent=dict.fromkeys(("spawn", "communicate", "aggregate", "stop"), "the world asks for actions alone"),
        version=first.version,
    )
