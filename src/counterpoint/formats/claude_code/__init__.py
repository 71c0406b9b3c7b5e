"""Claude Code transcripts: every layout from inline sidechains (1.0) to subagents/ files, teams and workflows.

This module finds the files of a session, and `several.py` the sessions in a file that holds more than one. `conversation.py`
reads them and says which call made which sub-agent, and `transcript.py` puts the conversations down as events.

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

Always true: the files of a session make one trace, and its id is the session's; records of sessions that have nothing to do with
each other are not mixed, whatever file they stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from counterpoint.errors import InputError
from counterpoint.formats.claude_code.conversation import Conversation, Conversations, SpawnLinks, workflow_agents
from counterpoint.formats.claude_code.export import as_lines, is_export
from counterpoint.formats.claude_code.several import SeenRecords, parts_of
from counterpoint.formats.claude_code.transcript import Transcript, client_role
from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.dialogue import require_half
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import as_dict, count, decode, seconds, string
from counterpoint.trace import Trace
from counterpoint.trace.keys import RESUMED_FROM

_AGENT = re.compile(r"(?:^|/)(?:sub)?agent-([A-Za-z0-9_-]+)\.jsonl$")
_META = re.compile(r"(?:^|/)agent-[A-Za-z0-9_-]+\.meta\.json$")
_UNDER = re.compile(r"(?:^|/)([^/]+)/(?:subagents|workflows)/")
_RUN = re.compile(r"/subagents/workflows/([^/]+)/")
_SNAPSHOT = re.compile(r"/workflows/([^/]+)\.json$")
_TYPES = {"assistant", "user", "system", "attachment", "progress", "summary", "file-history-snapshot", "queue-operation"}
_NOTES = {"ai-title", "custom-title", "agent-name", "mode", "permission-mode", "last-prompt", "pr-link", "started", "result"}
_SESSION = re.compile(rb'"sessionId"\s*:\s*"([^"]+)"')
_UUID = re.compile(rb'"uuid"\s*:\s*"([^"]+)"')
_TEAM = re.compile(rb'"team_?[nN]ame"\s*:\s*"([^"\\]+)"')
_FOREIGN = re.compile(rb'"parts"\s*:\s*\[')
_BLOCK = 1 << 20
_BLOCKS = frozenset({"text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image"})
_PRINTED = frozenset({"session_id", "parent_tool_use_id"})
_COPY_OF = re.compile(rb'"forkedFrom"\s*:\s*\{[^{}]*"messageUuid"\s*:\s*"([^"]+)"')
_TIME = re.compile(rb'"timestamp"\s*:\s*"([^"]+)"')


def _sniff(head: bytes) -> bool:
    """Lines of objects with Claude Code's types; one must be a conversation's, with a session and a uuid, or with blocks."""
    if is_export(head):
        return True
    lines = head.split(b"\n")
    for k, line in enumerate(lines[:50]):
        if not line.strip() or (k == len(lines) - 1 and k > 0):
            continue
        try:
            record = decode(line)
        except InputError:
            is_foreign = _FOREIGN.search(line) is not None
            if (
                k == 0
                and not is_foreign
                and _SESSION.search(line)
                and (b'"parentUuid"' in line or b'"isSidechain"' in line or _UUID.search(line))
            ):
                return True  # one record longer than the head
            continue
        if not isinstance(record, dict):
            continue  # counted as broken when it is read, like a line that is not JSON
        if not isinstance(record.get("type"), str) or "systemPayload" in record or "parts" in as_dict(record.get("message")):
            return False  # Qwen Code has the same envelope around contents in Google's form
        if record["type"] in _TYPES and "sessionId" in record and ("uuid" in record or "operation" in record):
            return True
        if record["type"] in ("started", "result") and "agentId" in record and "key" in record:
            return True  # a workflow's journal
        if _is_bare(record):
            return True
        if record["type"] not in _TYPES | _NOTES:
            return False
    return False


def _is_bare(record: dict[str, Any]) -> bool:
    """Whether a record without ids is a conversation's: a message in Anthropic's form under type and time."""
    message, kind = as_dict(record.get("message")), record["type"]
    if message.get("role") != kind or seconds(string(record.get("timestamp"))) is None or record.keys() & _PRINTED:
        return False
    content = message.get("content")
    if isinstance(content, str):
        return string(record.get("sessionId")) is not None
    return isinstance(content, list) and any(string(as_dict(block).get("type")) in _BLOCKS for block in content)


def _sidecar(name: str) -> bool:
    return bool(_META.search(name) or (_SNAPSHOT.search(name) and "/subagents/" not in name and _UNDER.search(name)))


class _Scan(NamedTuple):
    """What all records of a transcript say about whose it is: nothing here stands at the head of a file alone."""

    session: str | None
    root: bytes | None
    """The uuid of its first record, or of the one that this is a copy of."""
    teams: frozenset[str]
    """The teams that it belongs to or makes."""
    mate: str | None
    """`name@team` of the teammate whose transcript it is; None for a lead and for a session without a team."""
    first: float | None
    last: float | None
    named: frozenset[bytes] = frozenset()
    """Every session that its text names, also deep inside a record."""
    is_fork: bool = False
    """Whether its first record says that it is a copy."""


def _root_of(block: bytes) -> tuple[bytes, bool] | None:
    """The uuid of the first record that has one, and whether that is a copy: a fork names the records that it copied."""
    own = _UUID.search(block)
    if own is None:
        return None
    start, end = block.rfind(b"\n", 0, own.start()) + 1, block.find(b"\n", own.end())
    copied = _COPY_OF.search(block, start, len(block) if end < 0 else end)
    return (copied or own)[1], copied is not None


@lru_cache(maxsize=8192)
def _scan(file: File) -> _Scan:
    session = root = first = last = None
    teams: set[str] = set()
    named: set[bytes] = set()
    mate: str | None = None
    rest = b""
    try:
        with file.unpacked() as stream:
            while data := stream.read(_BLOCK):
                block, newline, rest = (rest + data).rpartition(b"\n")
                if not newline:
                    continue
                session, root = session or _SESSION.search(block), root or _root_of(block)
                first, last = first or _TIME.search(block), _last_time(block) or last
                named.update(_SESSION.findall(block))
                if b'"team' in block and (b'"teamName"' in block or b'"team_name"' in block):
                    mate = _read_teams(block, teams) or mate
    except (InputError, OSError, EOFError, ValueError):
        pass
    if rest:
        session, root = session or _SESSION.search(rest), root or _root_of(rest)
        first, last = first or _TIME.search(rest), _last_time(rest) or last
        named.update(_SESSION.findall(rest))
        mate = mate or _read_teams(rest, teams)
    times = [seconds(match[1].decode("ascii", "replace")) if match else None for match in (first, last)]
    root_id, is_fork = root or (None, False)
    return _Scan(_words(session), root_id, frozenset(teams), mate, times[0], times[1], frozenset(named), is_fork)


def _last_time(block: bytes) -> re.Match[bytes] | None:
    at = block.rfind(b'"timestamp"')
    return _TIME.match(block, at) if at >= 0 else None


def _read_teams(block: bytes, teams: set[str]) -> str | None:
    """Adds the teams that some lines name; the teammate whose lines they are."""
    mate = None
    for line in block.split(b"\n"):
        if b'"teamName"' in line or b'"team_name"' in line:
            teams.update(name.decode("utf-8", "replace") for name in _TEAM.findall(line))
            mate = mate or _mate_in(line)
    return mate


def _mate_in(line: bytes) -> str | None:
    """The teammate that a record is of: it names itself and its team."""
    if b'"agentName"' not in line:
        return None
    try:
        record = as_dict(decode(line))
    except InputError:
        return None
    name, team = string(record.get("agentName")), string(record.get("teamName"))
    return f"{name}@{team}" if name and team and name != "team-lead" else None


def _group(files: Sequence[File]) -> Iterable[Session]:
    """Files of one session: the transcript, its sub-agents beside or below it, sidecars. Teammates join their lead, and a
    resumed session the one whose records it copied, so that nothing counts twice."""
    by_key: dict[tuple[str, str], list[File]] = {}
    for file in (part for whole in files for part in _parts(as_lines(whole))):
        by_key.setdefault(_session_of(file), []).append(file)
    scans = {key: [_scan(f) for f in files_here if _is_main(f)] for key, files_here in by_key.items()}
    mates = {key: next(s for s in files_here if s.mate) for key, files_here in scans.items() if any(s.mate for s in files_here)}
    leads = {key: s for key, files_here in scans.items() if key not in mates for s in files_here if s.teams}
    first_of: dict[tuple[str, object], tuple[str, str]] = {}
    home = {key: key for key in by_key}
    for key in sorted(by_key):
        for files_here in scans[key] if key not in mates else ():
            if files_here.root:
                home[key] = home[first_of.setdefault((key[0], files_here.root), key)]
    for key in sorted(mates):
        lead = _lead_of(mates[key], key[0], leads)
        home[key] = home[lead] if lead else first_of.setdefault((key[0], mates[key].teams), key)
    together: dict[tuple[str, str], list[File]] = {}
    for key, found_files in by_key.items():
        together.setdefault(home[key], []).extend(found_files)
    for key in sorted(together):
        yield Session(key[1], sorted(together[key], key=lambda f: f.name))


def _parts(file: File) -> list[File]:
    """A transcript, or the sessions that somebody put into one file."""
    return parts_of(file) if _is_main(file) and len(_scan(file).named) > 1 else [file]


def _lead_of(mate: _Scan, folder: str, leads: Mapping[tuple[str, str], _Scan]) -> tuple[str, str] | None:
    """The session that leads a teammate: of the same team, running when the teammate began; near it before far from it."""
    same = [(key, lead) for key, lead in leads.items() if lead.teams & mate.teams]
    same.sort(key=lambda row: (row[0][0] != folder, not _ran(row[1], mate.first), row[0]))
    best = next(iter(same), None)
    if best is None or (best[0][0] != folder and not _ran(best[1], mate.first)):
        return None  # a team of that name somewhere else, at another time
    return best[0]


def _ran(lead: _Scan, at: float | None) -> bool:
    return None not in (lead.first, lead.last, at) and lead.first - 60 <= at <= lead.last + 60  # type: ignore[operator]


def _is_main(file: File) -> bool:
    """Whether a file is a transcript of its own rather than part of one."""
    return not (_AGENT.search(file.name) or _UNDER.search(file.name) or _META.search(file.name))


def _session_of(file: File) -> tuple[str, str]:
    """The folder of the project and the id of the session that a file belongs to."""
    if file.part:
        return file.name.rsplit("/", 1)[0] if "/" in file.name else "", file.part
    if under := _UNDER.search(file.name):
        return file.name[: under.start(1)].rstrip("/"), under[1]
    folder = file.name.rsplit("/", 1)[0] if "/" in file.name else ""
    if _AGENT.search(file.name) or not re.fullmatch(r"[0-9a-f]{8}-[0-9a-f-]{27}", file.stem):
        return folder, _words(_SESSION.search(file.head())) or _scan(file).session or file.stem
    return folder, file.stem


def _words(match: re.Match[bytes] | None) -> str | None:
    return match[1].decode("utf-8", "replace") if match else None


def _read(session: Session) -> Iterator[Trace]:
    parts: dict[str, list[File]] = {}
    for file in session.files:
        parts.setdefault(_session_of(file)[1], []).append(file)
    mates = {key: mate for key, files in parts.items() for f in files if _is_main(f) and (mate := _scan(f)).mate}
    mains = {key: [f for f in files if _is_main(f)] for key, files in parts.items()}
    sizes = {key: (any(_scan(f).is_fork for f in files), sum(f.size for f in files)) for key, files in mains.items()}
    own = sorted((key for key in parts if key not in mates), key=lambda k: (sizes[k], k))
    if not own:  # the lead's own transcript is not here
        own = [min(mates)]
    leads = {("", k): s for k in own for f in parts[k] if _is_main(f) and k not in mates and (s := _scan(f)).teams}
    led: dict[str, list[File]] = {}
    for key, mate in mates.items():
        lead = (_lead_of(mate, "", leads) or ("", own[0]))[1]
        led.setdefault(lead, []).extend(parts[key])
    seen = SeenRecords()
    before = None
    for key in own:
        files = [f for f in parts[key] if key not in mates]
        draft = _draft(session, key or "session", files, led.get(key, []), seen)
        require_half(key, session.report.records, session.report.unknown)
        seen.let_go(more_come=key != own[-1])  # the records themselves are not needed to make the trace
        for trace in draft.traces():
            # A resumed session copies the records of the first, the smaller, and a fork says so: here are those it added.
            if before is not None:
                trace.meta[RESUMED_FROM] = before
            before = trace.trace_id
            yield trace


def _draft(session: Session, key: str, files: Sequence[File], mates: Sequence[File], seen: SeenRecords) -> Draft:
    """The trace to be of a session, with the transcripts of its teammates and of all their sub-agents."""
    conversations = Conversations(session, seen)
    own, runs = _agents_of(session, conversations, [*files, *mates])
    for file in files:
        if _is_main(file):
            conversations.read(file, conversations.main)
    for file in mates:
        if _is_main(file):
            conversations.read(file, _teammate(conversations, file))
    for file, conversation in own:
        conversations.read(file, conversation)
    draft = session.draft(key, key, system="claude-code")
    if mates and not any(_is_main(f) for f in files):
        draft.report.lacks["the transcript of the team's lead"] += 1
    links = SpawnLinks(conversations, draft.report)
    transcript = Transcript(links, draft, workflow_agents(session, links, runs))
    transcript.play()
    draft.lane("main").stops()
    if conversations.copied:
        draft.report.mended["copied records"] += conversations.copied
    left_out = {**conversations.notes, **transcript.left_out}
    draft.meta = {**conversations.about(), "left_out": left_out}
    return draft


def _agents_of(
    session: Session, conversations: Conversations, files: Sequence[File]
) -> tuple[list[tuple[File, Conversation]], dict[str, list[str]]]:
    """The sub-agents' own files, each behind those that it may begin with a copy of; and which belong to which workflow run.

    A fork and the client's own agents, such as the one that sums up, begin with a copy of what they were made in.
    """
    sidecars = {f.name: f for f in session.files if _META.search(f.name)}
    own: list[tuple[File, Conversation]] = []
    runs: dict[str, list[str]] = {}
    for file in files:
        match, run = _AGENT.search(file.name), _RUN.search(file.name)
        if run is not None:
            runs.setdefault(run[1], []).extend([match[1]] if match else [])
        if match is None:
            continue
        conversation = conversations.other(match[1], "file")
        sidecar = sidecars.get(file.name.removesuffix(".jsonl") + ".meta.json")
        if sidecar is not None:
            conversation.about = as_dict(session.document(sidecar))
            conversation.tool_use = string(conversation.about.get("toolUseId"))
            conversation.role = string(conversation.about.get("agentType"))
            conversation.name = string(conversation.about.get("description"))
        own.append((file, conversation))
    own.sort(key=lambda one: (client_role(one[1].agent) is not None, count(one[1].about.get("spawnDepth")) or 0))
    return own, runs


def _teammate(conversations: Conversations, file: File) -> Conversation:
    """The conversation of a teammate."""
    mate = _scan(file).mate
    conversation = conversations.other(mate or file.stem, "file")
    conversation.name = conversation.name or (mate.partition("@")[0] if mate else None)
    return conversation


claude_code = Importer(
    system="claude-code",
    suffixes=(".jsonl",),
    sniff=_sniff,
    signs=("sessionId", "uuid", "parentUuid", "type", "message", "timestamp"),
    sidecar=_sidecar,
    group=_group,
    read_session=_read,
    becomes={
        "assistant": ("orchestrator_decision", "aggregate", "message", "spawn", "tool_call", "return", "despawn"),
        "user": ("human_intervention", "tool_result", "return", "message", "safety_event"),
        "system": ("safety_event", "message"),
        "attachment": ("message", "human_intervention", "return", "safety_event"),
        "progress": ("message", "tool_call", "tool_result"),
    },
    versions="1.0.98 to 2.1.219, records without ids",
    exact="tokens, sub-agents, calls",
    lost="when a call began, encrypted thinking, pictures, deleted transcripts, true outputs in older logs",
)
