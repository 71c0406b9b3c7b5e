"""The leaderboard: who ranks the messages of a run as their labels do, is calibrated, and at which cost.

Always true: ranks are compared inside a run, and a mean over runs has Student's interval over instances, whose samples are one
number; a run whose labels are all equal has no order and is not counted, an estimator that says the same of all its messages has
0. "Among non-zero" leaves out the messages that no fork found to matter, which are most.

Labels have noise, so that nobody reaches 1. With r the mean correlation, inside a run, of labels by one half of the pairs with
labels by the other (all ways to halve them), the labels' reliability is 2 r / (1 + r) (Spearman 1910, Brown 1910) and what a
perfect estimator of the expected value could reach about its root. It is a guide: the formula is of linear correlations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from counterpoint.lab.bench.intervals import Estimate, estimate
from counterpoint.lab.bench.messages.estimators import Batch, Estimates, Estimator
from counterpoint.lab.bench.messages.rows import MessageRow
from counterpoint.trace import statistics

_Z = 1.959964
_WAYS = 35


class Scores(NamedTuple):
    """Spearman by instance."""

    within: dict[str, float]
    nonzero: dict[str, float]


class BoardRow(Struct, frozen=True, kw_only=True):
    """One estimator against the labels."""

    estimator: str
    covers: float
    """Share of the messages that it has a number for."""
    within: Estimate
    """Spearman inside a run."""
    nonzero: Estimate
    """The same among the messages that some fork found to matter."""
    pooled: float | None
    """Spearman over all messages at once."""
    slope: float | None
    """Of labels on estimates: 1 where estimates are amounts of reward and right on average."""
    holds: float | None
    """Share of its nominal 95 % intervals that the label is in, the label's own error counted in; None without intervals."""
    calls: float
    """Model calls a message."""
    why_not: str = ""


class Ceiling(Struct, frozen=True, kw_only=True):
    """What the labels' noise leaves."""

    messages: int
    runs: int
    instances: int
    zeros: float
    """Share of messages that no fork found to matter."""
    halves: Estimate
    """Spearman inside a run of labels by half of the pairs with labels by the other half."""
    nonzero_halves: Estimate
    single: Estimate
    """The same of one pair of forks with the other pairs: what a pair is worth as an estimate."""
    repeat: float | None
    """What labels made again would reach against these: their reliability."""
    ceiling: float | None
    """What perfect knowledge of the expected value would reach."""
    nonzero_ceiling: float | None
    calls: float
    """Model calls of a label."""


def _by_instance(rows: Sequence[MessageRow], value: Mapping[int, float], label: Sequence[float]) -> dict[str, float]:
    """Mean Spearman over the runs of each instance."""
    by_run: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        by_run[row.run].append(i)
    found: dict[str, list[float]] = defaultdict(list)
    for places in by_run.values():
        y = np.round([label[i] for i in places], 12)
        if len(places) < 3 or np.ptp(y) == 0:
            continue
        x = np.round([value.get(i, 0.0) for i in places], 12)
        found[rows[places[0]].group].append(statistics.spearman(x, y) or 0.0)
    return {group: float(np.mean(some)) for group, some in found.items()}


def _nonzero(rows: Sequence[MessageRow]) -> list[int]:
    return [i for i, row in enumerate(rows) if not row.is_zero]


def _part(rows: Sequence[MessageRow], value: Mapping[int, float], label: Sequence[float], places: list[int]) -> dict[str, float]:
    """`_by_instance` of some of the rows."""
    given = {n: value[i] for n, i in enumerate(places) if i in value}
    return _by_instance([rows[i] for i in places], given, [label[i] for i in places])


def scores(rows: Sequence[MessageRow], found: Estimates) -> Scores:
    """Spearman of an estimator in every instance."""
    value = {i: found.values[r.run, r.event] for i, r in enumerate(rows) if (r.run, r.event) in found.values}
    label = [r.value or 0.0 for r in rows]
    return Scores(_by_instance(rows, value, label), _part(rows, value, label, _nonzero(rows)))


def board_row(name: str, rows: Sequence[MessageRow], found: Estimates) -> BoardRow:
    """One line of the leaderboard."""
    if not found.values:
        none = Estimate(None, None, None, 0)
        return BoardRow(
            estimator=name, covers=0.0, within=none, nonzero=none, pooled=None, slope=None, holds=None, calls=found.calls,
            why_not=found.why_not or "it has no number for any message",
        )  # fmt: skip
    its = scores(rows, found)
    places = [(r.run, r.event) for r in rows]
    x = np.array([found.values.get(at, 0.0) for at in places])
    y = np.array([r.value or 0.0 for r in rows])
    holds = [
        abs(found.values[at] - (r.value or 0.0)) <= _Z * float(np.hypot(found.se[at], r.se or 0.0)) + 1e-12
        for at, r in zip(places, rows, strict=True)
        if at in found.se
    ]
    spread = float(((x - x.mean()) ** 2).sum())
    return BoardRow(
        estimator=name,
        covers=float(np.mean([at in found.values for at in places])),
        within=estimate(its.within.values()),
        nonzero=estimate(its.nonzero.values()),
        pooled=statistics.spearman(np.round(x, 12), np.round(y, 12)),
        slope=float(((x - x.mean()) * (y - y.mean())).sum() / spread) if spread > 1e-12 else None,
        holds=float(np.mean(holds)) if holds else None,
        calls=found.calls,
    )


def _agreement(rows: Sequence[MessageRow], size: int) -> tuple[Estimate, Estimate]:
    """Correlation inside a run of labels by so many of the pairs with labels by as many others, or by all others where it is one
    pair: of all messages, and among non-zero ones."""
    k = min((len(r.pairs or ()) for r in rows), default=0)
    every: dict[str, list[float]] = defaultdict(list)
    matter: dict[str, list[float]] = defaultdict(list)
    for way in [c for c in combinations(range(k), size) if size == 1 or k % 2 or 0 in c][:_WAYS]:
        rest = [i for i in range(k) if i not in way][: None if size == 1 else size]
        one, other = ([float(np.mean([(r.pairs or [])[i] for i in some])) for r in rows] for some in (way, rest))
        value = dict(enumerate(one))
        for into, found in ((every, _by_instance(rows, value, other)), (matter, _part(rows, value, other, _nonzero(rows)))):
            for group, r in found.items():
                into[group].append(r)
    means = ({g: float(np.mean(v)) for g, v in some.items()} for some in (every, matter))
    one_of, other_of = (estimate(some.values()) for some in means)
    return one_of, other_of


def stepped_up(r: float | None) -> float | None:
    """Reliability of the whole from the correlation of its halves: 2 r / (1 + r); 0 where halves do not agree."""
    return None if r is None else 2 * max(r, 0.0) / (1 + max(r, 0.0))


def ceiling(rows: Sequence[MessageRow]) -> Ceiling:
    """What the labels can show."""
    k = min((len(r.pairs or ()) for r in rows), default=0)
    every, matter = _agreement(rows, max(1, k // 2))
    repeat, again = stepped_up(every.mean), stepped_up(matter.mean)
    return Ceiling(
        messages=len(rows),
        runs=len({r.run for r in rows}),
        instances=len({r.group for r in rows}),
        zeros=float(np.mean([r.is_zero for r in rows])) if rows else 0.0,
        halves=every,
        nonzero_halves=matter,
        single=_agreement(rows, 1)[0],
        repeat=repeat,
        ceiling=None if repeat is None else repeat**0.5,
        nonzero_ceiling=None if again is None else again**0.5,
        calls=float(np.mean([r.calls or 0 for r in rows])) if rows else 0.0,
    )


def board(batch: Batch, estimators: Mapping[str, Estimator]) -> list[BoardRow]:
    """All estimators, the best inside a run first; those without numbers last."""
    found = [board_row(name, batch.rows, make(batch)) for name, make in estimators.items()]
    return sorted(found, key=lambda row: -2.0 if row.within.mean is None else -row.within.mean)
