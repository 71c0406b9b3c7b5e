"""The requests of a chat in VS Code as entries of dialogues: the person's words, the rounds of the model, its calls.

Always true: what ran inside a sub-agent stands in the sub-agent's dialogue alone.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Any

from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, count, number, seconds, string, text_of

_SUFFIX = re.compile(r"__vscode-\d+$")
_COUNTS = ("promptTokens", "completionTokens")
_DENIED, _SKIPPED = 0, 5
_CANCELLED, _FAILED = 2, 3
_SEEN = "what went into some rounds of a request: the file states {} of them"
_RULE = "subAgentInvocationId names the call"
_OTHER = frozenset(
    {"textEditGroup", "notebookEditGroup", "codeblockUri", "undoStop", "prepareToolInvocation", "progressMessage", "command"}
    | {"progressTask", "progressTaskSerialized", "warning", "confirmation", "treeData", "elicitation", "elicitationSerialized"}
    | {"mcpServersStarting", "extensions", "pullRequest", "multiDiffData", "multiDiff", "workspaceEdit", "references", "hook"}
    | {"codeCitation", "externalEdits", "questionCarousel", "todoList", "move", "clearToPreviousToolInvocation", "planReview"}
    | {
        "systemNotification",
        "autoModeResolution",
        "disabledClaudeHooks",
        "agentDetection",
        "voiceInput",
        "usage",
        "inlineCompletion",
    }
)


class Conversation:
    """The dialogues of one chat, request by request."""

    def __init__(self, unknown: Counter[str]) -> None:
        self.dialogues: dict[str, Dialogue] = {MAIN: Dialogue()}
        self.left_out: Counter[str] = Counter()
        self.lacks: Counter[str] = Counter()
        self.parts = self.odd = 0
        self._unknown = unknown

    def add(self, k: int, request: dict[str, Any], tokens: list[tuple[int, int]]) -> None:
        """One request, with the tokens of its rounds as far as a log of changes shows them."""
        name = string(request.get("requestId")) or f"q{k}"
        begun = seconds(request.get("timestamp"))
        message = request.get("message")
        text = text_of(as_dict(message).get("text") or ("" if isinstance(message, dict) else message))
        by = "client" if request.get("isSystemInitiated") is True else None
        entries = self.dialogues[MAIN].entries
        entries.append(Entry("user", text, name, begun, by=by))
        result = as_dict(request.get("result"))
        about = as_dict(result.get("metadata"))
        parts = [as_dict(p) if isinstance(p, dict) else {"value": p} for p in as_list(request.get("response"))]
        invoked = self._invocations(parts)
        model = string(about.get("resolvedModel")) or (string(request.get("modelId")) or "").removeprefix("copilot/") or None
        rounds = [as_dict(r) for r in as_list(about.get("toolCallRounds"))]
        steps = self._rounds(name, rounds, model) if rounds else self._response(name, parts, model)
        self._answers(steps, as_dict(about.get("toolCallResults")), invoked)
        self._children(invoked)
        ended = _ended(request, result, begun)
        if steps:
            steps[-1].at = steps[-1].at if rounds and steps[-1].at else ended
            self._count(steps, request, about, tokens)
        entries += steps
        self._close(name, request, result, steps, ended)

    def _close(self, name: str, request: dict[str, Any], result: dict[str, Any], steps: list[Entry], ended: float | None) -> None:
        state = as_dict(request.get("modelState")).get("value")
        details = as_dict(result.get("errorDetails"))
        entries = self.dialogues[MAIN].entries
        if request.get("isCanceled") is True or state == _CANCELLED:
            entries.append(Entry("user", "cancelled", f"{name}:cancelled", ended, extra={"interrupted": True}))
        elif details or state == _FAILED:
            if not steps:
                entries.append(Entry("assistant", "", f"{name}:error", ended))
            entries[-1].error = string(details.get("message")) or "error"

    # -- steps -----------------------------------------------------------------------------------------------------------

    def _rounds(self, name: str, rounds: list[dict[str, Any]], model: str | None) -> list[Entry]:
        steps = []
        for k, turn in enumerate(rounds):
            self.parts += 1
            at = seconds(turn.get("timestamp"))
            entry = Entry("assistant", text_of(turn.get("response")), f"{name}.{k}", at, model=model)
            entry.thinking = text_of(as_dict(turn.get("thinking")).get("text") or "")
            for call in map(as_dict, as_list(turn.get("toolCalls"))):
                tool = string(call.get("name")) or "unnamed"
                entry.calls.append(Call(_id(call.get("id")), tool, call.get("arguments")))
            steps.append(entry)
        return steps

    def _response(self, name: str, parts: list[dict[str, Any]], model: str | None) -> list[Entry]:
        """Text and calls in the order of the response: text behind calls is another step."""
        steps = [Entry("assistant", "", f"{name}.0", model=model)] if parts else []
        for part in parts:
            kind = string(part.get("kind"))
            text = _words(part) if kind in (None, "markdownContent", "inlineReference", "thinking") else ""
            if text.strip() and steps[-1].calls:
                steps.append(Entry("assistant", "", f"{name}.{len(steps)}", model=model))
            if kind == "thinking":
                steps[-1].thinking += text
            elif text:
                steps[-1].text += text
            elif kind == "toolInvocationSerialized" and not string(part.get("subAgentInvocationId")):
                data, own = as_dict(part.get("toolSpecificData")), _id(part.get("toolCallId"))
                call = Call(own, string(part.get("toolId")) or "unnamed", _arguments(part, data))
                before = next((s for s in steps if own and any(c.id == own for c in s.calls)), None)
                if before is None:
                    steps[-1].calls.append(call)
                else:  # the client wrote it again as it went on
                    before.calls = [call if c.id == own else c for c in before.calls]
        for step in steps:
            step.text, step.thinking = step.text.strip(), step.thinking.strip()
        return steps if any(s.text or s.thinking or s.calls for s in steps) else []

    def _invocations(self, parts: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Call to its part of the response; of several copies the last counts."""
        found: dict[str, dict[str, Any]] = {}
        for part in parts:
            self.parts += 1
            kind = string(part.get("kind"))
            if kind == "toolInvocationSerialized":
                if name := _id(part.get("toolCallId")):
                    found[name] = part
            elif kind in _OTHER:
                self.left_out[kind or ""] += 1
            elif kind not in (None, "markdownContent", "inlineReference", "thinking"):
                self._unknown[f"part of kind {kind}"] += 1
        return found

    def _answers(self, steps: list[Entry], results: dict[str, Any], invoked: dict[str, dict[str, Any]]) -> None:
        texts = {_id(name): _shown(result) for name, result in results.items()}
        for step in steps:
            for call in step.calls:
                part = invoked.get(call.id or "", {})
                if part or call.id in texts:
                    step.answers.append(_answer(call, part, texts.get(call.id)))

    def _children(self, invoked: dict[str, dict[str, Any]]) -> None:
        """The agents that calls made: what they were told, the calls inside them, what they gave back."""
        for name, part in invoked.items():
            data = as_dict(part.get("toolSpecificData"))
            inside = [(k, p) for k, p in invoked.items() if _id(p.get("subAgentInvocationId")) == name]
            if data.get("kind") != "subagent" and not inside:
                continue
            model = string(data.get("modelName"))
            step = Entry("assistant", model=model)
            for call_name, call_part in inside:
                known = as_dict(call_part.get("toolSpecificData"))
                call = Call(call_name, string(call_part.get("toolId")) or "unnamed", _arguments(call_part, known))
                step.calls.append(call)
                step.answers.append(_answer(call, call_part, None))
            entries = [Entry("user", text_of(data.get("prompt") or ""))] if data.get("prompt") else []
            entries += [step] if step.calls else []
            if data.get("result"):
                entries.append(Entry("assistant", text_of(data["result"]), f"{name}:end", model=model))
            child = Dialogue(name, entries, string(data.get("agentName")), string(data.get("description")), name, _RULE)
            self.dialogues[name] = child

    # -- tokens ----------------------------------------------------------------------------------------------------------

    def _count(self, steps: list[Entry], request: dict[str, Any], about: dict[str, Any], tokens: list[tuple[int, int]]) -> None:
        """Put the tokens of a request on its steps: on each its own, or on the last all of them."""
        got = {
            **{name: as_dict(request.get("usage")).get(name) for name in _COUNTS},
            **{n: request[n] for n in _COUNTS if n in request},
        }
        self.odd += odd_counts(got, _COUNTS)
        prompt, out = (count(got.get(name)) for name in _COUNTS)
        if prompt is None and out is None:
            prompt, out = count(about.get("promptTokens")), count(about.get("outputTokens"))
            if out is not None and len(steps) > 1:
                self.lacks["what some rounds of a request wrote: the file states the last"] += len(steps) - 1
        if prompt is None and out is None:
            return
        last = steps[-1]
        if len(tokens) == len(steps) and len(steps) > 1 and all(a[1] <= b[1] for a, b in pairwise(tokens)):
            before = 0
            for step, (into, written) in zip(steps, tokens, strict=True):
                step.usage = Usage.whole(into, written - before)
                before = written
            return
        seen = [into for into, _ in tokens] if len(tokens) > 1 else [prompt or 0]
        last.usage = Usage.whole(sum(seen), out or 0)
        if len(steps) > 1:
            last.extra = {**last.extra, "tokens_of": "the request"}
            if len(seen) < len(steps):
                self.lacks[_SEEN.format(len(seen))] += len(steps) - len(seen)


def _id(value: Any) -> str | None:
    """A call's id, of which some places carry a copy with a suffix."""
    name = string(value)
    return _SUFFIX.sub("", name) if name else None


def _words(part: dict[str, Any]) -> str:
    if part.get("kind") == "inlineReference":
        shown = as_dict(part.get("inlineReference"))
        place = as_dict(shown.get("location") or shown.get("uri") or shown)
        path = string(place.get("path")) or string(place.get("fsPath")) or ""
        return string(part.get("name")) or string(shown.get("name")) or path.replace("\\", "/").rsplit("/", 1)[-1]
    return text_of(part.get("content") if part.get("kind") == "markdownContent" else part.get("value"))


def _arguments(part: dict[str, Any], data: dict[str, Any]) -> Any:
    """What a call was given, as far as the response says it."""
    if raw := part.get("toolInput") or data.get("rawInput") or as_dict(part.get("resultDetails")).get("input"):
        return raw
    command = as_dict(data.get("commandLine")).get("original") or data.get("command")
    if command:
        return {"command": command}
    said = text_of(as_dict(part.get("invocationMessage")).get("value") or part.get("invocationMessage") or "")
    return {"said": said} if said else None


def _answer(call: Call, part: dict[str, Any], text: str | None) -> Answer:
    data = as_dict(part.get("toolSpecificData"))
    details = as_dict(part.get("resultDetails"))
    if not text:
        outputs = [
            text_of(as_dict(o).get("value") or "")
            for o in as_list(details.get("output"))
            if as_dict(o).get("isText") is not False
        ]
        said = as_dict(part.get("pastTenseMessage")).get("value") or part.get("pastTenseMessage")
        terminal = as_dict(data.get("terminalCommandOutput")).get("text")
        text = "\n".join(outputs) or text_of(data.get("result") or terminal or said or "")
    code = number(as_dict(data.get("terminalCommandState")).get("exitCode"))
    confirmed = part.get("isConfirmed")
    kind = as_dict(confirmed).get("type", 1)
    is_rejected = confirmed is False or kind in (_DENIED, _SKIPPED)
    failed = is_rejected or details.get("isError") is True or (code is not None and code != 0)
    ok = False if failed else True if part.get("isComplete") is True else None
    error = (text[:500] or ("rejected" if is_rejected else "error")) if failed else None
    return Answer(text, call.id, call.tool, ok, error, extra={"is_rejected": True} if is_rejected else {})


def _shown(result: Any) -> str:
    """The text of a tool's result: strings, or trees of prompt elements."""
    return "\n".join(filter(None, (_flat(as_dict(p).get("value")) for p in as_list(as_dict(result).get("content")))))


def _flat(value: Any) -> str:
    if not isinstance(value, dict):
        return text_of(value)
    out: list[str] = []
    stack = [value.get("node", value)]
    while stack:
        node = stack.pop()
        if not isinstance(node, dict):
            continue
        if isinstance(node.get("text"), str):
            out += ["\n"] if node.get("lineBreakBefore") is True and out and not out[-1].endswith("\n") else []
            out.append(node["text"])
        stack += reversed(as_list(node.get("children")))
    return "".join(out)


def _ended(request: dict[str, Any], result: dict[str, Any], begun: float | None) -> float | None:
    if (done := seconds(as_dict(request.get("modelState")).get("completedAt"))) is not None:
        return done
    spent = number(request.get("elapsedMs")) or number(as_dict(result.get("timings")).get("totalElapsed"))
    return begun + spent / 1000 if begun is not None and spent is not None and spent >= 0 else begun
