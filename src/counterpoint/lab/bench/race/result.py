"""The result of a race: its rows, judged, with what its methods and worlds are.

Always true: a function of the rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.errors import InputError
from counterpoint.lab.bench.race.judging import Overall, Row, WorldResult, judged, overall
from counterpoint.lab.bench.race.plan import BASELINES, about, methods, world_about
from counterpoint.lab.bench.race.rows import read_rows
from counterpoint.lab.worlds.teamworld.suites import SUITES


@dataclass(frozen=True)
class RaceResult:
    """A race: what its rows have in common, what its methods are, and what each world shows."""

    head: Mapping[str, Any]
    """With `methods` and `worlds`: what they are, by name; and `absent`: methods without a row."""
    rows: tuple[Row, ...]
    worlds: tuple[WorldResult, ...]
    overall: tuple[Overall, ...]
    """Over all its worlds."""

    @property
    def failures(self) -> dict[str, str]:
        """Methods with a failed row, and the first error of each."""
        return {r["method"]: r["error"] for r in reversed(self.rows) if r["status"] == "failed"}

    def only(self, names: Sequence[str], worlds: Sequence[str] = ()) -> RaceResult:
        """The same with some lines only; ranks and tests are still those of all rows."""
        wanted = {name.replace("-", "_") for name in names}
        missing = wanted - {r["method"] for r in self.rows} | set(worlds) - {w.world for w in self.worlds}
        if missing:
            raise InputError(f"there is no row of {min(missing)!r}", fix="counterpoint compare standings prints what there is")
        some = tuple(w for w in self.worlds if not worlds or w.world in worlds)
        kept = tuple(
            WorldResult(
                w.world, w.bound, w.budget, w.best_known, tuple(s for s in w.standings if not wanted or s.method in wanted),
                {m: why for m, why in w.problems.items() if not wanted or m in wanted},
                {m: c for m, c in w.curves.items() if not wanted or m in wanted},
            )
            for w in some
        )  # fmt: skip
        return RaceResult(self.head, self.rows, kept, tuple(o for o in overall(some) if not wanted or o.method in wanted))


def result_of(path: Path) -> RaceResult:
    """The result of a race in a folder, or in a file of rows."""
    head, every = read_rows(path)
    rows = current(every)
    head = described(head, rows)
    places = {name: place for place, name in enumerate(head["worlds"])}
    rows = sorted(rows, key=lambda row: places[row["world"]])
    rules = {name: world["rules"] for name, world in head["worlds"].items()}
    worlds = tuple(judged(rows, rules, BASELINES))
    return RaceResult(head, tuple(rows), worlds, tuple(overall(worlds)))


def current(rows: Sequence[Row]) -> list[Row]:
    """The rows of each world's newest parameters and of each method's newest recipe: older ones are not mixed with new ones."""
    return _newest(_newest(rows, "course", ("world", "phase")), "recipe", ("method", "point", "budget"))


def _newest(rows: Sequence[Row], what: str, within: Sequence[str]) -> list[Row]:
    last: dict[tuple[Any, ...], tuple[float, str]] = {}
    for row in rows:
        key, version = tuple(row[name] for name in within), (row.get("ended", 0), row.get(what, ""))
        last[key] = max(last.get(key, version), version)
    return [row for row in rows if last[tuple(row[name] for name in within)][1] == row.get(what, "")]


def described(head: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """The head, with what its methods and worlds are, where it does not say so itself."""
    order = [world.name for world in SUITES.get(head["suite"], ())]
    named = sorted({r["world"] for r in rows}, key=lambda name: (order.index(name) if name in order else len(order), name))
    known = head.get("methods") or {name: about(name) for name in sorted({r["method"] for r in rows})}
    worlds = head.get("worlds") or {name: world_about(head["suite"], name) for name in named}
    absent = head["absent"] if "absent" in head else [m.name for m in methods() if m.name not in known]
    return {**head, "methods": known, "worlds": worlds, "absent": absent}
