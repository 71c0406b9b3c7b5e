"""Rollout-trace bundles of Codex: `manifest.json`, `trace.jsonl`, `payloads/` and, once reduced, `state.json`.

A bundle holds the whole tree. Its events are taken in the order of `seq`, which is causal; what a model wrote is in the
payload of its answer, what it was told in those of its requests, and the edges of `state.json` say which thread a call was
meant for.

Always true: a payload that is missing or broken costs its text and nothing else; payloads are found by their number among the
files of the bundle, and no path in it is followed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from counterpoint.formats.codex.rollout import Thread, result_of, usage_of
from counterpoint.formats.codex.thread_head import ThreadHead, head_of_meta, is_bundle_event
from counterpoint.formats.codex.thread_team import ThreadTeam
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, seconds, string, text_of
from counterpoint.trace import Trace

IS_PAYLOAD = re.compile(r"(?:^|/)payloads/(\d+)\.json$")
_ABOUT = re.compile(
    rb'^\s*\{(?=.{0,2000}"rollout_id")(?=.{0,2000}"root_thread_id").{0,2000}"(?:raw_event_log|started_at_unix_ms)"', re.S
)
_TEAM_KINDS = {"spawn_agent", "send_message", "assign_agent_task", "close_agent", "wait_agent"}
_QUIET = frozenset(
    [
        "rollout_ended",
        "thread_ended",
        "codex_turn_started",
        "tool_call_runtime_started",
        "mcp_tool_call_correlation_assigned",
        "code_cell_started",
        "code_cell_initial_response",
        "code_cell_ended",
        "compaction_request_started",
        "compaction_request_failed",
        "compaction_installed",
        "protocol_event_observed",
        "inference_cancelled",
        "other",
        "rollout_started",
    ]
)


def is_about_bundle(head: bytes) -> bool:
    """Whether a file is a bundle's manifest or its reduced state."""
    return _ABOUT.match(head) is not None


def folder_of(name: str) -> str:
    """The folder of the bundle that a file belongs to."""
    inside = IS_PAYLOAD.sub("", name) if IS_PAYLOAD.search(name) else name.rpartition("/")[0]
    return inside.rstrip("/")


def read_bundle(session: Session) -> Iterator[Trace]:
    """The trace of a bundle."""
    payloads: dict[int, File] = {}
    state: dict[str, Any] = {}
    events: list[dict[str, Any]] = []
    for file in session.files:
        if match := IS_PAYLOAD.search(file.name):
            payloads[int(match[1])] = file
        elif is_about_bundle(file.head(4096)):
            state = {**state, **as_dict(session.document(file))}
        else:
            events += [record for _, record in session.records(file) if is_bundle_event(record)]
    if not events:
        return
    events.sort(key=lambda event: count(event.get("seq")) or 0)
    root = next((r for e in events if (r := string(as_dict(e["payload"]).get("root_thread_id")))), None)
    name = root or string(state.get("root_thread_id")) or string(events[0].get("rollout_id")) or "unnamed"
    draft = session.draft(name, name, system="codex")
    bundle = _Bundle(session, ThreadTeam(draft, []), payloads, state, name)
    for event in events:
        bundle.event(event)
    bundle.team.finish()
    yield from draft.traces()


class _Bundle:
    def __init__(self, session: Session, team: ThreadTeam, payloads: dict[int, File], state: dict[str, Any], root: str) -> None:
        self.session, self.team, self.payloads, self.root = session, team, payloads, root
        self.threads: dict[str, Thread] = {}
        self._targets = _targets(state)
        self._inferences: dict[str, tuple[str, str | None]] = {}
        self._calls: dict[str, tuple[str, str, str]] = {}
        """Tool call to its thread, the id that the model gave it, and its kind."""
        self._turns: dict[str, str] = {}
        self._read: dict[str, Counter[str]] = defaultdict(Counter)
        self._model_calls: set[str] = set()

    def event(self, event: dict[str, Any]) -> None:
        payload = as_dict(event["payload"])
        kind = payload["type"]
        named = string(event.get("thread_id")) or string(payload.get("thread_id"))
        thread = self._thread(named or self._of_turn(event, payload))
        thread.at = at = seconds(event.get("wall_time_unix_ms"))
        if at is not None:
            thread.clock = at
        if (turn := string(event.get("codex_turn_id")) or string(payload.get("codex_turn_id"))) and named:
            self._turns[turn] = named
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, thread, count(event.get("seq")) or 0, payload)
            self._drain(thread)
        elif kind not in _QUIET:
            self.team.report.unknown[kind] += 1

    def _of_turn(self, event: dict[str, Any], payload: dict[str, Any]) -> str:
        turn = string(event.get("codex_turn_id")) or string(payload.get("codex_turn_id")) or ""
        inference = self._inferences.get(str(payload.get("inference_call_id")))
        call = self._calls.get(str(payload.get("tool_call_id")))
        return self._turns.get(turn) or (inference[0] if inference else call[0] if call else self.root)

    def _thread(self, name: str, head: ThreadHead | None = None) -> Thread:
        if name not in self.threads:
            kind = "root" if name == self.root else "thread_spawn"
            head = head or ThreadHead(name, "bundle", kind, path="/root" if kind == "root" else None, role=kind)
            known = self.team.members.get(name)
            if known is not None:  # its spawn was told first
                known.has_log = True
                known.head.role, known.lane.role = head.role, head.role or known.lane.role
                head = known.head
            self.threads[name] = Thread(head, iter(()), self.team.report)
            self.team.join(head)
        return self.threads[name]

    def _drain(self, thread: Thread) -> None:
        member = self.team.members[thread.head.id]
        for _, _, name, at, values in thread.ready:
            self.team.apply(member, name, at, values)
        thread.ready.clear()

    def _payload(self, ref: Any) -> Any:
        """The text of a payload, by its number."""
        match = re.search(r"(\d+)(?:\.json)?$", str(as_dict(ref).get("path") or as_dict(ref).get("raw_payload_id") or ""))
        file = self.payloads.get(int(match[1])) if match else None
        if file is None:
            self.team.report.lacks["payloads that the bundle names and does not hold"] += 1 if ref else 0
            return None
        return self.session.document(file)

    # -- events ----------------------------------------------------------------------------------------------------------

    def on_thread(self, thread: Thread, seq: int, payload: dict[str, Any]) -> None:
        name = string(payload.get("thread_id")) or self.root
        meta = as_dict(self._payload(payload.get("metadata_payload")))
        meta = {**meta, "id": name, "source": meta.get("session_source"), "agent_path": payload.get("agent_path")}
        head = head_of_meta({**meta, "agent_nickname": meta.get("nickname")})
        head.shape = "bundle"
        if name != self.root and head.kind == "root":
            head.kind = "thread_spawn"
        if self.threads.get(name) is thread and self.team.members[name].lane.last is None:
            self.threads.pop(name)
            self.team.members[name].head = head
        self._thread(name, head)
        member = self.team.join(head)
        if member.spawn is not None:
            extra = {"nickname": head.nickname, "path": head.path}
            self.team.draft.set(member.spawn, role=head.role, extra=extra)

    def on_request(self, thread: Thread, seq: int, payload: dict[str, Any]) -> None:
        self._inferences[str(payload.get("inference_call_id"))] = (thread.head.id, string(payload.get("model")))
        thread.model = string(payload.get("model"))
        is_delta = as_dict(payload.get("request_input_mode")).get("type") == "incremental"
        met: Counter[str] = Counter()
        known = self._read[thread.head.id]
        for item in as_list(as_dict(self._payload(payload.get("request_payload"))).get("input")):
            kind, role = as_dict(item).get("type"), as_dict(item).get("role")
            if kind != "agent_message" and role != "user":
                continue
            key = compact([kind, item.get("author"), item.get("content")])
            met[key] += 1
            if is_delta or met[key] > known[key]:
                known[key] += 1
                thread.item(seq, item)
        thread.settle_prompts()

    def on_answer(self, thread: Thread, seq: int, payload: dict[str, Any]) -> None:
        name = str(payload.get("inference_call_id") or payload.get("compaction_request_id") or f"{thread.head.id}:{seq}")
        ref = payload.get("response_payload") or payload.get("partial_response_payload")
        answer = as_dict(self._payload(ref)) if ref else {}
        thread.open(name)
        for item in as_list(answer.get("output_items", answer.get("output"))):
            if isinstance(item, dict):
                self._model_calls.add(str(item.get("call_id")))
                thread.item(seq, item)
        thread.close(usage_of(answer.get("token_usage") or answer.get("usage")))
        if error := string(payload.get("error")):
            thread.do("failed", error)

    def on_call(self, thread: Thread, seq: int, payload: dict[str, Any]) -> None:
        name = str(payload.get("tool_call_id"))
        call = string(payload.get("model_visible_call_id")) or name
        about = payload.get("kind")
        kind = string(as_dict(about).get("type")) or string(about) or "tool"
        self._calls[name] = (thread.head.id, call, kind)
        if call not in self._model_calls:
            self._invoke(thread, payload, call, kind, as_dict(about))
        if name in self._targets:
            to = self._targets[name]
            if kind == "spawn_agent":
                thread.do("spawned", call, to, None, None, None, None, None)
            else:
                thread.do("reached", call, to)

    def _invoke(self, thread: Thread, payload: dict[str, Any], call: str, kind: str, about: dict[str, Any]) -> None:
        """A call that no answer of the model shows: a code cell made it, or the answer is not in the bundle."""
        invocation = as_dict(self._payload(payload.get("invocation_payload")))
        inner = as_dict(invocation.get("payload"))
        args = compact(next((v for v in (inner.get("arguments"), inner.get("input"), invocation or None) if v is not None), ""))
        tool = string(invocation.get("tool_name")) or string(about.get("tool")) or string(about.get("name")) or kind
        if as_dict(payload.get("requester")).get("type") == "code_cell" and kind not in _TEAM_KINDS:
            thread.do("nested", call, tool, args, None)
        else:
            thread.do("call", call, tool if kind not in _TEAM_KINDS else kind, None, args)

    def on_ran(self, thread: Thread, seq: int, payload: dict[str, Any]) -> None:
        _, call, _ = self._calls.get(str(payload.get("tool_call_id")), ("", "", ""))
        runtime = as_dict(self._payload(payload.get("runtime_payload")))
        if "agent_thread_id" in runtime:
            thread.on_activity(seq, {**runtime, "event_id": call})
        elif "new_thread_id" in runtime:
            thread.on_spawned(seq, {**runtime, "call_id": call})
        elif "receiver_thread_id" in runtime:
            thread.on_reached(seq, {**runtime, "call_id": call})

    def on_result(self, thread: Thread, seq: int, payload: dict[str, Any]) -> None:
        _, call, _ = self._calls.get(str(payload.get("tool_call_id")), ("", "", ""))
        result = self._payload(payload.get("result_payload")) if payload.get("result_payload") else None
        item = as_dict(result).get("response_item") or result
        output = next((item[k] for k in ("output", "value") if isinstance(item, dict) and k in item), item)
        text, ok = result_of(output)
        status = {"completed": True, "failed": False, "cancelled": False, "aborted": False}.get(str(payload.get("status")))
        if call and not self.team.draft.rows.get(call, {}).get("extra", {}).get("is_nested"):
            thread.hear("result", call, text, ok if ok is not None else status)

    def on_turn_end(self, thread: Thread, seq: int, payload: dict[str, Any]) -> None:
        status, turn = payload.get("status"), payload.get("codex_turn_id")
        if status == "completed":
            thread.do("complete", None, f"{turn}:return")
        elif status in ("aborted", "cancelled"):
            thread.do("aborted", "interrupted", f"{turn}:aborted")
        elif status == "failed":
            thread.do("failed", "turn failed")

    def on_returned(self, thread: Thread, seq: int, payload: dict[str, Any]) -> None:
        parent = self._thread(string(payload.get("parent_thread_id")) or self.root)
        at, child = thread.at, string(payload.get("child_thread_id"))
        self.team.status(self.team.members[parent.head.id], at, child, {"completed": text_of(payload.get("message"))})


_HANDLERS: dict[str, Callable[[_Bundle, Thread, int, dict[str, Any]], None]] = {
    "thread_started": _Bundle.on_thread,
    "inference_started": _Bundle.on_request,
    "inference_completed": _Bundle.on_answer,
    "inference_failed": _Bundle.on_answer,
    "compaction_request_completed": _Bundle.on_answer,
    "tool_call_started": _Bundle.on_call,
    "tool_call_runtime_ended": _Bundle.on_ran,
    "tool_call_ended": _Bundle.on_result,
    "codex_turn_ended": _Bundle.on_turn_end,
    "agent_result_observed": _Bundle.on_returned,
}


def _targets(state: dict[str, Any]) -> dict[str, str]:
    """Tool call to the thread that it was meant for, from the edges of the reduced state."""
    items = as_dict(state.get("conversation_items"))
    out: dict[str, str] = {}
    for edge in as_dict(state.get("interaction_edges")).values():
        source, target = as_dict(as_dict(edge).get("source")), as_dict(as_dict(edge).get("target"))
        thread = string(target.get("thread_id")) or string(as_dict(items.get(str(target.get("item_id")))).get("thread_id"))
        if source.get("type") == "tool_call" and thread and string(source.get("tool_call_id")):
            out[source["tool_call_id"]] = thread
    return out
