"""The rows of a benchmark in a folder: one line for each run of a cell.

Always true: a row says which code played it, and only rows of the code that was played last are results: what was repaired is
played again, and rows of other code stay in the file uncounted. So it is with cases of your own that have changed. Results of
another suite, team or version are not mixed in.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from counterpoint import __version__
from counterpoint.lab.bench.results import ResultFolder, digest_of, read_lines
from counterpoint.lab.bench.scorecard.attack_rows import AttackRow
from counterpoint.lab.bench.scorecard.cells import Cell, suite
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
    case: str = ""
    """The sum of a case of your own; empty where the suite is ours."""
    limit_s: float | None = None
    """What a run that hung was given."""


class BenchFolder(ResultFolder):
    """A folder of results of one team on one suite."""

    HEAD, NAME, MAKER = "about.json", "results", "counterpoint bench run short --team ..."

    @classmethod
    def begin(
        cls, path: Path, suite_name: str, team: Contestant, seeds: Sequence[int], cells: Sequence[Cell] = (), *,
        is_own: bool = False,
    ) -> BenchFolder:  # fmt: skip
        """The folder, made where it is missing, or checked where it is there already; cells that `is_own` may change."""
        folder, code = cls(path), team.code()
        cases = {c.id: c.key for c in cells}
        plain = cases if is_own else [c.as_dict() for c in suite(suite_name)]
        about = {
            **team.about(), "format": FORMAT, "suite": suite_name, "suite_digest": digest_of(plain), "version": __version__,
            "python": platform.python_version(), "first_seed": seeds[0], "code": code.digest, "code_files": list(code.files),
        }  # fmt: skip
        if is_own:
            same = [name for name in _SAME if name != "suite_digest"]
            folder.enter(about | {"cases": cases}, same=same, renew=("code", "code_files", "suite_digest", "cases"))
        else:
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

    @property
    def store(self) -> Path:
        """The folder of the traces of cases of your own: CASE-SEED, as played last."""
        return self.path / "store"

    def rows(self) -> list[BenchRow]:
        """The rows that count: of the code that the head names, and of a run that was played again the later."""
        head = self.head()
        code, cases = head.get("code", ""), head.get("cases", {})
        same = (r for r in self.every_row() if r.code == code and r.case == cases.get(r.cell, ""))
        return list({(r.cell, r.seed): r for r in same}.values())

    def cells(self) -> dict[str, Cell]:
        """What was to be played, by id; of a case of your own its name alone."""
        head = self.head()
        if "cases" in head:
            return {id_: Cell(id=id_, kind="own", band=0, name=head["suite"]) for id_ in head["cases"]}
        return {c.id: c for c in suite(head["suite"])}

    def every_row(self) -> list[BenchRow]:
        """Every row, whatever code played it."""
        return read_lines(self.lines, BenchRow, fix="remove the line", is_growing=True) if self.lines.is_file() else []
