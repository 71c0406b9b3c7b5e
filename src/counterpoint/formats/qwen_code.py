"""Qwen Code: sessions (`chats/<session>.jsonl`) with the transcripts of their sub-agents.

| record | becomes |
|---|---|
| `user` | `human_intervention`; `message` of the client where a task, a timer or a goal wrote it |
| `assistant` | one `orchestrator_decision` of the main agent, with `tool_call`s; calls alone belong to the one before |
| `tool_result` | `tool_result`; the `return` of a sub-agent whose transcript or totals are there |
| `system` of subtype `chat_compression` | `message` of the client |

A sub-agent (`subagents/<session>/agent-<id>.jsonl`) is linked by `toolUseId` of its `.meta.json`. Where there is no transcript,
what the result states of it (`task_execution`) counts once.

Tokens: `usageMetadata`, in which the total says whether thoughts stand beside the candidates or inside them. What a branch copied
(`forkedFrom`) counts where it came from.

What is lost: images, client bookkeeping (counted in `left_out`), rounds of a sub-agent without a word.

Always true: a record whose `uuid` was read before is a copy, and is counted once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, google_usage, play, require_half
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.google_parts import parts_of
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, decode, seconds, string, text_of
from counterpoint.trace import Trace

_TYPES = frozenset({"user", "assistant", "tool_result", "system"})
_CONTENT = re.compile(rb'"message"\s*:\s*\{\s*(?:"role"\s*:\s*"(?:user|model|system)"\s*,\s*)?"parts"\s*:\s*\[')
_META = re.compile(r"(?:^|/)subagents/[^/]+/agent-[^/]+\.meta\.json$")
_PROJECT = re.compile(r"^(.*?/?)(?:chats|subagents)/")
_SESSION = re.compile(rb'"sessionId"\s*:\s*"([^"\\]+)"')
_TOKENS = tuple(f"{name}TokenCount" for name in ("prompt", "candidates", "cachedContent", "thoughts", "toolUsePrompt", "total"))
_STATED = ("inputTokens", "outputTokens", "cachedTokens", "thoughtTokens", "toolTokens", "totalTokens")
_CLIENT = frozenset({"notification", "cron", "goal_runtime"})
_COPIED = "records copied from another session: their tokens count there"


def is_qwen_record(record: Any) -> bool:
    """Whether a record is one of Qwen Code's: its content is in Google's form, under Claude Code's envelope."""
    if not isinstance(record, dict) or not {"type", "uuid", "sessionId"} <= record.keys():
        return False
    return isinstance(as_dict(record.get("message")).get("parts"), list) or "systemPayload" in record


def _sniff(head: bytes) -> bool:
    if b'"sessionId"' not in head or (b'"parts"' not in head and b'"systemPayload"' not in head):
        return False
    lines = head.split(b"\n")
    for k, line in enumerate(lines[:50]):
        if not line.strip() or (k == len(lines) - 1 and k > 0):
            continue
        try:
            record = decode(line)
        except InputError:
            if k == 0 and len(lines) == 1 and _CONTENT.search(line) and b'"parentUuid"' in line:
                return True  # one record longer than the head
            continue
        if is_qwen_record(record):
            return True
        if not isinstance(record, dict) or record.get("type") != "system" or "uuid" not in record:
            return False
    return False


def _group(files: Sequence[File]) -> Iterable[Session]:
    """Files of one session in one project: the session's own, its sub-agents' and what stands beside them."""
    groups: dict[tuple[str, str], list[File]] = {}
    for file in files:
        match = _SESSION.search(file.head()) if not _META.search(file.name) else None
        place = _PROJECT.match(file.name)
        name = match[1].decode("utf-8", "replace") if match else file.name.rsplit("/", 2)[-2]
        groups.setdefault((place[1] if place else file.name, name), []).append(file)
    times = Counter(name for _, name in groups)
    return [Session(name if times[name] == 1 else f"{place}{name}", some) for (place, name), some in groups.items()]


def _read(session: Session) -> Iterator[Trace]:
    readers: dict[str, _Reader] = {}
    sidecars = {f.name.removesuffix(".meta.json"): f for f in session.files if _META.search(f.name)}
    for file in session.files:
        if _META.search(file.name):
            continue
        unknown: Counter[str] = Counter()
        records = 0
        meta = sidecars.get(file.name.removesuffix(".jsonl"))
        about = as_dict(session.document(meta)) if meta else {}
        for number, record in session.records(file):
            records += 1
            name = string(record.get("sessionId"))
            if name is None or string(record.get("type")) not in _TYPES:
                unknown[f"record of type {record.get('type')}"] += 1
            else:
                reader = readers.setdefault(name, _Reader(session, name))
                reader.record(record, about, f"{file.last}:{number}", unknown)
        require_half(file.name, records, unknown)
        session.report.unknown.update(unknown)
    for reader in readers.values():
        yield from reader.traces()


class _Reader:
    """One session on its way to a trace."""

    def __init__(self, session: Session, name: str) -> None:
        self.draft = session.draft(name, name, system="qwen-code")
        self.dialogues: dict[str, Dialogue] = {MAIN: Dialogue()}
        self.seen: set[str] = set()
        self.left_out: Counter[str] = Counter()

    def record(self, record: dict[str, Any], about: dict[str, Any], place: str, unknown: Counter[str]) -> None:
        uuid = string(record.get("uuid")) or place
        if uuid in self.seen:
            self.draft.report.mended["copied records"] += 1
            return
        self.seen.add(uuid)
        agent = string(record.get("agentId")) or MAIN
        dialogue = self.dialogues.setdefault(agent, Dialogue(agent))
        if agent != MAIN:
            dialogue.role = dialogue.role or string(about.get("agentType")) or string(record.get("agentName"))
            dialogue.name = dialogue.name or string(about.get("description"))
            dialogue.call = dialogue.call or string(about.get("toolUseId"))
        kind, at = record["type"], seconds(record.get("timestamp"))
        if kind == "system":
            self._system(dialogue, uuid, record, at)
            return
        parts = parts_of(record.get("message"), unknown)
        if parts.images:
            self.left_out["images and files"] += parts.images
        entry = Entry("tool" if kind == "tool_result" else kind, parts.text, uuid, at, parts.thinking, parts.calls, parts.answers)
        if kind == "assistant":
            self._answered(dialogue, entry, record)
        elif kind == "tool_result":
            self._result(entry, as_dict(record.get("toolCallResult")))
            dialogue.entries.append(entry)
        else:
            is_client = string(record.get("subtype")) in _CLIENT or record.get("externalInputKind") == "notification"
            entry.by = "client" if is_client else None
            dialogue.entries.append(entry)

    def _system(self, dialogue: Dialogue, uuid: str, record: dict[str, Any], at: float | None) -> None:
        subtype = string(record.get("subtype")) or "system"
        payload = as_dict(record.get("systemPayload"))
        if subtype == "chat_compression":
            text = "\n".join(parts_of(c).text for c in as_list(payload.get("compressedHistory"))[:1])
            dialogue.entries.append(Entry("system", text, uuid, at, by="client", extra={"is_compaction": True}))
        else:
            self.left_out[subtype] += 1
        if title := string(payload.get("customTitle")):
            self.draft.meta["title"] = title

    def _answered(self, dialogue: Dialogue, entry: Entry, record: dict[str, Any]) -> None:
        got = as_dict(record.get("usageMetadata"))
        self.draft.report.note_odd_counts(odd_counts(got, _TOKENS))
        entry.usage, entry.model = google_usage(got, _TOKENS), string(record.get("model"))
        if "forkedFrom" in record:
            self.draft.report.mended[_COPIED] += 1
            self.draft.meta.setdefault("forked_from", as_dict(record["forkedFrom"]).get("sessionId"))
            entry.usage = None
        last = dialogue.entries[-1] if dialogue.entries else None
        if entry.calls and not (entry.text or entry.thinking or got) and last is not None and last.role == "assistant":
            last.calls += entry.calls
        else:
            dialogue.entries.append(entry)

    def _result(self, entry: Entry, result: dict[str, Any]) -> None:
        """What is said beside the parts: which call, how it went, and what a sub-agent did."""
        call, status = string(result.get("callId")), string(result.get("status"))
        if not entry.answers:
            entry.answers.append(Answer(entry.text, call))
        answer = entry.answers[0]
        answer.call = answer.call or call
        display = result.get("resultDisplay")
        answer.text = answer.text or text_of(display)
        if status in ("error", "cancelled"):
            answer.ok = False
            answer.error = answer.error or text_of(as_dict(result.get("error")).get("message")) or answer.text[:500] or status
            answer.extra = {"status": status} if status == "cancelled" else {}
        elif status == "success":
            answer.ok = True if answer.ok is None else answer.ok
        if as_dict(display).get("type") == "task_execution" and answer.call:
            self._stated(answer.call, as_dict(display), entry.at)

    def _stated(self, call: str, display: dict[str, Any], at: float | None) -> None:
        """A sub-agent by what its parent's result says of it; its transcript, where there is one, is put first."""
        summary = as_dict(display.get("executionSummary"))
        usage = google_usage(summary, _STATED) or Usage()
        extra = {"stated_by": call, "rounds": summary.get("rounds"), "tool_calls": summary.get("totalToolCalls")}
        entries = [
            Entry("user", string(display.get("taskPrompt")) or ""),
            Entry("assistant", text_of(display.get("result")), f"{call}:stated", at, usage=usage or None, extra=extra),
        ]
        role, name = string(display.get("subagentName")), string(display.get("taskDescription"))
        self.dialogues.setdefault(f"stated:{call}", Dialogue(call, entries, role, name, call, "what the result states"))

    def traces(self) -> Iterator[Trace]:
        own = [d for key, d in self.dialogues.items() if not key.startswith("stated:")]
        covered = {d.call for d in own}
        stated = [d for key, d in self.dialogues.items() if key.startswith("stated:") and d.call not in covered]
        play(self.draft, [*own, *stated])
        if stated:
            self.draft.report.lacks["the transcript of a sub-agent: its totals are what its parent states"] += len(stated)
        self.draft.lane(MAIN).stops()
        if self.left_out:
            self.draft.meta["left_out"] = dict(sorted(self.left_out.items()))
        yield from self.draft.traces()


qwen_code = Importer(
    suffixes=(".qwen.jsonl",),
    sniff=_sniff,
    sidecar=lambda name: bool(_META.search(name)),
    signs=("uuid", "parentUuid", "sessionId", "parts", "usageMetadata", "toolCallResult"),
    system="qwen-code",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "user": ("human_intervention", "message"),
        "assistant": ("orchestrator_decision", "aggregate", "message", "tool_call", "spawn"),
        "tool_result": ("tool_result", "return"),
        "system": ("message", "meta"),
    },
    versions="0.9",
    exact="tokens, calls, sub-agents",
    lost="images, client bookkeeping, a compression's tokens",
)
"""Sessions of Qwen Code."""
