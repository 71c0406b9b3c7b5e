"""The players of T1, T2 and T5 solve their instances with the team's own search, open and sql, at default sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterpoint import registry
from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.tasks.task import task as find
from counterpoint.lab.team.tool import Place
from text_help import calls, play

STEPS = 11  # a worker's twelve, less the return


def real(instance: Instance, folder: Path) -> dict[str, Callable[[Instance, str], str]]:
    made: dict[str, Any] = {name: registry.get("tool", name)(instance) for name in instance.tools}
    place = Place("lead.1", folder, {})

    def caller(tool: Any) -> Callable[[Instance, str], str]:
        def call(_: Instance, text: str) -> str:
            found: str = asyncio.run(tool.call({tool.main: text} if tool.main else {}, place)).text
            return found

        return call

    return {name: caller(tool) for name, tool in made.items()}


@pytest.mark.parametrize("name", ["ledger_hunt", "sql_audit", "pointer_chase"])
def test_parts_are_solved_within_a_workers_steps(name: str, tmp_path: Path) -> None:
    task = find(name)
    for seed in range(4):
        instance = task.instance(seed)
        tools = real(instance, tmp_path)
        done = [play(task, instance, part, tools=tools) for part in instance.subtasks]
        assert max(calls(seen) for _, seen in done) <= STEPS
        assert task.check(instance, task.merge(instance, task.rules[0], [act.text for act, _ in done])).is_solved


def test_pages_of_registers_are_found_in_a_large_ledger(tmp_path: Path) -> None:
    task = find("ledger_hunt").replace(documents=600, rows=60, parts=4, firms=60)
    instance = task.instance(0)
    tools = real(instance, tmp_path)
    parts = [play(task, instance, part, tools=tools)[0].text for part in instance.subtasks]
    assert task.check(instance, task.merge(instance, "union", parts)).is_solved


def test_a_planted_note_is_read(tmp_path: Path) -> None:
    task = find("pointer_chase").replace(attack="AV4")
    instance = task.instance(0)
    _, seen = play(task, instance, tools=real(instance, tmp_path))
    assert any(instance.planted[0].text in s.text for s in seen if s.kind == "result")
