"""A step along a gradient whose length is given in KL: what two credits taught is then compared at equal change of the policy.

    theta' = theta + a g,   a > 0 with   1/D sum_d KL(pi(. | d) || pi'(. | d)) = target       d: the D decisions of the delegation

over all that could be decided (what for, which brief, whom), of the teams that g is from; exact, no sample of the KL.

Always true: decisions without an alternative do not count; a gradient of 0 moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from counterpoint.errors import InputError
from counterpoint.lab.train.learner import Table
from counterpoint.lab.train.policies.network import Network

_CLOSE, _TRIES = 0.01, 60


def _outcomes(net: Network, tables: Mapping[str, Table]) -> tuple[Tensor, int]:
    """(log-probabilities of everything that could be decided, one after the other; how many decisions they are of)."""
    t = tables["item"]
    purpose, brief, query = net.items(torch.from_numpy(t["x"]))
    called, mask = t["agent"] >= 0, torch.from_numpy(t["mask"])
    real = t["mask"].sum(axis=1) > 1
    what = purpose.masked_fill(~mask, -1e9).log_softmax(-1)[real]
    said = brief.log_softmax(-1)[called & (t["agent"] > 0)]
    parts, decisions = [what[mask[real]], said.reshape(-1)], len(what) + len(said)
    if "candidate" in tables:
        c = tables["candidate"]
        row = torch.from_numpy(c["row"])
        score = (query.index_select(0, row) * net.keys(torch.from_numpy(c["agent_x"]))).sum(-1)
        score = score + net.pair(torch.from_numpy(c["pair_x"]))[:, 0]
        top = torch.full((len(called),), -torch.inf).scatter_reduce(0, row, score, "amax")
        level = torch.zeros(len(called)).index_add(0, row, torch.exp(score - top[row])).log()
        parts.append(score - top[row] - level[row])
        decisions += len(np.unique(c["row"]))
    return torch.cat(parts).double(), decisions


def kl_of(before: Tensor, after: Tensor, decisions: int) -> float:
    """Mean KL of a decision, from the log-probabilities of all outcomes."""
    return float((before.exp() * (before - after)).sum()) / max(decisions, 1)


def move(net: Network, gradient: np.ndarray, factor: float) -> None:
    """theta <- theta + factor x gradient, over all that decides."""
    place = 0
    with torch.no_grad():
        for p in net.policy_parameters():
            p.add_(factor * torch.from_numpy(gradient[place : place + p.numel()].astype(np.float32)).view_as(p))
            place += p.numel()


def step(
    net: Network, tables: Mapping[str, Table], gradient: np.ndarray, *, kl: float | None, rate: float = 1.0
) -> tuple[float, float]:
    """Go along a gradient, as far as `kl` says, or without one `rate` times it: (the factor, the KL of the step)."""
    if kl is not None and not 0 < kl < 1:
        raise InputError(f"a step has a KL between 0 and 1, not {kl}")
    with torch.no_grad():
        before, decisions = _outcomes(net, tables)
        held = {name: value.clone() for name, value in net.state_dict().items()}

        def tried(factor: float) -> float:
            net.load_state_dict(held)
            move(net, gradient, factor)
            return kl_of(before, _outcomes(net, tables)[0], decisions)

        if kl is None or not gradient.any():
            return rate, tried(rate)
        low, high, factor = 0.0, np.inf, rate
        for _ in range(_TRIES):
            found = tried(factor)
            if abs(found / kl - 1) < _CLOSE:
                return factor, found
            low, high = (factor, high) if found < kl else (low, factor)
            guess = factor * np.sqrt(kl / found) if found > 0 else 10 * factor  # where it is quadratic, as it is near 0
            factor = guess if low < guess < high else (low + high) / 2 if np.isfinite(high) else 2 * factor
        net.load_state_dict(held)
        raise InputError(f"no step along this gradient has a KL of {kl}", fix="a smaller one")
