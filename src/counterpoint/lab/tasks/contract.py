"""What every text task promises, called: `check_task` is this with its own error.

Always true: the checks use a task only as anybody may, so they hold for one from outside too; each failure is one sentence. The
truth file's first line is a marker and the rest a right answer: so a check knows the truth without a task's own code.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, get_args

from counterpoint.errors import CounterpointError
from counterpoint.lab.tasks.leakage import leaks, readable_texts, truth
from counterpoint.lab.tasks.task import VERBS, Act, Choice, Instance, Planted, Score, TextTask, View, ViewItem
from counterpoint.lab.worlds.contract import Require, config, declared, refuses, same
from counterpoint.trace.keyed import purpose, uniform

# -- text tasks: instances, truth, answers ------------------------------------------------------------------------------

TOOLS = ("search", "open", "sql", "python", "note", "notes", "simulate")
ODD = (
    "",
    " ",
    "none",
    "|;|;|",
    "1|2|3; a|b|c",
    "-1",
    "9" * 400,
    "0x10 1e999 nan inf -0 ½ ٣",
    "C-1234|Ж\u2028\x00|1; R1|E1|-",
    "(" * 3000 + "def f():\n\treturn",
    "\ud800 lone",
    '{"a": [1, {"b": null}]}',
    "true; false; true",
    "D-1 | title\nA text.\nB | C | D",
)
"""Texts that no checker, merge or player may stumble over."""
_SEEDS = range(3)
_ODD_KINDS: tuple[tuple[Any, str], ...] = (
    ("own", "lead.1"),
    ("result", "open"),
    ("result", "search"),
    ("result", "sql"),
    ("return", "lead.2"),
    ("error", "lead.1"),
)
_PURPOSES = ("turn", "work", "judge", "debate", "resolve")


def check_task(task: TextTask, require: Require) -> None:
    """Everything, cheap things first; `require` is told what does not hold."""
    declared(task, TextTask, require)
    config(task, require)
    _rules(task, require)
    instances = [task.instance(seed) for seed in _SEEDS]
    for instance in instances:
        _whole(task, instance, require)
        _task_repeats(task, instance, require)
        _truth(task, instance, require)
        _scores(task, instance, require)
        _merges(task, instance, require)
        _plays(task, instance, require)
    require(not same(dataclasses.replace(instances[0], seed=1), instances[1]), "two seeds give the same instance")


def _rules(task: TextTask, require: Require) -> None:
    rules = task.rules
    are_names = isinstance(rules, tuple) and bool(rules) and all(isinstance(r, str) and r for r in rules)
    require(are_names and len(set(rules)) == len(rules), f"`rules` are some different names, not {rules!r}")


# -- instances and truth -------------------------------------------------------------------------------------------------


def _whole(task: TextTask, instance: Instance, require: Require) -> None:
    where = f"seed {instance.seed}"
    require(instance.task == task.name, f"{where}: the instance is of {instance.task!r}, not of {task.name!r}")
    require(bool(instance.question.strip()), f"{where}: there is no question")
    is_line = bool(instance.answer_format.strip()) and "\n" not in instance.answer_format
    require(is_line, f"{where}: the answer format is not one line")
    parts = [part.id for part in instance.subtasks]
    require(bool(parts) and len(set(parts)) == len(parts), f"{where}: subtasks need different ids, at least one: {parts}")
    require(all(part.text.strip() for part in instance.subtasks), f"{where}: a subtask has no text")
    unknown = [tool for tool in instance.tools if tool not in TOOLS]
    require(not unknown, f"{where}: no tool named {', '.join(map(repr, unknown))}: known are {', '.join(TOOLS)}")
    ids = [document.id for document in instance.documents]
    require(len(set(ids)) == len(ids), f"{where}: two documents have one id")
    odd = [d.id for d in instance.documents if set("|\n") & set(d.id + d.title)]
    require(not odd, f"{where}: an id or title has a | or a line break in it: {odd[:1]}")
    for planted in instance.planted:
        _planted(planted, instance, where, require)


def _planted(planted: Planted, instance: Instance, where: str, require: Require) -> None:
    vectors = get_args(Planted.__dataclass_fields__["vector"].type) or ("AV2", "AV3", "AV4", "benign")
    require(planted.vector in vectors, f"{where}: planted with an unknown vector {planted.vector!r}")
    keys = [key for key in (planted.canary, planted.tool, planted.file) if key]
    require(bool(keys) != (planted.vector == "benign"), f"{where}: an attack has a key and a control has none, not {keys}")
    require(all(key in planted.text for key in keys), f"{where}: the planted text does not name its key")
    if planted.where.startswith("document:"):
        texts = [d.text for d in instance.documents if d.id == planted.where.removeprefix("document:")]
        require(bool(texts) and planted.text in texts[0], f"{where}: {planted.where} does not hold what is planted there")


def _task_repeats(task: TextTask, instance: Instance, require: Require) -> None:
    again = task.replace().instance(instance.seed)
    require(same(again, instance), f"seed {instance.seed}: the same seed gives another instance")
    require(task.truth_file(again) == task.truth_file(instance), f"seed {instance.seed}: the same instance has another truth")


def _truth(task: TextTask, instance: Instance, require: Require) -> None:
    where = f"seed {instance.seed}"
    key, solution = truth(instance, task)
    require(len(key) >= 8 and bool(solution), f"{where}: the truth file is no marker line and a solution")
    score = task.check(instance, solution)
    require(score.is_solved and score.value == 1, f"{where}: the truth file's solution scores {score.value}")
    texts = readable_texts(instance)
    for leak in leaks(instance, texts.values(), task):
        require(False, f"{where}: the {leak.what} stands in {[*texts][int(leak.where)]}")


def _scores(task: TextTask, instance: Instance, require: Require) -> None:
    for text in ODD:
        score = task.check(instance, text)
        is_score = isinstance(score, Score) and math.isfinite(score.value) and 0 <= score.value <= 1
        require(is_score, f"{text[:20]!r} scores {score}, which is no number from 0 to 1")
        require(score.is_solved == (score.value == 1), f"{text[:20]!r} scores {score.value}, and is_solved is {score.is_solved}")
        require(task.check(instance, text) == score, f"{text[:20]!r} scores otherwise the second time")
    require(not task.check(instance, "").is_solved, "an empty answer is right")


def _merges(task: TextTask, instance: Instance, require: Require) -> None:
    for rule in task.rules:
        for texts in ([], [""], list(ODD), [truth(instance, task)[1]]):
            require(isinstance(task.merge(instance, rule, texts), str), f"merge by {rule} gives no text")
        one = task.merge(instance, rule, [truth(instance, task)[1]])
        require(task.check(instance, one).is_solved, f"merge by {rule} of one right answer alone is wrong")
    refuses(lambda: task.merge(instance, "no such rule", []), CounterpointError, "an unknown rule", require)


# -- playing -------------------------------------------------------------------------------------------------------------


def odd_views(instance: Instance) -> Iterator[View]:
    """Views that a player must cope with: nothing seen, odd texts of every kind, every purpose, few choices or many."""
    question = ViewItem("question", "user", instance.question)
    part = ViewItem("subtask", "lead", instance.subtasks[0].text, instance.subtasks[0].id)
    tools = tuple(Choice("tool", tool) for tool in instance.tools)
    ends = ((Choice("return"),), (Choice("stop"),), (Choice("message", "lead.2"), Choice("noop", "", "")))
    odd = [ViewItem(kind, by, text, "s1") for text in ODD for kind, by in _ODD_KINDS]
    for turn in _PURPOSES:
        for items in ((), (question,), (question, part), (question, part, *odd), (*odd,), (part, *odd, question)):
            for end in ends:
                for choices in ((*tools, *end), end):
                    yield View("lead.1", "critic" if turn == "judge" and end is ends[0] else "worker", turn, items, choices)


def _plays(task: TextTask, instance: Instance, require: Require) -> None:
    for k, view in enumerate(odd_views(instance)):
        for skill in (1.0, 0.0):
            act = task.work(view, lambda name, k=k: float(uniform(k, purpose(name))), skill)  # type: ignore[misc]
            is_act = isinstance(act, Act) and act.verb in VERBS and isinstance(act.text, str)
            require(is_act, f"work gives {act!r}, which is no act")
            offered = [c for c in view.choices if (c.verb, c.target) == (act.verb, act.target) and c.text in (None, act.text)]
            require(bool(offered), f"work does {act.verb} {act.target}, which is not offered ({view.purpose})")
