"""Google Antigravity: transcripts (`brain/<id>/.system_generated/logs/`), and the steps of its SDK.

| step | becomes |
|---|---|
| `USER_INPUT`; a step of source USER | `human_intervention` |
| `PLANNER_RESPONSE`, and text, thoughts or calls of the model | one `orchestrator_decision` with its `tool_call`s |
| `VIEW_FILE`, `RUN_COMMAND` and other steps named after a tool | `tool_result` of the oldest call of that tool, else of any |
| `ERROR_MESSAGE` | the error of the call that has no answer, else of the step before |
| `CHECKPOINT`, `COMPACTION`, notes of the system | `message` of the client |
| `FINISH` | `orchestrator_decision` |

A call of `invoke_subagent` made the conversations that its answer names. `transcript_full.jsonl` is read where it is there, as
`transcript.jsonl` cuts texts off. Tokens: `usage_metadata`, which steps of the SDK may have.

What is lost: the model before it was chosen by name, artifacts, knowledge, pictures.

Always true: a conversation is read once, from its longest transcript.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, google_usage, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.usage import odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, compact, decode, seconds, string, text_of
from counterpoint.trace import Trace

_SOURCES = re.compile(rb'\s*"(?:USER|USER_EXPLICIT|USER_IMPLICIT|MODEL|SYSTEM|SOURCE_[A-Z_]+|UNSPECIFIED|UNKNOWN)"')
_STEP = re.compile(rb'\s*"[A-Z][A-Z_]+"')
_PLACE = re.compile(r"(?:^|/)([^/]+)/\.system_generated/logs/[^/]+$")
_REQUEST = re.compile(r"<USER_REQUEST>\s*(.*?)\s*(?:</USER_REQUEST>|\Z)", re.S)
_MODEL = re.compile(r"`?Model Selection`? from [^\n]*? to ([^\n]+?)(?:\.(?:\s|\Z)|\n|<|\Z)")
_CODE = re.compile(r"\bexit(?:ed with)? code:?\s*(-?\d+)", re.I)
_ID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")
_SAID = frozenset({"PLANNER_RESPONSE", "TEXT_RESPONSE", "GENERATE_RESPONSE", "TOOL_CALL", "THINKING", "FINISH", "RESPONSE"})
_SUMMARIES = frozenset({"CHECKPOINT", "COMPACTION"})
_INVOKED = "INVOKE_SUBAGENT"
_STATUS = {"DONE": True, "ERROR": False, "FAILED": False, "CANCELED": False, "CANCELLED": False, "ABORTED": False}
_TOKENS = tuple(f"{n}_token_count" for n in ("prompt", "candidates", "cached_content", "thoughts", "tool_use_prompt", "total"))
_CAMEL = tuple(re.sub(r"_(\w)", lambda m: m[1].upper(), name) for name in _TOKENS)


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if "step_index" not in keys or not keys.keys() >= {"source", "type"}:
        return False
    return _SOURCES.match(keys["source"]) is not None and _STEP.match(keys["type"]) is not None


def _name_of(file: File) -> str:
    place = _PLACE.search(file.name)
    return place[1] if place else file.stem


def _group(files: Sequence[File]) -> Iterable[Session]:
    """A conversation, by its longest transcript, with those that it invoked."""
    best: dict[str, File] = {}
    for file in sorted(files, key=lambda f: f.name):
        place = _PLACE.search(file.name)
        key = file.name[: place.end(1)] if place else file.name
        is_full = "full" in file.last
        if key not in best or (is_full, file.size) > ("full" in best[key].last, best[key].size):
            best[key] = file
    names = {_name_of(file): key for key, file in best.items()}
    parents: dict[str, str] = {}
    for key, file in best.items():
        for child in sorted(_invoked(file) & (names.keys() - {_name_of(file)})):
            parents.setdefault(names[child], key)
    groups: dict[str, list[File]] = {}
    for key, file in best.items():
        top, met = key, {key}
        while top in parents and parents[top] not in met:
            top = parents[top]
            met.add(top)
        groups.setdefault(top, []).append(file)
    for top, some in groups.items():
        yield Session(top, sorted(some, key=lambda f: (f is not best[top], f.name)))


def _invoked(file: File) -> set[str]:
    """The conversations that a transcript's calls of sub-agents name."""
    found: set[str] = set()
    try:
        for _, line in file.lines():
            if line is not None and _INVOKED.encode() in line:
                found.update(_ID.findall(line.decode("utf-8", "replace")))
    except (InputError, OSError):
        pass
    return found


def _read(session: Session) -> Iterator[Trace]:
    talks: list[_Talk] = []
    for file in session.files:
        talk = _Talk(_name_of(file), is_main=not talks)
        unknown: Counter[str] = Counter()
        records = 0
        for number, record in session.records(file):
            records += 1
            if not talk.step(record, f"{'' if talk.is_main else talk.name + '.'}s{record.get('step_index', number)}"):
                unknown[f"step {record.get('source')} {record.get('type')}"] += 1
        if records:
            require_half(file.name, records, unknown)
            session.report.unknown.update(unknown)
            talks.append(talk)
    if not talks or not talks[0].dialogue.entries:
        return
    main = talks[0]
    run = None if _PLACE.search(session.files[0].name) else run_of([e.text for e in main.dialogue.entries[:2]])
    draft = session.draft(main.name, main.name, system="antigravity", run=run)
    _link(talks)
    if unanswered := sum(len(talk.unanswered) for talk in talks):
        draft.report.lacks["what a tool gave back"] += unanswered
    draft.report.note_odd_counts(sum(talk.odd for talk in talks))
    play(draft, [talk.dialogue for talk in talks])
    draft.lane(MAIN).stops()
    left_out = sum((talk.left_out for talk in talks), Counter[str]())
    draft.meta.update({"left_out": dict(sorted(left_out.items()))} if left_out else {})
    yield from draft.traces()


def _link(talks: Sequence[_Talk]) -> None:
    """Say which call made which conversation: the first that its answer names is the call's, for others it counts again."""
    known = {talk.name: talk for talk in talks}
    for talk in talks:
        for step, call, answer in talk.invoked:
            here = [known[name] for name in dict.fromkeys(_ID.findall(answer.text)) if name in known and name != talk.name]
            for k, child in enumerate(one for one in here if one.dialogue.call is None and not one.is_main):
                own = call if k == 0 else Call(f"{call.id}.{k + 1}", call.tool, call.arguments)
                said = child.words or answer.text
                if k:
                    step.calls.append(own)
                    talk.dialogue.entries.append(Entry("tool", at=child.end, answers=[Answer(said, own.id, own.tool, True)]))
                else:
                    answer.text = said
                child.dialogue.call, child.dialogue.rule = own.id, "the conversation that the call's answer names"


class _Talk:
    """One conversation."""

    def __init__(self, name: str, *, is_main: bool) -> None:
        self.name, self.is_main = name, is_main
        self.dialogue = Dialogue(MAIN if is_main else name)
        self.model: str | None = None
        self.left_out: Counter[str] = Counter()
        self.odd = 0
        self.invoked: list[tuple[Entry, Call, Answer]] = []
        self.unanswered: list[tuple[Entry, Call]] = []
        """Calls without an answer, with their steps."""
        self._thought = ""
        self._seen: set[str] = set()

    @property
    def words(self) -> str:
        """What the agent said last."""
        return next((e.text for e in reversed(self.dialogue.entries) if e.role == "assistant" and e.text), "")

    @property
    def end(self) -> float | None:
        """When it said it."""
        return next((e.at for e in reversed(self.dialogue.entries) if e.at is not None), None)

    def step(self, record: dict[str, Any], name: str) -> bool:
        """Take a step; False where it is of no known kind."""
        kind, source = string(record.get("type")) or "", string(record.get("source")) or ""
        if not kind or not source:
            return False
        if name in self._seen:
            name = f"{name}.{len(self._seen)}"
        self._seen.add(name)
        at, text = seconds(record.get("created_at")), text_of(record.get("content") or "")
        if kind == "USER_INPUT" or source.startswith("USER"):
            self._asked(text, name, at, is_person=source != "USER_IMPLICIT")
        elif kind in _SAID:
            self._said(record, kind, text, name, at)
        elif kind == "ERROR_MESSAGE":
            self._failed(text or text_of(record.get("error") or "") or "error", name, at)
        elif source == "MODEL":
            self._ran(record, kind, text, name, at)
        elif text or kind in _SUMMARIES:
            extra = {"is_compaction": True} if kind in _SUMMARIES else {"kind": kind.lower()}
            self.dialogue.entries.append(Entry("system", text, name, at, by="client", extra=extra))
        else:
            self.left_out[kind.lower()] += 1
        return True

    def _asked(self, content: str, name: str, at: float | None, *, is_person: bool) -> None:
        if found := _MODEL.search(content):
            self.model = found[1].strip()
        request = _REQUEST.search(content)
        entry = Entry("user", request[1] if request else content, name, at, by=None if is_person else "client")
        self.dialogue.entries.append(entry)

    def _said(self, record: dict[str, Any], kind: str, text: str, name: str, at: float | None) -> None:
        thought = "\n".join(filter(None, (self._thought, text_of(record.get("thinking") or ""))))
        got = as_dict(record.get("usage_metadata") or record.get("usageMetadata"))
        calls = _calls(record, name)
        if kind == "THINKING" and not (got or calls or text):
            self._thought = thought  # of the step that comes next
            return
        self._thought = ""
        if kind == "FINISH" and not text:
            text = compact(record.get("structured_output") or "")
        entry = Entry("assistant", text, name, at, thought, calls, model=self.model)
        names = _CAMEL if "promptTokenCount" in got else _TOKENS
        entry.usage, entry.error = google_usage(got, names), string(record.get("error"))
        self.odd += odd_counts(got, names)
        if _STATUS.get(str(record.get("status"))) is False:
            entry.error = entry.error or str(record["status"]).lower()
        self.dialogue.entries.append(entry)
        self.unanswered += [(entry, call) for call in calls]

    def _ran(self, record: dict[str, Any], kind: str, text: str, name: str, at: float | None) -> None:
        """A step of a tool: the answer to the call that it states, or to the oldest of its tool, or of any."""
        stated = _calls(record, name)
        if stated or not self.unanswered:
            calls = stated or [Call(name, kind.lower(), None)]
            last = self.dialogue.entries[-1] if self.dialogue.entries else None
            if last is None or last.role not in ("assistant", "tool"):
                last = Entry("assistant", "", f"{name}.step", at, model=self.model)
                self.dialogue.entries.append(last)
            step = next(e for e in reversed(self.dialogue.entries) if e.role == "assistant")
            step.calls += calls
            self.unanswered[:0] = [(step, call) for call in calls]
        same = (row for row in self.unanswered if row[1].tool.rpartition(":")[2].lower() == kind.lower())
        row = self.unanswered[0] if stated else next(same, self.unanswered[0])
        self.unanswered.remove(row)
        step, call = row
        ok, error = _STATUS.get(str(record.get("status"))), string(record.get("error"))
        code = _CODE.search(text[:2000]) if kind == "RUN_COMMAND" else None
        stated_code = record.get("exit_code", int(code[1]) if code else None)
        if error or stated_code not in (None, 0):
            ok = False
        failed = (error or text[:500] or str(record.get("status")).lower()) if ok is False else None
        answer = Answer(text, call.id, call.tool, ok, failed, at, {} if stated_code is None else {"exit_code": stated_code})
        self.dialogue.entries.append(Entry("tool", id=name, at=at, answers=[answer]))
        if kind == _INVOKED or call.tool.upper().endswith(_INVOKED):
            self.invoked.append((step, call, answer))

    def _failed(self, text: str, name: str, at: float | None) -> None:
        if self.unanswered:
            _, call = self.unanswered.pop(0)
            answer = Answer(text, call.id, call.tool, False, text[:500], at)
            self.dialogue.entries.append(Entry("tool", id=name, at=at, answers=[answer]))
        else:
            self.dialogue.entries.append(Entry("error", text, name, at))


def _calls(record: dict[str, Any], name: str) -> list[Call]:
    calls = []
    for k, raw in enumerate(map(as_dict, as_list(record.get("tool_calls")))):
        arguments = raw.get("args", raw.get("arguments"))
        if isinstance(arguments, str):
            with suppress(InputError):
                arguments = decode(arguments)
        if tool := string(raw.get("name")):
            calls.append(Call(string(raw.get("id")) or f"{name}.{k}", tool, arguments))
    return calls


antigravity = Importer(
    suffixes=(".antigravity.jsonl",),
    sniff=_sniff,
    signs=("step_index", "source", "type", "status", "created_at", "tool_calls"),
    system="antigravity",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "USER_INPUT": ("human_intervention", "message"),
        "PLANNER_RESPONSE, TEXT_RESPONSE, THINKING, TOOL_CALL, FINISH": (
            "orchestrator_decision", "aggregate", "message", "tool_call", "spawn",
        ),
        "VIEW_FILE, RUN_COMMAND and others of tools": ("tool_result", "return"),
        "ERROR_MESSAGE": ("error",),
        "CHECKPOINT, COMPACTION, SYSTEM_MESSAGE, EPHEMERAL_MESSAGE": ("message",),
    },
    lost="tokens of transcripts, artifacts, knowledge, pictures, which of several equal calls an answer is of",
    versions="transcripts of 2025 and 2026 (editor, IDE and CLI), steps of the SDK",
    exact="tools and how they ended, errors, times; tokens of the SDK's steps; sub-agents that an answer names",
)  # fmt: skip
"""Conversations of Google Antigravity."""
