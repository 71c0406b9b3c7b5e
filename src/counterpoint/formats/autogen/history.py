"""Chat histories of AG2 and AutoGen 0.2: a list of `{content, role, name, tool_calls}`, alone or in a `ChatResult`.

Always true: message i is the event `m{i}` (or, where it only calls or answers tools, these are). The first message is the task,
so it is a human's; whether later words of a proxy were typed by a person is not in the source.
"""

from __future__ import annotations

import re
from typing import Any

from counterpoint.formats.autogen.chat import words
from counterpoint.formats.autogen.room import Room
from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.values import as_dict, as_list, compact, number, string

_EXIT = re.compile(r"\s*exitcode: (-?\d+) \(")
_TALK = frozenset({"user", "assistant", "tool", "function", "system"})


def is_history(value: Any) -> bool:
    """Whether a value is a chat history: messages with roles, speakers' names among them."""
    messages = [m for m in as_list(value) if isinstance(m, dict)]
    if not messages or len(messages) != len(value):
        return False
    return all(m.get("role") in _TALK and ("content" in m or "tool_calls" in m) for m in messages) and any(
        isinstance(m.get("name"), str) for m in messages
    )


def put_history(draft: Draft, messages: list[Any], result: dict[str, Any]) -> None:
    """Put a history down, with what its `ChatResult` says beside it."""
    room = Room(draft)
    proxies: set[str] = set()
    before: Lane | None = None
    for i, raw in enumerate(messages):
        message = as_dict(raw)
        name = string(message.get("name")) or string(message.get("role")) or "unnamed"
        text, id = words(message.get("content")), f"m{i}"
        if i == 0 and not message.get("tool_calls"):
            room.human(name, text, id=id)
            proxies.add(name)
        elif message.get("role") in ("tool", "function") or message.get("tool_responses"):
            _answers(room, before, message, name, id)
        elif before is not None and (code := _EXIT.match(text)):
            before.call("code", id=f"{id}:call", call=id)
            room.aloud(before.result(id, text, id=id, ok=int(code[1]) == 0), before.agent)
        else:
            if name in proxies:
                draft.report.lacks["whether a proxy's words were a person's"] += 1
            before = _speaks(room, message, name, text, id)
    draft.report.lacks["the tokens of a turn"] += 1
    _about(draft, result)


def _speaks(room: Room, message: dict[str, Any], name: str, text: str, id: str) -> Lane:
    calls = [as_dict(call) for call in as_list(message.get("tool_calls"))]
    if old := as_dict(message.get("function_call")):
        calls.append({"function": old})
    lane = room.lane(name)
    event = lane.step(text=text, id=id, only_calls=bool(calls) and not text)
    for k, call in enumerate(calls):
        function = as_dict(call.get("function"))
        call_id = string(call.get("id")) or f"{id}.call{k}"
        args = function.get("arguments")
        lane.call(string(function.get("name")) or "unnamed", compact(args or ""), call=call_id, id=call_id)
    if text:
        room.aloud(event, name)
    return lane


def _answers(room: Room, before: Lane | None, message: dict[str, Any], name: str, id: str) -> None:
    lane = before or room.lane(name)
    answers = [as_dict(a) for a in as_list(message.get("tool_responses"))] or [message]
    for k, answer in enumerate(answers):
        call = string(answer.get("tool_call_id"))
        lane.result(call, words(answer.get("content")), id=id if k == 0 else f"{id}.{k}", extra={"executed_by": name})


def _about(draft: Draft, result: dict[str, Any]) -> None:
    """The sums of a `ChatResult` are checks, not tokens of any turn."""
    if (summary := string(result.get("summary"))) is not None:
        draft.meta["summary"] = summary
    if cost := as_dict(result.get("cost")):
        draft.meta["cost"] = cost
        total = as_dict(cost.get("usage_including_cached_inference")).get("total_cost", cost.get("total_cost"))
        if (dollars := number(total)) is not None:
            draft.metrics["total_cost_usd"] = dollars
