"""AutoGen's group chats: a room in which all hear all, AgentChat's messages, and the chat histories of AG2 and AutoGen 0.2.

AgentChat's messages stand in a `TaskResult`, in a list, or one to a line; tokens are those of `models_usage`, which stands on
the one message that a model call gave. A history is a list of `{content, role, name, tool_calls}`, alone or in a
`ChatResult`: message i is the event `m{i}`, the first is the task and so a human's; whether a person typed later words of a
proxy is not in the source.

Always true: a turn reads everything said by others since the speaker's last one; thoughts and tool work are heard by nobody
else; a message that comes again (a `TaskResult` after its stream) is put down once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, number, seconds, string, text_of

READERS = frozenset({"WebSurfer", "FileSurfer", "MultimodalWebSurfer", "Executor", "ComputerTerminal", "Computer_terminal"})
"""Members of Magentic-One whose turns are what a page, a file or a program says."""
_LEADER = re.compile(r"orchestrator|manager", re.IGNORECASE)


def is_leader(name: str) -> bool:
    """Whether a member decides who speaks: AutoGen calls these managers, Magentic-One orchestrators."""
    return _LEADER.search(name) is not None


class Room:
    """The members, and what was said aloud."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._turns: list[tuple[str, str]] = []
        self._heard: dict[str, int] = {}
        self._skipped: dict[str, set[int]] = {}

    def lane(self, name: str) -> Lane:
        """A member's lane, caught up with what was said."""
        lane = self.draft.lane(name, role=name, leads=is_leader(name))
        skipped = self._skipped.get(name, ())
        for k in range(self._heard.get(name, 0), len(self._turns)):
            event, speaker = self._turns[k]
            if speaker != name and k not in skipped:
                lane.hears(event, "message")
        self._heard[name] = len(self._turns)
        return lane

    def aloud(self, event: str | None, speaker: str) -> None:
        """An event that all others hear."""
        if event is not None:
            self._turns.append((event, speaker))

    def skip(self, name: str) -> None:
        """A member has heard the last thing said in another way."""
        self._skipped.setdefault(name, set()).add(len(self._turns) - 1)

    def human(self, name: str, text: str, *, at: float | None = None, id: str | None = None, **fields: Any) -> str:
        """A person speaks to the room."""
        fields = {"role": name, "from_": name, "source": "user", "trusted": True, **fields}
        event = self.draft.event("human_intervention", name, id=id, at=at, text=text, **fields)
        self.aloud(event, name)
        return event

    def turn(
        self, name: str, text: str, *, end: float | None = None, usage: Usage | None = None, id: str | None = None, **fields: Any
    ) -> str | None:
        """A member speaks to the room."""
        if name in READERS:
            fields = {"source": "tool", "trusted": False, **fields}
        event = self.lane(name).step(end=end, text=text, usage=usage, id=id, **fields)
        self.aloud(event, name)
        return event


class AgentChat:
    """Puts messages down as they come."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.room = draft, Room(draft)
        self._keys: set[str] = set()
        self._thoughts: dict[str, str] = {}
        self._humans = {"user"}
        self._code: dict[str, str] = {}
        """Member to its latest code that has not run."""
        self._place = 0

    def result(self, result: dict[str, Any]) -> None:
        """A `TaskResult`."""
        for message in as_list(result.get("messages")):
            self.message(as_dict(message))
        if reason := string(result.get("stop_reason")):
            self.draft.meta["stop_reason"] = reason

    def message(self, message: dict[str, Any]) -> None:
        """One message, unless it was there before."""
        key = string(message.get("id")) or compact([message.get(k) for k in ("source", "type", "content", "created_at")])
        if key in self._keys:
            return
        self._keys.add(key)
        self._place += 1
        kind, source = string(message.get("type")) or "no type", string(message.get("source")) or "unnamed"
        handler = _HANDLERS.get(kind.split("[", 1)[0])
        if handler is None:
            self.draft.report.unknown[kind] += 1
            return
        handler(self, source, message, {"id": string(message.get("id")) or f"m{self._place}", "extra": _extra(message)})

    def _text(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        text, at = words(message.get("content")), seconds(message.get("created_at"))
        if source in self._humans:
            self.room.human(source, text, at=at, **fields)
            return
        self._counted(message)
        thinking = self._thoughts.pop(source, "")
        self.room.turn(source, text, end=at, usage=_usage(message), thinking=thinking, **fields)

    def _stop(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        self._text(source, message, fields)
        self.room.lane(source).stops()

    def _handoff(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        lane = self.room.lane(source)
        text, at = words(message.get("content")), seconds(message.get("created_at"))
        event = lane.send(string(message.get("target")), text, at=at, heard=False, usage=_usage(message), **fields)
        self.room.aloud(event, source)

    def _requests(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        lane, at = self.room.lane(source), seconds(message.get("created_at"))
        thinking = self._thoughts.pop(source, "")
        self._counted(message)
        lane.step(end=at, thinking=thinking, usage=_usage(message), only_calls=not thinking, **fields)
        for k, raw in enumerate(as_list(message.get("content"))):
            call = as_dict(raw)
            id = string(call.get("id")) or f"{fields['id']}.{k}"
            lane.call(string(call.get("name")) or "unnamed", compact(call.get("arguments") or ""), call=id, at=at, id=id)

    def _executed(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        lane, at = self.room.lane(source), seconds(message.get("created_at"))
        for k, raw in enumerate(as_list(message.get("content"))):
            got = as_dict(raw)
            failed, call = got.get("is_error"), string(got.get("call_id"))
            ok = not failed if isinstance(failed, bool) else None
            id = f"{call}:result" if call else f"{fields['id']}.{k}"
            lane.result(call, words(got.get("content")), at=at, id=id, tool=string(got.get("name")), ok=ok)

    def _thought(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        """Kept until the words or calls that it led to."""
        before = self._thoughts.get(source)
        self._thoughts[source] = "\n".join(filter(None, (before, words(message.get("content")))))

    def _selected(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        content = message.get("content")
        chosen = [name for name in as_list(content) if isinstance(name, str)]
        fields["extra"]["chosen"] = chosen or None
        lane, at = self.room.lane(source), seconds(message.get("created_at"))
        lane.leads = True
        to, text = chosen[0] if len(chosen) == 1 else None, "" if chosen else words(content)
        event = lane.step(end=at, text=text, usage=_usage(message), decision="delegate", to=to, **fields)
        if to is not None and event is not None:
            self.draft.lane(to, role=to).hears(event, "message")

    def _wrote_code(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        lane, at = self.room.lane(source), seconds(message.get("created_at"))
        fields["extra"]["retry_attempt"] = message.get("retry_attempt")
        lane.step(end=at, text=words(message.get("content")), usage=_usage(message), **fields)
        for k, block in enumerate(as_list(message.get("code_blocks"))):
            code, id = as_dict(block), f"{fields['id']}.code{k}"
            lane.call("code_executor", words(code.get("code")), call=id, at=at, id=id, extra={"language": code.get("language")})
            self._code[source] = id

    def _ran_code(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        result, at = as_dict(message.get("result")), seconds(message.get("created_at"))
        lane = self.room.lane(source)
        ok = result.get("exit_code") == 0 if "exit_code" in result else None
        lane.result(self._code.pop(source, None), words(result.get("output")), at=at, tool="code_executor", ok=ok, **fields)

    def _remembered(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        lane, at = self.room.lane(source), seconds(message.get("created_at"))
        text = "\n".join(words(as_dict(part).get("content")) for part in as_list(message.get("content")))
        lane.result(None, text, at=at, tool="memory", source="memory", **fields)

    def _asked(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        """Whoever asks a person for input passes on what the person said."""
        self._humans.add(source)

    def _chunk(self, source: str, message: dict[str, Any], fields: dict[str, Any]) -> None:
        """Pieces of a message that comes whole after them."""

    def _counted(self, message: dict[str, Any]) -> None:
        if _usage(message) is None and message.get("type") != "ToolCallSummaryMessage":
            self.draft.report.lacks["the tokens of a turn"] += 1


_HANDLERS: dict[str, Callable[[AgentChat, str, dict[str, Any], dict[str, Any]], None]] = {
    "TextMessage": AgentChat._text,
    "MultiModalMessage": AgentChat._text,
    "StructuredMessage": AgentChat._text,
    "ToolCallSummaryMessage": AgentChat._text,
    "StopMessage": AgentChat._stop,
    "HandoffMessage": AgentChat._handoff,
    "ToolCallRequestEvent": AgentChat._requests,
    "ToolCallExecutionEvent": AgentChat._executed,
    "ThoughtEvent": AgentChat._thought,
    "SelectSpeakerEvent": AgentChat._selected,
    "SelectorEvent": AgentChat._selected,
    "CodeGenerationEvent": AgentChat._wrote_code,
    "CodeExecutionEvent": AgentChat._ran_code,
    "MemoryQueryEvent": AgentChat._remembered,
    "UserInputRequestedEvent": AgentChat._asked,
    "ModelClientStreamingChunkEvent": AgentChat._chunk,
}
CHAT_TYPES = frozenset(_HANDLERS)
"""The kinds of message we know."""


def is_message(value: Any) -> bool:
    """Whether a value is a message of AgentChat."""
    if not isinstance(value, dict) or not isinstance(value.get("source"), str):
        return False
    kind = value.get("type")
    return isinstance(kind, str) and ("models_usage" in value or kind.split("[", 1)[0] in CHAT_TYPES)


def _usage(message: dict[str, Any]) -> Usage | None:
    got = as_dict(message.get("models_usage"))
    return Usage.whole(got.get("prompt_tokens"), got.get("completion_tokens"))


def _extra(message: dict[str, Any]) -> dict[str, Any]:
    return {"message_type": message.get("type"), "metadata": as_dict(message.get("metadata")) or None}


def words(content: Any) -> str:
    """The words of a content; of a picture there is only a mark."""
    if isinstance(content, list):
        return "\n".join(part for part in _parts(content) if part)
    return text_of(content)


def _parts(content: list[Any]) -> Iterator[str]:
    for part in content:
        is_picture = isinstance(part, dict) and not {"text", "content"} & part.keys()
        yield "[image]" if is_picture else text_of(part)


# -- chat histories of AG2 and AutoGen 0.2 -------------------------------------------------------------------------------------


_EXIT = re.compile(r"\s*exitcode: (-?\d+) \(")
_TALK = frozenset({"user", "assistant", "tool", "function", "system"})


def is_history(value: Any) -> bool:
    """Whether a value is a chat history: messages with roles, speakers' names among them."""
    messages = [m for m in as_list(value) if isinstance(m, dict)]
    if not messages or len(messages) != len(value):
        return False
    return all(string(m.get("role")) in _TALK and ("content" in m or "tool_calls" in m) for m in messages) and any(
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
