"""Claude Code transcripts: every layout from inline sidechains (1.0) to subagents/ files, teams and workflows.

This module finds the files of a session. `conversation.py` reads them, `spawns.py` says which call made which sub-agent, and
`transcript.py` puts the conversations down as events.

| record | becomes |
|---|---|
| assistant message (its records merged by message id) | orchestrator_decision or aggregate; a sub-agent's message |
| Task or Agent call | spawn, to the agent id that sidecar, result, progress or notification states, else by equal prompt |
| a sub-agent's last words, with the call's result or task notification | return, read by the parent's next step |
| SendMessage, teammate-message | message between agents |
| TaskStop, a teammate's termination | despawn |
| every other tool call and result | tool_call, tool_result (from outside the team) |
| human text, interruption, a denied call | human_intervention, and safety_event for the denial |
| refusal fallback, a hook that blocks | safety_event |
| memory files, compaction summaries, hook and client text | message from `memory` or `system` |

Only the end of a model call is recorded: it is taken to begin when the last thing it read came in. Tokens are counted once
per API message; a sub-agent's own `totalTokens` is only its last request, and is kept in `extra`.

What is lost: client bookkeeping (titles, modes, queues, snapshots, reminders: counted in `left_out`), images, overflowed tool
outputs in tool-results/, the thinking that the vendor encrypts.

Always true: the files of a session make one trace, and its id is the session's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from counterpoint.errors import InputError
from counterpoint.formats.claude_code.conversation import Conversations, SpawnLinks, workflow_agents
from counterpoint.formats.claude_code.transcript import Transcript
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import as_dict, decode, string
from counterpoint.trace import Trace

_AGENT = re.compile(r"(?:^|/)agent-([A-Za-z0-9_-]+)\.jsonl$")
_META = re.compile(r"(?:^|/)agent-[A-Za-z0-9_-]+\.meta\.json$")
_UNDER = re.compile(r"(?:^|/)([^/]+)/(?:subagents|workflows)/")
_RUN = re.compile(r"/subagents/workflows/([^/]+)/")
_SNAPSHOT = re.compile(r"/workflows/([^/]+)\.json$")
_TYPES = {"assistant", "user", "system", "attachment", "progress", "summary", "file-history-snapshot", "queue-operation"}
_NOTES = {"ai-title", "custom-title", "agent-name", "mode", "permission-mode", "last-prompt", "pr-link", "started", "result"}
_SESSION = re.compile(rb'"sessionId"\s*:\s*"([^"]+)"')
_UUID = re.compile(rb'"uuid"\s*:\s*"([^"]+)"')
_TEAM = re.compile(rb'"teamName"\s*:\s*"([^"]+)"')
_NAME = re.compile(rb'"agentName"\s*:\s*"([^"]+)"')


def _sniff(head: bytes) -> bool:
    """Lines of objects with Claude Code's types; one must be a conversation's, with a session and a uuid."""
    lines = head.split(b"\n")
    for k, line in enumerate(lines[:50]):
        if not line.strip() or (k == len(lines) - 1 and k > 0):
            continue
        try:
            record = decode(line)
        except InputError:
            if k == 0 and _SESSION.search(line) and (b'"parentUuid"' in line or b'"isSidechain"' in line or _UUID.search(line)):
                return True  # one record longer than the head
            continue
        if not isinstance(record, dict) or not isinstance(record.get("type"), str):
            return False
        if record["type"] in _TYPES and "sessionId" in record and ("uuid" in record or "operation" in record):
            return True
        if record["type"] in ("started", "result") and "agentId" in record and "key" in record:
            return True  # a workflow's journal
        if record["type"] not in _TYPES | _NOTES:
            return False
    return False


def _sidecar(name: str) -> bool:
    return bool(_META.search(name) or (_SNAPSHOT.search(name) and "/subagents/" not in name and _UNDER.search(name)))


def _group(files: Sequence[File]) -> Iterable[Session]:
    """Files of one session: the transcript, its sub-agents beside or below it, sidecars. Teammates join their lead, and a
    resumed session the one whose records it copied, so that nothing counts twice."""
    by_key: dict[tuple[str, str], list[File]] = {}
    for file in files:
        by_key.setdefault(_session_of(file), []).append(file)
    joined: dict[tuple[str, str, bytes], tuple[str, str]] = {}
    for key in sorted(by_key):
        first = key
        for file in by_key[key]:
            if not _is_main(file):
                continue
            head = file.head()
            for kind, found in (("team", _TEAM.search(head)), ("root", _UUID.search(head))):
                if found:
                    first = joined.setdefault((key[0], kind, found[1]), first)
        if first != key:
            by_key[first] += by_key.pop(key)
    for key in sorted(by_key):
        yield Session(key[1], sorted(by_key[key], key=lambda f: f.name))


def _is_main(file: File) -> bool:
    """Whether a file is a transcript of its own rather than part of one."""
    return not (_AGENT.search(file.name) or _UNDER.search(file.name) or _META.search(file.name))


def _session_of(file: File) -> tuple[str, str]:
    """The folder of the project and the id of the session that a file belongs to."""
    if under := _UNDER.search(file.name):
        return file.name[: under.start(1)].rstrip("/"), under[1]
    folder = file.name.rsplit("/", 1)[0] if "/" in file.name else ""
    if _AGENT.search(file.name) or not re.fullmatch(r"[0-9a-f]{8}-[0-9a-f-]{27}", file.stem):
        found = _SESSION.search(file.head())
        return folder, _words(found) or file.stem
    return folder, file.stem


def _words(found: re.Match[bytes] | None) -> str | None:
    return found[1].decode("utf-8", "replace") if found else None


def _read(session: Session) -> Iterator[Trace]:
    parts: dict[str, list[File]] = {}
    lead = None
    for file in session.files:
        key = _session_of(file)[1]
        if _is_main(file) and _teammate(file) is None:
            lead = lead or key
        parts.setdefault(key, []).append(file)
    teammates = [f for f in session.files if _is_main(f) and _teammate(f) is not None]
    seen: set[str] = set()
    before = None
    for key in sorted(parts, key=lambda k: (sum(f.size for f in parts[k] if _is_main(f)), k)):
        mates = teammates if key == lead else []
        own = [f for f in parts[key] if f not in teammates or lead is None]
        for trace in _trace(session, key or "session", own, mates, seen) if own or mates else ():
            # A resumed session copies the records of the first, which is the smaller: here are those it added.
            if before is not None:
                trace.meta["resumed_from"] = before
            before = trace.trace_id
            yield trace


def _trace(session: Session, key: str, files: Sequence[File], mates: Sequence[File], seen: set[str]) -> Iterator[Trace]:
    conversations = Conversations(session, seen)
    runs = _read_agents(session, conversations, files)
    for file in files:
        if _is_main(file):
            conversations.read(file, conversations.main)
    for file in mates:
        conversations.read(file, conversations.other(_teammate(file) or file.stem, "file"))
    draft = session.draft(key, key, system="claude-code")
    links = SpawnLinks(conversations, draft.report)
    transcript = Transcript(links, draft, workflow_agents(session, links, runs))
    transcript.play()
    draft.lane("main").stops()
    if conversations.copied:
        draft.report.mended["copied records"] += conversations.copied
    left_out = {**conversations.notes, **transcript.left_out}
    draft.meta = {**conversations.about(), "left_out": left_out}
    yield from draft.traces()


def _read_agents(session: Session, conversations: Conversations, files: Sequence[File]) -> dict[str, list[str]]:
    """The sub-agents' own files; and which of them belong to which workflow run."""
    sidecars = {f.name: f for f in session.files if _META.search(f.name)}
    runs: dict[str, list[str]] = {}
    for file in files:
        found = _AGENT.search(file.name)
        if found is None:
            continue
        conversation = conversations.other(found[1], "file")
        sidecar = sidecars.get(file.name.removesuffix(".jsonl") + ".meta.json")
        if sidecar is not None:
            conversation.about = as_dict(session.document(sidecar))
            conversation.tool_use = string(conversation.about.get("toolUseId"))
            conversation.role = string(conversation.about.get("agentType"))
            conversation.name = string(conversation.about.get("description"))
        conversations.read(file, conversation)
        if run := _RUN.search(file.name):
            runs.setdefault(run[1], []).append(found[1])
    return runs


def _teammate(file: File) -> str | None:
    """`name@team` of a teammate's own transcript; the lead's has no agent name."""
    head = file.head()
    name, team = _words(_NAME.search(head)), _words(_TEAM.search(head))
    return f"{name}@{team}" if name and team and name != "team-lead" else None


claude_code = Importer(
    system="claude-code",
    suffixes=(".jsonl",),
    sniff=_sniff,
    signs=("sessionId", "uuid", "parentUuid", "type", "message", "timestamp"),
    sidecar=_sidecar,
    group=_group,
    read_session=_read,
    columns={
        "assistant": ("orchestrator_decision", "aggregate", "message", "spawn", "tool_call", "return", "despawn"),
        "user": ("human_intervention", "tool_result", "return", "message", "safety_event"),
        "system": ("safety_event", "message"),
        "attachment": ("message", "human_intervention", "return", "safety_event"),
        "progress": ("message", "tool_call", "tool_result"),
    },
    lost="client bookkeeping (counted), images, overflowed tool outputs, encrypted thinking",
)
