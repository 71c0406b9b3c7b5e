"""Items of OpenAI's Responses API, as the Agents SDK keeps them: input lists, sessions in SQLite, states of runs, responses.

What one response of the model holds is one step; lists do not say where a response ends, so that what stands together between
two answers of tools is one. A `transfer_to_X` call whose answer names X is a handoff; a call that the state of a run says went to
an agent is its spawn, and the answer its return.

Always true: an item that is written twice under one id counts once; the tokens of agents that ran as tools are told as missing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Session, run_of
from counterpoint.formats.importing.chat import arguments_text
from counterpoint.formats.importing.database import Database, has_tables
from counterpoint.formats.importing.dialogue import MAIN, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, decode, seconds, string, text_of
from counterpoint.formats.spans.span import opened
from counterpoint.trace import Trace

_SIGN = re.compile(rb'"type"\s*:\s*"(?:function_call|function_call_output|output_text|custom_tool_call|computer_call|mcp_call)"')
_FAILED = re.compile(r"An error occurred while (?:running|parsing) (?:the )?tool")
_TABLES = ("agent_sessions", "agent_messages")
_STATE = {"current_agent", "model_responses", "generated_items"}
_NOTED = frozenset({"item_reference", "mcp_list_tools", "mcp_approval_request", "tool_approval_item", "additional_tools"})
_GIVEN = ("arguments", "input", "action", "queries", "code", "operation")
_STAND_IN = "__fake_id__"
_NESTED = "tokens of agents that ran as tools: the run states them, and no response does"


def holds_items(head: bytes) -> bool:
    """Whether a file that begins so holds items, a session of them, or the state of a run."""
    if has_tables(head, *_TABLES):
        return True
    keys = first_keys(head)
    if keys.keys() >= {"$schemaVersion", "current_turn"} or keys.keys() >= {"current_agent", "model_responses"}:
        return True
    if keys.get("object", b"").startswith(b'"response"'):
        return "output" in keys
    kind = keys.get("type", b"").strip(b' "\r\n')
    is_item = (
        {"role", "content"} <= keys.keys() or kind in (b"reasoning", b"function_call", b"message")
    ) and "payload" not in keys
    own = b'"call_id"' in head or b'"output_text"' in head
    strange = (
        "contents" in keys
        or "payload" in keys
        or "timestamp" in keys
        or "uuid" in keys
        or b'"$type"' in head
        or b'"toolUseId"' in head
    )
    return is_item and own and not strange and _SIGN.search(head) is not None


def traces_of_items(session: Session, file: File) -> Iterator[Trace]:
    """The conversations in a file."""
    if has_tables(file.head(), *_TABLES):
        yield from _stored(session, file)
        return
    values = list(session.documents(file))
    states = [v for v in map(as_dict, values) if "model_responses" in v or v.get("object") == "response"]
    for state in states:
        reader = Items(session, _name(state))
        reader.state(state) if "model_responses" in state else reader.response(state)
        yield from reader.traces(file.name)
    listed = [v for v in values if not any(v is state for state in states)]
    if listed:
        items = listed[0] if len(listed) == 1 and isinstance(listed[0], list) else listed
        reader = Items(session, f"items-{run_of(items[0])}" if items else "items")
        for item in items:
            reader.item(as_dict(item))
        yield from reader.traces(file.name)


def _name(state: dict[str, Any]) -> str:
    trace = string(as_dict(state.get("trace")).get("id"))
    return trace or string(state.get("conversation_id")) or string(state.get("id")) or f"run-{run_of(state)}"


def _stored(session: Session, file: File) -> Iterator[Trace]:
    """The sessions of an SQLite file."""
    database = Database(file)
    readers: dict[str, Items] = {}
    turns: dict[tuple[str, int], list[str]] = {}
    known = database.tables()
    place = {row["message_id"]: row for row in database.table("message_structure")} if "message_structure" in known else {}
    for row in database.table("agent_messages"):
        session.report.records += 1
        name = string(row.get("session_id")) or "session"
        reader = readers.setdefault(name, Items(session, name))
        try:
            item = as_dict(decode(row.get("message_data") or ""))
        except InputError as error:
            session.report.broke(file.name, count(row.get("id")), error.what)
            continue
        reader.item(item, at=seconds(row.get("created_at")))
        turn = count(as_dict(place.get(row.get("id"))).get("user_turn_number"))
        if turn is not None and reader.step is not None:
            turns.setdefault((name, turn), []).append(reader.step)
    for row in database.table("turn_usage") if "turn_usage" in known else ():
        steps = turns.get((str(row.get("session_id")), count(row.get("user_turn_number")) or 0))
        if steps and (usage := _usage(row)) is not None:
            readers[str(row["session_id"])].draft.set(steps[-1], usage=usage, extra={"tokens_of": "the turn"})
    for reader in readers.values():
        yield from reader.traces(file.name)


class Items:
    """One conversation on its way to a trace."""

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.draft = session.draft(name, name, system="openai-agents")
        self.agent = MAIN
        self.first: str | None = None
        """What the agent is called that the run began with."""
        self.step: str | None = None
        self._words: list[str] = []
        self._thoughts: list[str] = []
        self._response: int | None = None
        self._responses: dict[str, int] = {}
        """Item to the response that holds it."""
        self._usage: list[Usage | None] = []
        self._counted: set[int] = set()
        self._model: str | None = None
        self._origins: dict[str, str] = {}
        """Call to the agent that ran as its tool."""
        self._targets: dict[str, str] = {}
        """Call to the agent that it hands over to."""
        self._waiting: dict[str, tuple[str, str, str]] = {}
        """Call that may be a handoff to its tool, its arguments and its agent."""
        self._seen: set[str] = set()
        self.records = 0
        self.unknown: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()

    # -- states and responses --------------------------------------------------------------------------------------------

    def state(self, state: dict[str, Any]) -> None:
        """The state of a run, as `RunState` writes it."""
        items = [as_dict(i) for i in as_list(state.get("session_items")) or as_list(state.get("generated_items"))]
        for k, response in enumerate(map(as_dict, as_list(state.get("model_responses")))):
            self._usage.append(_usage(response.get("usage")))
            self._responses.update({_key(item): k for item in map(as_dict, as_list(response.get("output")))})
        for item in items:
            call, origin = string(as_dict(item.get("raw_item")).get("call_id")), as_dict(item.get("tool_origin"))
            if call and (agent := string(origin.get("agent_name"))):
                self._origins[call] = agent
            if call and item.get("type") == "handoff_output_item" and (target := _named(item.get("target_agent"))):
                self._targets[call] = target
        self.first = next((name for item in items if (name := _named(item.get("agent")))), _named(state.get("current_agent")))
        asked = state.get("original_input")
        for item in [{"role": "user", "content": asked}] if isinstance(asked, str) else as_list(asked):
            self.item(as_dict(item))
        for item in items:
            self._enter(_named(item.get("agent")))
            if string(item.get("type")) in _NOTED:
                self.left_out[str(item["type"])] += 1
            else:
                self.item(as_dict(item.get("raw_item")))
        self._guards(state)
        total = _usage(as_dict(state.get("context")).get("usage"))
        stated = sum((u.input + u.output for u in self._usage if u), 0)
        if total and (more := total.input + total.output - stated) > 0:
            self.draft.report.lacks[_NESTED] += more
            self.draft.costs["tokens"] = total.input + total.output

    def _guards(self, state: dict[str, Any]) -> None:
        for side in ("input_guardrail_results", "output_guardrail_results"):
            for result in map(as_dict, as_list(state.get(side))):
                output = as_dict(result.get("output"))
                if output.get("tripwireTriggered", output.get("tripwire_triggered")) is True:
                    name = _named(result.get("guardrail")) or "guardrail"
                    self.draft.event(
                        "safety_event", self.agent, role=name, ok=False, error=f"{name} stopped the run", source="system"
                    )

    def response(self, response: dict[str, Any]) -> None:
        """One answer of the Responses API."""
        self._model = string(response.get("model"))
        asked = response.get("input")
        for item in [{"role": "user", "content": asked}] if isinstance(asked, str) else as_list(asked):
            self.item(as_dict(item))
        self._usage.append(_usage(response.get("usage")))
        for item in map(as_dict, as_list(response.get("output"))):
            self._responses[_key(item)] = 0
            self.item(item, at=seconds(response.get("completed_at") or response.get("created_at")))

    def _enter(self, name: str | None) -> None:
        """Go on with the agent of that name, where a record states it."""
        agent = MAIN if name is None or name == self.first else name
        if agent != self.agent and (name is not None):
            self.agent, self.step = agent, None

    # -- items -----------------------------------------------------------------------------------------------------------

    def item(self, item: dict[str, Any], at: float | None = None) -> None:
        """Put an item down."""
        self.records += 1
        kind = string(item.get("type")) or ("message" if "role" in item else "unnamed")
        name = _id(item)
        mark = f"{kind}:{name or item.get('call_id')}" if name or item.get("call_id") else None
        if mark is not None and mark in self._seen:
            return
        self._seen.update([mark] if mark else [])
        if kind == "message" and item.get("role") != "assistant":
            self._asked(item, name, at)
        elif kind == "message":
            self._words.append(_text(item.get("content")))
            self._say(item, at)
        elif kind == "reasoning":
            thought = text_of(item.get("summary") or "") or text_of(item.get("content") or "")
            self._begin(item, at)
            self._thoughts.append(thought)
            self._say(item, at)
        elif kind.endswith(("_call_output", "_output")):
            self._answered(item, at)
        elif kind.endswith("_call"):
            self._called(item, kind, at)
        elif kind in _NOTED:
            self.left_out[kind] += 1
        elif kind in ("compaction", "compaction_summary", "mcp_approval_response"):
            self._told(item, kind, at)
        else:
            self.unknown[f"item of type {kind}"] += 1

    def _asked(self, item: dict[str, Any], name: str | None, at: float | None) -> None:
        role = string(item.get("role")) or "user"
        self.step = None
        source = "user" if role == "user" else "system"
        self._lane().prompt(_text(item.get("content")), by=role, source=source, id=name, at=at)

    def _told(self, item: dict[str, Any], kind: str, at: float | None) -> None:
        self.step = None
        if kind == "mcp_approval_response":
            self._lane().prompt("approved" if item.get("approve") is True else "rejected", at=at)
        else:
            text = text_of(item.get("summary") or "")
            self._lane().prompt(text, by="client", source="system", at=at, extra={"is_compaction": True})

    def _lane(self) -> Any:
        role = self.first if self.agent == MAIN else self.agent
        return self.draft.lane(self.agent, role=role, leads=self.agent == MAIN)

    def _begin(self, item: dict[str, Any], at: float | None) -> None:
        """The step of the response that an item belongs to."""
        response = self._responses.get(_key(item))
        if self.step is not None and response == self._response:
            return
        words = self._words if item.get("type") in (None, "message") else []
        self._response, self._words, self._thoughts = response, words[-1:], []
        usage = self._usage[response] if response is not None and response not in self._counted else None
        self._counted.update([response] if response is not None else [])
        self.step = self._lane().step(id=_id(item), end=at, usage=usage, model=self._model)

    def _say(self, item: dict[str, Any], at: float | None) -> None:
        self._begin(item, at)
        assert self.step is not None
        text, thought = "\n".join(filter(None, self._words)), "\n".join(filter(None, self._thoughts))
        extra = {"thinking_ref": self.draft.text(thought)} if text and thought else {"is_thinking": True} if thought else {}
        self.draft.set(self.step, text=text or thought, extra=extra)

    def _called(self, item: dict[str, Any], kind: str, at: float | None) -> None:
        self._begin(item, at)
        lane, call = self._lane(), string(item.get("call_id")) or string(item.get("id")) or f"call{self.records}"
        tool = string(item.get("name")) or kind.removesuffix("_call")
        given = next((item[key] for key in _GIVEN if item.get(key) is not None), None)
        if agent := self._origins.get(call):
            lane.spawn(f"{agent}-{call}", role=agent, name=agent, tool=tool, text=arguments_text(given), id=call, at=at)
            self.draft.report.linked("the agent that the state of the run names")
        elif call in self._targets:
            self._hand_over(call, tool, self._targets[call], at)
        elif tool.startswith("transfer_to_"):
            self._waiting[call] = tool, arguments_text(given), self.agent
        else:
            server = string(item.get("server_label"))
            lane.call(f"{server}.{tool}" if server else tool, arguments_text(given), call=call, id=call, at=at)
            self._with_result(item, call, at)

    def _with_result(self, item: dict[str, Any], call: str, at: float | None) -> None:
        """What a hosted tool gave back stands in its call."""
        result = next((item[key] for key in ("output", "results", "outputs", "result") if item.get(key) is not None), None)
        error = text_of(item.get("error") or "")
        if result is not None or error or (item.get("status") in ("completed", "failed") and "arguments" not in item):
            failed = bool(error) or item.get("status") == "failed"
            text = text_of(result) if result is not None else error
            self._lane().result(
                call, text, id=f"{call}:result", at=at, ok=not failed, error=(error or "failed")[:500] if failed else None
            )

    def _hand_over(self, call: str, tool: str, target: str, at: float | None) -> None:
        agent = MAIN if target == self.first else target
        lane = self._lane()
        self.draft.lane(agent, role=target, leads=agent == MAIN)
        lane.send(agent, id=call, at=at, tool=tool)
        self.agent, self.step = agent, None

    def _answered(self, item: dict[str, Any], at: float | None) -> None:
        call, output = string(item.get("call_id")), item.get("output")
        text = output if isinstance(output, str) else text_of(output) if output is not None else ""
        self.step = None
        if call in self._targets:
            return
        if call in self._waiting:
            tool, arguments, agent = self._waiting.pop(call)
            if target := _target(text):
                self._hand_over(call, tool, target, at)
                return
            self.draft.lane(agent).call(tool, arguments, call=call, id=call, at=at)
        if call in self._origins:
            self.draft.lane(f"{self._origins[call]}-{call}").returns(self.agent, text, id=f"{call}:return", at=at)
            return
        lane = next((one for one in self.draft.lanes.values() if call is not None and one.called(call)), self._lane())
        if call is None or lane.called(call) is None:
            self.draft.report.loose(f"answer {call or '?'} without a call")
        failed = _FAILED.match(text) is not None
        error = text[:500] if failed else None
        lane.result(call, text, id=f"{call}:result" if call else None, at=at, ok=False if failed else None, error=error)

    def traces(self, where: str) -> Iterator[Trace]:
        """The trace."""
        require_half(where, self.records, self.unknown)
        self.session.report.unknown.update(self.unknown)
        for call, (tool, arguments, agent) in self._waiting.items():
            self.draft.lane(agent).call(tool, arguments, call=call, id=call)
        steps = [row for row in self.draft.rows.values() if row["type"] == "step"]
        if missing := sum("tokens_in" not in row for row in steps):
            self.draft.report.lacks["tokens" if missing == len(steps) else "the tokens of some model calls"] += missing
        if self.agent in self.draft.lanes:
            self.draft.lane(self.agent).stops()
        if self.left_out:
            self.draft.meta["left_out"] = dict(sorted(self.left_out.items()))
        yield from self.draft.traces()


def _key(item: dict[str, Any]) -> str:
    return _id(item) or string(item.get("call_id")) or compact(item)


def _id(item: dict[str, Any]) -> str | None:
    """An item's own id: what came from another vendor's model has a stand-in."""
    name = string(item.get("id"))
    return None if name == _STAND_IN else name


def _named(agent: Any) -> str | None:
    return string(agent) or string(as_dict(agent).get("name"))


def _target(text: str) -> str | None:
    """The agent that a handoff's answer names."""
    try:
        return string(as_dict(decode(text)).get("assistant")) if text.startswith("{") else None
    except InputError:
        return None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = map(as_dict, as_list(content))
    return "\n".join(filter(None, (text_of(p.get("text") or p.get("refusal") or p.get("transcript") or "") for p in parts)))


def _usage(raw: Any) -> Usage | None:
    got = as_dict(raw)
    told = {k: opened(v) for k, v in got.items() if k.endswith("_details")}
    details = {k: v[0] if isinstance(v, list) and v else v for k, v in told.items()}
    usage = Usage.openai({**got, **details})
    return usage if usage else None
