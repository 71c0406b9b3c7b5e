"""Labelled messages as rows of Parquet, with the runs that they are of (zip, a .jsonl each): one part of a folder is two files.

Always true: a part is written whole or not at all, runs first; texts and runs are masked; a message of a held-out run has no
label in any file. `read_messages` reads a folder or one file of rows.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec

import counterpoint.registry as registry
from counterpoint.errors import InputError, NotFound
from counterpoint.files import put
from counterpoint.lab.bench.messages.plan import PART
from counterpoint.trace import Trace
from counterpoint.trace.tabular import Tabular

ABOUT = "about.json"
COLUMNS = {
    "run": "string",
    "group": "string",
    "team": "string",
    "task": "string",
    "topology": "string",
    "model": "string",
    "seed": "int64",
    "split": "string",
    "event": "string",
    "kind": "string",
    "sender": "string",
    "receiver": "string",
    "text": "string",
    "place": "int64",
    "of": "int64",
    "length": "int64",
    "readers": "int64",
    "reward": "double",
    "change": "string",
    "value": "double",
    "se": "double",
    "here": "double",
    "pairs": "list:double",
    "forks": "int64",
    "calls": "int64",
    "calls_here": "int64",
}
"""Column to its type."""


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One message and one change of it; labels are None where they are held out, and where no fork could be made."""

    run: str
    group: str
    """The instance: its samples have it in common."""
    team: str
    task: str
    topology: str
    model: str
    seed: int
    split: str
    """`public` or `held out`."""
    event: str
    kind: str
    """`order`, `return` or `peer`."""
    sender: str
    receiver: str
    text: str
    place: int
    """Among the messages of its run, from 0."""
    of: int
    length: int
    """Characters."""
    readers: int
    """Recorded edges that lead away from it."""
    reward: float
    """The run's."""
    change: str
    """`delete`, `neutral`, `other` or `delay`: what the run is compared with."""
    value: float | None = None
    """E[R | up to the message] - E[R | up to it, changed, others react], over fresh noise that both arms share."""
    se: float | None = None
    here: float | None = None
    """The same on the recorded noise: what this run would have lost."""
    pairs: list[float] | None = None
    """The differences that `value` is the mean of."""
    forks: int | None = None
    calls: int | None = None
    """Model calls of all forks that the recording could not answer."""
    calls_here: int | None = None
    """Those of the fork behind `here`."""

    @property
    def is_label(self) -> bool:
        """Whether there is one."""
        return self.value is not None

    @property
    def is_zero(self) -> bool:
        """Whether no fork came out otherwise."""
        return not any(self.pairs or ()) and not self.here


@dataclass(frozen=True)
class Messages(Tabular):
    """The rows of a folder."""

    TABLE: ClassVar = COLUMNS

    rows: tuple[MessageRow, ...]
    folder: Path | None = None
    """Where its runs are; None for a single file."""
    about: dict[str, Any] = field(default_factory=dict)

    def caption(self) -> str:
        """How many."""
        return f"{len(self.rows)} labelled messages of {len({r.run for r in self.rows})} runs"

    def runs(self) -> Mapping[str, Trace]:
        """The runs by name, each read when it is asked for."""
        if self.folder is None:
            raise NotFound("a file of rows has no runs beside it", fix="name the folder that has both")
        return _Runs(self.folder)


class _Runs(Mapping[str, Trace]):
    """Runs in the files of a folder; those asked for last stay in memory."""

    def __init__(self, folder: Path) -> None:
        self._file: dict[str, Path] = {}
        for path in sorted(folder.glob("runs-*.zip")):
            with zipfile.ZipFile(path) as files:
                self._file |= dict.fromkeys((member.removesuffix(".jsonl") for member in files.namelist()), path)
        self._read = lru_cache(maxsize=PART)(self._trace)

    def _trace(self, name: str) -> Trace:
        with zipfile.ZipFile(self._file[name]) as files:
            [found] = registry.get("format", "jsonl").read(files.read(f"{name}.jsonl"))
        return cast("Trace", found)

    def __getitem__(self, name: str) -> Trace:
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def __len__(self) -> int:
        return len(self._file)


def read_messages(place: str | os.PathLike[str]) -> Messages:
    """Labelled messages from the folder that `counterpoint bench messages` fills, or from one Parquet file of rows.

    `.rows` are `MessageRow`s, `.to_arrow()`, `.to_pandas()` and `.to_polars()` the table, `.runs()` the recorded runs.
    """
    path = Path(place)
    if path.is_file():
        return Messages(_rows(path))
    parts = sorted(path.glob("rows-*.parquet"))
    if not parts:
        fix = "counterpoint bench messages FOLDER --samples 16 labels the messages of 16 runs"
        raise NotFound("there are no labelled messages", where=os.fspath(place), fix=fix)
    about = json.loads((path / ABOUT).read_text()) if (path / ABOUT).is_file() else {}
    return Messages(tuple(row for part in parts for row in _rows(part)), path, about)


def _rows(path: Path) -> tuple[MessageRow, ...]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        told = pq.read_table(path).to_pylist()
        return tuple(msgspec.convert(row, MessageRow) for row in told)
    except (pa.ArrowException, msgspec.ValidationError) as error:
        raise InputError(f"no rows of labelled messages: {error}", where=str(path), fix="a file of `bench messages`") from None


def write_part(folder: Path, number: int, rows: Sequence[MessageRow], runs: Sequence[Trace]) -> None:
    """One part; the rows come last, and say that it is there."""
    import pyarrow.parquet as pq

    out, packed = BytesIO(), BytesIO()
    pq.write_table(Messages(tuple(rows)).to_arrow(), out, compression="zstd")
    with zipfile.ZipFile(packed, "w") as files:
        for trace in runs:  # a member has the same date whenever it is written
            member = zipfile.ZipInfo(f"{trace.trace_id}.jsonl")
            files.writestr(member, registry.get("format", "jsonl").write(trace), zipfile.ZIP_DEFLATED)
    put([(folder / f"runs-{number:05d}.zip", packed.getvalue())])
    put([(folder / f"rows-{number:05d}.parquet", out.getvalue())])


def has_part(folder: Path, number: int) -> bool:
    """Whether a part is there."""
    return (folder / f"rows-{number:05d}.parquet").is_file()
