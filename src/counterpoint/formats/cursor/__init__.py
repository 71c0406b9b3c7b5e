"""Cursor: its agents' transcripts, what `cursor-agent` prints, chats saved as Markdown, the editor's database.

| record | becomes |
|---|---|
| words of the user (`<user_query>`) | `human_intervention`, without what the client adds |
| words of the model | one `orchestrator_decision` of the main agent, with `tool_call`s |
| end of a tool (`completed`, `result`, `[Tool result]`) | `tool_result` |
| a call of `Task` | `spawn` of the sub-agent whose transcript begins with its prompt; `return` where its result is written |
| `turn_ended` with an error | `error` of the step before |

`transcript.py` reads `agent-transcripts` (JSON lines and text), `stream.py` what is printed, `store.py` `state.vscdb`.

Tokens: only what is printed states them, for the run; they stand on its last step. A bubble of the database may have its own.

What is lost: results of tools and times in a transcript, tool calls in Markdown, images.

Always true: a transcript's sub-agents are link_agents by the words of their prompt, which is counted as inferred.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from counterpoint.formats.cursor.markdown import is_markdown, markdown_chat
from counterpoint.formats.cursor.store import is_store, read_store
from counterpoint.formats.cursor.stream import is_stream, read_stream
from counterpoint.formats.cursor.transcript import is_text, is_transcript, link_agents, text_entries, transcript_entries
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.dialogue import MAIN, Dialogue, play, require_half
from counterpoint.formats.importing.files import File
from counterpoint.trace import Trace

_LOG = re.compile(r"(?:^|/)state\.vscdb-wal$")
_SUBAGENT = re.compile(r"(?:^|/)([^/]+)/subagents/[^/]+\.(?:jsonl|txt)$")


def _sniff(head: bytes) -> bool:
    return is_store(head) or is_stream(head) or is_transcript(head) or is_text(head) or is_markdown(head)


def _group(files: Sequence[File]) -> Iterable[Session]:
    """A transcript with those of its sub-agents, which lie in a folder `subagents` of its own."""
    groups: dict[str, list[File]] = {}
    for file in files:
        if _LOG.search(file.name):
            groups.setdefault(file.name.removesuffix("-wal"), []).append(file)
            continue
        folder = file.name.rpartition("/")[0]
        match = _SUBAGENT.search(file.name)
        own = folder.removesuffix("/subagents") if match else folder
        is_own = bool(match) or (own.rpartition("/")[2] == file.stem and is_transcript(file.head()))
        groups.setdefault(own if is_own else file.name, []).append(file)
    names = {key: key.rpartition("/")[2].split(".", 1)[0] for key in groups}
    times = Counter(names.values())
    return [Session(names[key] if times[names[key]] == 1 else key, some) for key, some in groups.items()]


def _read(session: Session) -> Iterator[Trace]:
    logs = [file for file in session.files if _LOG.search(file.name)]
    files = [file for file in session.files if file not in logs]
    head = files[0].head() if files else b""
    if is_store(head):
        yield from read_store(session, files[0], logs[0] if logs else None)
    elif is_stream(head):
        yield from read_stream(session, files[0])
    elif not files:
        return
    else:
        yield from _transcripts(session)


def _transcripts(session: Session) -> Iterator[Trace]:
    """A transcript, with those of its sub-agents."""
    files = sorted(session.files, key=lambda file: (_SUBAGENT.search(file.name) is not None, file.name))
    name = session.key.rpartition("/")[2].split(".", 1)[0] or "cursor"
    draft = session.draft(name, name, system="cursor")
    dialogues: list[Dialogue] = []
    for k, file in enumerate(files):
        unknown: Counter[str] = Counter()
        head = file.head()
        dialogue = Dialogue(MAIN if k == 0 else file.stem)
        if is_text(head) or is_markdown(head):
            text = file.data().decode("utf-8", "replace")
            dialogue.entries, title = markdown_chat(text) if is_markdown(head) else (text_entries(text), None)
            session.report.records += len(dialogue.entries)
            draft.meta.update({"title": title} if title else {})
        else:
            dialogue.entries, records = transcript_entries(session, file, unknown)
            require_half(file.name, records, unknown)
        session.report.unknown.update(unknown)
        dialogues.append(dialogue)
    link_agents(dialogues)
    play(draft, dialogues)
    draft.lane(MAIN).stops()
    yield from draft.traces()


cursor = Importer(
    suffixes=(".cursor.jsonl",),
    sniff=_sniff,
    sidecar=lambda name: bool(_LOG.search(name)),
    signs=("role", "message", "tool_call", "call_id", "session_id", "apiKeySource", "duration_api_ms", "request_id"),
    system="cursor",
    group=_group,
    read_session=_read,
    rank=2,
    becomes={
        "user": ("human_intervention",),
        "assistant": ("orchestrator_decision", "aggregate", "message", "tool_call", "spawn"),
        "tool_call": ("tool_call", "tool_result", "return"),
        "bubble": ("human_intervention", "orchestrator_decision", "tool_call", "tool_result"),
    },
    lost="results and times of a transcript, tool calls of Markdown, images",
    versions="0.50 to 3.15 (Markdown), transcripts of 2 and 3, cursor-agent 2025.10 to 2026.08",
    exact="what is printed: tools, results, times, tokens of the run",
)
"""Sessions of Cursor."""
