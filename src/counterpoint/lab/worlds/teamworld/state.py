"""The state of a batch of episodes: a handful of arrays, one row per episode.

Always true: everything an episode needs to go on is here, so a snapshot is a copy of the arrays and a restored state goes on to
the same bytes. Slot 0 is the orchestrator; slots are given in the order of spawn requests and never reused, so a slot means the
same agent in a fork until the forks part.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.lab.worlds.teamworld.config import KINDS, Config
from counterpoint.lab.worlds.teamworld.kinds import KIND_STATES, KindStates
from counterpoint.trace.keyed import bits, purpose

COSTS = ("calls", "messages", "spawn", "time", "harm", "topology")
NEVER = np.iinfo(np.int64).max
_ITEM_TYPE, _ROOT = purpose("item type"), purpose("orchestrator")


@dataclass
class BatchState:
    """Axes: E episodes, K agent slots, N items."""

    seed: np.ndarray  # (E,) uint64, of the noise up to the point of a fresh fork
    fresh_seed: np.ndarray  # (E, S) uint64, of the noise after the points at which fresh forks began
    fresh_round: np.ndarray  # (E, S) the rounds of these points, in order; NEVER where there is none
    fresh_cut: np.ndarray  # (E, S) the last place in that round whose noise is older
    round: np.ndarray  # (E,) decisions made
    clock: np.ndarray  # (E,) rounds of time passed
    done: np.ndarray  # (E,) bool
    truncated: np.ndarray  # (E,) bool, stopped by the limit of rounds
    spawned: np.ndarray  # (E,)
    alive: np.ndarray  # (E, K) bool
    family: np.ndarray  # (E, K) int8
    type: np.ndarray  # (E, K) int8
    parent: np.ndarray  # (E, K) int16
    depth: np.ndarray  # (E, K) int8
    ordinal: np.ndarray  # (E, K) int16, place among its parent's children
    children: np.ndarray  # (E, K) int16
    key: np.ndarray  # (E, K) uint64, hash of the spawn path
    taken: np.ndarray  # (E, K) calls taken
    busy: np.ndarray  # (E, K) first round in which it is free again
    compromised: np.ndarray  # (E, K) bool, never shown to anybody
    item_type: np.ndarray  # (E, N) int8
    open: np.ndarray  # (E, N) bool
    calls: np.ndarray  # (E, N) calls made
    planted: np.ndarray  # (E, N) bool, the attack sits on this item (AV1, AV4), never shown
    asks: np.ndarray  # (E,) requests to spawn that returns carried
    violations: np.ndarray  # (E,)
    costs: np.ndarray  # (E, len(COSTS)) points
    counts: np.ndarray  # (E, 3) calls, returns delivered, events
    further: np.ndarray  # (E,) verdicts of judges, and further looks and checks of workers
    attack: np.ndarray  # (E,) int8, what the second side does this round, a place in `attacks.MARKS`; never shown to the team
    opposed: np.ndarray  # (E,) rounds in which it attacked
    kinds: KindStates

    @property
    def episodes(self) -> int:
        """E."""
        return len(self.seed)


def blank(config: Config, seeds: np.ndarray) -> BatchState:
    """The state before the first round: the instance is drawn, nobody is there but the orchestrator."""
    e, k, n = len(seeds), config.max_agents + 1, config.items
    seed = np.asarray(seeds, np.int64).astype(np.uint64)
    zeros = lambda *shape, dtype=np.int64: np.zeros(shape, dtype)  # noqa: E731
    alive, key = zeros(e, k, dtype=np.bool_), zeros(e, k, dtype=np.uint64)
    alive[:, 0], key[:, 0] = True, _ROOT
    family = zeros(e, k, dtype=np.int8)
    family[:, 0] = 1
    items = np.arange(n)
    types = (bits(seed[:, None], _ITEM_TYPE, items[None]) % np.uint64(config.types)).astype(np.int8)
    return BatchState(
        seed=seed,
        fresh_seed=zeros(e, 0, dtype=np.uint64),
        fresh_round=zeros(e, 0),
        fresh_cut=zeros(e, 0),
        round=zeros(e),
        clock=zeros(e),
        done=zeros(e, dtype=np.bool_),
        truncated=zeros(e, dtype=np.bool_),
        spawned=zeros(e),
        alive=alive,
        family=family,
        type=zeros(e, k, dtype=np.int8),
        parent=zeros(e, k, dtype=np.int16),
        depth=zeros(e, k, dtype=np.int8),
        ordinal=zeros(e, k, dtype=np.int16),
        children=zeros(e, k, dtype=np.int16),
        key=key,
        taken=zeros(e, k, dtype=np.int32),
        busy=zeros(e, k),
        compromised=zeros(e, k, dtype=np.bool_),
        item_type=types,
        open=np.ones((e, n), np.bool_),
        calls=zeros(e, n, dtype=np.int32),
        planted=zeros(e, n, dtype=np.bool_),
        asks=zeros(e),
        violations=zeros(e),
        costs=zeros(e, len(COSTS), dtype=np.float64),
        counts=zeros(e, 3),
        further=zeros(e),
        attack=zeros(e, dtype=np.int8),
        opposed=zeros(e),
        kinds=_kinds(config, seed),
    )


def _kinds(config: Config, seed: np.ndarray) -> KindStates:
    """The state of each kind with items; items are numbered through in the order of the kinds."""
    out, first = KindStates(), 0
    for kind, count in zip(KINDS, config.counts, strict=True):
        if count:
            setattr(out, kind, KIND_STATES[kind].start(config, seed, first))
        first += count
    return out


def _mapped(value: Any, change: Any) -> Any:
    """The same record with every array changed."""
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, dict):
        return {k: _mapped(v, change) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{f.name: _mapped(getattr(value, f.name), change) for f in dataclasses.fields(value)})
    return value


def copied(state: BatchState) -> BatchState:
    """A state detached from this one."""
    return _mapped(state, np.copy)


def picked(state: BatchState, episodes: np.ndarray) -> BatchState:
    """The state of some episodes, in this order; an episode may be taken more than once."""
    out: BatchState = _mapped(state, lambda array: array[episodes])
    return out
