"""Claude Code's conversations played into a draft: who said what to whom, in the order in which it was heard.

What the client itself says in a transcript is read here too: memory and attached files are content from outside the team; a
refusal or a hook that blocks is a safety event; reminders and listings are counted in `left_out`.

Always true: a sub-agent's part is played when its parent hears of it, so that what the parent does next follows from the
return; every record of a conversation becomes an event, is named in `left_out`, or is counted as unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from counterpoint.formats.claude_code.conversation import (
    SPAWNS,
    SYNTHETIC,
    Conversation,
    Notice,
    Reply,
    ResultBlock,
    SpawnLinks,
    StatedUsage,
    WorkflowAgent,
    notices,
    user_text,
)
from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, number, seconds, string, text_of
from counterpoint.trace.keys import STATED, STOP_REASON
from counterpoint.trace.quantities import NO_TRANSCRIPT, PLACEHOLDER

_SENDS = "SendMessage"
_REMARKS = {"nested_memory": "memory", "file": "tool", "edited_text_file": "tool", "hook_additional_context": "system"}
_LETTERS = re.compile(r'<teammate-message\s+teammate_id="([^"]*)"[^>]*>\s*(.*?)\s*</teammate-message>', re.S)
_INTERRUPTED = "[Request interrupted by user"
_DENIED = "The user doesn't want to proceed"
_NOT_HUMAN = ("<system-reminder>", "<command-name>", "<command-message>", "<local-command-", "<bash-", "Caveat: The messages")
_CHARACTERS = 10
"""On average a token of what a model says has fewer characters than this."""
_OF_RUN = "those that the snapshot of the run states"
_CLIENTS_OWN = re.compile(r"a([a-z_]+)-[0-9a-f]+")
_ENDED = re.compile(r"teammate_terminated:?\s*(\S+)|(\S+) (?:has )?(?:shut down|terminated)")


def client_role(agent: str) -> str | None:
    """What an agent is for that the client made for itself, such as `compact` of a conversation; None for any other."""
    match = _CLIENTS_OWN.fullmatch(agent)
    return match[1].replace("_", " ") if match else None


class Transcript:
    """One session in the making."""

    def __init__(self, links: SpawnLinks, draft: Draft, runs: dict[str, list[WorkflowAgent]]) -> None:
        """`runs` are the agents of workflows, by the call that made them."""
        self.conversations, self.links, self.draft, self._runs = links.conversations, links, draft, runs
        self.left_out: Counter[str] = Counter()
        self._place: dict[str, int] = {}
        self._sent: dict[str, list[tuple[str, str, str]]] = {}
        """Addressee (or nobody, for everybody) to the sender, words and event of each message that a transcript will show."""
        self._returned: set[str] = set()
        self._heard_notices: set[tuple[str, str]] = set()
        self._playing: set[str] = set()
        self._parent: dict[str, str] = {}
        self._results: dict[str, str | None] = {}
        self._messaged = self._addressees()
        self._shown = self._letters() if self._messaged else {}

    def _addressees(self) -> set[str]:
        """Agents that are written to after their spawn: their conversation may go on after a return."""
        out = set()
        for conversation in (self.conversations.main, *self.conversations.others.values()):
            for item in conversation.items:
                for block, _ in item.blocks if isinstance(item, Reply) else ():
                    if block.get("name") == _SENDS:
                        out.add(self._named(_addressee(as_dict(block.get("input")))))
        return out

    def _letters(self) -> dict[str, Counter[str]]:
        """Agent to the messages that stand in its transcript from here on, by their words: there it read them."""
        out: dict[str, Counter[str]] = {}
        for conversation in (self.conversations.main, *self.conversations.others.values()):
            shown = out[conversation.agent] = Counter()
            for item in conversation.items:
                if isinstance(item, dict) and item.get("type") == "user" and (text := user_text(item)):
                    shown.update([_words(words) for _, words in _LETTERS.findall(text)] or [_words(text)])
        return out

    def _named(self, name: str) -> str:
        return "main" if name == "team-lead" else self.links.name.get(name, name)

    def _spawn_run(self, call: str, at: float | None, lane: Lane) -> None:
        """The agents of a run, spawned by the call; what the journal says they returned is theirs to return."""
        for name, about, result in self._runs.pop(call, ()):
            own = self.conversations.others.get(name)
            role = string(about.get("label")) or (own.role if own else None)
            what = {"workflow": call, "phase": about.get("phaseTitle"), "state": about.get("state")}
            called = string(about.get("label"))
            lane.spawn(name, role=role or "workflow-agent", name=called, at=at, id=f"{call}:{name}", extra=what)
            self.draft.report.linked("workflow run")
            self._parent[name], self._results[name] = lane.agent, result
            if own is None:  # its transcript is gone: its total stands in the snapshot
                self.draft.report.lacks[NO_TRANSCRIPT] += 1
                if total := count(about.get("tokens")):
                    told = StatedUsage(Usage(total), _OF_RUN, None, None, string(about.get("model")))
                    self._totals(name, told, None, lane.agent)

    # -- playing ---------------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Everything: the main conversation, then whatever it never heard of."""
        self.advance(self.conversations.main)
        main = self.draft.lane("main", leads=True)
        for run in list(self._runs):
            self._spawn_run(run, None, main)
        for child, result in self._results.items():
            if child not in self._returned and result is not None:
                self._return(child, result, None, main, f"{child}:return")
        for conversation in self.conversations.others.values():
            if conversation.items and conversation.agent not in self.links.linked() and conversation.agent not in self._parent:
                if client_role(conversation.agent) is None:
                    self.draft.report.loose(f"{conversation.agent}: no spawn names it")
                self.draft.unspawned.add(conversation.agent)
            self.advance(conversation)
        lost = sum(child not in self.conversations.others for child in self.links.child.values())
        if lost:
            self.draft.report.lacks[NO_TRANSCRIPT] += lost

    def advance(self, conversation: Conversation, until: float | None = None) -> None:
        """Play a conversation on, up to a moment."""
        if conversation.agent in self._playing:
            return
        self._playing.add(conversation.agent)
        is_main = conversation is self.conversations.main
        role = conversation.role or client_role(conversation.agent)
        lane = self.draft.lane(conversation.agent, role=role, name=conversation.name, leads=is_main)
        place = self._place.get(conversation.agent, 0)
        while place < len(conversation.items):
            item = conversation.items[place]
            begin = item.begin if isinstance(item, Reply) else seconds(item.get("timestamp"))
            if until is not None and begin is not None and begin > until + 0.5:
                break
            place += 1
            self._place[conversation.agent] = place
            if isinstance(item, Reply):
                self._reply(item, lane)
            else:
                self._other(item, lane, is_first=place == 1)
        self._playing.discard(conversation.agent)

    def _other(self, record: dict[str, Any], lane: Lane, *, is_first: bool) -> None:
        kind = record.get("type")
        if kind == "user":
            self._user(record, lane, is_first=is_first)
        elif kind == "attachment":
            self._attachment(record, lane)
        else:
            self._system(record, lane)

    # -- the model's answers ---------------------------------------------------------------------------------------------

    def _reply(self, reply: Reply, lane: Lane) -> None:
        texts = [b["text"] for b, _ in reply.blocks if b.get("type") == "text" and isinstance(b.get("text"), str)]
        thoughts = [b["thinking"] for b, _ in reply.blocks if isinstance(b.get("thinking"), str)]
        calls = [(b, at) for b, at in reply.blocks if b.get("type") in ("tool_use", "server_tool_use")]
        text = "\n".join(t for t in texts if t)
        if reply.model == SYNTHETIC or reply.record.get("isApiErrorMessage"):
            what = {"is_synthetic": True, "api_error_status": reply.record.get("apiErrorStatus")}
            lane.prompt(text, by="system", at=reply.begin, id=reply.id, source="system", ok=False, error=text[:200], extra=what)
            return
        if reply.usage is None:
            self.draft.report.lacks["the tokens of a model call"] += 1
        length = len(text) + sum(map(len, thoughts)) + sum(len(compact(b.get("input"))) for b, _ in calls)
        is_placeholder = reply.is_begun and reply.usage is not None and reply.usage.output < length / _CHARACTERS
        if is_placeholder:
            self.draft.report.lacks[PLACEHOLDER] += 1
        spawns = any(b.get("name") in SPAWNS for b, _ in calls)
        lane.step(
            end=reply.end,
            text=text,
            thinking="\n".join(t for t in thoughts if t),
            usage=reply.usage,
            model=reply.model,
            id=reply.id,
            only_calls=len(calls) == 1 and not spawns,  # several at once fan out from the step, which is an event then
            extra={STOP_REASON: reply.stop_reason, "tokens_out_are": "a placeholder" if is_placeholder else None},
        )
        for block, at in calls:
            self._call(block, at, lane)

    def _call(self, block: dict[str, Any], at: float | None, lane: Lane) -> None:
        name, call = string(block.get("name")) or "unnamed", string(block.get("id")) or ""
        args = as_dict(block.get("input"))
        if name in SPAWNS:
            self._spawn(name, call, args, at, lane)
        elif name == _SENDS:
            self._send(call, args, at, lane)
        else:
            lane.call(name, compact(args), call=call, at=at, id=call or None)
            self._spawn_run(call, at, lane)
            if name == "TaskStop" and (task := self._named(str(args.get("task_id")))) in self.links.linked():
                lane.despawn(task, at=at, id=f"{call}:stop")

    def _spawn(self, tool: str, call: str, args: dict[str, Any], at: float | None, lane: Lane) -> None:
        answer, child = self.links.answers.get(call), self.links.child.get(call)
        role = string(args.get("subagent_type")) or "general-purpose"
        failed = answer is not None and answer.is_error and child is None
        if child is None and answer is not None and not failed:
            # It ran, and neither an id nor a transcript of it is there: the agent is known by its call alone.
            child = f"agent-of-{call}"
            self.links.child[call] = child
            self.draft.report.loose(f"{call}: its agent has no id and no transcript")
        what = {name: args.get(name) for name in ("run_in_background", "description", "isolation")}
        more = {name: value for name, value in args.items() if name != "prompt" and name not in what}
        what |= {"tool_name": tool, "arguments": more or None}
        lane.spawn(
            child,
            role=role,
            name=string(args.get("name")) or string(args.get("description")),
            text=string(args.get("prompt")) or "",
            at=at,
            id=call or None,
            ok=False if failed else None,
            error=answer.text[:500] if failed and answer else None,
            extra=what,
        )
        if child is not None:
            self._parent[child] = lane.agent

    def _send(self, call: str, args: dict[str, Any], at: float | None, lane: Lane) -> None:
        to = self._named(_addressee(args)) or None
        text = text_of(args.get("message") or args.get("content"))
        known = to is not None and (to in self.conversations.others or to in self.links.linked())
        event = lane.send(to, text, at=at, id=call or None, heard=False, extra={"summary": args.get("summary")})
        if known and not self._shown.get(str(to), Counter())[_words(text)]:
            self.draft.lane(str(to)).gets(event)
        else:
            whose = str(to) if known or to == "main" else ""
            self._sent.setdefault(whose, []).append((lane.agent, _words(text), event))

    def _hears_sent(self, sender: str | None, text: str, at: float | None, lane: Lane) -> bool:
        """Whether words in a transcript are a message that was sent: then it is read here, and not when it was sent."""
        if not self._messaged:
            return False
        words, shown = _words(text), self._shown.get(lane.agent, Counter())
        shown[words] = max(shown[words] - 1, 0)
        for whose in (lane.agent, ""):
            for sent in self._sent.get(whose, ()):
                if sent[1] == words and sender in (None, sent[0]):
                    if whose:  # what goes to everybody is read by each
                        self._sent[whose].remove(sent)
                    times = [t for t in (at, self.draft.rows[sent[2]]["at"]) if t is not None]
                    lane.hears(sent[2], "message", max(times, default=None))
                    return True
        return False

    # -- what is heard ---------------------------------------------------------------------------------------------------

    def _user(self, record: dict[str, Any], lane: Lane, *, is_first: bool) -> None:
        content = as_dict(record.get("message")).get("content")
        results = [b for b in as_list(content) if isinstance(b, dict) and b.get("type") == "tool_result"]
        for block in results:
            self._result(ResultBlock(block, record), lane)
        text = user_text(record)
        images = sum(isinstance(b, dict) and b.get("type") == "image" for b in as_list(content))
        if images:
            self.draft.report.lacks["the pixels of an image"] += images
        if text.strip():
            self._words(text, record, lane, is_first=is_first)

    def _words(self, text: str, record: dict[str, Any], lane: Lane, *, is_first: bool) -> None:
        at, uuid = seconds(record.get("timestamp")), string(record.get("uuid"))
        if "<task-notification>" in text:
            for k, notice in enumerate(notices(text)):
                self.notice(notice, at, lane, uuid and f"{uuid}:{k}")
        elif letters := _LETTERS.findall(text):
            for k, (who, words) in enumerate(letters):
                self._letter(who, words, at, lane, uuid and f"{uuid}:{k}", is_first=is_first)
        elif lane.agent != "main":
            self._from_parent(text, at, lane, uuid, is_first=is_first)
        elif record.get("isCompactSummary"):
            lane.prompt(text, by="memory", at=at, id=uuid, source="memory", extra={"is_summary": True})
        elif record.get("isMeta") or record.get("isVisibleInTranscriptOnly") or text.lstrip().startswith(_NOT_HUMAN):
            lane.prompt(text, by="system", at=at, id=uuid, source="system")
        else:
            what = {"interrupted": True} if text.startswith(_INTERRUPTED) else None
            lane.prompt(text, at=at, id=uuid, extra=what)

    def _from_parent(self, text: str, at: float | None, lane: Lane, uuid: str | None, *, is_first: bool) -> None:
        """Words to a sub-agent: its task, which the spawn carries, or a message that was sent to it."""
        if is_first:
            if lane.agent not in self._parent:
                lane.prompt(text, by="unknown", at=at, id=uuid, source="peer")
            return
        if self._hears_sent(None, text, at, lane):
            return
        if text.lstrip().startswith(_NOT_HUMAN):
            lane.prompt(text, by="system", at=at, id=uuid, source="system")
        elif text.startswith(_INTERRUPTED):
            lane.prompt(text, at=at, id=uuid, extra={"interrupted": True})
        else:
            lane.prompt(text, by=self._parent.get(lane.agent, "unknown"), at=at, id=uuid, source="peer")

    def _letter(self, who: str, words: str, at: float | None, lane: Lane, event: str | None, *, is_first: bool) -> None:
        if who == "system":
            ended = _ENDED.search(words)
            name = self._named((ended[1] or ended[2]) if ended else "")
            if name in self.links.linked():
                lane.despawn(name, at=at, id=event, extra={"notice": words[:200]})
            else:
                lane.prompt(words, by="system", at=at, id=event, source="system")
            return
        sender = self._named(who)
        if is_first and lane.agent in self._parent:
            return
        if sender in self.conversations.others:
            self.advance(self.conversations.others[sender], at)
        if not self._hears_sent(sender, words, at, lane):
            lane.prompt(words, by=sender, at=at, id=event, source="peer")

    def notice(self, notice: Notice, at: float | None, lane: Lane, event: str | None) -> None:
        """A background task ended: a sub-agent's return, or the late result of a command."""
        if (notice.task, notice.text) in self._heard_notices:
            return
        self._heard_notices.add((notice.task, notice.text))
        child = notice.task if notice.task in self.links.linked() else self.links.child.get(notice.tool_use or "")
        if child is None and notice.task in self.conversations.others:
            child = notice.task
        if child is not None:
            stated = StatedUsage.of_notice(notice.usage)
            self._return(child, notice.text, at, lane, event, stated, ok=notice.status in ("", "completed"))
        else:
            what = {"task": notice.task, "status": notice.status}
            lane.result(notice.tool_use, notice.text, at=at, id=event, ok=notice.status in ("", "completed"), extra=what)

    def _return(
        self,
        child: str,
        text: str,
        at: float | None,
        lane: Lane,
        event: str | None,
        stated: StatedUsage | None = None,
        *,
        ok: bool = True,
        **fields: Any,
    ) -> None:
        """A sub-agent's result comes back. Where its transcript is not here, its totals are those that its parent states."""
        conversation = self.conversations.others.get(child)
        if conversation is not None:
            self.advance(conversation, at if child in self._messaged else None)
        elif stated is not None and child not in self._returned:
            self._totals(child, stated, at, lane.agent)
        self._returned.add(child)
        if not ok:
            fields["error"] = text[:500] or None
        self.draft.lane(child).returns(lane.agent, text, at=at, id=event, ok=ok, **fields)

    def _totals(self, child: str, stated: StatedUsage, at: float | None, by: str) -> None:
        """All that is known of an agent's work, as one step of it, marked as stated by another."""
        begin = None if at is None or stated.seconds is None else at - stated.seconds
        extra = {STATED: by, "tool_calls": stated.tools, "tokens_are": stated.tokens_are}
        lane = self.draft.lane(child)
        lane.step(at=begin, end=at if begin is not None else None, usage=stated.usage, model=stated.model, extra=extra)

    def _result(self, answer: ResultBlock, lane: Lane) -> None:
        call, at = str(answer.block.get("tool_use_id")), answer.at
        event, child = f"{call}:result", self.links.child.get(call)
        if self._denied(answer, lane, call):
            return
        if child is not None:
            if answer.structured.get("status") in ("async_launched", "teammate_spawned") or answer.structured.get("isAsync"):
                if call in self.draft.rows:
                    self.draft.set(call, ok=True)
                lane.reached(at)
                return
            stats = {k: answer.structured.get(k) for k in ("totalDurationMs", "totalTokens", "totalToolUseCount")}
            stated = StatedUsage.of_result(answer)
            self._return(child, _report_of(answer), at, lane, event, stated, ok=not answer.is_error, extra=stats)
            return
        sent = self.draft.rows.get(call)
        if sent is not None and sent["type"] in ("message", "spawn"):
            self.draft.set(call, ok=not answer.is_error, error=answer.text[:500] if answer.is_error else None)
            lane.reached(at)
            return
        self._polled(answer, at, lane, event)
        lane.result(call, answer.text, at=at, id=event, ok=not answer.is_error if "is_error" in answer.block else None)

    def _polled(self, answer: ResultBlock, at: float | None, lane: Lane, event: str) -> None:
        """A background agent's result can be fetched instead of announced."""
        task = as_dict(answer.structured.get("task"))
        name = string(task.get("task_id"))
        if name in self.links.linked() and name not in self._returned and task.get("status") == "completed":
            words = text_of(task.get("output"))
            self._heard_notices.add((str(name), words))
            self._return(str(name), words, at, lane, f"{event}:return")

    def _denied(self, answer: ResultBlock, lane: Lane, call: str) -> bool:
        """The human said no: an intervention, and an event of safety."""
        kind = string(answer.record.get("toolDenialKind"))
        if kind is None and not (answer.is_error and answer.text.startswith(_DENIED)):
            return False
        what = {"denied": kind or "user-rejected"}
        denial = lane.prompt(answer.text, at=answer.at, id=f"{call}:denied", extra=what)
        safety = self.draft.event("safety_event", lane.agent, id=f"{call}:safety", at=answer.at, ok=True, extra=what)
        self.draft.edge(denial, safety, "causal")
        if call in self.draft.rows:
            self.draft.edge(call, denial, "causal")
            self.draft.set(call, ok=False, error=answer.text[:500] or "denied")
        return True

    # -- what the client says -------------------------------------------------------------------------------------------

    def _attachment(self, record: dict[str, Any], lane: Lane) -> None:
        """What the client attached to the conversation."""
        inside, at, uuid = as_dict(record.get("attachment")), seconds(record.get("timestamp")), string(record.get("uuid"))
        kind = str(inside.get("type"))
        if kind == "queued_command":
            words = text_of(inside.get("prompt"))
            if "<task-notification>" in words:
                for k, notice in enumerate(notices(words)):
                    self.notice(notice, at, lane, uuid and f"{uuid}:{k}")
            elif words:
                lane.prompt(words, at=at, id=uuid, extra={"queued": True})
        elif kind in _REMARKS:
            source = _REMARKS[kind]
            content = inside.get("content") if inside.get("content") is not None else inside.get("snippet")
            text = text_of(as_dict(content).get("file", content) if isinstance(content, dict) else content)
            what = {"attachment": kind, "path": inside.get("displayPath")}
            lane.prompt(text, by=source, at=at, id=uuid, source=source, trusted=source == "system", extra=what)
        elif kind in ("hook_blocking_error", "hook_stopped_continuation"):
            self._safety(lane, at, uuid, text_of(inside.get("blockingError") or inside.get("message")), attachment=kind)
        else:
            self.left_out[f"attachment {kind}"] += 1

    def _system(self, record: dict[str, Any], lane: Lane) -> None:
        """What the client says about the session itself."""
        kind, at, uuid = str(record.get("subtype")), seconds(record.get("timestamp")), string(record.get("uuid"))
        text = text_of(record.get("content"))
        if kind == "model_refusal_fallback":
            names = ("originalModel", "fallbackModel", "apiRefusalCategory")
            self._safety(lane, at, uuid, text, **{name: record.get(name) for name in names})
        elif kind == "stop_hook_summary" and record.get("preventedContinuation"):
            self._safety(lane, at, uuid, text_of(record.get("stopReason")), hook="stop")
        elif kind == "api_error":
            what = {"retry": record.get("retryAttempt"), "wait_ms": record.get("retryInMs")}
            error = compact(record.get("error"))[:500]
            lane.prompt(text or error, by="system", at=at, id=uuid, source="system", ok=False, error=error, extra=what)
        elif kind in ("compact_boundary", "microcompact_boundary"):
            about = as_dict(record.get("compactMetadata"))
            spent = number(about.get("durationMs"))
            what = {"compaction": about.get("trigger"), "tokens_before": about.get("preTokens")}
            lane.prompt(text, by="memory", at=at, id=uuid, source="memory", dur=spent / 1e3 if spent else None, extra=what)
        else:
            self.left_out[f"system {kind}"] += 1

    def _safety(self, lane: Lane, at: float | None, uuid: str | None, text: str, **what: Any) -> None:
        """Something was stopped: by a hook, or by a model that refused."""
        event = self.draft.event("safety_event", lane.agent, id=uuid, at=at, text=text, role=lane.role, ok=True, extra=what)
        self.draft.edge(lane.last, event, "causal")
        lane.hears(event)


def _addressee(args: dict[str, Any]) -> str:
    return str(args.get("to") or args.get("recipient") or args.get("target_agent_id") or "")


def _words(text: str) -> str:
    return " ".join(text.split())


def _report_of(answer: ResultBlock) -> str:
    """What the sub-agent said, without the line about itself that the client adds."""
    content = answer.structured.get("content")
    text = text_of(content) if content else answer.text
    return re.sub(r"\n?agentId: .*\Z", "", text, flags=re.S)
