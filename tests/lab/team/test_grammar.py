"""The action grammar: what is written is read again, and whatever is read is a legal act or a reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.lab.tasks import grammar
from counterpoint.lab.tasks.grammar import Malformed
from counterpoint.lab.tasks.task import VERBS, Act, Choice

TARGETS = st.sampled_from(["", "worker", "lead.1", "lead.2.s3-1", "search", "union"])
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=40)
ACTS = st.builds(Act, st.sampled_from(VERBS), TARGETS, TEXTS.map(str.strip))
CHOICES = st.lists(st.builds(Choice, st.sampled_from(VERBS), TARGETS, st.none() | st.sampled_from(["", "s1", "s2"])), min_size=1, max_size=6)


@given(ACTS)
def test_a_written_act_is_read_again(act: Act) -> None:
    assert grammar.read(grammar.write(act), [Choice(act.verb, act.target, None)]) == act


@given(st.text(max_size=200), CHOICES)
def test_any_text_is_a_legal_act_or_a_reason(text: str, choices: list[Choice]) -> None:
    read = grammar.read(text, choices)
    assert read.why if isinstance(read, Malformed) else grammar.matching(read, choices) is not None


@given(CHOICES, TEXTS)
def test_every_start_leads_to_its_choice(choices: list[Choice], free: str) -> None:
    for choice in choices:
        start = grammar.starts([choice])[0]
        read = grammar.read(start if choice.text is not None else start + free, choices)
        assert isinstance(read, Act)
        assert (read.verb, read.target) == (choice.verb, choice.target)


@given(CHOICES, st.text(max_size=60) | st.dictionaries(st.text(max_size=6), st.text(max_size=6)).map(json.dumps), st.sampled_from([*VERBS, "fly", ""]))
def test_any_function_call_is_a_legal_act_or_a_reason(choices: list[Choice], arguments: str, name: str) -> None:
    read = grammar.read_calls([{"name": name, "arguments": arguments}], "", choices)
    assert read.why if isinstance(read, Malformed) else grammar.matching(read, choices) is not None


def test_chatter_around_an_act_is_passed_over() -> None:
    choices = [Choice("tool", "search", None)]
    assert grammar.read("Sure! I will look.\n> TOOL search: contracts of Acme\nand then...", choices) == Act("tool", "search", "contracts of Acme")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing was said"),
        ("I would spawn somebody", "no line begins with a verb"),
        ("STOP: 42", "STOP is not legal now"),
        ("DELEGATE lead.9: s1", "'lead.9' is no target of DELEGATE now"),
        ("DELEGATE lead.1: s7", "'s7' is none of the texts offered for DELEGATE lead.1"),
    ],
)
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    read = grammar.read(text, [Choice("delegate", "lead.1", "s1"), Choice("delegate", "lead.2", "s1")])
    assert isinstance(read, Malformed)
    assert why in read.why


def test_functions_name_targets_and_texts() -> None:
    found = {f["function"]["name"]: f["function"]["parameters"] for f in grammar.functions([Choice("delegate", "lead.1", "s1"), Choice("stop", "", None)])}
    assert found["delegate"]["properties"]["target"]["enum"] == ["lead.1"]
    assert found["delegate"]["properties"]["text"]["enum"] == ["s1"]
    assert found["stop"]["required"] == ["text"]
    calls = [{"name": "delegate", "arguments": '{"target": "lead.1", "text": "s1"}'}]
    assert grammar.read_calls(calls, "", [Choice("delegate", "lead.1", "s1")]) == Act("delegate", "lead.1", "s1")
