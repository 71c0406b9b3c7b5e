"""CrewAI: the events of a crew, one per line or in a list, as a listener on its event bus writes them down.

| record | becomes |
|---|---|
| `task_started` | `human_intervention`: the task, which the first agent that works on it hears |
| `llm_call_completed`, `llm_call_failed` | `orchestrator_decision` of the agent of that role |
| `tool_usage_started`, `_finished`, `_error` | `tool_call`, `tool_result` |
| `crew_kickoff_completed` | the sum of tokens (`costs`), `meta["answer"]` |

What is lost: tokens of single calls where the events do not say them, plans, memories, and what a listener did not serialise.

Always true: an agent is its role; all other events of the bus are counted in `meta["left_out"]`; a file of which less than half
is of the bus is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.dialogue import require_half
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, seconds, string, text_of, writable
from counterpoint.trace import Trace

_BUS = re.compile(r"(?:agent|crew|task|llm|tool|flow|method|memory|knowledge|reasoning|a2a|mcp|lite_agent)_\w+")
_OWN = re.compile(rb'"type"\s*:\s*"(?:crew_kickoff|task|llm_call|tool_usage|agent_execution)_(?:started|completed|finished)"')


def _sniff(head: bytes) -> bool:
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    if not begins or _OWN.search(head) is None:
        return False
    is_named = b'"event_id"' in head and (b'"crew_name"' in head or b'"agent_role"' in head)
    keys = first_keys(head).keys()  # an event of the bus, or a document of events; another's record may quote both
    return bool(keys & {"event_id", "source_fingerprint", "events"}) and (b'"source_fingerprint"' in head or is_named)


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        entries = [record for _, record in session.entries(file)]
        lists = [as_list(record["events"]) if isinstance(record.get("events"), list) else [record] for record in entries]
        records = [as_dict(record) for some in lists for record in some]
        name = f"crewai-{run_of(*records)}"
        reader = _Reader(session.draft(name, name, system="crewai"))
        unknown: Counter[str] = Counter()
        for k, record in enumerate(records):
            kind = string(record.get("type")) or "none"
            if _BUS.fullmatch(kind):
                reader.record(kind, record, f"e{k}")
            else:
                unknown[f"event of type {kind}"] += 1
        require_half(file.name, len(records), unknown)
        session.report.unknown.update(unknown)
        yield from reader.traces()


class _Reader:
    """One crew's run on its way to a trace."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.left_out: Counter[str] = Counter()
        self.tasks: dict[str, str] = {}
        """Tasks that no agent has heard: by id, their event."""
        self.open: dict[tuple[str, str], list[tuple[str | None, str, Lane]]] = {}
        """Calls that run: by agent and tool, the id of their record, and their event."""
        self.began: dict[str, float | None] = {}
        self.before: Lane | None = None
        self.steps = self.untold = 0

    def record(self, kind: str, record: dict[str, Any], name: str) -> None:
        at = seconds(record.get("timestamp"))
        if kind == "task_started":
            task = as_dict(record.get("task"))
            by: dict[str, Any] = {"role": "user", "from_": "user", "source": "user", "trusted": True}
            text = text_of(task.get("description")) or text_of(record.get("task_name"))
            made = self.draft.event("human_intervention", "user", id=name, at=at, text=text, **by)
            self.tasks[string(task.get("id")) or string(record.get("task_id")) or name] = made
        elif kind == "llm_call_started":
            self.began[self._role(record)] = at
        elif kind in ("llm_call_completed", "llm_call_failed"):
            self._step(record, name, at)
        elif kind == "tool_usage_started":
            self._call(record, name, at)
        elif kind in ("tool_usage_finished", "tool_usage_error"):
            self._result(record, name, at, record.get("error") if kind == "tool_usage_error" else None)
        elif kind in ("crew_kickoff_completed", "crew_kickoff_failed", "task_failed", "agent_execution_error"):
            self._ended(record)
        else:
            self.left_out[kind] += 1

    @staticmethod
    def _role(record: dict[str, Any]) -> str:
        return writable((string(record.get("agent_role")) or "agent").strip()) or "agent"

    def _lane(self, record: dict[str, Any]) -> Lane:
        role = self._role(record)
        lane = self.draft.lane(role, role=role, leads=True)
        task = string(record.get("task_id"))
        known = task if task in self.tasks else next(iter(self.tasks), None) if task is None else None
        if known is not None:
            lane.hears(self.tasks.pop(known), "message")
        if self.before is not None and self.before is not lane and self.before.last is not None:
            lane.hears(self.before.last, "message")
        self.before = lane
        return lane

    def _step(self, record: dict[str, Any], name: str, at: float | None) -> None:
        lane, usage, error = self._lane(record), Usage.openai(record.get("usage")), text_of(record.get("error"))[:500]
        self.steps, self.untold = self.steps + 1, self.untold + (usage is None)
        failed: dict[str, Any] = {"ok": False, "error": error} if error else {}
        text, model = text_of(record.get("response")), string(record.get("model"))
        begin = self.began.pop(lane.agent, None)
        lane.step(id=name, at=begin, end=at, text=text, model=model, usage=usage, **failed)

    def _call(self, record: dict[str, Any], name: str, at: float | None) -> None:
        lane, tool = self._lane(record), string(record.get("tool_name")) or "unnamed"
        arguments = record.get("tool_args")
        text = compact(arguments) if arguments is not None else ""
        lane.call(tool, text, id=name, call=name, at=at)
        self.open.setdefault((lane.agent, tool), []).append((string(record.get("event_id")), name, lane))

    def _result(self, record: dict[str, Any], name: str, at: float | None, failure: Any) -> None:
        key = self._role(record), string(record.get("tool_name")) or "unnamed"
        if not self.open.get(key):
            self._call(record, f"{name}:call", at)
            self.draft.report.linked("a result whose call has no event of its own", exact=False)
        began = string(record.get("started_event_id"))
        running = next((k for k, (own, _, _) in enumerate(self.open[key]) if own and own == began), 0)
        _, call, lane = self.open[key].pop(running)
        error = text_of(failure)[:500] if failure else None
        text = text_of(record.get("output")) or error or ""
        lane.result(call, text, at=at, id=f"{call}:result", tool=key[1], ok=error is None, error=error)

    def _ended(self, record: dict[str, Any]) -> None:
        if (total := count(record.get("total_tokens"))) is not None:
            self.draft.costs["tokens"] = max(total, self.draft.costs.get("tokens", 0))
        output = record.get("output")
        answer = text_of(as_dict(output).get("raw")) or (output if isinstance(output, str) else "")
        if answer:
            self.draft.meta["answer"] = answer
        if error := string(record.get("error")):
            self.draft.meta["error"] = error

    def traces(self) -> Iterator[Trace]:
        if self.before is not None:
            self.before.stops()
        if self.untold:
            self.draft.report.lacks["tokens" if self.untold == self.steps else "the tokens of some model calls"] += self.untold
        if self.left_out:
            self.draft.meta["left_out"] = dict(sorted(self.left_out.items()))
        yield from self.draft.traces()


crewai = Importer(
    suffixes=(".crewai.jsonl",),
    sniff=_sniff,
    signs=("source_fingerprint", "agent_role", "task_name", "crew_name", "tool_name"),
    system="crewai",
    read_session=_read,
    becomes={
        "task_started": ("human_intervention",),
        "llm_call_completed": ("orchestrator_decision",),
        "tool_usage_started, tool_usage_finished, tool_usage_error": ("tool_call", "tool_result"),
        "crew_kickoff_completed": ("meta",),
    },
    versions="unstated",
    exact="agents, calls, the crew's tokens",
    lost="tokens of calls without any, plans, memories, knowledge",
)
"""Runs of CrewAI, by the events of its bus."""
