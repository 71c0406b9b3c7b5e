"""Alerts: ways in which training goes wrong while its reward looks fine, each with the episodes that show it.

    serial_collapse      the team shrinks to one while reward rises, or to less than one where it had been larger
    dominant_agent       one agent of three or more gets most of the calls
    over_communication   messages cost twice as much per call as they did, and reward has not risen for it
    zero_variance        all episodes of a task are worth the same: compared with each other they teach nothing
    held_out_flat        reward in training rises above the held-out seeds, which do not follow
    mask_mismatch        a masked action was taken, or the trainer's log-probabilities are not those of the sampling

Always true: an alert is a function of the rows of metrics, evaluations and alerts so far and of the present batch, so a run
that resumes raises the same ones. None changes anything. A code is not raised again within `AGAIN` updates. A number that a
world does not have (nobody spawned, groups of one) raises nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from counterpoint.lab.train.alert import Alert, Row, mean, number, recent_codes
from counterpoint.lab.train.learner import log_probs
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.rollouts import Rollout

CODES = ("serial_collapse", "dominant_agent", "over_communication", "zero_variance", "held_out_flat", "mask_mismatch")
AGAIN = 50
WINDOW = 10
SHOWN = 3
_EXACT = 1e-9
_CLOSE = 1e-3  # single precision, by other batch sizes, against single precision
_COLUMN = {
    "item": ("item", "logp"), "brief": ("item", "brief_logp"), "point": ("item", "point_logp"), "stop": ("stop", "logp"),
    "spawn": ("spawn", "logp"), "size": ("spawn", "size_logp"), "talk": ("talk", "logp"), "rule": ("rule", "logp"),
    "option": ("option", "logp"),
}  # fmt: skip


@dataclass(frozen=True)
class AlertSignals:
    """What a batch shows: numbers for its row of metrics, and the episodes that show most of each."""

    row: dict[str, float | None]
    worst: dict[str, tuple[int, ...]]


def _ratio(a: float, b: float) -> float | None:
    return a / b if b > 0 else None


def _most(score: np.ndarray, which: np.ndarray | None = None) -> tuple[int, ...]:
    """The episodes with the highest scores, the first of equals first."""
    at = np.arange(len(score)) if which is None else np.flatnonzero(which)
    return tuple(int(i) for i in at[np.argsort(-score[at], kind="stable")][:SHOWN])


def signals(out: Rollout) -> AlertSignals:
    """The numbers of one batch."""
    c = out.columns
    costs = np.sum([v for k, v in c.items() if k.startswith("cost_")], axis=0)
    said, calls = c["cost_messages"], c["calls"]
    top, has_team = _top_share(out)
    equal, in_equal = _equal_groups(out)
    masked = _masked(out)
    row = {
        "top_share": float(top[has_team].mean()) if has_team.any() else None,
        "message_price": _ratio(float(said.sum()), float(calls.sum())),
        "message_share": _ratio(float(said.sum()), float(costs.sum())),
        "equal_groups": equal,
        "masked": float(masked.sum()),
    }
    worst = {
        "serial_collapse": _most(-c["agents"].astype(np.float64)),
        "dominant_agent": _most(top, has_team),
        "over_communication": _most(said / np.maximum(calls, 1)),
        "zero_variance": _most(np.zeros(len(out.values)), in_equal),
        "held_out_flat": _most(out.values),
        "mask_mismatch": _most(masked, masked > 0),
    }
    return AlertSignals(row, worst)


def _top_share(out: Rollout) -> tuple[np.ndarray, np.ndarray]:
    """(E,) the share of an episode's calls that its busiest agent got, and whether there was a team to choose from."""
    t, episodes = out.tables.get("item"), len(out.values)
    if t is None:
        return np.zeros(episodes), np.zeros(episodes, np.bool_)
    called = t["agent"] >= 0
    agents = int(t["agent"].max(initial=0)) + 1
    counts = np.bincount(t["ep"][called] * agents + t["agent"][called], minlength=episodes * agents).reshape(episodes, agents)
    total, team = counts.sum(axis=1), out.columns["agents"]
    return counts.max(axis=1) / np.maximum(total, 1), (team >= 3) & (total >= 4 * team)


def _equal_groups(out: Rollout) -> tuple[float | None, np.ndarray]:
    """The share of seeds with several episodes that are all worth the same, and which episodes those are."""
    _, group, count = np.unique(out.seeds, return_inverse=True, return_counts=True)
    low, high = np.full(len(count), np.inf), np.full(len(count), -np.inf)
    np.minimum.at(low, group, out.values)
    np.maximum.at(high, group, out.values)
    several = count > 1
    equal = several & (high - low <= _EXACT)
    return (float(equal[several].mean()) if several.any() else None), equal[group]


def _masked(out: Rollout) -> np.ndarray:
    """(E,) item decisions that took an action which was not to be had."""
    t = out.tables.get("item")
    if t is None:
        return np.zeros(len(out.values))
    bad = ~t["mask"][np.arange(len(t["choice"])), t["choice"]]
    return np.bincount(t["ep"][bad], minlength=len(out.values)).astype(np.float64)


def mismatch(net: Network, out: Rollout) -> tuple[float, tuple[int, ...]]:
    """The largest difference between recorded log-probabilities and those of the same weights in the trainer, and who has it."""
    with torch.no_grad():
        again = log_probs(net, out.tables)[0]
    worst = np.zeros(len(out.values))
    for name, (table, column) in _COLUMN.items():
        if name not in again or column not in out.tables[table]:
            continue
        t = out.tables[table]
        gap = np.abs(again[name].numpy().astype(np.float64) - t[column])
        gap = gap if gap.ndim == 1 else gap.max(axis=1)
        keep = _counts(name, t)
        np.maximum.at(worst, t["ep"][keep], np.nan_to_num(gap[keep], nan=np.inf))
    return float(worst.max(initial=0.0)), _most(worst, worst > _CLOSE)


def _counts(name: str, t: Mapping[str, np.ndarray]) -> np.ndarray:
    """Rows in which this decision was made at all."""
    if name in ("brief", "point"):
        return t["agent"] >= 0
    return t["choice"].astype(np.bool_) if name == "size" else np.ones(len(t["ep"]), np.bool_)


# -- over the rows


def _se(rows: Sequence[Row]) -> float:
    """Of the mean reward of some rows, from the standard errors of each."""
    return math.sqrt(math.fsum(number(r, "reward_se") ** 2 for r in rows)) / max(1, len(rows))


def _windows(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    """The rows in stretches of one length, the last of which ends with the last row; the oldest rest is left out."""
    return [rows[end - size : end] for end in range(len(rows), size - 1, -size)][::-1]


def raised_alerts(
    metrics: Sequence[Row],
    evals: Sequence[Row],
    alerts: Sequence[Row],
    worst: Mapping[str, tuple[int, ...]],
    *,
    window: int = WINDOW,
) -> list[Alert]:
    """Alerts of the last row. `worst` are the episodes of its batch by code (`signals`); `window` updates are averaged."""
    if not metrics:
        return []
    now = metrics[-1]["update"]
    recent = recent_codes(alerts, now, AGAIN)
    last = _windows(metrics, window)
    made = [_collapse(last), _dominant(metrics), _talkative(last), _equal(metrics)]
    made += [_flat(metrics, evals, window), _mismatched(metrics)]
    out = []
    for code, text in zip(CODES, made, strict=True):
        if text is not None and code not in recent:
            out.append(Alert(code, *text, episodes=worst.get(code, ()), is_held_out=code == "held_out_flat"))
    return out


Text = tuple[str, str] | None


def _collapse(windows: Sequence[Sequence[Row]]) -> Text:
    if len(windows) < 2:
        return None
    sizes = [mean(w, "agents") for w in windows]
    was = max(range(len(sizes) - 1), key=lambda i: sizes[i])
    before, after = sizes[was], sizes[-1]
    rose = mean(windows[-1], "reward") > mean(windows[was], "reward")
    if not (before >= 2 and after < 1.5 and after <= before / 2 and (rose or after < 1)):
        return None
    how = "while reward rose" if rose else "and reward fell"
    fix = "fine where the work is serial; otherwise more forced forks (a preset's `forks`), or a lower price of spawning"
    return f"spawning collapsed {before:.1f} -> {after:.1f} agents {how}", fix


def _dominant(metrics: Sequence[Row], last: int = 5, limit: float = 0.6) -> Text:
    share = mean(metrics[-last:], "signals.top_share")
    if len(metrics) < last or not share >= limit:
        return None
    return f"one agent gets {share:.0%} of the calls in teams of three or more", "look at whom the pointer chooses, and why"


def _talkative(windows: Sequence[Sequence[Row]]) -> Text:
    if len(windows) < 2:
        return None
    prices = [mean(w, "signals.message_price") for w in windows]
    known = [i for i, p in enumerate(prices[:-1]) if math.isfinite(p)]
    if not known or not mean(windows[-1], "signals.message_share") >= 0.1:
        return None
    low = min(known, key=lambda i: prices[i])
    gain = mean(windows[-1], "reward") - mean(windows[low], "reward")
    if not prices[-1] > 2 * prices[low] or gain > 2 * math.hypot(_se(windows[-1]), _se(windows[low])):
        return None
    what = f"messages cost {prices[low]:.4g} -> {prices[-1]:.4g} points per call and reward has not risen for it"
    return what, "look at briefs, full returns and broadcasts in these traces"


def _equal(metrics: Sequence[Row], last: int = 5, limit: float = 0.5) -> Text:
    share = mean(metrics[-last:], "signals.equal_groups")
    if len(metrics) < last or not share >= limit:
        return None
    what = f"in {share:.0%} of the groups all episodes have the same value, so their advantages are 0"
    return what, "harder or more varied tasks, larger groups, or more exploration"


def _flat(metrics: Sequence[Row], evals: Sequence[Row], window: int, back: int = 3) -> Text:
    """Only at an evaluation: what training gained since the third one before it, against what the held-out seeds gained."""
    if len(evals) <= back or evals[-1]["update"] != metrics[-1]["update"]:
        return None
    old, new = evals[-1 - back], evals[-1]
    rows_old = [r for r in metrics if old["update"] - window < r["update"] <= old["update"]]
    rows_new = [r for r in metrics if new["update"] - window < r["update"] <= new["update"]]
    if not rows_old or old["first_seed"] != new["first_seed"] or len(old["values"]) != len(new["values"]):
        return None
    rise, se = mean(rows_new, "reward") - mean(rows_old, "reward"), math.hypot(_se(rows_old), _se(rows_new))
    gains = np.array(new["values"], np.float64) - np.array(old["values"], np.float64)
    gain = float(gains.mean())
    # exploration fades and training catches up with a greedy evaluation: that is no alert, so training must be above it
    above = mean(rows_new, "reward") - float(np.mean(new["values"]))
    spread = float(gains.std(ddof=1) / math.sqrt(len(gains))) if len(gains) > 1 else 0.0
    if not (rise > 3 * se and gain <= max(spread, 0.1 * rise) and above > 2 * _se(rows_new)):
        return None
    since = f"since update {old['update']}"
    what = f"reward rose by {rise:.3g} in training {since}, by {gain:.3g} on held-out tasks: {above:.3g} apart"
    return what, "more seeds or variants to train on (mix), or a lower rate; `counterpoint compare plot` shows both curves"


def _mismatched(metrics: Sequence[Row]) -> Text:
    row = metrics[-1]
    masked, gap = number(row, "signals.masked"), number(row, "signals.mismatch")
    if masked > 0:
        return f"{masked:.0f} decisions took an action that was masked", "acting and its mask differ: a defect, report it"
    if gap > _CLOSE:
        what = f"recomputed log-probabilities differ by {gap:.3g} from those that were sampled with, at the same weights"
        return what, "ratios do not begin at 1: compare the masks and features used in acting with the learner's"
    return None
