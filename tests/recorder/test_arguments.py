"""Arguments from text: bare, as JSON, and all that is malformed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.lab.team.tool import ToolResult
from counterpoint.lab.team.toolbox import read_arguments, right_form
from counterpoint.lab.team.tools.notes import notes
from counterpoint.lab.team.tools.search import search
from tools_help import instance

SEARCH, NOTES = search(instance()), notes(instance())


class Dial(search):
    """A tool with every kind of argument that we check."""

    name = "dial"
    main = "to"

    def __init__(self) -> None:
        super().__init__(instance())
        self.arguments: Mapping[str, Any] = {
            "type": "object",
            "properties": {
                "to": {"type": "integer", "minimum": 1, "maximum": 9},
                "way": {"enum": ["up", "down"]},
                "is_loud": {"type": "boolean"},
                "by": {"type": ["number", "null"]},
                "names": {"type": "array"},
            },
            "required": ["to"],
        }


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("two words", {"query": "two words"}),
        ("  spaced ", {"query": "spaced"}),
        ('{"query": "x", "k": 3}', {"query": "x", "k": 3}),
        ('"quoted"', {"query": '"quoted"'}),
        ("12", {"query": "12"}),
    ],
)
def test_a_bare_text_is_the_main_argument_and_an_object_is_all(text: str, args: dict[str, Any]) -> None:
    assert read_arguments(SEARCH, text) == args


def test_no_text_is_no_arguments() -> None:
    assert read_arguments(NOTES, " ") == {}


@pytest.mark.parametrize(
    "text", ["7", '{"to": 7, "way": "up", "is_loud": true, "by": null, "names": [], "more": 1}', '{"to": 1, "by": 0.5}']
)
def test_each_type_is_taken(text: str) -> None:
    args = read_arguments(Dial(), text)
    assert args == (json.loads(text) if text.startswith("{") else {"to": 7})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'query' is missing"),
        ("{}", "'query' is missing"),
        ("{", "no JSON object"),
        ('{"query": "x"} and more', "no JSON object"),
        ('{"query": ""}', "'query' is empty"),
        ('{"query": 3}', "must be of type string"),
        ('{"query": "x", "k": true}', "must be of type integer"),
        ('{"query": "x", "k": 0}', "must be from 1 to 50"),
        ('{"query": "x", "j": 0}', "no argument 'j'"),
        ("{" * 100_000, "no JSON object"),
        ('{"query":' + "[" * 100_000, "no JSON object"),
    ],
)
def test_malformed_arguments_are_answered_with_the_right_form(text: str, said: str) -> None:
    result = read_arguments(SEARCH, text)
    assert isinstance(result, ToolResult)
    assert (result.ok, result.error) == (False, "malformed")
    assert said in result.text
    assert result.text.endswith(right_form(SEARCH))


@pytest.mark.parametrize(
    "text", ["x", "10", "true", '{"to": 1, "way": "left"}', '{"to": 1, "names": {}}', '{"to": 1, "by": "a"}']
)
def test_what_the_schema_excludes_is_malformed(text: str) -> None:
    assert isinstance(read_arguments(Dial(), text), ToolResult)


def test_a_tool_without_arguments_takes_none() -> None:
    result = read_arguments(NOTES, "all")
    assert isinstance(result, ToolResult)
    assert result.text == "notes: it takes no argument; write TOOL notes"


@given(st.text(), st.sampled_from([SEARCH, NOTES, Dial()]))
def test_any_text_is_read_or_refused(text: str, tool: Any) -> None:
    assert isinstance(read_arguments(tool, text), dict | ToolResult)
    assert isinstance(read_arguments(tool, "{" + text), dict | ToolResult)
