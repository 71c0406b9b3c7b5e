"""Text of an answer as it comes: characters of several tokens, stop strings across tokens, calls among words."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

if not all(map(find_spec, ("tokenizers", "jinja2"))):
    pytest.skip("needs the llm extra", allow_module_level=True)

from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.serving.choices import Choice, Offer, Tokens
from counterpoint.lab.lm.serving.requests import ApiError, Function, read_chat, read_completion
from counterpoint.lab.lm.serving.schemas import every
from counterpoint.lab.lm.serving.tool_calls import ToolCall, forced_starts, in_words, read_calls

CHAT = Chat.bytes()
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'


def spelled(text: str) -> Tokens:
    ids = CHAT.encode(text)
    return Tokens(list(ids), [-0.1] * len(ids), [])


def pieces(choice: Choice, text: str, sizes: list[int]) -> list[str]:
    """What is given out while so many tokens come at a time."""
    tokens, out = spelled(text), []
    for size in [*sizes, len(tokens.ids)]:
        choice.add(tokens.first(size))
        tokens = tokens.since(size)
        out.append(choice.delta().text)
    choice.end("length")
    return [*out, choice.delta().text]


TEXTS = st.text(st.sampled_from("ab<tool_call> é漢🙂\n"), max_size=40)
SIZES = st.lists(st.integers(0, 5), max_size=30)


@given(TEXTS, SIZES, st.lists(st.text(st.sampled_from("ab<é🙂 "), min_size=1, max_size=3), max_size=2))
def test_pieces_are_the_whole_up_to_the_first_stop(text: str, sizes: list[int], stops: list[str]) -> None:
    choice = Choice(CHAT, stops, Offer(("f",)) if len(sizes) % 2 else Offer())
    given_out = "".join(pieces(choice, text, sizes))
    end = min([at for stop in stops if (at := text.find(stop)) >= 0], default=len(text))
    assert given_out == choice.text == text[:end]
    assert choice.finish == ("stop" if end < len(text) else "length")
    if end < len(text):
        stop = max((s for s in stops if text.find(s) == end), key=len)
        shortest = min((s for s in stops if text.find(s) >= 0), key=lambda s: text.find(s) + len(s))
        kept = CHAT.decode(choice.tokens.ids)
        assert kept == text[: text.find(shortest) + len(shortest)] or kept == text[: end + len(stop)]


@given(SIZES)
def test_calls_are_given_out_whole_and_their_marks_never(sizes: list[int]) -> None:
    text = f"Well.\n{CALL}\n{CALL.replace('1', '2')}"
    choice = Choice(CHAT, (), Offer(("f",)))
    said = "".join(pieces(choice, text, sizes))
    assert said.strip() == "Well."
    assert choice.calls == [ToolCall("f", '{"x": 1}'), ToolCall("f", '{"x": 2}')]
    assert choice.finish == "tool_calls"


def test_only_the_first_call_where_one_is_wanted() -> None:
    choice = Choice(CHAT, (), Offer(("f",), is_single=True))
    pieces(choice, f"{CALL}\n{CALL}", [3] * 20)
    assert len(choice.calls) == 1
    assert CHAT.decode(choice.tokens.ids) == CALL


@pytest.mark.parametrize(
    "text", ["<tool_call>no json</tool_call>", CALL.replace('"f"', '"g"'), "<tool_call>[1]</tool_call> after", "a </tool_call> b", "<tool_call>"]
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert read_calls(text, ["f"]) == (text, [])


def test_a_call_that_was_cut_off_is_one_where_it_is_whole_or_forced() -> None:
    assert read_calls(CALL.removesuffix("\n</tool_call>"), ["f"]) == ("", [ToolCall("f", '{"x": 1}')])
    torn = '<tool_call>\n{"name": "f", "arguments": {"x": tr'
    assert read_calls(torn, ["f"]) == (torn, [])
    assert read_calls(torn, ["f"], is_forced=True) == ("", [ToolCall("f", '{"x": tr')])


def test_arguments_that_can_be_listed_are() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}}, "required": ["a"]}
    starts = forced_starts([Function("f", parameters=schema)])
    assert len(starts) == 6
    assert {tuple(json.loads(read_calls(start, ["f"])[1][0].arguments).items()) for start in starts} == {
        (("a", 1),), (("a", 2),), (("a", 1), ("b", True)), (("a", 1), ("b", False)), (("a", 2), ("b", True)), (("a", 2), ("b", False)),
    }  # fmt: skip
    assert forced_starts([Function("f", parameters={"properties": {"x": {"type": "string"}}})]) == ['<tool_call>\n{"name": "f", "arguments": {']


LEAVES = st.one_of(
    st.lists(st.sampled_from(["a", 1, None, True]), min_size=1, max_size=3, unique_by=repr).map(lambda few: {"enum": few}),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"const": 7}, {"$ref": "#/$defs/few"}, {"anyOf": [{"const": "x"}, {"type": "boolean"}]}]),
    st.sampled_from([{"type": "string"}, {"$ref": "#/nowhere"}, {"anyOf": [{"const": "x"}, {"type": "number"}]}, {"type": "object"}, True]),
)


@given(st.dictionaries(st.sampled_from("pqrs"), LEAVES, min_size=1, max_size=4), st.booleans())
def test_what_is_listed_a_schema_allows_and_all_of_it(fields: dict[str, Any], is_nested: bool) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    inner = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    schema = {"$defs": {"few": {"enum": ["y", "n"]}}, **({"properties": {"in": inner}} if is_nested else inner)}
    listed = every(schema)
    can = [about != {"type": "string"} and about not in ({"$ref": "#/nowhere"}, {"type": "object"}, True) and {"type": "number"} not in (about.get("anyOf") or ()) for about in fields.values()]  # type: ignore[union-attr]
    sizes = [len(about.get("enum") or ()) or {"boolean": 2}.get(about.get("type", ""), 0) or (2 if "$ref" in about else 3 if "anyOf" in about else 1) for about in fields.values() if about is not True]  # type: ignore[union-attr]
    count = math.prod(sizes)
    assert len(listed) == (count if all(can) and count <= 64 else 0)
    for value in listed:
        jsonschema.validate(value, schema)
    assert len({json.dumps(value) for value in listed}) == len(listed)


def test_a_schema_that_names_itself_has_no_list() -> None:
    assert every({"$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}) == []


def test_tools_are_offered_and_answered_in_words() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "", "tool_calls": [call]}, *({"role": "tool", "content": c} for c in "12")]
    words = in_words(messages, [Function("f", "does it")])
    assert [m["role"] for m in words] == ["system", "user", "assistant", "user"]
    assert '"description": "does it"' in words[0]["content"]
    assert words[2]["content"] == CALL
    assert words[3]["content"].count("<tool_response>") == 2


def test_tokens_of_one_character_are_told_in_bytes() -> None:
    ids = CHAT.encode("🙂")
    assert len(ids) == 4
    assert bytes(byte for token in ids for byte in CHAT.token_bytes(token)).decode() == "🙂"


def test_a_template_that_writes_tools_writes_them() -> None:
    template = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.tool_calls %}<tool_call>{{ m.tool_calls[0].function | tojson }}{% endif %}\n{% endfor %}"
    chat = Chat(CHAT.tokenizer, template=template, ends=CHAT.ends)
    assert (chat.writes_tools, CHAT.writes_tools) == (True, False)
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": "<|im_end|>"}}}
    ids = chat.conversation([{"role": "assistant", "content": "", "tool_calls": [call]}], [{"name": "<|im_start|>"}])
    assert chat.decode(ids) == '[{"name": "< |im_start|>"}]assistant:<tool_call>{"name": "f", "arguments": {"x": "< |im_end|>"}}'
    assert not {1, 2} & set(ids), "no text of a tool steers the model"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ('{"model": "x"}', "prompt"), ('{"prompt": "x"}', "model"), ('{"model": "x", "prompt": []}', "prompt"), ('{"model": "x", "prompt": [[1, -1]]}', "prompt"),
        ('{"model": "x", "prompt": "a", "echo": true, "logprobs": 1}', "logprobs"), ('{"model": "x", "prompt": "a", "best_of": 2}', "best_of"),
        ('{"model": "x", "prompt": "a", "n": "2"}', "n"), ("[1]", None), ("{", None), ("\u00ff", None),
    ],
)  # fmt: skip
def test_a_wrong_completion_request_names_the_field(body: str, param: str | None) -> None:
    def use() -> Any:
        read = read_completion(body.encode("latin-1"))
        return read.prompts, read.alternatives

    with pytest.raises(ApiError) as caught:
        use()
    assert caught.value.param == param
    assert caught.value.body["error"]["param"] == param


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "function", "name", "x"]), inner, max_size=4), max_leaves=12))
def test_whatever_comes_is_a_request_or_an_error_of_ours(value: Any) -> None:
    for name in ("messages", "tools", "tool_choice", "stop", "seed", "stream_options"):
        table = {"model": "x", "messages": [{"role": "user", "content": "a"}], name: value}
        with suppress(ApiError):
            read = read_chat(json.dumps(table).encode())
            assert [read.stops, read.forced, read.most, [message.text for message in read.messages]]
