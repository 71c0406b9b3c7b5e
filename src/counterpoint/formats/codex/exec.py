"""`codex exec --json`: what a run prints, as a team of the thread that ran and the agents it called.

Always true: an item counts once, when it is completed (or when the stream ends before that); the stream has no times, and its
tokens are totals of a turn, which stand on the turn's last answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from counterpoint.formats.codex.rollout import usage_of
from counterpoint.formats.codex.thread_head import ThreadHead
from counterpoint.formats.codex.thread_team import ThreadTeam
from counterpoint.formats.codex.threads import Member
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, string, text_of
from counterpoint.trace import Trace

_TURN_TOTALS = "tokens per model call: a turn's sum stands on its last answer"
_TOOLS = {"command_execution": "exec_command", "file_change": "apply_patch", "web_search": "web_search"}
_QUIET = frozenset({"todo_list", "plan"})


def read_stream(session: Session, file: File) -> Iterator[Trace]:
    """The trace of one stream."""
    records = session.records(file)
    thread = next((string(r.get("thread_id")) for _, r in records if r.get("type") == "thread.started"), None)
    if thread is None:
        return
    draft = session.draft(thread, thread, system="codex")
    stream = _Stream(ThreadTeam(draft, [ThreadHead(thread, "exec", path="/root", role="root")]), thread)
    for _, record in records:
        stream.record(record)
    stream.finish()
    yield from draft.traces()


class _Stream:
    def __init__(self, team: ThreadTeam, thread: str) -> None:
        self.team, self.thread = team, thread
        self.member: Member = team.members[thread]
        self._open: dict[str, dict[str, Any]] = {}
        self._total = Usage()

    def record(self, record: dict[str, Any]) -> None:
        kind = string(record.get("type")) or ""
        item = as_dict(record.get("item"))
        if kind in ("item.started", "item.updated"):
            self._open[str(item.get("id"))] = item
        elif kind == "item.completed":
            self._open.pop(str(item.get("id")), None)
            self._item(item)
        elif kind == "turn.completed":
            self._pay(usage_of(record.get("usage")))
            self.member.is_stopped = True
        elif kind in ("turn.failed", "error"):
            said = as_dict(record.get("error")) or record
            self.team.failed(self.member, None, string(said.get("message")) or "error")
        elif kind not in ("turn.started", "thread.started", "item.plan.delta", "request_user_input"):
            self.team.report.unknown[kind or "a line without a type"] += 1

    def finish(self) -> None:
        for item in self._open.values():
            self._item(item)
        self.team.finish()

    def _pay(self, total: Usage | None) -> None:
        """Codex gives the thread's totals so far: a turn's tokens are what was added."""
        if total is None:
            return
        self.team.report.lacks[_TURN_TOTALS] += 1
        added = Usage(*(now - before for now, before in zip(total, self._total, strict=True)))
        self._total, used = total, (added if min(added) >= 0 else total)
        if used:
            self.team.pay(self.member, None, used, None, f"{self.thread}:tokens")

    def _item(self, item: dict[str, Any]) -> None:
        kind = string(item.get("type")) or string(item.get("item_type")) or ""
        name = f"{self.thread}:{item.get('id')}"
        if kind in ("agent_message", "assistant_message", "reasoning"):
            text = text_of(item.get("text"))
            words, thoughts = ("", text) if kind == "reasoning" else (text, "")
            self.team.step(self.member, None, name, None, words, thoughts, None, None, False)
        elif kind == "collab_tool_call":
            self._team_call(item, name)
        elif kind in _TOOLS or kind == "mcp_tool_call":
            self._tool(item, kind, name)
        elif kind == "error":
            self.team.failed(self.member, None, string(item.get("message")) or "error")
        elif kind not in _QUIET:
            self.team.report.unknown[f"item/{kind}"] += 1

    def _tool(self, item: dict[str, Any], kind: str, name: str) -> None:
        given = next((item[k] for k in ("command", "arguments", "changes", "query") if item.get(k) is not None), "")
        tool = _TOOLS.get(kind) or f"{item.get('server')}.{item.get('tool')}"
        self.team.call(self.member, None, name, tool, None, compact(given))
        status = item.get("status")
        if status == "in_progress":
            return
        ok = {"completed": True, "failed": False, "declined": False}.get(str(status))
        said = item.get("aggregated_output") or as_dict(item.get("result")).get("content") or item.get("error") or ""
        if kind == "web_search":
            self.team.hosted(self.member, None, name, status or "completed")
        else:
            self.team.result(self.member, None, name, text_of(said), ok)
        if status == "declined":
            self.team.refused(self.member, None, name, "declined", "user")

    def _team_call(self, item: dict[str, Any], name: str) -> None:
        tool, to = string(item.get("tool")) or "", [t for t in as_list(item.get("receiver_thread_ids")) if string(t)]
        said = {"message": item.get("prompt") or "", "target": to[0] if to else None}
        states = as_dict(item.get("agents_states"))
        self.team.call(self.member, None, name, "wait_agent" if tool == "wait" else tool, None, compact(said))
        if tool == "spawn_agent":
            error = None if to else "no agent was made"
            self.team.spawned(self.member, None, name, said["target"], None, None, None, None, error)
        elif tool == "send_input":
            self.team.reached(self.member, None, name, said["target"])
        for child, state in states.items():
            told = as_dict(state)
            if told.get("status") in ("completed", "errored"):
                self.team.status(self.member, None, child, {told["status"]: told.get("message")})
        if tool not in ("spawn_agent", "send_input", "close_agent"):
            self.team.result(self.member, None, name, compact({"timed_out": not states}), item.get("status") == "completed")
