"""What holds for the tasks that are read from papers (T1, T2, T5), whatever the seed and the dials."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError
from counterpoint.lab.tasks._players import SortedView, sorted_view
from counterpoint.lab.tasks.leakage import truth
from counterpoint.lab.tasks.task import Choice, TextTask, View, ViewItem
from counterpoint.lab.tasks.task import task as find
from text_help import calls, choices, drawer, play

NAMES = ("ledger_hunt", "sql_audit", "pointer_chase")
SHARE = st.sampled_from([0.0, 0.3, 1.0])
DIALS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "ledger_hunt": st.fixed_dictionaries(
        {
            "documents": st.integers(24, 90),
            "rows": st.integers(1, 4),
            "parts": st.integers(1, 9),
            "firms": st.integers(1, 20),
            "alias_rate": SHARE,
            "superseded": st.sampled_from([0.0, 0.5, 2.0]),
            "contradictions": SHARE,
            "overlap": SHARE,
            "distractors": st.sampled_from([0.0, 0.4]),
        }
    ),
    "sql_audit": st.fixed_dictionaries(
        {
            "rules": st.integers(1, 10),
            "joins": SHARE,
            "rows": st.integers(80, 160),
            "violations": st.integers(1, 4),
            "distractors": st.integers(0, 10),
            "superseded": SHARE,
            "contradictions": SHARE,
        }
    ),
    "pointer_chase": st.fixed_dictionaries(
        {
            "hops": st.integers(4, 12),
            "parts": st.integers(1, 4),
            "distractors": st.integers(0, 40),
            "search_rate": SHARE,
            "superseded": SHARE,
        }
    ),
}
BAD: dict[str, list[dict[str, Any]]] = {
    "ledger_hunt": [{"rows": 500}, {"documents": 1.5}, {"parts": 65}, {"alias_rate": 2}, {"attack": "AV9"}, {"attack_rate": -1}],
    "sql_audit": [{"rules": 0}, {"rules": 1_001}, {"rows": 30}, {"joins": "half"}, {"violations": True}],
    "pointer_chase": [{"hops": 0}, {"parts": 7}, {"search_rate": 1.1}, {"distractors": -1}],
}
KINDS = ("question", "subtask", "own", "result", "error", "return")
SAID = ("D-1 | Card 1\nheld", "D-1 | Card 1\nother", "D-2 | Card 1\ntwin", "D-3 | Card 2\nx", "D-3 | Card 1 | hit", "TOOL open: D-1", "RETURN: 7")
SEEDS = st.integers(0, 2**63 - 1)
SOME = settings(max_examples=12, deadline=None)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(SAID)), max_size=14), st.lists(st.integers(0, 14), max_size=4))
@SOME
def test_a_view_that_grows_is_sorted_as_a_whole_one_is(things: list[tuple[str, str]], stops: list[int]) -> None:
    seen = [ViewItem(kind, "open" if text.startswith("D-") else "search", text) for kind, text in things]
    views = [View("w", "worker", "work", tuple(seen[:n]), ()) for n in [*sorted(stops), len(seen)]]
    for view in views:
        grown, fresh = sorted_view(view), SortedView(view)
        assert (grown.papers, grown.hits, grown.answers()) == (fresh.papers, fresh.hits, fresh.answers())
        assert (grown.part(), grown.whole()) == (fresh.part(), fresh.whole())
        for title in ("Card 1", "Card 2"):
            assert grown.titled(title) == next((text for name, text in fresh.papers.values() if name == title), None)
        for what in ("D-1", "card", "D-12"):
            assert grown.was_asked("open", what) == fresh.was_asked("open", what)


def digest(name: str, seed: int) -> str:
    instance = find(name).instance(seed)
    return hashlib.sha256(repr(dataclasses.asdict(instance)).encode()).hexdigest()


def test_the_same_seed_gives_the_same_bytes_in_another_process() -> None:
    code = (
        "import dataclasses, hashlib\nfrom counterpoint.lab.tasks.task import task\n"
        f"for n in {NAMES!r}: print(hashlib.sha256(repr(dataclasses.asdict(task(n).instance(11))).encode()).hexdigest())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == [digest(name, 11) for name in NAMES]
    assert digest("ledger_hunt", 11) != digest("ledger_hunt", 12)


@pytest.mark.parametrize("name", NAMES)
@SOME
@given(data=st.data())
def test_the_parts_of_a_right_team_and_one_right_agent_alone_solve_every_instance(name: str, data: st.DataObject) -> None:
    task: TextTask = find(name).replace(**data.draw(DIALS[name]))
    instance = task.instance(data.draw(SEEDS))
    assert instance == task.replace().instance(instance.seed)
    assert task.check(instance, truth(instance, task)[1]).value == 1
    parts = [play(task, instance, part)[0].text for part in instance.subtasks]
    assert task.check(instance, task.merge(instance, task.rules[0], parts)).is_solved
    alone, _ = play(task, instance, ends=("stop",), purpose="turn", agent=data.draw(st.sampled_from(["lead", "lead.1", "lead.3", "x"])))
    assert alone.verb == "stop"
    assert task.check(instance, alone.text).is_solved


@pytest.mark.parametrize("name", NAMES)
@SOME
@given(seed=SEEDS, texts=st.lists(st.text(), max_size=4), cut=st.integers(0, 60), more=st.text(max_size=20))
def test_any_text_is_scored_and_merged_and_nothing_raises(name: str, seed: int, texts: list[str], cut: int, more: str) -> None:
    task = find(name)
    instance = task.instance(seed % 4)
    right = truth(instance, task)[1]
    for text in (*texts, right[:cut], right[:cut] + more + right[cut:], right + more):
        score = task.check(instance, text)
        assert 0 <= score.value <= 1
        assert score.is_solved == (score.value == 1)
        assert all(0 <= part <= 1 for part in score.parts.values())
    for rule in task.rules:
        assert isinstance(task.merge(instance, rule, [*texts, right[:cut]]), str)


@pytest.mark.parametrize("name", NAMES)
def test_default_parts_fit_into_a_workers_steps(name: str) -> None:
    task = find(name)
    for seed in range(10):
        instance = task.instance(seed)
        assert max(calls(play(task, instance, part)[1]) for part in instance.subtasks) <= 11


@pytest.mark.parametrize("name", NAMES)
def test_skill_decides_how_often_a_part_is_right(name: str) -> None:
    task = find(name)
    solved = {0.0: 0, 0.9: 0, 1.0: 0}
    for skill in solved:
        for seed in range(12):
            instance = task.instance(seed)
            parts = [play(task, instance, part, skill=skill, seed=seed * 100 + i)[0].text for i, part in enumerate(instance.subtasks)]
            solved[skill] += task.check(instance, task.merge(instance, task.rules[0], parts)).is_solved
    assert solved[0.0] == 0
    assert solved[1.0] == 12
    assert 0 < solved[0.9] < 12


@pytest.mark.parametrize("name", NAMES)
@SOME
@given(data=st.data())
def test_a_player_copes_with_what_was_lost_cut_or_changed(name: str, data: st.DataObject) -> None:
    task = find(name)
    instance = task.instance(data.draw(st.integers(0, 3)))
    _, seen = play(task, instance, instance.subtasks[0])
    kept = [s for s in seen if data.draw(st.integers(0, 3))]
    changed = [
        dataclasses.replace(s, text=s.text[: data.draw(st.integers(0, 80))] + data.draw(st.text(max_size=9)))
        if not data.draw(st.integers(0, 2))
        else s
        for s in kept
    ]
    act, _ = play(task, instance, before=changed, steps=400)
    assert act.verb == "return"


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_that_always_fails_does_not_hold_a_player(name: str) -> None:
    task = find(name)
    instance = task.instance(1)
    seen = [ViewItem("question", "user", instance.question), ViewItem("subtask", "lead", instance.subtasks[0].text, "s1")]
    for step in range(60):
        act = task.work(View("lead.1", "worker", "work", tuple(seen), choices(instance, "return")), drawer(step), 1.0)
        if act.verb == "return":
            return
        seen += [ViewItem("own", "lead.1", f"TOOL {act.target}: {act.text}"), ViewItem("error", "lead.1", "(no result came back)")]
    pytest.fail("it asks for ever")


@pytest.mark.parametrize("name", NAMES)
def test_who_decides_takes_what_most_say(name: str) -> None:
    task = find(name)
    instance = task.instance(2)
    right = truth(instance, task)[1]
    wrong = play(task, instance, skill=0.0, seed=5)[0].text
    seen = [ViewItem("question", "user", instance.question)]
    seen += [ViewItem("message", f"lead.{i}", text) for i, text in enumerate((wrong, right, right))]
    for purpose in ("debate", "resolve", "judge"):
        view = View("lead.9", "resolver", purpose, tuple(seen), (Choice("stop"),))
        act = task.work(view, drawer(0), 1.0)
        assert task.check(instance, act.text).is_solved, purpose
    hasty = task.work(dataclasses.replace(view, purpose="resolve"), drawer(0), 0.0)
    assert not task.check(instance, hasty.text).is_solved


@pytest.mark.parametrize("name", ["ledger_hunt", "sql_audit"])
def test_who_has_not_the_time_for_all_begins_elsewhere_than_the_others_and_together_they_have_it(name: str) -> None:
    task = find(name)
    instance = task.instance(4)
    found = []
    for n in range(1, 5):
        _, seen = play(task, instance, agent=f"lead.{n}")
        view = View(f"lead.{n}", "debater", "debate", tuple(seen[: 1 + 2 * 11]), (Choice("message"),))
        found.append(task.work(view, drawer(0), 1.0).text)
    alone = [task.check(instance, text).value for text in found]
    assert max(alone) < 1
    heard = [ViewItem("question", "user", instance.question), *(ViewItem("return", f"lead.{n + 1}", text, "all") for n, text in enumerate(found))]
    act = task.work(View("lead", "resolver", "resolve", tuple(heard), (Choice("stop"),)), drawer(0), 1.0)
    assert task.check(instance, act.text).value > max(alone) + 0.2


@pytest.mark.parametrize("name", NAMES)
def test_a_critic_with_tools_accepts_what_is_right_and_rejects_what_is_not(name: str) -> None:
    task = find(name)
    instance = task.instance(3)
    answers = [(part, play(task, instance, part)[0].text, play(task, instance, part, skill=0.0)[0].text) for part in instance.subtasks]
    part, right, wrong = next(a for a in answers if a[1] != a[2])
    for said, word in ((right, "ACCEPT"), (wrong, "REJECT")):
        seen = [ViewItem("question", "user", instance.question), ViewItem("subtask", "lead", part.text, part.id), ViewItem("return", "lead.1", said, part.id)]
        view = View("lead.2", "critic", "judge", (*seen, *_read(task, instance, part)), (Choice("return"),))
        assert task.work(view, drawer(0), 1.0).text.startswith(word)
        assert not task.work(view, drawer(0), 0.0).text.startswith(word)


def _read(task: TextTask, instance: Any, part: Any) -> list[ViewItem]:
    return [s for s in play(task, instance, part)[1] if s.kind in ("own", "result")]


@pytest.mark.parametrize("name", NAMES)
def test_impossible_dials_and_seeds_are_one_clear_error(name: str) -> None:
    task = find(name)
    for dials in BAD[name]:
        with pytest.raises(InputError) as caught:
            task.replace(**dials)
        assert caught.value.fix
    for seed in (-1, 2**63, 1.5, "7", True):
        with pytest.raises(InputError, match="seed"):
            task.instance(seed)
