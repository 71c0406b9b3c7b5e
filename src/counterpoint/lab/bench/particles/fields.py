"""Many particle worlds at once: `simple_spread` (three agents) and `simple_speaker_listener` in arrays.

What a step does, as mpe2 has it (dt 0.1, damping 0.25, an action is a force of 5 in one of four directions):

    x <- x + 0.1 v;   v <- 0.75 v + 0.1 F

and between agents of spread that touch F has  100 d / |d| k log(1 + exp((0.3 - |d|) / k)),  k = 0.001.  In the package of Lowe et
al. (arXiv 1706.02275), with which papers measured, v changes first and x goes by the new v (`is_older`); all else is the same.
What is paid is what papers add up, the sum over agents of what the older package pays each:

    spread             - 3 sum over landmarks of the distance to the nearest agent - agents' collisions - 3
    speaker, listener  - 2 |listener - goal|^2

The 3 is each agent's collision with itself, which mpe2 has mended; mpe2 also halves the rest. So a paper's return of an episode
is twice the sum over mpe2's agents, less 75 (`paper_return`).

Always true: arrays and mpe2 agree in every observation and reward (tests/lab/bench/test_particles.py plays both). (B, N, F) are
episodes, agents and the numbers of the adapter's `array`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Protocol

import numpy as np

from counterpoint.lab.worlds.packages import Episode, package_world

STEPS = 25
_DT, _DAMPING, _PUSH, _MARGIN, _HARD, _APART = 0.1, 0.25, 5.0, 1e-3, 100.0, 0.3
_FORCES = _PUSH * np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], np.float64)
_AHEAD = 3
_ORDERS = np.array(list(permutations(range(3))))


class Field(Protocol):
    """Worlds that can be played side by side."""

    agents: int
    roles: tuple[int, ...]
    """The role of each agent; agents of one role share a network."""
    width: int
    """Numbers of an observation, those that say which agent it is among them."""
    possible: np.ndarray
    """(N, 5) the actions of each agent."""

    def begin(self, count: int, rng: np.random.Generator) -> None:
        """Begin some episodes."""

    def sight(self) -> np.ndarray:
        """(B, N, F) what each agent is told."""

    def step(self, actions: np.ndarray) -> np.ndarray:
        """(B,) what one step of the (B, N) actions pays, as papers add it up."""

    def by_hand(self) -> np.ndarray:
        """(B, N) what a rule does."""


def _moved(x: np.ndarray, v: np.ndarray, force: np.ndarray, is_older: bool) -> tuple[np.ndarray, np.ndarray]:
    """Places and velocities after a step."""
    after = (1 - _DAMPING) * v + _DT * force
    return x + _DT * (after if is_older else v), after


def _towards(gap: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The push after which a body that slides on for some steps is nearest to its goal, `gap` away."""
    slide = _DT * sum((1 - _DAMPING) ** k for k in range(_AHEAD))
    ends = gap[..., None, :] - _DT * v[..., None, :] - ((1 - _DAMPING) * v[..., None, :] + _DT * _FORCES) * slide
    return np.square(ends).sum(axis=-1).argmin(axis=-1)


class Spread:
    """Three agents are to cover three landmarks without touching."""

    agents, width = 3, 21
    roles: tuple[int, ...] = (0, 1, 2)
    possible = np.ones((3, 5), np.bool_)

    def __init__(self, *, is_older: bool = False) -> None:
        self.is_older = is_older

    def begin(self, count: int, rng: np.random.Generator) -> None:
        """Places drawn from the square, all at rest."""
        self.place(rng.uniform(-1, 1, (count, 3, 2)), rng.uniform(-1, 1, (count, 3, 2)))

    def place(self, x: np.ndarray, marks: np.ndarray) -> None:
        """Begin with agents and landmarks at these places."""
        self.x, self.marks, self.v = x, marks, np.zeros_like(x)

    def sight(self) -> np.ndarray:
        """Own velocity and place, landmarks, the two others, four zeros (nobody speaks), which agent."""
        count = len(self.x)
        marks = self.marks[:, None] - self.x[:, :, None]
        others = self.x[:, None] - self.x[:, :, None]
        near = np.stack([others[:, i, [j for j in range(3) if j != i]] for i in range(3)], axis=1)
        who = np.broadcast_to(np.eye(3), (count, 3, 3))
        parts = self.v, self.x, marks.reshape(count, 3, 6), near.reshape(count, 3, 4), np.zeros((count, 3, 4)), who
        return np.concatenate(parts, axis=-1).astype(np.float32)

    def step(self, actions: np.ndarray) -> np.ndarray:
        """One step of everybody."""
        force = _FORCES[actions]
        for a, b in ((0, 1), (0, 2), (1, 2)):
            gap = self.x[:, a] - self.x[:, b]
            far = np.sqrt(np.square(gap).sum(axis=-1, keepdims=True))
            push = _HARD * gap / far * np.logaddexp(0, (_APART - far) / _MARGIN) * _MARGIN
            force[:, a] += push
            force[:, b] -= push
        self.x, self.v = _moved(self.x, self.v, force, self.is_older)
        away = self._distances(self.x, self.marks).min(axis=1).sum(axis=-1)
        touch = (self._distances(self.x, self.x) < _APART).sum(axis=(1, 2))  # each with itself too: the older package's 3
        return -3 * away - touch

    @staticmethod
    def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """(B, 3, 3)"""
        out: np.ndarray = np.sqrt(np.square(a[:, :, None] - b[:, None]).sum(axis=-1))
        return out

    def by_hand(self) -> np.ndarray:
        """To one's landmark of the assignment whose distances have the least sum."""
        far = self._distances(self.x, self.marks)
        sums = far[:, np.arange(3), _ORDERS].sum(axis=-1)
        mine = _ORDERS[sums.argmin(axis=-1)]
        return _towards(np.take_along_axis(self.marks, mine[..., None], axis=1) - self.x, self.v)


class Listener:
    """A speaker who sees which landmark is the goal tells a listener who cannot."""

    agents, width = 2, 13
    roles: tuple[int, ...] = (0, 1)
    possible = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.bool_)

    def __init__(self, *, is_older: bool = False) -> None:
        self.is_older = is_older

    def begin(self, count: int, rng: np.random.Generator) -> None:
        """Places drawn from the square, a goal among three, nothing said."""
        self.place(rng.uniform(-1, 1, (count, 2)), rng.uniform(-1, 1, (count, 3, 2)), rng.integers(3, size=count))

    def place(self, x: np.ndarray, marks: np.ndarray, goal: np.ndarray) -> None:
        """Begin with the listener and landmarks at these places."""
        self.x, self.marks, self.goal, self.v = x, marks, goal, np.zeros_like(x)
        self.said = np.zeros((len(x), 3))

    def sight(self) -> np.ndarray:
        """The goal's colour; own velocity, landmarks and the word that was said; which agent."""
        count = len(self.x)
        out = np.zeros((count, 2, self.width), np.float32)
        out[:, 0, :3] = np.where(np.arange(3) == self.goal[:, None], 0.65, 0.15)
        marks = (self.marks - self.x[:, None]).reshape(count, 6)
        out[:, 1, :11] = np.concatenate([self.v, marks, self.said], axis=-1)
        out[:, 0, 11] = out[:, 1, 12] = 1
        return out

    def step(self, actions: np.ndarray) -> np.ndarray:
        """One step of both."""
        self.said = np.eye(3)[actions[:, 0]]
        self.x, self.v = _moved(self.x, self.v, _FORCES[actions[:, 1]], self.is_older)
        out: np.ndarray = -2 * np.square(self.x - self.marks[np.arange(len(self.x)), self.goal]).sum(axis=-1)
        return out

    def by_hand(self) -> np.ndarray:
        """The speaker says the goal's number, the listener goes there, and to the middle before it has heard."""
        heard = np.take_along_axis(self.marks, self.said.argmax(axis=-1)[:, None, None], axis=1)[:, 0]
        to = np.where(self.said.any(axis=-1, keepdims=True), heard, self.marks.mean(axis=1))
        return np.stack([self.goal, _towards(to - self.x, self.v)], axis=-1)


WORLDS: dict[str, tuple[type[Spread] | type[Listener], str]] = {
    "spread": (Spread, "pettingzoo:mpe2.simple_spread_v3"),
    "speaker_listener": (Listener, "pettingzoo:mpe2.simple_speaker_listener_v4"),
}
"""The field of each world, and its name behind the seam of packages."""


def paper_return(name: str, returned: float) -> float:
    """What a paper would call the return of an episode of which the package's agents were paid this in all."""
    return 2 * returned - 3 * STEPS if name == "spread" else returned


class PackageField:
    """Episodes of the package itself, side by side, behind the seam of worlds from packages."""

    def __init__(self, name: str, seeds: Sequence[int]) -> None:
        self.name = name
        self.episodes: list[Episode] = []
        for seed in seeds:
            episode = package_world(WORLDS[name][1])
            episode.reset(seed)
            self.episodes.append(episode)

    def sight(self) -> np.ndarray:
        """What everybody is told now."""
        return np.array([[episode.array(agent) for agent in episode.agents] for episode in self.episodes])

    def step(self, actions: np.ndarray) -> None:
        """The package's own step."""
        for i, episode in enumerate(self.episodes):
            episode.step({agent: str(a) for agent, a in zip(episode.agents, actions[i].tolist(), strict=True)})

    def returns(self) -> np.ndarray:
        """(B,) what papers would call the return so far, at the end."""
        return np.array([paper_return(self.name, episode.measures()["return"]) for episode in self.episodes])
