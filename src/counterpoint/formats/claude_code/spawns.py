"""Which spawn made which sub-agent, in Claude Code's records, and which workflow run made which agents.

What the records state (sidecar, structured result, progress, notification, the id in the result's text) is an exact link;
equal prompts are an inferred one, and two equal prompts do not claim the same sub-agent. What is left over is reported as
unlinked.

Always true: a sub-agent is claimed by one spawn, and a spawn makes one sub-agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from counterpoint.formats.claude_code.conversation import Conversations, Reply, user_text
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.values import as_dict, as_list, compact, seconds, string, text_of

SPAWNS = ("Task", "Agent")
_TAIL = re.compile(r"^agentId:\s*([A-Za-z0-9_-]+)|^agent_id:\s*(\S+@\S+)", re.M)
_NOTICE = re.compile(r"<task-notification>(.*?)(?:</task-notification>|\Z)", re.S)
_FIELD = re.compile(r"<(task-id|tool-use-id|status|summary|result)>(.*?)</\1>", re.S)
_TASK = re.compile(r"Task ID:\s*(\S+)")
_LETTER = re.compile(r"<teammate-message\s[^>]*>\s*(.*?)\s*</teammate-message>", re.S)


@dataclass(slots=True)
class ResultBlock:
    """A tool's result as the records give it."""

    block: dict[str, Any]
    record: dict[str, Any]

    @property
    def at(self) -> float | None:
        return seconds(self.record.get("timestamp"))

    @property
    def text(self) -> str:
        return text_of(self.block.get("content"))

    @property
    def made(self) -> dict[str, Any]:
        """The structured result, where it is one."""
        return as_dict(self.record.get("toolUseResult"))

    @property
    def is_error(self) -> bool:
        return self.block.get("is_error") is True


@dataclass(slots=True)
class Notice:
    """A background task tells that it ended."""

    task: str
    tool_use: str | None
    status: str
    text: str


@lru_cache(maxsize=256)
def notices(text: str) -> list[Notice]:
    """The task notifications in a text. Each is asked for twice: to link, and to play."""
    found = []
    for body in _NOTICE.findall(text):
        got = {name: value.strip() for name, value in _FIELD.findall(body)}
        if "task-id" in got:
            words = got.get("result") or got.get("summary", "")
            found.append(Notice(got["task-id"], got.get("tool-use-id"), got.get("status", ""), words))
    return found


class SpawnLinks:
    """Spawn calls and the agents they made."""

    def __init__(self, conversations: Conversations, report: Report) -> None:
        self.conversations, self.report = conversations, report
        self.answers: dict[str, ResultBlock] = {}
        """Tool-use id to its result."""
        self.child: dict[str, str] = {}
        """Tool-use id of a spawn to the agent it made."""
        self.name: dict[str, str] = {}
        """Name of a teammate or named agent to its id."""
        self._calls: dict[str, dict[str, Any]] = {}
        self._noticed: dict[str, str] = {}
        everybody = [conversations.main, *conversations.others.values()]
        for conversation in everybody:
            for item in conversation.items:
                self._gather(item)
        self._link()

    def _gather(self, item: Reply | dict[str, Any]) -> None:
        if isinstance(item, Reply):
            for block, _ in item.blocks:
                if block.get("type") == "tool_use" and block.get("name") in SPAWNS and isinstance(block.get("id"), str):
                    self._calls[block["id"]] = as_dict(block.get("input"))
            return
        for block in as_list(as_dict(item.get("message")).get("content")):
            if isinstance(block, dict) and block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
                self.answers.setdefault(block["tool_use_id"], ResultBlock(block, item))
        words = user_text(item) if item.get("type") == "user" else as_dict(item.get("attachment")).get("prompt")
        if isinstance(words, str) and "<task-notification>" in words:
            self._noticed.update({n.tool_use: n.task for n in notices(words) if n.tool_use})

    def _link(self) -> None:
        others = self.conversations.others.items()
        sidecars = {talk.tool_use: name for name, talk in others if talk.tool_use and talk.about}
        progress = {talk.tool_use: name for name, talk in others if talk.tool_use and not talk.about}
        for call, given in self._calls.items():
            answer = self.answers.get(call)
            child, rule = self._stated(call, answer, sidecars, progress)
            if child is not None and child not in self.child.values():
                self._take(call, child, given)
                self.report.linked(rule)
        self._by_prompt()

    def _stated(
        self, call: str, answer: ResultBlock | None, sidecars: dict[str, str], progress: dict[str, str]
    ) -> tuple[str | None, str]:
        if call in sidecars:
            return sidecars[call], "sidecar"
        if answer is not None:
            made = answer.made
            child = string(made.get("agentId")) or string(made.get("agent_id")) or string(made.get("teammate_id"))
            if child is not None:
                return child, "structured result"
        if call in progress:
            return progress[call], "progress record"
        if call in self._noticed:
            return self._noticed[call], "task notification"
        tail = _TAIL.search(answer.text) if answer is not None and not answer.is_error else None
        return (tail[1] or tail[2], "id in the result's text") if tail else (None, "")

    def _take(self, call: str, child: str, given: dict[str, Any]) -> None:
        self.child[call] = child
        if name := string(given.get("name")):
            self.name[name] = child
        if "@" in child:
            self.name.setdefault(child.split("@")[0], child)

    def _by_prompt(self) -> None:
        """What nothing states: the spawn whose prompt is word for word what the sub-agent was told first."""
        taken = set(self.child.values())
        free: dict[str, list[str]] = {}
        for name, conversation in self.conversations.others.items():
            if name not in taken and (prompt := _plain(conversation.prompt())):
                free.setdefault(prompt, []).append(name)
        for call, given in self._calls.items():
            prompt = _plain(str(given.get("prompt") or ""))
            if call not in self.child and free.get(prompt):
                self._take(call, free[prompt].pop(0), given)
                self.report.linked("same prompt", exact=False)

    def linked(self) -> set[str]:
        """Agents that hang on a spawn."""
        return set(self.child.values())


def _plain(prompt: str) -> str:
    letter = _LETTER.search(prompt)
    return " ".join((letter[1] if letter else prompt).split())


# -- workflow runs -------------------------------------------------------------------------------------------------------------


class WorkflowAgent(NamedTuple):
    """An agent of a workflow run: its name, what the snapshot says about it, and what the journal says it returned."""

    name: str
    about: dict[str, Any]
    result: str | None


def workflow_agents(session: Session, links: SpawnLinks, runs: Mapping[str, Sequence[str]]) -> dict[str, list[WorkflowAgent]]:
    """Workflow call (or run, when no call names it) to the agents that it made.

    The folder of a run says who belongs to it. The snapshot's own counts are not used: they leave agents out.
    """
    out: dict[str, list[WorkflowAgent]] = {}
    if not runs:
        return out
    snapshots = _snapshots(session)
    calls = _workflow_calls(links)
    for run, agents in runs.items():
        snapshot = snapshots.get(run, {})
        call = next((c for c, a in calls.items() if _is_of(a, run, snapshot)), None)
        results = _journal(session, run)
        order = [name for name in results if name in agents] + [name for name in agents if name not in results]
        about = {str(as_dict(a).get("agentId")): as_dict(a) for a in as_list(snapshot.get("workflowProgress"))}
        out[call or run] = [WorkflowAgent(name, about.get(name, {}), results.get(name)) for name in order]
        if call is None:
            links.report.loose(f"workflow {run}: no call names it")
    return out


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


def _workflow_calls(links: SpawnLinks) -> dict[str, ResultBlock]:
    out = {}
    for conversation in (links.conversations.main, *links.conversations.others.values()):
        for item in conversation.items:
            for block, _ in item.blocks if isinstance(item, Reply) else ():
                call = block.get("id")
                if block.get("name") == "Workflow" and isinstance(call, str) and call in links.answers:
                    out[call] = links.answers[call]
    return out


def _is_of(answer: ResultBlock, run: str, snapshot: Mapping[str, Any]) -> bool:
    made = answer.made
    if string(made.get("runId")):
        return bool(made["runId"] == run)
    task = _TASK.search(answer.text)
    return bool(task and task[1] == snapshot.get("taskId"))
