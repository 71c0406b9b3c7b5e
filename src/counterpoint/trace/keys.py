"""Keys that writers and readers share: those of a simulated team's events, and those of `meta` and `extra` of imported runs.

The keys of events say who, what, and about what, as one type.

Always true: `parse_key(make_key(*key)) == key` for every `EventKey`; a key names an event by what it is and never by its place in
the trace, so that an edit elsewhere does not change it.

    orchestrator|stop|4         a decision of round 4 (stop, spawn, ...), or draft: the aggregate of that round
    a3.1|tool|17|0              call 0 of agent a3.1 on item 17; also brief, result, return, verdict and safety of that call
    a3|spawn, a3|despawn        an agent comes, or goes
    human|insert|17|4           what a person said about item 17 in round 4
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_BAR = "|"


class EventKey(NamedTuple):
    """The parts of a key."""

    who: str
    """The agent that acts, or that the event is about."""
    what: str
    about: tuple[int, ...] = ()
    """A round, or an item and the number of the call (or the round)."""


def about_text(*numbers: int) -> str:
    """The end of a key, which many keys share: what it is about, for `make_key`."""
    return _BAR.join(map(str, numbers))


def make_key(who: str, what: str, about: str | tuple[int, ...] = "") -> str:
    """The key as an event carries it; `about` as numbers, or written by `about_text` already."""
    text = about if isinstance(about, str) else about_text(*about)
    return f"{who}|{what}|{text}" if text else f"{who}|{what}"


def parse_key(text: str | None) -> EventKey | None:
    """The parts of a key; None where it has another form, such as those of live teams."""
    who, *rest = (text or "").split(_BAR)
    if not rest or not all(part.isascii() and part.isdigit() for part in rest[1:]):
        return None
    return EventKey(who, rest[0], tuple(map(int, rest[1:])))


# -- what a log says about its run, in `trace.meta` and `event.extra` ----------------------------------------------------------

TITLE = "title"
"""In `meta`: what was asked for, in one line; the source's own title where it has one."""
ROOT_SPAN = "root_span"
"""In `meta`: the name of the span that all others are in, for logs that hold no texts."""
PROJECT = "project"
"""In `meta`: the name of the project it was about."""
MODELS = "models"
"""In `meta`: the models that answered, those with the most tokens first."""
RESUMED_FROM = "resumed_from"
"""In `meta`: the trace that has the records with which this one's log begins: they were copied, and are not in this one."""
SUB_AGENTS = "sub_agents"
"""In `meta`: sub-agents of which the source has a transcript and no spawn."""
NAMES = "names"
"""In `meta`: agent id to what people call the agent: a nickname, the description of its task, a span's name."""
BEGAN = "began"
"""In `meta`: when its work began, seconds since the epoch; absent where the source has no times."""
TEST = "test"
"""In `meta`: the test that ran it, as pytest names it."""
TOOLS = "tools"
"""In `meta`: the functions that the agents were offered, as the log defines them: as OpenAI, Anthropic or MCP do."""
PARENT = "parent_session"
"""In `meta` of a run that a session made for itself, such as a review of its next call, and whose records are a trace of their
own: the session's id."""
STOP_REASON = "stop_reason"
"""In `extra` of a model's step: why the model stopped, in the vendor's word."""
CACHE_WRITE_1H = "tokens_cache_write_1h"
"""In `extra` of a model's step: the part of `tokens_cache_write` that is kept for an hour, which has a price of its own."""
STATED = "stated_by"
"""In `extra` of an event whose tokens and duration are not measured at the agent but stated by another: who states them."""

REPLAY = "replay"
"""In `meta` of a team that was recorded by its own code: what a replay of that code needs. In `extra` of a call: `asked`, a hash,
and where the answer is (`answer`, a reference; `lost`, why it is not kept; `runs`, where other events were recorded inside)."""


def names_of(meta: Mapping[str, Any]) -> dict[str, str]:
    """Agent id to name, as `meta` has them; nothing that is no text."""
    names = meta.get(NAMES)
    return {k: v for k, v in names.items() if isinstance(v, str) and v} if isinstance(names, dict) else {}
