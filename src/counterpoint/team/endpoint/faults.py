"""What went wrong at an endpoint: which kind of failure, whether to ask again, in words without a secret.

Always true: a fault's words come from us, or have been through `clean`, which takes out keys and everything that a terminal
would act on. Nothing here keeps an exception: the client's hold the request, and with it the key. The same response gives the
same fault.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from counterpoint.team.model import Failure

OPTIONAL = ("logprobs", "seed", "stop", "temperature", "stream_options", "max_tokens", "system")
"""What can be left out of a request, or said otherwise, when an endpoint refuses it."""
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
    """How long the endpoint wants to be left alone."""
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
    parts = _said(body)
    said = " ".join(parts)[:_READ]
    # A 401 quotes the key.
    why = f"HTTP {status}" if status == 401 or not said else f"HTTP {status}: {clean(parts[0], secrets)}"
    if status != 429 and (status == 413 or _TOO_LONG.search(said)):
        return Fault("too long", "the prompt is longer than the model's context", why, "shorten it, or take another model", True)
    if status == 429 and "insufficient_quota" in said:
        return Fault("refused", "the account has no credit left", why, _FIXES[402], True)
    kind = _AGAIN.get(status)
    if kind is None and status >= 500:
        kind = "server"
    if kind == "rate":
        fix = "lower the rate or the concurrency"
        return Fault("rate", "the endpoint has too many requests", why, fix, after_s=_retry_after(headers))
    refused = _refused(body, said, asked) if status in (400, 422) or "system role" in said.lower() else ()
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
    what = "the answer broke off" if has_begun else "the endpoint hung up"
    return Fault("cut", what, reason, "see its log", is_lost=True)


def _said(body: Any) -> list[str]:
    """All that an error body says, whatever its shape, the words for people first."""
    if isinstance(body, str):
        return [body]
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        parts = [error.get(name) for name in ("message", "detail", "code", "type", "param")]
        return [p if isinstance(p, str) else json.dumps(p) for p in parts if p] or [json.dumps(error)]
    return [str(error)] if error else []


def _refused(body: Any, said: str, asked: Mapping[str, Any]) -> tuple[str, ...]:
    """Which optional parts of what was asked the endpoint names in its refusal."""
    error = body.get("error", body) if isinstance(body, dict) else {}
    named = error.get("param") if isinstance(error, dict) else None
    if isinstance(named, str) and named.split(".")[0] in OPTIONAL and named.split(".")[0] in asked:
        return (named.split(".")[0],)
    if "system role" in said.lower():
        return ("system",) if any(m.get("role") == "system" for m in asked["messages"]) else ()
    return tuple(n for n in OPTIONAL if n in asked and re.search(rf"(?<![A-Za-z_]){n}(?![A-Za-z_])", said))


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
