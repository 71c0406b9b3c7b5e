"""`Memory`: what a recording can answer for, by content address: completions of models and results of tools.

Always true: an answer is given only for the very same question (model, version, prompt, parameters, keyed seed; or tool, version,
arguments and what the agent did in its folder before), and is the recorded one in every part; a call that failed fails again the
same way. So a run with unchanged prompts is the recorded run, and only what changed is asked anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from counterpoint.lab.lm.model import Completion, ModelFailed
from counterpoint.lab.team.tool import ToolResult
from counterpoint.trace import Event, Trace
from counterpoint.trace.model_calls import Ints, prompt_ids_of

_RESULT_FIELDS = ("call", "badge", "edited", "planted")


class Recalled(NamedTuple):
    """An answer from the recording, and how long it took then."""

    answer: Completion | ModelFailed | ToolResult
    dur: float


def prompt_note(refs: list[str], last: tuple[str, list[str]] | None) -> dict[str, Any]:
    """A prompt by the references of its messages; where it begins as the agent's last one did, only what is new.

    Prompts of an agent grow by a few messages at a time: writing each whole would make a trace quadratic in its turns.
    """
    if last is None:
        return {"more": refs}
    key, before = last
    most = len(before) - 1
    if most <= len(refs) and refs[:most] == before[:most]:  # all but the last, which says what is legal now: nearly always
        shared = most + (refs[most : most + 1] == before[most:])
        return {"of": key, "first": shared, "more": refs[shared:]}
    shared = next((i for i, (a, b) in enumerate(zip(refs, before, strict=False)) if a != b), min(len(refs), len(before)))
    return {"of": key, "first": shared, "more": refs[shared:]}


def call_note(address: str, seed: int, completion: Completion, text_ref: str, prompt: dict[str, Any]) -> dict[str, Any]:
    """What an event keeps of its model call, beside its own fields and the token ids of the prompt."""
    note: dict[str, Any] = {
        "address": address,
        "seed": seed,
        "completion": text_ref,
        "prompt": prompt,
        "finish": completion.finish,
    }
    for name in ("token_ids", "logps", "start_logps"):
        value = getattr(completion, name)
        if value is not None:
            note[name] = list(value)
    if completion.tool_calls:
        note["tool_calls"] = [dict(c) for c in completion.tool_calls]
    if completion.policy is not None:
        note["policy"] = completion.policy
    if completion.attempts > 1:
        note["attempts"] = completion.attempts
    told = {k: v for k, v in completion.extra.items() if k != "seconds"}
    if told:
        note["told"] = told  # such as what an endpoint would not heed
    return note


def tool_address(tool: str, version: str, args: Any, before: str = "") -> str:
    """The content address of a tool call; `before` stands for what the agent's folder had been through."""
    text = json.dumps([tool, version, args, before], sort_keys=True, ensure_ascii=False, default=str)
    return "tool:" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Memory:
    """The answers of one recording."""

    def __init__(self) -> None:
        self._known: dict[str, Recalled] = {}
        self.spawned: dict[str, bool] = {}
        """Key of a spawn to whether it was granted; the team's limit refused the others."""

    @classmethod
    def of(cls, trace: Trace, unended: frozenset[str] = frozenset()) -> Memory:
        """All answers in a trace; events without an end (`unended`) gave none."""
        memory, prompts = cls(), prompt_ids_of(trace)
        for event in trace.events:
            if event.type == "spawn" or (event.type == "safety_event" and event.error == "limit"):
                memory.spawned[str(event.key)] = event.type == "spawn"
            note = (event.extra or {}).get("call")
            if isinstance(note, Mapping) and isinstance(note.get("address"), str) and event.id not in unended:
                recalled = _recalled(trace, event, note, prompts.get(event.id))
                if recalled is not None:
                    memory._known.setdefault(note["address"], recalled)
        return memory

    def find(self, address: str) -> Recalled | None:
        """The recorded answer to this very question."""
        return self._known.get(address)

    def __len__(self) -> int:
        return len(self._known)


def _recalled(trace: Trace, event: Event, note: Mapping[str, Any], prompt: Ints | None) -> Recalled | None:
    dur = float(event.dur or 0.0)
    if note["address"].startswith("tool:"):
        return _result(trace, event, note, dur)
    if "failed" in note:
        return Recalled(ModelFailed(note["failed"], note.get("what", "the recorded call failed")), dur)
    text = trace.contents.get(note.get("completion", ""))
    if text is None:
        return None  # its text was left out or redacted: the model must be asked again

    def row(name: str) -> tuple[Any, ...] | None:
        return tuple(note[name]) if name in note else None

    completion = Completion(
        text=text,
        tokens_in=event.tokens_in,
        tokens_out=event.tokens_out,
        token_ids=row("token_ids"),
        prompt_ids=None if prompt is None else tuple(prompt.tolist()),
        logps=row("logps"),
        start_logps=row("start_logps"),
        tool_calls=row("tool_calls") or (),
        policy=note.get("policy"),
        cost_usd=event.cost_usd,
        finish=note.get("finish", "unknown"),
        attempts=note.get("attempts", 1),
    )
    return Recalled(completion, dur)


def _result(trace: Trace, event: Event, note: Mapping[str, Any], dur: float) -> Recalled | None:
    """The result as the tool gave it, before anybody edited it."""
    text = trace.contents.get(note.get("result", event.content_ref or ""))
    if text is None:
        return None
    extra = {k: v for k, v in (event.extra or {}).items() if k not in _RESULT_FIELDS}
    source = "memory" if event.source == "memory" else "tool"
    ok = event.ok is not False
    return Recalled(ToolResult(text, ok, event.error, event.trusted is not False, source, (), extra), dur)  # type: ignore[arg-type]
