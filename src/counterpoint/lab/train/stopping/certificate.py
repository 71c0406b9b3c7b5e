"""A bracket around the best that any stop rule can do: the value of a learned rule below, a dual bound above.

Always true: the upper end holds for every rule that sees only the features, whatever W is; a poor W, and few forks, only widen
the bracket. With W an approximate value and

    M_t = Σ_{s≤t} ( W_s(x_s) − E[W_s(x_s) | x_0..x_{s−1}] ),      J* ≤ E[ max_t (Ȳ_t − M_t) ]

(Rogers 2002; Haugh and Kogan 2004), for M is a martingale and so E[M_τ] = 0 for every such τ. Ȳ_t = E[Y_t | x_t] is what the
draft is worth to somebody who cannot see its score. The conditional mean is estimated by one-step forks with fresh draws of
the posterior predictive law: coupled to the episode's own next round, or to its hidden part, M would be no martingale of the
observer. Inner noise only widens the bound (Jensen). The lower end is the learned rule on the same fresh paths, E[Ȳ_τ − M_τ] =
E[Y_τ]: the same mean with little of its noise, and never above the upper end. Here W_t(x) = Ȳ_t(x) + max(0, f(t, x)), with f
the advantage that Longstaff-Schwartz learns from training paths, per time or pooled: whichever gives the narrower bracket on
pilot paths that are used for nothing else. (The upper end alone would choose the same in the mean, for E[Ȳ_τ − M_τ] does not
depend on W; but its noise is that of M, which the difference of both ends has hardly any of: by the upper end, one seed in seven
of S3 took the W whose bracket is three times as wide.)

A bundle of traces alone holds one next round per prefix, so the conditional mean is not identified from it: `bracket` needs a
world with `ahead` and `observed_scores`, and says so otherwise. (Source: docs/lab/research/stopping.md.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.errors import InputError, NotIdentified
from counterpoint.guard.stop_paths import HasPaths, StopPaths, checked
from counterpoint.guard.stop_rule import Rule, payoff_at
from counterpoint.lab.train.stopping.expected import calmest
from counterpoint.lab.train.stopping.values import longstaff_schwartz, pooled_fit

_ROWS = 60_000  # fork rows at a time
_PILOT_FORKS = 16

Worth = Callable[[int, np.ndarray], np.ndarray]
"""(t, features (n, F)) to (n,) what going on is worth above stopping."""


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """lower ≤ J* ≤ upper, each within its standard error."""

    lower: float
    lower_error: float
    upper: float
    upper_error: float
    forks: int

    @property
    def width(self) -> float:
        """(upper − lower)/|upper|."""
        return (self.upper - self.lower) / abs(self.upper) if self.upper else np.inf


def bracket(
    world: Any,
    rule: Rule,
    train: HasPaths,
    *,
    seeds: Sequence[int] | np.ndarray,
    forks: int = 64,
    seed: int = 0,
    calm: bool = True,
) -> Bracket:
    """The bracket by the fresh paths of `seeds`, a quarter of them pilots; `train` are the paths that W is learned from.

    None of those may be among the fresh ones, nor may any that the rule was learned from. With `calm=False` their payoffs are
    taken as they are: `choose` has calmed them already.
    """
    if forks < 1:
        raise InputError(f"forks is at least 1, not {forks}")
    if not hasattr(world, "ahead") or not hasattr(world, "observed_scores"):
        reason = "traces hold one next round per prefix, so its conditional mean is unknown"
        raise NotIdentified(reason, "give a world that can draw the next round again (ahead, observed_scores)")
    given, fresh = checked(train), world.paths(seeds)
    pilot = len(fresh.seeds) // 4
    if not 0 < pilot < len(fresh.seeds) - 1:
        raise InputError(f"{len(fresh.seeds)} fresh paths are too few for a bound", fix="give 100 or more seeds")
    used = set(np.asarray(getattr(train, "seeds", ())).tolist())
    if used & set(fresh.seeds.tolist()):
        raise InputError("a path that W was learned from is among the fresh ones", fix="give other seeds")
    if calm:
        given = dataclasses.replace(given, payoffs=calmest(given, seed)[1])
    worth = _best_worth(world, given, fresh.features[:pilot], rule, seed)
    left = fresh.features[pilot:]
    adjusted = dual(world, worth, left, forks, seed)
    got, top = payoff_at(adjusted, rule.stop_times(left)), adjusted.max(axis=1)
    return Bracket(
        lower=float(got.mean()),
        lower_error=float(got.std(ddof=1) / np.sqrt(len(got))),
        upper=float(top.mean()),
        upper_error=float(top.std(ddof=1) / np.sqrt(len(top))),
        forks=forks,
    )


def dual(world: Any, worth: Worth, features: np.ndarray, forks: int, seed: int) -> np.ndarray:
    """(E, H+1) Ȳ_t − M_t of each path, for W = Ȳ + max(0, worth)."""
    episodes, checkpoints, width = features.shape
    scores = world.observed_scores(features)
    martingale, out = np.zeros(episodes), scores.copy()
    each = max(1, _ROWS // forks)

    def value(t: int, x: np.ndarray) -> np.ndarray:
        seen = np.asarray(world.observed_scores(x))
        return seen if t == checkpoints - 1 else seen + np.maximum(0.0, worth(t, x))

    for t in range(1, checkpoints):
        mean = np.empty(episodes)
        for begin in range(0, episodes, each):
            part = slice(begin, begin + each)
            ahead = world.ahead(t - 1, features[part, t - 1], forks, seed + begin)
            mean[part] = value(t, ahead.reshape(-1, width)).reshape(-1, forks).mean(axis=1)
        martingale += value(t, features[:, t]) - mean
        out[:, t] -= martingale
    return out


def _best_worth(world: Any, train: StopPaths, pilot: np.ndarray, rule: Rule, seed: int) -> Worth:
    """The advantage per time or pooled, whichever has the narrower bracket on the pilot paths."""
    per_time, times = longstaff_schwartz(train, seed), rule.stop_times(pilot)
    basis, fit = pooled_fit(train, seed, keep=1.0, sure=False)  # a value everywhere, not only a boundary
    found: list[Worth] = [per_time.goes_on, lambda t, x: fit(basis.columns(np.full(len(x), t), x))]

    def width(worth: Worth) -> float:
        adjusted = dual(world, worth, pilot, _PILOT_FORKS, seed)
        return float((adjusted.max(axis=1) - payoff_at(adjusted, times)).mean())

    return min(found, key=width)
