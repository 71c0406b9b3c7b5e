"""What joins Codex threads in a draft: who spawned whom, who told whom what, who returned what to whom; and reviewers.

Always true: a spawn names an agent only where the source does, or where the prompt is the same (which is reported as
inferred); a return that is reported three times (wait, notice, close) is heard once; a message is heard when the log of the
thread that received it shows it, not when it was sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.codex.thread_head import ThreadHead
from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.values import as_dict, as_list, compact, decode, string
from counterpoint.trace.keys import TITLE
from counterpoint.trace.quantities import NO_TRANSCRIPT

_HIDDEN = "the text of messages between agents: it is encrypted"
# How Codex names the thread at the top of a tree.
_TOP = "/root"


@dataclass
class Return:
    """What an agent gave back, and whether it was heard."""

    event: str
    text: str
    is_heard: bool = False
    is_own: bool = True
    """Told by the thread itself, not only by its parent."""


@dataclass
class PendingMessage:
    """A message on its way."""

    event: str
    by: str
    text: str


@dataclass
class Member:
    """A thread of the team."""

    id: str
    lane: Lane
    head: ThreadHead
    has_log: bool = True
    spawn: str | None = None
    """The event that made it."""
    in_transit: list[PendingMessage] = field(default_factory=list)
    """What was sent to it and has not come in yet."""
    returned: list[Return] = field(default_factory=list)
    open_calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Calls without an answer: tool and arguments."""
    unpaid: str | None = None
    """Its last step, where that has no tokens yet."""
    is_stopped: bool = False
    action: str | None = None
    """What a reviewer was asked to judge."""


class Threads:
    """The threads of a tree, and what joins them."""

    def __init__(self, draft: Draft, heads: list[ThreadHead]) -> None:
        self.draft, self.report = draft, draft.report
        self.members: dict[str, Member] = {}
        self._paths: dict[str, str] = {}
        self._spawns: dict[str, tuple[str, Member]] = {}
        """Call id to the event of a spawn whose agent is not known yet."""
        self._sends: dict[str, tuple[str, Member, str]] = {}
        self._ends: dict[str, str] = {}
        self._waits: set[str] = set()
        self._verdicts: dict[str, str] = {}
        self._results: dict[str, str] = {}
        for head in heads:
            self.join(head)

    def join(self, head: ThreadHead, *, has_log: bool = True) -> Member:
        """A thread becomes a member, once."""
        if head.id not in self.members:
            lane = self.draft.lane(
                head.id,
                role=head.role or (None if head.kind == "thread_spawn" else head.kind),
                name=head.nickname,
                leads=head.kind in ("root", "fork"),
            )
            self.members[head.id] = Member(head.id, lane, head, has_log)
        member = self.members[head.id]
        if head.path:
            self._paths.setdefault(head.path, head.id)
        return member

    def find(self, name: str | None, near: Member) -> Member | None:
        """A member by thread id or path; a path may be relative to who names it. Nicknames are no identity."""
        if not name:
            return None
        base = near.head.path or _TOP
        return self.members.get(name) or self.members.get(
            next((self._paths[p] for p in (name, f"{base}/{name}", f"{_TOP}/{name}") if p in self._paths), "")
        )

    # -- between threads -------------------------------------------------------------------------------------------------

    def spawned(
        self,
        member: Member,
        at: float | None,
        call: str | None,
        thread: str | None,
        role: str | None,
        nickname: str | None,
        path: str | None,
        prompt: str | None,
        error: str | None,
        rule: str | None = None,
    ) -> None:
        """What came of a spawn: an agent, or none. Told up to three times."""
        event = self._spawns[call][0] if call in self._spawns else None
        if thread is None:
            if event is not None and error:
                self.draft.set(event, ok=False, error=error[:500])
            return
        child = self.members.get(thread) or self.join(
            ThreadHead(thread, "rollout", "thread_spawn", member.id, role=role, nickname=nickname, path=path), has_log=False
        )
        if child.spawn is not None:
            return
        if event is None:  # made by a code cell: the call is in no record
            event = member.lane.spawn(None, at=at, id=call)
            self._spawns[call or event] = (event, member)
        row = self.draft.rows[event]
        if row.get("to") is not None:
            return
        child.spawn = event
        row.pop("ok", None)
        role = role or child.head.role or row.get("role")
        child.lane.role = child.lane.role or role
        named = {"nickname": nickname or child.head.nickname, "path": path or child.head.path}
        child.lane.name = child.lane.name or named["nickname"] or string(row.get("extra", {}).get("task_name"))
        extra = {name: value for name, value in named.items() if value} or None
        text = prompt if prompt and "content_ref" not in row else None
        self.draft.set(event, to=thread, role=role, text=text, extra=extra)
        if child.lane.last is None:
            child.lane.hears(event, "spawn")
        child.in_transit.append(PendingMessage(event, member.id, self._text(event)))
        self.report.linked(rule or "the spawn's answer names the thread", exact=rule is None)

    def _text(self, event: str) -> str:
        return self.draft.contents.get(self.draft.rows[event].get("content_ref", ""), "")

    def reached(self, member: Member, at: float | None, call: str | None, thread: str | None) -> None:
        """Who got what a call sent."""
        if call not in self._sends or thread is None or self.draft.rows[self._sends[call][0]].get("to"):
            return
        event, _, text = self._sends[call]
        self.draft.set(event, to=thread)
        if (child := self.members.get(thread)) is not None:
            child.in_transit.append(PendingMessage(event, member.id, text))

    def status(self, member: Member, at: float | None, child: str | None, status: Any) -> None:
        """The state of another thread, as this one is told."""
        state = as_dict(status)
        if "completed" in state:
            self._hears_return(member, at, child, string(state["completed"]))
        elif "errored" in state:
            self._hears_return(member, at, child, None, error=string(state["errored"]) or "error")

    def _hears_return(
        self, member: Member, at: float | None, name: str | None, text: str | None, error: str | None = None
    ) -> None:
        child = self.find(name, member)
        if child is None:
            if not name:
                return
            child = self.join(ThreadHead(name, "rollout", "thread_spawn", member.id), has_log=False)
        words = text if text is not None else error or ""
        report = next((r for r in child.returned if not r.is_heard), None)
        if report is None and (not words or any(r.text == words for r in child.returned)) and child.returned:
            return
        if report is None:
            fields = {} if error is None else {"ok": False, "error": error[:500]}
            event = child.lane.returns(member.id, words, at=at, heard=False, id=f"{child.id}:r{len(child.returned)}", **fields)
            report = Return(event, words, is_own=False)
            child.returned.append(report)
        report.is_heard = True
        member.lane.hears(report.event, "return", at)

    def reviewed(self, member: Member, at: float | None) -> None:
        """A review is over: what its thread returned is heard."""
        for child in self.members.values():
            if child.head.kind == "review" and child.head.parent == member.id:
                self._hears_return(member, at, child.id, None)

    def user_message(self, member: Member, at: float | None, text: str, name: str) -> None:
        """Words in the user's name: a human's, or a task from the thread's parent, or Codex's own to its reviewers."""
        head = member.head
        if head.kind in ("root", "fork"):
            member.lane.prompt(text, at=at, id=name)
        elif head.kind != "thread_spawn":
            is_guardian = head.kind == "guardian"
            member.action = action_of(text) if is_guardian else None
            if is_guardian and member is next(iter(self.members.values())) and _PLANNED.search(text):
                self.draft.meta.setdefault(TITLE, f"{head.kind}: {' '.join(str(member.action).split())[:_TITLE]}")
            member.lane.prompt(text, by="codex", at=at, id=name, source="system", trusted=not is_guardian)
        elif not self._delivered(member, text, at):
            parent = self.members.get(head.parent or "")
            if parent is not None and parent.has_log and member.lane.last is not None:
                member.lane.prompt(text, at=at, id=name)
            else:
                member.lane.prompt(text, by=head.parent or "codex", at=at, id=name, source="peer")

    def _delivered(self, member: Member, text: str, at: float | None) -> bool:
        if member.spawn is None:
            self._infer_spawn(member, text)
        pending = next((s for s in member.in_transit if s.text == text), None)
        if pending is None and member.in_transit and member.lane.last is None:
            pending = member.in_transit[0]  # its task, which the spawn does not repeat word for word
        if pending is None:
            return False
        self._comes_in(member, pending, at)
        return True

    def _comes_in(self, member: Member, sent: PendingMessage, at: float | None) -> None:
        member.in_transit.remove(sent)
        if sent.event != member.spawn:
            member.lane.hears(sent.event, "message", at)

    def _infer_spawn(self, member: Member, text: str) -> None:
        """Take a spawn by its parent whose agent is not known, with the very same task, for the one that made it."""
        for call, (event, parent) in self._spawns.items():
            row = self.draft.rows[event]
            if parent.id == member.head.parent and row.get("to") is None and self._text(event) == text:
                self.spawned(parent, None, call, member.id, None, None, None, None, None, rule="same task")
                return

    def injected(self, member: Member, at: float | None, text: str, name: str) -> None:
        """Words that the harness put in the user's name."""
        member.lane.prompt(text, by="codex", at=at, id=name, source="system")

    def remembers(self, member: Member, at: float | None, text: str, name: str) -> None:
        """Files of instructions that are read into the context."""
        member.lane.prompt(text, by="memory", at=at, id=name, source="memory", trusted=False)

    def mail(
        self,
        member: Member,
        at: float | None,
        author: str | None,
        recipient: str | None,
        kind: str,
        text: str,
        is_hidden: bool,
        name: str,
    ) -> None:
        """A message of another agent comes in: a task, word from it, or its final answer."""
        sender = self.find(author, member)
        if sender is member:
            return
        if is_hidden and not text:
            self.report.lacks[_HIDDEN] += 1
        if kind == "FINAL_ANSWER":
            self._hears_return(member, at, sender.id if sender else author, text or None)
            return
        sent = [s for s in member.in_transit if sender is not None and s.by == sender.id]
        if same := [s for s in sent if text and s.text == text]:
            sent = same
        elif kind == "NEW_TASK":
            sent = [s for s in sent if s.event == member.spawn] or sent
        else:
            sent = [s for s in sent if s.event != member.spawn]
        if sent:
            self._comes_in(member, sent[0], at)
            if text and "content_ref" not in self.draft.rows[sent[0].event]:
                self.draft.set(sent[0].event, text=text)
        elif sender is not None and sender.has_log:
            sender.lane.send(member.id, text, at=at, id=name)
        else:
            member.lane.prompt(text, by=author or "unnamed", at=at, id=name, source="peer")

    # -- the end ---------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Report agents and spawns that could not be linked."""
        for member in self.members.values():
            head = member.head
            if member.is_stopped:
                member.lane.stops()
            if head.kind not in ("root", "fork") and member.spawn is None:
                self.draft.unspawned.add(member.id)
            if not member.has_log:
                self.report.lacks[NO_TRANSCRIPT] += 1
                self.report.loose(f"agent {member.id}: it was spawned, and its log is not here")
            elif head.parent and head.parent not in self.members:
                self.report.loose(f"agent {member.id} ({head.kind}): the log of its parent {head.parent} is not here")
            elif head.kind == "thread_spawn" and member.spawn is None:
                self.report.loose(f"agent {member.id}: no spawn of its parent {head.parent} names it")
            elif head.kind not in ("root", "thread_spawn"):
                self.report.linked(f"the {head.kind} thread names its parent")
        for call, (event, _) in self._spawns.items():
            row = self.draft.rows[event]
            if row.get("to") is None and row.get("ok") is not False:
                self.report.loose(f"spawn {call}: which agent it made")


# -- reviewers -----------------------------------------------------------------------------------------------------------------


_TITLE = 120
_PLANNED = re.compile(r"Planned action JSON:\s*(\{.*?\n\})", re.DOTALL)
# How Codex itself says no. Only at the very start: a file that a tool read may hold the same words.
_REFUSED = re.compile(r"(?:exec command |patch |command )?rejected by user|This action was rejected|rejected: blocked by policy")


def verdict_of(text: str) -> dict[str, Any] | None:
    """The fields of a safety event in a reviewer's answer, or None when it is no verdict."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        verdict = as_dict(decode(text))
    except InputError:
        return None
    outcome = string(verdict.get("outcome"))
    if outcome is None:
        return None
    extra = {name: verdict.get(name) for name in ("outcome", "risk_level", "user_authorization", "rationale")}
    # `ok` of an event of safety says that what it reports was stopped; an approval went well in another way.
    return {"ok": {"allow": True, "deny": True}.get(outcome), "source": "system", "extra": extra}


def action_of(text: str) -> str:
    """The command in a reviewer's question or in a call's arguments; without one, the text itself."""
    planned = _PLANNED.search(text)
    try:
        action = as_dict(decode(planned[1] if planned else text)) if planned or text.startswith("{") else {}
    except InputError:
        action = {}
    command = action.get("command", action.get("cmd", action.get("patch")))
    last = string(as_list(command)[-1]) if as_list(command) else string(command)
    return last or (compact(action) if planned else text)


def is_refused(text: str) -> str | None:
    """Who refused a call, where a result is a refusal: `user` or `system`."""
    match = _REFUSED.match(text)
    return None if match is None else "user" if "by user" in match[0] else "system"
