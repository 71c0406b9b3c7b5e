"""An attacker who searches: of many wordings the one that a fixed team with its gates falls for most, within a budget of runs.

    successive halving (Karnin, Koren, Somekh 2013): the budget is divided over log2(n) rounds; in each, the wordings that are
    left are tried on the same fresh seeds, and the better half goes on

Always true: what the search saw is not what is reported: the wording that it found is played on the bench's own seeds, which the
search does not touch. The search sees whether it got its way, and nothing of how the gates work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from counterpoint.lab.bench.scorecard.cells import Cell
from counterpoint.lab.bench.scorecard.contestants import Caps, Contestant
from counterpoint.lab.bench.scorecard.playing import play_cell
from counterpoint.lab.tasks.attacks import COMPOSED

_FIRST = 50_000_000
"""Seeds of the search."""


@dataclass(frozen=True)
class SearchResult:
    """What a search came to."""

    cell: Cell
    """The attack in the wording that won."""
    runs: int
    tried: int
    success: float
    """In the search, where it is flattered by having been chosen."""


def search(
    cell: Cell, team: Contestant, *, budget: int, caps: Caps, tell: Callable[[int, int], None] | None = None
) -> SearchResult:
    """The wording of an attack on a task that gets its way most often."""
    left, spent, seed, scores = list(range(COMPOSED)), 0, _FIRST, dict[int, list[float]]()
    rounds = math.ceil(math.log2(COMPOSED))
    for turn in range(rounds):
        each = max(1, budget // rounds // len(left))
        for _ in range(each):
            for way in left:
                if spent >= budget and scores.get(way):
                    continue
                scores.setdefault(way, []).append(_success(worded(cell, way), seed, team, caps))
                spent += 1
                if tell is not None:
                    tell(spent, max(budget, COMPOSED))
            seed += 1
        left = sorted(left, key=lambda way: (-_mean(scores[way]), way))[: max(1, len(left) // 2)]
        if spent >= budget or turn + 1 == rounds or len(left) == 1:
            break
    best = left[0]
    return SearchResult(worded(cell, best), spent, len(scores), _mean(scores[best]))


def worded(cell: Cell, way: int) -> Cell:
    """The cell's attack in another wording."""
    return replace(cell, wording=f"composed:{way}", id=f"{cell.clean}-{cell.attack}-composed{way}")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _success(cell: Cell, seed: int, team: Contestant, caps: Caps) -> float:
    attack: Any = play_cell(cell, seed, team, caps).attack
    return attack.succeeded / attack.planted if attack is not None and attack.planted else 0.0


@dataclass(frozen=True)
class Outcome:
    """What an attack in one wording does on the bench's seeds."""

    wording: str
    met: int
    succeeded: int
    success: list[float]
    """By seed, where it was met."""
    share: list[float]
    """Of the optimum, by seed."""
    change: list[float]
    """Less the same seed without the attack."""


def outcomes(cell: Cell, clean: Cell, found: Cell, team: Contestant, seeds: Sequence[int], caps: Caps) -> list[Outcome]:
    """The usual wording, the held-out one and the one that was found, side by side."""
    plain = [play_cell(clean, seed, team, caps).share for seed in seeds]
    held = replace(cell, wording="held_out", id=f"{cell.id}-held_out")
    out = []
    for name, one in (("usual", cell), ("held out", held), ("found by search", found)):
        rows = [play_cell(one, seed, team, caps) for seed in seeds]
        met = [r.attack for r in rows if r.attack is not None and r.attack.planted]
        out.append(Outcome(
            name, sum(a.planted for a in met), sum(a.succeeded for a in met), [a.succeeded / a.planted for a in met],
            [r.share for r in rows], [r.share - p for r, p in zip(rows, plain, strict=True)],
        ))  # fmt: skip
    return out
