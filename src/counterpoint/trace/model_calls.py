"""What an event keeps of its model call: its prompt, in texts and in token ids, each kept once in a trace.

Always true: `prompt_ids` of a call is a list of token ids and of runs `[event, start, count]`, which the prompt has in common
with what the call of that event read and then wrote; plain ids alone are a whole prompt, as in older recordings. A run names a
call that had ended when it was written, so that what a killed recorder left can be put together too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from counterpoint.trace.records import Event
from counterpoint.trace.trace import Trace

Ints = NDArray[np.int64]
_BLOCK = 8
"""Tokens of the shortest run that is worth a reference."""
_WIDE = 8  # bytes of one id in an array
_LISTS = (list, tuple)
_MOST_IDS = 1 << 22
"""Longer than any prompt: a trace may come from anywhere, and runs of runs double."""


def model_call(event: Event) -> Mapping[str, Any] | None:
    """What an event keeps of its model call; None for an event in which no model spoke."""
    note = (event.extra or {}).get("call")
    return note if isinstance(note, Mapping) and event.type != "tool_result" and "failed" not in note else None


def renamed_call(note: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """What an event keeps of its model call, in a trace whose events have other names."""
    out = dict(note)
    prompt, ids = out.get("prompt"), out.get("prompt_ids")
    if isinstance(prompt, dict) and "of" in prompt:
        out["prompt"] = {**prompt, "of": names.get(prompt["of"], prompt["of"])}
    if isinstance(ids, list):
        out["prompt_ids"] = [[names.get(x[0], x[0]), *x[1:]] if isinstance(x, list) and x else x for x in ids]
    return out


def common_prefix(a: Ints, b: Ints) -> int:
    """How many first tokens are the same."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n


def ids_of(values: Any) -> Ints | None:
    """A list of token ids as an array; None for what is none."""
    if not isinstance(values, Sequence) or not all(isinstance(i, int) for i in values):
        return None
    return np.asarray(values, np.int64)


# -- texts ---------------------------------------------------------------------------------------------------------------


def prompt_of(trace: Trace, event: Event) -> list[str]:
    """The texts of the messages that an event's model call was asked with, in order; what is redacted is an empty text.

    Empty where the event has no such call, or what it has cannot be followed: a trace may come from anywhere.
    """
    return [_text(trace, message) for message, _ in _messages(trace, event)]


def messages_of(trace: Trace, event: Event) -> list[dict[str, Any]]:
    """The messages that an event's model call was asked with, as chat templates take them: `role`, `content`, and what else was
    kept of each (`tool_calls`, `tool_call_id`, `name`). Empty where no roles were recorded."""
    found = _messages(trace, event)
    if not found or any(fields is None for _, fields in found):
        return []
    return [{**(fields or {}), "content": _text(trace, message)} for message, fields in found]


class Chat(NamedTuple):
    """A model call as a conversation."""

    prompt: list[tuple[Literal["system", "user", "assistant", "tool"], str]]
    answer: str


def chat_of(trace: Trace, event: Event) -> Chat | None:
    """An event's model call as a conversation; None where its texts were not recorded.

    Roles are the recorded ones. A live team records none: its first message is the system's; what the agent has said itself
    before is the assistant's; the rest is the user's.
    """
    texts, note = prompt_of(trace, event), model_call(event) or {}
    answer = trace.contents.get(str(note.get("completion")))
    if not texts or answer is None:
        return None
    if known := messages_of(trace, event):
        return Chat([(message["role"], message["content"]) for message in known], answer)
    notes = [(e.extra or {})["call"] for e in trace.events if e.agent == event.agent and "call" in (e.extra or {})]
    own = {str(call.get("completion")) for call in notes}
    replies = {trace.contents[ref] for ref in own if ref in trace.contents}
    rest: list[Any] = [("assistant" if text in replies else "user", text) for text in texts[1:]]
    return Chat([("system", texts[0]), *rest], answer)


def prompt_parts(trace: Trace, event: Event) -> list[str]:
    """First lines and fields of messages as they are kept, and references of all other texts of a prompt."""
    return [part for kept in _messages(trace, event) for part in words_in(kept)]


def words_in(value: Any) -> Iterator[str]:
    """Every text in a value of JSON, names left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from words_in(one)


def _messages(trace: Trace, event: Event) -> list[tuple[Any, Mapping[str, Any] | None]]:
    """The messages of a prompt as they are kept: a reference, or a first line and the reference of the rest; with their other
    fields, where those were recorded."""
    by_key = {e.key: e for e in trace.events if e.key is not None}
    keep: list[tuple[Any, Mapping[str, Any] | None]] = []
    limit, budget = None, len(trace.events)
    note = _prompt_part(event)
    while note is not None and budget:
        more, first, of = note
        keep = (more if limit is None else more[: max(0, limit - first)]) + keep
        limit, budget = first if limit is None else min(limit, first), budget - 1
        place = trace.index.get(of)  # a recorded team has no keys: its calls go by their ids
        before = None if not limit else by_key.get(of) or (None if place is None else trace.events[place])
        note = None if before is None else _prompt_part(before)
    return keep


def _text(trace: Trace, message: Any) -> str:
    """A message: a text of the trace, or a first line and a text."""
    if isinstance(message, list):
        rest = trace.contents.get(str(message[1])) if len(message) == 2 else None
        return "" if rest is None else f"{message[0]}\n{rest}"
    return trace.contents.get(str(message), "")


def _prompt_part(event: Event) -> tuple[list[tuple[Any, Mapping[str, Any] | None]], int, str] | None:
    """An event's own part of its prompt: new references with their fields, how many it shares with another prompt, and whose."""
    call = (event.extra or {}).get("call")
    note = call.get("prompt") if isinstance(call, Mapping) else None
    if not isinstance(note, Mapping) or not isinstance(note.get("more"), list):
        return None
    first, fields = note.get("first", 0), note.get("fields")
    known = fields if isinstance(fields, list) and len(fields) == len(note["more"]) else [None] * len(note["more"])
    more = [(ref, one if isinstance(one, Mapping) and isinstance(one.get("role"), str) else None)
            for ref, one in zip(note["more"], known, strict=True)]  # fmt: skip
    return more, first if isinstance(first, int) and first > 0 else 0, str(note.get("of"))


# -- token ids -----------------------------------------------------------------------------------------------------------


class _Read(NamedTuple):
    """What a call read, and then wrote."""

    ids: Ints
    prompt: int
    """How many of them are the prompt."""


def prompt_ids_of(trace: Trace) -> dict[str, Ints]:
    """Event id to the whole prompt of its model call, for every call whose prompt ids are recorded and can be followed."""
    notes = {e.id: note for e in trace.events if (note := model_call(e)) is not None and "prompt_ids" in note}
    reads: dict[str, _Read | None] = {}
    for name in notes:
        waiting = [] if name in reads else [name]
        while waiting:
            at = waiting[-1]
            sources = [] if at in reads else _source_events(notes[at]["prompt_ids"])
            missing = [src for src in sources if src not in reads and src in notes]
            if missing:
                reads[at] = None  # under way: a run that leads back here has no answer
                waiting += missing
                continue
            waiting.pop()
            reads[at] = _joined(notes[at], reads)
    return {name: read.ids[: read.prompt] for name, read in reads.items() if read is not None}


def _source_events(parts: Any) -> list[str]:
    """The events whose runs a prompt is made of."""
    runs = [part for part in parts if isinstance(part, _LISTS)] if isinstance(parts, _LISTS) else []
    return list(dict.fromkeys([str(part[0]) for part in runs if len(part) == 3]))


def _joined(note: Mapping[str, Any], reads: Mapping[str, _Read | None]) -> _Read | None:
    parts = note["prompt_ids"]
    out: list[Any] = []
    fresh: list[int] = []
    length = 0
    for part in parts if isinstance(parts, _LISTS) else [None]:
        if isinstance(part, int):
            fresh.append(part)
            continue
        run = _run(part, reads)
        if run is None or (length := length + len(run)) > _MOST_IDS:
            return None
        out += [np.array(fresh, np.int64), run] if fresh else [run]
        fresh = []
    ids = np.concatenate([*out, np.array(fresh, np.int64)])
    answer = ids_of(note.get("token_ids"))
    return _Read(ids if answer is None else np.concatenate([ids, answer]), len(ids))


def _run(part: Any, reads: Mapping[str, _Read | None]) -> Ints | None:
    """The tokens of one run; None where it leads nowhere."""
    if not isinstance(part, _LISTS) or len(part) != 3:
        return None
    source, start, count = part
    if not (isinstance(start, int) and isinstance(count, int) and start >= 0 and count >= 0):
        return None
    read = reads.get(str(source))
    return None if read is None or start + count > len(read.ids) else read.ids[start : start + count]


class PromptIds:
    """The prompts of one recording so far: what a new one has in common with them is written as runs."""

    def __init__(self) -> None:
        self._read: dict[str, Ints] = {}
        """Event to what its call read and wrote."""
        self._last: dict[str, str] = {}
        """Agent to the event of its last call: its next prompt nearly always begins as that one did."""
        self._known: dict[bytes, tuple[str, int]] = {}
        """Every block of tokens that was new when it came to where it stands."""

    def note(self, agent: str, prompt: Sequence[int]) -> list[Any]:
        """A prompt as an event keeps it: token ids, and runs of earlier calls."""
        ids = np.asarray(prompt, np.int64)
        data, at, out = ids.tobytes(), 0, []  # type: bytes, int, list[Any]
        source: tuple[str, int] | None = (self._last[agent], 0) if agent in self._last else self._block(data, 0)
        while at < len(ids):
            count = 0
            if source is not None:
                event, start = source
                count = common_prefix(self._read[event][start:], ids[at:])
            if source is not None and count >= _BLOCK:
                out.append([event, start, count])
                at += count
            else:
                out.append(int(ids[at]))
                at += 1
            source = self._block(data, at)
        return out

    def add(self, agent: str, event: str, note: Sequence[Any], prompt: Sequence[int], answer: Sequence[int] | None) -> None:
        """The call of this event has ended: later prompts may begin or go on as it did."""
        whole = np.asarray([*prompt, *(answer or ())], np.int64)
        self._read[event], self._last[agent] = whole, event
        data, at = whole.tobytes(), 0
        for part in (*note, *(answer or ())):
            if isinstance(part, int):
                if at + _BLOCK <= len(whole):
                    self._known.setdefault(data[_WIDE * at : _WIDE * (at + _BLOCK)], (event, at))
                at += 1
            else:
                at += part[2]

    def _block(self, data: bytes, at: int) -> tuple[str, int] | None:
        """Where the tokens from here on were first read or written."""
        return self._known.get(data[_WIDE * at : _WIDE * (at + _BLOCK)])


def without_ids(trace: Trace, events: Container[str]) -> Trace:
    """The trace without the token ids of these events' calls; what the prompts of others shared with them, they now have."""
    prompts, prompt_ids, out = prompt_ids_of(trace), PromptIds(), []
    for event in trace.events:
        note = model_call(event)
        if note is None:
            out.append(event)
            continue
        call, ids = dict(note), prompts.get(event.id)
        if event.id in events:
            call = {k: v for k, v in call.items() if k not in ("prompt_ids", "token_ids")}
        elif ids is not None:
            call["prompt_ids"] = prompt_ids.note(event.agent, ids.tolist())
            prompt_ids.add(event.agent, event.id, call["prompt_ids"], ids.tolist(), call.get("token_ids"))
        out.append(replace(event, extra={**(event.extra or {}), "call": call}))
    return replace(trace, events=out)
