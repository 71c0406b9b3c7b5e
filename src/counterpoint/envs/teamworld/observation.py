"""What the orchestrators of a batch see: what came back, who is there, what was spent. Never the truth.

Always true: no array here holds truth, difficulty, misconceptions, soundness, modules, planted attacks or compromised flags;
arrays are read-only views of the state. A policy's own noise comes from `uniform`, which is keyed by (seed, round, place) like
all else.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from counterpoint.envs.keyed import purpose, uniform
from counterpoint.envs.teamworld.action import DECISIONS
from counterpoint.envs.teamworld.config import KINDS, Config
from counterpoint.envs.teamworld.legal import limits
from counterpoint.envs.teamworld.running import Running
from counterpoint.envs.teamworld.state import BatchState

_POLICY = purpose("policy")
# What is seen of each kind.
SEEN = {
    "vote": ("tally", "rejected", "confidence", "first", "public", "answer", "callers"),
    "pool": ("found", "news"),
    "draft": ("shown", "zeros", "lost"),
    "chain": ("hop", "has", "attempts", "passes", "fails", "history"),
    "node": ("needs", "done", "by"),
}


@dataclass(frozen=True)
class Observation:
    """Axes: E episodes, K slots (0 is the orchestrator itself), N items of all kinds."""

    config: Config
    round: int
    """Decisions made so far."""
    running: np.ndarray
    """(E,) episodes that have not stopped."""
    clock: np.ndarray
    """(E,) rounds of time passed."""
    spent: np.ndarray
    """(E,) points spent so far."""
    asks: np.ndarray
    """(E,) requests to spawn that returns carried."""
    alive: np.ndarray
    """(E, K)"""
    free: np.ndarray
    """(E, K) who can be called this round."""
    family: np.ndarray
    """(E, K)"""
    type: np.ndarray
    """(E, K) what each agent is a specialist of."""
    depth: np.ndarray
    """(E, K) levels below the orchestrator."""
    taken: np.ndarray
    """(E, K) calls taken."""
    spawned: np.ndarray
    """(E,) agents ever spawned."""
    item_type: np.ndarray
    """(E, N) what each item is about."""
    open: np.ndarray
    """(E, N) items not closed."""
    ready: np.ndarray
    """(E, N) items that can be called this round."""
    calls: np.ndarray
    """(E, N) calls made on each."""
    kind: np.ndarray
    """(N,) index into `KINDS`."""
    seen: dict[str, Any]
    """By kind that has items: a namespace of the arrays named in `SEEN`, `first_item`, and for pools `count` (E, n)."""
    noise: Any
    """See `uniform`."""

    @property
    def episodes(self) -> int:
        """E."""
        return len(self.running)

    def of(self, kind: str) -> Any:
        """What is seen of a kind; None when it has no items."""
        return self.seen.get(kind)

    def uniform(self, decision: str, *keys: Any) -> np.ndarray:
        """Keyed draws for a policy: (E, ...) numbers for a sub-decision of this round; keys broadcast behind the episode axis."""
        return self.noise(DECISIONS.index(decision), keys)


def _view(array: np.ndarray) -> np.ndarray:
    out = array.view()
    out.flags.writeable = False
    return out


def detached(obs: Observation) -> Observation:
    """The observation, copied, so that it stays as it is while the episode goes on."""
    kept = lambda value: _view(value.copy()) if isinstance(value, np.ndarray) else value  # noqa: E731
    seen = {kind: SimpleNamespace(**{n: kept(v) for n, v in vars(part).items()}) for kind, part in obs.seen.items()}
    changes: dict[str, Any] = {f.name: kept(getattr(obs, f.name)) for f in dataclasses.fields(obs)}
    return dataclasses.replace(obs, **(changes | {"seen": seen}))


def _ready(config: Config, s: BatchState) -> np.ndarray:
    ready = s.open & (s.calls < limits(config)) & ~s.done[:, None]
    for name, kind in s.kinds.present():
        at = slice(kind.first_item, kind.first_item + config.counts[KINDS.index(name)])
        if name in ("draft", "chain", "node"):
            ready[:, at] &= s.flying[:, at] == 0
        if name == "chain":
            checked = kind.passes + kind.fails >= config.hop_checks  # type: ignore[union-attr]
            ends = (kind.hop == config.chain_hops - 1) & (kind.attempts >= config.hop_attempts)  # type: ignore[union-attr]
            ready[:, at] &= ~(kind.has & checked & ends)  # type: ignore[union-attr]
        if name == "node":
            waits = (kind.needs & ~kind.done[:, None, :]).any(axis=2)  # type: ignore[union-attr]
            ready[:, at] &= ~kind.done & ~waits  # type: ignore[union-attr]
    return ready


def observation(config: Config, s: BatchState, batch: Running) -> Observation:
    """The present observation of a batch."""
    seen = {}
    for name, kind in s.kinds.present():
        view = SimpleNamespace(**{n: _view(getattr(kind, n)) for n in SEEN[name]}, first_item=kind.first_item)
        if name == "pool":
            view.count = _view(kind.found.sum(axis=2))  # type: ignore[union-attr]
            del view.found
        seen[name] = view
    free = s.alive & (s.busy <= s.round[:, None]) & ~s.done[:, None]
    free[:, 0] &= config.orchestrator_works
    now = batch.round

    def noise(place: int, keys: tuple[Any, ...]) -> np.ndarray:
        seeds = batch.seeds(np.arange(s.episodes), place)
        dims = max([np.ndim(k) for k in keys], default=0)
        return uniform(seeds.reshape(-1, *[1] * max(0, dims - 1)) if dims > 1 else seeds, _POLICY, now, place, *keys)

    return Observation(
        config=config,
        round=now,
        running=_view(~s.done),
        clock=_view(s.clock),
        spent=_view(s.costs.sum(axis=1)),
        asks=_view(s.asks),
        alive=_view(s.alive),
        free=_view(free),
        family=_view(s.family),
        type=_view(s.type),
        depth=_view(s.depth),
        taken=_view(s.taken),
        spawned=_view(s.spawned),
        item_type=_view(s.item_type),
        open=_view(s.open),
        ready=_view(_ready(config, s)),
        calls=_view(s.calls),
        kind=_view(np.repeat(np.arange(len(KINDS)), config.counts)),
        seen=seen,
        noise=noise,
    )
