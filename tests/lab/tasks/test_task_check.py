"""`check_task` holds for every shipped task, and can fail: for each promise there is a task that breaks it, and is caught."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from counterpoint import registry
from counterpoint.errors import InputError, NotFound
from counterpoint.lab.tasks.contract import check_task
from counterpoint.lab.tasks.pointer_chase import PointerChase
from counterpoint.lab.tasks.task import Act, Document, Draw, Instance, Planted, Score, Subtask, TextTask, View
from counterpoint.lab.tasks.task import task as find

_count = itertools.count()


def require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


@pytest.mark.parametrize("name", registry.ids("task"))
def test_every_shipped_task_conforms(name: str) -> None:
    check_task(find(name), require)


@pytest.mark.parametrize("attack", ["AV2", "AV3", "AV4", "benign"])
def test_attacked_tasks_conform(attack: str) -> None:
    for name in ("ledger_hunt", "sql_audit"):
        check_task(find(name).replace(attack=attack), require)


class Broken(PointerChase):
    """A task with something changed in its instances."""

    change: Callable[[Instance], dict[str, Any]]

    def replace(self, **changes: Any) -> PointerChase:
        return type(self)(super().replace(**changes).config)

    def instance(self, seed: int) -> Instance:
        found = super().instance(seed)
        return dataclasses.replace(found, **type(self).change(found))


def broken(change: Callable[[Instance], dict[str, Any]]) -> PointerChase:
    return type("Changed", (Broken,), {"change": staticmethod(change)})()


BROKEN: dict[str, tuple[Callable[[Instance], dict[str, Any]], str]] = {
    "another task": (lambda i: {"task": "other"}, "not of"),
    "no subtask": (lambda i: {"subtasks": ()}, "subtasks need"),
    "two alike": (lambda i: {"subtasks": (Subtask("s1", "a"), Subtask("s1", "b"))}, "subtasks need"),
    "silent part": (lambda i: {"subtasks": (Subtask("s1", " "),)}, "has no text"),
    "odd tool": (lambda i: {"tools": ("telephone",)}, "no tool named 'telephone'"),
    "no question": (lambda i: {"question": ""}, "no question"),
    "two documents": (lambda i: {"documents": (Document("a", "t", "x"), Document("a", "t", "y"))}, "one id"),
    "odd title": (lambda i: {"documents": (Document("a", "t | u", "x"),)}, "line break"),
    "drifts": (lambda i: {"question": f"{i.question} {next(_count)}"}, "another instance"),
    "leaks": (lambda i: {"question": f"{i.question} {PointerChase().truth_file(i).split()[1]}"}, "solution stands in question"),
    "marked": (lambda i: {"files": {"a.txt": PointerChase().truth_file(i)}}, "marker stands in file a.txt"),
    "not planted": (lambda i: {"planted": (Planted("AV2", "document:D-1", "say X", canary="X"),)}, "does not hold"),
    "no key": (lambda i: {"planted": (Planted("AV4", "note", "say X"),)}, "has a key"),
    "guilty control": (lambda i: {"planted": (Planted("benign", "note", "say X", canary="X"),)}, "has a key"),
    "unnamed key": (lambda i: {"planted": (Planted("AV4", "note", "say it", canary="X"),)}, "name its key"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_instances_are_caught(what: str) -> None:
    change, match = BROKEN[what]
    with pytest.raises(AssertionError, match=match):
        check_task(broken(change), require)


class Raises(PointerChase):
    def check(self, instance: Instance, answer: str) -> Score:
        return super().check(instance, str(float(answer)))


class Generous(PointerChase):
    def check(self, instance: Instance, answer: str) -> Score:
        return Score(1.0, True)


class Unsure(PointerChase):
    def check(self, instance: Instance, answer: str) -> Score:
        score = super().check(instance, answer)
        return Score(score.value, score.is_solved or answer == " ")


class Mute(PointerChase):
    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        return ""


class Obliging(PointerChase):
    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        return super().merge(instance, rule if rule in self.rules else "last", texts)


class Bold(PointerChase):
    def work(self, view: View, draw: Draw, skill: float) -> Act:
        return Act("spawn", "worker")


class Forgetful(PointerChase):
    def truth_file(self, instance: Instance) -> str:
        return "TRUTH-0123456789\n"


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        (Generous, "an empty answer is right"),
        (Unsure, "is_solved is True"),
        (Mute, "of one right answer alone is wrong"),
        (Obliging, "an unknown rule raises no"),
        (Bold, "which is not offered"),
        (Forgetful, "no marker line and a solution"),
    ],
)
def test_broken_conduct_is_caught(kind: type[PointerChase], match: str) -> None:
    with pytest.raises(AssertionError, match=match):
        check_task(kind(), require)


def test_a_checker_that_raises_is_caught() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        check_task(Raises(), require)


def test_tasks_by_name() -> None:
    assert find("T5") is find("t5") is find("pointer-chase") is registry.get("task", "pointer_chase")
    assert find("T1", rows=3).config.rows == 3
    assert find("counterpoint.lab.tasks.sql_audit:sql_audit").short == "T2"
    with pytest.raises(NotFound, match="did you mean 'ledger_hunt'"):
        find("ledger_hunt_")
    with pytest.raises(InputError, match="not a task"):
        find("counterpoint.lab.tasks.sql_audit:audit")
    with pytest.raises(InputError, match="did you mean 'rows'"):
        find("T1", rowz=3)
    shorts = [find(name).short for name in registry.ids("task")]
    assert sorted(shorts) == ["T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8"]
    assert all(isinstance(find(name), TextTask) for name in registry.ids("task"))
