"""smolagents: the steps of an agent's memory, in a list, in a `RunResult`, or one per line.

| record | becomes |
|---|---|
| `system_prompt` | `message` of `system` |
| `task` | `human_intervention` |
| action or planning step | `orchestrator_decision` with its tokens, a `tool_call` for each of its calls |
| `observations`, `error` | `tool_result` of the step's last call: calls made at once are answered together |
| `action_output` of the final answer, `output` | the last result, `meta["answer"]` |

What is lost: the steps of managed agents, which their own memory holds; pictures; the prompt that every step repeats.

Always true: a file of which less than half are steps is refused; a step's time stands on its calls, since the source does not
tell the model's part from the tool's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Call, message_of
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, seconds, string, text_of
from counterpoint.trace import Trace

_STEP = re.compile(rb'"step_number"\s*:\s*\d')
_OWN = (b'"model_output_message"', b'"model_input_messages"', b'"action_output"')
_MODEL = re.compile(r"\bmodel='([^']+)'")
_TOGETHER = "results of calls made at once: told together, on the last of them"
_PICTURES = ("task_images", "observations_images")


def _sniff(head: bytes) -> bool:
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    return begins and _STEP.search(head) is not None and sum(name in head for name in _OWN) >= 2


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        unknown: Counter[str] = Counter()
        entries: list[Entry] = []
        steps, about = _steps(session, file)
        reader = _Reader()
        for k, step in enumerate(steps):
            entry = reader.entry(f"s{k}", step)
            if entry is None:
                unknown["record with " + ", ".join(sorted(map(str, step))[:3])] += 1
            else:
                entries.append(entry)
        require_half(file.name, len(steps), unknown)
        session.report.unknown.update(unknown)
        name = f"smolagents-{run_of(*steps)}"
        draft = session.draft(name, name, system="smolagents")
        draft.report.mended.update({_TOGETHER: reader.together} if reader.together else {})
        draft.report.lacks.update({"pictures": reader.pictures} if reader.pictures else {})
        play(draft, [Dialogue(role="agent", entries=entries)])
        if entries:
            draft.lane(MAIN).stops()
        answer = about.get("output", reader.answer)
        if answer is not None:
            draft.meta["answer"] = text_of(answer)
        yield from draft.traces()


def _steps(session: Session, file: File) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The steps in a file, and what is said of the whole run."""
    records = [record for _, record in session.entries(file)]
    if len(records) == 1 and isinstance(records[0].get("steps"), list):
        return [as_dict(step) for step in records[0]["steps"]], records[0]
    return records, {}


class _Reader:
    """Steps as entries of a dialogue."""

    def __init__(self) -> None:
        self.together = self.pictures = 0
        self.answer: Any = None

    def entry(self, name: str, step: dict[str, Any]) -> Entry | None:
        self.pictures += sum(len(as_list(step.get(key))) for key in _PICTURES)
        if "task" in step and "step_number" not in step:
            return Entry("user", text_of(step["task"]), name)
        if "system_prompt" in step and "step_number" not in step:
            return Entry("system", text_of(step["system_prompt"]), name)
        if "step_number" in step or "plan" in step:
            return self._action(name, step)
        if step.keys() <= {"output", "final_answer"} and step:
            self.answer = step.get("output", step.get("final_answer"))
            return Entry("system", id=name, text=text_of(self.answer), by="harness", extra={"is_final_answer": True})
        return None

    def _action(self, name: str, step: dict[str, Any]) -> Entry:
        said = as_dict(step.get("model_output_message"))
        timing = as_dict(step.get("timing")) or step
        start, end = seconds(timing.get("start_time")), seconds(timing.get("end_time"))
        message = message_of({"role": "assistant", "content": said.get("content")})
        text = text_of(step.get("plan")) or text_of(step.get("model_output")) or (message.text if message else "")
        entry = Entry("assistant", text, name, start, calls=_calls(step, said), usage=_usage(step, said), model=_model(said))
        entry.extra = {"planning": True} if "plan" in step else {}
        failure = step.get("error")
        error = text_of(as_dict(failure).get("message") or failure)[:500] if failure else None
        if step.get("is_final_answer") is True:
            self.answer = step.get("action_output") if step.get("action_output") is not None else step.get("observations")
        if not entry.calls:
            entry.error = error
            return entry
        seen = text_of(step.get("observations")) or text_of(step.get("action_output")) or error or ""
        for call in entry.calls[:-1]:
            entry.answers.append(Answer("", call.id, call.tool, at=end, extra={"told_with": entry.calls[-1].id}))
        last = entry.calls[-1]
        entry.answers.append(Answer(seen, last.id, last.tool, ok=error is None, error=error, at=end))
        self.together += len(entry.calls) > 1
        return entry


def _calls(step: dict[str, Any], said: dict[str, Any]) -> list[Call]:
    """The calls of a step as they were made; those of the model's message where the step keeps none."""
    calls = []
    for raw in map(as_dict, as_list(step.get("tool_calls")) or as_list(said.get("tool_calls"))):
        named = as_dict(raw.get("function")) or raw
        if tool := string(named.get("name")):
            calls.append(Call(string(raw.get("id")), tool, named.get("arguments")))
    ids = Counter(call.id for call in calls)
    return [call if call.id and ids[call.id] == 1 else Call(f"{step.get('step_number')}.{k}", call.tool, call.arguments)
            for k, call in enumerate(calls)]  # fmt: skip


def _usage(step: dict[str, Any], said: dict[str, Any]) -> Usage | None:
    got = as_dict(step.get("token_usage")) or as_dict(said.get("token_usage"))
    into, out = count(got.get("input_tokens")), count(got.get("output_tokens"))
    return None if into is None and out is None else Usage.whole(into or 0, out or 0)


def _model(said: dict[str, Any]) -> str | None:
    """The model that answered, from the raw answer that smolagents keeps as an object or as it prints."""
    raw = said.get("raw")
    if isinstance(raw, dict):
        return string(raw.get("model"))
    found = _MODEL.search(raw) if isinstance(raw, str) else None
    return found[1] if found else None


smolagents = Importer(
    suffixes=(".smolagents.json",),
    sniff=_sniff,
    signs=("step_number", "model_output_message", "tool_calls", "observations", "action_output", "token_usage"),
    system="smolagents",
    read_session=_read,
    becomes={
        "system_prompt": ("message",),
        "task": ("human_intervention",),
        "action step, planning step": ("orchestrator_decision", "tool_call"),
        "observations, error": ("tool_result",),
        "final answer": ("message", "meta"),
    },
    versions="unstated",
    exact="tokens, calls, times",
    lost="steps of managed agents, pictures, repeated prompts",
)
"""Runs of smolagents, by their memory."""
