"""Anchored trajectory balance: flows along rounds make the policy the anchor, weighed by reward.

    loss = mean over spans i < j of an episode of (F_i + sum_{i <= t < j} log pi_t / anchor_t - F_j)^2
    F_T = log(1 + (e^beta - 1) R)

Always true: with G_i = F_i - sum_{t < i} log ratio_t the span's residual is G_i - G_j, so that the mean over all spans is
twice the sample variance of G over the states of the episode: no span is walked. At its minimum pi(episode) is proportional
to anchor(episode) (1 + (e^beta - 1) R). R lies in [0, 1]: the return between the least and the largest seen so far. F is a
network of the team's features, learned with the policy; the anchor is the network at the start, or of the last `anchor_every`
updates.

EvoSteer, arXiv 2609.38661 (beta 2); sub-trajectory balance, arXiv 2209.12782. Departures: a state is the beginning of a
round; R is the team's return on the scale of what was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.lab.train.learner import finite, log_probs, rows_of
from counterpoint.lab.train.loss import Learner, Loss
from counterpoint.lab.train.losses.td import Beats, beats_of
from counterpoint.lab.train.policies.features import TEAM
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.surrogates import Reference
from counterpoint.options import NonNegativeInt, Positive
from counterpoint.trace import Trace

_STEPS = 8  # on the whole batch, per update
_MAX_NORM = 1.0  # of the gradient
_TABLE = {"brief": "item", "point": "item", "size": "spawn"}


@dataclass(frozen=True)
class Options:
    """How flows are learned."""

    beta: Positive = 2.0
    """The best episode becomes e^beta times as likely, against the worst, as it is under the anchor."""
    anchor_every: NonNegativeInt = 0
    """Updates after which the network becomes the anchor; 0: the start stays."""


class Flows(nn.Module):
    """F of a round's beginning, the anchor, and the scale of returns."""

    low: Tensor
    high: Tensor

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(TEAM, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.first = nn.Parameter(torch.zeros(TEAM))  # the state before anybody is there
        self.anchor = Reference()
        self.register_buffer("low", torch.tensor(torch.inf))
        self.register_buffer("high", torch.tensor(-torch.inf))

    def of(self, beats: Beats) -> Tensor:
        """(B,) F of every round's beginning."""
        x = torch.where(torch.from_numpy(beats.seen)[:, None], torch.from_numpy(beats.x), self.first)
        out: Tensor = self.head(x)[:, 0]
        return out

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """(E,) returns between the least and the largest seen so far."""
        self.low.copy_(torch.minimum(self.low, torch.tensor(float(values.min()))))
        self.high.copy_(torch.maximum(self.high, torch.tensor(float(values.max()))))
        spread = float(self.high - self.low)
        return np.clip((values - float(self.low)) / spread, 0.0, 1.0) if spread > 0 else np.zeros_like(values)


def end_flow(reward: np.ndarray, beta: float) -> np.ndarray:
    """F_T = log(1 + (e^beta - 1) R)."""
    return np.log1p(np.expm1(beta) * reward)


def span_loss(flow: Tensor, log_ratio: Tensor, end: Tensor, ep: np.ndarray) -> Tensor:
    """The mean over spans of an episode, then over episodes; rows are rounds, episode by episode, `end` is by episode."""
    code = np.unique(ep, return_inverse=True)[1]
    at, n = torch.from_numpy(code), int(code.max()) + 1
    total = torch.cumsum(log_ratio, 0)
    starts = torch.from_numpy(np.flatnonzero(np.append(True, np.diff(code) != 0)))
    before = (total - log_ratio)[starts]  # what the episodes before have summed up to
    states = flow - (total - log_ratio - before[at])
    whole = torch.zeros(n).index_add(0, at, log_ratio)
    count = torch.from_numpy(np.bincount(code).astype(np.float32)) + 1
    last = end - whole
    mean = (torch.zeros(n).index_add(0, at, states) + last) / count
    square = torch.zeros(n).index_add(0, at, (states - mean[at]) ** 2) + (last - mean) ** 2
    return (2 * square / (count - 1)).mean()


def _learn(learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace]) -> dict[str, float]:
    stats = learner.fit_critics(out, keep=1, steps=4)
    flows, beats = learner.module, beats_of(out)
    assert isinstance(flows, Flows)
    anew = bool(o.anchor_every) and learner.update % o.anchor_every == 0
    tables = {n: t for n, t in out.tables.items() if n != "worker"}
    ones = {n: np.ones(len(tables[_TABLE.get(n, n)]["ep"])) for n in ("item", "brief", "point", "stop", "spawn", "talk", "rule")
            if _TABLE.get(n, n) in tables}  # fmt: skip
    rows = rows_of(tables, ones, scale=False)
    with torch.no_grad():
        then = log_probs(flows.anchor.network(learner.net, anew=anew), tables)[0]
    places = {n: torch.from_numpy(beats.place(_at(tables[_TABLE.get(n, n)], r.at), len(out.value_TE))) for n, r in rows.items()}
    end = torch.from_numpy(end_flow(flows.scaled(out.values), o.beta).astype(np.float32))[torch.from_numpy(np.unique(beats.ep))]
    for _ in range(_STEPS):
        now = log_probs(learner.net, tables)[0]
        ratio = torch.zeros(len(beats.ep))
        for name, r in rows.items():
            own = (now[name] - then[name])[torch.from_numpy(r.at)]
            ratio = ratio.index_add(0, places[name], own if own.ndim == 1 else own.sum(-1))
        loss = span_loss(flows.of(beats), ratio, end, beats.ep)
        learner.policy.zero_grad()
        finite(loss, "balance").backward()
        torch.nn.utils.clip_grad_norm_(learner.net.policy_parameters(), _MAX_NORM)
        learner.policy.step()
    return stats | {"loss": float(loss.detach())}


def _at(t: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {"ep": t["ep"][rows], "round": t["round"][rows]}


anchor_tb = Loss(
    source="EvoSteer, arXiv 2609.38661; sub-trajectory balance, 2209.12782",
    takes=Options,
    own_credit=("uniform",),
    learn=_learn,
    module=Flows,
)
