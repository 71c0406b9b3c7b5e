"""AutoGen AgentChat: the messages of a `TaskResult`, of a list, or one to a line.

Always true: a message that comes again (a `TaskResult` after its stream) is put down once; tokens are those of `models_usage`,
which stands on the one message that a model call gave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from counterpoint.formats.autogen.room import Room
from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, seconds, string, text_of


class Chat:
    """Puts messages down as they come."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.room = draft, Room(draft)
        self._seen: set[str] = set()
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
        if key in self._seen:
            return
        self._seen.add(key)
        self._place += 1
        kind, source = string(message.get("type")) or "no type", string(message.get("source")) or "unnamed"
        handler = _HANDLERS.get(kind.split("[", 1)[0])
        if handler is None:
            self.draft.report.unknown[kind] += 1
            return
        handler(self, source, message, {"id": string(message.get("id")) or f"m{self._place}", "extra": _extra(message)})

    def _text(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        text, at = words(message.get("content")), seconds(message.get("created_at"))
        if source in self._humans:
            self.room.human(source, text, at=at, **given)
            return
        self._counted(message)
        thinking = self._thoughts.pop(source, "")
        self.room.turn(source, text, end=at, usage=_usage(message), thinking=thinking, **given)

    def _stop(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        self._text(source, message, given)
        self.room.lane(source).stops()

    def _handoff(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        lane = self.room.lane(source)
        text, at = words(message.get("content")), seconds(message.get("created_at"))
        event = lane.send(string(message.get("target")), text, at=at, heard=False, usage=_usage(message), **given)
        self.room.aloud(event, source)

    def _requests(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        lane, at = self.room.lane(source), seconds(message.get("created_at"))
        thinking = self._thoughts.pop(source, "")
        self._counted(message)
        lane.step(end=at, thinking=thinking, usage=_usage(message), only_calls=not thinking, **given)
        for k, raw in enumerate(as_list(message.get("content"))):
            call = as_dict(raw)
            id = string(call.get("id")) or f"{given['id']}.{k}"
            lane.call(string(call.get("name")) or "unnamed", compact(call.get("arguments") or ""), call=id, at=at, id=id)

    def _executed(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        lane, at = self.room.lane(source), seconds(message.get("created_at"))
        for k, raw in enumerate(as_list(message.get("content"))):
            got = as_dict(raw)
            failed, call = got.get("is_error"), string(got.get("call_id"))
            ok = not failed if isinstance(failed, bool) else None
            id = f"{call}:result" if call else f"{given['id']}.{k}"
            lane.result(call, words(got.get("content")), at=at, id=id, tool=string(got.get("name")), ok=ok)

    def _thought(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        """Kept until the words or calls that it led to."""
        before = self._thoughts.get(source)
        self._thoughts[source] = "\n".join(filter(None, (before, words(message.get("content")))))

    def _selected(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        content = message.get("content")
        chosen = [name for name in as_list(content) if isinstance(name, str)]
        given["extra"]["chosen"] = chosen or None
        lane, at = self.room.lane(source), seconds(message.get("created_at"))
        lane.leads = True
        to, text = chosen[0] if len(chosen) == 1 else None, "" if chosen else words(content)
        event = lane.step(end=at, text=text, usage=_usage(message), decision="delegate", to=to, **given)
        if to is not None and event is not None:
            self.draft.lane(to, role=to).hears(event, "message")

    def _wrote_code(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        lane, at = self.room.lane(source), seconds(message.get("created_at"))
        given["extra"]["retry_attempt"] = message.get("retry_attempt")
        lane.step(end=at, text=words(message.get("content")), usage=_usage(message), **given)
        for k, block in enumerate(as_list(message.get("code_blocks"))):
            code, id = as_dict(block), f"{given['id']}.code{k}"
            lane.call("code_executor", words(code.get("code")), call=id, at=at, id=id, extra={"language": code.get("language")})
            self._code[source] = id

    def _ran_code(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        result, at = as_dict(message.get("result")), seconds(message.get("created_at"))
        lane = self.room.lane(source)
        ok = result.get("exit_code") == 0 if "exit_code" in result else None
        lane.result(self._code.pop(source, None), words(result.get("output")), at=at, tool="code_executor", ok=ok, **given)

    def _remembered(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        lane, at = self.room.lane(source), seconds(message.get("created_at"))
        text = "\n".join(words(as_dict(part).get("content")) for part in as_list(message.get("content")))
        lane.result(None, text, at=at, tool="memory", source="memory", **given)

    def _asked(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        """Whoever asks a person for input passes on what the person said."""
        self._humans.add(source)

    def _chunk(self, source: str, message: dict[str, Any], given: dict[str, Any]) -> None:
        """Pieces of a message that comes whole after them."""

    def _counted(self, message: dict[str, Any]) -> None:
        if _usage(message) is None and message.get("type") != "ToolCallSummaryMessage":
            self.draft.report.lacks["the tokens of a turn"] += 1


_HANDLERS: dict[str, Callable[[Chat, str, dict[str, Any], dict[str, Any]], None]] = {
    "TextMessage": Chat._text,
    "MultiModalMessage": Chat._text,
    "StructuredMessage": Chat._text,
    "ToolCallSummaryMessage": Chat._text,
    "StopMessage": Chat._stop,
    "HandoffMessage": Chat._handoff,
    "ToolCallRequestEvent": Chat._requests,
    "ToolCallExecutionEvent": Chat._executed,
    "ThoughtEvent": Chat._thought,
    "SelectSpeakerEvent": Chat._selected,
    "SelectorEvent": Chat._selected,
    "CodeGenerationEvent": Chat._wrote_code,
    "CodeExecutionEvent": Chat._ran_code,
    "MemoryQueryEvent": Chat._remembered,
    "UserInputRequestedEvent": Chat._asked,
    "ModelClientStreamingChunkEvent": Chat._chunk,
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
