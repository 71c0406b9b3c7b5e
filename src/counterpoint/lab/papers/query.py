"""Which papers fit a question.

Always true: a filter value is a word of the vocabulary, or R1-R8 for a reward, or an `InputError`; values of one filter
are alternatives, different filters all apply; the order of the pool is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.lab.papers.records import FAMILIES, PAPER_VOCABULARY, ClaimSpec, Excluded, Mark, Paper


def words(field: str, values: Sequence[str]) -> tuple[str, ...]:
    """The vocabulary's words for what was asked: case is free, `R7` is `orchestration`."""
    names: list[str] = []
    known: dict[str, tuple[str, ...]] = {word.casefold(): (word,) for word in PAPER_VOCABULARY[field]}
    if field == "reward_type":
        known |= {name.casefold(): tags for name, tags in FAMILIES.items()}
    for value in values:
        asked = value.strip().replace("-", "_").casefold()
        if asked not in known:
            allowed = [*PAPER_VOCABULARY[field], *(FAMILIES if field == "reward_type" else ())]
            raise InputError(f"no {field} {value!r} in the vocabulary", fix=did_you_mean(value, allowed))
        names += known[asked]
    return tuple(names)


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


FIELDS = {
    "reward": "reward_type", "credit": "credit_granularity", "category": "category", "form": "orchestration_form",
    "scenario": "scenario", "core": "is_core", "rl": "is_rl",
}  # fmt: skip
"""What a query calls a field, and its name in the records."""


class Query(msgspec.Struct, frozen=True):
    """A question about the pool, such as `reward:R7 credit:orchestrator,role year:2025-2026 self-play`."""

    filters: dict[str, tuple[str, ...]]
    between: tuple[int, int] | None = None
    text: str = ""
    is_excluded: bool = False
    """Whether it asks for the exclusions (`excluded:yes`)."""


def parsed(text: str) -> Query:
    """The query of a line of words; values of one field are alternatives, different fields all apply."""
    filters: dict[str, tuple[str, ...]] = {}
    between, plain, is_excluded = None, [], False
    for word in text.split():
        name, colon, value = word.partition(":")
        if not colon:
            plain.append(word)
        elif name in FIELDS:
            asked = ["core" if (name, v) == ("core", "yes") else v for v in value.split(",")]
            filters[FIELDS[name]] = (*filters.get(FIELDS[name], ()), *words(FIELDS[name], asked))
        elif name == "year":
            between = years(value)
        elif name == "excluded" and value == "yes":
            is_excluded = True
        else:
            raise InputError(f"no filter {word!r}", where="QUERY", fix=did_you_mean(name, [*FIELDS, "year", "excluded:yes"]))
    if is_excluded and (filters or between):
        raise InputError("exclusions have no tags to filter by", where="QUERY", fix="excluded:yes and plain words only")
    return Query(filters, between, " ".join(plain), is_excluded)


def find(papers: Sequence[Paper], key: str, excluded: Sequence[Excluded] = ()) -> Paper | Excluded:
    """The record of that key, arXiv id or exclusion id."""
    for paper in papers:
        if key in (paper.key, paper.arxiv_id):
            return paper
    for record in excluded:
        if key in (record.record_id, record.identifier, record.identifier.removeprefix("arXiv:")):
            return record
    known = [p.key for p in papers] + [x.record_id for x in excluded]
    raise NotFound(f"no paper {key!r}", fix=did_you_mean(key, known))


# -- The survey's sparsity claims, counted again from rows and marks --------------------------------------------------
# Always true: every number in a claim is the length of a list of keys that the claim also gives; a claim says what counts
# and what does not; it speaks of this pool as of 4 May 2026 and of nothing else. `since` says what our own look beyond
# the pool found.

AS_OF = "2026-05-04"  # the day the survey's pool was closed
SINCE = "2026-11-15"  # the day of our own look at what has been published since


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with its numbers and the rows behind them.

    `status`: `differs` (these rows do not give the survey's numbers), `moved` (true of the pool, no longer of the
    field), `corrected` (a first-hand reading changes the count), `holds`, or `counted` (the survey names no number).
    """

    id: str
    statement: str
    boundary: str
    counts: dict[str, int]
    rows: dict[str, list[str]]
    reasons: dict[str, str]
    stated: dict[str, int]
    errata: list[str]
    since: str | None
    since_refs: list[str]
    status: str
    as_of: str = AS_OF


def _fits(paper: Paper, selector: Mapping[str, Sequence[str]]) -> bool:
    for field, allowed in selector.items():
        value = getattr(paper, field)
        barred = [word[1:] for word in allowed if word.startswith("!")]
        if value in barred or (not barred and value not in allowed):
            return False
    return True


def _rows(spec: ClaimSpec, papers: Sequence[Paper], marks: Mapping[str, Mark]) -> dict[str, list[str]]:
    """The keys behind each number, in the pool's order."""
    tagged = [p for p in papers if (_fits(p, spec.select) if spec.select is not None else p.key in marks)]
    keys = [p.key for p in tagged]
    others = [p.key for p in papers if p.key in marks and p.key not in set(keys)]
    read = [k for k in keys if k in marks]
    strict = [k for k in read if marks[k].value in spec.strict]
    if spec.strict_select is not None:
        strict = [p.key for p in tagged if _fits(p, spec.strict_select)]
    near = [k for k in read if marks[k].value in spec.near]
    statements = {k: marks[k].stated or marks[k].value for k in read}
    return {
        "tags": keys,
        "strict": strict,
        "near": near,
        "strict_or_near": [k for k in keys if k in {*strict, *near}],
        "stated_strict": [k for k in read if statements[k] in spec.strict],
        "stated_near": [k for k in read if statements[k] in spec.near],
        "outside": [k for k in others if marks[k].value in spec.strict],
        "unread": [k for k in keys if k not in marks] if spec.complete else [],
    }


def _status(spec: ClaimSpec, counts: Mapping[str, int], corrected: bool) -> str:
    if any(counts[name] != number for name, number in spec.stated.items()):
        return "differs"
    if spec.moved:
        return "moved"
    if corrected:
        return "corrected"
    return "holds" if spec.stated else "counted"


def _reason(mark: Mark) -> str:
    return f"{mark.value}. {mark.reason} ({mark.label})"


def claim(spec: ClaimSpec, papers: Sequence[Paper], marks: Iterable[Mark]) -> Claim:
    """One claim, counted over these rows."""
    by_key = {m.key: m for m in marks if m.mark == spec.mark}
    rows = _rows(spec, papers, by_key)
    numbers = {name: len(keys) for name, keys in rows.items()}
    corrected = rows["stated_strict"] != rows["strict"] and spec.strict_select is None
    corrected |= rows["stated_near"] != rows["near"]
    return Claim(
        id=spec.id,
        statement=spec.statement.format_map(numbers),
        boundary=spec.boundary,
        counts=numbers,
        rows=rows,
        reasons={k: _reason(by_key[k]) for k in rows["tags"] if k in by_key},
        stated=dict(spec.stated),
        errata=sorted({*spec.errata, *(e for k in rows["tags"] if k in by_key and (e := by_key[k].erratum))}),
        since=spec.since,
        since_refs=list(spec.since_refs),
        status=_status(spec, numbers, corrected),
    )


def claims(specs: Iterable[ClaimSpec], papers: Sequence[Paper], marks: Iterable[Mark]) -> list[Claim]:
    """All claims, in the file's order."""
    held = list(marks)
    return [claim(spec, papers, held) for spec in specs]


# -- The counts and cross-tables of the survey's statistics page, from the rows ---------------------------------------
# Always true: no number is written here; counts come largest first and ties by name; the cells of a cross-table sum to
# the number of rows.


def counts(papers: Iterable[Paper], field: str) -> dict[str, int]:
    """How many rows carry each word of a field."""
    tally = Counter(getattr(p, field) for p in papers)
    return dict(sorted(tally.items(), key=lambda item: (-item[1], item[0])))


def cross(papers: Sequence[Paper], rows: str, columns: str) -> dict[str, dict[str, int]]:
    """How many rows carry each pair of words; pairs that do not occur are 0."""
    tally = Counter((getattr(p, rows), getattr(p, columns)) for p in papers)
    names = sorted({pair[0] for pair in tally})
    heads = sorted({pair[1] for pair in tally})
    return {name: {head: tally[name, head] for head in heads} for name in names}


def statistics(papers: Sequence[Paper], excluded: Sequence[Excluded]) -> dict[str, Any]:
    """All sections of the survey's statistics."""
    return {
        "headline": {
            "retained": len(papers),
            "excluded": len(excluded),
            "audited": len(papers) + len(excluded),
        },
        "category": counts(papers, "category"),
        "reward_type": counts(papers, "reward_type"),
        "credit_granularity": counts(papers, "credit_granularity"),
        "reward_type_x_credit_granularity": cross(papers, "reward_type", "credit_granularity"),
        "orchestration_form_x_credit_granularity": cross(papers, "orchestration_form", "credit_granularity"),
    }
