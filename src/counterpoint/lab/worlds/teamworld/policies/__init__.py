"""Hand-made policies, each readable on one screen: `named(name, config)` makes one for a world.

Always true: a policy sees an `Observation` and nothing else, keeps no state between rounds, and takes its noise from the
observation; so the same seed gives the same action, alone or in a batch, and a fork can ask it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from counterpoint.errors import NotFound, did_you_mean
from counterpoint.lab.worlds.teamworld.action import DECISIONS, Action, Calls, Spawns
from counterpoint.lab.worlds.teamworld.acts import peers, possible
from counterpoint.lab.worlds.teamworld.config import ATTACKS, RULES, Config
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.observation import Observation, limits
from counterpoint.lab.worlds.teamworld.policies._assign import assigned
from counterpoint.lab.worlds.teamworld.policies.agentspawn import AgentSpawn
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.lab.worlds.teamworld.policies.halo import Halo, Searched, search

# -- What a policy is, and playing episodes: one loop, any policy, any number of seeds at once ------------------------
# Always true: a policy keeps no state between rounds and takes its noise from the observation, so that a fork can ask it again.
# The loop asks the policy, steps the batch, and ends when every episode has stopped or run out of rounds.


class Policy(Protocol):
    """Decides for every episode of a batch at once."""

    name: str

    def act(self, obs: Observation) -> Action:
        """This round's action."""


def finish(batch: Batch, policy: Policy) -> Batch:
    """Play a batch on from where it is to the end."""
    while not batch.state.done.all():
        batch.step(policy.act(batch.observe()))
    return batch


def play(config: Config, policy: Policy, seeds: Sequence[int] | np.ndarray, *, log: bool = False) -> Batch:
    """Whole episodes, one per seed."""
    return finish(Batch(config, np.asarray(seeds), log=log), policy)


# -- Random: spawns some, calls anybody on anything, briefs and aggregates by chance, and stops one time in thirty ----
# Always true: every choice is a keyed draw, and its log-probability is given.

_STOP = 1 / 30


class Random:
    """Uniform over what is offered."""

    name = "random"

    def __init__(self, config: Config) -> None:
        self.config = config
        self.most = min(8, config.max_agents)

    def act(self, obs: Observation) -> Action:
        """All five parts by chance; the team is spawned in the first round."""
        e, logp = obs.episodes, np.zeros((obs.episodes, len(DECISIONS)))
        every = np.arange(e)
        if obs.round == 0:
            number = 1 + (obs.uniform("spawn", 0) * self.most).astype(np.int64)
            family, kind = obs.uniform("spawn", 1) * 2, obs.uniform("spawn", 2) * self.config.types
            logp[:, 1] = -np.log(self.most * 2 * self.config.types)
            spawns = Spawns.of(
                every[obs.running], number[obs.running], family.astype(np.int64)[obs.running], kind.astype(np.int64)[obs.running]
            )
            first = Action(stop=np.zeros(e, np.bool_), spawns=spawns, logp=logp, **self._beside(obs))
            if self.config.proposer:
                first.proposal = np.stack([(obs.uniform("spawn", 3 + dial) * 3).astype(np.int64) for dial in (0, 1)], axis=1)
            return first
        stop = obs.running & (obs.uniform("stop") < _STOP)
        logp[:, 0] = np.where(stop, np.log(_STOP), np.log1p(-_STOP))
        items = np.arange(obs.ready.shape[1])[None]
        order = obs.uniform("delegate", items)
        go = obs.ready & (obs.running & ~stop)[:, None]
        if obs.of("vote") is not None and self.config.votes_per_agent < self.config.max_votes:
            go[:, : self.config.vote_items] &= obs.calls[:, : self.config.vote_items] == 0
        ep, item, agent = assigned(np.where(go, order, -np.inf), obs.free, obs.alive)
        count, ready = np.bincount(ep, minlength=e), go.sum(axis=1)
        logp[:, 2] = -np.array([np.log(np.arange(r, r - c, -1)).sum() for r, c in zip(ready, count, strict=True)])
        brief = (obs.uniform("communicate") * 4).astype(np.int64)
        rule = (obs.uniform("aggregate") * len(RULES)).astype(np.int64)
        logp[:, 3], logp[:, 4] = -np.log(4), -np.log(len(RULES))
        calls = Calls.of(ep, item, agent, brief[ep], self._purposes(obs)[ep, item])
        if self.config.acts != "report":
            calls.act = self._acts(obs, calls)
        return Action(stop=stop, calls=calls, rule=rule, logp=logp, **self._beside(obs))

    def _acts(self, obs: Observation, calls: Calls) -> np.ndarray:
        """One of what each worker can do with its question, each as likely."""
        act, rows = np.zeros(len(calls), np.int64), np.flatnonzero(obs.kind[calls.item] == 0)
        c, view = calls.where(rows), obs.of("vote")
        item = c.item - view.first_item
        may = possible(self.config, peers(view, c.ep, item, c.agent), view.tally[c.ep, item].any(axis=(1, 2)), c.agent)
        u = obs.uniform("communicate", 1, np.arange(obs.ready.shape[1])[None])[c.ep, c.item]
        nth = np.minimum((u * may.sum(axis=1)).astype(np.int64), may.sum(axis=1) - 1)
        act[rows] = ((may.cumsum(axis=1) - 1 == nth[:, None]) & may).argmax(axis=1)
        return act

    def _beside(self, obs: Observation) -> dict[str, Any]:
        """Of a second side: any attack or none, while it may."""
        if not self.config.opponent_rounds:
            return {}
        attack = (obs.uniform("aggregate", 1) * (1 + len(ATTACKS))).astype(np.int64)
        return {"attack": np.where(obs.attacks_left > 0, attack, 0)}

    def _purposes(self, obs: Observation) -> np.ndarray:
        """Chains: verify what was attempted, then go on; everything else is answered."""
        purpose = np.zeros(obs.ready.shape, np.int64)
        view = obs.of("chain")
        if view is not None:
            at = slice(view.first_item, view.first_item + view.hop.shape[1])
            checked = view.passes + view.fails >= self.config.hop_checks
            last = view.hop == self.config.chain_hops - 1
            purpose[:, at] = np.where(
                ~view.has | (checked & last & (view.attempts < self.config.hop_attempts)), 0, np.where(checked, 2, 1)
            )
        return purpose


class Opposed:
    """A policy, and a second side that attacks in one way from the first call on, as long as it may."""

    def __init__(self, policy: Policy, attack: str) -> None:
        self.policy, self.name, self.code = policy, f"{policy.name}-against-{attack}", 1 + ATTACKS.index(attack)

    def act(self, obs: Observation) -> Action:
        """The policy's action and the attack."""
        action = self.policy.act(obs)
        called = np.bincount(action.calls.ep, minlength=obs.episodes) > 0
        return replace(action, attack=np.where(called & (obs.attacks_left > 0), self.code, 0))


LISTED = ("reference", "oracle", "best_cap", "majority", "first_answer", "serial", "spawn_all", "agentspawn", "random")
"""What a world plays where nobody says which."""
NAMES = (*LISTED, "halo", "halo_released")
"""All that `named` knows: a search that simulates tens of episodes is there for those who ask for it."""


def named(name: str, config: Config) -> Policy:
    """A hand-made policy, prepared for a configuration."""
    match name:
        case "reference":
            return ComposedPolicy(config, Parts(), name)
        case "oracle":
            return ComposedPolicy(config, Parts(play="optimal"), name)
        case "best_cap":
            return ComposedPolicy(config, best_cap(config), name)
        case "majority":
            return ComposedPolicy(config, Parts(aggregate="majority"), name)
        case "first_answer":
            return ComposedPolicy(config, Parts(aggregate="first", cap=1), name)
        case "serial":
            return ComposedPolicy(config, Parts(spawn="serial"), name)
        case "spawn_all":
            return ComposedPolicy(config, Parts(spawn="all"), name)
        case "agentspawn":
            return AgentSpawn(config, name)
        case "halo" | "halo_released":
            return Halo(config, halo_search(config, name == "halo_released"), name)
        case "random":
            return Random(config)
    raise NotFound(f"no policy named {name!r}", fix=did_you_mean(name, NAMES))


_SEARCH = 2_000_003
_REHEARSAL = range(1_000_003, 1_000_003 + 16)
_COARSE = (1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 28, 40, 56, 80, 110, 160, 220)


@lru_cache(maxsize=64)
def halo_search(config: Config, as_released: bool) -> Searched:
    """What HALO's search finds in a configuration, on seeds of its own; the same for every episode, each of which pays for it."""

    def simulate(policy: ComposedPolicy, first: int, number: int) -> tuple[np.ndarray, int]:
        batch = play(config, policy, range(_SEARCH + first, _SEARCH + first + number))
        return batch.value(), int(batch.state.counts[:, 0].sum())

    return search(config, simulate, as_released=as_released)


@lru_cache(maxsize=64)
def best_cap(config: Config) -> Parts:
    """The parts of the best capped policy: the same number of calls on every item, the best of a coarse scale, up to the first
    that is clearly past the best. The rehearsal plays seeds of its own, so the cap depends on the configuration alone."""
    most = int(limits(config).max()) if config.items > config.chain_items else config.hop_checks + 1
    best, best_worth = 1, float("-inf")
    for cap in (c for c in _COARSE if c <= most):
        worth = float(play(config, ComposedPolicy(config, Parts(cap=cap), "cap"), _REHEARSAL).value().mean())
        if worth > best_worth:
            best, best_worth = cap, worth
        elif cap > 2 * best:
            break
    return Parts(cap=best)
