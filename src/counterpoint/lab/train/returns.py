"""Credit of rollout rows by causal cone: a decision answers for what followed from it, and for nothing else.

    item row      A = sum_k lam^k d_k along the item's own chain,  d = r + W(next row) - W(row);  Q should say V + A
    brief, whom   what is left: A - (Q(row, purpose) - V)
    rule, talk    the sum of what is left over the round's calls, and the round's costs that no call bears
    stop          C = what going on brought, all later stop times taken with their chances
    spawn         R, less luck that neither the team's choice explains nor the critic expected, against the seed's other episodes

Always true: baselines use what was there before the decision. W is a critic that also knows the verifier's score of the draft at
that moment; that is allowed in a baseline, because the decision could not depend on it, and it takes most of the luck of the
instance away. Policies, V and Q never see it. V is regressed on returns, so that the level of Q, against which leaving (worth 0)
is weighed, is held by what was paid and not by Q itself. Leaving an item is worth 0 from there. The ledger of
docs/lab/research/partition.md in its cone form, with critics V and Q of the prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from counterpoint.credits.advantages import gae, leaving_gae, scan
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.rollouts import Rollout, along

Table = dict[str, np.ndarray]
_LEAST = 0.02


@dataclass(frozen=True)
class Lesson:
    """What one rollout teaches: its tables, and the returns of their rows in the critics' units."""

    tables: Mapping[str, Table]
    item: np.ndarray
    """What Q should say of item rows: V + advantage."""
    advantage: np.ndarray
    """Of item rows, in units of their kind."""
    worth: np.ndarray
    """lambda-returns of item rows, for the critic that knows the draft's score."""
    left: np.ndarray
    """The same less Q: what the brief and the agent made of it."""
    rule: np.ndarray
    """For rule rows: sums of `left` over the round's calls, and what of the round was the team's own."""
    team: np.ndarray
    """Team return to go of stop rows, per open item."""
    spawn: np.ndarray
    """Team return to go of spawn rows, luck of the items taken off as far as the critic sees it."""


def measure(net: Network, out: Rollout, *, share: float = 0.2) -> None:
    """Update the spread of returns by kind, as a running mean."""
    t = out.tables.get("item")
    if t is None:
        return
    order, to_go = t["order"], np.empty(len(t["order"]))
    to_go[order], _ = gae(t["reward"][order], np.zeros(len(order)), segments=t["chain"][order], lam=1.0)
    kind = t["x"][:, :5].argmax(axis=1)
    for k in np.unique(kind):
        spread = max(float(to_go[kind == k].std()), _LEAST)
        old = float(net.scale[k])
        net.scale[k] = spread if old == 1.0 else (1 - share) * old + share * spread


def alternatives(net: Network, t: Table) -> tuple[Tensor, Tensor]:
    """(log pi, Q in units) over leave, answer, verify, next."""
    x = torch.from_numpy(t["x"])
    logits = net.items(x)[0].masked_fill(~torch.from_numpy(t["mask"]), -1e9).log_softmax(-1)
    q = F.pad(net.judge_items(x)[0], (1, 0))
    return logits, q


def scored_rows(t: Table, unit: np.ndarray) -> np.ndarray:
    """Item rows with one number more: what the verifier says of the draft now, in units of its kind. For critics only."""
    return np.concatenate([t["x"], (t["worth"] / unit)[:, None].astype(np.float32)], axis=1)


def lesson(net: Network, out: Rollout, *, lam: float = 0.9) -> Lesson | None:
    """The returns of a rollout's rows, judged with the present critics."""
    if "item" not in out.tables or "stop" not in out.tables:
        return None
    t = out.tables["item"]
    unit = net.scale.numpy()[t["x"][:, :5].argmax(axis=1)].astype(np.float64)
    with torch.no_grad():
        q, _, _, _, level = net.judge_items(torch.from_numpy(t["x"]))
        v = level.numpy().astype(np.float64)
        own = F.pad(q, (1, 0)).numpy().astype(np.float64)[np.arange(len(v)), t["choice"]]
        known = net.judge_scored(torch.from_numpy(scored_rows(t, unit))).numpy().astype(np.float64)
    adv, worth = _along_chains(t, t["reward"] / unit, known, _would_leave(net, t), lam)
    item = adv + v
    left = np.where(t["agent"] >= 0, item - own, 0.0)
    rule = np.zeros(0)
    if "rule" in out.tables:
        rule = _rounds(out, left * unit)
        _running(net.round_scale, rule)
        rule = rule / float(net.round_scale)
    team = going_on(out) / team_scale(out.tables["stop"])
    _running(net.team_scale, team)
    return Lesson(out.tables, item, adv, worth, left, rule, team / float(net.team_scale), _spawn_returns(out, t, known * unit))


def _would_leave(net: Network, t: Table) -> np.ndarray:
    """The chance that the present policy leaves, of rows where leaving was forbidden; 0 elsewhere."""
    out, kept = np.zeros(len(t["ep"])), np.flatnonzero(~t["mask"][:, 0])
    if len(kept):
        mask = t["mask"][kept]
        mask[:, 0] = True
        with torch.no_grad():
            out[kept] = alternatives(net, {"x": t["x"][kept], "mask": mask})[0][:, 0].exp().numpy()
    return out


def _along_chains(
    t: Table, reward: np.ndarray, known: np.ndarray, leaves: np.ndarray, lam: float
) -> tuple[np.ndarray, np.ndarray]:
    """(advantages, returns) of item rows: those of `credits/mechanisms/task_returns.py`, on rows instead of events."""
    order = t["order"]
    adv, returns = np.empty(len(order)), np.empty(len(order))
    found = leaving_gae(reward[order], known[order], leaves[order], segments=t["chain"][order], lam=lam)
    adv[order], returns[order] = found
    return adv, returns


def going_on(out: Rollout) -> np.ndarray:
    """What going on at each stop row brought, all later stop times taken with their chances (docs/lab/research/stopping.md):

    C_t = Y_{t+1} - Y_t + (1 - p_{t+1}) C_{t+1}
    """
    t = out.tables["stop"]
    order = np.lexsort((t["round"], t["ep"]))
    gain = out.value_TE[t["round"] + 1, t["ep"]] - out.value_TE[t["round"], t["ep"]]
    ends = np.append(np.diff(t["ep"][order]) != 0, True)
    onward = np.where(ends, 0.0, 1 - np.append(t["chance"][order][1:], 1.0))
    out_ = np.empty(len(order))
    out_[order] = scan(gain[order], onward)
    return out_


def _running(scale: Tensor, y: np.ndarray) -> None:
    spread = max(float(y.std()), _LEAST)
    scale.copy_(torch.tensor(spread if float(scale) == 1.0 else 0.9 * float(scale) + 0.1 * spread))


def _rounds(out: Rollout, left: np.ndarray) -> np.ndarray:
    """What each rule row's round made of its calls, and the costs of the round that no call bears."""
    t, r, episodes = out.tables["item"], out.tables["rule"], len(out.values)
    beat, size = t["round"] * episodes + t["ep"], len(out.value_TE) * episodes
    sums = np.bincount(beat, left, size)
    own = np.append(np.diff(out.value_TE, axis=0).reshape(-1), np.zeros(episodes)) - np.bincount(beat, t["reward"], size)
    at = r["round"] * episodes + r["ep"]
    return sums[at] + own[at]


_COARSE = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 48.0)


def _spawn_returns(out: Rollout, t: Table, known: np.ndarray, share: float = 0.8) -> np.ndarray:
    """R - share * luck: the sum over items of (return of the chain but for time - V of its first row), less what the choice of
    the team itself (who, how many) explains of it, so that no effect of the spawn decision is taken for luck, however blind V is
    to it. Time is left out because it is no luck: rounds are a step function of the team's size, which V smooths."""
    spawn = out.tables.get("spawn")
    if spawn is None:
        return np.zeros(0)
    order, to_go = t["order"], along(t, t["reward"])
    first = order[np.concatenate([[True], np.diff(t["chain"][order]) != 0])]
    luck = np.bincount(t["ep"][first], (to_go - known)[first], len(out.values))
    if "time" in t:  # rollouts of older checkpoints have none
        luck = luck + np.bincount(t["ep"], t["time"], len(out.values))
    start = spawn["round"] == 0
    at, roles = np.flatnonzero(start), int(spawn["role"].max()) + 1
    number = np.zeros((len(out.values), roles))
    number[spawn["ep"][at], spawn["role"][at]] = spawn["number"][at]
    size = np.stack([np.interp(number.sum(axis=1), _COARSE, row) for row in np.eye(len(_COARSE))], axis=1)
    choice = np.concatenate([size, number > 0, np.log1p(number)], axis=1)
    ridge = np.linalg.solve(choice.T @ choice + 0.5 * np.eye(choice.shape[1]), choice.T @ (luck - luck.mean()))
    luck = luck - luck.mean() - choice @ ridge
    return out.to_go("spawn") - share * np.where(start, luck[spawn["ep"]], 0.0)


def team_scale(stop: Table) -> np.ndarray:
    """Open items at stop rows, plus one: the unit in which going on is judged, so that it scales with the task."""
    return 1.0 + stop["open"]


def row_advantages(net: Network, out: Rollout, taught: Lesson) -> dict[str, np.ndarray]:
    """Advantages by decision type, of every row of a rollout."""
    advantages = {"item": taught.advantage, "brief": taught.left, "point": taught.left, "rule": taught.rule, "talk": taught.rule}
    stop = out.tables["stop"]
    advantages["stop"] = np.where(stop["choice"], -(1 - stop["chance"]), stop["chance"]) * taught.team
    if "spawn" in out.tables:
        advantages["spawn"] = taught.spawn - _of_group(out, taught.spawn)
    return advantages


def _of_group(out: Rollout, returns: np.ndarray) -> np.ndarray:
    """The mean return of the other episodes of the seed at that round; of all, where a seed has one episode."""
    spawn = out.tables["spawn"]
    _, group = np.unique(out.seeds[spawn["ep"]] * 100_000 + spawn["round"], return_inverse=True)
    total, count = np.bincount(group, returns), np.bincount(group)
    roles = int(spawn["role"].max()) + 1
    others = np.maximum(count[group] - roles, 0)
    own = returns * np.minimum(roles, count[group])
    return np.where(others > 0, (total[group] - own) / np.maximum(others, 1), returns.mean())
