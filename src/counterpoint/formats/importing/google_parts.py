"""Contents in Google's form, a role and its parts, which Gemini CLI, Qwen Code and the Agent Development Kit write.

Always true: a part of no known kind is counted and left out; nothing raises on a strange part.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import Answer
from counterpoint.formats.importing.values import as_dict, string, text_of

_DATA = ("inlineData", "inline_data", "fileData", "file_data")
_SIGNATURES = frozenset({"thoughtSignature", "thought_signature"})


@dataclass
class Parts:
    """What the parts of one content say."""

    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    images: int = 0


def parts_of(content: Any, unknown: Counter[str] | None = None) -> Parts:
    """The parts of a content: a text, one part, or a list of either; or an object that has them under `parts`."""
    items = as_dict(content).get("parts", content)
    out = Parts()
    words: list[str] = []
    thoughts: list[str] = []
    for part in items if isinstance(items, list) else [items] if items is not None else []:
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, dict):
            _part(part, words, thoughts, out, unknown)
    out.text, out.thinking = "\n".join(w for w in words if w), "\n".join(t for t in thoughts if t)
    return out


def _part(part: dict[str, Any], words: list[str], thoughts: list[str], out: Parts, unknown: Counter[str] | None) -> None:
    call = part.get("functionCall") or part.get("function_call")
    answer = part.get("functionResponse") or part.get("function_response")
    if isinstance(call, dict):
        out.calls.append(Call(string(call.get("id")), string(call.get("name")) or "unnamed", call.get("args")))
    elif isinstance(answer, dict):
        out.answers.append(response_of(answer))
    elif isinstance(part.get("text"), str):
        (thoughts if part.get("thought") is True else words).append(part["text"])
    elif any(name in part for name in _DATA):
        out.images += 1
    elif not part.keys() <= _SIGNATURES and unknown is not None:
        unknown["part with " + ", ".join(sorted(map(str, part))[:3])] += 1


def response_of(answer: dict[str, Any]) -> Answer:
    """A function's response: its output, or its error."""
    response = answer.get("response")
    got = as_dict(response)
    error = got.get("error")
    text = text_of(error) if error else text_of(response)
    return Answer(
        text=text,
        call=string(answer.get("id")),
        tool=string(answer.get("name")),
        ok=False if error else None,
        error=text[:500] if error else None,
    )
