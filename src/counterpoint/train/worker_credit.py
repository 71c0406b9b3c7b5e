"""What sub-agents learn from (regimes B and C): what their calls got, or whether what they said was right.

    A = y - V(x, item row, score of the draft)
    y = what is left of the call's cone credit (B: the team's), or R2: 1 where what was said is right, else 0 (C: its own)

Always true: V is a central critic: it also reads the item's row and the verifier's score of the draft, which the decision could
not depend on. R2 alone pays herding (Banerjee, A simple model of herd behavior, 1992): to repeat a right majority is right, and
tells nobody anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from counterpoint.errors import InputError
from counterpoint.trace.keys import make_key
from counterpoint.train.learner import finite
from counterpoint.train.policies.network import Network
from counterpoint.train.rollouts import Rollout


def worker_events(out: Rollout) -> list[str]:
    """The key of the return event behind each worker row, as traces have it: "aK|return|item|attempt". A learned team's agents
    are all the orchestrator's own, so the agent in slot k is a(k - 1)."""
    t = out.tables["worker"]
    columns = (t[k].tolist() for k in ("agent", "item", "attempt"))
    return [make_key(f"a{a - 1}", "return", (i, n)) for a, i, n in zip(*columns, strict=True)]


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
