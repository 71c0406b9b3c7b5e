"""The survey's sparsity claims, counted again from rows and marks.

Always true: every number in a claim is the length of a list of keys that the claim also gives; a claim says what counts
and what does not; it speaks of this pool as of 4 May 2026 and of nothing else. `since` says what our own look beyond
the pool found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from counterpoint.corpus.records import ClaimSpec, Mark, Paper

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
    said = {k: marks[k].stated or marks[k].value for k in read}
    return {
        "tags": keys,
        "strict": strict,
        "near": near,
        "strict_or_near": [k for k in keys if k in {*strict, *near}],
        "stated_strict": [k for k in read if said[k] in spec.strict],
        "stated_near": [k for k in read if said[k] in spec.near],
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
