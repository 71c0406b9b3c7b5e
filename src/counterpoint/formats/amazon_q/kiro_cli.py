"""Sessions of Kiro's CLI: a record for each message, and beside them what each turn of the person took.

Always true: a count of 0 tokens on both sides of a turn is a placeholder, and no count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.amazon_q.conversation import is_failure
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, number, seconds, string, text_of
from counterpoint.trace import Trace

_COUNTS = ("input_token_count", "cache_read_input_token_count", "cache_write_input_token_count", "output_token_count")
_NOTES = frozenset({"ResetTo", "CancelledPrompt", "Clear"})


def kiro_session(session: Session, file: File, beside: File | None) -> Iterator[Trace]:
    """The trace of a session."""
    about = as_dict(session.document(beside)) if beside else {}
    unknown: Counter[str] = Counter()
    entries: list[Entry] = []
    records = left_out = 0
    for line, record in session.records(file):
        records += 1
        kind, data = string(record.get("kind")), as_dict(record.get("data"))
        name = string(data.get("message_id")) or f"k{line}"
        at = seconds(as_dict(data.get("meta")).get("timestamp")) or seconds(data.get("timestamp"))
        if kind in _NOTES:
            left_out += 1
        elif not _message(entries, str(kind), data, name, at, unknown):
            unknown[f"record of kind {kind}"] += 1
    require_half(file.name, records, unknown)
    session.report.unknown.update(unknown)
    title = string(about.get("session_id")) or file.stem
    draft = session.draft(title, title, system="kiro")
    state = as_dict(about.get("session_state"))
    turns = [as_dict(t) for t in as_list(as_dict(state.get("conversation_metadata")).get("user_turn_metadatas"))]
    model = string(as_dict(as_dict(state.get("rts_model_state")).get("model_info")).get("model_id"))
    draft.report.note_odd_counts(sum(odd_counts(turn, _COUNTS) for turn in turns))
    _count(entries, turns, model)
    used = [as_dict(u) for turn in turns for u in as_list(turn.get("metering_usage"))]
    if credits := sum(number(u.get("value")) or 0.0 for u in used):
        draft.meta["credits"] = round(credits, 6)
    for key, value in (("title", about.get("title")), ("project", str(about.get("cwd") or "").rstrip("/").rsplit("/", 1)[-1])):
        draft.meta.update({key: value} if string(value) else {})
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    if left_out:
        draft.meta["left_out"] = {"notes": left_out}
    yield from draft.traces()


def _message(entries: list[Entry], kind: str, data: dict[str, Any], name: str, at: float | None, unknown: Counter[str]) -> bool:
    """Take a message; False where its kind is not known."""
    parts = [as_dict(part) for part in as_list(data.get("content"))]
    words = "\n".join(text_of(p.get("data")) for p in parts if p.get("kind") == "text")
    if kind == "Prompt":
        entries.append(Entry("user", words, name, at))
    elif kind == "AssistantMessage":
        entry = Entry("assistant", words, name, at)
        entry.thinking = "\n".join(text_of(p.get("data")) for p in parts if p.get("kind") in ("thinking", "reasoning"))
        for use in (as_dict(p.get("data")) for p in parts if p.get("kind") == "toolUse"):
            entry.calls.append(Call(string(use.get("toolUseId")), string(use.get("name")) or "unnamed", use.get("input")))
        entries.append(entry)
    elif kind == "ToolResults":
        results = [as_dict(p.get("data")) for p in parts if p.get("kind") == "toolResult"]
        entries.append(Entry("tool", at=at, answers=[_result(result, at) for result in results]))
    elif kind == "Compaction":
        text = words or text_of(data.get("summary") or "")
        entries.append(Entry("user", text, name, at, by="client", extra={"is_compaction": True}))
    else:
        return False
    for part in parts:
        if part.get("kind") not in ("text", "toolUse", "toolResult", "thinking", "reasoning", "image"):
            unknown[f"part of kind {part.get('kind')}"] += 1
    return True


def _result(result: dict[str, Any], at: float | None) -> Answer:
    texts, failed = [], False
    for part in map(as_dict, as_list(result.get("content"))):
        data = part.get("data")
        failed = failed or is_failure(string(as_dict(data).get("exit_status")))
        printed = [text_of(as_dict(data)[key]) for key in ("stdout", "stderr") if as_dict(data).get(key)]
        texts.append(data if isinstance(data, str) else "\n".join(printed) or (compact(data) if data else ""))
    text = "\n".join(filter(None, texts))
    ok = False if failed else {"success": True, "error": False}.get(str(result.get("status")).lower())
    return Answer(text, string(result.get("toolUseId")), None, ok, (text[:500] or "error") if ok is False else None, at)


def _count(entries: list[Entry], turns: list[dict[str, Any]], model: str | None) -> None:
    """Put the tokens of each turn on its last step."""
    rounds: list[list[Entry]] = []
    for entry in entries:
        if entry.role == "user" and entry.by is None:
            rounds.append([])
        elif entry.role == "assistant" and rounds:
            rounds[-1].append(entry)
    for steps, turn in zip(rounds, turns, strict=False):
        fresh, read, written, out = (count(turn.get(name)) or 0 for name in _COUNTS)
        for step in steps:
            step.model = string(turn.get("model")) or model
        if steps and (fresh or out):
            steps[-1].usage = Usage(fresh, read, written, out)
            steps[-1].extra = {**steps[-1].extra, **({"tokens_of": "the turn"} if len(steps) > 1 else {})}
            steps[-1].at = steps[-1].at or seconds(turn.get("end_timestamp"))
    for entry in entries:
        if entry.role == "assistant":
            entry.model = entry.model or model
