"""The action grammar: how an act is written in one line, and how a line, or a tool call, is read as an act.

Always true: `read(write(act), choices)` is the act again where it is legal; whatever text comes in, the answer is a legal act
or a `Malformed` that says what was wrong and what would be right; nothing raises. Only the first line that begins with a verb
counts.

    SPAWN worker          DELEGATE lead.1: s3        MESSAGE lead.2: some words      TOOL search: words, or a JSON object
    AGGREGATE union       RETURN: what was found     STOP: the answer                NOOP
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterpoint.lab.tasks.task import VERBS, Act, Choice

_LINE = re.compile(rf"^[\s>*`-]*({'|'.join(VERBS)})\b[ \t]*([^\s:]*)[ \t]*(?::[ \t]*(.*))?$", re.I)
_SHOWN = 160
ACT = "act"
"""The target of an action in a world; where words go along with it, the target is the action itself."""


@dataclass(frozen=True)
class Malformed:
    """A text that is no legal act."""

    why: str
    text: str


def write(act: Act) -> str:
    """An act as one line; line breaks of its text become spaces, as the grammar has one line per act."""
    head = f"{act.verb.upper()} {act.target}".rstrip()
    text = " ".join(act.text.split()) if "\n" in act.text or "\r" in act.text else act.text.strip()
    return f"{head}: {text}" if text else head


def label(choice: Choice) -> str:
    """A choice as the prompt shows it."""
    head = f"{choice.verb.upper()} {choice.target}".rstrip()
    if choice.text is None:
        return f"{head}: <{choice.about or 'text'}>"
    return f"{head}: {choice.text}" if choice.text else head


def starts(choices: Sequence[Choice]) -> tuple[str, ...]:
    """How a legal completion may begin: fixed choices are whole lines, the others go on with free text."""
    out = []
    for choice in choices:
        head = f"{choice.verb.upper()} {choice.target}".rstrip()
        if choice.text is None:
            out.append(f"{head}: ")
        else:
            out.append(f"{head}: {choice.text}\n" if choice.text else f"{head}\n")
    return tuple(dict.fromkeys(out))


def matching(act: Act, choices: Sequence[Choice]) -> int | None:
    """The choice that an act takes: the one with its very text before one that leaves the text open."""
    mine = [i for i, c in enumerate(choices) if c.verb == act.verb and c.target == act.target]
    exact = next((i for i in mine if choices[i].text is not None and choices[i].text == act.text.strip()), None)
    if exact is not None:
        return exact
    return next((i for i in mine if choices[i].text is None), None)


def read(text: str, choices: Sequence[Choice]) -> Act | Malformed:
    """The act that a completion chooses."""
    if not text.strip():
        return Malformed("nothing was said", text)
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        verb, target, words = match[1].lower(), match[2], (match[3] or "").strip()
        return _legal(Act(verb, target, words), choices, text)  # type: ignore[arg-type]
    return Malformed("no line begins with a verb of the grammar", text)


def _legal(act: Act, choices: Sequence[Choice], text: str) -> Act | Malformed:
    if matching(act, choices) is not None:
        return act
    verbs = [c for c in choices if c.verb == act.verb]
    if not verbs:
        return Malformed(f"{act.verb.upper()} is not legal now", text)
    folded = [c for c in verbs if c.target.casefold() == act.target.casefold()]
    # one repair that cannot be wrong: the only target there is, or the same one in other letters
    only = folded or (verbs if not act.target and len({c.target for c in verbs}) == 1 else [])
    if only:
        mended = Act(act.verb, only[0].target, act.text)
        if matching(mended, choices) is not None:
            return mended
        return Malformed(
            f"{act.text[:_SHOWN]!r} is none of the texts offered for {act.verb.upper()} {only[0].target}".strip(), text
        )
    return Malformed(f"{act.target[:_SHOWN]!r} is no target of {act.verb.upper()} now", text)


# -- as bare actions -----------------------------------------------------------------------------------------------------

_ACTION = re.compile(r"\bACTION\s*:\s*(.+)", re.I)


def bare(choice: Choice) -> str:
    """A choice of an action in a world, without verb and target: its text; with words to others, the action before them."""
    return choice.target if choice.text is None else choice.text


def bare_starts(choices: Sequence[Choice]) -> tuple[str, ...]:
    """How a bare action may begin; none where any text is an action. In the order of `starts`."""
    if any(c.target == ACT and c.text is None for c in choices):
        return ()
    return tuple(dict.fromkeys(f"{bare(c)}: " if c.text is None else f"{bare(c)}\n" for c in choices))


def read_bare(text: str, choices: Sequence[Choice]) -> Act | Malformed:
    """The action in a text: all of it, a line of the grammar, what follows `ACTION:`, or the only action that stands in it."""
    said = text.strip()
    free = next((c for c in choices if c.target == ACT and c.text is None), None)
    act = read(said, choices)
    if isinstance(act, Act):
        return act
    if free is not None:
        return Act(free.verb, ACT, said) if said else act
    told = [m.strip() for m in _ACTION.findall(said)][-1:]
    for line in (*told, *said.splitlines()):
        for choice in choices:
            head, _, words = line.partition(":") if choice.text is None else (line, "", "")
            if head.strip().strip("*`\"'.[]").casefold() == bare(choice).casefold():
                return Act(choice.verb, choice.target, words.strip() if choice.text is None else choice.text)
    inside = [c for c in choices if re.search(rf"(?<!\w){re.escape(bare(c))}(?!\w)", "\n".join(told) or said, re.I)]
    if len(inside) == 1:
        return Act(inside[0].verb, inside[0].target, inside[0].text or "")
    return Malformed("names no action" if not inside else "names several actions", text)


def line_of(act: Act, choices: Sequence[Choice], offered: Sequence[str]) -> str:
    """An act as the one of these starts that stands for it, with its text; the line of the grammar where none does."""
    at = matching(act, choices)
    every = starts(choices)
    if at is None or len(offered) != len(every):
        return write(act)
    start = offered[every.index(starts([choices[at]])[0])]
    return start.removesuffix("\n") if choices[at].text is not None else start + act.text


# -- as tool calls -------------------------------------------------------------------------------------------------------


def functions(choices: Sequence[Choice]) -> tuple[dict[str, Any], ...]:
    """The same choices as functions that a model may call: one per verb, with its targets and fixed texts as enumerations."""
    out = []
    for verb in dict.fromkeys(c.verb for c in choices):
        mine = [c for c in choices if c.verb == verb]
        targets = sorted({c.target for c in mine if c.target})
        texts = [c.text for c in mine]
        properties: dict[str, Any] = {}
        if targets:
            properties["target"] = {"type": "string", "enum": targets}
        if any(text is None for text in texts):
            properties["text"] = {"type": "string"}
        elif any(texts):
            properties["text"] = {"type": "string", "enum": sorted({t for t in texts if t})}
        about = "; ".join(dict.fromkeys(c.about for c in mine if c.about)) or verb
        schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
        out.append({"type": "function", "function": {"name": verb, "description": about, "parameters": schema}})
    return tuple(out)


def read_calls(calls: Sequence[Mapping[str, Any]], text: str, choices: Sequence[Choice]) -> Act | Malformed:
    """The act that a model's first function call chooses; without one, its text is read as a line."""
    if not calls:
        return read(text, choices)
    name = str(calls[0].get("name", "")).lower()
    raw = calls[0].get("arguments", "{}")
    shown = f"{name}({raw})"
    try:
        args = json.loads(raw) if isinstance(raw, str) else dict(raw)
    except (ValueError, TypeError):
        return Malformed(f"the arguments of {name} are not JSON", shown)
    if not isinstance(args, dict) or name not in VERBS:
        return Malformed(f"{name!r} with such arguments is no action", shown)
    target, words = args.get("target", ""), args.get("text", "")
    if not isinstance(target, str) or not isinstance(words, str):
        words = words if isinstance(words, str) else json.dumps(words)
        target = target if isinstance(target, str) else ""
    return _legal(Act(name, target, words.strip()), choices, shown)  # type: ignore[arg-type]
