"""Sub-agents of which only totals are known: what the screen shows of `use_subagents`, what the result of a call states.

Always true: the tokens of a sub-agent count once, on a step that says who states them.
"""

from __future__ import annotations

from typing import Any

from counterpoint.formats.cline.requests import info_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import Answer, Dialogue, Entry
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, number, string
from counterpoint.trace.keys import STATED

_TOOL = "use_subagents"
_RULE = "what the screen shows of it"


def shown_subagents(ui: list[dict[str, Any]], entries: list[Entry], parent: str) -> list[Dialogue]:
    """The sub-agents of each call of `use_subagents`: one for each prompt; the call and its answer become theirs."""
    batches = _batches(ui)
    found: list[Dialogue] = []
    for entry in entries:
        for call in [c for c in entry.calls if c.tool == _TOOL]:
            items, spent = batches.pop(0) if batches else ([], {})
            if not items or call.id is None:
                continue
            calls = [
                Call(call.id if k == 0 else f"{call.id}.{k}", _TOOL, {"prompt": i.get("prompt")}) for k, i in enumerate(items)
            ]
            entry.calls[entry.calls.index(call) : entry.calls.index(call) + 1] = calls
            found += [_dialogue(f"{parent}:{c.id}", str(c.id), i) for c, i in zip(calls, items, strict=True)]
            _add_cache(found[-len(items)], spent)
            _answer(entries, call.id, calls, items)
    return found


def _batches(ui: list[dict[str, Any]]) -> list[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """The last state of each group of sub-agents, with what it spent in all."""
    found: list[tuple[list[dict[str, Any]], dict[str, Any]]] = []
    latest: list[dict[str, Any]] = []
    for message in ui:
        got = info_of(message.get("text"))
        if message.get("say") in ("subagent", _TOOL) and (items := [i for i in as_list(got.get("items")) if isinstance(i, dict)]):
            latest = items
        elif message.get("say") == "subagent_usage":
            found.append((latest, got))
            latest = []
    return [*found, (latest, {})] if latest else found


def _dialogue(agent: str, call: str, item: dict[str, Any]) -> Dialogue:
    into, out = count(item.get("inputTokens")), count(item.get("outputTokens"))
    usage = Usage(into or 0, 0, 0, out or 0) if into is not None or out is not None else None
    error = string(item.get("error"))
    extra = {STATED: call, "tool_calls": count(item.get("toolCalls"))}
    step = Entry("assistant", string(item.get("result")) or "", f"{call}:stated", usage=usage, error=error, extra=extra)
    step.cost = number(item.get("totalCost")) or None
    asked = Entry("user", string(item.get("prompt")) or "")
    return Dialogue(agent, [asked, step], "subagent", None, call, _RULE)


def _add_cache(first: Dialogue, spent: dict[str, Any]) -> None:
    """The cache's tokens are stated for all together: they stand on the first."""
    read, wrote = count(spent.get("cacheReads")) or 0, count(spent.get("cacheWrites")) or 0
    step = first.entries[-1]
    if read or wrote:
        step.usage = (step.usage or Usage()).plus(Usage(0, read, wrote, 0))
        step.extra["cache_of"] = "all sub-agents of the call"


def _answer(entries: list[Entry], call: str, calls: list[Call], items: list[dict[str, Any]]) -> None:
    """The answer of the call, in as many as it made sub-agents."""
    for entry in entries:
        for k, answer in enumerate(entry.answers):
            if answer.call == call:
                entry.answers[k : k + 1] = [_own(answer, c, i) for c, i in zip(calls, items, strict=True)]
                return


def _own(answer: Answer, call: Call, item: dict[str, Any]) -> Answer:
    error = string(item.get("error")) if item.get("status") == "failed" or item.get("error") else None
    text = string(item.get("result")) or error or answer.text
    return Answer(text, call.id, _TOOL, not error, error, answer.at)


def stated_subagent(call: Call, answer: Answer) -> Dialogue | None:
    """The sub-agent of a call by what its answer says: its last words and its tokens."""
    got = info_of(answer.text)
    used = as_dict(got.get("usage"))
    into, out = count(used.get("inputTokens")), count(used.get("outputTokens"))
    if call.id is None or not isinstance(got.get("text"), str) or (into is None and out is None):
        return None
    extra = {STATED: call.id, "rounds": count(got.get("iterations"))}
    step = Entry("assistant", got["text"], f"{call.id}:stated", answer.at, usage=Usage(into or 0, 0, 0, out or 0), extra=extra)
    step.stop_reason = string(got.get("finishReason"))
    asked = Entry("user", string(as_dict(call.arguments).get("task")) or "")
    answer.text = got["text"]
    return Dialogue(call.id, [asked, step], "subagent", None, call.id, "what the result states")
