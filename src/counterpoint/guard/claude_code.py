"""Claude Code's session as it is written: the main transcript, its sub-agents' files, and what they say about tokens and calls.

Always true: what the importer counts is counted here (one message once, with the usage of its record with the most output; a
copied record where it came first), from each record as it comes, without the rest of the file.
"""

from __future__ import annotations

import os

from counterpoint.guard.limits import MARK
from counterpoint.guard.quick_json import loads
from counterpoint.guard.reader import SessionReader, call_key, prompt_sum, seconds
from counterpoint.guard.state import GuardState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_SYNTHETIC = "<synthetic>"
_NOT_HUMAN = (
    *("<system-reminder>", "<command-name>", "<command-message>", "<local-command-", "<bash-", "Caveat: The messages"),
    *("<task-notification>", "<teammate-message", "[Request interrupted"),
)
_NOT_FAILED = ("The user doesn't want to proceed", "[Request interrupted", "Request interrupted")
_CHANGES = ("Edit", "MultiEdit", "NotebookEdit", "Write")
_RECENT = 64
_HEAD = 1 << 16


def agent_files(state: GuardState, transcript: str) -> Iterator[tuple[str, str]]:
    """The sub-agents' files of a session, with their ids: below a folder of the session's name, in old versions beside it."""
    folder, name = os.path.split(transcript)
    session = name.removesuffix(".jsonl")
    below = os.path.join(folder, session, "subagents")
    if os.path.isdir(below):
        for place, _, names in os.walk(below):
            for name in sorted(names):
                if name.startswith("agent-") and name.endswith(".jsonl"):
                    yield os.path.join(place, name), name[6:-6]
    elif state.spawns:  # the folder may hold thousands of other sessions' agents: each is looked into once
        for name in sorted(entry.name for entry in os.scandir(folder or ".") if entry.name.startswith("agent-")):
            path = os.path.join(folder, name)
            if name.endswith(".jsonl") and path not in state.foreign:
                if path in state.files or _session_in(path) in (None, session):
                    yield path, name[6:-6]
                else:
                    state.foreign[path] = 1


def _session_in(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            record = loads(file.readline(1 << 20))
    except (OSError, ValueError):
        return None
    session = record.get("sessionId") if isinstance(record, dict) else None
    return session if isinstance(session, str) else None


def _teammate(path: str, team: Any) -> str | None:
    """Whose transcript this is, if it is one of the team's and not the lead's."""
    try:
        with open(path, "rb") as file:
            lines = file.read(_HEAD).split(b"\n")
    except OSError:
        return None
    for line in lines[:-1]:
        try:
            record = loads(line) if b'"teamName"' in line else None
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("teamName") == team:
            name = record.get("agentName")
            return name if isinstance(name, str) and name != "team-lead" else None
    return None


class ClaudeCodeReader(SessionReader):
    """Takes the new records of a Claude Code session into a state."""

    spawns = ("Task", "Agent")
    starters = ("Workflow",)

    def root(self, transcript: str) -> str:
        """The session's own transcript, also where a sub-agent's file is named."""
        folder, marker, _ = transcript.rpartition(f"{os.sep}subagents{os.sep}")
        return f"{folder}.jsonl" if marker else transcript

    def files_of(self, transcript: str) -> Iterator[tuple[str, str]]:
        """The main transcript, then the sub-agents'."""
        path = self.root(transcript)
        if os.path.exists(path):
            yield path, "main"
            yield from agent_files(self.state, path)
            yield from self._teammates(path)

    def _teammates(self, path: str) -> Iterator[tuple[str, str]]:
        """The transcripts of a team's other members, which are sessions of their own beside the lead's; each is looked at until
        it is long enough to know."""
        team, folder = self.state.notes.get("team"), os.path.dirname(path)
        looked: dict[str, int] = self.state.notes.setdefault("looked", {})
        for name in sorted(os.listdir(folder or ".")) if team else ():
            other = os.path.join(folder, name)
            if other in self.state.files and "@" in self.state.files[other][2]:
                yield other, self.state.files[other][2]
            elif name.endswith(".jsonl") and not name.startswith("agent-") and other != path:
                size = os.path.getsize(other)
                if looked.get(other, 0) < min(size, _HEAD):
                    looked[other] = size
                    if (mate := _teammate(other, team)) is not None:
                        yield other, f"{mate}@{team}"

    def calls_of(self, record: dict[str, Any]) -> list[tuple[str, str, Any]]:
        """The tool calls in a record: id, tool and input."""
        message = record.get("message")
        content = message.get("content") if isinstance(message, dict) and record.get("type") == "assistant" else None
        blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
        return [(str(b.get("id")), str(b.get("name")), b.get("input")) for b in blocks if b.get("type") == "tool_use"]

    # -- records ---------------------------------------------------------------------------------------------------------

    def take(self, record: dict[str, Any], agent: str) -> None:
        """Count one record of an agent's file."""
        kind, uuid, at = record.get("type"), record.get("uuid"), seconds(record.get("timestamp"))
        if kind == "progress":
            self._mirrored(record)
            return
        if kind not in ("assistant", "user", "attachment") or (isinstance(uuid, str) and not self.state.is_new("r", uuid)):
            return
        if agent == "main" and record.get("isSidechain"):
            agent = self._inline(record, at)
        if agent == "main" and isinstance(record.get("teamName"), str) and record.get("agentName") in (None, "team-lead"):
            self.state.notes["team"] = record["teamName"]
        message = record.get("message")
        message = message if isinstance(message, dict) else {}
        if kind == "assistant":
            self._answer(record, message, agent, at)
        elif kind == "user":
            self._user(record, message, agent, at)
        elif agent == "main" and _is_queued_prompt(record):
            self.tally.on_prompt(at)
        if agent == "main":
            self.tally.on_activity(at)

    def _mirrored(self, record: dict[str, Any]) -> None:
        """A sub-agent's record in its parent's file; its own file, where there is one, has the same ids."""
        data = record.get("data")
        if not isinstance(data, dict) or data.get("type") != "agent_progress":
            return
        agent, inner, call = data.get("agentId"), data.get("message"), record.get("parentToolUseID")
        if isinstance(agent, str):
            self.link(call, agent, seconds(record.get("timestamp")))
            if isinstance(inner, dict):
                self.take({"timestamp": record.get("timestamp"), **inner}, agent)

    def _inline(self, record: dict[str, Any], at: float | None) -> str:
        """The sub-agent of a record that stands in the main file, as in old versions."""
        agent = record.get("agentId")
        if isinstance(agent, str):
            if agent not in self.tally.agents:
                self.link_prompt(agent, _text(record), at)
            return agent
        if record.get("parentUuid") is None:
            self.link_prompt(f"sidechain-{record.get('uuid')}", _text(record), at)
        return "sidechain"

    def _answer(self, record: dict[str, Any], message: dict[str, Any], agent: str, at: float | None) -> None:
        model = message.get("model")
        if model == _SYNTHETIC or record.get("isApiErrorMessage"):
            return
        name = message.get("id") if isinstance(message.get("id"), str) else record.get("uuid")
        usage = _usage(message.get("usage"))
        if usage is not None and isinstance(name, str):
            self._spent(name, str(model), usage, at)
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                self._call(block, agent, at)

    def _spent(self, name: str, model: str, usage: list[int], at: float | None) -> None:
        known, recent = self.state.recent.get(name), self.state.recent
        if known is None:
            if not self.state.is_new("m", name):
                return
            known = recent[name] = [model, [0] * len(usage), at]
            if len(recent) > _RECENT:
                del recent[next(iter(recent))]
        if usage[-1] >= known[1][-1]:
            self.tally.on_usage(known[0], [new - old for new, old in zip(usage, known[1], strict=True)], known[2])
            known[1] = usage

    def _call(self, block: dict[str, Any], agent: str, at: float | None) -> None:
        call, tool = block["id"], str(block.get("name"))
        if not self.state.is_new("c", call):
            return
        args = block.get("input")
        self.tally.on_call(at)
        self.state.waits(call, [call_key(tool, args), agent, self._is_gain(tool, args)])
        if tool in self.spawns and call not in self.state.spawns:
            prompt = args.get("prompt") if isinstance(args, dict) else None
            self.state.spawns[call] = [agent, None, prompt_sum(prompt), False]

    def _user(self, record: dict[str, Any], message: dict[str, Any], agent: str, at: float | None) -> None:
        content, is_result = message.get("content"), False
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_result":
                is_result = True
                self._result(record, block, at)
        if agent == "main" and not is_result and not _is_clients(record) and _is_human(_text(record)):
            self.tally.on_prompt(at)

    def _result(self, record: dict[str, Any], block: dict[str, Any], at: float | None) -> None:
        call = str(block.get("tool_use_id"))
        pending = self.state.pending.pop(call, None)
        text, failed = _words(block.get("content")), block.get("is_error") is True
        if call in self.state.spawns:
            self._spawned(call, record.get("toolUseResult"), text, failed=failed, at=at)
        if pending is None or (failed and (MARK in text[:400] or text.startswith(_NOT_FAILED))):
            return
        self.tally.on_result(pending[1], pending[0], not failed, at)
        if pending[2] and not failed:
            self.tally.on_gain(at)

    def _is_gain(self, tool: str, args: Any) -> bool:
        """Whether a call, if it works, changes a file or completes something on the list of things to do."""
        if tool in _CHANGES or not isinstance(args, dict):
            return tool in _CHANGES
        if tool == "TodoWrite" and isinstance(args.get("todos"), list):
            done = sum(isinstance(todo, dict) and todo.get("status") == "completed" for todo in args["todos"])
            before, self.state.notes["todos_done"] = self.state.notes.get("todos_done", 0), done
            return bool(done > before)
        return tool == "TaskUpdate" and args.get("status") == "completed"

    # -- agents ----------------------------------------------------------------------------------------------------------

    def _spawned(self, call: str, result: Any, text: str, *, failed: bool, at: float | None) -> None:
        """A spawn came back: with the agent's id, or as a failure that started nothing."""
        spawn, result = self.state.spawns[call], result if isinstance(result, dict) else {}
        agent = next((result[k] for k in ("agentId", "agent_id", "teammate_id") if isinstance(result.get(k), str)), None)
        if agent is None and not failed:
            agent = _id_in(text)
        if agent is not None:
            self.link(call, agent, at)
        elif not failed:
            self.start(call, spawn, at)
        elif spawn[1] is None and spawn[3]:
            spawn[3] = False
            self.tally.agents.pop(f"call:{call}", None)

    def on_file(self, path: str, agent: str) -> None:
        """A new sub-agent's file: what its sidecar, or else its first words, say about where it comes from."""
        if agent == "main":
            return
        call, record = None, {}
        try:
            with open(f"{path.removesuffix('.jsonl')}.meta.json", "rb") as file:
                call = loads(file.read()).get("toolUseId")
        except (OSError, ValueError, AttributeError):
            pass
        if isinstance(call, str):
            self.link(call, agent, None)
            return
        try:
            with open(path, "rb") as file:
                record = loads(file.readline())
        except (OSError, ValueError):
            pass
        if isinstance(record, dict):
            self.link_prompt(agent, _text(record), seconds(record.get("timestamp")))


def _usage(usage: Any) -> list[int] | None:
    """Fresh input, cache read, cache written for minutes and for an hour, output."""
    if not isinstance(usage, dict):
        return None
    fresh, out = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    if fresh is None and out is None:
        return None
    read, wrote = _count(usage.get("cache_read_input_tokens")) or 0, _count(usage.get("cache_creation_input_tokens")) or 0
    kinds = usage.get("cache_creation")
    kinds = kinds if isinstance(kinds, dict) else {}
    hour, minutes = (_count(kinds.get(f"ephemeral_{life}_input_tokens")) or 0 for life in ("1h", "5m"))
    wrote = wrote or hour + minutes
    hour = min(hour, wrote)
    return [fresh or 0, read, wrote - hour, hour, out or 0]


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [b if isinstance(b, str) else b.get("text") if isinstance(b, dict) else None for b in content or ()]
    return "\n".join(part for part in parts if isinstance(part, str))


def _text(record: dict[str, Any]) -> str:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return _words(content) if isinstance(content, (str, list)) else ""


def _id_in(text: str) -> str | None:
    """The agent's id in the line that the client adds to a result."""
    for line in text.splitlines():
        if line.startswith(("agentId:", "agent_id:")) and len(line.split()) > 1:
            return line.split()[1]
    return None


def _is_clients(record: dict[str, Any]) -> bool:
    return bool(record.get("isMeta") or record.get("isCompactSummary") or record.get("isVisibleInTranscriptOnly"))


def _is_human(text: str) -> bool:
    return bool(text.strip()) and not text.lstrip().startswith(_NOT_HUMAN)


def _is_queued_prompt(record: dict[str, Any]) -> bool:
    inside = record.get("attachment")
    if not isinstance(inside, dict) or inside.get("type") != "queued_command":
        return False
    prompt = inside.get("prompt")
    return isinstance(prompt, (str, list)) and _is_human(_words(prompt))
