"""What happens to a Codex thread, as steps of an agent: answers, calls and their results, ends of turns.

Rollouts, rollout-trace bundles and `codex exec` streams all speak to a `ThreadTeam`: one method per thing that can happen.

Always true: a reviewer's verdict is a safety event; a call of the team's own tools (spawn, send, close) is that event, and no
tool call besides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.codex.threads import Member, Return, Threads, action_of, is_refused, verdict_of
from counterpoint.formats.draft import one_line
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, decode, string, text_of
from counterpoint.trace.keys import TITLE

_TEAM_SPACES = (None, "", "collaboration", "multi_agent_v1")
_SENDS = ("send_input", "send_message", "followup_task", "assign_agent_task")
_WAITS = ("wait_agent", "wait")
_NO_REPLY = "the content of what hosted tools (web search) gave the model"


class ThreadTeam(Threads):
    """All threads of a tree, and the draft that they make together."""

    def apply(self, member: Member, name: str, at: float | None, values: tuple[Any, ...]) -> None:
        """One step of a thread."""
        _METHODS[name](self, member, at, *values)

    def step(
        self,
        member: Member,
        at: float | None,
        name: str,
        end: float | None,
        text: str,
        thinking: str,
        usage: Usage | None,
        model: str | None,
        has_calls: bool,
        is_compaction: bool = False,
    ) -> None:
        """An answer of the model; a reviewer's verdict is a safety event."""
        fields: dict[str, Any] = {"extra": {"is_compaction": True}} if is_compaction else {}
        verdict = verdict_of(text) if member.head.kind == "guardian" else None
        if verdict is not None:
            reviewed = self.members.get(member.head.parent or "")
            kind = "message" if verdict["extra"]["outcome"] == "allow" else "safety_event"  # an approval is no incident
            fields = {"kind": kind, **verdict, "to": reviewed.id if reviewed else None}
        event = member.lane.step(
            at=None if end is not None else at,
            end=end,
            text=text,
            thinking=thinking,
            usage=usage,
            model=model,
            id=name,
            only_calls=has_calls and not text and not thinking,
            **fields,
        )
        member.unpaid = event if usage is None else None
        member.is_stopped = False
        if verdict is not None and event is not None:
            self._judge(member, event)

    def _judge(self, reviewer: Member, verdict: str) -> None:
        """Link a verdict to the call that it is about, where that is clear."""
        reviewed = self.members.get(reviewer.head.parent or "")
        action, reviewer.action = reviewer.action, None
        if reviewed is None:
            return
        calls = reviewed.open_calls
        same = [call for call, (_, args) in calls.items() if action and action in action_of(args)]
        call = same[0] if len(same) == 1 else next(iter(calls)) if len(calls) == 1 else None
        if call is None:
            self.report.loose(f"verdict {verdict}: which call of {reviewed.id} it is about")
            return
        self.report.linked("the reviewed action is the call's" if same else "the only open call", exact=False)
        self.draft.edge(reviewed.lane.called(call), verdict, "causal")
        self._verdicts[call] = verdict

    def pay(self, member: Member, at: float | None, usage: Usage, model: str | None, name: str) -> None:
        """Tokens of a call that left no item of its own, or that came late."""
        if member.unpaid is not None:
            self.draft.set(member.unpaid, usage=usage)
            member.unpaid = None
        else:
            member.lane.step(end=at, usage=usage, model=model, id=name)

    def call(self, member: Member, at: float | None, call: str, tool: str, space: str | None, arguments: str) -> None:
        """A call: of a tool, or of the team."""
        lane, is_team = member.lane, space in _TEAM_SPACES
        if is_team and tool == "spawn_agent":
            args = _object(arguments)
            text = string(args.get("message")) or text_of(args.get("items"))
            extra = {"task_name": args.get("task_name"), "fork": args.get("fork_context", args.get("fork_turns"))}
            event = lane.spawn(None, role=string(args.get("agent_type")), text=text, at=at, id=call, extra=extra)
            self._spawns[call] = (event, member)
        elif is_team and tool in _SENDS:
            self._send(member, at, call, tool, _object(arguments))
        elif is_team and tool == "close_agent" and (child := self.find(_target(_object(arguments)), member)) is not None:
            self._ends[call] = lane.despawn(child.id, at=at, id=call)
        else:
            if is_team and tool in _WAITS and "cell_id" not in arguments:
                self._waits.add(call)
            name = tool if is_team else f"{space}.{tool}"
            lane.call(name, arguments, call=call, at=at, id=call)
            member.open_calls[call] = (name, arguments)

    def _send(self, member: Member, at: float | None, call: str, tool: str, args: dict[str, Any]) -> None:
        text = string(args.get("message")) or text_of(args.get("items"))
        target = _target(args)
        extra = {"via": tool, "interrupts": args.get("interrupt")}
        event = member.lane.send(None, text, at=at, id=call, heard=False, extra=extra)
        self._sends[call] = (event, member, text)
        if (child := self.find(target, member)) is not None:
            self.reached(member, at, call, child.id)
        elif target:
            self.draft.set(event, extra={"target": target})

    def result(self, member: Member, at: float | None, call: str | None, text: str, ok: bool | None) -> None:
        """What a call gave."""
        if call in self._spawns or call in self._sends or call in self._ends:
            self._team_result(member, at, call or "", text)
            return
        member.open_calls.pop(call or "", None)
        fields: dict[str, Any] = {}
        if call in self._waits:
            answer = _object(text)
            for child, status in as_dict(answer.get("status")).items():
                self.status(member, at, child, status)
            fields = {"source": "peer", "trusted": True, "extra": {"timed_out": answer.get("timed_out")}}
            text, ok = ("" if "status" in answer else text), (ok if answer else False)
        name = f"{call}:result" if call else None
        event = member.lane.result(call, text, at=at, id=name, ok=ok, **fields)
        if call is not None:
            self._results[call] = event
            if ok is not None and (called := member.lane.called(call)) is not None:
                self.draft.rows[called].setdefault("ok", ok)
            self.draft.edge(self._verdicts.pop(call, None), event, "causal")
        if call is not None and (by := is_refused(text)):
            self.refused(member, at, call, text, by)

    def refused(self, member: Member, at: float | None, call: str, text: str, by: str) -> None:
        """A call was refused: by the user, or by a rule or a reviewer."""
        event = self._results[call]
        self.draft.set(event, ok=False)
        fields: dict[str, Any] = {"at": at, "text": text, "role": member.lane.role}
        safety = self.draft.event("safety_event", member.id, id=f"{call}:refused", ok=True, source=by, **fields)
        self.draft.edge(event, safety, "causal")
        member.lane.hears(safety)

    def _team_result(self, member: Member, at: float | None, call: str, text: str) -> None:
        answer = _object(text)
        member.lane.reached(at)
        if call in self._spawns:
            child = self.find(string(answer.get("agent_id")) or string(answer.get("task_name")), member)
            thread = child.id if child else string(answer.get("agent_id"))
            is_known = thread is not None or "task_name" in answer
            self.spawned(member, at, call, thread, None, string(answer.get("nickname")), None, None, None if is_known else text)
            return
        if call in self._ends:
            target = self.draft.rows[self._ends[call]].get("to")
            self.status(member, at, target, answer.get("previous_status", answer.get("status")))
        if text and not answer:
            event = self._ends.get(call) or self._sends[call][0]
            self.draft.set(event, ok=False, error=text[:500])

    def worked(self, member: Member, at: float | None, call: str, ok: bool) -> None:
        """Whether a call worked, told beside its answer."""
        for event in (member.lane.called(call), self._results.get(call)):
            if event is not None:
                self.draft.rows[event].setdefault("ok", ok)

    def hosted(self, member: Member, at: float | None, call: str, status: Any) -> None:
        """A tool that ran at the model's provider: what it gave went to the model and is in no log."""
        member.open_calls.pop(call, None)
        self.report.lacks[_NO_REPLY] += 1
        ok = {"completed": True, "failed": False}.get(str(status))
        member.lane.result(call, at=at, id=f"{call}:result", ok=ok, extra={"is_hidden": True})

    def nested(self, member: Member, at: float | None, call: str, tool: str, text: str, ok: bool | None) -> None:
        """A call that a code cell made, not the model."""
        member.lane.call(tool, text, at=at, id=call, ok=ok, extra={"is_nested": True})

    def complete(self, member: Member, at: float | None, text: str | None, name: str) -> None:
        """A turn is over: a sub-agent returns, the root may be done."""
        head = member.head
        if head.kind in ("root", "fork"):
            member.is_stopped = True
            return
        if head.kind == "guardian":
            return
        report = next((r for r in member.returned if not r.is_own and r.text == (text or r.text)), None)
        if report is not None:
            report.is_own = True
            return
        event = member.lane.returns(head.parent, text, at=at, id=name, heard=False)
        member.returned.append(Return(event, text or self._text(event)))

    def aborted(self, member: Member, at: float | None, reason: str, name: str) -> None:
        """A turn was cut short: by a human, where the thread is the one humans speak to."""
        if member.head.kind in ("root", "fork") and reason in ("interrupted", "replaced"):
            member.lane.prompt(f"turn aborted: {reason}", at=at, id=name, extra={"turn_aborted": reason})
        elif member.lane.last is not None:
            self.draft.set(member.lane.last, extra={"turn_aborted": reason})

    def rolled_back(self, member: Member, at: float | None, turns: int | None, name: str) -> None:
        """A human took the last turns back; they stay in the trace."""
        member.lane.prompt("rolled back", at=at, id=name, extra={"turns_rolled_back": turns})

    def failed(self, member: Member, at: float | None, error: str) -> None:
        """An error ended what the thread was doing."""
        if member.lane.last is not None:
            self.draft.set(member.lane.last, error=error[:500])

    def titled(self, member: Member, at: float | None, title: str | None) -> None:
        """A thread was given a title: the run's, where it is the one at the top."""
        if title and member.head.kind in ("root", "fork"):
            self.draft.meta[TITLE] = one_line(title)

    def risk(self, member: Member, at: float | None, score: dict[str, Any]) -> None:
        """A score of risk that Codex gave."""
        event = self.draft.event("safety_event", member.id, at=at, role=member.lane.role, source="system", extra=score)
        self.draft.edge(member.lane.last, event, "causal")


_METHODS: dict[str, Callable[..., None]] = {
    name: getattr(ThreadTeam, name)
    for name in [
        "step",
        "pay",
        "call",
        "result",
        "worked",
        "hosted",
        "nested",
        "complete",
        "aborted",
        "rolled_back",
        "failed",
        "risk",
        "titled",
        "spawned",
        "reached",
        "status",
        "reviewed",
        "user_message",
        "injected",
        "remembers",
        "mail",
    ]
}


def _object(text: str) -> dict[str, Any]:
    """The JSON object that a text is, or an empty one."""
    if not text.startswith("{"):
        return {}
    try:
        return as_dict(decode(text))
    except InputError:
        return {}


def _target(args: dict[str, Any]) -> str | None:
    named = string(args.get("target")) or string(args.get("id")) or string(args.get("agent_id"))
    return named or string(next(iter(as_list(args.get("ids"))), None))
