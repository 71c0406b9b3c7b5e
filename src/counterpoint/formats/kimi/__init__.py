"""Kimi CLI and Kimi Code sessions: wires, contexts, sub-agents and Agent Swarms.

`cli.py` reads a session of Kimi CLI (`wire.jsonl`, `context.jsonl` and a folder `subagents`), `code.py` one of Kimi Code
(`agents/*/wire.jsonl` and `state.json`, which alone says who made whom). Both give one story per agent (`story.py`), and
`session_draft.py` puts the stories down as events.

Prompts become human interventions; steps become orchestrator decisions (of the main agent and of those that make others) or
messages; tool calls and results stay what they are; `Agent` calls become spawns and their answers returns; an `AgentSwarm`
call becomes one spawn and one return for each sub-agent and an aggregate; approvals become human interventions, refusals and
blocking hooks safety events.

What is lost: images and other attachments, the display of tools, modes (plan, swarm, tower), the tokens of Kimi CLI's
compactions and its models, which it does not write down.

Always true: tokens stand on the step that spent them, once, whichever records repeat them; input is uncached + read +
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import HEAD, File
from counterpoint.formats.importing.values import as_dict, decode, number, string
from counterpoint.formats.kimi.cli import WIRE_TYPES, read_cli
from counterpoint.formats.kimi.code import is_code_type, read_code
from counterpoint.formats.kimi.session_draft import tell
from counterpoint.formats.kimi.story import MAIN, Story, answered
from counterpoint.trace import Trace

_SCANNED = 40
_CLI, _CODE = "cli", "code"
_TORN = (
    (re.compile(rb'\s*\{\s*"timestamp":\s*[\d.]+,\s*"message":\s*\{\s*"type":\s*"(\w+)"'), _CLI),
    (re.compile(rb'\s*\{\s*"role":\s*"_(system_prompt|checkpoint|usage)"'), _CLI),
    (re.compile(rb'\s*\{[^[]*"agents":\s*\{\s*"[^"]+":\s*\{[^{}]*"(parentAgentId|homedir)"'), _CODE),
)
"""How files begin whose first record is longer than the head."""
_CLI_FILE = re.compile(r"^(?:(?P<root>.*)/)?(?P<place>subagents/[^/]+/(?:wire|context)\.jsonl|subagents/[^/]+/meta\.json)$")
_CODE_FILE = re.compile(r"^(?:(?P<root>.*)/)?(?P<place>agents/[^/]+/wire\.jsonl)$")
_BY_PLACE = re.compile(r"(?:^|/)subagents/[^/]+/(?:prompt\.txt|output)$")
_OF_PLACE = re.compile(r"^(?:(?P<root>.*)/)?(?P<place>subagents/[^/]+/(?:prompt\.txt|output))$")


def _dialect(head: bytes) -> str | None:
    """Which dialect a file that begins so is in: Kimi CLI's, Kimi Code's, or neither."""
    whole = _decoded(head) if head.lstrip()[:1] == b"{" else None
    if isinstance(whole, dict) and (dialect := _of_document(whole) or _of_record(whole)):
        return dialect
    weak = None
    for line in head.split(b"\n")[:_SCANNED]:
        record = _decoded(line)
        dialect = _of_record(record) if isinstance(record, dict) else None
        if dialect and not _is_weak(record):
            return dialect
        weak = weak or dialect
    return weak or next((name for pattern, name in _TORN if (m := pattern.match(head)) and _is_meant(m)), None)


def _is_weak(record: Any) -> bool:
    """Whether a record may be of either dialect: both begin with one like it, and only one adds a time."""
    return isinstance(record, dict) and record.get("type") == "metadata"


def _is_meant(match: re.Match[bytes]) -> bool:
    return not match.re.pattern.startswith(rb'\s*\{\s*"timestamp"') or match[1].decode("utf-8", "replace") in WIRE_TYPES


def _decoded(line: bytes) -> Any:
    try:
        return decode(line) if line.lstrip()[:1] == b"{" else None
    except InputError:
        return None


def _of_record(record: dict[str, Any]) -> str | None:
    kind, message = record.get("type"), record.get("message")
    if kind == "metadata" and isinstance(record.get("protocol_version"), str):
        return _CODE if "created_at" in record else _CLI
    if isinstance(message, dict) and str(message.get("type")) in WIRE_TYPES and isinstance(message.get("payload"), dict):
        return _CLI if number(record.get("timestamp")) is not None else None
    if isinstance(kind, str) and is_code_type(kind) and number(record.get("time")) is not None:
        return _CODE
    role = record.get("role")
    return _CLI if role in ("_system_prompt", "_checkpoint", "_usage") else None


def _of_document(document: dict[str, Any]) -> str | None:
    """`state.json` of either, or `meta.json` of a sub-agent."""
    agents = [about for about in as_dict(document.get("agents")).values() if isinstance(about, dict)]
    if agents and all("type" in about and ("parentAgentId" in about or "homedir" in about) for about in agents):
        return _CODE
    if "yolo" in as_dict(document.get("approval")) and "version" in document:
        return _CLI
    return _CLI if {"agent_id", "subagent_type", "status"} <= document.keys() else None


def _sniff(head: bytes) -> bool:
    return _dialect(head) is not None


def _sidecar(name: str) -> bool:
    return _BY_PLACE.search(name) is not None


def _group(files: Sequence[File]) -> Iterable[Session]:
    roots: dict[str, list[File]] = {}
    for file in files:
        roots.setdefault(_rooted(file)[0], []).append(file)
    return [Session(root, files_here) for root, files_here in sorted(roots.items()) if any(_is_telling(f) for f in files_here)]


def _is_telling(file: File) -> bool:
    return not file.name.endswith(".json") and not _sidecar(file.name)


def _rooted(file: File) -> tuple[str, str]:
    """The session's folder, and the file's place inside it."""
    dialect = _dialect(file.head(HEAD))
    pattern = _OF_PLACE if _sidecar(file.name) else _CODE_FILE if dialect == _CODE else _CLI_FILE
    if match := pattern.match(file.name):
        return match["root"] or "", match["place"]
    root, _, place = file.name.rpartition("/")
    return root, place


def _read(session: Session) -> Iterator[Trace]:
    files, dialects = {}, set()
    for file in session.files:
        place = _rooted(file)[1]
        dialect = None if _sidecar(file.name) else _dialect(file.head())
        if dialect is None and not _sidecar(file.name) and len(session.files) > 1:
            session.report.broke(file.name, None, "is not a file of Kimi")
            continue
        dialects.add(dialect)
        files[_dialect_of(place, dialect, file)] = file
    is_code = _CODE in dialects
    draft = session.draft("kimi", "kimi", system="kimi-code" if is_code else "kimi-cli")
    if is_code:
        stories, state = read_code(session, files, draft.report)
    else:
        stories = read_cli(session, files, draft.report)
        state = as_dict(session.document(files["state.json"])) if "state.json" in files else {}
    for story in stories.values():
        answered(story)
    tell(draft, stories)
    # Kimi's id of a session is the name of its folder.
    draft.trace_id = draft.task_id = session.key.rpartition("/")[2] or f"kimi-{_began(stories)}"
    if title := string(state.get("custom_title")) or string(state.get("title")):
        draft.meta["title"] = title
    yield from draft.traces()


def _dialect_of(place: str, dialect: str | None, file: File) -> str:
    """The place, or what the content shows where a file was given by itself or under another name."""
    if "/" in place or place in ("wire.jsonl", "context.jsonl", "state.json"):
        return place
    if place.endswith(".json"):
        return "state.json"
    is_context = b'"role"' in file.head(HEAD).split(b"\n", 1)[0] and dialect == _CLI
    return "context.jsonl" if is_context else "wire.jsonl"


def _began(stories: dict[str, Story]) -> str:
    main = stories.get(MAIN)
    times = [main.created, *(item.at for item in main.items)] if main else []
    first = next((at for at in times if at is not None), None)
    return f"{first:.0f}" if first is not None else "unknown"


kimi = Importer(
    suffixes=(".jsonl",),
    sniff=_sniff,
    signs=("timestamp", "message", "type", "payload", "TurnBegin"),
    system="kimi",
    read_session=_read,
    group=_group,
    sidecar=_sidecar,
    becomes={
        "TurnBegin, SteerInput, turn.prompt, turn.steer": ("human_intervention", "message"),
        "StepBegin ... StatusUpdate, step.begin ... step.end": ("orchestrator_decision", "message", "aggregate", "return"),
        "ToolCall, tool.call": ("tool_call",),
        "ToolResult, tool.result": ("tool_result",),
        "Agent, Task": ("spawn", "message", "return"),
        "AgentSwarm": ("spawn", "message", "return", "aggregate"),
        "ApprovalResponse, permission.record_approval_result, turn.cancel": ("human_intervention", "safety_event"),
        "HookResolved with block, turn.ended with blocked": ("safety_event",),
        "Notification, background_task": ("return", "tool_result"),
    },
    versions="wire 1.1 to 1.10",
    exact="tokens, calls, named sub-agents",
    lost="attachments, displays, modes; CLI: main agent's model, tokens of compaction; context.jsonl: times",
)
