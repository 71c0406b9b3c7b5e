"""What rows show, by numbers worked out by hand."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from counterpoint.errors import InputError
from counterpoint.lab.app.race_page import cells, class_sections, digest, markdown, notes
from counterpoint.lab.bench.comparison import holm
from counterpoint.lab.bench.race.judging import (
    against,
    area,
    best_points,
    calls_to,
    chosen_point,
    final_of,
    judged,
    overall,
    ranked,
    sign_flips,
)
from counterpoint.lab.bench.race.result import RaceResult, current, described, result_of
from counterpoint.lab.bench.race.rows import RELEASED, write_rows
from lab.bench.race_made import row


def test_area_and_calls_by_hand() -> None:
    one = row("a", 0, 8.0, curve=[[0, 2.0], [50, 4.0], [100, 8.0]])
    assert area(one) == pytest.approx((0.5 * 3 + 0.5 * 6) / 10)
    assert calls_to(one, 2.0) == 0
    assert calls_to(one, 3.0) == pytest.approx(25)
    assert calls_to(one, 7.0) == pytest.approx(87.5)
    assert calls_to(one, 8.1) is None
    # What was spent beyond the budget does not count; a curve that ends early stays where it is.
    assert area(row("a", 0, 8.0, curve=[[0, 0.0], [50, 8.0]])) == pytest.approx((0.5 * 4 + 0.5 * 8) / 10)


def test_who_overspends_is_held_to_what_it_had_at_its_budget() -> None:
    curve = [[0, 2.0], [80, 4.0], [180, 9.0]]
    far = row("a", 0, 9.0, curve=curve) | {"spent": {"charged": 180}}
    assert final_of(far) == pytest.approx(5.0)  # 4 at 80, 9 at 180: 100 is a fifth of the way
    assert final_of(far | {"spent": {"charged": 110}}) == 9.0
    # 80 calls at 3 on average, 20 at 4.5, of a bound of 10: what comes after the budget does not count
    assert area(far) == pytest.approx((0.8 * 3 + 0.2 * 4.5) / 10)
    assert calls_to(far, 5.5) == pytest.approx(110)
    assert calls_to(far, 5.6) is None


def test_sign_flips_by_hand() -> None:
    # 1 + 2 + 3 = 6: of the eight patterns only +++ and --- have a sum as large
    assert sign_flips([1.0, 2.0, 3.0]) == 2 / 8
    # 3 - 1 - 1 = 1: |sums| are 5 x2, 1 x2, 3 x4 -> all eight reach 1
    assert sign_flips([3.0, -1.0, -1.0]) == 1.0
    assert sign_flips([0.2] * 5) == pytest.approx(0.0625)
    assert sign_flips([0.1, 0.2, 0.3] * 4) == pytest.approx(2 / 4096)
    assert sign_flips([-0.1, 0.1]) == 1.0
    assert sign_flips([0.1] * 30) < 1e-4
    d = [0.3, -0.7, 1.1, 0.2, 0.9]
    every = [abs(sum(s * x for s, x in zip(signs, d, strict=True))) for signs in itertools.product((1, -1), repeat=5)]
    assert sign_flips(d) == sum(x >= sum(d) - 1e-12 for x in every) / 32


def shares(**values: list[float]) -> dict[str, dict[int, float]]:
    return {name: dict(enumerate(column)) for name, column in values.items()}


def test_twelve_seeds_make_a_claim_and_eleven_do_not() -> None:
    wave = [0.001 * (i % 3) for i in range(12)]
    table = shares(
        grpo=[0.5] * 12,
        better=[0.6 + w for w in wave],
        worse=[0.4 - w for w in wave],
        same=[0.5 + (0.002 if i % 2 else -0.002) for i in range(12)],
        unclear=[0.5 + (0.3 if i % 2 else -0.2) for i in range(12)],
    )
    found = against(table, "grpo")
    assert {name: one.verdict for name, one in found.items()} == {
        "better": "better", "worse": "worse", "same": "equal", "unclear": "not established",
    }  # fmt: skip
    assert [one.p_holm for one in found.values()] == holm([one.p for one in found.values()])
    assert found["better"].p == pytest.approx(2 / 4096)
    assert found["better"].p_holm == pytest.approx(4 * 2 / 4096)
    fewer = {name: {s: x for s, x in column.items() if s < 11} for name, column in table.items()}
    assert {one.verdict for one in against(fewer, "grpo").values()} == {"screening"}
    # Only seeds that both have are paired.
    assert against({"grpo": {0: 0.5, 1: 0.5}, "a": {1: 0.7, 2: 9.0}}, "grpo")["a"].mean == pytest.approx(0.2)


def test_ranks_by_hand() -> None:
    # a beats c in every seed by the same, and b lies between, once above a and once below c
    table = shares(a=[0.9, 0.8, 0.7], b=[0.5, 0.9, 0.65], c=[0.6, 0.5, 0.4])
    assert ranked(table) == {"a": (1, 1, 2), "b": (2, 1, 3), "c": (3, 2, 3)}
    assert {name: place for name, (place, _, _) in ranked(shares(a=[0.3], b=[0.5], c=[0.3], d=[0.3 + 1e-15], e=[0.1])).items()} == {
        "b": 1, "a": 3, "c": 3, "d": 3, "e": 5,
    }  # fmt: skip
    assert ranked(shares(a=[0.9], b=[0.1])) == {"a": (1, 1, 2), "b": (2, 1, 2)}


def test_points_are_chosen_by_area_on_tuning_rows() -> None:
    tuned = [row("a", 100, v, phase="tune", point=p) for p, v in (("published", 4.0), ("lr*3", 6.0), ("knob", 5.0))]
    tuned += [row("a", 101, v, phase="tune", point=p) for p, v in (("published", 7.0), ("lr*3", 4.0), ("knob", 5.0))]
    assert best_points(tuned) == ["published", "knob", "lr*3"]
    failed = {**tuned[0], "status": "failed", "error": "x"}
    assert best_points([failed, *tuned[1:]])[-1] == "published"
    confirmed = [row("a", 200, v, phase="confirm", point=p) for p, v in (("published", 1.0), ("knob", 2.0))]
    finals = [row("a", 0, 9.0, point="published"), row("a", 0, 1.0, point="knob")]
    assert chosen_point([*tuned, *confirmed, *finals]) == "knob"
    assert chosen_point(finals) == "published"


def made() -> RaceResult:
    rows = [row(m, s, v + s) for m, v in (("grpo", 4.0), ("counterpoint", 6.0)) for s in range(3)]
    rows += [row("mappo", s, 1.0, collapsed=True, cpu_s=3.0) for s in range(3)]
    rows += [row("mappo", 100, 1.0, phase="tune", point="knob"), row("mappo", 0, 2.0, point="knob")]
    rows += [row("qmix", 0, 0.0, status="failed", error="no luck"), row("sharp", 0, 0.0, status="refused", error="needs votes")]
    head = described({"suite": "core", "plan": {"name": "small", "tune_seeds": 2, "tune_worlds": 1, "tune_budget": 50, "final_budget": 100}}, rows)
    return RaceResult(head, tuple(rows), tuple(judged(rows, {"w": {"rule": 10.0}}, ("grpo", "counterpoint"))), ())


def test_a_world_by_hand() -> None:
    result = made()
    world = result.worlds[0]
    assert [(s.method, s.point, s.rank) for s in world.standings] == [
        ("counterpoint", "published", 1), ("grpo", "published", 2), ("mappo", "knob", 3), ("mappo", "published", 0),
    ]  # fmt: skip
    assert world.best_known == 10.0  # a rule's
    ours = world.standings[0]
    assert ours.share[0] == pytest.approx(0.7)
    assert ours.calls[50] == (pytest.approx(500 / 7), 3)
    assert ours.calls[80] == (pytest.approx(100), 1)
    assert ours.calls[90] == (None, 0)
    assert ours.against["grpo"].mean == pytest.approx(0.2)
    assert world.standings[3].collapsed == 1.0
    assert world.problems == {"qmix": "no luck", "sharp": "needs votes"}
    assert world.is_screening
    line = cells(ours, result.head["methods"])
    assert line[:5] == ("1 [1, 2]", "counterpoint", "published", "3", "70.0 [45.2, 94.8]")
    assert line[7] == "100 (1 of 3)"
    assert line[11:] == ("+20.0 (p 0.25)", "–")
    assert any("screening" in note for note in notes(result, world))


def test_why_runs_ended_before_their_budget() -> None:
    rows = [row("grpo", 0, 4.0), row("counterpoint", 0, 5.0, spent={"charged": 90}), row("counterpoint", 1, 5.0, spent={"charged": 95})]
    rows.append(row("mappo", 0, 0.0, spent={"charged": 30}, collapsed=True))
    world = judged(rows)[0]
    said = notes(RaceResult(described({"suite": "core", "plan": {"name": "small"}}, rows), tuple(rows), (world,), ()), world)
    assert "1 of 4 runs ended earlier: 100 updates in a row with under one call an episode" in said
    assert "2 of 4 runs (counterpoint) ended with 90 or more: their last trial left the rest" in said


def test_the_page_holds_every_cell_and_its_command() -> None:
    result = made()
    page = markdown(result)
    for one in result.worlds[0].standings:
        command = f"`counterpoint compare methods {one.method} --plan small --world w --seeds {len(one.seeds)} --cap calls=100`"
        assert f"|{'|'.join([*cells(one, result.head['methods']), command])}|" in page
    assert "no result for qmix: no luck" in page
    assert "The plan asks for 12 seeds of 200,000; these rows have 1 of 100 at the least." in page
    assert "Without a row: " in page
    some = result.only(["grpo"])
    assert [s.rank for s in some.worlds[0].standings] == [2]
    with pytest.raises(InputError, match="no row of 'qmxi'"):
        result.only(["qmxi"])


def test_all_worlds_together_by_hand() -> None:
    values = {"w": {"a": 9.0, "b": 8.0, "c": 1.0, "alone": 99.0}, "v": {"a": 2.0, "b": 6.0, "c": -5.0}}
    rows = [{**row(m, 0, x), "world": w} for w, found in values.items() for m, x in found.items()]
    found = overall(judged(rows))
    assert [(o.method, o.rank) for o in found] == [("b", 1.5), ("a", 1.5), ("c", 3.0)]  # a method without a result is not ranked
    assert found[0].share == pytest.approx(0.7)
    assert found[2].worlds == {"w": (3, pytest.approx(0.1)), "v": (3, pytest.approx(-0.5))}
    head = described({"suite": "core", "plan": {"name": "small", "tune_seeds": 2, "tune_worlds": 1, "tune_budget": 50, "final_budget": 100}}, [])
    result = RaceResult(head | {"methods": {}}, tuple(rows), tuple(judged(rows)), tuple(found))
    assert "|1.5|b|–|70|80 (2)|60 (1)|" in markdown(result)
    assert result.only(["c"]).overall == (found[2],)  # its ranks are those among all
    assert [o.rank for o in result.only(["c", "alone"], ["w"]).overall] == [1.0, 4.0]


def test_rows_of_a_preset_that_has_changed_are_left_out() -> None:
    old = [row("a", s, 1.0, recipe="old", ended=5 + s) for s in range(3)]
    new = [row("a", 0, 2.0, recipe="new", ended=20)]
    assert current([*old, *new, row("b", 0, 1.0, recipe="old", ended=1)]) == [*new, row("b", 0, 1.0, recipe="old", ended=1)]


def test_a_page_is_a_function_of_its_file(tmp_path: Path) -> None:
    result = made()
    write_rows(tmp_path / "rows.jsonl", result.head, result.rows)
    read = result_of(tmp_path / "rows.jsonl")
    assert markdown(read) == markdown(RaceResult(result.head, result.rows, read.worlds, read.overall))


def test_the_page_of_the_docs_is_what_the_released_rows_give() -> None:
    page = (Path(__file__).parents[3] / "docs" / "lab" / "methods.md").read_text()
    assert page == digest([result_of(RELEASED[plan]) for plan in RELEASED]), "run `python tools/docs_site.py`"


def test_methods_are_ranked_among_those_that_may_see_the_same() -> None:
    rows = [row(name, s, value, world=world) for world in ("u", "v") for name, value in FOUR.items() for s in range(2)]
    plan = {"name": "small", "tune_seeds": 1, "tune_worlds": 2, "tune_budget": 50, "final_budget": 100}
    head = described({"suite": "core", "plan": plan}, rows)
    worlds = tuple(judged(rows, {"u": {}, "v": {}}, ("grpo", "counterpoint")))
    sections = class_sections(RaceResult(head, tuple(rows), worlds, tuple(overall(worlds))))
    assert {s.title.rpartition(": ")[2]: [r[:3] for r in s.rows] for s in sections} == {
        "episode": [("1.0", "grpo", "episode")],
        "round": [("1.0", "mappo", "round")],
        "draft": [("1.0", "dense_clip", "draft")],
        "draft + forks": [("1.0", "counterpoint", "draft + forks")],
    }
    assert [one.rank for one in overall(worlds, ("grpo", "mappo"))] == [1.0, 2.0]


FOUR = {"counterpoint": 9.0, "dense_clip": 8.0, "grpo": 6.0, "mappo": 5.0}
