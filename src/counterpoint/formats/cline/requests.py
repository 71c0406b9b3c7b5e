"""The requests to a model that the screen of a task shows (`api_req_started`), with their tokens, costs and times.

Always true: each request is given once, in the order in which they began.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, count, decode, number, seconds, string

COUNTS = ("tokensIn", "tokensOut", "cacheReads", "cacheWrites")
CONDENSED = "condense_context"
_DELETED = "deleted_api_reqs"
_SHOWN = ("text", "reasoning", "tool", "command")


@dataclass(slots=True)
class Request:
    """One request."""

    name: str
    at: float | None = None
    end: float | None = None
    """When the last words or calls of its answer came."""
    got: dict[str, Any] = field(default_factory=dict)
    usage: Usage | None = None
    cost: float | None = None
    error: str | None = None
    model: str | None = None
    index: int | None = None
    """The last message of the conversation when it began."""
    text: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def info_of(text: Any) -> dict[str, Any]:
    """The object in a message's text, or an empty one."""
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return {}
    try:
        return as_dict(decode(text))
    except InputError:
        return {}


def requests_of(ui: list[dict[str, Any]], models: list[Any], report: Report) -> list[Request]:
    """The requests that the messages of a screen hold."""
    found: list[Request] = []
    for k, message in enumerate(ui):
        say, at = string(message.get("say")), seconds(message.get("ts"))
        got = info_of(message.get("text"))
        if say in ("api_req_started", _DELETED):
            request = Request(f"r{k}", at, at, got, index=_index(message), model=_model(message))
            request.error = string(got.get("streamingFailedMessage")) or string(got.get("cancelReason"))
            request.extra = {"tokens_of": "requests that a restored checkpoint deleted"} if say == _DELETED else {}
            found.append(request)
        elif say == "api_req_finished" and found:
            found[-1].got = {**found[-1].got, **got}
        elif say == CONDENSED and (about := as_dict(message.get("contextCondense"))):
            spent = Request(f"r{k}", at, at, {"cost": about.get("cost")}, text=string(about.get("summary")) or "")
            spent.extra = {"is_compaction": True}
            found.append(spent)
        elif found and (say in _SHOWN or message.get("ask") in _SHOWN):
            found[-1].end = at or found[-1].end
            found[-1].model = found[-1].model or _model(message)
    _spend(found, report)
    _name_models(found, models)
    return found


def _index(message: dict[str, Any]) -> int | None:
    index = message.get("conversationHistoryIndex")
    return index if isinstance(index, int) and not isinstance(index, bool) else None


def _model(message: dict[str, Any]) -> str | None:
    about = as_dict(message.get("modelInfo"))
    return string(about.get("modelId")) or string(about.get("id"))


def is_inside(rows: list[dict[str, Any]], names: tuple[str, str, str]) -> bool:
    """Whether all inputs are large enough to have the cache's tokens in them, and some of them have any."""
    counts = [tuple(count(row.get(name)) or 0 for name in names) for row in rows]
    cached = [(into, read + wrote) for into, read, wrote in counts if read + wrote]
    return bool(cached) and all(into >= both for into, both in cached)


def usage_of(got: dict[str, Any], *, inside: bool) -> Usage | None:
    """Tokens as the clients name them."""
    fresh, out, read, wrote = (count(got.get(name)) for name in COUNTS)
    if fresh is None and out is None:
        return None
    if inside:
        return Usage.whole(fresh or 0, out or 0, cached=read, written=wrote)
    return Usage(fresh or 0, read or 0, wrote or 0, out or 0)


def _spend(found: list[Request], report: Report) -> None:
    """Newer versions of Roo Code say the protocol: OpenAI's has the cache inside, Anthropic's where the numbers allow it."""
    rows = [request.got for request in found]
    by_anthropic = [row for row in rows if row.get("apiProtocol") == "anthropic"]
    is_whole = is_inside(by_anthropic, ("tokensIn", "cacheReads", "cacheWrites"))
    for request in found:
        got = request.got
        report.note_odd_counts(odd_counts(got, COUNTS))
        protocol = got.get("apiProtocol")
        request.usage = usage_of(got, inside=protocol == "openai" or (protocol == "anthropic" and is_whole))
        request.cost = number(got.get("cost")) or None


def _name_models(found: list[Request], models: list[Any]) -> None:
    """The model in use when a request began, by the task's metadata."""
    rows = sorted(
        (at, name)
        for row in map(as_dict, models)
        if (at := seconds(row.get("ts"))) is not None and (name := string(row.get("model_id")))
    )
    for request in found:
        if request.model is None and rows and request.at is not None:
            before = [name for at, name in rows if at <= request.at]
            request.model = before[-1] if before else rows[0][1]
