"""One conversation of Amazon Q's CLI (and Kiro's first): pairs of what was said to the model, and its answer.

Always true: a pair that is an object, or in older versions a list of two, is read alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Session, run_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.values import as_dict, as_list, compact, number, seconds, string, text_of
from counterpoint.trace import Trace

_PATH = "/\\"
_LAST = re.compile(r"-?\d{1,9}$")


def conversation_of(session: Session, value: dict[str, Any], place: str, where: str) -> Iterator[Trace]:
    """The trace of a conversation in a file; `place` is the folder that it was had in."""
    unknown: Counter[str] = Counter()
    history = as_list(value.get("history"))
    name = string(value.get("conversation_id")) or f"amazon-q-{run_of(history[:1])}"
    info = as_dict(value.get("model_info"))
    model = string(info.get("model_id")) or string(info.get("model_name")) or string(value.get("model"))
    entries: list[Entry] = []
    if summary := as_list(value.get("latest_summary")):
        entries.append(Entry("user", text_of(summary[0]), "summary", by="client", extra={"is_compaction": True}))
    for k, pair in enumerate(history):
        place = _pair(entries, pair, k, model, unknown) or place
    if pending := as_dict(value.get("next_message")):
        _said(entries, pending, f"h{len(history)}", None, unknown)
    require_half(where, max(len(history), unknown.total()), unknown)
    session.report.unknown.update(unknown)
    draft = session.draft(name, name, system="amazon-q")
    if place.strip(_PATH):
        draft.meta["project"] = place.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    used = [as_dict(u) for u in as_list(as_dict(value.get("user_turn_metadata")).get("usage_info"))]
    if credits := sum(number(u.get("value")) or 0.0 for u in used):
        draft.meta["credits"] = round(credits, 6)
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    yield from draft.traces()


def _pair(entries: list[Entry], pair: Any, k: int, model: str | None, unknown: Counter[str]) -> str | None:
    """One pair; the folder it was said in, where it says so."""
    if isinstance(pair, list):
        both = [as_dict(item) for item in pair[:2]] + [{}, {}]
        user, answer, about = both[0], both[1], dict[str, Any]()
    else:
        user, answer, about = (as_dict(as_dict(pair).get(name)) for name in ("user", "assistant", "request_metadata"))
    begun, ended = (seconds(about.get(name)) or None for name in ("request_start_timestamp_ms", "stream_end_timestamp_ms"))
    _said(entries, user, f"h{k}", begun, unknown)
    kind = next((name for name in ("Response", "ToolUse") if name in answer), None)
    if kind is None:
        if answer or not user:
            unknown["answer with " + ", ".join(sorted(map(str, answer))[:3])] += 1
    else:
        entries.append(_answered(as_dict(answer[kind]), about, f"h{k}", ended, model))
    return string(as_dict(as_dict(user.get("env_context")).get("env_state")).get("current_working_directory"))


def _answered(said: dict[str, Any], about: dict[str, Any], name: str, at: float | None, model: str | None) -> Entry:
    entry = Entry("assistant", text_of(said.get("content") or ""), string(said.get("message_id")) or f"{name}.a", at)
    entry.model = string(about.get("model_id")) or model
    entry.thinking = text_of(said.get("thinking") or "")
    for use in map(as_dict, as_list(said.get("tool_uses"))):
        tool = string(use.get("name")) or string(use.get("orig_name")) or "unnamed"
        arguments = next((use[key] for key in ("args", "input", "orig_args") if use.get(key) is not None), None)
        entry.calls.append(Call(string(use.get("id")) or string(use.get("tool_use_id")), tool, arguments))
    percentage = number(about.get("context_usage_percentage"))
    tags = [tag for tag in as_list(about.get("message_meta_tags")) if isinstance(tag, str)]
    entry.extra = {"context_percentage": percentage, "is_compaction": True if "Compact" in tags else None}
    return entry


def _said(entries: list[Entry], user: dict[str, Any], name: str, at: float | None, unknown: Counter[str]) -> None:
    """What was said to the model: a person's words, or results of tools."""
    content = user.get("content")
    said = as_dict(content)
    sent = seconds(user.get("timestamp")) or at
    if isinstance(content, str):
        entries.append(Entry("user", content, name, sent))
    elif "Prompt" in said:
        entries.append(Entry("user", text_of(as_dict(said["Prompt"]).get("prompt") or ""), name, sent))
    elif "ToolUseResults" in said or "CancelledToolUses" in said:
        is_cancelled = "CancelledToolUses" in said
        inner = as_dict(said["CancelledToolUses" if is_cancelled else "ToolUseResults"])
        results = [_result(as_dict(r), at, is_cancelled=is_cancelled) for r in as_list(inner.get("tool_use_results"))]
        entries.append(Entry("tool", at=at, answers=results))
        if prompt := text_of(inner.get("prompt") or ""):
            entries.append(Entry("user", prompt, name, sent))
    elif user:
        unknown["words with " + ", ".join(sorted(map(str, said))[:3])] += 1


def is_failure(code: str | None) -> bool:
    """Whether a command ended so that it failed: `1`, `exit status: 127`."""
    found = _LAST.search(code or "")
    return found is not None and int(found[0]) != 0


def _result(result: dict[str, Any], at: float | None, *, is_cancelled: bool) -> Answer:
    texts, code = [], None
    for part in map(as_dict, as_list(result.get("content"))):
        shown = as_dict(part.get("Json"))
        code = string(shown.get("exit_status")) or code
        printed = [text_of(shown[key]) for key in ("stdout", "stderr") if shown.get(key)]
        texts.append(text_of(part.get("Text") or "") or "\n".join(printed) or (compact(part["Json"]) if part.get("Json") else ""))
    text = "\n".join(filter(None, texts))
    failed = is_cancelled or result.get("status") == "Error" or is_failure(code)
    ok = False if failed else True if result.get("status") == "Success" else None
    answer = Answer(text, string(result.get("tool_use_id")), None, ok, (text[:500] or "error") if failed else None, at)
    answer.extra = {"is_rejected": True} if is_cancelled else {}
    return answer
