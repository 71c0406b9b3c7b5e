"""Learning a ranker from runs whose decisive step is known: conditional logit with a ridge, averaged over recipes.

Always true: the same cases, recipes and seed give the same weights; only numpy is needed. A run counts by its weight, however
long it is: the loss is the weighted mean over runs of -log p(decisive step), after McFadden's conditional logit.

With few labelled runs a choice between recipes is mostly luck, so `averaged` takes the mean of their weights, which is a ranker
again, where asked by how well each did on folds held out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from counterpoint.audits.blame.ranker import HASHED, Ranker, softmax
from counterpoint.audits.blame.steps import Floats

_SHARPNESS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


class Case(NamedTuple):
    """One run: its candidates' signals, which of them decided it, and what it is a run of (cases of one group stay together)."""

    x: Floats
    truth: int
    group: str = ""
    weight: float = 1.0


class Recipe(NamedTuple):
    """How a ranker is fitted."""

    ridge: float = 3.0
    words: bool = False
    """Whether hashed words are used."""
    prior: float = 0.0
    """The ridge draws to this share of a prior ranker's weights; 0 draws to zero."""


RIDGES = (Recipe(1.0), Recipe(3.0), Recipe(10.0), Recipe(30.0))
"""What is averaged where a ranker must work on teams that it has not seen."""
RECIPES = (
    *(Recipe(ridge, False, prior) for prior in (0.0, 1.0) for ridge in (1.0, 3.0, 10.0, 30.0, 100.0)),
    *(Recipe(ridge, True, 1.0) for ridge in (3.0, 10.0)),
)
"""What is weighed where labelled runs of the same kind are at hand."""


class _Rows(NamedTuple):
    """Cases as one table."""

    x: Floats
    y: Floats
    start: np.ndarray
    """The first row of each case."""
    of: np.ndarray
    """The case of each row."""
    weight: Floats
    """Of each case; they sum to 1."""


def _rows(cases: Sequence[Case]) -> _Rows:
    sizes = np.array([len(c.x) for c in cases])
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    y = np.zeros(int(sizes.sum()))
    y[start + np.array([c.truth for c in cases])] = 1.0
    weight = np.array([c.weight for c in cases], np.float64)
    return _Rows(np.concatenate([c.x for c in cases]), y, start, np.repeat(np.arange(len(cases)), sizes), weight / weight.sum())


def _softmax(score: Floats, rows: _Rows) -> Floats:
    top = np.maximum.reduceat(score, rows.start)
    out = np.exp(score - top[rows.of])
    return np.asarray(out / np.add.reduceat(out, rows.start)[rows.of], np.float64)


def fitted(cases: Sequence[Case], names: Sequence[str], recipe: Recipe, prior: Ranker | None = None) -> Ranker:
    """A ranker from cases whose columns are `names`, by a recipe; the prior has the same columns."""
    rows = _rows(cases)
    keep = np.array([recipe.words or name not in HASHED for name in names])
    mean = rows.x.mean(axis=0)
    known = np.zeros(len(names)) if prior is None else prior.sharpness * np.asarray(prior.weight)
    drawn = np.where(keep, recipe.prior * known, 0.0)
    weight = drawn.copy()
    weight[keep] = _logit(rows._replace(x=(rows.x - mean)[:, keep]), recipe.ridge, drawn[keep])
    return Ranker(names=list(names), mean=mean.tolist(), weight=weight.tolist())


def _logit(rows: _Rows, ridge: float, prior: Floats) -> Floats:
    """Newton's method on the conditional logit; the ridge, which draws to the prior, keeps it from ever being singular."""
    n_cases, f = len(rows.start), rows.x.shape[1]
    each = rows.weight[rows.of]
    penalty = ridge / n_cases * 10.0
    w = prior.copy()

    def loss(at: Floats) -> float:
        p = _softmax(rows.x @ at, rows)
        return float(-(each * rows.y * np.log(np.maximum(p, 1e-300))).sum() + 0.5 * penalty * ((at - prior) ** 2).sum())

    now = loss(w)
    for _ in range(30):
        p = _softmax(rows.x @ w, rows)
        grad = rows.x.T @ (each * (p - rows.y)) + penalty * (w - prior)
        centre = np.add.reduceat(p[:, None] * rows.x, rows.start)
        hess = (rows.x * (each * p)[:, None]).T @ rows.x - (centre * rows.weight[:, None]).T @ centre
        step = np.linalg.solve(hess + penalty * np.eye(f), grad)
        size, then = 1.0, loss(w - step)
        while then > now and size > 1e-4:
            size /= 2
            then = loss(w - size * step)
        if then > now or now - then < 1e-9:
            break
        w, now = w - size * step, then
    return w


LEDGER_RECIPES = tuple(Recipe(ridge) for ridge in (0.03, 0.1, 0.3, 1.0))
"""What is weighed for the few signals of a team with a ledger."""


# -- folds -----------------------------------------------------------------------------------------------------------------


def folds(cases: Sequence[Case], count: int, seed: int) -> list[np.ndarray]:
    """The places of the cases in each fold; cases of one group are in one fold."""
    rng = np.random.default_rng(seed)
    groups: dict[str, list[int]] = {}
    for i, case in enumerate(cases):
        groups.setdefault(case.group or f"#{i}", []).append(i)
    names = sorted(groups)
    out: list[list[int]] = [[] for _ in range(min(count, len(names)))]
    for place in rng.permutation(len(names)).tolist():
        min(out, key=len).extend(groups[names[place]])
    return [np.array(sorted(fold)) for fold in out]


def held_out(cases: Sequence[Case], make: Callable[[list[Case]], Ranker], count: int, seed: int) -> list[Floats]:
    """The scores of every case by a ranker that has not seen its fold."""
    out: list[Floats] = [np.zeros(0)] * len(cases)
    for fold in folds(cases, count, seed):
        away = set(fold.tolist())
        ranker = make([c for i, c in enumerate(cases) if i not in away])
        for i in fold.tolist():
            out[i] = ranker.sharpness * ranker.scores(cases[i].x)
    return out


def log_loss(cases: Sequence[Case], scores: Sequence[Floats], sharpness: float = 1.0) -> float:
    """The weighted mean of -log p(decisive step)."""
    weight = np.array([c.weight for c in cases])
    losses = [-np.log(max(softmax(sharpness * s)[c.truth], 1e-12)) for c, s in zip(cases, scores, strict=True)]
    return float(np.average(losses, weights=weight))


def reach_of(cases: Sequence[Case], scores: Sequence[Floats], coverage: float = 0.9) -> float:
    """The share of a run's steps, best first, that holds the decisive one with this chance: split conformal prediction (Vovk
    et al. 2005; Angelopoulos and Bates, arXiv 2107.07511) with the score rank / steps.

    It is the ceil((n + 1) * coverage)-th smallest score of n runs held out: for a run exchangeable with them the coverage is at
    least that. Departure: the scores come from folds, as in CV+, without its correction. A case without a truth is missed.
    """
    ranks = [
        ((np.argsort(-s, kind="stable") == c.truth).argmax() + 1) / len(s) if c.truth >= 0 else np.inf
        for c, s in zip(cases, scores, strict=True)
    ]
    place = int(np.ceil((len(ranks) + 1) * coverage - 1e-9))
    return float(min(np.sort(ranks)[place - 1], 1.0)) if place <= len(ranks) else 1.0


def averaged(
    cases: Sequence[Case],
    names: Sequence[str],
    prior: Ranker | None = None,
    *,
    recipes: Sequence[Recipe] = RECIPES,
    is_weighed: bool = False,
    count: int = 5,
    seed: int = 0,
) -> tuple[Ranker, float]:
    """The mean of the rankers of all recipes, its sharpness from folds of the cases, and the loss on those folds.

    Weighed, each recipe counts by the probability that it gave to the decisive steps of all folds held out, as in Bayesian model
    averaging: exp(-cases * loss).
    """
    scores_by_recipe = [held_out(cases, lambda some, r=recipe: fitted(some, names, r, prior), count, seed) for recipe in recipes]  # type: ignore[misc]
    lost = np.array([log_loss(cases, scores) for scores in scores_by_recipe])
    share = np.exp(-len(cases) * (lost - lost.min())) if is_weighed else np.ones(len(recipes))
    share /= share.sum()
    every = [fitted(cases, names, recipe, prior) for recipe in recipes]
    ranker = replace(every[0], weight=(share @ np.array([r.weight for r in every])).tolist())
    mixed = [np.asarray(share @ np.array(scores), np.float64) for scores in zip(*scores_by_recipe, strict=True)]
    loss, sharpness = min((log_loss(cases, mixed, s), s) for s in _SHARPNESS)
    return replace(ranker, sharpness=sharpness, made={"held_out": float(np.exp(-loss))}), loss
