"""One session of the Agent Client Protocol on its way to a trace.

Always true: what the agent said and called until a tool answered, or the person spoke, is one step; a call ends once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from counterpoint.formats.importer import Session
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, number, string, text_of
from counterpoint.trace import Trace

_CHUNKS = {"user_message_chunk": "user", "agent_message_chunk": "assistant", "agent_thought_chunk": "thought"}
_NOTES = frozenset({
    "plan", "available_commands_update", "current_mode_update", "config_option_update", "session_info_update", "usage_update",
})  # fmt: skip
_COUNTS = ("inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens", "thoughtTokens")
_ENDS = {"completed": True, "failed": False}
_PARENTS = ("parentToolUseId", "parentToolCallId")
_TOOLS = ("toolName", "tool_name", "tool")
_STEPS = "model calls: a step is what the agent said and called until a tool answered or the person spoke"
_GROWING = "whether the tokens of a turn count earlier turns again: they grow with each"


class AcpConversation:
    """A session, with the agents that its calls made."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_told_again = False
        """Whether the agent tells a loaded session from its beginning."""
        self.dialogues = {MAIN: Dialogue()}
        self.model: str | None = None
        self.left_out: Counter[str] = Counter()
        self.meta: dict[str, Any] = {}
        self._calls: dict[str, dict[str, Any]] = {}
        """Call to what its updates said so far."""
        self._of: dict[str, tuple[Dialogue, Entry, int]] = {}
        self._answers: dict[str, Answer] = {}
        self._wanted: dict[str, dict[str, Any]] = {}
        self._turns: list[Usage] = []
        self._begun = 0
        """How many entries there were when the present turn began."""
        self._odd = self._again = 0
        self._cost: float | None = None

    @property
    def dialogue(self) -> Dialogue:
        """The main agent's."""
        return self.dialogues[MAIN]

    # -- what the person did -----------------------------------------------------------------------------------------------

    def prompt(self, prompt: Any, at: float | None, name: str) -> None:
        """A prompt."""
        self._begun = len(self.dialogue.entries)
        self.dialogue.entries.append(Entry("user", self._text(prompt), name, at, extra={"is_prompt": True}))

    def cancel(self, at: float | None, name: str) -> None:
        """The person stops the turn."""
        self.dialogue.entries.append(Entry("user", "cancelled", name, at, extra={"interrupted": True}))

    def request(self, request: str, params: dict[str, Any], at: float | None, name: str) -> None:
        """The agent asks whether it may; the call is one that was told of, or is told of here."""
        call = as_dict(params.get("toolCall"))
        self._wanted[request] = params
        if string(call.get("toolCallId")):
            self._tool({**call, "status": None}, at, name)

    def decide(self, request: str, result: dict[str, Any], at: float | None) -> None:
        """What the person said to that."""
        params = self._wanted.pop(request, {})
        outcome = as_dict(result.get("outcome")) or {"outcome": result.get("outcome"), **result}
        chosen = string(outcome.get("optionId"))
        option = next((o for o in map(as_dict, as_list(params.get("options"))) if o.get("optionId") == chosen), {})
        kind, call = string(option.get("kind")) or "", string(as_dict(params.get("toolCall")).get("toolCallId"))
        is_no = outcome.get("outcome") == "cancelled" or kind.startswith("reject")
        said = string(option.get("name")) or chosen or str(outcome.get("outcome") or "decided")
        extra = {"permission": kind or chosen or outcome.get("outcome"), "call": call}
        self.dialogue.entries.append(Entry("user", said, f"permission:{request}", at, extra=extra))
        if is_no and call in self._of and call not in self._answers:
            self._end(call, Answer("", call, None, False, "refused", at, {"is_rejected": True}))

    # -- what the agent did ------------------------------------------------------------------------------------------------

    def update(self, update: dict[str, Any], at: float | None, name: str) -> bool:
        """A notification; False where it is of no known kind."""
        kind = string(update.get("sessionUpdate")) or ""
        if self.is_told_again and (kind in _CHUNKS or kind.startswith("tool_call")):
            self._again += 1
        elif kind in _CHUNKS:
            self._chunk(_CHUNKS[kind], update, at, name)
        elif kind in ("tool_call", "tool_call_update"):
            return self._tool(update, at, name)
        elif kind in _NOTES:
            self._note(kind, update)
        else:
            return False
        return True

    def _note(self, kind: str, update: dict[str, Any]) -> None:
        if kind == "session_info_update" and string(update.get("title")):
            self.meta["title"] = update["title"]
        cost = as_dict(update.get("cost"))
        if cost.get("currency") == "USD" and number(cost.get("amount")) is not None:
            self._cost = number(cost["amount"])
        self.left_out[kind] += 1

    def _dialogue(self, update: Mapping[str, Any]) -> Dialogue:
        """Whose update it is: of the agent that a call made, where the update names that call."""
        parent = _named(update.get("_meta"), _PARENTS)
        if parent is None or parent not in self._of:
            return self.dialogue
        if parent not in self.dialogues:
            made = self._calls[parent]
            arguments = as_dict(made.get("rawInput"))
            role = string(arguments.get("subagent_type"))
            said = string(arguments.get("description")) or string(made.get("title"))
            task = string(arguments.get("prompt"))
            entries = [Entry("user", task, f"{parent}:task", by="client")] if task else []
            self.dialogues[parent] = Dialogue(parent, entries, role, said, parent, "the call that its updates name")
        return self.dialogues[parent]

    def _step(self, dialogue: Dialogue, at: float | None, name: str) -> Entry:
        """The step that goes on, or a new one."""
        for last in reversed(dialogue.entries):
            if last.role == "assistant":
                last.at = at if at is not None else last.at
                return last
            if "permission" not in last.extra:
                break
        step = Entry("assistant", "", name, at, model=self.model)
        dialogue.entries.append(step)
        return step

    def _chunk(self, role: str, update: dict[str, Any], at: float | None, name: str) -> None:
        text, dialogue = self._text(update.get("content")), self._dialogue(update)
        last = dialogue.entries[-1] if dialogue.entries else None
        if role == "user":
            if last is not None and last.role == "user" and "permission" not in last.extra and not last.extra.get("interrupted"):
                if not (last.extra.get("is_prompt") and text in last.text):  # some agents tell the prompt again
                    last.text += text
            else:
                dialogue.entries.append(Entry("user", text, name, at))
            return
        stated = as_dict(as_dict(update.get("_meta")).get("usage"))
        if not text and not stated:
            return
        step = self._step(dialogue, at, name) if text or last is None or last.role == "user" else self._last_step(dialogue)
        if role == "thought":
            step.thinking += text
        else:
            step.text += text
        if usage := self._usage(stated):
            step.usage = step.usage.plus(usage) if step.usage else usage

    def _last_step(self, dialogue: Dialogue) -> Entry:
        return next((e for e in reversed(dialogue.entries) if e.role == "assistant"), None) or self._step(dialogue, None, "usage")

    def _tool(self, update: dict[str, Any], at: float | None, name: str) -> bool:
        call = string(update.get("toolCallId"))
        if call is None:
            return False
        known = self._calls.setdefault(call, {})
        meta = {**as_dict(known.get("_meta")), **as_dict(update.get("_meta"))}
        known.update({key: value for key, value in update.items() if value not in (None, [], {}) and key != "_meta"})
        known["_meta"] = meta
        if call not in self._of:
            dialogue = self._dialogue(update)
            step = self._step(dialogue, at, name)
            step.calls.append(Call(call, "", None))
            self._of[call] = dialogue, step, len(step.calls) - 1
        _, step, place = self._of[call]
        step.calls[place] = Call(call, _tool_name(known), _arguments(known))
        ok = _ENDS.get(str(known.get("status")))
        if call in self._answers:
            self._answers[call].text = self._output(known) or self._answers[call].text
        elif ok is not None or known.get("status") == "cancelled":
            text = self._output(known)
            error = (text[:500] or str(known["status"])) if not ok else None
            self._end(call, Answer(text, call, None, bool(ok), error, at))
        return True

    def _end(self, call: str, answer: Answer) -> None:
        self._answers[call] = answer
        self._of[call][0].entries.append(Entry("tool", at=answer.at, answers=[answer]))

    def _output(self, known: Mapping[str, Any]) -> str:
        shown = [_content(part) for part in map(as_dict, as_list(known.get("content")))]
        raw = known.get("rawOutput")
        return "\n".join(filter(None, shown)) or (text_of(raw) if isinstance(raw, (str, list)) else compact(raw) if raw else "")

    def _text(self, content: Any) -> str:
        blocks = [as_dict(block) for block in (content if isinstance(content, list) else [content])]
        self.left_out["pictures and sounds"] += sum(block.get("type") in ("image", "audio") for block in blocks)
        if isinstance(content, str):
            return content
        return "\n".join(filter(None, (_content({"type": "content", "content": block}) for block in blocks)))

    # -- what a turn cost --------------------------------------------------------------------------------------------------

    def _usage(self, got: dict[str, Any]) -> Usage | None:
        self._odd += odd_counts(got, _COUNTS)
        into, out, read, wrote, thought = (count(got.get(name)) for name in _COUNTS)
        if into is None and out is None:
            return None
        cache, total = (read or 0) + (wrote or 0), count(got.get("totalTokens"))
        if cache and (cache > (into or 0) or (total is not None and total >= (into or 0) + (out or 0) + cache)):
            return Usage(into or 0, read or 0, wrote or 0, out or 0, thought or 0)  # the input leaves the cache out
        return Usage.whole(into, out, cached=read, written=wrote, reasoning=thought)

    def choose(self, result: dict[str, Any]) -> None:
        """What a new session says about itself."""
        self.model = string(as_dict(result.get("models")).get("currentModelId")) or self.model

    def end_turn(self, result: dict[str, Any], error: dict[str, Any], at: float | None) -> None:
        """A turn ends: with its tokens where no piece of it stated any, or with an error."""
        steps = [e for e in self.dialogue.entries[self._begun :] if e.role == "assistant"]
        usage = self._usage(as_dict(result.get("usage")))
        if usage and not any(step.usage for step in steps):
            if not steps:
                steps = [Entry("assistant", "", f"turn{len(self._turns)}", at, model=self.model)]
                self.dialogue.entries += steps
            steps[-1].usage, steps[-1].extra = usage, {**steps[-1].extra, "tokens_of": "the turn"}
            self._turns.append(usage)
        if steps:
            steps[-1].stop_reason = string(result.get("stopReason"))
        if error:
            text = string(error.get("message")) or compact(error)
            self.dialogue.entries.append(Entry("error", text, f"error{len(self.dialogue.entries)}", at))

    def traces(self, session: Session, about: Mapping[str, Any]) -> Iterator[Trace]:
        """The trace, where anybody said anything."""
        if not any(d.entries for d in self.dialogues.values()):
            return
        draft = session.draft(self.name, self.name, system="acp")
        self.left_out["permission requests without an answer"] += len(self._wanted)
        for dialogue in self.dialogues.values():
            for entry in dialogue.entries:
                entry.extra.pop("is_prompt", None)
        draft.report.lacks[_STEPS] += 1
        if open_calls := len(self._of.keys() - self._answers.keys()):
            draft.report.lacks["how a tool call ended"] += open_calls
        if len(self._turns) > 1 and all(a.input <= b.input and a.output <= b.output for a, b in pairwise(self._turns)):
            draft.report.lacks[_GROWING] += 1
        draft.report.note_odd_counts(self._odd)
        draft.report.mended.update({"what a loaded session told again": self._again} if self._again else {})
        play(draft, list(self.dialogues.values()))
        draft.lane(MAIN).stops()
        if self._cost is not None:
            draft.own_cost(self._cost)
        draft.meta.update({**self.meta, **about})
        if left_out := {kind: n for kind, n in sorted(self.left_out.items()) if n}:
            draft.meta["left_out"] = left_out
        yield from draft.traces()


def _named(meta: Any, names: tuple[str, ...]) -> str | None:
    """A value in `_meta`, or in what an agent keeps there under its own name."""
    places = [as_dict(meta), *map(as_dict, as_dict(meta).values())]
    return next((found for place in places for name in names if (found := string(place.get(name)))), None)


def _tool_name(known: Mapping[str, Any]) -> str:
    kind = string(known.get("kind"))
    stated = _named(known.get("_meta"), _TOOLS) or string(known.get("name"))
    return stated or (kind if kind not in (None, "other") else None) or string(known.get("title")) or "unnamed"


def _arguments(known: Mapping[str, Any]) -> Any:
    if known.get("rawInput") is not None:
        return known["rawInput"]
    return {key: known[key] for key in ("title", "locations") if known.get(key)}


def _content(part: Mapping[str, Any]) -> str:
    """The text of a piece of content: words, a file, a change of one; pictures have none."""
    kind = part.get("type")
    if kind == "content":
        inner = as_dict(part.get("content"))
        if inner.get("type") in ("image", "audio"):
            return ""
        resource = as_dict(inner.get("resource"))
        return string(inner.get("text")) or string(resource.get("text")) or string(inner.get("uri")) or ""
    if kind == "diff":
        return f"{part.get('path')}\n{text_of(part.get('newText') or '')}"
    return "" if kind == "terminal" else text_of(part.get("text") or "")
