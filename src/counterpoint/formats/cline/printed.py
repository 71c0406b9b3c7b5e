"""What Cline's CLI prints with `--json`: events of an agent, one to a line.

Always true: one step for each iteration, with the tokens that its `usage` states; what the run spent beyond its steps (its
sub-agents' share, which is not printed) stands on the last one as `tokens_of: the run`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.cline.requests import is_inside, usage_of
from counterpoint.formats.importer import Session, run_of
from counterpoint.formats.importing.blocks import blocks_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.run_totals import RUN, without
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, number, seconds, string, text_of
from counterpoint.trace import Trace

_NAMES = {
    "tokensIn": "inputTokens",
    "tokensOut": "outputTokens",
    "cacheReads": "cacheReadTokens",
    "cacheWrites": "cacheWriteTokens",
}
_LINES = frozenset({"agent_event", "hook_event", "run_result", "run_start", "run_aborted", "team_event"})
_EVENTS = frozenset(
    {"iteration_start", "iteration_end", "content_start", "content_update", "content_end", "usage", "done", "notice"}
)


def is_printed(head: bytes) -> bool:
    """Whether a file is what the CLI prints."""
    keys = first_keys(head)
    kind = keys.get("type", b"").strip()
    if kind == b'"hook_event"':
        return keys.keys() >= {"ts", "hookEventName", "agentId"} and b'"agent_event"' in head
    return kind == b'"agent_event"' and keys.keys() >= {"ts", "event"} and b'"iteration' in head


def read_printed(session: Session, file: File) -> Iterator[Trace]:
    """The trace of a run."""
    run, unknown = _Run(), Counter[str]()
    records = 0
    for number_, record in session.records(file):
        records += 1
        run.take(record, f"r{number_}", unknown)
    require_half(file.name, records, unknown)
    session.report.unknown.update(unknown)
    name = run.name or f"cline-{run_of(*run.rows)}"
    draft = session.draft(name, name, system="cline")
    draft.report.note_odd_counts(sum(odd_counts(row, _NAMES.values()) for row in run.rows))
    run.settle()
    play(draft, [Dialogue(entries=run.entries)])
    draft.report.lacks["the prompt"] += 1
    if (spent := number(run.result.get("durationMs"))) is not None:
        draft.costs["wall_clock_s"] = spent / 1000
    draft.lane(MAIN).stops()
    yield from draft.traces()


class _Run:
    """One run on its way to a trace."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.entries: list[Entry] = []
        self.rows: list[dict[str, Any]] = []
        """What each step spent, as it is stated."""
        self.result: dict[str, Any] = {}
        self._spent: dict[str, dict[str, Any]] = {}

    def take(self, record: dict[str, Any], name: str, unknown: Counter[str]) -> None:
        """Take a line."""
        kind, at, event = string(record.get("type")), seconds(record.get("ts")), as_dict(record.get("event"))
        self.name = self.name or string(record.get("taskId"))
        if kind == "run_result":
            self.result = record
        elif kind == "error" or event.get("type") == "error":
            said = event.get("error") or event.get("message") or record.get("message")
            self.entries.append(Entry("error", text_of(as_dict(said).get("message") or said), name, at))
        elif kind not in _LINES:
            unknown[f"line of type {kind}"] += 1
        elif kind == "agent_event" and string(event.get("type")) not in _EVENTS:
            unknown[f"event {event.get('type')}"] += 1
        elif kind == "agent_event":
            self._event(event, name, at, unknown)

    def _event(self, event: dict[str, Any], name: str, at: float | None, unknown: Counter[str]) -> None:
        kind, part, call = event["type"], event.get("contentType"), string(event.get("toolCallId"))
        if kind == "iteration_start" or not any(e.role == "assistant" for e in self.entries):
            self.entries.append(Entry("assistant", id=name, at=at))
        step = next(e for e in reversed(self.entries) if e.role == "assistant")
        if kind == "usage":
            self.rows.append(event)
            self._spent[step.id or ""] = event
            step.at = at
        elif kind == "content_end" and part == "text":
            step.text = "\n".join(filter(None, (step.text, text_of(event.get("text")))))
        elif kind == "content_end" and part == "reasoning":
            step.thinking = "\n".join(filter(None, (step.thinking, text_of(event.get("reasoning") or event.get("text")))))
        elif kind == "content_start" and part == "tool":
            step.calls.append(Call(call, string(event.get("toolName")) or "unnamed", event.get("input")))
        elif kind == "content_end" and part == "tool":
            error = event.get("error")
            answer = {"type": "tool_result", "tool_use_id": call, "content": event.get("output") or error or ""}
            answers = blocks_of([answer | ({"is_error": True} if error else {})], unknown).answers
            self.entries.append(Entry("tool", at=at, answers=answers))

    def settle(self) -> None:
        """Put tokens and the model on the steps."""
        whole = as_dict(self.result.get("aggregateUsage")) or as_dict(self.result.get("usage"))
        inside = is_inside([*self.rows, whole], ("inputTokens", "cacheReadTokens", "cacheWriteTokens"))
        steps = [entry for entry in self.entries if entry.role == "assistant"]
        model = string(as_dict(self.result.get("model")).get("id"))
        for step in steps:
            step.usage, step.model = _usage(self._spent.get(step.id or "", {}), inside=inside), model
        rest = without(_usage(whole, inside=inside) or Usage(), (step.usage for step in steps if step.usage))
        if rest and steps:
            steps[-1].usage = steps[-1].usage.plus(rest) if steps[-1].usage else rest
            steps[-1].extra = {**steps[-1].extra, **RUN}


def _usage(got: dict[str, Any], *, inside: bool) -> Usage | None:
    return usage_of({ours: got.get(theirs) for ours, theirs in _NAMES.items()}, inside=inside)
