"""Microsoft Agent Framework and Semantic Kernel: threads, sessions, histories, responses and transcripts.

| record | becomes |
|---|---|
| message of the user, answer to an approval request | `human_intervention` |
| message of the assistant | one `orchestrator_decision`, and a `tool_call` for each call in it |
| function result, hosted tool's result | `tool_result` |
| message of another author | a step of that agent; the others hear it |
| activity of a bot's transcript | what its text or its `value` is |

Read are the messages of a file wherever they stand in it: .NET's (`contents` with `$type`), Python's (`type`), Semantic Kernel's
(`Items`, `items`), lists, lines, and the states and checkpoints around them; a message that stands in several places counts once.

Tokens: `usage` parts and metadata of a message; a response's own count stands on its last step.

What is lost: pickled values of checkpoints, which only running their code would open, and files and images (in `left_out`).

Always true: nothing is unpickled; a file whose messages are all pickled is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Call, arguments_text
from counterpoint.formats.importing.dialogue import MAIN, require_half
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, seconds, string, text_of
from counterpoint.trace import Trace

_CONTENTS = re.compile(
    rb'"(?:[cC]ontents"\s*:\s*\[\s*\{[^{}\[\]]*"(?:\$type|type|content_type)'
    rb'|[iI]tems"\s*:\s*\[\s*\{[^{}\[\]]*"(?:\$type|content_type))"\s*:\s*"'
)
_ROLE = re.compile(rb'"[rR]ole"\s*:\s*(?:"(?:user|assistant|tool|system|developer)"|\{\s*"(?:type|value|Label|label)")')
_ACTIVITY = {"channelId", "conversation", "from", "type", "timestamp"}
_CHECKPOINT = (b'"checkpoint_id"', b'"workflow_')
_DEEP = 40
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_NOTED = frozenset({"data", "uri", "hostedfile", "hostedvectorstore", "image", "audio", "binary", "filereference", "citation"})
_QUIET = frozenset({"usage", "functionapprovalrequest", "userinputrequest", "oauthconsentrequest", "annotation"})


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if keys.keys() >= _ACTIVITY:
        return True
    if all(mark in head for mark in _CHECKPOINT) and "checkpoint_id" in keys:
        return True
    return _CONTENTS.search(head) is not None and _ROLE.search(head) is not None and b'"sessionId"' not in head


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        values = list(session.documents(file))
        reader = _Reader(session)
        for value in values:
            if as_dict(value).keys() >= _ACTIVITY:
                reader.activity(as_dict(value))
            else:
                reader.walk(value)
        if not reader.records and "__pickled__" in arguments_text(values):
            why = "a checkpoint of the Python framework pickles them, and only running code would open them"
            raise InputError("has no message that can be read", where=file.name, why=why, fix="export the session or its history")
        yield from reader.traces(file.name)


def _plain(value: Any) -> dict[str, Any]:
    """An object with its keys in one spelling: `callId`, `call_id` and `CallId` are one."""
    return {str(key).lower().replace("_", ""): inner for key, inner in as_dict(value).items()}


class _Reader:
    """The conversation in a file on its way to a trace."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.messages: list[dict[str, Any]] = []
        self.seen: set[str] = set()
        self.names: list[str] = []
        self.totals: list[Usage] = []
        self.is_kernel = False
        self.records = 0
        self.unknown: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.said: str | None = None

    def walk(self, value: Any, depth: int = 0) -> None:
        """Find the messages in a document, and what is said of them around."""
        if depth > _DEEP:
            return
        if isinstance(value, list):
            for one in value:
                self.walk(one, depth + 1)
            return
        if not isinstance(value, dict):
            return
        got = _plain(value)
        if "role" in got and isinstance(got.get("contents", got.get("items")), list):
            self._found(got)
            return
        for key in ("sessionid", "threadid", "conversationid", "checkpointid", "responseid"):
            if name := string(got.get(key)):
                self.names.append(name)
        if "messages" in got and (total := _usage(got.get("usagedetails") or got.get("usage"))) is not None:
            self.totals.append(total)
        for inner in value.values():
            self.walk(inner, depth + 1)

    def _found(self, got: dict[str, Any]) -> None:
        mark = string(got.get("messageid")) or run_of(got.get("role"), got.get("contents", got.get("items")))
        if mark in self.seen and string(got.get("messageid")):
            return
        if mark in self.seen and len(self.names) > 1:
            return  # the states around it repeat it
        self.seen.add(mark)
        self.is_kernel = self.is_kernel or "items" in got
        self.messages.append(got)
        self.records += 1

    def activity(self, got: dict[str, Any]) -> None:
        """Take an activity of a transcript, as a message."""
        value, kind = as_dict(got.get("value")), string(got.get("type"))
        sender = as_dict(got.get("from"))
        self.names += [name for name in [string(as_dict(got.get("conversation")).get("id"))] if name and not self.names]
        message: dict[str, Any] = {
            "role": "assistant" if sender.get("role") == "bot" else "user",
            "createdat": got.get("timestamp"),
        }
        message["messageid"] = got.get("id")
        kinds = {"function_call": "functioncall", "function_call_output": "functionresult"}
        if kind == "message":
            message["contents"] = [{"type": "text", "text": got.get("text")}]
        elif string(value.get("type")) in kinds:
            message["role"] = "assistant" if value["type"] == "function_call" else "tool"
            message["contents"] = [{**value, "type": kinds[value["type"]], "result": value.get("output")}]
        elif value.get("type") == "reasoning":
            message["contents"] = [{"type": "text_reasoning", "text": text_of(value.get("summary") or value.get("content"))}]
        else:
            self.records += 1
            self.left_out[f"activity {kind}"] += 1
            return
        before = self.messages[-1] if self.messages else {}
        if message["role"] == "assistant" == before.get("role") and before.get("createdat") == message["createdat"]:
            before["contents"] += message["contents"]  # of one answer of the model
            self.records += 1
        else:
            self._found(message)

    def traces(self, where: str) -> Iterator[Trace]:
        """The trace, where there is a message."""
        if not self.messages:
            return
        first = run_of(self.messages[0])
        name = self.names[0] if self.names else f"thread-{first}"
        self.draft = self.session.draft(name, name, system="semantic-kernel" if self.is_kernel else "agent-framework")
        authors = [string(m.get("authorname")) or string(m.get("name")) for m in self.messages if _role(m) == "assistant"]
        self.main = next((a for a in authors if a), None)
        for k, message in enumerate(self.messages):
            self._message(message, string(message.get("messageid")) or f"m{k}")
        require_half(where, self.records, self.unknown)
        self.session.report.unknown.update(self.unknown)
        self._settle()
        yield from self.draft.traces()

    def _lane(self, message: dict[str, Any]) -> Lane:
        author = string(message.get("authorname")) or string(message.get("name"))
        if author is None or author == self.main or _role(message) != "assistant":
            return self.draft.lane(MAIN, role=self.main, name=self.main, leads=True)
        if not self.draft.has_lane(author):
            lane = self.draft.lane(author, role=author)
            for event, row in self.draft.rows.items():
                if row["type"] in ("human_intervention", "step") and row["agent"] != author:
                    lane.hears(event, "message")
            return lane
        return self.draft.lane(author)

    def _message(self, message: dict[str, Any], name: str) -> None:
        role, at = _role(message), seconds(message.get("createdat") or message.get("timestamp"))
        parts = [_plain(p) for p in as_list(message.get("contents", message.get("items")))]
        if role not in _ROLES:
            self.unknown[f"message of role {role}"] += 1
            return
        lane = self._lane(message)
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[Call] = []
        usage = _metadata(message)
        for part in parts:
            kind = _kind(part)
            if kind == "text":
                texts.append(text_of(part.get("text") or ""))
            elif kind in ("textreasoning", "reasoning", "thinking"):
                thoughts.append(text_of(part.get("text") or ""))
            elif kind.endswith("call"):
                calls.append(_call(part))
            elif kind == "usage":
                usage = _usage(part.get("usagedetails") or part.get("details")) or usage
            elif kind.endswith("result") or kind in ("error", "functionapprovalresponse"):
                self._answer(lane, part, kind, at)
            else:
                self._other(kind)
        text = "\n".join(filter(None, texts))
        if role == "assistant" and (text or calls or thoughts or usage):
            thinking = "\n".join(filter(None, thoughts))
            self._step(lane, message, name, at, {"text": text, "thinking": thinking, "usage": usage}, calls)
        elif role in ("user", "system", "developer") and text:
            self._asked(role, text, name, at)

    def _other(self, kind: str) -> None:
        if kind in _NOTED or kind in _QUIET:
            self.left_out.update([kind] if kind in _NOTED else [])
        else:
            self.unknown[f"content of type {kind}"] += 1

    def _asked(self, role: str, text: str, name: str, at: float | None) -> None:
        main = self.draft.lane(MAIN, role=self.main, name=self.main, leads=True)
        self.said = main.prompt(text, by=role, source="user" if role == "user" else "system", id=name, at=at)
        for agent, lane in self.draft.lanes.items():
            if agent != MAIN:
                lane.hears(self.said, "message")

    def _step(
        self, lane: Lane, message: dict[str, Any], name: str, at: float | None, said: dict[str, Any], calls: list[Call]
    ) -> None:
        model = string(message.get("modelid")) or string(message.get("aimodelid"))
        reason = as_dict(message.get("finishreason")).get("value") or message.get("finishreason")
        step = lane.step(id=name, end=at, model=model, extra={"finish_reason": string(reason)}, **said)
        for k, call in enumerate(calls):
            id_ = call.id or f"{name}.{k}"
            lane.call(call.tool, call.text, call=id_, id=id_, at=at)
        if step is not None:
            for other in self.draft.lanes.values():
                if other is not lane and not calls:
                    other.hears(step, "message")

    def _answer(self, lane: Lane, part: dict[str, Any], kind: str, at: float | None) -> None:
        call = string(part.get("callid")) or string(part.get("id"))
        lane = next((one for one in self.draft.lanes.values() if call is not None and one.called(call)), lane)
        if kind == "functionapprovalresponse":
            lane.prompt("approved" if part.get("approved") is True else "rejected", at=at, extra={"answers": call})
            return
        if kind == "error":
            text = text_of(part.get("message") or "")
            lane.prompt(text, by="client", source="system", at=at, ok=False, error=text[:500] or "error")
            return
        value = part.get("result", part.get("output", part.get("outputs")))
        failed = text_of(part.get("exception") or "") or text_of(as_dict(value).get("error") or "")
        text = text_of(value) if value not in (None, "") else failed
        if call is None or lane.called(call) is None:
            self.draft.report.loose(f"answer {call or '?'} without a call")
        tool = string(part.get("functionname")) or string(part.get("name"))
        fields = {"tool": tool, "ok": not failed, "error": failed[:500] or None}
        lane.result(call, text, at=at, id=f"{call}:result" if call else None, **fields)  # type: ignore[arg-type]

    def _settle(self) -> None:
        """What a response states for all of its messages: on its last step, where no message has tokens."""
        steps = [row for row in self.draft.rows.values() if row["type"] == "step"]
        if self.totals and steps and not any("tokens_in" in row for row in steps):
            total = self.totals[0]
            for one in self.totals[1:]:
                total = total.plus(one)
            self.draft.set(steps[-1]["id"], usage=total, extra={"tokens_of": "the run"})
        elif missing := sum("tokens_in" not in row for row in steps):
            self.draft.report.lacks["tokens" if missing == len(steps) else "the tokens of some model calls"] += missing
        if self.draft.has_lane(MAIN):
            self.draft.lane(MAIN).stops()
        if self.left_out:
            self.draft.meta["left_out"] = dict(sorted(self.left_out.items()))


def _role(message: dict[str, Any]) -> str:
    role = message.get("role")
    inner = _plain(role)
    return (string(role) or string(inner.get("value")) or string(inner.get("label")) or "").lower()


def _kind(part: dict[str, Any]) -> str:
    """`text` for `text`, `TextContent` and `text_content`."""
    kind = string(part.get("$type")) or string(part.get("type")) or string(part.get("contenttype")) or "unnamed"
    return kind.rpartition(".")[2].replace("_", "").lower().removesuffix("content")


def _call(part: dict[str, Any]) -> Call:
    inner = _plain(part.get("functioncall") or part.get("toolcall")) or part
    plugin, function = string(inner.get("pluginname")), string(inner.get("functionname"))
    joined = f"{plugin}-{function}" if plugin and function else function
    tool = string(inner.get("name")) or joined or string(inner.get("toolname")) or _kind(part).removesuffix("call")
    arguments = next((inner[k] for k in ("arguments", "commands", "inputs", "actions") if inner.get(k) is not None), None)
    return Call(string(inner.get("callid")) or string(inner.get("id")), tool, arguments)


def _metadata(message: dict[str, Any]) -> Usage | None:
    known = _plain(message.get("metadata")) or _plain(message.get("additionalproperties"))
    return _usage(known.get("usage") or known.get("usagedetails"))


def _usage(raw: Any) -> Usage | None:
    """Counts in any spelling; input includes the cache."""
    got = _plain(raw)
    into = next((got[k] for k in ("inputtokencount", "inputtokens", "prompttokens") if count(got.get(k)) is not None), None)
    out = next((got[k] for k in ("outputtokencount", "outputtokens", "completiontokens") if count(got.get(k)) is not None), None)
    read = got.get("cachedinputtokencount") or got.get("cachereadinputtokencount")
    wrote, thought = (
        got.get("cachecreationinputtokencount"),
        got.get("reasoningtokencount") or got.get("reasoningoutputtokencount"),
    )
    return Usage.whole(into, out, cached=read, written=wrote, reasoning=thought)


agent_framework = Importer(
    suffixes=(".thread.json",),
    sniff=_sniff,
    signs=("contents", "role", "$type", "authorName", "messageId", "callId", "author_name", "message_id"),
    system="agent-framework",
    read_session=_read,
    rank=0,
    becomes={
        "message of the user, approval": ("human_intervention",),
        "message of the system, error": ("message",),
        "message of the assistant": ("orchestrator_decision", "message", "tool_call"),
        "result of a function or a hosted tool": ("tool_result",),
        "usage": ("tokens_in", "tokens_out"),
    },
    lost="pickled values of checkpoints, files and images, requests for approval",
    versions="Agent Framework for .NET and Python to 1.23, Semantic Kernel to 1.45, transcripts of the Microsoft 365 Agents SDK",
    exact="tools, errors, authors, tokens where messages or responses state them",
)
"""Threads of Microsoft Agent Framework and Semantic Kernel."""
