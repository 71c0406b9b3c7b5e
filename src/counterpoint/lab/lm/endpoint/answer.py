"""An endpoint's answer, whole or streamed, as text, tool calls, log-probabilities and usage; or what went wrong instead.

Always true: an answer that is whole was said to be whole, by `finish_reason` or by `[DONE]`; one that just ends has broken off.

Counts that the endpoint does not give, or that cannot be true, are None. Log-probabilities and ids are those of all tokens or
of none.
Bytes are read, not lines of text: JSON may hold characters that other readers take for the end of a line. A fault's words come
from us, or have been through `clean`, which takes out keys and everything that a terminal would act on; no exception is kept,
since the client's hold the request, and with it the key. The same response gives the same fault.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from counterpoint.formats.importing.values import as_dict, count
from counterpoint.lab.lm.model import Failure

TOKEN_IDS = ("return_token_ids", "return_prompt_token_ids", "return_meta_info")
"""What asks for token ids: the first one vLLM and SGLang, the others older versions of SGLang."""
OPTIONAL = ("logprobs", "seed", "stop", "temperature", "stream_options", "max_tokens", "system", *TOKEN_IDS)
"""What can be left out of a request, or put differently, when an endpoint refuses it."""
_WORDS, _READ = 240, 4000
"""Characters that are shown of what an endpoint says, and that are looked at."""
_SHORTEST_SECRET = 6
_SECRETS = re.compile(
    r"""(?ix) \b (?:sk|pk|rk|gsk|xai|hf) [-_] [\w*.…-]{6,} | \b bearer \s+ \S{6,}
    | \b (?:api[-_ ]?key|key|token|password|secret) (?:\s+provided)? ["']? \s* [:=] \s* ["']? [\w*.…/+=-]{6,}"""
)
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]+")

# What the servers say: OpenAI, Azure, vLLM, SGLang, llama.cpp, Ollama, TGI, Mistral, Anthropic, Gemini, Groq, LM Studio.
_TOO_LONG = re.compile(
    r"""(?ix) context_length_exceeded | exceed_context_size | maximum\ context | max_model_len | maximum\ model\ length
    | context\ (?:length|window|size|limit) | longer\ than\ the\ (?:maximum\ )?model | prompt\ is\ too\ long
    | input\ is\ too\ long | too\ many\ (?:input\ )?tokens | input\ token\ count | tokens?`?\ \+\ `?max_new_tokens
    | reduce\ the\ length | exceeds\ the\ (?:available|maximum)\ (?:context|number\ of\ tokens) | string_above_max_length"""
)
_AGAIN: dict[int, Failure] = {408: "slow", 409: "server", 425: "server", 429: "rate", 500: "server", 502: "server"}
_AGAIN |= {503: "server", 504: "slow", 520: "server", 522: "down", 524: "slow", 529: "server"}
_FIXES = {
    **dict.fromkeys((301, 302, 303, 307, 308), "give the address that it redirects to as the base URL"),
    401: "put a key that this endpoint takes into {key_env}",
    402: "the account has no money left; pay, or take another endpoint",
    403: "the key in {key_env} may not do this; take another, or another model",
    404: "check the model's name and the base URL, which usually ends with /v1",
    413: "shorten the prompt",
}


@dataclass(frozen=True)
class Fault:
    """One attempt that gave no answer."""

    kind: Failure
    what: str
    why: str | None = None
    fix: str | None = None
    is_final: bool = False
    """Asking again would not help."""
    after_s: float | None = None
    """How long the endpoint asks us to wait."""
    refused: tuple[str, ...] = ()
    """The optional parts of the request that it does not take."""
    is_lost: bool = False
    """The model may have worked, and it may be charged."""


class Trouble(Exception):
    """Carries a fault out of the reading of an answer."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)
        self.fault = fault


def clean(text: str, secrets: Iterable[str] = ()) -> str:
    """Words of the endpoint as we may show them: one line, short, no key, nothing that a terminal would act on."""
    text = text[:_READ]
    for secret in sorted((s for s in secrets if len(s) >= _SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(secret, "***")
    text = " ".join(_UNSEEN.sub(" ", _SECRETS.sub("***", text)).split())
    return text if len(text) <= _WORDS else text[: _WORDS - 3] + "..."


def status_fault(status: int, body: Any, headers: Mapping[str, str], asked: Mapping[str, Any], secrets: Iterable[str]) -> Fault:
    """The fault of a response that is not 200; `asked` is what the request held."""
    parts = _messages_of(body)
    message = " ".join(parts)[:_READ]
    # A 401 quotes the key.
    why = f"HTTP {status}" if status == 401 or not message else f"HTTP {status}: {clean(parts[0], secrets)}"
    if status != 429 and (status == 413 or _TOO_LONG.search(message)):
        return Fault("too long", "the prompt is longer than the model's context", why, "shorten it, or take another model", True)
    if status == 429 and "insufficient_quota" in message:
        return Fault("refused", "the account has no credit left", why, _FIXES[402], True)
    kind = _AGAIN.get(status)
    if kind is None and status >= 500:
        kind = "server"
    if kind == "rate":
        fix = "lower the rate or the concurrency"
        return Fault("rate", "the endpoint has too many requests", why, fix, after_s=_retry_after(headers))
    refused = _refused(body, message, asked) if status in (400, 422) or "system role" in message.lower() else ()
    if kind is not None and not refused:
        return Fault(kind, "the endpoint failed", why, "see its log", after_s=_retry_after(headers), is_lost=kind == "slow")
    return Fault("refused", "the endpoint refused the request", why, _FIXES.get(status), not refused, refused=refused)


def said_error(body: Any, asked: Mapping[str, Any], secrets: Iterable[str]) -> Fault:
    """The fault of an error inside a response that began as 200."""
    error = body.get("error")
    code = error.get("code", error.get("status")) if isinstance(error, dict) else None
    try:
        status = int(code)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        status = 500
    fault = status_fault(status if 400 <= status < 600 else 500, body, {}, asked, secrets)
    return fault if fault.is_final else replace(fault, is_lost=True)


def broken(error: Exception, *, has_begun: bool, timeout_s: float, secrets: Iterable[str]) -> Fault:
    """The fault of an exception of the client or of its HTTP library."""
    cause = error.__cause__ if error.__cause__ is not None else error
    names = {kind.__name__ for one in (error, cause) for kind in type(one).__mro__}
    reason = clean(str(cause) or type(cause).__name__, secrets)
    if "ConnectError" in names or "ConnectTimeout" in names or isinstance(cause, ConnectionRefusedError):
        is_final = "CERTIFICATE" in reason
        return Fault("down", "the endpoint cannot be reached", reason, "start it, or check the base URL", is_final)
    if isinstance(cause, TimeoutError) or any("Timeout" in name for name in names):
        return Fault("slow", f"the endpoint was silent for {timeout_s:g} s", fix="allow more time", is_lost=True)
    if not has_begun and names & {"InvalidURL", "UnsupportedProtocol", "LocalProtocolError", "UnicodeError", "TypeError"}:
        return Fault("refused", "the request cannot be sent", reason, "check the base URL and the key", True)
    if names & {"JSONDecodeError", "DecodingError", "APIResponseValidationError"}:
        return Fault("malformed", "the answer cannot be read", reason, "check the base URL", is_lost=True)
    what = "the answer was interrupted" if has_begun else "the endpoint hung up"
    return Fault("cut", what, reason, "see its log", is_lost=True)


def _messages_of(body: Any) -> list[str]:
    """All that an error body says, whatever its shape, the words for people first."""
    if isinstance(body, str):
        return [body]
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        parts = [error.get(name) for name in ("message", "detail", "code", "type", "param")]
        return [p if isinstance(p, str) else json.dumps(p) for p in parts if p] or [json.dumps(error)]
    return [str(error)] if error else []


def _refused(body: Any, message: str, asked: Mapping[str, Any]) -> tuple[str, ...]:
    """Which optional parts of what was asked the endpoint names in its refusal."""
    error = body.get("error", body) if isinstance(body, dict) else {}
    named = error.get("param") if isinstance(error, dict) else None
    if isinstance(named, str) and named.split(".")[0] in OPTIONAL and named.split(".")[0] in asked:
        return (named.split(".")[0],)
    if "system role" in message.lower():
        return ("system",) if any(m.get("role") == "system" for m in asked["messages"]) else ()
    return tuple(n for n in OPTIONAL if n in asked and re.search(rf"(?<![A-Za-z_]){n}(?![A-Za-z_])", message))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from `retry-after-ms`, `retry-after` in seconds, or as a date beside the response's own date."""
    got = {name.lower(): value for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(got[name]) * unit
        except (KeyError, ValueError):
            continue
        return seconds if 0 <= seconds < math.inf else None
    try:
        until, now = (email.utils.parsedate_to_datetime(got[name]) for name in ("retry-after", "date"))
        return max(0.0, (until - now).total_seconds())
    except (KeyError, ValueError, TypeError):
        return None


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
        value = json.loads(data)
    except (ValueError, RecursionError):
        head = data.lstrip()[:15].lower()
        raise malformed("it is HTML" if head.startswith((b"<!doctype", b"<html")) else "it is not JSON") from None
    if not isinstance(value, dict):
        raise malformed("it is JSON, but no object")
    return value


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


class EndpointAnswer:
    """An answer as it comes in."""

    def __init__(self) -> None:
        self.text, self.reasoning = "", ""
        self.finish: Finish | None = None
        self.tokens_in: int | None = None
        self.tokens_out: int | None = None
        self.cached: int | None = None
        self.served: dict[str, str] = {}
        self._calls: list[dict[str, Any]] = []
        self.prompt_ids: tuple[int, ...] | None = None
        self._ids: list[int] = []
        self._is_partly_told = False
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
                raise malformed("a choice is not an object")
            if choice.get("index") in (None, 0):
                self._choice(choice)
        self._ids_of_all(data)

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

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """The id of each token, where the endpoint gave them all."""
        return tuple(self._ids) if self._ids and not self._is_partly_told else None

    def cut_at(self, stops: Sequence[str]) -> None:
        """End the text before the first stop, as an endpoint does that takes `stop`; blank lines before the text are dropped."""
        begin = len(self.text) - len(self.text.lstrip())
        ends = [at for stop in stops if stop and (at := self.text.find(stop, begin)) >= 0]
        end = min(ends, default=len(self.text))
        if ends:
            self.finish = "stop"
        length, count_kept = 0, 0
        while count_kept < len(self._tokens) and length < end:
            length, count_kept = length + len(self._tokens[count_kept]), count_kept + 1
        if len(self._ids) == len(self._tokens):
            self._ids = self._ids[:count_kept]
        else:  # without the text of each token nobody knows which of them are left
            self._is_partly_told |= bool(ends)
        self.text, self._tokens, self._logps = self.text[begin:end], self._tokens[:count_kept], self._logps[:count_kept]

    def _usage(self, usage: dict[str, Any]) -> None:
        if not usage:
            return
        self.tokens_in, self.tokens_out = _plausible(usage.get("prompt_tokens")), _plausible(usage.get("completion_tokens"))
        self.cached = _plausible(as_dict(usage.get("prompt_tokens_details")).get("cached_tokens"))

    def _choice(self, choice: dict[str, Any]) -> None:
        part = _part(choice)
        text = _text(part.get("content")) or _text(part.get("refusal"))
        self.text += text
        self.reasoning += _text(part.get("reasoning_content")) or _text(part.get("reasoning"))
        calls = part.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._tool_call(as_dict(call))
        self._logprobs(choice.get("logprobs"), has_text=bool(text))
        self._ids_of_choice(choice, has_text=bool(text))
        reason = choice.get("finish_reason")
        if reason is not None:
            self.finish = _FINISH.get(reason, "unknown") if isinstance(reason, str) else "unknown"

    def _ids_of_all(self, data: dict[str, Any]) -> None:
        """Token ids beside the choices: vLLM's prompt, and SGLang's extension, which has one list for each choice."""
        more = as_dict(data.get("sglext"))
        self.prompt_ids = _ids(data.get("prompt_token_ids")) or _ids(more.get("input_ids")) or self.prompt_ids
        lists = more.get("output_ids")
        ids = _ids(lists[0]) if isinstance(lists, list) and lists else None
        if ids is not None:  # told once, for the whole answer
            self._ids, self._is_partly_told = list(ids), False

    def _ids_of_choice(self, choice: dict[str, Any], *, has_text: bool) -> None:
        about = as_dict(choice.get("meta_info"))
        self.prompt_ids = _ids(choice.get("prompt_token_ids")) or self.prompt_ids
        listed = about.get("output_token_logprobs")
        rows = [row for row in listed if isinstance(row, list) and len(row) >= 2] if isinstance(listed, list) else []
        ids = _ids(choice.get("token_ids")) or _ids(choice.get("response_token_ids")) or _ids([row[1] for row in rows])
        if ids is None:
            self._is_partly_told |= has_text and bool(self._ids)
            return
        self._is_partly_told |= has_text and not self._ids and len(self.text) > len(_text(_part(choice).get("content")))
        self._ids += ids

    def _tool_call(self, call: dict[str, Any]) -> None:
        function, index = as_dict(call.get("function")), count(call.get("index"))
        arguments = function.get("arguments")
        part = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        entry = next((c for c in self._calls if c["index"] == index), None) if index is not None else None
        if entry is None and index is None and not function.get("name") and self._calls:
            entry = self._calls[-1]
        if entry is None:
            entry = {"index": index, "name": "", "arguments": ""}
            self._calls.append(entry)
        entry["name"] = entry["name"] or _text(function.get("name"))
        entry["arguments"] += part

    def _logprobs(self, stated: Any, *, has_text: bool) -> None:
        rows = as_dict(stated).get("content")
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


def _part(choice: dict[str, Any]) -> dict[str, Any]:
    """What a choice says: in a piece of a stream, or in the whole."""
    return as_dict(choice.get("delta")) or as_dict(choice.get("message"))


def _ids(value: Any) -> tuple[int, ...] | None:
    """Token ids; None for what cannot be some."""
    if not isinstance(value, list) or not value or len(value) > _MOST_TOKENS:
        return None
    return tuple(value) if all(type(i) is int and i >= 0 for i in value) else None


def _text(value: Any) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(value, list):
        return "".join(_text(as_dict(part).get("text")) for part in value)
    return value if isinstance(value, str) else ""


def _plausible(value: Any) -> int | None:
    """A number of tokens; what is longer than any context is a mistake."""
    number = count(value) if not isinstance(value, str) else None
    return number if number is not None and number <= _MOST_TOKENS else None
