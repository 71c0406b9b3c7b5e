"""plugin_name: counts how often a word stands in the documents of the task.

Always true: it changes nothing, so the same call gives the same answer; a document counts whole words, capitals or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.tool import Effect, Place, ToolResult


class plugin_name:
    """The tool `plugin_name`."""

    name = "plugin_name"
    version = "1"
    effect: Effect = "pure"
    about = "counts how often a word stands in the documents; argument: the word"
    main = "word"
    example: Mapping[str, Any] = {"word": "harbour"}
    arguments: Mapping[str, Any] = {
        "type": "object",
        "properties": {"word": {"type": "string", "minLength": 1}},
        "required": ["word"],
        "additionalProperties": False,
    }

    def __init__(self, instance: Instance) -> None:
        self._words = [w for d in instance.documents for w in re.findall(r"\w+", d.text.casefold())]

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """Count it."""
        return ToolResult(str(self._words.count(args["word"].casefold())))

    async def close(self) -> None:
        """Nothing is held."""


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a tool, and counts what was counted by hand."""

import asyncio
from pathlib import Path

# from here import plugin_name
from counterpoint.lab.tasks.task import Document, Instance, Subtask
from counterpoint.lab.team.tool import Place
from counterpoint.lab.testing import check_tool


def test_it_keeps_the_contract() -> None:
    check_tool(plugin_name)


def test_a_word_by_hand() -> None:
    text = (Document("D-1", "Rain", "Rain, rain, and no train."),)
    parts = (Subtask("s1", "count"),)
    tool = plugin_name(Instance(task="t", seed=0, question="?", answer_format="a number", subtasks=parts, documents=text))
    answer = asyncio.run(tool.call({"word": "rain"}, Place("lead.1", Path("."), {})))
    assert answer.text == "2"  # the train is no rain
