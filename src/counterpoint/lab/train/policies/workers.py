"""Sub-agents that learn (regimes B and C): whether a worker says what it found, or repeats the draft that stands.

    defer ~ Bernoulli(sigmoid(f(x)))

Always true: there is a decision only where it changes something: on a vote call, where votes have been counted and the worker
found something else than the draft says; everywhere else workers report, as in regime A. A worker sees its family, its
specialty, its brief, how many calls it took, its own claim and the public draft, and nothing hidden.

All of that is taken from the orchestrator's observation. The policy starts indifferent (p = 1/2); its noise is keyed by (seed,
round, agent, item, salt), so a fork can ask it again and a batch decides as its episodes would one by one; a greedy worker uses
none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from counterpoint.lab.train.policies.acting import salt_now
from counterpoint.lab.train.policies.choices import item_row
from counterpoint.lab.train.policies.features import WORKER
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.policies.record import Record
from counterpoint.lab.worlds.teamworld.action import Calls
from counterpoint.lab.worlds.teamworld.config import KINDS
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.observation import Observation
from counterpoint.lab.worlds.teamworld.running import RESULT, ranks
from counterpoint.trace.keyed import purpose, uniform

_SPEAKS = purpose("worker speaks")
_VOTE = KINDS.index("vote")


def worker_rows(obs: Observation, calls: Calls) -> np.ndarray:
    """(R, WORKER) what the worker of each vote call sees: family (2), size of brief (4), whether the question is of its
    specialty, calls taken, votes counted, and of them for the draft, against it, their margin, and whether nobody has yet said
    what it found."""
    seen, ep, agent = obs.of("vote"), calls.ep, calls.agent
    item = calls.item - seen.first_item
    tally, answer = seen.tally[ep, item].sum(axis=1, dtype=np.int64), seen.answer[ep, item].astype(np.int64)
    at = np.arange(len(calls))
    fore, against = tally[at, answer], tally[at, 1 - answer]
    x = np.zeros((len(calls), WORKER), np.float32)
    x[at, obs.family[ep, agent]] = 1
    x[at, 2 + calls.brief] = 1
    x[:, 6] = obs.type[ep, agent] == obs.item_type[ep, calls.item]
    x[:, 7] = np.log1p(obs.taken[ep, agent]) / 3
    x[:, 8] = np.log1p(fore + against) / 2
    x[:, 9], x[:, 10] = fore / 4, against / 4
    x[:, 11] = (fore - against) / (1.0 + fore + against)
    x[:, 12] = against == 0
    return x


class Workers:
    """All workers of a batch, played by the worker head of a network."""

    def __init__(
        self, net: Network, *, greedy: bool = False, salt: np.ndarray | None = None, record: Record | None = None,
        follow: Mapping[tuple[int, int, int, int], bool] | None = None,
    ) -> None:  # fmt: skip
        """`follow`: what workers chose before, by (episode, round, item, agent); nothing is drawn then."""
        self.follow = follow
        self.net, self.greedy, self.salt, self.record = net, greedy, salt, record

    def answers(self, batch: Batch, obs: Observation) -> Callable[[Calls, np.ndarray], np.ndarray] | None:
        """What `Batch.step` asks for: the claims of a round's calls as workers will say them; None where nobody has a choice."""
        seen = obs.of("vote")
        if seen is None:
            return None

        def say(calls: Calls, claims: np.ndarray) -> np.ndarray:
            if not len(calls) or obs.kind[calls.item[0]] != _VOTE:  # the engine asks kind by kind
                return claims
            item = calls.item - seen.first_item
            draft = seen.answer[calls.ep, item].astype(np.int64)
            stands = seen.tally[calls.ep, item].any(axis=(1, 2))
            rows = np.flatnonzero((calls.agent != 0) & stands & (claims != draft))
            if len(rows):
                claims[rows] = np.where(self._defer(batch, obs, calls, rows), draft[rows], claims[rows])
            return claims

        return say

    def _defer(self, batch: Batch, obs: Observation, calls: Calls, rows: np.ndarray) -> np.ndarray:
        """Who of these repeats the draft."""
        c = calls.where(rows)
        x = worker_rows(obs, c)
        with torch.no_grad():
            logit = self.net.workers(torch.from_numpy(x)).numpy().astype(np.float64)
        if self.follow is not None:
            keys = zip(c.ep.tolist(), c.item.tolist(), c.agent.tolist(), strict=True)
            defer = np.array([self.follow.get((ep, obs.round, item, agent), False) for ep, item, agent in keys], np.bool_)
        elif self.greedy:
            defer = logit > 0
        else:
            salt = salt_now(self.salt, obs)
            # votes come first in a round, so their place in it is their rank, as for the draws of the calls themselves
            seeds = batch.seeds(c.ep, (RESULT + ranks(calls.ep))[rows])
            u = uniform(seeds, _SPEAKS, obs.round, batch.state.key[c.ep, c.agent], c.item, salt[c.ep])
            defer = np.log(np.maximum(u, 1e-300)) < -np.logaddexp(0, -logit)
        if self.record is not None:
            seen = obs.of("vote")
            # the call itself is already written down among the callers
            attempt = (seen.callers[c.ep, c.item - seen.first_item] == c.agent[:, None]).sum(axis=1) - 1
            draft = seen.answer[c.ep, c.item - seen.first_item].astype(np.int64)
            self.record.add(
                "worker", ep=c.ep, round=obs.round, item=c.item, agent=c.agent, x=x, choice=defer,
                logp=-np.logaddexp(0, np.where(defer, -logit, logit)), attempt=attempt, said=np.where(defer, draft, 1 - draft),
            )  # fmt: skip
        return defer


def settle_workers(tables: Mapping[str, dict[str, np.ndarray]], truth: np.ndarray, first_item: int) -> None:
    """Write what every worker row is paid (R2) and which item row it belongs to; `truth` (E, questions) is the verifier's, and no
    policy reads what is made of it."""
    t, item = tables["worker"], tables["item"]
    t["right"] = t["said"] == truth[t["ep"], t["item"] - first_item]
    t["row"] = item_row(t, item)
