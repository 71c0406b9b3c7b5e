"""The default stop trainer: a cross-fitted choice between cap, threshold, Longstaff-Schwartz, pooled and all-stops gradient.

Always true: a candidate is judged on traces that it was not trained on (3 folds), against the best cap of the same folds,
trace by trace. Where the lower bound of the best candidate's gain, mean minus one standard error, is above zero, candidates
within one standard error of the best are trained again on all traces and vote; even votes go to the best. Elsewhere nothing is
decided, and of two rules that the traces cannot tell apart the one that goes on longer is taken: stopping early also stops
learning that it was too early. It is taken only where the plain payoffs do not speak against it by one standard error; at 1,600
traces of S0 they do, and the cap stays.

Candidates learn, and are judged, on the calmest form of the payoffs (`expected`), which is fitted once on all traces: the
standard error does not count the error of that fit. The control is S0, where any gain would be over-fitting.
(docs/lab/research/stopping.md; departures: the calmer payoffs, the vote, and the longer rule where nothing is decided: with the
cap instead, one set in
fifteen of one hundred traces of S2 stopped after one vote and lost twice the gap.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from counterpoint.guard.stop_basis import Basis
from counterpoint.guard.stop_paths import HasPaths, StopPaths, checked, subset
from counterpoint.guard.stop_rule import FOLDS, Rule, best_cap, folds_of, hindsight, payoff_at, rule_of, threshold
from counterpoint.lab.train.stopping.expected import calmest
from counterpoint.lab.train.stopping.values import last_useful, longstaff_schwartz, mixed, pooled

# -- Policy gradients for a stop head: over all stop times at once, and by sampling one (a baseline) ------------------
# Always true: the head is linear in the pooled basis, p_t = σ(f(x_t)), and starts at the best cap; batches are drawn by the
# seed.
#
# All stops: with U_t = p_t Y_t + (1 − p_t) U_{t+1}, U_H = Y_H and J = E[U_0],
#
#     ∂J/∂f_t = E[ Π_{s<t}(1 − p_s) · p_t (1 − p_t) · (Y_t − U_{t+1}) ],
#
# the exact gradient, with no sampling noise in the stop time. Sampled: stop at τ ~ p, (Y_τ − baseline)·∇log P(τ) (REINFORCE,
# Williams 1992), the baseline being the batch's mean. Both climb with Adam (Kingma and Ba, 2015) on payoffs divided by their
# scale. The rule stops where p ≥ 1/2. (Source: docs/lab/research/stopping.md.)

_BATCH, _PENALTY = 200, 1e-4
_EXACT, _SAMPLED = (80, 0.25), (200, 0.05)  # steps, and the first step size: noise needs more and smaller ones
_SLOPE = 1.0  # of the first head, per checkpoint, around the cap

Gradient = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]


def _sigmoid(f: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(f, -40, 40)))


def stop_value(f: np.ndarray, payoffs: np.ndarray) -> np.ndarray:
    """(E, H+1) U_t for stop scores f (E, H); the last checkpoint stops."""
    p, u = _sigmoid(f), payoffs.copy()
    for t in range(f.shape[1] - 1, -1, -1):
        u[:, t] = p[:, t] * payoffs[:, t] + (1 - p[:, t]) * u[:, t + 1]
    return u


def all_stops_gradient(f: np.ndarray, payoffs: np.ndarray) -> np.ndarray:
    """(E, H) ∂U_0/∂f_t of each trace."""
    p, u = _sigmoid(f), stop_value(f, payoffs)
    reach = np.cumprod(np.concatenate([np.ones((len(f), 1)), 1 - p[:, :-1]], axis=1), axis=1)
    return reach * p * (1 - p) * (payoffs[:, :-1] - u[:, 1:])


def sampled_score(f: np.ndarray, payoffs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(E, H) the sampled estimate of the same: (Y_τ − mean)·(1[t = τ] − p_t) for t ≤ τ."""
    p = _sigmoid(f)
    stop = np.concatenate([rng.random(p.shape) < p, np.ones((len(p), 1), bool)], axis=1)
    at = stop.argmax(axis=1)
    got = payoffs[np.arange(len(p)), at]
    times = np.arange(p.shape[1])
    step = np.where(times == at[:, None], 1 - p, np.where(times < at[:, None], -p, 0.0))
    return (got - got.mean())[:, None] * step


def all_stops(paths: HasPaths, seed: int = 0) -> Rule:
    """The all-stops policy gradient."""
    given = checked(paths)
    return _climb(given, seed, lambda f, y, _: all_stops_gradient(f, y), "all_stops", *_EXACT)


def sampled_gradient(paths: HasPaths, seed: int = 0) -> Rule:
    """REINFORCE on the same head."""
    return _climb(checked(paths), seed, sampled_score, "sampled_gradient", *_SAMPLED)


def _climb(paths: StopPaths, seed: int, gradient: Gradient, name: str, steps: int, first_rate: float) -> Rule:
    rng = np.random.default_rng([seed % 2**63, 5])
    basis, last = Basis.of(paths.features), last_useful(paths.payoffs)
    table = basis.table(paths.features[:, :last])
    mean, scale = table.mean(axis=(0, 1)), table.std(axis=(0, 1))
    scale = np.where(scale > 1e-9, scale, np.inf)
    table = ((table - mean) / scale).astype(np.float32)
    spread = np.diff(paths.payoffs, axis=1).std() * np.sqrt(last)
    payoffs = paths.payoffs[:, : last + 1] / (spread if spread > 0 else 1.0)
    head = _first_head(basis, mean, scale, int(np.argmax(payoffs.mean(axis=0))))
    start, first, second = head.copy(), np.zeros_like(head), np.zeros_like(head)
    for step in range(1, steps + 1):
        some = slice(None) if len(table) <= _BATCH else rng.choice(len(table), _BATCH, replace=False)
        x, y = table[some], payoffs[some]
        g = gradient((x @ head[:-1].astype(np.float32) + head[-1]).astype(float), y, rng)
        pull = g.reshape(-1).astype(np.float32) @ x.reshape(-1, x.shape[2])
        up = np.append(pull, g.sum()) / len(y) - _PENALTY * (head - start)
        first, second = 0.9 * first + 0.1 * up, 0.99 * second + 0.01 * up * up
        rate = first_rate * (1 - step / (steps + 1))
        head = head + rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    coef = head[:-1] / scale
    # a rule goes on where its score is above 0: the stop score with the other sign
    arrays = {**basis.arrays, "coef": -coef, "intercept": float(mean @ coef) - head[-1], "last": last}
    return rule_of("pooled", name, paths, seed, arrays)


def _first_head(basis: Basis, mean: np.ndarray, scale: np.ndarray, cap: int) -> np.ndarray:
    """A head that stops around the cap: slope·(t − cap + 1/2), for column 0 is t/H."""
    head = np.zeros(len(mean) + 1)
    head[0] = _SLOPE * basis.horizon * (scale[0] if np.isfinite(scale[0]) else 0.0)
    head[-1] = _SLOPE * (mean[0] * basis.horizon - cap + 0.5)
    return head


_ERRORS = 1.0

Trainer = Callable[[HasPaths, int], Rule]
_CANDIDATES: Mapping[str, Trainer] = {
    "threshold": threshold,
    "longstaff_schwartz": longstaff_schwartz,
    "pooled": mixed,
    "all_stops": all_stops,
}


@dataclass(frozen=True)
class Choice:
    """What was compared, and who won."""

    winners: tuple[str, ...]
    """The best candidate first, then those that are not clearly worse; one name where nothing clearly beats the cap: the
    candidate that goes on longest, or the cap."""
    payoffs: str
    """Which form of the payoffs was learned from."""
    gains: Mapping[str, tuple[float, float]]
    """For each candidate: mean gain over the cap on held-out traces, and its standard error."""


def choose(paths: HasPaths, seed: int = 0) -> tuple[Choice, StopPaths]:
    """The comparison, and the paths that the winners are trained on."""
    given = checked(paths, least=4 * FOLDS)
    form, payoffs = calmest(given, seed)
    calm = dataclasses.replace(given, payoffs=payoffs)
    gain, plain, stops = _gains(calm, given.payoffs, seed)
    gains = {name: _mean_error(g) for name, g in gain.items()}
    best = max(gains, key=lambda name: gains[name][0])
    mean, error = gains[best]
    if mean - _ERRORS * error <= 1e-12 * np.abs(payoffs).max():
        return Choice((_undecided(plain, stops),), form, gains), calm
    behind = {name: _mean_error(gain[best] - g) for name, g in gain.items() if name != best}
    return Choice((best, *(name for name, (m, e) in behind.items() if m <= _ERRORS * e)), form, gains), calm


def stacked(paths: HasPaths, seed: int = 0) -> Rule:
    """The winners, trained on all traces; several vote."""
    return vote_of(*choose(paths, seed), seed)


def vote_of(choice: Choice, calm: StopPaths, seed: int) -> Rule:
    """The rule of a choice."""
    rules = [(best_cap if name == "best_cap" else _CANDIDATES[name])(calm, seed) for name in choice.winners]
    about = {**rules[0].about, "trainer": "stacked: " + ", ".join(choice.winners), "payoffs": choice.payoffs}
    if len(rules) == 1:
        return dataclasses.replace(rules[0], about=about)
    arrays = {f"{i}.{name}": value for i, rule in enumerate(rules) for name, value in rule.arrays.items()}
    weights = np.array([1.5] + [1.0] * (len(rules) - 1))  # where the votes are even, the best decides
    arrays |= {"kinds": np.array([rule.kind for rule in rules]), "weights": weights}
    return dataclasses.replace(rules[0], kind="vote", arrays=arrays, about=about)


Gains = dict[str, np.ndarray]


def _gains(calm: StopPaths, plain: np.ndarray, seed: int) -> tuple[Gains, Gains, Gains]:
    """For each candidate, (E,) what it gains over the cap where neither was trained: in calm payoffs, in plain ones, and by how
    many rounds it stops later."""
    fold = folds_of(len(plain), seed)
    gain, raw, later = ({name: np.zeros(len(plain)) for name in _CANDIDATES} for _ in range(3))
    for k in range(FOLDS):
        train, test = (subset(calm, np.flatnonzero(rows)) for rows in (fold != k, fold == k))
        cap = best_cap(train, seed).stop_times(test.features)
        for name, trainer in _CANDIDATES.items():
            at = trainer(train, seed).stop_times(test.features)
            gain[name][fold == k] = payoff_at(test.payoffs, at) - payoff_at(test.payoffs, cap)
            raw[name][fold == k] = payoff_at(plain[fold == k], at) - payoff_at(plain[fold == k], cap)
            later[name][fold == k] = at - cap
    return gain, raw, later


def _undecided(plain: Gains, later: Gains) -> str:
    """Where nothing clearly beats the cap: the candidate that goes on longest, if that is longer than the cap and the plain
    payoffs, whose noise the calm ones hide, do not clearly speak against it."""
    longest = max(later, key=lambda name: float(later[name].mean()))
    mean, error = _mean_error(plain[longest])
    return longest if later[longest].mean() > 0 and mean + _ERRORS * error > 0 else "best_cap"


def _mean_error(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


TRAINERS: Mapping[str, Trainer] = {
    "stacked": stacked,
    "longstaff_schwartz": longstaff_schwartz,
    "pooled": pooled,
    "all_stops": all_stops,
    "threshold": threshold,
    "best_cap": best_cap,
    "sampled_gradient": sampled_gradient,
    "hindsight": hindsight,
}
"""Every trainer by name."""
