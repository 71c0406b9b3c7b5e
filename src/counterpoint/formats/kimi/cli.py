"""Kimi CLI (Python): `wire.jsonl`, `context.jsonl` and the `subagents` folder of a session, as one story per agent.

The context holds the messages as the model sees them, and is used for what the wire does not have. It is rewritten when it is
compacted, so a message in its middle that the wire does not have is left alone; what follows the last one that it has is new.

Always true: the records of a sub-agent are taken from one place only, though two may hold them (`SubagentEvent` in the
parent's wire and the sub-agent's own wire), and nothing that the wire has is added from the context: nothing is counted
twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.values import as_dict, as_list, compact, seconds, string, text_of
from counterpoint.formats.kimi.story import MAIN, Answer, Incoming, ModelStep, StepCall, Stop, Story, Verdict, usage_of, words_of

_PARTS = frozenset({"ContentPart", "TextPart", "ThinkPart", "ImageURLPart", "AudioURLPart", "VideoURLPart"})
_BOOKKEEPING = frozenset(
    {
        "CompactionBegin",
        "CompactionEnd",
        "HookTriggered",
        "QuestionRequest",
        "MCPLoadingBegin",
        "MCPLoadingEnd",
        "PlanDisplay",
        "BtwBegin",
        "BtwEnd",
        "ToolCallRequest",
    }
)
_DEPTH = 8


class _CliWire:
    """Reads one wire; the sub-agents that it tells of become stories of their own."""

    def __init__(self, session: Session, report: Report, main: Story) -> None:
        self.session, self.report = session, report
        self.stories = {main.agent: main}
        self.main = main
        self._requests: dict[str, tuple[Story, dict[str, Any]]] = {}

    def read(self, file: File) -> None:
        for number, record in self.session.records(file):
            if record.get("type") == "metadata":
                continue
            message = record.get("message")
            if not isinstance(message, dict) or not isinstance(message.get("type"), str):
                self.session.report.broke(file.name, number, "a record without a message")
                continue
            self._event(self.main, message, seconds(record.get("timestamp")), _DEPTH)

    def _event(self, story: Story, message: dict[str, Any], at: float | None, depth: int) -> None:
        kind, payload = str(message.get("type")), as_dict(message.get("payload"))
        if kind == "SubagentEvent":
            self._of_child(story, payload, at, depth)
        elif kind in _PARTS:
            self._part(story, payload, at)
        elif kind in _HANDLERS:
            _HANDLERS[kind](self, story, payload, at)
        elif kind not in _BOOKKEEPING:
            self.report.unknown[kind] += 1

    def _of_child(self, story: Story, payload: dict[str, Any], at: float | None, depth: int) -> None:
        call = string(payload.get("parent_tool_call_id")) or string(payload.get("task_tool_call_id"))
        agent = string(payload.get("agent_id")) or (f"task:{call}" if call else None)
        if agent is None or depth == 0 or not isinstance(payload.get("event"), dict):
            self.report.unknown["SubagentEvent without its agent"] += 1
            return
        child = self.stories.get(agent)
        if child is None:
            child = self.stories[agent] = Story(agent, parent=story.agent, made_by=call)
        child.role = child.role or string(payload.get("subagent_type"))
        self._event(child, payload["event"], at, depth - 1)

    def _turn(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        text = words_of(payload.get("user_input"))
        story.turn += 1
        story.step = None
        if story.prompt is None:
            story.prompt = text
        story.items.append(Incoming(f"turn{story.turn}", at, text))

    def _step(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        n = payload.get("n")
        story.begin(f"turn{story.turn}.step{n if isinstance(n, int) else len(story.items)}", at)

    def _part(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        step = story.current(at)
        step.end = at
        kind = payload.get("type")
        if kind == "think":
            step.thinking += text_of(payload.get("think"))
        elif kind == "text":
            step.text += text_of(payload.get("text"))
        else:
            step.extra.setdefault("parts", []).append(str(kind))

    def _retry(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        step = story.current(at)
        step.extra["retries"] = step.extra.get("retries", 0) + 1
        step.extra["retry_error"] = payload.get("error_type") or payload.get("status_code")

    def _status(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        usage = usage_of(payload.get("token_usage"))
        if usage is not None:
            step = story.current(at)
            step.spend(usage, string(payload.get("message_id")))
            step.end = at

    def _call(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        function = as_dict(payload.get("function"))
        name = string(function.get("name")) or "unnamed"
        args = function.get("arguments")
        step = story.current(at)
        id = string(payload.get("id")) or f"{step.id}.call{len(step.calls)}"
        story.last_call = StepCall(id, name, "" if args is None else compact(args), at)
        step.calls.append(story.last_call)
        step.end = at

    def _call_part(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        if story.last_call is None:
            self.report.unknown["ToolCallPart without its call"] += 1
        else:
            story.last_call.args += string(payload.get("arguments_part")) or ""

    def _result(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        value = payload.get("return_value")
        got = as_dict(value)
        text = words_of(got.get("output")) or words_of(got.get("message")) if got else words_of(value)
        failed = got.get("is_error")
        ok = None if not isinstance(failed, bool) else not failed
        story.items.append(Answer(string(payload.get("tool_call_id")) or "", at, text, ok))

    def _asked(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        if id := string(payload.get("id")):
            self._requests[id] = self.stories.get(str(payload.get("agent_id")), story), payload

    def _approved(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        id = string(payload.get("request_id")) or string(payload.get("id")) or ""
        story, asked = self._requests.get(id, (story, {}))
        response = string(payload.get("response")) or "unknown"
        extra = {"approval": response, "action": asked.get("action"), "asked": asked.get("description")}
        text = string(payload.get("feedback")) or response
        is_let = response.startswith("approve")
        call = string(asked.get("tool_call_id"))
        story.items.append(Verdict(f"approval:{id}", at, call, "user", is_let, text, extra))

    def _hook(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        if payload.get("action") != "block":
            return
        call = story.last_call
        named = call.id if call and call.name == payload.get("target") else None
        extra = {"hook": payload.get("event"), "target": payload.get("target")}
        text = string(payload.get("reason")) or "blocked"
        story.items.append(Verdict(f"hook:{len(story.items)}", at, named, "hook", False, text, extra))

    def _notified(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        task = string(payload.get("source_id")) if payload.get("source_kind") == "background_task" else None
        text = "\n".join(filter(None, (string(payload.get("title")), string(payload.get("body")))))
        id = string(payload.get("id")) or f"notification{len(story.items)}"
        status = (string(payload.get("type")) or "").rpartition(".")[2]
        story.items.append(Incoming(id, at, text, "task" if task else "system", task, status))

    def _interrupted(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        story.current(at).extra["interrupted"] = True

    def _ended(self, story: Story, payload: dict[str, Any], at: float | None) -> None:
        story.items.append(Stop(at, "completed"))


_HANDLERS: dict[str, Callable[[_CliWire, Story, dict[str, Any], float | None], None]] = {
    "TurnBegin": _CliWire._turn,
    "SteerInput": _CliWire._turn,
    "TurnEnd": _CliWire._ended,
    "StepBegin": _CliWire._step,
    "StepInterrupted": _CliWire._interrupted,
    "StepRetry": _CliWire._retry,
    "StatusUpdate": _CliWire._status,
    "ToolCall": _CliWire._call,
    "ToolCallPart": _CliWire._call_part,
    "ToolResult": _CliWire._result,
    "ApprovalRequest": _CliWire._asked,
    "ApprovalResponse": _CliWire._approved,
    "ApprovalRequestResolved": _CliWire._approved,
    "HookResolved": _CliWire._hook,
    "Notification": _CliWire._notified,
}
WIRE_TYPES = frozenset({"SubagentEvent", *_PARTS, *_BOOKKEEPING, *_HANDLERS})
"""Every kind of message we know."""


def read_cli(session: Session, files: dict[str, File], report: Report) -> dict[str, Story]:
    """The stories of a session, from its files by their place inside its folder."""
    wire = _CliWire(session, report, Story(MAIN))
    if "wire.jsonl" in files:
        wire.read(files["wire.jsonl"])
    stories = wire.stories
    for agent in sorted({place.split("/")[1] for place in files if place.startswith("subagents/")}):
        folder = {place.split("/", 2)[2]: file for place, file in files.items() if place.startswith(f"subagents/{agent}/")}
        own = _CliWire(session, report, Story(agent))
        if "wire.jsonl" in folder:
            own.read(folder["wire.jsonl"])
        for name, story in own.stories.items():
            stories[name] = _fuller(stories.get(name), story)
        if "meta.json" in folder:
            _meta(stories[agent], as_dict(session.document(folder["meta.json"])))
        if "prompt.txt" in folder:
            stories[agent].prompt = folder["prompt.txt"].data().decode("utf-8", "replace")
    for place, file in files.items():
        parts = place.split("/")
        agent = MAIN if len(parts) == 1 else parts[1]
        if parts[-1] == "context.jsonl" and agent in stories:
            _complete(session, file, stories[agent])
    return stories


def _fuller(stated: Story | None, own: Story) -> Story:
    """Of a sub-agent's story as its parent told it and as it wrote it, the longer one, with what both say about its making."""
    if stated is None:
        return own
    stated.items = own.items if len(own.items) >= len(stated.items) else stated.items
    return stated


def _meta(story: Story, meta: dict[str, Any]) -> None:
    story.role = story.role or string(meta.get("subagent_type"))
    story.created = seconds(meta.get("created_at"))
    launch = as_dict(meta.get("launch_spec"))
    story.model = string(launch.get("effective_model")) or string(launch.get("model_override"))
    for step in story.steps():
        step.model = step.model or story.model
    story.extra.update({"status": meta.get("status"), "description": meta.get("description")})


# -- context.jsonl -------------------------------------------------------------------------------------------------------------


_Calls = dict[str, tuple[ModelStep, StepCall]]


def _complete(session: Session, file: File, story: Story) -> None:
    """Add to a story what only the context has: answers and calls that the wire misses, and messages after its end."""
    messages = [(n, m) for n, m in session.records(file) if not str(m.get("role")).startswith("_")]
    texts: dict[str, ModelStep | None] = {_without_blanks(item.text): None for item in story.items if isinstance(item, Incoming)}
    texts |= {_without_blanks(step.text + step.thinking): step for step in story.steps()}
    by_call = {call.id: (step, call) for step in story.steps() for call in step.calls}
    is_answered = {item.call for item in story.items if isinstance(item, Answer)}
    known = max((k for k, (_, m) in enumerate(messages) if _is_known(m, texts, by_call)), default=-1)
    for k, (number, message) in enumerate(messages):
        role = message.get("role")
        if role == "assistant":
            _add_assistant(story, number, message, by_call, texts, is_new=k > known)
        elif role == "tool":
            _add_answer(story, message, by_call, is_answered)
        elif role == "user" and k > known and (text := words_of(message.get("content"))):
            by: Literal["user", "system"] = "system" if text.lstrip().startswith("<system") else "user"
            story.items.append(Incoming(f"context{number}", None, text, by))


def _without_blanks(text: str) -> str:
    return "".join(text.split())


def _is_known(message: dict[str, Any], texts: dict[str, ModelStep | None], by_call: _Calls) -> bool:
    calls = [as_dict(call).get("id") for call in as_list(message.get("tool_calls"))] + [message.get("tool_call_id")]
    if any(isinstance(id, str) and id in by_call for id in calls):
        return True
    text, thinking = _words(message)
    return bool(text or thinking) and _without_blanks(text + thinking) in texts


def _words(message: dict[str, Any]) -> tuple[str, str]:
    content = message.get("content")
    if not isinstance(content, list):
        return text_of(content), ""
    thinking = "".join(text_of(as_dict(p).get("think")) for p in content if as_dict(p).get("type") == "think")
    return "".join(text_of(p) for p in content if as_dict(p).get("type") in ("text", None)), thinking


def _add_assistant(
    story: Story, number: int, message: dict[str, Any], by_call: _Calls, texts: dict[str, ModelStep | None], *, is_new: bool
) -> None:
    calls = [_context_call(as_dict(raw), f"context{number}.call{k}") for k, raw in enumerate(as_list(message.get("tool_calls")))]
    step = next((by_call[call.id][0] for call in calls if call.id in by_call), None)
    if step is None and (words := _without_blanks("".join(_words(message)))):
        same = texts.get(words)
        step = same if same is not None and not same.calls else None
    if step is None and is_new:
        step = story.begin(f"context{number}", None)
        step.text, step.thinking = _words(message)
    if step is None:
        return
    for call in calls:
        if call.id not in by_call:
            step.calls.append(call)
            by_call[call.id] = step, call
        elif len(call.args) > len(by_call[call.id][1].args):
            by_call[call.id][1].args = call.args


def _context_call(raw: dict[str, Any], fallback: str) -> StepCall:
    function = as_dict(raw.get("function"))
    args = function.get("arguments")
    return StepCall(
        string(raw.get("id")) or fallback, string(function.get("name")) or "unnamed", "" if args is None else compact(args)
    )


def _add_answer(story: Story, message: dict[str, Any], by_call: _Calls, is_answered: set[str]) -> None:
    id = string(message.get("tool_call_id"))
    if id is None or id not in by_call or id in is_answered:
        return
    is_answered.add(id)
    text = words_of(message.get("content"))
    ok = False if text.startswith("<system>ERROR") else None
    step = by_call[id][0]
    place = next(k for k, item in enumerate(story.items) if item is step) + 1
    while place < len(story.items) and isinstance(story.items[place], (Answer, Verdict)):
        place += 1
    story.items.insert(place, Answer(id, None, text, ok))
