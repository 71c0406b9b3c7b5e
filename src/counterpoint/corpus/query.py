"""Which papers fit a question.

Always true: a filter value is a word of the vocabulary, or R1-R8 for a reward, or an `InputError`; values of one filter
are alternatives, different filters all apply; the order of the pool is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from counterpoint.corpus.records import FAMILIES, PAPER_VOCABULARY, Excluded, Paper
from counterpoint.errors import InputError, NotFound, did_you_mean


def words(field: str, values: Sequence[str]) -> tuple[str, ...]:
    """The vocabulary's words for what was asked: case is free, `R7` is `orchestration`."""
    found: list[str] = []
    known: dict[str, tuple[str, ...]] = {word.casefold(): (word,) for word in PAPER_VOCABULARY[field]}
    if field == "reward_type":
        known |= {name.casefold(): tags for name, tags in FAMILIES.items()}
    for value in values:
        asked = value.strip().replace("-", "_").casefold()
        if asked not in known:
            allowed = [*PAPER_VOCABULARY[field], *(FAMILIES if field == "reward_type" else ())]
            raise InputError(f"no {field} {value!r} in the vocabulary", fix=did_you_mean(value, allowed))
        found += known[asked]
    return tuple(found)


def years(text: str) -> tuple[int, int]:
    """The first and last year of `2025` or `2024-2026`."""
    match = re.fullmatch(r"\s*(\d{4})(?:\s*-\s*(\d{4}))?\s*", text)
    if not match:
        raise InputError(f"not a year or range of years: {text!r}", fix="as in 2025 or 2024-2026")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise InputError(f"the range {text!r} ends before it begins", fix=f"{last}-{first}")
    return first, last


def matches_text(text: str, *fields: str) -> bool:
    """Whether every word of `text` occurs somewhere in the fields."""
    hay = " ".join(fields).casefold()
    return all(word in hay for word in text.casefold().split())


def select(
    papers: Iterable[Paper],
    filters: Mapping[str, Sequence[str]],
    *,
    between: tuple[int, int] | None = None,
    text: str = "",
) -> list[Paper]:
    """The papers that pass all filters (field to words, as `words` gives them)."""
    return [
        p
        for p in papers
        if all(getattr(p, field) in allowed for field, allowed in filters.items() if allowed)
        and (between is None or between[0] <= p.year <= between[1])
        and matches_text(text, p.key, p.title, p.first_author, p.one_liner)
    ]


def find(papers: Sequence[Paper], key: str, excluded: Sequence[Excluded] = ()) -> Paper | Excluded:
    """The record of that key, arXiv id or exclusion id."""
    for paper in papers:
        if key in (paper.key, paper.arxiv_id):
            return paper
    for record in excluded:
        if key in (record.record_id, record.identifier, record.identifier.removeprefix("arXiv:")):
            return record
    known = [p.key for p in papers] + [x.record_id for x in excluded]
    raise NotFound(f"no paper {key!r} in the corpus", fix=did_you_mean(key, known))
