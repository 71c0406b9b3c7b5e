"""The answer to the viewer's hook `pages`: runs, comparisons (with races) and benches.

Always true: nothing heavy is imported before a question is asked.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from counterpoint.app.viewer.collection import Collection
from counterpoint.app.viewer.pages import Page, Question, Words, word
from counterpoint.lab.app.pages import folders, races, runs
from counterpoint.lab.app.pages.bench_shapes import Bench, BenchResult, BenchTable
from counterpoint.lab.app.pages.race_shapes import Race, RaceDifference, RaceLine, RaceRow, RaceWorld
from counterpoint.lab.app.pages.run_shapes import Compare, CompareRow, Level, Run, RunRow, Series


def pages() -> list[Page]:
    """The laboratory's pages, in the order of the navigation."""
    return [_RUNS, _COMPARE, _BENCH]


def _address(first: str, name: str) -> str:
    """Two dots part the ids of a pair, so they are written out."""
    return f"/{first}/{quote(name, safe='').replace('..', '%2E%2E')}"


# -- runs ------------------------------------------------------------------------------------------------------------------


def _run_id(words: Words) -> str:
    return word(words, "id", "/api/run")


def _open_runs(collection: Collection, path: Path) -> str | None:
    known = folders.runs(collection)
    if folders.is_run(path):
        return _address("r", next(iter(known)))
    return "/r" if known and _open_race(collection, path) is None else None


_RUNS = Page(
    id="runs",
    name="Runs",
    addresses=("r", "runs"),
    questions={
        "runs": Question(lambda collection, words: runs.runs(collection)),
        "run": Question(
            lambda collection, words: runs.run(collection, _run_id(words)),
            version=lambda collection, words: runs.version(collection, _run_id(words)),
        ),
    },
    shapes=(RunRow, Level, Series, Run),
    opens=_open_runs,
    folders=folders.runs,
    stores=folders.run_stores,
)

# -- comparisons, races among them -----------------------------------------------------------------------------------------


def _comparison(collection: Collection, words: Words) -> Compare:
    spec = word(words, "spec", "/api/compare")
    anyway = words.get("anyway", "0") not in ("", "0", "false")
    return runs.compared(collection, spec, words.get("metric") or "value", anyway=anyway)


def _open_race(collection: Collection, path: Path) -> str | None:
    from counterpoint.lab.bench.race.rows import RaceFolder

    return f"/c?s={quote(f'race:{next(iter(folders.races(collection)))}', safe=':/')}" if RaceFolder.is_at(path) else None


_COMPARE = Page(
    id="compare",
    name="Compare",
    addresses=("c", "compare"),
    questions={
        "compare": Question(_comparison),
        "races": Question(lambda collection, words: races.races(collection)),
        "race": Question(lambda collection, words: races.race(collection, word(words, "id", "/api/race"))),
    },
    shapes=(CompareRow, Compare, RaceRow, RaceDifference, RaceLine, RaceWorld, Race),
    opens=_open_race,
)

# -- benches ---------------------------------------------------------------------------------------------------------------


def _bench(collection: Collection, words: Words) -> Bench:
    from counterpoint.lab.app.pages.bench import bench

    return bench(collection, words.get("a", ""), words.get("b", ""))


def _open_results(collection: Collection, path: Path) -> str | None:
    known = list(folders.results(collection))
    return None if not known else _address("bench", known[0]) if len(known) == 1 else "/bench"


_BENCH = Page(
    id="bench",
    name="Bench",
    addresses=("bench",),
    questions={"bench": Question(_bench)},
    shapes=(BenchResult, BenchTable, Bench),
    opens=_open_results,
    folders=folders.results,
    home="bench",
)
