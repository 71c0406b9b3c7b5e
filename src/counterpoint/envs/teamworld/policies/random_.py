"""Random: spawns some, calls anybody on anything, briefs and aggregates by chance, and stops one time in thirty.

Always true: every choice is a keyed draw, and its log-probability is given.
"""

from __future__ import annotations

import numpy as np

from counterpoint.envs.teamworld.action import DECISIONS, Action, Calls, Spawns
from counterpoint.envs.teamworld.config import RULES, Config
from counterpoint.envs.teamworld.observation import Observation
from counterpoint.envs.teamworld.policies._assign import assigned, within_budget

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
            return Action(stop=np.zeros(e, np.bool_), spawns=spawns, logp=logp)
        stop = obs.running & (obs.uniform("stop") < _STOP)
        logp[:, 0] = np.where(stop, np.log(_STOP), np.log1p(-_STOP))
        items = np.arange(obs.ready.shape[1])[None]
        order = obs.uniform("delegate", items)
        go = obs.ready & (obs.running & ~stop)[:, None]
        if obs.of("vote") is not None and self.config.votes_per_agent < self.config.max_votes:
            go[:, : self.config.vote_items] &= obs.calls[:, : self.config.vote_items] == 0
        ep, item, agent = assigned(np.where(go, order, -np.inf), obs.free, obs.alive)
        if self.config.topology == "harness":
            allowed = within_budget(obs, ep)
            ep, item, agent = ep[allowed], item[allowed], agent[allowed]
        count, ready = np.bincount(ep, minlength=e), go.sum(axis=1)
        logp[:, 2] = -np.array([np.log(np.arange(r, r - c, -1)).sum() for r, c in zip(ready, count, strict=True)])
        brief = (obs.uniform("communicate") * 4).astype(np.int64)
        rule = (obs.uniform("aggregate") * len(RULES)).astype(np.int64)
        logp[:, 3], logp[:, 4] = -np.log(4), -np.log(len(RULES))
        purpose = self._purposes(obs)
        return Action(stop=stop, calls=Calls.of(ep, item, agent, brief[ep], purpose[ep, item]), rule=rule, logp=logp)

    def _purposes(self, obs: Observation) -> np.ndarray:
        """Chains: verify what was attempted, then go on; everything else is answered."""
        purpose = np.zeros(obs.ready.shape, np.int64)
        seen = obs.of("chain")
        if seen is not None:
            at = slice(seen.first_item, seen.first_item + seen.hop.shape[1])
            checked = seen.passes + seen.fails >= self.config.hop_checks
            last = seen.hop == self.config.chain_hops - 1
            purpose[:, at] = np.where(
                ~seen.has | (checked & last & (seen.attempts < self.config.hop_attempts)), 0, np.where(checked, 2, 1)
            )
        return purpose
