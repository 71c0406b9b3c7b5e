"""The rows of a benchmark in a folder: one line for each run of a cell.

Always true: a row says which code played it, and only rows of the code that was played last are results: what was repaired is
played again, and rows of other code stay in the file uncounted. Results of another suite, team or version are not mixed in.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from counterpoint import __version__
from counterpoint.lab.bench.results import ResultFolder, read_lines
from counterpoint.lab.bench.scorecard.attack_rows import AttackRow
from counterpoint.lab.bench.scorecard.cells import suite
from counterpoint.lab.bench.scorecard.contestants import Contestant

FORMAT = 1
_SAME = ("format", "suite", "suite_digest", "version", "team", "model", "options", "gates", "first_seed")


class BenchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one cell."""

    cell: str
    seed: int
    status: str
    why: str
    value: float
    """What the team earned: points of a world, the score of a task."""
    share: float
    """Of the optimum."""
    success: float
    """E1 as the audit reads it; for a world the share of the optimum, between 0 and 1."""
    measures: dict[str, float | None]
    """E1 to E4, cost and scale, by their names in the audit; None where the trace does not say."""
    attack: AttackRow | None
    tool_calls: int | None
    """As the bench counted them; None where it did not."""
    told_tool_calls: int | None
    """As the team recorded them."""
    cpu_s: float
    digest: str
    """Of what the trace says was said and done: a second machine can compare."""
    code: str = ""
    """The sum of the team's code (`team_code`); empty where all of it came with the version."""
    at: float | None = None
    """When it was played, in seconds since 1970."""
    limit_s: float | None = None
    """What a run that hung was given."""


class BenchFolder(ResultFolder):
    """A folder of results of one team on one suite."""

    HEAD, NAME, MAKER = "about.json", "results", "counterpoint bench run short --team ..."

    @classmethod
    def begin(cls, path: Path, suite_name: str, team: Contestant, seeds: Sequence[int]) -> BenchFolder:
        """The folder, made where it is missing, or checked where it is there already."""
        folder, code = cls(path), team.code()
        about = {
            **team.about(), "format": FORMAT, "suite": suite_name,
            "suite_digest": digest_of([c.as_dict() for c in suite(suite_name)]), "version": __version__,
            "python": platform.python_version(), "first_seed": seeds[0], "code": code.digest, "code_files": list(code.files),
        }  # fmt: skip
        folder.enter(about, same=_SAME, renew=("code", "code_files"))
        return folder

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """Whether a folder holds results: a run of `counterpoint train` has a description, too, and no rows."""
        return super().is_at(path) and cls(path).lines.is_file()

    @property
    def lines(self) -> Path:
        """The file of the rows."""
        return self.path / "rows.jsonl"

    def rows(self) -> list[BenchRow]:
        """The rows that count: of the code that the head names, and of a run that was played again the later."""
        code = self.head().get("code", "")
        return list({(r.cell, r.seed): r for r in self.every_row() if r.code == code}.values())

    def every_row(self) -> list[BenchRow]:
        """Every row, whatever code played it."""
        return read_lines(self.lines, BenchRow, fix="remove the line", is_growing=True) if self.lines.is_file() else []


def digest_of(value: Any) -> str:
    """Twelve hex digits of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]
