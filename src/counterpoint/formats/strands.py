"""Strands Agents: sessions of files, snapshots, runs of graphs and swarms, and lists of messages.

| record | becomes |
|---|---|
| message of the user | `human_intervention`; `tool_result` for each `toolResult` in it |
| message of the assistant | `orchestrator_decision`, and a `tool_call` for each `toolUse` |
| node of a graph or a swarm (`multi_agent.json`) | a step of its agent, heard by all |

A session is `session_<id>/` with `agents/agent_<id>/messages/message_<n>.json`. An agent whose first words are what a tool of its
name was asked is that call's sub-agent: this is inferred, as sessions do not state it.

Tokens: `metadata.usage` of a message, in which the total says whether the cache stands beside the input. Older versions keep
none.

What is lost: the system prompt, states of agents, images and documents (counted in `left_out`).

Always true: a message that was redacted is read as what stands for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Call, Turn, put_down
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, seconds, string, text_of
from counterpoint.trace import Trace

_PLACE = re.compile(r"^((?:.*/)?session_[^/]+)/(?:session|agents/agent_([^/]+)/|multi_agents/)")
_NUMBER = re.compile(r"message_(\d+)\.json$")
_MESSAGE = {"message", "message_id", "created_at"}
_AGENT = {"agent_id", "state", "conversation_manager_state"}
_RUN = {"type", "status", "node_results"}
_KNOWN = frozenset({"text", "toolUse", "toolResult", "reasoningContent", "citationsContent", "guardContent", "cachePoint"})
_MEDIA = frozenset({"image", "document", "video", "audio"})
_RULE = "a tool of the agent's name, asked what the agent was told"


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if keys.keys() >= _MESSAGE:
        return b'"role"' in head and b'"content"' in head
    if keys.keys() >= _AGENT or keys.keys() >= {"session_id", "session_type", "created_at"}:
        return True
    if keys.keys() >= _RUN:
        return b'"current_task"' in head or b'"execution_order"' in head or b'"node_history"' in head
    if keys.keys() >= {"scope", "schema_version", "data"}:
        return keys["scope"].startswith(b'"agent"')
    return {"role", "content"} <= keys.keys() and b'"toolUse"' in head and b'"toolUseId"' in head


def _group(files: Sequence[File]) -> Iterable[Session]:
    groups: dict[str, list[File]] = {}
    for file in files:
        match = _PLACE.match(file.name)
        groups.setdefault(match[1] if match else file.name, []).append(file)
    return [Session(name, sorted(some, key=_order)) for name, some in groups.items()]


def _order(file: File) -> tuple[str, int, str]:
    """Messages by their number: 10 comes after 9."""
    match = _NUMBER.search(file.name)
    return file.name.rpartition("/")[0], int(match[1]) if match else -1, file.name


def _read(session: Session) -> Iterator[Trace]:
    reader = _Reader(session)
    for file in session.files:
        place = _PLACE.match(file.name)
        for value in session.documents(file):
            reader.document(value, place[2] if place else None)
    require_half(session.files[0].name, reader.blocks, reader.unknown)
    session.report.unknown.update(reader.unknown)
    yield from reader.traces()


class _Reader:
    """One session on its way to traces."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.name = session.key.rsplit("/", 1)[-1].removeprefix("session_") if _PLACE.match(f"{session.key}/session") else None
        self.dialogues: dict[str, Dialogue] = {}
        self.runs: list[dict[str, Any]] = []
        self.said: list[Any] = []
        """All that was read, which names a session without an id."""
        self.blocks = 0
        self.unknown: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()

    def document(self, value: Any, agent: str | None) -> None:
        """Take in what one file holds."""
        got = as_dict(value)
        if got.keys() >= _MESSAGE:
            self._message(as_dict(got.get("redact_message")) or as_dict(got["message"]), agent, got)
        elif got.keys() >= _RUN:
            self.runs.append(got)
        elif "session_type" in got:
            self.name = string(got.get("session_id")) or self.name
        elif "role" in got:
            self._message(got, agent, {})
        elif not got.keys() >= _AGENT:
            messages = value if isinstance(value, list) else as_list(as_dict(got.get("data")).get("messages"))
            for message in map(as_dict, messages):
                self._message(message, agent, {})

    def _message(self, message: dict[str, Any], agent: str | None, about: dict[str, Any]) -> None:
        agent = agent or MAIN
        dialogue = self.dialogues.setdefault(agent, Dialogue(agent, role=agent if agent != MAIN else None))
        name = f"{agent}:{len(dialogue.entries)}" if agent != MAIN else f"m{len(dialogue.entries)}"
        self.said.append(message)
        role, at, known = string(message.get("role")), seconds(about.get("created_at")), as_dict(message.get("metadata"))
        entry = Entry("assistant" if role == "assistant" else "user", id=name, at=at)
        if role not in ("user", "assistant"):
            self.blocks += 1
            self.unknown[f"message of role {message.get('role')}"] += 1
            return
        for block in map(as_dict, as_list(message.get("content"))):
            self._block(block, entry)
        entry.extra = {"is_redacted": True} if about.get("redact_message") else {}
        if role == "assistant":
            entry.usage = _usage(known.get("usage"))
            entry.model = string(known.get("model_id")) or string(known.get("modelId"))
        elif entry.answers and not entry.text:
            entry.role = "tool"
        dialogue.entries.append(entry)

    def _block(self, block: dict[str, Any], entry: Entry) -> None:
        self.blocks += 1
        if not block.keys() & (_KNOWN | _MEDIA):
            self.unknown[f"block with {', '.join(sorted(block)[:2])}"] += 1
        self.left_out.update(block.keys() & _MEDIA)
        text = text_of(block.get("text") or as_dict(block.get("citationsContent")).get("content") or "")
        guarded = text_of(as_dict(as_dict(block.get("guardContent")).get("text")).get("text") or "")
        entry.text = "\n".join(filter(None, (entry.text, text, guarded)))
        thought = text_of(as_dict(as_dict(block.get("reasoningContent")).get("reasoningText")).get("text") or "")
        entry.thinking = "\n".join(filter(None, (entry.thinking, thought)))
        if use := as_dict(block.get("toolUse")):
            entry.calls.append(Call(string(use.get("toolUseId")), string(use.get("name")) or "unnamed", use.get("input")))
        if result := as_dict(block.get("toolResult")):
            text = "\n".join(filter(None, (_said(part) for part in map(as_dict, as_list(result.get("content"))))))
            ok = {"success": True, "error": False}.get(str(result.get("status")))
            error = (text[:500] or "error") if ok is False else None
            entry.answers.append(Answer(text, string(result.get("toolUseId")), ok=ok, error=error, at=entry.at))

    def traces(self) -> Iterator[Trace]:
        name = self.name or f"strands-{run_of(self.said[0] if self.said else self.runs)}"
        if self.dialogues:
            yield from self._conversation(name)
        for k, run in enumerate(self.runs):
            yield from self._run(f"{name}-{string(run.get('id')) or k}" if self.dialogues or k else name, run)

    def _conversation(self, name: str) -> Iterator[Trace]:
        draft = self.session.draft(name, name, system="strands")
        dialogues = sorted(self.dialogues.values(), key=lambda d: next((e.at for e in d.entries if e.at is not None), 0.0))
        for child in dialogues:
            _link(child, dialogues)
        main = next((d for d in dialogues if d.call is None), dialogues[0])
        main.agent, main.call = MAIN, None
        play(draft, [main, *(d for d in dialogues if d is not main)])
        draft.lane(MAIN).stops()
        if self.left_out:
            draft.meta["left_out"] = dict(sorted(self.left_out.items()))
        yield from draft.traces()

    def _run(self, name: str, run: dict[str, Any]) -> Iterator[Trace]:
        """A graph or a swarm: its nodes in the order in which they ran; of one that ran again the last result is kept."""
        draft = self.session.draft(name, name, system="strands")
        results = as_dict(run.get("node_results"))
        order = [n for n in as_list(run.get("execution_order") or run.get("node_history")) if isinstance(n, str) and n in results]
        turns, failed = [], {}
        for node in dict.fromkeys([*reversed(order), *results]):
            result = as_dict(results[node])
            inner = as_dict(result.get("result"))
            text = _words(as_dict(inner.get("message"))) or text_of(inner.get("message") or "")
            turns.append(Turn(node, text, usage=_usage(result.get("accumulated_usage"))))
            if result.get("status") == "failed" or inner.get("type") == "exception":
                failed[node] = text or "failed"
        ran = list(dict.fromkeys(reversed(order)))[::-1]
        turns.sort(key=lambda turn: ran.index(turn.speaker) if turn.speaker in ran else len(ran))
        put_down(draft, turns, task=_task(run.get("current_task")))
        for k, turn in enumerate(turns):
            if turn.speaker in failed:
                draft.set(f"s{k}", ok=False, error=failed[turn.speaker][:500])
        repeated = len(order) - len(set(order))
        if repeated:
            draft.report.lacks["what a node said when it ran before: only its last result is kept"] += repeated
        draft.meta["run"] = {k: run[k] for k in ("type", "id", "status", "execution_order") if run.get(k)}
        yield from draft.traces()


def _link(child: Dialogue, dialogues: Sequence[Dialogue]) -> None:
    """Find the call that made an agent: of a tool that has its name, with the words that it begins with."""
    first = next((e.text for e in child.entries if e.role == "user" and e.text), None)
    calls = (c for d in dialogues if d is not child for e in d.entries for c in e.calls if c.tool == child.agent and c.id)
    match = next((c for c in calls if first and first in [v for v in as_dict(c.arguments).values() if isinstance(v, str)]), None)
    if match is not None:
        child.call, child.rule, child.is_exact = match.id, _RULE, False


def _said(part: dict[str, Any]) -> str:
    return compact(part["json"]) if "json" in part else text_of(part.get("text") or "")


def _words(message: dict[str, Any]) -> str:
    return "\n".join(filter(None, (text_of(as_dict(b).get("text") or "") for b in as_list(message.get("content")))))


def _task(task: Any) -> str:
    return task if isinstance(task, str) else _words({"content": task})


def _usage(raw: Any) -> Usage | None:
    got = as_dict(raw)
    fresh, out, total = count(got.get("inputTokens")), count(got.get("outputTokens")), count(got.get("totalTokens"))
    if fresh is None and out is None:
        return None
    read, wrote = count(got.get("cacheReadInputTokens")) or 0, count(got.get("cacheWriteInputTokens")) or 0
    fresh, out = fresh or 0, out or 0
    is_inside = read + wrote <= fresh and total is not None and total < fresh + out + read + wrote
    return Usage(fresh - read - wrote if is_inside else fresh, read, wrote, out)


strands = Importer(
    suffixes=(".strands.json",),
    sniff=_sniff,
    signs=("message", "message_id", "redact_message", "toolUse", "toolResult", "toolUseId", "conversation_manager_state"),
    system="strands",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "message of the user": ("human_intervention", "tool_result", "return"),
        "message of the assistant": ("orchestrator_decision", "aggregate", "message", "tool_call", "spawn"),
        "multi_agent.json": ("human_intervention", "message", "tokens_in", "tokens_out", "meta"),
    },
    lost="the system prompt, states of agents, images and documents; what a node of a graph said before its last run",
    versions="sessions of strands-agents 1.0 to 1.62, snapshots 1.0",
    exact="tokens (since messages keep them), tools, errors, times of messages",
)
"""Sessions of Strands Agents."""
