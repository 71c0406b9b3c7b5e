"""Who&When: failed runs of teams, labelled with the agent and the step that decided the failure.

One JSON document is one run; a list or lines of them work too. Algorithm-Generated runs name the speaker in `name`, Hand-Crafted
ones in `role`, with a note after it: `Orchestrator (thought)`, `Orchestrator (-> WebSurfer)`, `Orchestrator (termination
condition)`.

| record | becomes |
|---|---|
| entry i of `history` | event `s{i}`: `message`, or `orchestrator_decision` of the Orchestrator (`delegate`, `stop`) |
| entry of `human`; else `question` | `human_intervention` |
| entry of the terminal | `tool_result` of whoever spoke before, and its `tool_call` (inferred) |
| entry of WebSurfer, FileSurfer | `message`, untrusted: what a page or file says |
| `system_prompt` | a `message` of `system` to each agent |
| `mistake_agent`, `mistake_step`, `mistake_reason` | `extra` of event `s{mistake_step}`, `metrics`, `meta["labels"]` |

`mistake_step` is a string with a place in `history`, from 0. Where the agent of the label is not who speaks there, both are
kept as they are, `meta["labels"]["agrees"]` is false, and the report says so.

What is lost: nothing of the records; times, tokens and ids of calls are not in the source.

Always true: event `s{i}` is entry i of `history`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import HUMANS, Turn, put_down
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.values import as_dict, number, string, text_of
from counterpoint.trace import Trace, content_ref

_ROLE = re.compile(r"(.*?) \((?:-> (.+)|(.+))\)\s*", re.S)
# A long Hand-Crafted file shows nothing but its history in its first part.
_MAGENTIC = re.compile(rb'"role"\s*:\s*"Orchestrator \(')
_LEADER = "Orchestrator"
_MISLABELLED = "a labelled agent that speaks at the labelled step"
_NOWHERE = "a labelled step that is in the history"


def _sniff(head: bytes) -> bool:
    if b'"history"' not in head:
        return False
    keys = first_keys(head).keys()
    if "history" not in keys:
        return False
    return (
        bool(keys & {"mistake_agent", "mistake_step"})
        or keys >= {"question", "ground_truth"}
        or (keys == {"history"} and _MAGENTIC.search(head) is not None)
    )


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        for line, run in session.entries(file):
            if isinstance(run.get("history"), list):
                yield from _run(session, run)
            else:
                session.report.broke(file.name, line, "a run without a history")


def _run(session: Session, run: dict[str, Any]) -> Iterator[Trace]:
    turns = [_turn(as_dict(entry)) for entry in run["history"]]
    is_magentic = any(turn.speaker == _LEADER for turn in turns)
    question = text_of(run.get("question"))
    task = string(run.get("question_ID")) or content_ref(question)[7:23]
    name = f"{'hand-crafted' if is_magentic else 'algorithm-generated'}/{task}"
    draft = session.draft(name, task, system="who_and_when", run=run_of(run))
    draft.topology = "centralized" if is_magentic else None
    for agent, prompt in as_dict(run.get("system_prompt")).items():
        if any(turn.speaker == agent for turn in turns) and isinstance(prompt, str):
            draft.lane(agent, role=agent).prompt(prompt, by="system", source="system", id=f"system:{agent}")
    is_asked = any(turn.speaker in HUMANS for turn in turns)
    put_down(draft, turns, leader=_LEADER, task="" if is_asked else question)
    _label(draft, run, turns)
    draft.report.lacks["tokens"] += 1
    yield from draft.traces()


def _turn(entry: dict[str, Any]) -> Turn:
    text = text_of(entry.get("content"))
    if name := string(entry.get("name")):
        return Turn(name, text)
    role = string(entry.get("role")) or "unnamed"
    noted = _ROLE.fullmatch(role)
    if noted is None:
        return Turn(role, text)
    speaker, to, note = noted[1], noted[2], noted[3]
    if to is not None:
        return Turn(speaker, text, to=to, decision="delegate")
    return Turn(speaker, text, is_aside=note == "thought", decision="stop" if "termination" in note else None)


def _label(draft: Draft, run: dict[str, Any], turns: list[Turn]) -> None:
    known = ("history", "question", "system_prompt")
    labels = {key: value for key, value in run.items() if key not in known and value is not None}
    agent, step = string(run.get("mistake_agent")), number(run.get("mistake_step"))
    if step is not None and step == int(step) and 0 <= step < len(turns):
        turn = turns[int(step)]
        labels["agrees"] = turn.speaker == agent
        if not labels["agrees"]:
            draft.report.lacks[_MISLABELLED] += 1
        marks = {"is_mistake": True, "mistake_agent": agent, "mistake_reason": string(run.get("mistake_reason"))}
        draft.set(f"s{int(step)}", extra=marks)
        draft.metrics["mistake_step"] = step
    elif run.get("mistake_step") is not None:
        draft.report.lacks[_NOWHERE] += 1
    if isinstance(correct := run.get("is_correct"), bool):
        draft.rewards["team"] = float(correct)
    if isinstance(corrected := run.get("is_corrected"), bool):
        draft.metrics["is_corrected"] = float(corrected)
    draft.meta["labels"] = labels


who_and_when = Importer(
    suffixes=(".who_and_when.json",),
    sniff=_sniff,
    signs=("history", "question", "ground_truth", "mistake_agent", "mistake_step"),
    system="who_and_when",
    read_session=_read,
    becomes={
        "history": ("message", "orchestrator_decision", "human_intervention", "tool_call", "tool_result"),
        "question": ("human_intervention",),
        "system_prompt": ("message",),
        "mistake_agent, mistake_step, mistake_reason": ("extra", "metrics", "meta"),
        "is_correct": ("rewards",),
    },
    versions="published sets",
    exact="speakers, mistakes",
    lost="times, tokens, call ids",
)
"""Runs of Who&When."""
