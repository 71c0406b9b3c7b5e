"""The conversations in Claude Code's files: records merged into the model's replies, each agent's own in its own order.

Always true: one API message is one `Reply` however many records it was split over, with its usage once (that of the record
with the most output); a record that was copied (same uuid and the same words) counts where it came first; records keep the
order of the file, because its clock cannot be trusted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from counterpoint.formats.claude_code.several import SeenRecords, kind_of_another, leave_signatures, original_of
from counterpoint.formats.draft import one_line
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import ANTHROPIC, Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, number, seconds, string, text_of
from counterpoint.trace.keys import PROJECT, TITLE

SYNTHETIC = "<synthetic>"
# Titles, modes, queues and snapshots: what the client notes for itself. Counted, not part of the story.
_NOTES = {
    *("summary", "ai-title", "custom-title", "agent-name", "mode", "permission-mode", "last-prompt", "pr-link", "bridge-session"),
    *("frame-link", "file-history-snapshot", "cost-state", "queue-operation", "progress", "started", "result"),
}
# What is read of a tool's structured result.
_MADE = (
    "agentId", "agent_id", "teammate_id", "status", "isAsync", "content", "task", "runId", "usage", "resolvedModel",
    "totalTokens", "totalDurationMs", "totalToolUseCount",
)  # fmt: skip
# What every record says again, or what was read by now: a fifth of what a long session takes in memory.
_ENVELOPE = ("cwd", "gitBranch", "version", "entrypoint", "slug", "sessionId", "userType", "parentUuid", "requestId")
# Kinds of titles, the best last: a person's own counts before the client's, and both before the summary of a compacted part.
_TITLES = {"summary": ("summary",), "ai-title": ("aiTitle", "title"), "custom-title": ("customTitle", "title")}


@dataclass(slots=True)
class Reply:
    """One answer of the model."""

    id: str
    model: str | None
    begin: float | None
    end: float | None
    usage: Usage | None = None
    blocks: list[tuple[dict[str, Any], float | None]] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)
    """The first of its records."""
    stop_reason: str | None = None

    @property
    def is_begun(self) -> bool:
        """Whether its records were written while it was streamed and none says how it ended: its usage may be of the start."""
        return self.stop_reason is None and "stop_reason" in as_dict(self.record.get("message"))


@dataclass
class Conversation:
    """One agent's conversation."""

    agent: str
    items: list[Reply | dict[str, Any]] = field(default_factory=list)
    source: str = "file"
    """Where it stood: a `file` of its own, `mirrored` as progress, or `inline` in the main file."""
    tool_use: str | None = None
    """The call that spawned it, where a sidecar or progress record says so."""
    role: str | None = None
    name: str | None = None
    """What people call it: the description of its task."""
    about: dict[str, Any] = field(default_factory=dict)
    """What the sidecar says."""

    def prompt(self) -> str:
        """The first thing it was told."""
        first = next((i for i in self.items if isinstance(i, dict) and i.get("type") == "user"), None)
        return user_text(first) if first else ""


class Conversations:
    """All conversations of a session."""

    def __init__(self, session: Session, seen: SeenRecords) -> None:
        """`seen` holds the records that a session this one was resumed from has already."""
        self.session = session
        self.main = Conversation("main")
        self.others: dict[str, Conversation] = {}
        self.notes: Counter[str] = Counter()
        self.titles: list[str] = []
        self.titled: dict[str, str] = {}
        """Kind of title to the latest of that kind."""
        self.facts: dict[str, Any] = {}
        self._seen = seen
        self._messages: dict[tuple[str, str], Reply] = {}
        self._owner: dict[str, str] = {}
        self._roots: dict[str, str] = {}
        self.copied = 0

    def read(self, file: File, conversation: Conversation) -> None:
        """Take in the records of a file, whose own conversation is `conversation`."""
        for _, record in self.session.records(file):
            kind = string(record.get("type"))
            if kind == "progress":
                self._progress(record)
            if kind in _NOTES:
                self._note(str(kind), record)
                continue
            self._record(record, self._whose(record, conversation))

    def _note(self, kind: str, record: dict[str, Any]) -> None:
        self.notes[kind] += 1
        title = next((t for name in _TITLES.get(kind, ()) if (t := string(record.get(name)))), None)
        if title:
            self.titled[kind] = title
            if title not in self.titles:
                self.titles.append(title)

    def _whose(self, record: dict[str, Any], conversation: Conversation) -> Conversation:
        """Sub-agents of old versions stand in the main file: by their id, or by the root their records hang on."""
        if conversation is not self.main or not record.get("isSidechain"):
            return conversation
        name = string(record.get("agentId"))
        if name is None:
            uuid, parent = str(record.get("uuid")), record.get("parentUuid")
            root = self._roots.get(parent, uuid) if isinstance(parent, str) else uuid
            self._roots[uuid] = root
            name = f"sidechain-{root}"
        return self.other(name, "inline")

    def other(self, name: str, source: str) -> Conversation:
        """The conversation of a sub-agent, made on first use."""
        if name not in self.others:
            self.others[name] = Conversation(name, source=source)
        return self.others[name]

    def _progress(self, record: dict[str, Any]) -> None:
        """A sub-agent's record mirrored in its parent's file; what the sub-agent's own file holds is believed first."""
        data = as_dict(record.get("data"))
        name, inner = string(data.get("agentId")), as_dict(data.get("message"))
        if data.get("type") != "agent_progress" or name is None:
            return
        conversation = self.other(name, "mirrored")
        conversation.tool_use = conversation.tool_use or string(record.get("parentToolUseID"))
        if conversation.source == "mirrored" and inner:
            self._record({**inner, "type": inner.get("type")}, conversation)

    def _record(self, record: dict[str, Any], conversation: Conversation) -> None:
        kind, uuid = record.get("type"), original_of(record)
        if (other := kind_of_another(record)) is not None:
            self.session.report.unknown[other] += 1
            return
        leave_signatures(record)
        if isinstance(uuid, str):
            name = self._seen.name_of(uuid, record)
            if name is None:
                self.copied += 1
                return
            if name != uuid:
                self.session.report.mended["records that share the uuid of another and differ: kept under another"] += 1
                record = {**record, "uuid": name}
        if kind == "assistant":
            self._assistant(record, conversation)
        elif kind in ("user", "system", "attachment"):
            if isinstance(result := record.get("toolUseResult"), dict):  # it repeats whole files, which nobody asks for again
                record["toolUseResult"] = {key: result[key] for key in _MADE if key in result}
            conversation.items.append(record)
        else:
            self.session.report.unknown[str(kind)] += 1
            return
        if conversation is self.main and not self.facts and record.get("version"):
            self.facts = {k: record[k] for k in ("cwd", "gitBranch", "version", "entrypoint", "slug") if record.get(k)}
        for key in _ENVELOPE:
            record.pop(key, None)

    def _assistant(self, record: dict[str, Any], conversation: Conversation) -> None:
        inner = as_dict(record.get("message"))
        name = string(inner.get("id")) or string(record.get("uuid")) or f"{conversation.agent}-{len(conversation.items)}"
        at = seconds(record.get("timestamp"))
        if self._owner.setdefault(name, conversation.agent) != conversation.agent:
            self.copied += 1
            return
        message = self._messages.get((conversation.agent, name))
        if message is None:
            message = Reply(name, string(inner.get("model")), at, at, record=record)
            self._messages[conversation.agent, name] = message
            conversation.items.append(message)
        stated = inner.pop("usage", None)
        usage = Usage.anthropic(stated)
        self.session.report.note_odd_counts(odd_counts(as_dict(stated), ANTHROPIC))
        if usage is not None and (message.usage is None or usage.output >= message.usage.output):
            message.usage = usage
        message.stop_reason = string(inner.get("stop_reason")) or message.stop_reason
        content = inner.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
        message.blocks += [(block, at) for block in blocks if isinstance(block, dict)]
        if at is not None:
            message.end = at if message.end is None else max(message.end, at)

    def about(self) -> dict[str, Any]:
        """For the trace's `meta`: where the session ran, and its title and project where the records say so."""
        title = self.titled.get("custom-title") or self.titled.get("ai-title")
        where = str(self.facts.get("cwd") or "").replace("\\", "/").rstrip("/")
        fields = {TITLE: one_line(title or ""), PROJECT: where.rpartition("/")[2]}
        return {**{key: text for key, text in fields.items() if text}, **self.facts, "titles": self.titles}


def user_text(record: dict[str, Any]) -> str:
    """The words of a user record, tool results left out."""
    content = as_dict(record.get("message")).get("content")
    if isinstance(content, str):
        return content
    parts = [b if isinstance(b, str) else as_dict(b).get("text") for b in as_list(content)]
    return "\n".join(part for part in parts if isinstance(part, str))


# -- Which spawn made which sub-agent, in Claude Code's records, and which workflow run made which agents -------------
# What the records state (sidecar, structured result, progress, notification, the id in the result's text) is an exact link;
# equal prompts are an inferred one, and two equal prompts do not claim the same sub-agent. What is left over is reported as
# unlinked.
#
# Always true: a sub-agent is claimed by one spawn, and a spawn makes one sub-agent.

SPAWNS = ("Task", "Agent")
_TAIL = re.compile(r"^agentId:\s*([A-Za-z0-9_-]+)|^agent_id:\s*(\S+@\S+)", re.M)
_NOTICE = re.compile(r"<task-notification>(.*?)(?:</task-notification>|\Z)", re.S)
_FIELD = re.compile(r"<(task-id|tool-use-id|status|summary|result|usage)>")
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
    def structured(self) -> dict[str, Any]:
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
    usage: str = ""


_LAST_REQUEST = "those of its last request alone"
# The tokens go by two names: `total_tokens` in older clients, `subagent_tokens` in newer ones.
_SAID = re.compile(r"\b(?:total_|subagent_)?(tokens|tool_uses|duration_ms)\W+(\d+)")
_USAGE = re.compile(r"<usage>([^<]*)</usage>\s*\Z")


class StatedUsage(NamedTuple):
    """What a lead's records say that a finished sub-agent spent."""

    usage: Usage | None
    tokens_are: str | None
    seconds: float | None
    tools: int | None
    model: str | None = None

    @classmethod
    def of_result(cls, answer: ResultBlock) -> StatedUsage | None:
        """In the result of its call: structured, else in its last line. The client's total is that of its last request."""
        structured, text = answer.structured, _USAGE.search(answer.text)
        usage, total = Usage.anthropic(structured.get("usage")), count(structured.get("totalTokens"))
        usage = usage or (Usage(total) if total else None)
        spent = number(structured.get("totalDurationMs"))
        stated = cls(
            usage,
            _LAST_REQUEST if usage else None,
            spent / 1e3 if spent is not None else None,
            count(structured.get("totalToolUseCount")),
            string(structured.get("resolvedModel")),
        )
        if usage or spent is not None or stated.tools is not None:
            return stated
        return cls.of_notice(text[1]) if text else None

    @classmethod
    def of_notice(cls, text: str) -> StatedUsage | None:
        """In the notification that it ended, or the line about itself in a result."""
        counts = {name: count(value) for name, value in _SAID.findall(text)}
        if not counts:
            return None
        total, spent = counts.get("tokens"), counts.get("duration_ms")
        usage = Usage(total) if total else None
        return cls(usage, _LAST_REQUEST if usage else None, None if spent is None else spent / 1e3, counts.get("tool_uses"))


@lru_cache(maxsize=256)
def notices(text: str) -> list[Notice]:
    """The task notifications in a text. Each is asked for twice: to link, and to play."""
    listed = []
    for body in _NOTICE.findall(text):
        got = dict(_fields(body))
        if "task-id" in got:
            words = got.get("result") or got.get("summary", "")
            usage = got.get("usage", "")
            listed.append(Notice(got["task-id"], got.get("tool-use-id"), got.get("status", ""), words, usage))
    return listed


def _fields(body: str) -> Iterator[tuple[str, str]]:
    """The fields of a notification: each from its mark to the next end of that mark, which is much behind it in a long result."""
    at = 0
    while begin := _FIELD.search(body, at):
        end = body.find(f"</{begin[1]}>", begin.end())
        at = begin.start() + 1 if end < 0 else end + len(begin[1]) + 3
        if end >= 0:
            yield begin[1], body[begin.end() : end].strip()


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
        for call, args in self._calls.items():
            answer = self.answers.get(call)
            child, rule = self._stated(call, answer, sidecars, progress)
            if child is not None and child not in self.child.values():
                self._take(call, child, args)
                self.report.linked(rule)
        self._by_prompt()

    def _stated(
        self, call: str, answer: ResultBlock | None, sidecars: dict[str, str], progress: dict[str, str]
    ) -> tuple[str | None, str]:
        if call in sidecars:
            return sidecars[call], "sidecar"
        if answer is not None:
            fields = answer.structured
            child = string(fields.get("agentId")) or string(fields.get("agent_id")) or string(fields.get("teammate_id"))
            if child is not None:
                return child, "structured result"
        if call in progress:
            return progress[call], "progress record"
        if call in self._noticed:
            return self._noticed[call], "task notification"
        tail = _TAIL.search(answer.text) if answer is not None and not answer.is_error else None
        return (tail[1] or tail[2], "id in the result's text") if tail else (None, "")

    def _take(self, call: str, child: str, args: dict[str, Any]) -> None:
        self.child[call] = child
        if name := string(args.get("name")):
            self.name[name] = child
        if "@" in child:
            self.name.setdefault(child.split("@")[0], child)

    def _by_prompt(self) -> None:
        """What nothing states: the spawn whose prompt is word for word what the sub-agent was told first."""
        used = set(self.child.values())
        free: dict[str, list[str]] = {}
        for name, conversation in self.conversations.others.items():
            if name not in used and (prompt := _plain(conversation.prompt())):
                free.setdefault(prompt, []).append(name)
        for call, args in self._calls.items():
            prompt = _plain(str(args.get("prompt") or ""))
            if call not in self.child and free.get(prompt):
                self._take(call, free[prompt].pop(0), args)
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

    The run's folder and journal say who belongs to it. The snapshot's sums are not used: they leave agents out.
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
        order = [*results, *(name for name in agents if name not in results)]
        about = {str(as_dict(a).get("agentId")): as_dict(a) for a in as_list(snapshot.get("workflowProgress"))}
        out[call or run] = [WorkflowAgent(name, about.get(name, {}), results.get(name)) for name in order]
        if call is None:
            links.report.loose(f"workflow {run}: no call names it")
    return out


def _snapshots(session: Session) -> dict[str, dict[str, Any]]:
    out = {}
    for file in session.files:
        if file.name.endswith(".json") and "/workflows/" in file.name and "/subagents/" not in file.name:
            snapshot = as_dict(session.document(file))
            out[string(snapshot.get("runId")) or file.stem] = snapshot
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
    structured = answer.structured
    if string(structured.get("runId")):
        return bool(structured["runId"] == run)
    task = _TASK.search(answer.text)
    return bool(task and task[1] == snapshot.get("taskId"))
