"""Kimi Code (TypeScript): `agents/*/wire.jsonl` and `state.json` of a session, as one story per agent.

Always true: a prompt that is written twice (`turn.prompt` and `context.append_message`) is heard once; tokens are those of
`step.end`, and a `usage.record` counts only where no step has them; records that a fork copied are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, seconds, string, text_of
from counterpoint.formats.kimi.story import (
    MAIN,
    Answer,
    Incoming,
    ModelStep,
    SideCall,
    StepCall,
    Stop,
    Story,
    Verdict,
    usage_of,
    words_of,
)

_BOOKKEEPING = (
    "metadata",
    "forked",
    "full_compaction.",
    "micro_compaction.",
    "goal.",
    "interaction.request",
    "llm.tools_snapshot",
    "mcp.",
    "permission.",
    "plan.",
    "plan_mode.",
    "profile.",
    "subagent.",
    "swarm_mode.",
    "task.",
    "tools.",
    "tower_mode.",
    "usage.rate_limit",
    "context.clear",
    "context.update_token_count",
)
"""Kinds, and beginnings of kinds, that say nothing about who did what."""
_ENVELOPES = ("<notification", "<task-notification", "<system-reminder", "<cron-fire")


class _CodeWire:
    """Reads the wire of one agent."""

    def __init__(self, session: Session, report: Report, story: Story, copied: set[str]) -> None:
        self.session, self.report, self.story = session, report, story
        self._copied = copied
        """Ids of steps and calls of the agents read before: a forked agent's wire may begin with them."""
        self._steps: dict[str, ModelStep] = {}
        self.own: set[str] = set()
        self._is_copy = False
        self._prompts: list[str] = []
        self._judged: set[str] = set()
        self._records: list[tuple[float | None, Usage, str | None, str | None]] = []

    def read(self, file: File) -> None:
        for number, record in self.session.records(file):
            kind, at = record.get("type"), seconds(record.get("time"))
            if not isinstance(kind, str):
                self.session.report.broke(file.name, number, "a record without a type")
            elif kind == "metadata":
                self.story.created = seconds(record.get("created_at"))
            elif kind in _HANDLERS:
                _HANDLERS[kind](self, record, at)
            elif not kind.startswith(_BOOKKEEPING):
                self.report.unknown[kind] += 1
        self._settle()

    # -- what comes in ---------------------------------------------------------------------------------------------------

    def _config(self, record: dict[str, Any], at: float | None) -> None:
        self.story.role = self.story.role or string(record.get("profileName"))
        self.story.model = string(record.get("modelAlias")) or self.story.model

    def _request(self, record: dict[str, Any], at: float | None) -> None:
        self.story.model = string(record.get("model")) or self.story.model

    def _prompt(self, record: dict[str, Any], at: float | None) -> None:
        self.story.turn += 1
        self.story.step = None
        text = words_of(record.get("input"))
        self._prompts.append(text)
        self._hear(text, as_dict(record.get("origin")), at)

    def _hear(self, text: str, origin: dict[str, Any], at: float | None) -> None:
        story = self.story
        if story.prompt is None:
            story.prompt = text
        kind = string(origin.get("kind")) or "user"
        task = string(origin.get("taskId")) if kind in ("background_task", "task") else None
        is_human = kind == "user" and not text.lstrip().startswith(_ENVELOPES)
        extra = {} if is_human else {"origin": kind}
        heard = Incoming(
            f"heard{len(story.items)}", at, text, "user" if is_human else "task" if task else "system", task, extra=extra
        )
        heard.status = string(origin.get("status"))
        story.items.append(heard)

    def _message(self, record: dict[str, Any], at: float | None) -> None:
        message = as_dict(record.get("message"))
        role, text = message.get("role"), words_of(message.get("content"))
        if role == "user":
            if text in self._prompts:
                self._prompts.remove(text)
            else:
                self._hear(text, as_dict(message.get("origin")) or as_dict(record.get("origin")), at)
        elif role == "assistant":
            self._assistant(message, text, at)
        elif role == "tool" and (id := string(message.get("toolCallId"))):
            self._answer(id, text, message.get("isError"), at)

    def _assistant(self, message: dict[str, Any], text: str, at: float | None) -> None:
        """A whole message of the model; where its step was recorded too, that one counts."""
        calls = [
            _call(as_dict(raw), f"message{len(self.story.items)}.call{k}")
            for k, raw in enumerate(as_list(message.get("toolCalls")))
        ]
        if any(call.id in self.own for call in calls) or (self.story.step and self.story.step.text == text):
            return
        step = self.story.begin(string(message.get("id")) or f"message{len(self.story.items)}", at)
        step.text, step.calls, step.end = text, calls, at
        self.story.step = None

    def _compacted(self, record: dict[str, Any], at: float | None) -> None:
        extra = {
            "origin": "compaction_summary",
            "tokens_before": record.get("tokensBefore"),
            "tokens_after": record.get("tokensAfter"),
        }
        text = text_of(record.get("summary"))
        self.story.items.append(Incoming(f"heard{len(self.story.items)}", at, text, "system", extra=extra))

    def _undone(self, record: dict[str, Any], at: float | None) -> None:
        self.report.lacks["which events an undo took back: they are kept"] += 1

    def _cancelled(self, record: dict[str, Any], at: float | None) -> None:
        extra = {"origin": "turn.cancel"}
        self.story.items.append(Incoming(f"heard{len(self.story.items)}", at, "turn cancelled", "user", extra=extra))

    def _ended(self, record: dict[str, Any], at: float | None) -> None:
        reason = string(record.get("reason")) or "completed"
        if reason == "blocked":
            text = text_of(record.get("error")) or "turn blocked"
            self.story.items.append(Verdict(f"blocked{len(self.story.items)}", at, None, "guardrail", False, text))
        self.story.items.append(Stop(at, reason))

    def _judge(self, record: dict[str, Any], at: float | None) -> None:
        """`permission.record_approval_result` and `interaction.resolved` tell of the same answer."""
        result = as_dict(record.get("result")) or as_dict(record.get("response"))
        id = string(record.get("toolCallId"))
        decision = string(result.get("decision")) or string(record.get("decision"))
        key = id or string(record.get("id")) or f"approval{len(self.story.items)}"
        if decision is None or key in self._judged:
            return
        self._judged.add(key)
        text = string(result.get("feedback")) or decision
        extra = {"approval": decision, "action": record.get("action")}
        self.story.items.append(Verdict(f"approval:{key}", at, id, "user", decision.startswith("approve"), text, extra))

    # -- the loop --------------------------------------------------------------------------------------------------------

    def _loop(self, record: dict[str, Any], at: float | None) -> None:
        event = as_dict(record.get("event"))
        kind = string(event.get("type")) or "loop event without a type"
        at = seconds(event.get("time")) or at
        if kind == "step.begin":
            self._begin(event, at)
        elif kind == "content.part":
            self._part(self._step(event, at), as_dict(event.get("part")), at)
        elif kind == "tool.call":
            call = _call(event, f"call{len(self.story.items)}", at)
            step = self._step(event, at)
            if step is not None:
                step.calls.append(call)
                step.end = at
                self.own.add(call.id)
        elif kind == "tool.result":
            result = event.get("result")
            got = as_dict(result)
            text = words_of(got.get("output")) if got else words_of(result)
            self._answer(string(event.get("toolCallId")) or "", text, got.get("isError"), at)
        elif kind == "step.end":
            self._end(event, at)
        else:
            self.report.unknown[kind] += 1

    def _begin(self, event: dict[str, Any], at: float | None) -> None:
        id = string(event.get("uuid")) or f"turn{self.story.turn}.step{len(self.story.items)}"
        self._is_copy = id in self._copied
        if self._is_copy:
            # What stands before a copied step was copied with it.
            self.report.mended["steps that a fork copied"] += 1
            self.story.items.clear()
            self._prompts.clear()
            self.story.prompt = None
            return
        self.own.add(id)
        self._steps[id] = self.story.begin(id, at)

    def _step(self, event: dict[str, Any], at: float | None) -> ModelStep | None:
        id = string(event.get("stepUuid"))
        if id is not None and id in self._copied:
            return None
        step = self._steps.get(id) if id is not None else None
        return step or self.story.current(at)

    def _part(self, step: ModelStep | None, part: dict[str, Any], at: float | None) -> None:
        if step is None:
            return
        step.end = at
        if part.get("type") == "think":
            step.thinking += text_of(part.get("think"))
        elif part.get("type") == "text":
            step.text += text_of(part.get("text"))
        else:
            step.extra.setdefault("parts", []).append(str(part.get("type")))

    def _answer(self, id: str, text: str, failed: Any, at: float | None) -> None:
        is_known = any(isinstance(item, Answer) and item.call == id for item in reversed(self.story.items[-64:]))
        if id not in self._copied and not is_known:
            ok = not failed if isinstance(failed, bool) else None
            self.story.items.append(Answer(id, at, text, ok))

    def _end(self, event: dict[str, Any], at: float | None) -> None:
        id = string(event.get("uuid")) or string(event.get("stepUuid"))
        step = self._steps.get(id) if id is not None else self.story.step
        if step is None:
            return
        step.end = at
        step.usage = usage_of(event.get("usage")) or step.usage
        step.extra.update({k: v for k, v in event.items() if k == "finishReason" or k.startswith("llm")})

    def _side_call(self, record: dict[str, Any], at: float | None) -> None:
        usage, model = usage_of(record.get("usage")), string(record.get("model"))
        if self._is_copy:
            return
        if usage is not None:
            self._records.append((at, usage, model, string(record.get("usageScope"))))
        step = self.story.step
        if step is not None and step.model is None:
            step.model = model

    def _settle(self) -> None:
        """Each `usage.record` is a step's own tokens again, or those of a step without any, or of no step at all."""
        steps = self.story.steps()
        bare = [step for step in steps if step.usage is None and (step.text or step.thinking or step.calls)]
        usages = [step.usage for step in steps if step.usage is not None]
        unmatched = []
        for k, record in enumerate(self._records):
            if record[1] in usages:
                usages.remove(record[1])
            else:
                unmatched.append((k, *record))
        for k, at, usage, model, scope in unmatched:
            if scope != "session" and (summed := _summed(usages, usage)):
                del usages[:summed]
                continue
            if scope != "session" and (step := _before(bare, at)):
                step.usage, step.model = usage, step.model or model
                bare.remove(step)
            else:
                self.story.items.append(SideCall(f"usage{k}", at, usage, model, scope))
        if unmatched:
            self.story.items.sort(key=_placed(self.story))


def _summed(usages: list[Usage], usage: Usage) -> int:
    """How many of the first usages add up to one; 0 where they do not."""
    whole = Usage()
    for k, part in enumerate(usages):
        whole = whole.plus(part)
        if whole == usage:
            return k + 1
    return 0


def _placed(story: Story) -> Callable[[Any], tuple[int, int]]:
    """Tokens of no step go where their time puts them; all else stays where it was."""
    place = {id(item): k for k, item in enumerate(story.items)}
    times = [(item.at, k) for k, item in enumerate(story.items) if not isinstance(item, SideCall) and item.at is not None]

    def key(item: Any) -> tuple[int, int]:
        if not isinstance(item, SideCall) or item.at is None:
            return place[id(item)], 0
        return max((k for at, k in times if at <= item.at), default=-1), 1

    return key


def _before(steps: list[ModelStep], at: float | None) -> ModelStep | None:
    """The last of the steps that began by a moment; the first where there is no telling."""
    if at is None:
        return steps[0] if steps else None
    return next((step for step in reversed(steps) if step.at is None or step.at <= at), None)


def _call(raw: dict[str, Any], fallback: str, at: float | None = None) -> StepCall:
    function = as_dict(raw.get("function")) or raw
    args = function.get("args", function.get("arguments"))
    id = string(raw.get("toolCallId")) or string(raw.get("id")) or fallback
    return StepCall(id, string(function.get("name")) or "unnamed", "" if args is None else compact(args), at)


_HANDLERS: dict[str, Callable[[_CodeWire, dict[str, Any], float | None], None]] = {
    "config.update": _CodeWire._config,
    "llm.request": _CodeWire._request,
    "turn.prompt": _CodeWire._prompt,
    "turn.steer": _CodeWire._prompt,
    "turn.ended": _CodeWire._ended,
    "turn.cancel": _CodeWire._cancelled,
    "context.append_message": _CodeWire._message,
    "context.append_loop_event": _CodeWire._loop,
    "context.apply_compaction": _CodeWire._compacted,
    "context.undo": _CodeWire._undone,
    "interaction.resolved": _CodeWire._judge,
    "permission.record_approval_result": _CodeWire._judge,
    "usage.record": _CodeWire._side_call,
}


def is_code_type(kind: str) -> bool:
    """Whether a record of this kind, with a time, is one of Kimi Code's."""
    return kind in _HANDLERS or (kind != "metadata" and "." in kind and kind.startswith(_BOOKKEEPING))


def read_code(session: Session, files: dict[str, File], report: Report) -> tuple[dict[str, Story], dict[str, Any]]:
    """The stories of a session and its state, from its files by their place inside its folder."""
    state = as_dict(session.document(files["state.json"])) if "state.json" in files else {}
    wires = {place.split("/")[1] if "/" in place else MAIN: file for place, file in files.items() if place.endswith("wire.jsonl")}
    stated = {name: as_dict(about) for name, about in as_dict(state.get("agents")).items()}
    copied: set[str] = set()
    stories: dict[str, Story] = {}
    for agent in sorted({*wires, *stated}, key=lambda name: (name != MAIN, name)):
        about = stated.get(agent, {})
        labels = as_dict(about.get("labels"))
        story = stories[agent] = Story(agent, role=string(labels.get("profileName")))
        story.parent = string(about.get("parentAgentId")) or string(labels.get("parentAgentId"))
        item = string(about.get("swarmItem")) or string(labels.get("swarmItem"))
        story.extra = {"item": item, "forked_from": about.get("forkedFrom"), "type": about.get("type")}
        if agent in wires:
            wire = _CodeWire(session, report, story, copied if story.extra["forked_from"] else set())
            wire.read(wires[agent])
            copied |= wire.own
    return stories, state
