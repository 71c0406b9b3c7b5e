"""Kimi CLI's `context.jsonl`: the messages as the model sees them, used for what the wire does not have.

Always true: nothing that the wire has is told twice. The context is rewritten when it is compacted, so a message in the middle
that the wire does not have is left alone; what follows the last one that it has is new.
"""

from __future__ import annotations

from typing import Any, Literal

from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import as_dict, as_list, compact, string, text_of
from counterpoint.formats.kimi.story import Answer, Call, Heard, Step, Story, Verdict, said

_Calls = dict[str, tuple[Step, Call]]


def complete(session: Session, file: File, story: Story) -> None:
    """Add to a story what only the context has: answers and calls that the wire misses, and messages after its end."""
    messages = [(n, m) for n, m in session.records(file) if not str(m.get("role")).startswith("_")]
    texts: dict[str, Step | None] = {_plain(item.text): None for item in story.items if isinstance(item, Heard)}
    texts |= {_plain(step.text + step.thinking): step for step in story.steps()}
    by_call = {call.id: (step, call) for step in story.steps() for call in step.calls}
    is_answered = {item.call for item in story.items if isinstance(item, Answer)}
    known = max((k for k, (_, m) in enumerate(messages) if _is_known(m, texts, by_call)), default=-1)
    for k, (number, message) in enumerate(messages):
        role = message.get("role")
        if role == "assistant":
            _assistant(story, number, message, by_call, texts, is_new=k > known)
        elif role == "tool":
            _tool(story, message, by_call, is_answered)
        elif role == "user" and k > known and (text := said(message.get("content"))):
            by: Literal["user", "system"] = "system" if text.lstrip().startswith("<system") else "user"
            story.items.append(Heard(f"context{number}", None, text, by))


def _plain(text: str) -> str:
    return "".join(text.split())


def _is_known(message: dict[str, Any], texts: dict[str, Step | None], by_call: _Calls) -> bool:
    calls = [as_dict(call).get("id") for call in as_list(message.get("tool_calls"))] + [message.get("tool_call_id")]
    if any(isinstance(id, str) and id in by_call for id in calls):
        return True
    text, thinking = _words(message)
    return bool(text or thinking) and _plain(text + thinking) in texts


def _words(message: dict[str, Any]) -> tuple[str, str]:
    content = message.get("content")
    if not isinstance(content, list):
        return text_of(content), ""
    thinking = "".join(text_of(as_dict(p).get("think")) for p in content if as_dict(p).get("type") == "think")
    return "".join(text_of(p) for p in content if as_dict(p).get("type") in ("text", None)), thinking


def _assistant(
    story: Story, number: int, message: dict[str, Any], by_call: _Calls, texts: dict[str, Step | None], *, is_new: bool
) -> None:
    calls = [_context_call(as_dict(raw), f"context{number}.call{k}") for k, raw in enumerate(as_list(message.get("tool_calls")))]
    step = next((by_call[call.id][0] for call in calls if call.id in by_call), None)
    if step is None and (words := _plain("".join(_words(message)))):
        same = texts.get(words)
        step = same if same is not None and not same.calls else None
    if step is None and is_new:
        step = story.begin(f"context{number}", None)
        step.text, step.thinking = _words(message)
    if step is None:
        return
    for call in calls:
        if call.id not in by_call:
            step.calls.append(call)
            by_call[call.id] = step, call
        elif len(call.args) > len(by_call[call.id][1].args):
            by_call[call.id][1].args = call.args


def _context_call(raw: dict[str, Any], fallback: str) -> Call:
    function = as_dict(raw.get("function"))
    args = function.get("arguments")
    return Call(
        string(raw.get("id")) or fallback, string(function.get("name")) or "unnamed", "" if args is None else compact(args)
    )


def _tool(story: Story, message: dict[str, Any], by_call: _Calls, is_answered: set[str]) -> None:
    id = string(message.get("tool_call_id"))
    if id is None or id not in by_call or id in is_answered:
        return
    is_answered.add(id)
    text = said(message.get("content"))
    ok = False if text.startswith("<system>ERROR") else None
    step = by_call[id][0]
    place = next(k for k, item in enumerate(story.items) if item is step) + 1
    while place < len(story.items) and isinstance(story.items[place], (Answer, Verdict)):
        place += 1
    story.items.insert(place, Answer(id, None, text, ok))
