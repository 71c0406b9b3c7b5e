"""The controlled vocabulary as a check.

Always true: a record without problems uses only known words in its tags, has a key nobody else has, and every field it
must have; checking reads nothing but its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from counterpoint.errors import did_you_mean
from counterpoint.lab.papers.records import EXCLUDED_VOCABULARY, FAMILIES, PAPER_VOCABULARY, Excluded, Paper

_KEY = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_RECORD_ID = re.compile(r"E\d{3,}")
_ARXIV = re.compile(r"(\d{2})(0[1-9]|1[0-2])\.\d{4,5}")
_ARXIV_OLD = re.compile(r"[a-z-]+(\.[A-Z]{2})?/\d{7}")
_URL = re.compile(r"https?://[^\s/$.?#][^\s]*")
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_FIRST_YEAR, _LAST_YEAR = 1950, 2100
_MAY_BE_EMPTY = {"notes"}


class CorpusProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One finding: a code, the record and field, what is wrong, what would work."""

    code: str
    where: str
    what: str
    hint: str = ""


def field_names() -> tuple[str, ...]:
    """The fields of a paper, in file order."""
    return tuple(f.name for f in msgspec.structs.fields(Paper))


def required_names() -> tuple[str, ...]:
    """The fields that have no default."""
    return tuple(f.name for f in msgspec.structs.fields(Paper) if f.required)


def shape_problems(raw: Mapping[str, Any]) -> list[CorpusProblem]:
    """Unknown, missing and wrongly typed fields of a paper that is still a plain object."""
    where = str(raw.get("key", "?"))
    faults = [
        CorpusProblem(code="unknown_field", where=f"{where}.{name}", what=f"no field {name!r}", hint=_meant(name, field_names()))
        for name in raw
        if name not in field_names()
    ]
    missing = [name for name in required_names() if name not in raw]
    if missing:
        faults.append(CorpusProblem(code="missing_field", where=where, what=f"missing: {', '.join(missing)}"))
    for name in field_names():
        if name not in raw:
            continue
        value = raw[name]
        if name == "year":
            if not isinstance(value, int) or isinstance(value, bool):
                what = f"year must be a whole number, not {value!r}"
                faults.append(CorpusProblem(code="type", where=f"{where}.year", what=what))
        elif not isinstance(value, str) and not (name == "arxiv_id" and value is None):
            faults.append(CorpusProblem(code="type", where=f"{where}.{name}", what=f"{name} must be text, not {value!r}"))
    return faults


def problems(papers: Iterable[Paper], excluded: Iterable[Excluded]) -> list[CorpusProblem]:
    """Everything wrong with these records, in their order; an empty list means none."""
    out: list[CorpusProblem] = []
    keys = UniqueKeys()
    for paper in papers:
        out += _words(paper, paper.key, PAPER_VOCABULARY) + _paper_facts(paper)
        clash = keys.clash(paper)
        if clash:
            out.append(CorpusProblem(code="duplicate", where=paper.key, what=clash))
        keys.add(paper)
    ids: set[str] = set()
    for record in excluded:
        out += _words(record, record.record_id, EXCLUDED_VOCABULARY) + _excluded_facts(record)
        if record.record_id in ids:
            out.append(CorpusProblem(code="duplicate", where=record.record_id, what=f"record_id {record.record_id!r} is taken"))
        ids.add(record.record_id)
    return out


class UniqueKeys:
    """The papers met so far, by what must be unique: key, arXiv id, title."""

    def __init__(self, papers: Iterable[Paper] = ()) -> None:
        self._keys: dict[str, Paper] = {}
        self._ids: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        for paper in papers:
            self.add(paper)

    def add(self, paper: Paper) -> None:
        """Remember a paper."""
        self._keys.setdefault(paper.key, paper)
        self._titles.setdefault(_plain(paper.title), paper.key)
        if paper.arxiv_id is not None:
            self._ids.setdefault(paper.arxiv_id, paper.key)

    def clash(self, paper: Paper) -> str | None:
        """Why `paper` is already there, or None."""
        if paper.key in self._keys:
            return f"key {paper.key!r} is taken by {self._keys[paper.key].title!r}"
        if paper.arxiv_id in self._ids:
            return f"arXiv {paper.arxiv_id} is already there as {self._ids[paper.arxiv_id]!r}"
        if _plain(paper.title) in self._titles:
            return f"the title is already there as {self._titles[_plain(paper.title)]!r}"
        return None


def _plain(title: str) -> str:
    return re.sub(r"\W+", " ", title).strip().casefold()


def _meant(word: str, known: Iterable[str]) -> str:
    # A reader of the survey thinks in R1-R8; the files keep its tag words.
    if word in FAMILIES:
        return "write " + " or ".join(repr(w) for w in FAMILIES[word])
    return did_you_mean(word, known)


def _words(record: Paper | Excluded, name: str, vocabulary: Mapping[str, Sequence[str]]) -> list[CorpusProblem]:
    """Empty and unprintable texts, and tags that are not in the vocabulary."""
    faults = []
    for field in record.__struct_fields__:
        value = getattr(record, field)
        if not isinstance(value, str):
            continue
        where = f"{name}.{field}"
        if field in vocabulary:
            if value not in vocabulary[field]:
                what = f"{field} has no value {value!r}"
                faults.append(CorpusProblem(code="vocabulary", where=where, what=what, hint=_meant(value, vocabulary[field])))
        elif not value.strip() and field not in _MAY_BE_EMPTY:
            faults.append(CorpusProblem(code="empty", where=where, what=f"{field} is empty"))
        elif not value.isprintable():
            faults.append(CorpusProblem(code="unprintable", where=where, what=f"{field} holds a control character or line break"))
    return faults


def _paper_facts(paper: Paper) -> list[CorpusProblem]:
    faults = []

    def add(code: str, field: str, what: str, hint: str = "") -> None:
        faults.append(CorpusProblem(code=code, where=f"{paper.key}.{field}", what=what, hint=hint))

    if not _KEY.fullmatch(paper.key):
        add("key", "key", f"key {paper.key!r} has the wrong form", "use lower-case letters, digits, - and .")
    if not _FIRST_YEAR <= paper.year <= _LAST_YEAR:
        add("year", "year", f"year {paper.year} is not between {_FIRST_YEAR} and {_LAST_YEAR}")
    if paper.arxiv_id is not None:
        modern = _ARXIV.fullmatch(paper.arxiv_id)
        if not modern and not _ARXIV_OLD.fullmatch(paper.arxiv_id):
            add(
                "arxiv_id",
                "arxiv_id",
                f"arXiv id {paper.arxiv_id!r} has the wrong form",
                "as in 2605.02801, no version",
            )
        elif modern and paper.year < 2000 + int(modern[1]):
            add("year", "year", f"year {paper.year} is before its arXiv id {paper.arxiv_id}")
    if not all(_URL.fullmatch(url) for url in paper.url.split(" ; ")):
        add("url", "url", f"url {paper.url!r} has the wrong form", "http(s) addresses, several parted by ' ; '")
    return faults


def _excluded_facts(record: Excluded) -> list[CorpusProblem]:
    checks = (
        ("record_id", _RECORD_ID, "as in E033"),
        ("url", _URL, "an http(s) address"),
        ("date_screened", _DATE, "as in 2026-04-26"),
    )
    return [
        CorpusProblem(
            code=field,
            where=f"{record.record_id}.{field}",
            what=f"{field} {getattr(record, field)!r} has the wrong form",
            hint=hint,
        )
        for field, pattern, hint in checks
        if not pattern.fullmatch(getattr(record, field))
    ]
