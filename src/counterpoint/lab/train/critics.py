"""Critics of every alternative, regressed on what rollouts were worth.

    V(row)               regressed on the return to go; it has the level, which advantages alone would leave free to drift
    Q(row, purpose)      regressed on V + A of `returns.py`
    B(row, brief), P(row, agent), S(team, rule)      regressed on what is left, by brief, by agent, by the round's rule and talk
    C(team)              regressed on what going on brought; stopping is worth 0 from there

Always true: leaving an item is worth 0 from there, exactly, so its Q is not learned. Q is in units of its kind's spread, so that
a question worth one point and a chain worth ten are learned at one pace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from counterpoint.errors import InputError
from counterpoint.lab.train.learner import step_down
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.returns import Lesson
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.trace.keys import make_key


def _joined(lessons: Sequence[Lesson], table: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    return {n: np.concatenate([x.tables[table][n] for x in lessons if table in x.tables]) for n in names}


def fit(
    net: Network,
    optimizer: torch.optim.Optimizer,
    lessons: Sequence[Lesson],
    rng: np.random.Generator,
    *,
    steps: int,
    size: int = 1024,
    sees: str = "draft",
) -> dict[str, float]:
    """Regress the critics on recent lessons: those that a method may have which `sees` this much (`credits.mechanism.FEEDBACK`).
    How many calls an item takes is no feedback; what a team's going on brings is told by rounds; the rest reads drafts."""
    item = _joined(lessons, "item", ("x", "choice", "calls_to_go", "brief", "agent", "worth", "agent_x", "pair_x"))
    item |= {n: np.concatenate([getattr(x, m) for x in lessons]) for n, m in (("y", "item"), ("left", "left"), ("g", "worth"))}
    unit = net.scale.numpy()[item["x"][:, :5].argmax(axis=1)]
    item["worth"] = (item["worth"] / unit)[:, None].astype(np.float32)
    team = _joined(lessons, "stop", ("x",)) | {"y": np.concatenate([x.team for x in lessons])}
    every = {"item": item, "team": team}
    if any("rule" in x.tables for x in lessons):  # somebody was called
        every["rule"] = _joined(lessons, "rule", ("x", "choice", "talk")) | {"y": np.concatenate([x.rule for x in lessons])}
    tables: dict[str, Mapping[str, Tensor]] = {
        name: {k: torch.from_numpy(v.astype(np.float32) if v.dtype == np.float64 else v) for k, v in t.items()}
        for name, t in every.items()
    }
    sums: dict[str, float] = {}
    chances = by_kind(item["x"])
    tables["item"] = _prepared(tables["item"])
    places: dict[str, list[np.ndarray]] = {name: [] for name in tables}
    for _ in range(steps):
        for name in ("team", "rule"):
            if name in tables:
                n = len(tables[name]["y"])
                places[name].append(rng.integers(0, n, min(size // 4, n)))
        places["item"].append(draw_rows(rng, chances, size))
    some = {name: _taken(t, places[name]) for name, t in tables.items()}
    for step in range(steps):
        losses = _losses(net, {name: rows[step] for name, rows in some.items()}, sees)
        each = torch.stack(list(losses.values()))
        loss = each.sum()
        step_down(optimizer, loss, "critics'")
        for k, v in zip(losses, each.tolist(), strict=True):
            sums[f"critic_{k}"] = sums.get(f"critic_{k}", 0.0) + v / steps
    return sums


def by_kind(x: np.ndarray) -> np.ndarray:
    """Running sums of the chances to be drawn: every kind of item equally often, so that six chains are heard beside a hundred
    questions."""
    kind = x[:, :5].argmax(axis=1)
    return np.cumsum(1.0 / np.bincount(kind, minlength=5)[kind])


def draw_rows(rng: np.random.Generator, chances: np.ndarray, size: int) -> np.ndarray:
    """Places of rows drawn by their chances."""
    n = min(size, len(chances))
    return np.minimum(np.searchsorted(chances, rng.random(n) * chances[-1], side="right"), len(chances) - 1)


def _prepared(t: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Item rows with the columns that losses read beside those of the record; made once for all steps."""
    return {
        **t, "go": (t["choice"] > 0).float(), "told": (t["agent"] > 0).float(), "called": (t["agent"] >= 0).float(),
        "purpose": (t["choice"][:, None] - 1).clamp_min(0), "log_calls": torch.log1p(t["calls_to_go"]),
        "scored": torch.cat([t["x"], t["worth"]], dim=1),
    }  # fmt: skip


def _taken(t: Mapping[str, Tensor], places: Sequence[np.ndarray]) -> list[dict[str, Tensor]]:
    """The rows of every step, which are all taken at once; every step has as many."""
    if not places:
        return []
    at = torch.from_numpy(np.concatenate(places))
    parts = {k: v.index_select(0, at).split(len(places[0])) for k, v in t.items()}
    return [{k: part[step] for k, part in parts.items()} for step in range(len(places))]


def _losses(net: Network, some: Mapping[str, Mapping[str, Tensor]], sees: str) -> dict[str, Tensor]:
    t, out = some["item"], {}
    q, brief, work, query, level = net.judge_items(t["x"])
    if sees == "draft":
        own = q.gather(1, t["purpose"])[:, 0]
        out["item"] = (t["go"] * (own - t["y"]) ** 2).sum() / t["go"].sum().clamp_min(1)
        tokens = brief.gather(1, t["brief"][:, None])[:, 0]
        out["brief"] = (t["told"] * (tokens - t["left"]) ** 2).sum() / t["told"].sum().clamp_min(1)
        whom = net.judge_pairs(query, t["agent_x"], t["pair_x"])
        out["point"] = (t["called"] * (whom - t["left"]) ** 2).sum() / t["called"].sum().clamp_min(1)
        out["level"] = F.mse_loss(level, t["g"])
    out["work"] = F.mse_loss(work, t["log_calls"])
    if sees == "draft":
        out["value"] = F.mse_loss(net.judge_scored(t["scored"]), t["g"])
    if sees != "episode":
        out |= _team_losses(net, some["team"], some.get("rule") if sees == "draft" else None)
    return out


def _team_losses(net: Network, team: Mapping[str, Tensor], r: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    out = {}
    value, rules, talk = net.judge_teams(team["x"] if r is None else torch.cat([team["x"], r["x"]]))
    at = len(team["y"])
    if r is not None:
        gain = rules[at:].gather(1, r["choice"][:, None])[:, 0] + (talk[at:] * r["talk"]).sum(-1)
        out["rule"] = F.mse_loss(gain, r["y"])
    out["team"] = F.mse_loss(value[:at], team["y"])
    return out


# -- What sub-agents learn from (regimes B and C): what their calls got, or whether what they said was right ----------
#     A = y - V(x, item row, score of the draft)
#     y = what is left of the call's cone credit (B: the team's), or R2: 1 where what was said is right, else 0 (C: its own)
#
# Always true: V is a central critic: it also reads the item's row and the verifier's score of the draft, which the decision
# could not depend on. R2 alone pays herding (Banerjee, A simple model of herd behavior, 1992): to repeat a right majority is
# right, and tells nobody anything.


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
        raise InputError("workers are given credit twice", fix="give left or credit, not both")
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
        step_down(optimizer, loss, "workers' critic's")
        total += float(loss.detach())
    return {"critic_worker": total / max(1, steps)}


def teach_workers(
    net: Network, optimizer: torch.optim.Optimizer, out: Rollout, rng: np.random.Generator, *, left: np.ndarray | None
) -> tuple[np.ndarray, dict[str, Any]]:  # fmt: skip
    """One update's lesson for the workers: the critic is fitted, then come advantages and what to report. `left` None is R2."""
    stats: dict[str, Any] = fit_workers(net, optimizer, out, _signal(out, left, None), rng)
    t = out.tables["worker"]
    return worker_advantages(out, net=net, left=left), stats | {"defer_share": float(t["choice"].mean())}
