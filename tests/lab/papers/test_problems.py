"""The fifteen open problems: each once, with commands that exist, and the site's page says what the command says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from click.testing import CliRunner

from counterpoint import registry
from counterpoint.lab.app.cli.papers.show import show
from counterpoint.lab.papers.problems import PROBLEMS

SITE = Path(__file__).parents[3] / "tools" / "docs_site.py"


def test_every_problem_stands_once_with_commands_that_exist() -> None:
    assert [p.id for p in PROBLEMS] == [f"P{i}" for i in range(1, 16)]
    claims = {name.replace("_", "-").rstrip("-") for name in registry.ids("claim")}
    for problem in PROBLEMS:
        for command in problem.command.split(";"):
            words = command.split()
            assert words[0] == "counterpoint"
            assert words[1] in registry.ids("command")
            if words[1] == "reproduce":
                assert set(words[2:]) <= claims, words


def test_what_is_not_answered_is_said_and_has_no_bare_command_for_a_number() -> None:
    answers = {answer: {p.id for p in PROBLEMS if p.answer == answer} for answer in ("in part", "not")}
    assert answers == {"in part": {"P1", "P2", "P9", "P13", "P14"}, "not": {"P8", "P10"}}
    assert all(p.number and "run it" not in p.number for p in PROBLEMS)


def test_the_page_and_the_command_say_the_same() -> None:
    page = runpy.run_path(str(SITE))["problems_page"]()
    told = [json.loads(line) for line in CliRunner().invoke(show, ["problems", "--json"]).output.splitlines()]
    assert len(told) == 15
    for one in told:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {one['id']} "))
        for part in ("name", "measured", "number", "answer", "open"):
            assert f" {one[part]} |" in row, (one["id"], part)
    assert CliRunner().invoke(show, ["p12"]).exit_code == 0
    assert CliRunner().invoke(show, ["P99"]).exit_code != 0
