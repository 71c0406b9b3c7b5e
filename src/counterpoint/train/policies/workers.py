"""Sub-agents that learn (regimes B and C): whether a worker says what it found, or repeats the draft that stands.

    defer ~ Bernoulli(sigmoid(f(x)));   A = y - V(x, item row, score of the draft)
    y = what is left of the call's cone credit (B: the team's), or R2: 1 where what was said is right, else 0 (C: its own)

Always true: there is a decision only where it changes something: on a vote call, where votes have been counted and the worker
found something else than the draft says; everywhere else workers report, as in regime A. A worker sees its family, its
specialty, its brief, how many calls it took, its own claim and the public draft (the answer, votes for and against), taken
from the orchestrator's observation, so nothing hidden can enter. The policy starts indifferent (p = 1/2); its noise is keyed
by (seed, round, agent, item, salt), so a fork can ask it again and a batch decides as its episodes would one by one; a greedy
worker uses none. V is a central critic: it also reads the item's row and the verifier's score of the draft, which the decision
could not depend on.

R2 alone pays herding (Banerjee, A simple model of herd behavior, 1992): to repeat a right majority is right, and tells nobody
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional as F

from counterpoint.envs.keyed import purpose, uniform
from counterpoint.envs.teamworld.action import Calls
from counterpoint.envs.teamworld.config import KINDS
from counterpoint.envs.teamworld.engine import Batch
from counterpoint.envs.teamworld.observation import Observation
from counterpoint.envs.teamworld.running import RESULT, ranks
from counterpoint.errors import InputError
from counterpoint.train.policies.features import ITEM
from counterpoint.train.policies.record import Record

if TYPE_CHECKING:
    from counterpoint.train.policies.network import Network
    from counterpoint.train.rollouts import Rollout

WORKER = 13
SEEN_BY_CRITIC = WORKER + ITEM + 1
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
        self, net: Network, *, greedy: bool = False, salt: np.ndarray | None = None, record: Record | None = None
    ) -> None:
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
        if self.greedy:
            defer = logit > 0
        else:
            salt = np.zeros(obs.episodes, np.int64) if self.salt is None else self.salt
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
    called = np.flatnonzero(item["agent"] >= 0)
    sizes = [int(item[n].max(initial=0)) + 1 for n in ("round", "item", "agent")]
    place = lambda a: ((a["ep"] * sizes[0] + a["round"]) * sizes[1] + a["item"]) * sizes[2] + a["agent"]  # noqa: E731
    keys = place(item)[called]
    order = np.argsort(keys)
    t["row"] = called[order[np.searchsorted(keys[order], place(t))]]


def worker_events(out: Rollout) -> list[str]:
    """The key of the return event behind each worker row, as traces have it: "aK|return|item|attempt". A learned team's agents
    are all the orchestrator's own, so the agent in slot k is a(k - 1)."""
    t = out.tables["worker"]
    return [f"a{a - 1}|return|{i}|{n}" for a, i, n in zip(*(t[k].tolist() for k in ("agent", "item", "attempt")), strict=True)]


def worker_advantages(
    out: Rollout, *, net: Network | None = None, left: np.ndarray | None = None,
    credit: Sequence[Mapping[str, float]] | None = None,
) -> np.ndarray:  # fmt: skip
    """Advantages of the rows of the table "worker", in their order; the loss asks for them under the name "worker".

    Give one source of credit, or none:
        left     numbers by item row, such as `Lesson.left`: a worker gets what its call got (regime B on rows).
        credit   by episode, credit of events by their key (`Event.key`): a worker gets what its return (`worker_events`) got,
                 0 where the mechanism said nothing of it; where it said something of the agent, give that under the return's key.
        neither  its own signal R2, 1 where what it said was right (regime C).
    With `net` the workers' critic is taken off as a baseline: fit it first (`fit_workers`). Credit from mechanisms that have
    baselines of their own needs none.
    """
    y = _signal(out, left, credit)
    if net is None:
        return y
    with torch.no_grad():
        return y - net.worker_value(torch.from_numpy(_central(out))).squeeze(-1).numpy().astype(np.float64)


def _signal(out: Rollout, left: np.ndarray | None, credit: Sequence[Mapping[str, float]] | None) -> np.ndarray:
    t = out.tables["worker"]
    if left is not None and credit is not None:
        raise InputError("two sources of credit for workers", fix="left or credit")
    if left is not None:
        return np.asarray(left, np.float64)[t["row"]]
    if credit is not None:
        return np.array(
            [credit[e].get(key, 0.0) for e, key in zip(t["ep"].tolist(), worker_events(out), strict=True)], np.float64
        )
    return t["right"].astype(np.float64)


def _central(out: Rollout) -> np.ndarray:
    """What the critic reads of each worker row."""
    t, item = out.tables["worker"], out.tables["item"]
    return np.concatenate([t["x"], item["x"][t["row"]], item["worth"][t["row"], None].astype(np.float32)], axis=1)


def fit_workers(
    net: Network, optimizer: torch.optim.Optimizer, out: Rollout, y: np.ndarray, rng: np.random.Generator, *,
    steps: int = 16, size: int = 512,
) -> dict[str, float]:  # fmt: skip
    """Regress the workers' critic on what they were paid."""
    from counterpoint.train.learner import finite  # which imports the network, which imports this

    x, target, total = torch.from_numpy(_central(out)), torch.from_numpy(y.astype(np.float32)), 0.0
    for _ in range(steps):
        at = torch.from_numpy(rng.integers(0, len(y), min(size, len(y))))
        loss = F.mse_loss(net.worker_value(x[at]).squeeze(-1), target[at])
        optimizer.zero_grad()
        finite(loss, "workers' critic's").backward()
        optimizer.step()
        total += float(loss.detach())
    return {"critic_worker": total / max(1, steps)}


def taught(
    net: Network, optimizer: torch.optim.Optimizer, out: Rollout, rng: np.random.Generator, *, left: np.ndarray | None
) -> tuple[np.ndarray, dict[str, Any]]:  # fmt: skip
    """One update's lesson for the workers: the critic is fitted, then come advantages and what to report. `left` None is R2."""
    stats: dict[str, Any] = fit_workers(net, optimizer, out, _signal(out, left, None), rng)
    t = out.tables["worker"]
    return worker_advantages(out, net=net, left=left), stats | {"defer_share": float(t["choice"].mean())}
