"""The papers from their files: the package's own, and a user's beside it.

Always true: the order is the file's order; a bad line of a user's file is one `InputError` that names file and line; a
pool never holds the same paper twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from counterpoint.errors import InputError
from counterpoint.files import read_plain
from counterpoint.lab.papers.records import ClaimSpec, Erratum, Excluded, Mark, Paper
from counterpoint.lab.papers.validate import CorpusProblem, UniqueKeys, problems, shape_problems

_BOM = b"\xef\xbb\xbf"

Row = TypeVar("Row", Paper, Excluded, Erratum, Mark, ClaimSpec)


class Pool(msgspec.Struct, frozen=True):
    """All records that a question is asked of."""

    papers: tuple[Paper, ...]
    excluded: tuple[Excluded, ...]


def _builtin(name: str, kind: type[Row]) -> tuple[Row, ...]:
    data = files("counterpoint.lab.papers").joinpath(name).read_bytes()
    decoder = msgspec.json.Decoder(kind)
    return tuple(decoder.decode(line) for line in data.splitlines() if line)


@cache
def papers() -> tuple[Paper, ...]:
    """The 84 retained entries."""
    return _builtin("papers.jsonl", Paper)


@cache
def excluded() -> tuple[Excluded, ...]:
    """The 32 exclusions."""
    return _builtin("excluded.jsonl", Excluded)


@cache
def errata() -> tuple[Erratum, ...]:
    """What was found wrong in the survey's own statements."""
    return _builtin("errata.jsonl", Erratum)


@cache
def marks() -> tuple[Mark, ...]:
    """The hand-coded judgements that claims need and fields do not hold."""
    return _builtin("annotations.jsonl", Mark)


@cache
def claim_specs() -> tuple[ClaimSpec, ...]:
    """The claims, as rules for counting."""
    return _builtin("claims.jsonl", ClaimSpec)


def as_paper(raw: dict[str, Any], *, where: str) -> Paper:
    """A checked paper from its fields, or one `InputError` that lists everything wrong with it."""
    faults: list[CorpusProblem] = shape_problems(raw)
    if not faults:
        paper = msgspec.convert(raw, Paper)
        faults = problems([paper], [])
        if not faults:
            return paper
    raise InputError(
        f"not a valid paper record: {faults[0].what}" if len(faults) == 1 else f"{len(faults)} problems in this record",
        where=where,
        why="; ".join(p.what for p in faults) if len(faults) > 1 else None,
        fix="; ".join(dict.fromkeys(p.hint for p in faults if p.hint)) or None,
    )


def decode_object(data: bytes, *, where: str) -> dict[str, Any]:
    """A JSON object, or an `InputError` that says where it is not one."""
    try:
        raw = msgspec.json.decode(data.removeprefix(_BOM))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError("not JSON", where=where, why=str(error), fix="give one JSON object per paper") from error
    if not isinstance(raw, dict):
        raise InputError("not a JSON object", where=where, fix="give one JSON object with the fields of a paper")
    return raw


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a user's file that hold something, each with its place."""
    for number, line in enumerate(read_plain(path).removeprefix(_BOM).split(b"\n"), 1):
        if line.strip():
            yield f"{path}:{number}", line


def _one(line: bytes, where: str, keys: UniqueKeys) -> Paper:
    paper = as_paper(decode_object(line, where=where), where=where)
    clash = keys.clash(paper)
    if clash:
        raise InputError(clash, where=where, fix="remove the line, or give it another key if it is another paper")
    keys.add(paper)
    return paper


def read_papers(path: Path, others: Sequence[Paper] = ()) -> list[Paper]:
    """The papers of a user's file; one that is wrong, doubled, or among `others` is an `InputError`."""
    keys = UniqueKeys(others)
    return [_one(line, where, keys) for where, line in _lines(path)]


def examine(path: Path, others: Sequence[Paper] = ()) -> tuple[list[Paper], list[InputError]]:
    """As `read_papers`, but goes on after a bad line: the good papers, and every error."""
    rows: list[Paper] = []
    bad: list[InputError] = []
    keys = UniqueKeys(others)
    for where, line in _lines(path):
        try:
            rows.append(_one(line, where, keys))
        except InputError as error:
            bad.append(error)
    return rows, bad


def pool(extra: Sequence[Path] = ()) -> Pool:
    """The built-in pool, and the papers of each file in `extra` after it."""
    rows = list(papers())
    for path in extra:
        rows += read_papers(path, rows)
    return Pool(tuple(rows), excluded())
