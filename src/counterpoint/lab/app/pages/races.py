"""Races for the page: folders of `counterpoint compare methods`, listed, and one with its ranks, differences and curves.

Always true: numbers, ranks and remarks are those that `counterpoint compare standings` prints for the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoint.app.viewer.collection import Collection
from counterpoint.errors import CounterpointError
from counterpoint.lab.app.pages import folders
from counterpoint.lab.app.pages.race_shapes import Race, RaceDifference, RaceLine, RaceRow, RaceWorld
from counterpoint.lab.app.pages.run_shapes import Series

if TYPE_CHECKING:
    from counterpoint.lab.bench.race.judging import Standing, WorldResult
    from counterpoint.lab.bench.race.result import RaceResult


def races(collection: Collection) -> list[RaceRow]:
    """Every race that can be read; one that cannot says why when it is opened."""
    from counterpoint.lab.bench.race.rows import RELEASED, read_rows

    out = []
    for name, path in folders.races(collection).items():
        try:
            head, rows = read_rows(path)
            out.append(
                RaceRow(
                    id=name,
                    plan=head["plan"]["name"],
                    suite=head["suite"],
                    rows=len(rows),
                    methods=len({row["method"] for row in rows}),
                    worlds=list(dict.fromkeys(row["world"] for row in rows)),
                    is_released=path in RELEASED.values(),
                )
            )
        except (CounterpointError, OSError, KeyError):
            continue
    return out


def race(collection: Collection, race_id: str) -> Race:
    """One race, world by world."""
    from counterpoint.lab.bench.race.result import result_of

    found = result_of(folders.folder_of(folders.races(collection), race_id, "race"))
    worlds = [_world(found, world) for world in found.worlds]
    return Race(id=race_id, plan=found.head["plan"]["name"], suite=found.head["suite"], worlds=worlds)


def _world(found: RaceResult, world: WorldResult) -> RaceWorld:
    from counterpoint.lab.app.race_page import notes

    about = found.head["worlds"].get(world.world, {})
    curves = [
        Series(name=f"share of the bound/{method}", x=[x for x, _ in points], y=[y for _, y in points])
        for method, points in world.curves.items()
    ]
    return RaceWorld(
        world=world.world,
        decision=about.get("decision", ""),
        bound=world.bound,
        budget=world.budget,
        best_known=world.best_known,
        is_screening=world.is_screening,
        rules={k: v / world.bound for k, v in about.get("rules", {}).items()},
        lines=[_line(found, world, one) for one in world.standings],
        notes=notes(found, world),
        curves=curves,
    )


def _line(found: RaceResult, world: WorldResult, one: Standing) -> RaceLine:
    from counterpoint.lab.app.race_page import row_command

    about = found.head["methods"][one.method]
    differences = [
        RaceDifference(
            baseline=a.baseline, mean=a.mean, low=a.low, high=a.high, p=a.p, p_holm=a.p_holm, verdict=a.verdict, seeds=a.seeds
        )
        for a in one.against.values()
    ]
    own = {name: about[name] for name in ("families", "unit", "trains", "regime", "source", "guessed")}
    own["sees"] = about.get("sees", "")
    return RaceLine(
        method=one.method,
        point=one.point,
        is_ranked=one.is_ranked,
        rank=one.rank,
        rank_low=one.rank_low,
        rank_high=one.rank_high,
        seeds=len(one.seeds),
        mean=one.share[0],
        low=one.share[1],
        high=one.share[2],
        area=one.area[0],
        calls=[calls for calls, _ in one.calls.values()],
        reached=[count for _, count in one.calls.values()],
        cpu_s=one.cpu_s,
        collapsed=one.collapsed,
        differences=differences,
        command=row_command(found.head, world, one),
        **own,
    )
