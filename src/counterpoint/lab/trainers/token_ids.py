"""Token ids of calls whose provider told none: made again from the recorded messages, with a tokenizer that somebody names.

Always true: ids that were told stay as they are; a log-probability is kept only where its token is one of the tokenizer's, byte
for byte; every call that got ids, or could not, is counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from counterpoint.errors import CounterpointError, InputError, install
from counterpoint.trace import Event, Trace
from counterpoint.trace.model_calls import chat_of, messages_of, model_call

if TYPE_CHECKING:
    from counterpoint.lab.lm.chat import Chat

_CUT = frozenset({"length", "max_tokens", "incomplete", "content_filter"})
"""How an answer ends that was not ended by its model."""


class TokenizedTraces(NamedTuple):
    """Traces whose calls have ids, and what was done for that."""

    traces: list[Trace]
    tokenizer: str | None = None
    made: int = 0
    """Calls whose ids were made."""
    with_logps: int = 0
    """Those of them that kept their log-probabilities."""
    without: Counter[str] = Counter()
    """Calls that got none, by the reason."""

    def line(self) -> str | None:
        """What a report says of it; None where no tokenizer was named."""
        if self.tokenizer is None:
            return None
        kept = f"{self.with_logps:,} of them with the log-probabilities that were recorded"
        left = "".join(f"; {n:,} could not, {why}" for why, n in self.without.items())
        return f"token ids of {self.made:,} calls made again with {self.tokenizer}, {kept}{left}"

    def as_dict(self) -> dict[str, Any]:
        """The same, for --json."""
        about = {"name": self.tokenizer, "made": self.made, "with_logps": self.with_logps, "left_out": dict(self.without)}
        return {} if self.tokenizer is None else {"tokenizer": about}


class _Unmade(Exception):
    """Why a call can have no ids."""


def tokenized(traces: Sequence[Trace], spec: str | None) -> TokenizedTraces:
    """The traces with ids for every call that can have some; `spec` is a folder with a tokenizer, or a local model."""
    if spec is None:
        return TokenizedTraces(list(traces))
    chat, out = tokenizer_of(spec), []
    made = with_logps = 0
    without: Counter[str] = Counter()
    for trace in traces:
        events = []
        for event in trace.events:
            note = None
            try:
                note = _with_ids(trace, event, chat)
            except _Unmade as why:
                without[str(why)] += 1
            except CounterpointError as refused:  # the template refuses roles, or an order of them
                without[f"for {refused.what}"] += 1
            if note is not None:
                made, with_logps = made + 1, with_logps + ("logps" in note)
                event = replace(event, extra={**(event.extra or {}), "call": note})
            events.append(event)
        out.append(replace(trace, events=events))
    return TokenizedTraces(out, Path(spec).name, made, with_logps, without)


def tokenizer_of(spec: str) -> Chat:
    """The tokenizer and the chat template of a folder, or of a model that `counterpoint models` lists."""
    try:
        from counterpoint.lab.lm.chat import Chat
        from counterpoint.lab.lm.weights import find

        folder = Path(spec)
        return Chat.read(folder if (folder / "tokenizer.json").is_file() else find(spec.removeprefix("local:")).path)
    except ImportError as error:
        raise InputError("token ids need the tokenizers library", why=str(error), fix=install("llm")) from error


def _with_ids(trace: Trace, event: Event, chat: Chat) -> dict[str, Any] | None:
    """The note of an event's model call with ids; None where nothing is missing, `_Unmade` where it cannot be made."""
    note = model_call(event)
    if note is None or ("token_ids" in note and "prompt_ids" in note):
        return None
    messages, answer = _messages(trace, event), trace.contents.get(str(note.get("completion")))
    if not messages or answer is None:
        raise _Unmade("whose messages were not recorded")
    tools = trace.contents.get(str(note.get("tools")))
    offered = None if tools is None else [_as_function(tool) for tool in json.loads(tools)]
    made = {"prompt_ids": chat.conversation(messages, offered)} if "prompt_ids" not in note else {}
    if "token_ids" in note:
        return {**note, **made}
    told = {name: value for name, value in note.items() if name not in ("logps", "token_bytes")}
    if note.get("tool_calls"):
        said = {"role": "assistant", "content": answer, "tool_calls": note["tool_calls"]}
        return {**told, **made, "token_ids": _called(chat, _as_templates_want([said])[0], messages, offered)}
    return {**told, **made, **_answered(chat, answer, note)}


def _answered(chat: Chat, answer: str, note: Mapping[str, Any]) -> dict[str, Any]:
    """The ids of a text, with the token that ended it; the log-probabilities, where each stands at one of its tokens."""
    *ids, end = chat.answer(answer)
    lengths, logps = note.get("token_bytes"), note.get("logps")
    if isinstance(lengths, list) and isinstance(logps, list) and len(logps) == len(lengths):
        own = chat.lengths(answer)
        if own == lengths:
            return {"token_ids": ids, "logps": logps}
        if own == lengths[:-1]:  # servers that tell of the end, too
            return {"token_ids": [*ids, end], "logps": logps}
    return {"token_ids": ids if note.get("finish") in _CUT else [*ids, end]}


def _called(chat: Chat, said: dict[str, Any], messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
    """The ids of an answer that calls tools: what the template writes after the prompt, up to the token that ends it."""
    prompt, whole = chat.conversation(messages, tools), chat.conversation([*messages, said], tools, is_asked=False)
    if whole[: len(prompt)] != prompt:
        raise _Unmade("for the template writes the calls of tools in another place")
    rest = whole[len(prompt) :]
    ends = [place for place, token in enumerate(rest) if token in chat.ends]
    return rest[: ends[0] + 1] if ends else rest


def _messages(trace: Trace, event: Event) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = messages_of(trace, event)
    if not found and (chat := chat_of(trace, event)) is not None:  # a team of ours
        found = [{"role": role, "content": text} for role, text in chat.prompt]
    if any(message.get("parts") for message in found):
        raise _Unmade("for they read more than text")
    is_whole = all(message["content"] or message.get("tool_calls") or message["role"] == "tool" for message in found)
    return _as_templates_want(found) if is_whole else []


def _as_templates_want(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls of tools with their arguments as values, in the form of OpenAI's protocol, which chat templates take."""
    out = []
    for message in messages:
        calls = [{"type": "function", **({"id": call["id"]} if "id" in call else {}), "function": _function(call)}
                 for call in message.get("tool_calls") or ()]  # fmt: skip
        out.append({**message, "tool_calls": calls} if calls else message)
    return out


def _function(call: Mapping[str, Any]) -> dict[str, Any]:
    try:
        arguments = json.loads(call["arguments"])
    except ValueError:
        arguments = call["arguments"]
    return {"name": call["name"], "arguments": arguments}


def _as_function(tool: Any) -> Any:
    """A tool as chat templates want it; those of OpenAI's responses and of Anthropic are the function itself."""
    if not isinstance(tool, dict) or "function" in tool:
        return tool
    own = {"name": tool.get("name"), "description": tool.get("description")}
    return {"type": "function", "function": {**own, "parameters": tool.get("parameters") or tool.get("input_schema") or {}}}
