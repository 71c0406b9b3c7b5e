"""plugin_name keeps the contract of a tool, and counts what was counted by hand."""

import asyncio
from pathlib import Path

from counterpoint.app.templates.tool import plugin_name
from counterpoint.envs.task import Document, Instance, Subtask
from counterpoint.team.tool import Place
from counterpoint.testing import check_tool


def test_it_keeps_the_contract() -> None:
    check_tool(plugin_name)


def test_a_word_by_hand() -> None:
    text = (Document("D-1", "Rain", "Rain, rain, and no train."),)
    parts = (Subtask("s1", "count"),)
    tool = plugin_name(Instance(task="t", seed=0, question="?", answer_format="a number", subtasks=parts, documents=text))
    answer = asyncio.run(tool.call({"word": "rain"}, Place("lead.1", Path("."), {})))
    assert answer.text == "2"  # the train is no rain
