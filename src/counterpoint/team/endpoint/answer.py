"""An endpoint's answer, whole or streamed, as text, tool calls, log-probabilities and usage.

Always true: an answer that is whole was said to be whole, by `finish_reason` or by `[DONE]`; one that just ends has broken off.
Counts that the endpoint does not give, or that cannot be true, are None. Log-probabilities are those of all tokens or of none.
Bytes are read, not lines of text: JSON may hold characters that other readers take for the end of a line.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

from counterpoint.formats.importing.values import as_dict, count
from counterpoint.team.endpoint.faults import Fault, Trouble

Finish = Literal["stop", "length", "tool", "filter", "unknown"]
MOST_BYTES = 64 << 20
_MOST_TOKENS = 10**8
_FINISH: dict[Any, Finish] = {"stop": "stop", "eos": "stop", "length": "length", "tool_calls": "tool", "function_call": "tool"}
_FINISH["content_filter"] = "filter"


def malformed(why: str) -> Trouble:
    """What came is no chat completion."""
    fix = "check the base URL, which usually ends with /v1"
    return Trouble(Fault("malformed", "the answer is no chat completion", why, fix, is_lost=True))


def json_of(data: bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        head = data.lstrip()[:15].lower()
        raise malformed("it is HTML" if head.startswith((b"<!doctype", b"<html")) else "it is not JSON") from None
    if not isinstance(found, dict):
        raise malformed("it is JSON, but no object")
    return found


async def stream_data(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of server-sent events, one by one; comments, by which servers say that they are alive, are left out."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
    if rest.startswith(b"data:"):
        yield rest[5:].strip()


class Answer:
    """An answer as it comes in."""

    def __init__(self) -> None:
        self.text, self.reasoning = "", ""
        self.finish: Finish | None = None
        self.tokens_in: int | None = None
        self.tokens_out: int | None = None
        self.cached: int | None = None
        self.served: dict[str, str] = {}
        self._calls: list[dict[str, Any]] = []
        self._tokens: list[str] = []
        self._logps: list[float] = []
        self._is_partly_logged = False

    def add(self, data: dict[str, Any]) -> None:
        """One chunk of a stream, or the whole."""
        for name in ("model", "system_fingerprint"):
            if isinstance(data.get(name), str):
                self.served[name] = data[name][:200]
        self._usage(as_dict(data.get("usage")))
        choices = data.get("choices")
        if not isinstance(choices, list):
            raise malformed("it has no choices")
        for choice in choices:
            if not isinstance(choice, dict):
                raise malformed("a choice is no object")
            if choice.get("index") in (None, 0):
                self._choice(choice)

    @property
    def tool_calls(self) -> tuple[dict[str, str], ...]:
        """The functions to call, in order."""
        if any(not call["name"] for call in self._calls):
            raise malformed("a tool call has no name")
        return tuple({"name": c["name"], "arguments": c["arguments"] or "{}"} for c in self._calls)

    @property
    def logps(self) -> tuple[float, ...] | None:
        """The log-probability of each token, where the endpoint gave them all."""
        return tuple(self._logps) if self._logps and not self._is_partly_logged else None

    def cut_at(self, stops: Sequence[str]) -> None:
        """End the text before the first stop, as an endpoint does that takes `stop`; blank lines before the text are dropped."""
        begin = len(self.text) - len(self.text.lstrip())
        ends = [at for stop in stops if stop and (at := self.text.find(stop, begin)) >= 0]
        end = min(ends, default=len(self.text))
        if ends:
            self.finish = "stop"
        length, kept = 0, 0
        while kept < len(self._tokens) and length < end:
            length, kept = length + len(self._tokens[kept]), kept + 1
        self.text, self._tokens, self._logps = self.text[begin:end], self._tokens[:kept], self._logps[:kept]

    def _usage(self, usage: dict[str, Any]) -> None:
        if not usage:
            return
        self.tokens_in, self.tokens_out = _plausible(usage.get("prompt_tokens")), _plausible(usage.get("completion_tokens"))
        self.cached = _plausible(as_dict(usage.get("prompt_tokens_details")).get("cached_tokens"))

    def _choice(self, choice: dict[str, Any]) -> None:
        part = as_dict(choice.get("delta")) or as_dict(choice.get("message"))
        said = _text(part.get("content")) or _text(part.get("refusal"))
        self.text += said
        self.reasoning += _text(part.get("reasoning_content")) or _text(part.get("reasoning"))
        calls = part.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._tool_call(as_dict(call))
        self._logprobs(choice.get("logprobs"), has_text=bool(said))
        reason = choice.get("finish_reason")
        if reason is not None:
            self.finish = _FINISH.get(reason, "unknown") if isinstance(reason, str) else "unknown"

    def _tool_call(self, call: dict[str, Any]) -> None:
        function, index = as_dict(call.get("function")), count(call.get("index"))
        arguments = function.get("arguments")
        given = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        found = next((c for c in self._calls if c["index"] == index), None) if index is not None else None
        if found is None and index is None and not function.get("name") and self._calls:
            found = self._calls[-1]
        if found is None:
            found = {"index": index, "name": "", "arguments": ""}
            self._calls.append(found)
        found["name"] = found["name"] or _text(function.get("name"))
        found["arguments"] += given

    def _logprobs(self, given: Any, *, has_text: bool) -> None:
        rows = as_dict(given).get("content")
        if not isinstance(rows, list):
            self._is_partly_logged |= has_text
            return
        for row in rows:
            logp = as_dict(row).get("logprob")
            if isinstance(logp, bool) or not isinstance(logp, int | float) or not math.isfinite(logp):
                self._is_partly_logged = True
                return
            self._tokens.append(_text(row.get("token")))
            self._logps.append(min(0.0, float(logp)))


def _text(value: Any) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(value, list):
        return "".join(_text(as_dict(part).get("text")) for part in value)
    return value if isinstance(value, str) else ""


def _plausible(value: Any) -> int | None:
    """A number of tokens; what is longer than any context is a mistake."""
    found = count(value) if not isinstance(value, str) else None
    return found if found is not None and found <= _MOST_TOKENS else None
