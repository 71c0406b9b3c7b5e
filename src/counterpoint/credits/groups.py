"""Who is compared with whom: baselines and scales of groups of rows, as flat arrays and without padding.

Always true: rows of a group are compared with each other and with nobody else. A group whose values are all equal gives
exactly 0. The order of rows changes nothing but the last bits (an EMA excepted, which is a sequence). A group of one does
what the convention says and never anything else: `zero`; `keep` (its raw value, as verl does: mean 0, std 1); `refuse` (NaN,
which an adapter turns into a unit without a row); `error`.

    A_i = (x_i - b) / s      b: mean, leave-one-out mean, max or 0;  s: std + eps, sqrt(var + eps), max(std, eps) or 1

`CONVENTIONS` holds what the public code bases do.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.errors import InputError, NotIdentified, did_you_mean

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Convention:
    """How a group is turned into advantages."""

    baseline: Literal["mean", "leave_one_out", "max", "none"] = "mean"
    scale: Literal["std", "batch", "none"] = "std"
    """Std of the group, of all rows, or no scale."""
    ddof: int = 1
    eps: float = 1e-6
    eps_at: Literal["add", "inside", "clamp"] = "add"
    """`std + eps`, `sqrt(var + eps)`, or `max(std, eps)`."""
    singleton: Literal["zero", "keep", "refuse", "error"] = "refuse"
    count: Literal["rows", "episodes"] = "rows"
    """What counts once: every row, or every episode (with the mean of its rows)."""

    def __post_init__(self) -> None:
        allowed = {
            "baseline": ("mean", "leave_one_out", "max", "none"),
            "scale": ("std", "batch", "none"),
            "eps_at": ("add", "inside", "clamp"),
            "singleton": ("zero", "keep", "refuse", "error"),
            "count": ("rows", "episodes"),
            "ddof": (0, 1),
        }
        for name, known in allowed.items():
            if getattr(self, name) not in known:
                raise InputError(f"{name} is one of {', '.join(map(str, known))}, not {getattr(self, name)!r}")
        if not self.eps >= 0:
            raise InputError(f"eps is at least 0, not {self.eps}")


_VERL = Convention(singleton="keep")
_MEAN = Convention(scale="none", singleton="zero")
CONVENTIONS: dict[str, Convention] = {
    "grpo": Convention(),
    "verl": _VERL,
    "dr_mas": _VERL,
    "skyrl": _VERL,
    "rlinf": _VERL,
    "rllm": replace(_VERL, ddof=0),
    "trl": Convention(eps=1e-4, singleton="zero"),
    "openrlhf": Convention(eps=1e-9, singleton="error"),
    "marti": Convention(eps=1e-9, singleton="error"),
    "c3_magrpo": Convention(ddof=0, eps=1e-8, eps_at="inside", singleton="error"),
    "torchrl": Convention(eps_at="clamp", singleton="error"),
    "m_grpo": Convention(ddof=0, eps=0.0),
    "collm_maac": Convention(ddof=0, eps_at="clamp", singleton="zero"),
    "reinforce_pp": Convention(eps=1e-8, eps_at="inside"),
    "dr_grpo": _MEAN,
    "prime_rl": _MEAN,
    "comlrl": _MEAN,
    "comlrl_max": replace(_MEAN, baseline="max"),
    "rloo": Convention(baseline="leave_one_out", scale="none"),
    "reinforce": Convention(baseline="none", scale="none", singleton="keep"),
}
"""Named after the code base or method whose arithmetic it is; `grpo` is verl's formula, and refuses a group of one."""


def convention_of(name: str | Convention, **changed: Any) -> Convention:
    """A convention by name, with what is not None in `changed` changed."""
    if isinstance(name, str) and name not in CONVENTIONS:
        raise InputError(f"no convention {name!r}", fix=did_you_mean(name, CONVENTIONS))
    base = CONVENTIONS[name] if isinstance(name, str) else name
    return replace(base, **{k: v for k, v in changed.items() if v is not None})


def group_codes(keys: Iterable[Hashable]) -> tuple[Ints, list[Hashable]]:
    """Any keys as numbers 0, 1, ... in order of first appearance, and the keys by number."""
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(k, len(numbers)) for k in keys], np.int64)
    return codes, list(numbers)


class GroupStats(NamedTuple):
    """Statistics by group number; a number that no row carries has size 0."""

    code: Ints
    """(rows,) the group number of each row."""
    size: Ints
    mean: Floats
    std: Floats
    """NaN where the group has no more than ddof members."""


def _dense(groups: ArrayLike, n: int) -> tuple[Ints, int]:
    code = np.asarray(groups)
    if code.shape != (n,) or code.dtype.kind not in "iu":
        raise InputError(f"{n} values need {n} whole group numbers", fix="see `group_codes` for other keys")
    if n and (code.min() < 0 or code.max() > 4 * n + 1024):
        code = np.unique(code, return_inverse=True)[1]
    return code.astype(np.int64, copy=False), int(code.max()) + 1 if n else 0


def _values(values: ArrayLike) -> Floats:
    out = np.asarray(values, np.float64)
    if out.ndim != 1 or not np.isfinite(out).all():
        raise InputError("values are finite numbers in one dimension", fix="leave out what was not scored")
    return out


def _moments(x: Floats, code: Ints, k: int, ddof: int) -> tuple[Ints, Floats, Floats, Floats]:
    """Count, mean, variance and the centred rows. Measured from one row of each group: equal rows centre to exactly 0."""
    one = np.zeros(k)
    one[code] = x
    spare = np.take(one, code, mode="clip")  # one buffer for all gathers: pages are what costs here
    centred = x - spare
    count = np.bincount(code, minlength=k)
    shift = np.bincount(code, centred, k) / np.maximum(count, 1)
    centred -= np.take(shift, code, out=spare, mode="clip")
    np.multiply(centred, centred, out=spare)
    with np.errstate(invalid="ignore", divide="ignore"):
        var = np.where(count > ddof, np.bincount(code, spare, k) / (count - ddof), np.nan)
    return count, one + shift, var, centred


def group_stats(values: ArrayLike, groups: ArrayLike, *, ddof: int = 1) -> GroupStats:
    """Count, mean and standard deviation of each group."""
    x = _values(values)
    code, k = _dense(groups, len(x))
    count, mean, var, _ = _moments(x, code, k, ddof)
    return GroupStats(code, count, mean, np.sqrt(var))


def _by_episode(x: Floats, code: Ints, k: int, episodes: ArrayLike, ddof: int) -> tuple[Ints, Floats, Floats, Floats]:
    """The same, where every episode of a group counts once, with the mean of its rows."""
    episode, m = _dense(episodes, len(x))
    pair_of_row = np.unique(code * m + episode, return_inverse=True)[1]
    group_of_pair = np.zeros(int(pair_of_row.max()) + 1, np.int64)
    group_of_pair[pair_of_row] = code
    _, own, _, _ = _moments(x, pair_of_row, len(group_of_pair), 0)
    count, mean, var, _ = _moments(own, group_of_pair, k, ddof)
    return count, mean, var, x - mean[code]


def group_advantages(
    values: ArrayLike, groups: ArrayLike, convention: str | Convention = "grpo", *, episodes: ArrayLike | None = None
) -> Floats:
    """(rows,) the advantage of each row in its group; NaN for a group of one that the convention refuses.

    A row is alone where the baseline or the scale would be its own: with neither (`reinforce`) nobody is.
    `episodes` numbers the rollout of each row and is asked for by `count="episodes"`.
    """
    how, x = convention_of(convention), _values(values)
    if not len(x):
        return x
    code, k = _dense(groups, len(x))
    if how.count == "episodes":
        if episodes is None:
            raise InputError('count="episodes" needs the episode of each row', fix="give episodes=")
        count, _, var, out = _by_episode(x, code, k, episodes, how.ddof)
    else:
        count, _, var, out = _moments(x, code, k, how.ddof)
    if how.baseline == "leave_one_out":
        out = out * (count / np.maximum(count - 1, 1))[code]
    elif how.baseline == "max":
        top = np.full(k, -np.inf)
        np.maximum.at(top, code, x)
        out = x - top[code]
    elif how.baseline == "none":
        out = x.copy()
    if how.scale != "none":
        out = _scaled(out, np.full(k, x.var(ddof=how.ddof)) if how.scale == "batch" and len(x) > how.ddof else var, code, how)
    compares = how.baseline != "none" or how.scale == "std"
    if compares and (count == 1).any():
        alone = count[code] == 1
        out[alone] = _alone(x[alone], how)
    return out


def _scaled(out: Floats, var: Floats, code: Ints, how: Convention) -> Floats:
    """Divided by the scale of the group; where that is 0 nobody differs, and everybody gets 0."""
    std = np.sqrt(var)
    scale = {"add": std + how.eps, "inside": np.sqrt(var + how.eps), "clamp": np.maximum(std, how.eps)}[how.eps_at]
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    out *= np.take(inverse, code, mode="clip")
    return out


def _alone(x: Floats, how: Convention) -> Floats:
    if how.singleton == "error":
        raise NotIdentified(f"{len(x)} groups of one", "several rollouts per group, or singleton='zero', 'keep' or 'refuse'")
    if how.singleton != "keep":
        return np.full(len(x), 0.0 if how.singleton == "zero" else np.nan)
    unit = {"add": 1 + how.eps, "inside": np.sqrt(1 + how.eps), "clamp": max(1.0, how.eps)}[how.eps_at]
    return x / (1.0 if how.scale == "none" else unit)


def leave_one_out(values: ArrayLike, groups: ArrayLike) -> Floats:
    """(rows,) the mean of the others in the group; NaN for a group of one."""
    x = _values(values)
    code, k = _dense(groups, len(x))
    count, mean, _, centred = _moments(x, code, k, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count[code] > 1, mean[code] - centred / (count[code] - 1), np.nan)


def ema_advantages(
    values: ArrayLike, groups: ArrayLike, *, decay: float = 0.95, start: float | Sequence[float] = 0.0
) -> tuple[Floats, Floats]:
    """A = x - b with b's old value, then b <- decay b + (1 - decay) x, one b per group, in the order of the rows.

    b begins at `start`, one number or one per group. Returns the advantages and the baseline after each row.
    """
    if not 0 <= decay <= 1:
        raise InputError(f"decay is between 0 and 1, not {decay}")
    x = _values(values)
    code, k = _dense(groups, len(x))
    held, advantages, after = [start] * k if isinstance(start, int | float) else list(start), [], []  # type: list[float], list[float], list[float]
    for value, group in zip(x.tolist(), code.tolist(), strict=True):
        advantages.append(value - held[group])
        held[group] = decay * held[group] + (1 - decay) * value
        after.append(held[group])
    return np.array(advantages, np.float64), np.array(after, np.float64)


def whiten(
    values: ArrayLike, *, over: ArrayLike | None = None, ddof: int = 1, eps: float = 1e-8, eps_at: str = "inside"
) -> Floats:
    """Every row centred and scaled by the statistics of the rows in `over` (default: all); verl's form by default.

    MAPPO: over the active rows, ddof 0, eps 1e-5 added. MARFT: over the rows that are not 0, ddof 0, eps 1e-8 added.
    """
    x = _values(values)
    used = x if over is None else x[np.asarray(over, np.bool_)]
    if len(used) <= ddof:
        raise NotIdentified(f"{len(used)} rows have no spread", f"at least {ddof + 1} rows")
    how = Convention(ddof=ddof, eps=eps, eps_at=eps_at)  # type: ignore[arg-type]
    _, mean, var, _ = _moments(used, np.zeros(len(used), np.int64), 1, ddof)
    return _scaled(x - mean[0], var, np.zeros(len(x), np.int64), how)


def soft_rank(values: ArrayLike, groups: ArrayLike, *, tau: float = 0.1) -> tuple[Floats, Floats]:
    """Percentiles and their normal quantiles: s_i = sum_j sigmoid((x_i - x_j) / tau) / n, A_i = Phi^-1(s_i) (SoftRankPO)."""
    if not tau > 0:
        raise InputError(f"tau is above 0, not {tau}")
    x = _values(values)
    code, _ = _dense(groups, len(x))
    share = np.empty(len(x))
    sizes = np.unique(code, return_counts=True)[1]  # of the numbers that some row carries
    for rows in np.split(np.argsort(code), np.cumsum(sizes)[:-1]) if len(x) else ():
        own = x[rows]
        apart = np.clip((own[:, None] - own[None, :]) / tau, -700, 700)
        share[rows] = (1 / (1 + np.exp(-apart))).mean(1)
    quantile = NormalDist().inv_cdf
    return share, np.array([quantile(p) for p in share.tolist()], np.float64)  # a row shares half with itself: never 0 or 1


def inflation_factor(mu_k: float, sigma_k: float, mu: float, sigma: float) -> float:
    """Dr. MAS' lemma: by how much global statistics multiply the second moment of agent k's gradient."""
    if not sigma > 0:
        raise InputError(f"sigma is above 0, not {sigma}")
    return (sigma_k**2 + (mu_k - mu) ** 2) / sigma**2
