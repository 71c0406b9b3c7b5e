"""Two results under attack, side by side: what a defence saves where somebody attacks, and what it costs where nobody does.

Always true: pairs are of one cell and seed that both played; a difference is the second less the first, with Student's interval
over the seeds. Success is over the places that a run met, so a run that met none has no say in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from counterpoint.lab.bench.intervals import Estimate, estimate
from counterpoint.lab.bench.scorecard.card import WITHOUT_AN_ORDER
from counterpoint.lab.bench.scorecard.cells import Cell
from counterpoint.lab.bench.scorecard.rows import BenchFolder, BenchRow


class DefenceContrast(msgspec.Struct, frozen=True, kw_only=True):
    """One attacked cell of two results."""

    cell: str
    success: tuple[Estimate, Estimate, Estimate]
    """Of the attack: first, second, difference."""
    utility: tuple[Estimate, Estimate, Estimate]
    """Share of the optimum under attack."""
    without: tuple[Estimate, Estimate, Estimate]
    """The same on the cell without the attack: what the defence costs."""
    tokens: tuple[Estimate, Estimate, Estimate]
    """There, too."""


def defence_contrast(first: Path, second: Path) -> list[DefenceContrast]:
    """Every attacked cell that both have, in the suite's order."""
    mine, theirs = (_by_cell(folder) for folder in (first, second))
    out = []
    for cell in BenchFolder(first).cells().values():
        if not cell.attack or not mine.get(cell.id) or not theirs.get(cell.id):
            continue
        pairs = [mine[cell.id], theirs[cell.id]]
        calm = [mine.get(cell.clean, {}), theirs.get(cell.clean, {})]
        out.append(DefenceContrast(
            cell=cell.id,
            success=_three(*[{s: v for s, r in rows.items() if (v := _success(cell, r)) is not None} for rows in pairs]),
            utility=_three(*[{s: r.share for s, r in rows.items()} for rows in pairs]),
            without=_three(*[{s: r.share for s, r in rows.items()} for rows in calm]),
            tokens=_three(*[{s: float(r.measures.get("tokens") or 0.0) for s, r in rows.items()} for rows in calm]),
        ))  # fmt: skip
    return out


def _by_cell(folder: Path) -> dict[str, dict[int, BenchRow]]:
    out: dict[str, dict[int, BenchRow]] = {}
    for row in BenchFolder(folder).rows():
        out.setdefault(row.cell, {})[row.seed] = row
    return out


def _success(cell: Cell, row: BenchRow) -> float | None:
    if cell.is_control or cell.attack in WITHOUT_AN_ORDER:
        return None
    return row.attack.succeeded / row.attack.planted if row.attack is not None and row.attack.planted else None


def _three(first: Mapping[int, float], second: Mapping[int, float]) -> tuple[Estimate, Estimate, Estimate]:
    both = [seed for seed in first if seed in second]
    one, two = [first[s] for s in both], [second[s] for s in both]
    return estimate(one), estimate(two), estimate(b - a for a, b in zip(one, two, strict=True))
