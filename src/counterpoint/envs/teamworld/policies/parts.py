"""A team policy in five parts, one per sub-decision; a planted error is one part exchanged for a wrong one.

Always true: parts not named are the reference's. The reference spawns what the bound's plan says, matches specialists to items,
briefs with the best size, aggregates by correlation-aware Bayes, and asks for another vote while it is worth its price; it
stops when nothing is, or when what is left is not worth one more round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from counterpoint.envs.teamworld.action import VERIFY, Action, Calls, rule
from counterpoint.envs.teamworld.config import KINDS, Config
from counterpoint.envs.teamworld.observation import Observation
from counterpoint.envs.teamworld.optimum import vote
from counterpoint.envs.teamworld.policies._assign import builders, matched, panel, searchers, within_budget
from counterpoint.envs.teamworld.policies._next import NEXT, Wishes, vote_state
from counterpoint.envs.teamworld.policies._size import Size, team_size


@dataclass(frozen=True)
class Parts:
    """How each sub-decision is taken."""

    spawn: str = "plan"
    """O1: "plan", "serial" (one at most), "all" (as many as may be), "quarter" or "fourfold" of the plan."""
    delegate: str = "matched"
    """O2: "matched", "blind" (whoever is free), "cheap" (family A only), "others" (never the orchestrator itself)."""
    brief: int = -1
    """O3: size of every brief; -1 is the plan's."""
    broadcast: bool = False
    """O3: read all returns to everybody."""
    aggregate: str = "bayes"
    """O4: a rule."""
    cap: int = 0
    """O5: that many calls on every item, whatever comes back; 0 asks while it is worth it."""
    rounds: int = 0
    """O5: stop after that many rounds; 0 does not."""
    play: str = "plain"
    """How pools, drafts and chains are played: "plain" rules of thumb, or "optimal" by the exact tables."""


class Team:
    """A policy made of parts."""

    def __init__(self, config: Config, parts: Parts, name: str) -> None:
        self.config, self.parts, self.name = config, parts, name

    @cached_property
    def size(self) -> Size:
        """How many agents, for whom time costs how much per call."""
        return team_size(
            self.config, self.parts.spawn, cheap=self.parts.delegate == "cheap", alone=self.parts.delegate in ("others", "cheap")
        )

    @cached_property
    def wishes(self) -> Wishes:
        """What the wishes for calls rest on."""
        brief = self.size.briefs if self.parts.brief < 0 else (self.parts.brief,) * len(KINDS)
        return Wishes(self.size.extra, brief, self.parts.play, self.parts.cap)

    def act(self, obs: Observation) -> Action:
        """Spawn first; then call what is worth it until nothing is."""
        go = np.zeros(obs.episodes, np.bool_)
        action = Action(stop=go, rule=np.full(obs.episodes, rule(self.parts.aggregate)))
        if obs.round < self.size.waves:
            spawns = self.size.orders(obs)
            if len(spawns):
                return replace(action, spawns=spawns)
        priority, family, purpose = self._wants(obs)
        wanted = (priority > -np.inf).any(axis=1)
        stop = obs.running & ~wanted & ~self._waiting(obs)
        if self.parts.rounds:
            stop |= obs.running & (obs.round >= self.parts.rounds)
        elif not self.parts.cap:
            stop |= obs.running & self._not_worth_a_round(obs, priority)
        priority[stop | ~obs.running] = -np.inf
        calls = self._calls(obs, priority, family, purpose)
        called = np.bincount(calls.ep, minlength=obs.episodes) > 0
        stop |= obs.running & ~called & ~self._waiting(obs)
        flags = np.full(obs.episodes, self.parts.broadcast) & ~stop
        return replace(
            action, stop=stop, calls=calls, broadcast=flags, full_return=np.full(obs.episodes, self.parts.aggregate == "weighted")
        )

    def _wants(self, obs: Observation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts = [NEXT[kind](obs, self.wishes) for kind in KINDS if obs.of(kind) is not None]
        columns = parts[0] if len(parts) == 1 else [np.concatenate(column, axis=1) for column in zip(*parts, strict=True)]
        priority, family, purpose = columns
        if 0 in self.size.families:  # who is not there cannot be asked
            family = np.full_like(family, int(self.size.families[0] == 0))
        return priority.astype(np.float64, copy=False), family, purpose

    def _waiting(self, obs: Observation) -> np.ndarray:
        """(E,) somebody is still out with a call."""
        out = obs.alive & ~obs.free
        out[:, 0] = False
        return out.any(axis=1) & (obs.config.straggler_rate > 0)

    def _not_worth_a_round(self, obs: Observation, priority: np.ndarray) -> np.ndarray:
        """(E,) only questions are wanted, and all that their next votes are worth, time apart, is less than a round."""
        seen = obs.of("vote")
        if seen is None or not obs.config.round_price:
            return np.zeros(obs.episodes, np.bool_)
        n = obs.config.vote_items
        t = vote.tables(obs.config, self.wishes.brief[0], 0.0)
        gain = np.where(priority[:, :n] > -np.inf, t.gain.take(vote_state(obs)), 0.0).sum(axis=1)
        return (gain < obs.config.round_price) & ~(priority[:, n:] > -np.inf).any(axis=1)

    def _calls(self, obs: Observation, priority: np.ndarray, family: np.ndarray, purpose: np.ndarray) -> Calls:
        free, blind, parts = obs.free.copy(), self.parts.delegate == "blind", []
        if self.parts.delegate in ("others", "cheap"):
            free[:, 0] = False
        if obs.of("node") is not None:
            parts += builders(obs, priority, free, blind=blind)
        apart = (obs.kind == KINDS.index("pool")) | (obs.kind == KINDS.index("node"))
        first = np.where(apart, -np.inf, priority)
        if obs.of("vote") is not None and obs.config.votes_per_agent < obs.config.max_votes:
            n = obs.config.vote_items
            parts += panel(obs, first[:, :n], family[:, :n], free)
            first[:, :n] = -np.inf
        parts += matched(obs, first, family, free, blind=blind)
        if obs.of("pool") is not None:
            parts += searchers(obs, priority, family, free, blind=blind)
        ep, item, agent = (np.concatenate(column) for column in zip(*parts, strict=True))
        if obs.config.topology == "harness":
            ep, item, agent = (column[within_budget(obs, ep)] for column in (ep, item, agent))
        brief = np.array(self.wishes.brief)[obs.kind[item]]
        return Calls.of(ep, item, agent, np.where(purpose[ep, item] == VERIFY, 0, brief), purpose[ep, item])
