"""What a model was asked and what it answered, read out of other people's arguments and results.

Always true: nothing here raises, and nothing is guessed: messages and token ids are those that were given, a log-probability
stands at its own token or is left out. Read are the shapes of OpenAI (chat, completions, responses), Anthropic and LangChain, the
fields in which vLLM and SGLang tell token ids, and plain tables with the same names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from counterpoint.recorder.values import attribute, plain, text_of, word

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "function": "tool", "developer": "system"}
_KNOWN = frozenset({"system", "user", "assistant", "tool"})
_ASKED = ("messages", "input", "prompt")
_SYSTEM = ("system", "instructions")
PARAMETERS = frozenset({
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "max_output_tokens", "seed", "stop", "n",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "tool_choice", "parallel_tool_calls", "response_format",
    "reasoning_effort",
})  # fmt: skip
"""Arguments of a call that say how to sample."""
_NO_TEXT = frozenset({"self", "cls", "model", *_SYSTEM, *PARAMETERS})
_BESIDE = frozenset({"tools", *_SYSTEM, *PARAMETERS})
"""Arguments that say more than what was asked; most calls have none of them."""
_TOKEN_ID = re.compile(r"token_id:(\d+)\Z")
_SPAN = 1 << 31


class ChatMessage(NamedTuple):
    """One message: its text, and its other fields (`role`, and `tool_calls`, `tool_call_id` or `name` where it has them)."""

    text: str
    fields: dict[str, Any]


class Question(NamedTuple):
    """What a model call was asked; None is not known."""

    messages: list[ChatMessage] | None = None
    tools: str | None = None
    """The tools that were offered, as JSON."""
    parameters: dict[str, Any] | None = None


NO_QUESTION = Question()


class Answer(NamedTuple):
    """What a model said, and what its provider tells about it."""

    text: str | None = None
    tool_calls: list[dict[str, str]] = []
    finish: str | None = None
    prompt_ids: list[int] | None = None
    token_ids: list[int] | None = None
    logps: list[float] | None = None
    lengths: list[int] | None = None
    """Bytes of each token that has a log-probability, where the ids are not told: which token of a tokenizer it may be."""


# -- what was asked --------------------------------------------------------------------------------------------------------


def question_of(names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Question:
    """The messages, tools and parameters among the arguments of a call; a lone text is what the user says."""
    try:
        known = dict(zip(names, args, strict=False))
        known.update(kwargs)
        given = None
        for name in _ASKED:
            given = known.get(name) if given is None else given
        if given is None:
            told = [value for name, value in known.items() if name not in _NO_TEXT]
            given = next((value for value in told if _is_chat(value)), told[0] if len(told) == 1 else None)
        if _BESIDE.isdisjoint(known):
            return NO_QUESTION if given is None else Question(messages_of(given))
        system = next((known[name] for name in _SYSTEM if known.get(name)), None)
        tools = known.get("tools")
        chosen = {
            name: known[name] for name in PARAMETERS & known.keys() if isinstance(known[name], (int, float, str, list, dict))
        }
        return Question(messages_of(given, system), text_of(_shown(tools)) if _is_list(tools) else None, chosen or None)
    except Exception:  # the arguments' own code broke
        return NO_QUESTION


def messages_of(given: Any, system: Any = None) -> list[ChatMessage] | None:
    """Messages in the order in which the model reads them; None for what are none."""
    if isinstance(given, str):
        found = [ChatMessage(plain(given), {"role": "user"})]
    elif _is_chat(given):
        found = list(chain.from_iterable(_messages(one) for one in given))
    else:
        return None
    text = None if system is None else _content(system)[0]
    return [ChatMessage(text, {"role": "system"}), *found] if text else found


def _is_chat(value: Any) -> bool:
    return _is_list(value) and bool(value) and all(_role(one) or attribute(one, "type") in _ITEMS for one in value)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _role(message: Any) -> str | None:
    for name in ("role", "type"):
        role = attribute(message, name)
        role = _ROLES.get(role, role) if isinstance(role, str) else None
        if role in _KNOWN:
            return role
    return None


_ITEMS = frozenset({"function_call", "function_call_output", "reasoning", "message"})
"""Items of OpenAI's responses that have no role."""


def _messages(one: Any) -> Iterator[ChatMessage]:
    """One message as a provider takes it: several where it holds results of tools, none where it is only thought."""
    kind, role = attribute(one, "type"), _role(one)
    if role is None:
        if kind == "function_call":
            yield ChatMessage("", {"role": "assistant", "tool_calls": [_call(one)]})
        elif kind == "function_call_output":
            asked = {"role": "tool", "tool_call_id": word(attribute(one, "call_id"), "")}
            yield ChatMessage(text_of(attribute(one, "output")) or "", asked)
        return
    content = attribute(one, "content")
    blocks = [b for b in content if attribute(b, "type") in ("tool_use", "tool_result")] if _is_list(content) else []
    for block in blocks:
        if attribute(block, "type") == "tool_result":
            asked = {"role": "tool", "tool_call_id": word(attribute(block, "tool_use_id"), "")}
            yield ChatMessage(_content(attribute(block, "content"))[0] or "", asked)
    text, is_whole = _content([b for b in content if b not in blocks] if blocks else content)
    fields: dict[str, Any] = {"role": role, **({} if is_whole else {"parts": True})}
    for name in ("name", "tool_call_id"):
        if value := attribute(one, name):
            fields[name] = word(value, "")
    calls = attribute(one, "tool_calls")
    calls = [*(calls if _is_list(calls) else ()), *(b for b in blocks if attribute(b, "type") == "tool_use")]
    if calls:
        fields["tool_calls"] = [_call(call) for call in calls]
    if text or calls or not blocks:
        yield ChatMessage(text or "", fields)


def _content(content: Any) -> tuple[str | None, bool]:
    """The text of a message, and whether that is all of it: images and sounds are kept as JSON."""
    if not _is_list(content):
        return text_of(content), True
    texts = [attribute(part, "text") if not isinstance(part, str) else part for part in content]
    if all(isinstance(text, str) for text in texts):
        return plain("".join(texts)), True
    return text_of(_shown(content)), False


def _call(call: Any) -> dict[str, str]:
    """A call of a function, as OpenAI, Anthropic and LangChain say it: its name, its arguments as JSON, and its id."""
    function = attribute(call, "function") or call
    arguments = next((a for n in ("arguments", "args", "input") if (a := attribute(function, n)) is not None), None)
    out = {"name": word(attribute(function, "name"), ""), "arguments": text_of(arguments) or "{}"}
    ident = attribute(call, "call_id") or attribute(call, "id")
    return {**out, "id": plain(ident)} if isinstance(ident, str) and ident else out


def _shown(value: Any) -> Any:
    """Objects of pydantic as plain data."""
    if _is_list(value):
        return [_shown(one) for one in value]
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) and not isinstance(value, type) else value


# -- what was answered -----------------------------------------------------------------------------------------------------


def answer_of(value: Any) -> Answer | None:
    """What a model's result says beside its usage; None for a text, and for what is no result of a known shape."""
    if value is None or isinstance(value, (str, bytes, int, float)):
        return None
    try:
        return _answer(value)
    except Exception:  # its own code broke
        return None


def _answer(value: Any) -> Answer | None:
    choices, output, content = (attribute(value, name) for name in ("choices", "output", "content"))
    if _is_list(choices) and choices:
        return _of_choice(value, choices[0])
    if _is_list(output):
        return _of_items(output, attribute(value, "status"))
    about = attribute(value, "response_metadata")
    text = attribute(value, "text")
    if not isinstance(text, str):
        calls = attribute(value, "tool_calls")
        if content is None and not calls:
            return None
        message = next((m for m in _messages(value) if m.fields["role"] != "tool"), None) if _role(value) else None
        text = _content(content)[0] if message is None else message.text
        calls = message.fields.get("tool_calls", []) if message else []
    else:
        calls = attribute(value, "tool_calls")
        calls = [_call(call) for call in calls] if _is_list(calls) else []
    ids, given = _ids_in(value, about), attribute(value, "logps") or attribute(value, "logprobs")
    logps, lengths = _logps(given if given is not None else attribute(about, "logprobs"))
    finish = attribute(value, "finish") or attribute(value, "stop_reason") or attribute(about, "finish_reason")
    return _checked(Answer(text, calls, _word(finish), *ids, logps, lengths))


def _of_choice(value: Any, choice: Any) -> Answer:
    message = attribute(choice, "message") or choice
    text = attribute(message, "content") if message is not choice else attribute(choice, "text")
    calls = attribute(message, "tool_calls")
    logps, lengths = _logps(attribute(choice, "logprobs"))
    prompt, ids = _ids_in(value, choice)
    rows = attribute(attribute(choice, "meta_info"), "output_token_logprobs")  # SGLang: [log-probability, id, text]
    if _is_list(rows) and rows and all(_is_list(row) and len(row) >= 2 for row in rows):
        ids, logps, lengths = ids or _ints([row[1] for row in rows]), _floats([row[0] for row in rows]), None
    told = attribute(attribute(choice, "logprobs"), "content")
    if ids is None and _is_list(told):  # vLLM, where it is told to write tokens as their ids
        found = [_TOKEN_ID.match(str(attribute(one, "token"))) for one in told]
        ids = [int(one[1]) for one in found if one] if found and all(found) else None
    called = [_call(call) for call in calls] if _is_list(calls) else []
    said = _content(text)[0] or text_of(attribute(message, "refusal")) or ""
    return _checked(Answer(said, called, _word(attribute(choice, "finish_reason")), prompt, ids, logps, lengths))


def _of_items(output: Any, status: Any) -> Answer:
    """The items of OpenAI's responses."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    logps: list[Any] = []
    for item in output:
        if attribute(item, "type") == "function_call":
            calls.append(_call(item))
        for part in attribute(item, "content") or () if attribute(item, "type") == "message" else ():
            texts.append(text_of(attribute(part, "text")) or "")
            logps += attribute(part, "logprobs") or []
    found, lengths = _logps(logps) if logps else (None, None)
    return Answer("".join(texts), calls, _word(status), None, None, found, lengths)


def _word(value: Any) -> str | None:
    return plain(value) if isinstance(value, str) and value else None


def _ids_in(*holders: Any) -> tuple[list[int] | None, list[int] | None]:
    """The ids of the prompt and of the answer, by the names that servers have for them."""
    prompt = answer = None
    for holder in holders:
        for name in ("prompt_token_ids", "prompt_ids"):
            prompt = prompt or _ints(attribute(holder, name))
        for name in ("token_ids", "response_token_ids"):
            answer = answer or _ints(attribute(holder, name))
        more = attribute(holder, "sglext")
        if more is not None:
            lists = attribute(more, "output_ids")
            prompt = prompt or _ints(attribute(more, "input_ids"))
            answer = answer or (_ints(lists[0]) if _is_list(lists) and lists else None)
    return prompt, answer


def _ints(values: Any) -> list[int] | None:
    """Token ids; None for what are none."""
    is_some = _is_list(values) and bool(values) and all(type(one) is int and 0 <= one < _SPAN for one in values)
    return list(values) if is_some else None


def _floats(values: Any) -> list[float] | None:
    """Log-probabilities; None where one of them is none."""
    if not _is_list(values) or not all(type(one) in (int, float) and math.isfinite(one) for one in values):
        return None
    return [min(0.0, float(one)) for one in values]


def _logps(stated: Any) -> tuple[list[float] | None, list[int] | None]:
    """Log-probabilities and the bytes of their tokens: of chat (`content`), of completions (`token_logprobs`), or a bare list."""
    if attribute(stated, "token_logprobs") is not None:
        logps, tokens = _floats(attribute(stated, "token_logprobs")), attribute(stated, "tokens")
        return logps, [len(str(t).encode()) for t in tokens] if logps is not None and _is_list(tokens) else None
    rows = stated if _is_list(stated) else attribute(stated, "content")
    if not _is_list(rows) or not rows:
        return None, None
    if type(rows[0]) in (int, float):
        return _floats(rows), None
    logps = _floats([attribute(row, "logprob") for row in rows])
    return logps, None if logps is None else [_length(row) for row in rows]


def _length(row: Any) -> int:
    """Bytes of a token; a part of a letter has no text of its own, so the bytes count where they are told."""
    told = attribute(row, "bytes")
    return len(told) if _is_list(told) else len(str(attribute(row, "token")).encode("utf-8", "replace"))


def _checked(answer: Answer) -> Answer:
    """Without log-probabilities that are not one for each token, and without lengths where ids say more."""
    if answer.token_ids is None:
        return answer
    fits = answer.logps is None or len(answer.logps) == len(answer.token_ids)
    return answer._replace(lengths=None, logps=answer.logps if fits else None)


# -- answers in pieces -----------------------------------------------------------------------------------------------------


def joined(pieces: Sequence[Any]) -> Any:
    """The pieces of a streamed chat as one answer in OpenAI's shape; the last piece where they are none."""
    first = [c[0] for piece in pieces if _is_list(c := attribute(piece, "choices")) and c]
    if not first or all(attribute(choice, "delta") is None for choice in first):
        return pieces[-1]
    text, calls, logprobs, ids, out = "", {}, [], [], {"finish": None}  # type: str, dict[Any, dict[str, str]], list[Any], list[int], dict[str, Any]
    for choice in first:
        delta = attribute(choice, "delta")
        text += text_of(attribute(delta, "content")) or ""
        for call in attribute(delta, "tool_calls") or ():
            whole = calls.setdefault(attribute(call, "index"), {"name": "", "arguments": "", "id": ""})
            whole["id"] = whole["id"] or word(attribute(call, "id"), "")
            for name in ("name", "arguments"):
                whole[name] += word(attribute(attribute(call, "function"), name), "")
        logprobs += attribute(attribute(choice, "logprobs"), "content") or []
        ids += _ints(attribute(choice, "token_ids")) or []
        out["finish"] = attribute(choice, "finish_reason") or out["finish"]
    about = {
        name: value for piece in pieces for name in ("usage", "model", "prompt_token_ids") if (value := attribute(piece, name))
    }
    choice = {"message": {"content": text, "tool_calls": list(calls.values())}, "finish_reason": out["finish"],
              "logprobs": {"content": logprobs} if logprobs else None, "token_ids": ids or None}  # fmt: skip
    return {**about, "choices": [choice]}
