"""Workflow runs of Claude Code: a script that spawns agents, told by a journal, a snapshot and the agents' own files.

Always true: the folder of a run states who belongs to it, so these links are exact; the snapshot's own counts of agents and
tokens are not believed (they leave agents out).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterpoint.formats.claude_code.links import Answer
from counterpoint.formats.claude_code.talk import Message, Talks
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.values import as_dict, as_list, compact, string

if TYPE_CHECKING:
    from counterpoint.formats.claude_code.replay import Replay

_TASK = re.compile(r"Task ID:\s*(\S+)")


def play_workflows(session: Session, talks: Talks, replay: Replay, runs: Mapping[str, Sequence[str]]) -> None:
    """Tell the replay which agents each Workflow call made, so that it spawns them where the call stands."""
    if not runs:
        return
    snapshots = _snapshots(session)
    calls = _calls(talks, replay)
    for run, agents in runs.items():
        snapshot = snapshots.get(run, {})
        call = next((c for c, a in calls.items() if _is_of(a, run, snapshot)), None)
        results = _journal(session, run)
        order = [name for name in results if name in agents] + [name for name in agents if name not in results]
        about = {str(as_dict(a).get("agentId")): as_dict(a) for a in as_list(snapshot.get("workflowProgress"))}
        replay.runs[call or run] = [(name, about.get(name, {}), results.get(name)) for name in order]
        if call is None:
            replay.draft.report.loose(f"workflow {run}: no call names it")


def _snapshots(session: Session) -> dict[str, dict[str, Any]]:
    out = {}
    for file in session.files:
        if file.name.endswith(".json") and "/workflows/" in file.name and "/subagents/" not in file.name:
            found = as_dict(session.document(file))
            out[string(found.get("runId")) or file.stem] = found
    return out


def _journal(session: Session, run: str) -> dict[str, str | None]:
    """Agent to what it returned (None while it runs), in the order they started."""
    out: dict[str, str | None] = {}
    for file in session.files:
        if file.name.endswith(f"/subagents/workflows/{run}/journal.jsonl"):
            for _, record in session.records(file):
                name = string(record.get("agentId"))
                if name is not None:
                    out[name] = compact(record.get("result")) if record.get("type") == "result" else out.get(name)
    return out


def _calls(talks: Talks, replay: Replay) -> dict[str, Answer]:
    out = {}
    for talk in (talks.main, *talks.others.values()):
        for item in talk.items:
            for block, _ in item.blocks if isinstance(item, Message) else ():
                call = block.get("id")
                if block.get("name") == "Workflow" and isinstance(call, str) and call in replay.links.answers:
                    out[call] = replay.links.answers[call]
    return out


def _is_of(answer: Answer, run: str, snapshot: Mapping[str, Any]) -> bool:
    made = answer.made
    if string(made.get("runId")):
        return bool(made["runId"] == run)
    task = _TASK.search(answer.text)
    return bool(task and task[1] == snapshot.get("taskId"))


def spawn_run(replay: Replay, call: str, at: float | None, lane: Lane) -> None:
    """The agents of a run, spawned by the call; what the journal says they returned is theirs to return."""
    for name, about, result in replay.runs.pop(call, ()):
        role = string(about.get("label")) or (replay.talks.others[name].role if name in replay.talks.others else None)
        what = {"workflow": call, "phase": about.get("phaseTitle"), "state": about.get("state")}
        lane.spawn(name, role=role or "workflow-agent", at=at, id=f"{call}:{name}", extra=what)
        replay.draft.report.linked("workflow run")
        replay.adopt(name, lane.agent, result)
