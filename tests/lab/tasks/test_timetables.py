"""T6: feasible by construction, a best timetable that trying everything confirms, and critics who name what is broken."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.tasks._timetable_problem import (
    Place,
    Talk,
    TimetableProblem,
    TimetableRule,
    best,
    placements,
    read,
    timetable_text,
)
from counterpoint.lab.tasks.task import TextTask, View, ViewItem
from counterpoint.lab.tasks.timetables import Timetables, timetables
from play_help import ODD_SEEN, RETURN, STOP, drawn, play

SEEDS = st.integers(0, 2**62)
TINY = timetables.replace(days=2, talks=2, slots=2, rooms=2, rules=1, ties=1)


def _truth(task: Timetables, seed: int) -> dict[str, Place]:
    return placements(task.truth_file(task.instance(seed)))


def _every(problem: TimetableProblem) -> list[dict[str, Place]]:
    """All timetables that break nothing, by trying each place for each talk."""
    places = list(itertools.product(problem.slots, problem.rooms))
    ids = [talk.id for talk in problem.talks]
    some = (dict(zip(ids, chosen, strict=True)) for chosen in itertools.product(places, repeat=len(ids)))
    return [placed for placed in some if not problem.violations(placed)]


def test_is_a_task() -> None:
    assert isinstance(timetables, TextTask)
    assert (timetables.name, timetables.short, timetables.rules) == ("timetables", "T6", ("join", "best"))


def test_rules_and_points_by_hand() -> None:
    talks = (
        Talk("talk1", "day1", "Ada", 20, {"slot1": 3, "slot2": 5}),
        Talk("talk2", "day1", "Ada", 40, {"slot1": 1, "slot2": 9}),
    )
    problem = TimetableProblem({"room1": 30, "room2": 60}, {"day1": ("slot1", "slot2")}, talks, (TimetableRule("k5", "before", "talk1", "talk2"),))
    assert problem.violations({"talk1": ("slot1", "room1"), "talk2": ("slot2", "room2")}) == []
    assert problem.points({"talk1": ("slot1", "room1"), "talk2": ("slot2", "room2")}) == 12
    broken = problem.violations({"talk1": ("slot2", "room1"), "talk2": ("slot2", "room1")})
    assert [text[:3] for text in broken] == ["k1:", "k3:", "k5:"]
    assert [text[:3] for text in problem.violations({"talk1": ("slot2", "room1"), "talk2": ("slot2", "room2")})] == ["k2:", "k5:"]
    assert problem.violations({"talk1": ("slot1", "room1")}) == ["talk2 is not placed"]
    assert best(problem) == {"talk2": ("slot2", "room2"), "talk1": ("slot1", "room1")}
    assert read(problem.text()) == problem


@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_the_best_is_what_trying_everything_finds(seed: int) -> None:
    problem = read(TINY.instance(seed).question)
    every = _every(problem)
    assert every, "no timetable keeps the rules"
    truth = _truth(TINY, seed)
    assert truth in every
    assert problem.points(truth) == max(map(problem.points, every))


@given(SEEDS, st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(0, 6), st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_every_instance_is_feasible_and_the_same_again(
    seed: int, days: int, slots: int, rooms: int, rules: int, ties: int
) -> None:
    task = timetables.replace(days=days, slots=slots, rooms=rooms, talks=min(5, slots * rooms), rules=rules, ties=ties)
    instance = task.instance(seed)
    assert repr(instance) == repr(Timetables(task.config).instance(seed))
    assert len(instance.subtasks) == days
    problem = read(instance.question)
    for day, part in zip(problem.days, instance.subtasks, strict=True):
        assert read(part.text) == problem.part(day)
    score = task.check(instance, timetable_text(_truth(task, seed)))
    assert (score.value, score.is_solved) == (1.0, True)


def test_the_score_is_points_over_the_most_and_nothing_for_a_breach() -> None:
    instance = TINY.instance(0)
    problem, truth = read(instance.question), _truth(TINY, 0)
    most = problem.points(truth)
    values = set()
    for placed in _every(problem):
        score = TINY.check(instance, timetable_text(placed))
        assert score.value == float(Fraction(problem.points(placed), most))
        values.add(score.value)
    assert len(values) > 1
    assert TINY.check(instance, timetable_text({**truth, "talk1": truth["talk2"]})).value == 0.0
    part = TINY.check(instance, timetable_text({"talk1": truth["talk1"]}))
    assert (part.value, part.is_solved, part.parts["placed"]) == (0.0, False, 0.25)


@given(st.text(max_size=80) | st.text(alphabet="talkslotroom123456=,; ", max_size=120))
def test_any_text_has_a_score_and_merges(text: str) -> None:
    instance = TINY.instance(2)
    score = TINY.check(instance, text)
    assert 0.0 <= score.value <= 1.0
    assert score.is_solved == (score.value == 1.0)
    for rule in TINY.rules:
        assert isinstance(TINY.merge(instance, rule, [text, text]), str)


@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_right_parts_join_to_a_right_whole(seed: int) -> None:
    instance, truth = timetables.instance(seed), _truth(timetables, seed)
    days = [[t.id for t in read(part.text).talks] for part in instance.subtasks]
    parts = [timetable_text({id_: truth[id_] for id_ in ids}) for ids in days]
    for rule in timetables.rules:
        assert timetables.check(instance, timetables.merge(instance, rule, [*parts, "nothing"])).is_solved


def test_best_prefers_what_breaks_least_and_is_worth_most() -> None:
    instance, truth = TINY.instance(1), _truth(TINY, 1)
    wrong = {**truth, "talk1": truth["talk2"]}
    texts = [timetable_text(wrong), timetable_text(truth)]
    assert TINY.merge(instance, "best", texts) == timetable_text(truth)
    assert TINY.merge(instance, "join", texts) == timetable_text(wrong)
    with pytest.raises(NotFound):
        TINY.merge(instance, "worst", texts)


# -- the worker ----------------------------------------------------------------------------------------------------------


def test_a_worker_solves_it_alone_and_workers_in_parts(tmp_path: Path) -> None:
    for seed in range(12):
        instance = timetables.instance(seed)
        act, _ = play(timetables, instance, [], tmp_path, choices=STOP)
        assert timetables.check(instance, act.text).is_solved
        parts = [play(timetables, instance, [ViewItem("subtask", "lead", s.text, s.id)], tmp_path)[0].text for s in instance.subtasks]
        assert timetables.check(instance, timetables.merge(instance, "join", parts)).is_solved


def test_a_tie_follows_what_others_said(tmp_path: Path) -> None:
    followed = 0
    for seed in range(40):
        instance = timetables.instance(seed)
        problem = read(instance.question)
        tie = next((rule for rule in problem.rules if rule.kind == "tie"), None)
        if tie is None:
            continue
        for room in problem.rooms:
            told = [ViewItem("message", "lead.1", f"{tie.a}=slot1,{room}"), ViewItem("subtask", "lead", instance.subtasks[1].text)]
            placed = placements(play(timetables, instance, told, tmp_path)[0].text)
            can = best(read(instance.subtasks[1].text), {tie.b: room})
            assert (placed[tie.b][1] == room) or can is None
            followed += can is not None
    assert followed > 20


def test_skill_decides_how_often_it_is_right(tmp_path: Path) -> None:
    instance = timetables.instance(0)
    solved = [
        timetables.check(instance, play(timetables, instance, [], tmp_path, skill=0.5, seed=s)[0].text).is_solved
        for s in range(80)
    ]
    assert 20 <= sum(solved) <= 60
    assert not any(
        timetables.check(instance, play(timetables, instance, [], tmp_path, skill=0.0, seed=s)[0].text).value == 1
        for s in range(3)
    )


def test_a_critic_names_what_is_broken_and_what_could_be_had(tmp_path: Path) -> None:
    instance, truth = timetables.instance(3), _truth(timetables, 3)
    problem = read(instance.question)

    def judged(placed: dict[str, Place], *before: ViewItem, skill: float = 1.0) -> str:
        seen = [*before, ViewItem("return", "lead.1", timetable_text(placed), "s1")]
        return play(timetables, instance, seen, tmp_path, purpose="judge", skill=skill)[0].text

    assert judged(truth) == "ACCEPT"
    assert judged(truth, skill=0.0).startswith("REJECT")
    assert judged({**truth, "talk1": truth["talk2"]}).startswith("REJECT k1: talk1 and talk2")
    assert "talk8 is not placed" in judged({k: v for k, v in truth.items() if k != "talk8"})
    worse = next(p for p in _some(problem) if problem.points(p) < problem.points(truth))
    assert f"worth {problem.points(worse)} points, and {problem.points(truth)} can be had" in judged(worse)
    day = read(instance.subtasks[0].text)
    part = {talk.id: truth[talk.id] for talk in day.talks}
    assert judged(part, ViewItem("subtask", "lead.1", instance.subtasks[0].text, "s1")) == "ACCEPT"


def _some(problem: TimetableProblem) -> list[dict[str, Place]]:
    """Timetables that break nothing, each with one talk held elsewhere than in the best."""
    found = []
    for talk in problem.talks:
        for slot in talk.points:
            other = Talk(talk.id, talk.day, talk.speaker, talk.people, {slot: 99})
            again = best(
                TimetableProblem(problem.rooms, problem.days, tuple(other if t is talk else t for t in problem.talks), problem.rules)
            )
            found += [again] if again is not None and not problem.violations(again) else []
    return found


def test_debaters_and_resolvers_take_the_better_one(tmp_path: Path) -> None:
    instance, truth = timetables.instance(4), _truth(timetables, 4)
    heard = [ViewItem("message", "lead.2", timetable_text(truth)), ViewItem("message", "lead.3", "talk1=slot1,room1")]
    for purpose in ("debate", "resolve"):
        texts = [
            play(timetables, instance, heard, tmp_path, purpose=purpose, skill=0.9, seed=s, choices=STOP)[0].text
            for s in range(30)
        ]
        assert sum(timetables.check(instance, text).is_solved for text in texts) >= 29


@given(
    st.lists(st.sampled_from(ODD_SEEN), max_size=6),
    st.sampled_from(["turn", "work", "judge", "debate", "resolve", "?"]),
    st.booleans(),
)
@settings(max_examples=60)
def test_odd_views_never_raise(seen: list[ViewItem], purpose: str, has_question: bool) -> None:
    start = [ViewItem("question", "user", TINY.instance(0).question)] if has_question else []
    for choices in ((), RETURN, STOP):
        act = TINY.work(View("lead", "agent", purpose, tuple(start + seen), choices), drawn(1), 0.5)
        assert act.verb in {"noop", *(c.verb for c in choices)}


def test_impossible_dials_are_refused() -> None:
    for wrong in (
        {"days": 0},
        {"talks": 7},
        {"rooms": 4},
        {"talks": 6, "slots": 2, "rooms": 2},
        {"speakers": 2, "rooms": 3},
        {"ties": True},
        {"no": 1},
    ):
        with pytest.raises(InputError):
            timetables.replace(**wrong)
