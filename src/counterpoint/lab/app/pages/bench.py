"""The Bench page's questions: the leaderboard of all results on view, the card of one, two side by side.

Always true: tables are those that `counterpoint bench leaderboard`, `card` and `compare` print for the same folders; results that
cannot be read are left out of the leaderboard and say why when they are opened.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from counterpoint.answer import Section
from counterpoint.app.viewer.collection import Collection
from counterpoint.errors import CounterpointError, NotFound, did_you_mean
from counterpoint.lab.app.bench_page import boards, contrast_section, defence_section, sections, title
from counterpoint.lab.app.pages.bench_shapes import Bench, BenchResult, BenchTable
from counterpoint.lab.app.pages.folders import results
from counterpoint.lab.bench.scorecard.card import Card, card_of, contrast
from counterpoint.lab.bench.scorecard.defence import defence_contrast


def bench(collection: Collection, first: str = "", second: str = "") -> Bench:
    """The leaderboard; with one name its card, with two both side by side."""
    found = results(collection)
    cards = _cards(found)
    listed = [
        BenchResult(id=name, team=c.about["team"], suite=c.about["suite"], digest=c.about["suite_digest"], runs=c.runs)
        for name, c in cards.items()
    ]
    if first and second:
        one, two = (_place(found, name) for name in (first, second))
        told = contrast_section(one, two, contrast(one, two))
        attacked = defence_contrast(one, two)
        both = [told._replace(title="Side by side"), *([defence_section(attacked)] if attacked else [])]
        return Bench(title=told.title, results=listed, tables=[_table(section) for section in both])
    if first:
        card = cards.get(first) or card_of(_place(found, first))
        return Bench(title=title(card), results=listed, tables=[_table(s) for s in sections(card)])
    names_of = {found[name]: name for name in cards}
    made = boards([(found[name], card) for name, card in cards.items()])
    tables = [_table(board, [names_of[path] for path in paths]) for board, paths in made]
    return Bench(title="Leaderboard", results=listed, tables=tables)


def _cards(found: dict[str, Path]) -> dict[str, Card]:
    out = {}
    for name, path in found.items():
        with suppress(CounterpointError, KeyError):
            out[name] = card_of(path)
    return out


def _place(found: dict[str, Path], name: str) -> Path:
    if name not in found:
        fix = did_you_mean(name, found) if found else "counterpoint bench run short --team policy:reference"
        raise NotFound(f"no results {name!r} here", fix=fix)
    return found[name]


def _table(section: Section, results: list[str] | None = None) -> BenchTable:
    return BenchTable(
        title=section.title, words=section.words, head=list(section.head), rows=[list(row) for row in section.rows],
        right=list(section.right), results=results or [],
    )  # fmt: skip
