"""The rows of a race in a folder: one file per training run, and who is at work on which.

Always true: a row appears whole or not at all and is never written twice; a run is claimed by a lock that the system frees when
its holder dies, so several processes share a folder. `race.json` says what all rows have in common.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.files import put
from counterpoint.lab.bench.results import ResultFolder, read_lines, read_object
from counterpoint.store.disk import lock

if TYPE_CHECKING:
    from counterpoint.lab.bench.race.plan import RaceRun

FORMAT = 1
_MEND = "remove it, and run the same command again"
_DECIDES = ("lab/worlds", "rewards", "credits", "lab/train", "trace")
"""Rooms whose code decides what a run gives."""


@cache
def code_digest() -> str:
    """A sum of the source files that decide what a run gives."""
    root, total = Path(__file__).parents[3], hashlib.blake2b(digest_size=6)
    for path in sorted(p for room in _DECIDES for p in (root / room).rglob("*.py")):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


class Claim:
    """The right to compute one row, until `close`, or until this process ends."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd, self._path = fd, path

    def close(self) -> None:
        """Give it back; the lock file goes first, so that nobody takes one that is about to go."""
        if self._fd >= 0:
            with suppress(FileNotFoundError):
                self._path.unlink()
            os.close(self._fd)
            self._fd = -1


class RaceFolder(ResultFolder):
    """A folder with the rows of a race, a file for each."""

    HEAD, NAME, MAKER = "race.json", "rows of a race", "counterpoint compare methods"

    @classmethod
    def begin(cls, path: str | os.PathLike[str], head: Mapping[str, Any]) -> RaceFolder:
        """The folder, made where it is missing; rows of another plan are refused."""
        folder, whole = cls(path), {"format": FORMAT, **head}
        folder.enter(whole, same=whole)
        for name in ("rows", "claims"):
            (folder.path / name).mkdir(parents=True, exist_ok=True)
        return folder

    def rows(self) -> list[dict[str, Any]]:
        """Every row, by name."""
        return [read_object(path, fix=_MEND) for path in sorted((self.path / "rows").glob("*.json"))]

    def row(self, run: RaceRun) -> dict[str, Any] | None:
        """The row of a run, where it counts: a failure of other code is tried again."""
        path = self._row_path(run)
        if not path.is_file():
            return None
        row = read_object(path, fix=_MEND)
        return None if row["status"] == "failed" and row["code"] != code_digest() else row

    def claim(self, run: RaceRun) -> Claim | None:
        """The right to compute a run's row; None where it is there, or somebody else is at it."""
        path = self.path / "claims" / f"{run.name}.lock"
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not lock(fd):
                os.close(fd)
                return None
            if _is_same(fd, path):
                break
            os.close(fd)  # its holder ended between our open and our lock, and took the file along
        claim = Claim(fd, path)
        if self.row(run) is not None:
            claim.close()
            return None
        return claim

    def keep(self, run: RaceRun, result: Mapping[str, Any]) -> dict[str, Any]:
        """Write the row of a run."""
        row = {**run.head(), "code": code_digest(), **result}
        put([(self._row_path(run), json.dumps(row, allow_nan=False).encode() + b"\n")])
        return row

    def _row_path(self, run: RaceRun) -> Path:
        return self.path / "rows" / f"{run.name}.json"


def _is_same(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


# -- many rows in one file ---------------------------------------------------------------------------------------------


def write_rows(path: Path, head: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """A race as one file: its head, then a row a line."""
    put([(path, "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in (head, *rows)).encode())])


def read_rows(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head and the rows of a race: a folder, or a file of `write_rows`."""
    if path.is_dir():
        folder = RaceFolder(path)
        return folder.head(), folder.rows()
    fix = "counterpoint compare standings RACE -o FILE.jsonl writes one"
    try:
        lines = read_lines(path, dict[str, Any], fix=fix)
    except FileNotFoundError as error:
        raise RaceFolder.absent(path) from error
    if not lines or "plan" not in lines[0]:
        raise InputError("does not begin with what its rows have in common", where=str(path), fix=fix)
    return lines[0], lines[1:]


RELEASED = {plan: Path(__file__).parent / "released" / f"{plan}.jsonl" for plan in ("screening",)}
"""The rows that come with the package, by their plan: those of docs/lab/methods.md."""


def race_path(name: str) -> Path:
    """Where a race lies: a folder, a file of rows, or by `released` and `released:PLAN` the rows that come with the package."""
    kind, _, plan = name.partition(":")
    if kind != "released" or Path(name).exists():
        return Path(name)
    if (plan or "screening") not in RELEASED:
        raise NotFound(f"no rows of plan {plan!r} come with Counterpoint", fix=did_you_mean(plan, RELEASED))
    return RELEASED[plan or "screening"]
