"""Agent Client Protocol: what a client and an agent told each other, in logs of JSON-RPC and of daemons.

| message | becomes |
|---|---|
| `session/prompt`, `user_message_chunk` | `human_intervention` |
| `agent_message_chunk`, `agent_thought_chunk` | one `orchestrator_decision` until a tool answers or the person speaks |
| `tool_call`, `tool_call_update` | `tool_call`, `tool_result`; `spawn` and `return` of the call that others name as parent |
| `session/request_permission` with its answer | `human_intervention`; a call that was refused failed |
| `session/cancel` | `human_intervention`, interrupted |
| an error that answers a prompt | the error of the step before |

Read are the messages themselves, those that a logger wrapped (`message`, `payload`, `data`, with a time beside them), and updates
alone. Tokens: `usage` of a piece of the agent's words (one call of the model), else of the answer to a prompt (its turn).

What is lost: model calls (inferred, as the protocol has none), plans, modes, commands, pictures, what the client read and ran.

Always true: what a loaded session tells again counts once; an update of a call that ended changes nothing but its text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.acp.conversation import AcpConversation
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.dialogue import require_half
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import as_dict, decode, seconds, string
from counterpoint.trace import Trace

_WRAPS = ("message", "msg", "payload", "data", "body", "raw", "frame", "event", "content", "line")
_TIMES = ("timestamp", "ts", "time", "at", "created_at", "createdAt")
_METHODS = frozenset({
    "session/update", "session/prompt", "session/new", "session/load", "session/resume", "session/cancel", "session/set_mode",
    "session/set_model", "session/request_permission", "session/list", "session/fork", "session/close", "authenticate",
    "session/set_config_option", "initialize",
})  # fmt: skip
_CLIENT = ("fs/", "terminal/", "_", "$/", "session/", "logout")
_SURE = frozenset({"session/update", "session/prompt", "session/new", "session/request_permission"})
_LOOKED_AT = 50


def _sniff(head: bytes) -> bool:
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{" or (b'"sessionUpdate"' not in head and b'"session/' not in head):
        return False
    lines = head.split(b"\n")
    for k, line in enumerate(lines[:_LOOKED_AT]):
        if not line.strip() or (k == len(lines) - 1 and k > 0):
            continue
        try:
            record = decode(line)
        except InputError:
            continue
        if not isinstance(record, dict):
            return False
        message = _unwrapped(record)
        if message is None:
            return False
        if _is_sure(message):
            return True
    return False


def _is_sure(message: dict[str, Any]) -> bool:
    params = as_dict(message.get("params"))
    if message.get("method") == "session/update":
        return isinstance(as_dict(params.get("update")).get("sessionUpdate"), str)
    return string(message.get("method")) in _SURE and bool(params)


def _unwrapped(record: dict[str, Any], depth: int = 0) -> dict[str, Any] | None:
    """The JSON-RPC message in a record, or one made of an update or a request that stands alone; None where there is none."""
    if "jsonrpc" in record or (string(record.get("method")) or "") in _METHODS:
        return record
    if isinstance(record.get("sessionUpdate"), str):
        return {"method": "session/update", "params": {"update": record}}
    update = record.get("update")
    if isinstance(update, dict) and isinstance(update.get("sessionUpdate"), str):
        return {"method": "session/update", "params": record}
    data = as_dict(record.get("data"))
    if record.get("type") == "permission_request" and "toolCall" in data:
        return {"method": "session/request_permission", "id": data.get("requestId"), "params": data}
    if record.get("type") == "permission_resolved" and "outcome" in data:
        return {"id": data.get("requestId"), "result": data}
    for name in _WRAPS if depth < 3 else ():
        inner = record.get(name)
        if isinstance(inner, str) and inner.lstrip().startswith("{"):
            try:
                inner = decode(inner)
            except InputError:
                continue
        if isinstance(inner, dict) and (found := _unwrapped(inner, depth + 1)) is not None:
            return found
    return None


def _at(record: dict[str, Any], message: dict[str, Any]) -> float | None:
    params = as_dict(message.get("params"))
    meta = as_dict(as_dict(params.get("update")).get("_meta"))
    places = (record, as_dict(record.get("_meta")), meta, as_dict(params.get("_meta")), message)
    return next((at for place in places for name in _TIMES if (at := seconds(place.get(name))) is not None), None)


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        unknown: Counter[str] = Counter()
        log = _Log(file)
        records = 0
        for number, record in session.records(file):
            records += 1
            message = _unwrapped(record)
            if message is None or not log.take(message, _at(record, message), number):
                unknown[f"record of type {record.get('type') or as_dict(message).get('method')}"] += 1
        require_half(file.name, records, unknown)
        session.report.unknown.update(unknown)
        for conversation in log.conversations.values():
            yield from conversation.traces(session, log.about)


class _Log:
    """What one file logs: the sessions in it, and the requests that wait for their answers."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.about: dict[str, Any] = {}
        self.conversations: dict[str, AcpConversation] = {}
        self._last: str | None = None
        self._waiting: dict[tuple[str, str], str | None] = {}
        """Kind of request and its id to the session that it is about."""

    def take(self, message: dict[str, Any], at: float | None, number: int) -> bool:
        """Take a message; False where it is of no known kind."""
        method, params = string(message.get("method")), as_dict(message.get("params"))
        request = str(message.get("id"))
        if method is None:
            return self._answered(request, message, at)
        if method == "initialize":
            info = as_dict(params.get("clientInfo"))
            self.about.update({"client": info["name"]} if string(info.get("name")) else {})
            return True
        if method == "session/new":
            self._waiting["new", request] = None
            return True
        name = string(params.get("sessionId")) or self._last
        if method not in ("session/update", "session/prompt", "session/request_permission", "session/cancel"):
            if method == "session/load" and name is not None:
                self._of(name).is_told_again = bool(self._of(name).dialogue.entries)
                self._waiting["load", request] = name
            return method.startswith(_CLIENT) or method in _METHODS
        one = self._of(name or "")
        if method == "session/update":
            return one.update(as_dict(params.get("update")), at, f"r{number}")
        if method == "session/prompt":
            self._waiting["prompt", request] = name
            one.prompt(params.get("prompt"), at, f"r{number}")
        elif method == "session/cancel":
            one.cancel(at, f"r{number}")
        else:
            self._waiting["permission", request] = name
            one.request(request, params, at, f"r{number}")
        return True

    def _of(self, name: str) -> AcpConversation:
        if name not in self.conversations:
            known = self.conversations.pop("", None) if name else None  # what came before the session's id was stated
            self.conversations[name] = known or AcpConversation(name or self.file.stem)
            self.conversations[name].name = name or f"{self.file.stem or 'acp'}-{run_of(self.file.name)}"
        self._last = name
        return self.conversations[name]

    def _answered(self, request: str, message: dict[str, Any], at: float | None) -> bool:
        """An answer to a request; both sides count theirs, so what it holds says whose it is."""
        result, error = as_dict(message.get("result")), message.get("error")
        if "result" not in message and error is None:
            return False
        if "outcome" in result and ("permission", request) in self._waiting:
            self._of(self._waiting.pop(("permission", request)) or "").decide(request, result, at)
        elif ("stopReason" in result or error is not None) and ("prompt", request) in self._waiting:
            self._of(self._waiting.pop(("prompt", request)) or "").end_turn(result, as_dict(error), at)
        elif string(result.get("sessionId")):
            self._waiting.pop(("new", request), None)
            self._of(result["sessionId"]).choose(result)
        elif ("load", request) in self._waiting:
            self._of(self._waiting.pop(("load", request)) or "").is_told_again = False
        elif agent := string(as_dict(result.get("agentInfo")).get("name")):
            self.about["agent"] = agent
        return True


acp = Importer(
    suffixes=(".acp.jsonl",),
    sniff=_sniff,
    signs=("jsonrpc", "method", "params", "sessionUpdate", "update", "toolCallId"),
    system="acp",
    read_session=_read,
    rank=2,
    becomes={
        "session/prompt, user_message_chunk": ("human_intervention",),
        "agent_message_chunk, agent_thought_chunk": ("orchestrator_decision", "aggregate", "message"),
        "tool_call, tool_call_update": ("tool_call", "tool_result", "spawn", "return"),
        "session/request_permission": ("human_intervention",),
        "session/cancel": ("human_intervention",),
    },
    lost="model calls (inferred), plans, modes, commands, pictures, what the client read and ran",
    versions="protocol version 1, with the usage of its drafts; events of Qwen Code's daemon",
    exact="tools and how they ended, permissions, tokens of a turn or a call where they are stated",
)
"""Logs of the Agent Client Protocol."""
