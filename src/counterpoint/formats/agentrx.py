"""AgentRx: failed runs of Magentic-One and tau-bench, with the steps at which they failed.

| record | becomes |
|---|---|
| substep of a speaker | event `s{i}`: `message`, or `orchestrator_decision` of the Orchestrator |
| substep of the user; else `instruction` | `human_intervention` |
| substep of a tool or a terminal | `tool_result` of whoever spoke before, and its `tool_call` (inferred) |
| substep of the system | `message` of `system` |
| `failures`, `root_cause` of the annotations | `extra` of the agent's event in the step, `metrics`, `meta["labels"]` |

Trajectories (`*_dataset.jsonl`) and annotations are joined by their id wherever both lie in a folder; `tau_retail_2` and `2` are
one. `step_number` is a step's `index`, from 1.

What is lost: nothing of the records; tokens, times and ids of calls are not in the source.

Always true: a trajectory without an annotation is read; an annotation without its trajectory is counted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.chat import Turn, put_down
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, decode, string, text_of
from counterpoint.trace import Trace

_TEXT_OF_LISTS = 1 << 22
_NOTED = re.compile(r"(.*?) \((?:-> (.+)|(.+))\)\s*", re.S)
_LEADERS = frozenset({"Orchestrator", "MagenticOneOrchestrator"})
_NOWHERE = "labelled steps that are in the run"
_ALONE = "annotations without their trajectory"


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if "trajectory_id" not in keys:
        return False
    if "steps" in keys:
        return b'"substeps"' in head
    return "failures" in keys and (b'"failure_category"' in head or "root_cause" in keys)


def _group(files: Sequence[File]) -> Iterable[Session]:
    groups: dict[str, list[File]] = {}
    for file in files:
        groups.setdefault(file.name.rpartition("/")[0] or ".", []).append(file)
    return [Session(name, some) for name, some in groups.items()]


def _read(session: Session) -> Iterator[Trace]:
    runs: dict[str, dict[str, Any]] = {}
    labels: dict[str, dict[str, Any]] = {}
    for file in session.files:
        for line, row in session.entries(file):
            name = string(row.get("trajectory_id")) or compact(row.get("trajectory_id"))
            if isinstance(row.get("steps"), list):
                runs[name] = row
            elif isinstance(row.get("failures"), list):
                labels[name] = row
            else:
                session.report.broke(file.name, line, "a record without steps and without failures")
    for name, run in runs.items():
        label = labels.pop(name, None) or labels.pop(name.removeprefix("tau_retail_"), None)
        yield from _run(session, name, run, label or {})
    if labels:
        session.report.lacks[_ALONE] += len(labels)


def _run(session: Session, name: str, run: dict[str, Any], label: dict[str, Any]) -> Iterator[Trace]:
    turns: list[Turn] = []
    places: dict[int, int] = {}
    systems: list[str] = []
    called: str | None = None
    for order, step in enumerate(map(as_dict, run["steps"]), 1):
        places[count(step.get("index")) or order] = len(turns)
        for part in _substeps(step.get("substeps")):
            role, text = string(part.get("role")) or "unnamed", _text(part)
            if role == "system":
                systems.append(text)
            else:
                turns.append(_turn(role, text, string(part.get("name")) or called))
            calls = [as_dict(as_dict(c).get("function") or c) for c in as_list(part.get("tool_calls"))]
            called = next((tool for call in calls if (tool := string(call.get("name")))), None)
    draft = session.draft(f"agentrx/{name}", name, system="agentrx")
    leader = next((turn.speaker for turn in turns if turn.speaker in _LEADERS), None)
    first = next((turn.speaker for turn in turns if turn.speaker != "human" and turn.tool is None), "main")
    for k, text in enumerate(systems):
        draft.lane(first, role=first).prompt(text, by="system", source="system", id=f"system{k}")
    is_asked = any(turn.speaker == "human" for turn in turns)
    put_down(draft, turns, leader=leader, task="" if is_asked else text_of(run.get("instruction") or ""))
    _label(draft, label, places, turns)
    draft.report.lacks["tokens"] += 1
    yield from draft.traces()


def _substeps(value: Any) -> list[dict[str, Any]]:
    """The substeps, which some rows have as the text of a list."""
    if isinstance(value, str) and len(value) < _TEXT_OF_LISTS:
        try:
            value = decode(value)
        except InputError:
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                value = [{"role": "unnamed", "content": value}]
    return [as_dict(part) if isinstance(part, dict) else {"content": part} for part in as_list(value)]


def _text(part: dict[str, Any]) -> str:
    said = text_of(part.get("content") or "")
    calls = [as_dict(as_dict(c).get("function") or c) for c in as_list(part.get("tool_calls"))]
    return "\n".join(filter(None, (said, *(f"{c.get('name')}({compact(c.get('arguments') or '')})" for c in calls))))


def _turn(role: str, text: str, tool: str | None) -> Turn:
    if role in ("user", "human"):
        return Turn("human", text)
    if role in ("tool", "function", "environment"):
        return Turn(role, text, tool=tool or role)
    noted = _NOTED.fullmatch(role)
    if noted is None:
        return Turn(role, text)
    speaker, to, note = noted[1], noted[2], noted[3]
    if to is not None:
        return Turn(speaker, text, to=to, decision="delegate")
    return Turn(speaker, text, is_aside=note == "thought", decision="stop" if "termination" in note else None)


def _place(step: int | None, agent: str | None, places: dict[int, int], turns: Sequence[Turn]) -> int | None:
    """Where in a step its agent speaks; its beginning where that is none of it."""
    if step is None or step not in places:
        return None
    end = min((place for place in places.values() if place > places[step]), default=len(turns))
    spoken = (k for k in range(places[step], end) if turns[k].speaker == agent)
    return next(spoken, places[step] if places[step] < end else None)


def _label(draft: Draft, label: dict[str, Any], places: dict[int, int], turns: Sequence[Turn]) -> None:
    if not label:
        return
    decisive = string(label.get("root_cause_failure_id")) or compact(as_dict(label.get("root_cause")).get("failure_id") or "")
    for failure in map(as_dict, label["failures"]):
        step = count(failure.get("step_number"))
        agent, reason, category = (string(failure.get(k)) for k in ("failed_agent", "step_reason", "failure_category"))
        place = _place(step, agent, places, turns)
        is_decisive = compact(failure.get("failure_id") or "") == decisive != ""
        if is_decisive and step is not None:
            draft.metrics["mistake_step"] = float(step if place is None else place)
        if place is None:
            draft.report.lacks[_NOWHERE] += 1
            continue
        marks = {"failure_category": category, "mistake_agent": agent, "mistake_reason": reason}
        draft.set(f"s{place}", extra={**marks, "is_mistake": True if is_decisive else None})
    draft.meta["labels"] = {k: v for k, v in label.items() if k != "trajectory_id" and v is not None}


agentrx = Importer(
    suffixes=(".agentrx.jsonl",),
    sniff=_sniff,
    signs=("trajectory_id", "instruction", "steps", "substeps", "failures", "root_cause", "failure_summary"),
    system="agentrx",
    group=_group,
    read_session=_read,
    rank=2,
    becomes={
        "steps": ("message", "orchestrator_decision", "human_intervention", "tool_call", "tool_result"),
        "instruction": ("human_intervention",),
        "failures, root_cause": ("extra", "metrics", "meta"),
    },
    lost="nothing of the records; tokens, times and ids of calls are not in the source",
    versions="the data set of February 2026",
    exact="speakers, labels, root causes",
)
"""Runs of AgentRx."""
