"""Soft policy iteration: purposes and stops move to better alternatives, teams to better ones.

    heads    minimise  sum_a pi(a) (tau log pi(a) - Q(a)),  whose minimum is  pi = softmax(Q / tau)
    spawn    to the best of  f(size) + sum_r b_r share_r,  a critic of whole teams     (`SpawnCritic`)
    rest     briefs, pointers, rules and talk take clipped steps on what the critics leave unexplained

Always true: all alternatives of a row move at once, as in the all-stops gradient (docs/lab/stopping.md); nothing is sampled twice
and no baseline is needed. tau falls as training goes on, and so does the standard deviation with which the log of a team's size
is drawn: from 0.6 to 0.15.

Relatives: natural policy gradient by compatible critics (Kakade 2001), discrete SAC (arXiv 1910.07207); departures: returns of
a causal cone, not of the team.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from counterpoint.lab.train.critics import by_kind, draw_rows
from counterpoint.lab.train.learner import step_down, update
from counterpoint.lab.train.loss import Learner, Loss
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.returns import lesson, row_advantages
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.spawn_head import fit_heads
from counterpoint.lab.train.surrogates import Steps
from counterpoint.options import Positive, PositiveInt, Share
from counterpoint.trace import Trace

Table = Mapping[str, np.ndarray]
_LEAST = -5.0  # the logit of a second spawn, which is asked about every 16 rounds, may fall so far
_ENTROPY = 0.005  # weight of the entropy bonus of the clipped steps at the start; it falls to 0
_SPREAD_FROM, _SPREAD_TO = 0.6, 0.15  # standard deviation of the log of a team's size at the start, and at the end
_MAX_NORM = 1.0  # of the gradient of purposes and stops
_ROWS = 1024  # of purposes in one step; a quarter as many of stops


@dataclass(frozen=True)
class Options:
    """How it is learned."""

    tau_from: Positive = 0.3
    """Temperature at the start, in units of an item's spread."""
    tau_to: Positive = 0.03
    """And at the end; it falls geometrically."""
    keep: PositiveInt = 192
    """Episodes on which the critics are fitted: the last ones."""
    lam: Share = 0.9
    """Of the returns along an item's chain."""
    steps: PositiveInt = 48
    """Of the critics per update; the heads make half as many."""


def _learn(learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace]) -> dict[str, float]:
    tau = o.tau_from * (o.tau_to / o.tau_from) ** learner.progress
    stats = learner.fit_critics(out, keep=o.keep, lam=o.lam, steps=o.steps)
    taught = lesson(learner.net, out, lam=o.lam)
    if taught is None:
        return stats
    stats |= improve(learner.net, learner.policy, out.tables, learner.rng(2), tau=tau, steps=o.steps // 2)
    found = row_advantages(learner.net, out, taught)
    stats |= learner.teach_workers(out, found)
    if "spawn" in out.tables:
        stats |= _spawn(learner, out, found["spawn"])
    rest = {k: v for k, v in out.tables.items() if k not in ("stop", "spawn")}
    steps = Steps(entropy=_ENTROPY * (1 - learner.progress))
    stats |= update(learner.net, learner.policy, rest, found, len(out.values), steps, learner.rng(4), skip={"item"})
    return stats | {"tau": tau}


def _spawn(learner: Learner, out: Rollout, advantage: np.ndarray) -> dict[str, float]:
    """Who comes, and how many; team sizes are drawn more narrowly as training goes on."""
    _teams(learner, out, advantage)
    net = learner.net
    with torch.no_grad():
        net.log_scale.fill_(float(np.log(_SPREAD_FROM * (_SPREAD_TO / _SPREAD_FROM) ** learner.progress)))
    gate = net.roles(torch.from_numpy(out.tables["spawn"]["x"]))[0].detach()
    return {"entropy_spawn": float((F.softplus(gate) - gate * torch.sigmoid(gate)).mean())}


def _teams(learner: Learner, out: Rollout, advantage: np.ndarray) -> None:
    """Teams at the start of episodes by their critic, those who come later by the linear gradient; one fit of the heads."""
    net, table, room = learner.net, out.tables["spawn"], out.config.max_agents
    learner.teams.add(table, advantage, out.seeds[table["ep"]])
    x, gate, size = learner.teams.wanted(net, room, learner.progress, is_sized=learner.is_sized)
    late = np.flatnonzero(table["round"] > 0)
    if len(late):
        some = {name: column[late] for name, column in table.items()}
        learner.spawning.add(net, some, advantage[late], spread=float(advantage.std()))
    if len(rows := learner.teams.late()):
        more = learner.spawning.targets(net, rows, room, left=max(0.25, 1 - learner.progress), least=_LEAST)
        x, gate, size = (np.concatenate(pair) for pair in ((x, rows), (gate, more[0]), (size, more[1])))
    fit_heads(net, x, gate, size, np.where(gate > 0, 1.0, 0.01))


def improve(
    net: Network,
    optimizer: torch.optim.Optimizer,
    tables: Mapping[str, Table],
    rng: np.random.Generator,
    *,
    tau: float,
    steps: int,
) -> dict[str, float]:
    """Move purposes and stops towards the better alternatives; the other heads take clipped steps."""
    t = tables["item"]
    stats: dict[str, float] = {}
    chances = by_kind(t["x"])
    for _ in range(steps):
        at = np.unique(draw_rows(rng, chances, _ROWS))
        loss = _item_loss(net, t, at, tau, stats)
        if "stop" in tables:
            loss = loss + _stop_loss(net, tables["stop"], rng, _ROWS // 4, tau, stats)
        step_down(optimizer, loss, "policy", net.policy_parameters(), _MAX_NORM)
    return stats


def _expected(log_pi: Tensor, q: Tensor, tau: float) -> Tensor:
    """sum_a pi(a) (tau log pi(a) - q(a)), in units of tau so that its gradient does not fade as tau falls."""
    return (log_pi.exp() * (log_pi - q / tau)).sum(-1).mean()


def _stop_loss(net: Network, t: Table, rng: np.random.Generator, size: int, tau: float, stats: dict[str, float]) -> Tensor:
    """Stop against going on."""
    x = torch.from_numpy(t["x"][rng.integers(0, len(t["ep"]), min(size, len(t["ep"])))])
    stop, _, _ = net.teams(x)
    with torch.no_grad():
        going, _, _ = net.judge_teams(x)
    stats["stop_share"] = float(torch.sigmoid(stop).mean().detach())
    return _choice(stop, -going, tau)


def _choice(logit: Tensor, gain: Tensor, tau: float) -> Tensor:
    """`_expected` of a yes or no, where yes is worth `gain` more."""
    return _expected(
        torch.stack([F.logsigmoid(logit), F.logsigmoid(-logit)], -1), torch.stack([gain, torch.zeros_like(gain)], -1), tau
    )


def _item_loss(net: Network, t: Table, at: np.ndarray, tau: float, stats: dict[str, float]) -> Tensor:
    x = torch.from_numpy(t["x"][at])
    purpose, brief, _ = net.items(x)
    mask = torch.from_numpy(t["mask"][at])
    mask[:, 0] = True  # forbidden to some in training, never in play
    log_pi = purpose.masked_fill(~mask, -1e9).log_softmax(-1)
    with torch.no_grad():
        q = F.pad(net.judge_items(x)[0], (1, 0))
    stats["entropy_item"] = float(-(log_pi.exp() * log_pi).sum(-1).mean().detach())
    said = brief.log_softmax(-1)
    stats["entropy_brief"] = float(-(said.exp() * said).sum(-1).mean().detach())
    return _expected(log_pi, q, tau)


soft = Loss(source="ours; relatives: Kakade 2001, discrete SAC arXiv 1910.07207", takes=Options, learn=_learn)
