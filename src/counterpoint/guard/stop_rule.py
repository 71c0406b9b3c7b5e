"""A stop rule: plain arrays that say at which checkpoints to stop, and whose policy they belong to.

Always true: the decision at checkpoint t is a function of t and of the features there, nothing later; the last checkpoint
always stops; a rule that was saved and loaded decides the same. A rule states the world, version and policy it was learned
from, and refuses another (`refuse_other`): stop values belong to one policy version.

| kind | stops at t when |
|---|---|
| cap | t ≥ the cap |
| threshold | sign·(feature, or feature per round) ≥ level |
| per_time | quadratic basis of the features, standardised at t and within their range there, times the coefficients of t, ≤ 0 |
| pooled | t ≥ last, or the pooled basis of t and the features, times one vector of coefficients, ≤ 0 |
| vote | rules with at least half of the weight stop |
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import counterpoint.files as files
from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.files import read_plain
from counterpoint.guard.stop_basis import Basis, quadratic, ridge_cv
from counterpoint.guard.stop_paths import HasPaths, StopPaths, checked

_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When to stop."""

    kind: str
    arrays: Mapping[str, np.ndarray]
    horizon: int
    """H: checkpoints are 0..H."""
    width: int
    """F: the number of features it reads."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Trainer, seed and number of traces; world, version, config and policy where they are known."""

    def goes_on(self, t: int, x: np.ndarray) -> np.ndarray:
        """(n,) scores at checkpoint t for features x (n, F): above 0 means go on."""
        return _SCORES[self.kind](self.arrays, t, x)

    def policy(self) -> Callable[[int, np.ndarray], np.ndarray]:
        """The rule as `world.run` takes it: (round, features) to booleans."""
        return lambda t, x: np.full(len(x), t >= self.horizon) | (self.goes_on(t, x) <= 0)

    def stops(self, features: np.ndarray) -> np.ndarray:
        """(E, H+1) whether it would stop at each checkpoint."""
        x, decide = self._read(features), self.policy()
        return np.stack([decide(t, x[:, t]) for t in range(x.shape[1])], axis=1)

    def stop_times(self, features: np.ndarray) -> np.ndarray:
        """(E,) the first checkpoint where it stops; later ones are not looked at."""
        x, decide = self._read(features), self.policy()
        out, on = np.full(len(x), self.horizon), np.arange(len(x))
        for t in range(self.horizon):
            stop = decide(t, x[on, t])
            out[on[stop]] = t
            on = on[~stop]
            if not len(on):
                break
        return out

    def value(self, payoffs: np.ndarray, features: np.ndarray) -> np.ndarray:
        """(E,) what it would have been paid on these paths."""
        return payoff_at(payoffs, self.stop_times(features))

    def refuse_other(self, world: Any) -> None:
        """Raise `Refused` when this rule was learned in another world, version or with other parameters than `world`."""
        config = getattr(world, "config", None)
        has = {"world": world.name, "version": world.version}
        for key, now in has.items():
            if key in self.about and self.about[key] != now:
                raise Refused(f"the rule was learned in {key} {self.about[key]}, and this is {now}", fix="train it again here")
        for key, value in dict(self.about.get("config", {})).items():
            now = getattr(config, key, None)
            now = list(now) if isinstance(now, tuple) else now
            if now != value:
                raise Refused(f"the rule was learned with {key} = {value}, and here it is {now}", fix="train it again here")

    def as_bytes(self) -> bytes:
        """The rule as a file of plain arrays; the same rule gives the same bytes."""
        head = {"format": _FORMAT, "kind": self.kind, "horizon": self.horizon, "width": self.width, "about": dict(self.about)}
        text = np.frombuffer(json.dumps(head, sort_keys=True).encode(), np.uint8)
        out = io.BytesIO()
        np.savez(out, head=text, **self.arrays)  # type: ignore[arg-type]
        return out.getvalue()

    def save(self, path: str | Path) -> None:
        """Write `as_bytes` to a file."""
        files.put([(Path(path), self.as_bytes())])

    def _read(self, features: np.ndarray) -> np.ndarray:
        x = np.asarray(features, np.float64)
        wanted = (self.horizon + 1, self.width)
        if x.ndim != 3 or x.shape[1:] != wanted:
            raise InputError(f"features of shape {x.shape}", fix=f"(E, {wanted[0]}, {wanted[1]}), as it was trained on")
        return x


def load_rule(path: str | Path) -> Rule:
    """The rule of a file."""
    where = str(path)
    if not Path(path).is_file():
        raise NotFound("no such rule", where=where)
    try:
        with np.load(io.BytesIO(read_plain(path)), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        head = json.loads(bytes(arrays.pop("head")))
        if head["format"] != _FORMAT or head["kind"] not in _SCORES:
            raise InputError(
                f"cannot read a rule of format {head['format']}, kind {head['kind']}", where=where, fix="train it again"
            )
        rule = Rule(kind=head["kind"], arrays=arrays, horizon=head["horizon"], width=head["width"], about=head["about"])
        rule.goes_on(0, np.zeros((1, rule.width)))
    except (OSError, ValueError, KeyError, IndexError, TypeError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("is not a stop rule", where=where, fix="name a file that Rule.save wrote") from error
    return rule


def first_stop(stops: np.ndarray) -> np.ndarray:
    """(E,) the first True of each row; the last checkpoint where there is none."""
    return np.where(stops.any(axis=1), stops.argmax(axis=1), stops.shape[1] - 1)


def payoff_at(payoffs: np.ndarray, times: np.ndarray) -> np.ndarray:
    """(E,) Y at these checkpoints."""
    return payoffs[np.arange(len(payoffs)), times]


def _cap(arrays: Mapping[str, np.ndarray], t: int, x: np.ndarray) -> np.ndarray:
    return np.full(len(x), float(arrays["cap"]) - t)


def _threshold(arrays: Mapping[str, np.ndarray], t: int, x: np.ndarray) -> np.ndarray:
    value = x[:, int(arrays["feature"])] / (1 + t if arrays["per_round"] else 1)
    # what equals the level stops: the level is a value that was seen
    return np.where(arrays["sign"] * (value - arrays["level"]) >= -1e-9, -1.0, 1.0)


def _per_time(arrays: Mapping[str, np.ndarray], t: int, x: np.ndarray) -> np.ndarray:
    if t >= len(arrays["coef"]):
        return np.full(len(x), -1.0)
    clipped = np.clip(x, arrays["low"][t], arrays["high"][t])  # a parabola says nothing where no trace was
    return quadratic((clipped - arrays["mean"][t]) / arrays["scale"][t]) @ arrays["coef"][t]


def _pooled(arrays: Mapping[str, np.ndarray], t: int, x: np.ndarray) -> np.ndarray:
    if t >= arrays["last"]:
        return np.full(len(x), -1.0)
    columns = Basis.load(arrays).columns(np.full(len(x), t), x)
    return columns @ arrays["coef"] + arrays["intercept"]


def _vote(arrays: Mapping[str, np.ndarray], t: int, x: np.ndarray) -> np.ndarray:
    on = np.zeros(len(x))
    for i, kind in enumerate(arrays["kinds"]):
        mine = {name.removeprefix(f"{i}."): value for name, value in arrays.items() if name.startswith(f"{i}.")}
        on += arrays["weights"][i] * np.sign(_SCORES[str(kind)](mine, t, x))
    return on


_SCORES: dict[str, Callable[[Mapping[str, np.ndarray], int, np.ndarray], np.ndarray]] = {
    "cap": _cap,
    "threshold": _threshold,
    "per_time": _per_time,
    "pooled": _pooled,
    "vote": _vote,
}


# -- Stop rules with few numbers: the best fixed cap ------------------------------------------------------------------
# Tuned scalar thresholds, and hindsight labels (a baseline that must lose).
#
# Always true: every number is chosen on the training traces alone; equals go to the earlier cap and the earlier feature.
#
# A threshold stops when a feature, or the feature per round, has risen to a level or has fallen to it: confidence is a
# threshold on the margin, patience one on the quiet rounds, a rate of gain one on finds per round. Feature and direction are
# chosen by 3-fold cross-validation, the level then on all traces. Hindsight labels say 1 from the best moment max_t Y_t on; a
# pooled ridge regression predicts them and the rule stops at 1/2. They use what nobody could know, so the rule waits for luck
# that does not come. (Source: docs/lab/research/stopping.md.)

_LEVELS = 30
FOLDS = 3


def rule_of(kind: str, trainer: str, paths: StopPaths, seed: int, arrays: dict[str, Any]) -> Rule:
    """A rule that says where it comes from."""
    about = {**paths.about, "trainer": trainer, "seed": int(seed), "traces": len(paths.payoffs)}
    plain = {name: np.asarray(value) for name, value in arrays.items()}
    _, checkpoints, width = paths.features.shape
    return Rule(kind=kind, arrays=plain, horizon=checkpoints - 1, width=width, about=about)


def folds_of(traces: int, seed: int) -> np.ndarray:
    """(E,) the fold of each trace, equally many in each, by the seed."""
    return np.random.default_rng([seed % 2**63, 3]).permutation(np.arange(traces) % FOLDS)


def best_cap(paths: HasPaths, seed: int = 0) -> Rule:
    """The checkpoint with the highest mean payoff."""
    sample = checked(paths)
    return rule_of("cap", "best_cap", sample, seed, {"cap": int(np.argmax(sample.payoffs.mean(axis=0)))})


def threshold(paths: HasPaths, seed: int = 0) -> Rule:
    """The best level of one feature."""
    sample = checked(paths)
    fold = folds_of(len(sample.payoffs), seed)
    best: tuple[float, dict[str, Any]] = (-np.inf, {})
    for which, values, levels in _families(sample.features):
        got = _paid_at(sample.payoffs, values, levels)
        total = sum(float(got[fold == k, np.argmax(got[fold != k].mean(axis=0))].sum()) for k in range(FOLDS))
        if total > best[0] + 1e-9 * abs(total):
            best = total, {**which, "level": which["sign"] * levels[np.argmax(got.mean(axis=0))]}
    if not best[1]:
        return best_cap(sample, seed)
    return rule_of("threshold", "threshold", sample, seed, best[1])


def paid_by_thresholds(payoffs: np.ndarray, features: np.ndarray) -> np.ndarray:
    """(E, rules) what every threshold rule would be paid."""
    return np.concatenate([_paid_at(payoffs, values, levels) for _, values, levels in _families(features)], axis=1)


def _families(features: np.ndarray) -> Iterator[tuple[dict[str, Any], np.ndarray, np.ndarray]]:
    """Feature, direction and whether per round; its values (E, H+1), times the sign; the levels to try."""
    for feature in range(features.shape[2]):
        for per_round in (False, True):
            values = features[:, :, feature] / (1 + np.arange(features.shape[1]) if per_round else 1)
            if np.ptp(values) < 1e-12:
                continue
            levels = np.unique(np.quantile(values, np.linspace(0, 1, _LEVELS), method="nearest"))
            for sign in (1, -1):
                yield {"feature": feature, "per_round": per_round, "sign": sign}, sign * values, sign * levels


def _paid_at(payoffs: np.ndarray, values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """(E, L) what stopping pays at the first value that reaches each level; the last checkpoint where none does."""
    peak = np.maximum.accumulate(values, axis=1)
    return np.stack(
        [payoff_at(payoffs, np.minimum((peak < level - 1e-9).sum(axis=1), payoffs.shape[1] - 1)) for level in levels], axis=1
    )


def hindsight(paths: HasPaths, seed: int = 0) -> Rule:
    """Regression on labels that know the future: stop from argmax_t Y_t on."""
    sample = checked(paths)
    basis = Basis.of(sample.features)
    table = basis.table(sample.features)
    episodes, times, width = table.shape
    label = np.arange(times) >= np.argmax(sample.payoffs, axis=1)[:, None]
    trace = np.repeat(folds_of(episodes, seed), times)
    fit = ridge_cv(table.reshape(-1, width), label.ravel().astype(float), trace, basis.late)
    arrays = {**basis.arrays, "coef": -fit.coef, "intercept": 0.5 - fit.intercept, "last": times - 1}
    return rule_of("pooled", "hindsight", sample, seed, arrays)
