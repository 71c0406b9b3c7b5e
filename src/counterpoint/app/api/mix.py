"""Two sets of traces: how much of a change in their totals comes from more traces, another mix of them, and traces alike.

Always true: the three parts sum to the change. A kind of trace is its project, its first model, and whether it is a team, one
agent, or a run that a session made for itself (such as a review); a trace that lacks the figure is left out and counted.

With n traces of mean m on each side, and for each kind its share w and its mean (Kitagawa 1955, Components of a difference
between two rates, JASA 50; here with the number of traces as a third factor):

    change  = n' m' - n m                                     = count + mix + alike
    count   = (n' - n) (m + m') / 2
    mix     = (n + n') / 2 * sum over kinds of (w' - w) (m_kind + m'_kind) / 2
    alike   = (n + n') / 2 * sum over kinds of (w + w') / 2 (m'_kind - m_kind)

A kind that only one side has is counted with the mean of that side on both, so that all of it is mix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from counterpoint.store.summary import Summary

FIGURES = {
    "cost": "cost_usd", "tokens": "tokens", "time": "wall_clock_s", "agents": "agents", "errors": "errors",
    "reward": "team_reward",
}  # fmt: skip
"""What is compared, and where a line of the list has it."""
Kind = tuple[str, str, str]


class Change(Struct, frozen=True, kw_only=True):
    """What became of a figure from one set of traces to the other."""

    totals: tuple[float, float]
    means: tuple[float, float]
    """Per trace."""
    traces: tuple[int, int]
    """Those that have the figure."""
    common: tuple[int, int]
    """How many of them are of kinds that both sides have: `alike` says something of these only."""
    count: float
    """Of the change of the total: because there are more or fewer traces."""
    mix: float
    """Because they are of other projects, models and kinds."""
    alike: float
    """Because traces of the same kind have more or less of it."""


def kind_of(line: Summary) -> Kind:
    """What a trace is compared with: its project, its first model, and what sort of run it is."""
    sort = "run of a session" if line.parent else "team" if line.agents > 1 else "one agent"
    return line.project or "", line.models[0] if line.models else "", sort


def change_of(before: Sequence[Summary], after: Sequence[Summary], field: str) -> Change | None:
    """The change of a figure; None where one side has none of it."""
    sides = _by_kind(before, field), _by_kind(after, field)
    if not all(sides):
        return None
    counts = tuple(sum(map(len, side.values())) for side in sides)
    totals = tuple(math.fsum(v for values in side.values() for v in values) for side in sides)
    (n, n2), (total, total2) = counts, totals
    mean, mean2 = total / n, total2 / n2
    mix = alike = 0.0
    for kind in sides[0].keys() | sides[1].keys():
        one, two = (side.get(kind, []) for side in sides)
        share, share2 = len(one) / n, len(two) / n2
        own = math.fsum(one) / len(one) if one else math.fsum(two) / len(two)
        own2 = math.fsum(two) / len(two) if two else own
        mix += (share2 - share) * (own + own2) / 2
        alike += (share + share2) / 2 * (own2 - own)
    middle = (n + n2) / 2
    shared = sides[0].keys() & sides[1].keys()
    common = sum(len(sides[0][kind]) for kind in shared), sum(len(sides[1][kind]) for kind in shared)
    return Change(
        common=common,
        totals=(total, total2), means=(mean, mean2), traces=(n, n2), count=(n2 - n) * (mean + mean2) / 2,
        mix=middle * mix, alike=middle * alike,
    )  # fmt: skip


def _by_kind(lines: Sequence[Summary], field: str) -> dict[Kind, list[float]]:
    out: dict[Kind, list[float]] = {}
    for line in lines:
        value = getattr(line, field)
        if value is not None:
            out.setdefault(kind_of(line), []).append(float(value))
    return out
