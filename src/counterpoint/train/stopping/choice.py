"""The default stop trainer: a cross-fitted choice between cap, threshold, Longstaff-Schwartz, pooled and all-stops gradient.

Always true: a candidate is judged on traces that it was not trained on (3 folds), against the best cap of the same folds,
trace by trace. Where the lower bound of the best candidate's gain, mean minus one standard error, is above zero, candidates
within one standard error of the best are trained again on all traces and vote; even votes go to the best. Elsewhere nothing is
decided, and of two rules that the traces cannot tell apart the one that goes on longer is taken: stopping early also stops
learning that it was too early. It is taken only where the plain payoffs do not speak against it by one standard error; at 1,600
traces of S0 they do, and the cap stays.

Candidates learn, and are judged, on the calmest form of the payoffs (`expected`), which is fitted once on all traces: the
standard error does not count the error of that fit. The control is S0, where any gain would be over-fitting.
(docs/research/stopping.md; departures: the calmer payoffs, the vote, and the longer rule where nothing is decided: with the
cap instead, one set in
fifteen of one hundred traces of S2 stopped after one vote and lost twice the gap.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from counterpoint.train.stopping.expected import calmest
from counterpoint.train.stopping.gradient import all_stops, sampled_gradient
from counterpoint.train.stopping.paths import HasPaths, StopPaths, checked, subset
from counterpoint.train.stopping.rule import Rule, paid
from counterpoint.train.stopping.simple import FOLDS, best_cap, folds_of, hindsight, threshold
from counterpoint.train.stopping.values import longstaff_schwartz, mixed, pooled

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
            gain[name][fold == k] = paid(test.payoffs, at) - paid(test.payoffs, cap)
            raw[name][fold == k] = paid(plain[fold == k], at) - paid(plain[fold == k], cap)
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
