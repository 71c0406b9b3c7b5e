"""The events of one session of Copilot CLI on their way to a trace: a dialogue for each agent.

An event of a sub-agent names the call that made it (`parentToolCallId`), or its agent (`agentId`), which `subagent.started` or
another event joins to the call. A call that made an agent ends with the later of its result and the agent's own end.

Always true: a call is put down once, whether a message, its start or the start of an agent states it first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from counterpoint.formats.copilot_cli.totals import RunTotals, usage_of
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play
from counterpoint.formats.importing.values import as_dict, as_list, number, seconds, string, text_of
from counterpoint.trace import Trace

_TITLE = re.compile(r"^(?:name|summary):[ \t]*([^|>\s].*?)[ \t]*$", re.M)
_BOOKKEEPING = """
    assistant.fusion_phase_activity assistant.fusion_phase_completed assistant.fusion_phase_failed
    assistant.fusion_phase_started assistant.idle assistant.intent assistant.message_delta assistant.message_start
    assistant.reasoning_delta assistant.server_tool_progress assistant.streaming_delta assistant.tool_call_delta
    assistant.turn_end assistant.turn_start auto_mode_switch.completed auto_mode_switch.requested capabilities.changed
    command.completed command.execute command.queued commands.changed elicitation.completed elicitation.requested
    exit_plan_mode.completed exit_plan_mode.requested external_tool.completed external_tool.requested factory.run_settled
    factory.run_started factory.run_updated hook.end hook.progress hook.start mcp.headers_refresh_completed
    mcp.headers_refresh_required mcp.oauth_completed mcp.oauth_required mcp.prompts.list_changed mcp.resources.list_changed
    mcp.tools.list_changed mcp_app.tool_call_complete model.call_failure model.call_finished pending_messages.modified
    permission.completed permission.requested sampling.completed sampling.requested session.auto_mode_resolved
    session.auto_tier_recommendation session.auto_tier_switch_failed session.autopilot_objective_changed
    session.background_tasks_changed session.binary_asset session.canvas.closed session.canvas.opened session.canvas.recorded
    session.canvas.registry_changed session.canvas.removed session.canvas.unavailable session.compaction_start
    session.completion_receipt session.context_changed session.context_cleared session.custom_agents_updated
    session.custom_notification session.extensions.attachments_pushed session.extensions_loaded session.fusion_completed
    session.fusion_resolved session.fusion_route_failed session.fusion_route_started session.handoff session.idle
    session.import_legacy session.info session.managed_settings_enforced session.managed_settings_resolved
    session.mcp_server_needs_reconnect session.mcp_server_removed session.mcp_server_status_changed session.mcp_servers_loaded
    session.mode_changed session.mode_notice_delivered session.permissions_changed session.plan_changed
    session.remote_steerable_changed session.resume session.schedule_cancelled session.schedule_created session.schedule_rearmed
    session.session_limits_changed session.skills_loaded session.snapshot_rewind session.task_complete session.todos_changed
    session.tools_updated session.truncation session.usage_checkpoint session.usage_info session.warning
    session.workspace_file_changed session_limits_exhausted.completed session_limits_exhausted.requested skill.invoked
    subagent.configured subagent.deselected subagent.selected tool.execution_partial_result tool.execution_progress
    tool.user_requested tool_search.activated ui.ephemeral_query user_input.completed user_input.requested
"""
_NOTES = frozenset(_BOOKKEEPING.split())
_LATE = "answers to a call that made an agent, before the agent was done: its end counts"
_RULE = "subagent.started names the call"


class Happening(NamedTuple):
    """One event."""

    kind: str
    name: str
    at: float | None
    data: dict[str, Any]
    record: dict[str, Any]
    number: int
    """Which of the kept events it is."""


class SessionEvents:
    """The events of one session."""

    def __init__(self, name: str) -> None:
        self.name, self.has_start = name, False
        self._events: list[Happening] = []
        self._meta: dict[str, Any] = {}
        self._left_out: Counter[str] = Counter()
        self._mended: Counter[str] = Counter()
        self._dialogues: dict[str, Dialogue] = {MAIN: Dialogue()}
        self._owner: dict[str, str] = {}
        """Agent id of the envelope to the call that made that agent."""
        self._ends: dict[str, int] = {}
        """Call that made an agent to the number of the last event that says how it ended."""
        self._model: str | None = None
        self._thoughts: dict[str, str] = {}
        self._steps: dict[str, Entry] = {}
        """API call to its step."""
        self._calls: dict[str, str] = {}
        """Call to the agent that made it."""
        self._totals = RunTotals()

    def take(self, kind: str | None, name: str, data: dict[str, Any], record: dict[str, Any]) -> bool:
        """Keep an event; False where its kind is not known."""
        if kind in _NOTES:
            self._left_out[str(kind)] += 1
            self._count_units(data)
            return True
        if kind not in _HANDLERS or (kind == "result" and "exitCode" not in record):
            return False
        call, agent = string(data.get("toolCallId")), string(record.get("agentId"))
        if call and kind == "subagent.started":
            self._ends.setdefault(call, -1)
            if agent and agent not in self._ends:
                self._owner.setdefault(agent, call)
        elif call and (
            kind in ("subagent.completed", "subagent.failed") or (kind == "tool.execution_complete" and call in self._ends)
        ):
            self._ends[call] = len(self._events)
        at = seconds(record.get("timestamp"))
        self._events.append(Happening(str(kind), name, at, data, record, len(self._events)))
        return True

    def traces(self, session: Session, about: str = "") -> Iterator[Trace]:
        """The trace; `about` is the text of `workspace.yaml`."""
        for event in self._events:
            _HANDLERS[event.kind](self, event)
        draft = session.draft(self.name, self.name, system="copilot-cli")
        if title := _TITLE.search(about):
            self._meta.setdefault("title", title[1].strip("\"'"))
        draft.meta.update(self._meta)
        draft.report.mended.update(self._mended)
        self._totals.settle(draft, self._dialogues, self._owner)
        play(draft, list(self._dialogues.values()))
        self._totals.forget_inputs(draft)
        draft.lane(MAIN).stops()
        if left_out := {kind: n for kind, n in sorted(self._left_out.items()) if n}:
            draft.meta["left_out"] = left_out
        yield from draft.traces()

    def _agent(self, e: Happening) -> str:
        """The agent that an event is of: the call that made it, or main."""
        parent, agent = string(e.data.get("parentToolCallId")), string(e.record.get("agentId"))
        if parent:
            if agent:
                self._owner.setdefault(agent, parent)
            return parent
        return MAIN if agent is None or agent == MAIN else self._owner.get(agent, agent)

    def _dialogue(self, agent: str) -> Dialogue:
        return self._dialogues.setdefault(agent, Dialogue(agent))

    def _put(self, e: Happening, role: str, text: str, *, by: str | None = None, extra: dict[str, Any] | None = None) -> None:
        self._dialogue(self._agent(e)).entries.append(Entry(role, text, e.name, e.at, by=by, extra=extra or {}))

    def _last_step(self, agent: str) -> Entry | None:
        return next((e for e in reversed(self._dialogue(agent).entries) if e.role == "assistant"), None)

    def _count_units(self, data: dict[str, Any]) -> None:
        for key, name in (("totalNanoAiu", "nano_ai_units"), ("totalPremiumRequests", "premium_requests")):
            value = number(data.get(key))
            if value is not None and value > self._meta.get(name, 0):
                self._meta[name] = value

    def _started(self, e: Happening) -> None:
        self._model = string(e.data.get("selectedModel")) or self._model
        cwd = string(as_dict(e.data.get("context")).get("cwd"))
        if cwd:
            self._meta.setdefault("project", cwd.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1])
        if version := string(e.data.get("copilotVersion")):
            self._meta["version"] = version

    def _chose(self, e: Happening) -> None:
        self._model = string(e.data.get("newModel")) or self._model

    def _titled(self, e: Happening) -> None:
        if title := string(e.data.get("title")):
            self._meta["title"] = title

    def _asked(self, e: Happening) -> None:
        is_person = string(e.data.get("source")) in (None, "user", "human") and e.data.get("isAutopilotContinuation") is not True
        self._left_out["attachments"] += len(as_list(e.data.get("attachments")))
        self._put(e, "user", text_of(e.data.get("content")), by=None if is_person and self._agent(e) == MAIN else "client")

    def _prompted(self, e: Happening) -> None:
        self._put(e, "system", text_of(e.data.get("content")))

    def _notified(self, e: Happening) -> None:
        self._put(e, "user", text_of(e.data.get("content")), by="client")

    def _thought(self, e: Happening) -> None:
        agent = self._agent(e)
        self._thoughts[agent] = _joined(self._thoughts.get(agent, ""), text_of(e.data.get("content")))

    def _answered(self, e: Happening) -> None:
        agent = self._agent(e)
        thinking = text_of(e.data.get("reasoningText") or "") or self._thoughts.get(agent, "")
        self._thoughts.pop(agent, None)
        call = string(e.data.get("apiCallId"))
        step = self._steps.get(f"{agent}:{call}") if call else None
        if step is None:
            step = Entry("assistant", id=e.name)
            self._dialogue(agent).entries.append(step)
            self._steps.update({f"{agent}:{call}": step} if call else {})
        step.at, step.text = e.at, _joined(step.text, text_of(e.data.get("content")))
        step.thinking = _joined(step.thinking, thinking)
        step.model = string(e.data.get("model")) or step.model or (self._model if agent == MAIN else None)
        for request in map(as_dict, as_list(e.data.get("toolRequests"))):
            made = string(request.get("toolCallId"))
            if made is None or made not in self._calls:
                step.calls.append(Call(made, string(request.get("name")) or "unnamed", request.get("arguments")))
                self._calls.update({made: agent} if made else {})
        self._totals.wrote(agent, step, e.data)

    def _used(self, e: Happening) -> None:
        agent, call = self._agent(e), string(e.data.get("apiCallId"))
        step = self._steps.get(f"{agent}:{call}") if call else None
        self._totals.called(agent, step or self._last_step(agent), e.data)

    def _began(self, e: Happening) -> None:
        call = string(e.data.get("toolCallId"))
        if call is not None and call not in self._calls:
            tool = string(e.data.get("toolName")) or "unnamed"
            self._call(self._agent(e), Call(call, tool, e.data.get("arguments")), e)

    def _call(self, agent: str, call: Call, e: Happening) -> None:
        """Put a call that no message states on the agent's last step."""
        entries = self._dialogue(agent).entries
        step = next((entry for entry in reversed(entries) if entry.role != "tool"), None)
        if step is None or step.role != "assistant":
            step = Entry("assistant", "", e.name, e.at, model=self._model if agent == MAIN else None)
            entries.append(step)
        step.calls.append(call)
        self._calls[str(call.id)] = agent

    def _ended(self, e: Happening) -> None:
        call = string(e.data.get("toolCallId"))
        agent = self._calls.get(call or "") or self._agent(e)
        if call and call not in self._calls:  # how it began is not in the file
            self._call(agent, Call(call, string(e.data.get("toolName")) or "unnamed", None), e)
        if model := string(e.data.get("model")):
            self._learn(agent, model)
        if call in self._ends and self._ends[call] != e.number:
            self._mended[_LATE] += 1
            return
        result, error = e.data.get("result"), e.data.get("error")
        shown = as_dict(result)
        text = text_of(shown.get("content") or shown.get("detailedContent") or ("" if shown else result))
        said = string(as_dict(error).get("message")) or string(error) or ""
        ok = e.data.get("success") if isinstance(e.data.get("success"), bool) else False if said else None
        answer = Answer(text or said, call, string(e.data.get("toolName")), ok, None, e.at)
        if ok is False:
            answer.error = said or text[:500] or "error"
            code = string(as_dict(error).get("code"))
            answer.extra = {"error_code": code, "is_rejected": True if code in ("rejected", "denied") else None}
        self._dialogue(agent).entries.append(Entry("tool", at=e.at, answers=[answer]))

    def _learn(self, agent: str, model: str) -> None:
        """The model of an agent's last step, which older versions say beside the result alone."""
        if agent == MAIN:
            self._model = model
        last = self._last_step(agent)
        if last is not None and last.model is None:
            last.model = model

    def _spawned(self, e: Happening) -> None:
        call = string(e.data.get("toolCallId"))
        if call is None:
            return
        told = self._dialogue(call)
        told.call, told.rule = call, _RULE
        told.role = string(e.data.get("agentName")) or string(e.data.get("agentType"))
        told.name = string(e.data.get("agentDisplayName"))
        if call not in self._calls:
            parent = string(e.data.get("parentId")) or MAIN
            boss = self._owner.get(parent, parent)
            self._call(boss if boss in self._dialogues else MAIN, Call(call, "task", None), e)

    def _returned(self, e: Happening) -> None:
        call = string(e.data.get("toolCallId"))
        if call is None:
            return
        child, model = self._dialogue(call), string(e.data.get("model"))
        steps = [entry for entry in child.entries if entry.role == "assistant"]
        for step in steps:
            step.model = step.model or model
        if not steps:
            stated = {"tokens_stated": e.data.get("totalTokens"), "tool_calls": e.data.get("totalToolCalls"), "stated_by": call}
            child.entries.append(Entry("assistant", "", f"{call}:stated", e.at, model=model, extra=stated))
        if self._ends.get(call) == e.number and call in self._calls:
            error = string(e.data.get("error"))
            failed = e.kind == "subagent.failed" or e.data.get("cancelled") is True
            answer = Answer(error or "", call, None, not failed, (error or "cancelled") if failed else None, e.at)
            self._dialogue(self._calls[call]).entries.append(Entry("tool", at=e.at, answers=[answer]))

    def _stopped(self, e: Happening) -> None:
        reason = string(e.data.get("reason")) or "abort"
        self._put(e, "user", reason, by="client" if reason.startswith("autopilot") else None, extra={"interrupted": True})

    def _failed(self, e: Happening) -> None:
        self._fail(e, string(e.data.get("message")) or string(e.data.get("errorType")) or "error")

    def _fail(self, e: Happening, said: str) -> None:
        """An error of the agent's step, or of one that gave no answer."""
        agent = self._agent(e)
        step = next((entry for entry in reversed(self._dialogue(agent).entries) if entry.role != "tool"), None)
        if step is None or step.role != "assistant":
            step = Entry("assistant", "", e.name, e.at, model=self._model if agent == MAIN else None)
            self._dialogue(agent).entries.append(step)
        step.error = said

    def _compacted(self, e: Happening) -> None:
        used, agent = as_dict(e.data.get("compactionTokensUsed")), self._agent(e)
        text, extra = text_of(e.data.get("summaryContent")), {"is_compaction": True}
        if usage := usage_of(used):
            model = string(used.get("model")) or (self._model if agent == MAIN else None)
            entry = Entry("assistant", text, e.name, e.at, usage=usage, model=model, extra=extra)
            entry.error = (string(e.data.get("error")) or "error") if e.data.get("success") is False else None
            self._dialogue(agent).entries.append(entry)
        elif text:
            self._put(e, "user", text, by="client", extra=extra)

    def _closed(self, e: Happening) -> None:
        self._count_units(e.data)
        self._totals.closed(e.data, e.at)
        changes = as_dict(e.data.get("codeChanges"))
        if any(changes.values()):
            self._meta["code_changes"] = changes
        if e.data.get("shutdownType") == "error":
            self._fail(e, string(e.data.get("errorReason")) or "error")

    def _printed(self, e: Happening) -> None:
        """The end of what `--output-format json` prints."""
        if not self.has_start:
            self.name = string(e.record.get("sessionId")) or self.name
        self._count_units({"totalPremiumRequests": as_dict(e.record.get("usage")).get("premiumRequests")})
        self._meta["exit_code"] = e.record.get("exitCode")


def _joined(*texts: str) -> str:
    return "\n".join(filter(None, texts))


_HANDLERS: dict[str | None, Callable[[SessionEvents, Happening], None]] = {
    "session.start": SessionEvents._started,
    "session.model_change": SessionEvents._chose,
    "session.title_changed": SessionEvents._titled,
    "session.compaction_complete": SessionEvents._compacted,
    "session.error": SessionEvents._failed,
    "session.shutdown": SessionEvents._closed,
    "system.message": SessionEvents._prompted,
    "system.notification": SessionEvents._notified,
    "user.message": SessionEvents._asked,
    "assistant.message": SessionEvents._answered,
    "assistant.reasoning": SessionEvents._thought,
    "assistant.usage": SessionEvents._used,
    "tool.execution_start": SessionEvents._began,
    "tool.execution_complete": SessionEvents._ended,
    "subagent.started": SessionEvents._spawned,
    "subagent.completed": SessionEvents._returned,
    "subagent.failed": SessionEvents._returned,
    "abort": SessionEvents._stopped,
    "result": SessionEvents._printed,
}
