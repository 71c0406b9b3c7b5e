"""The nine tools: what each takes, and how it is called.

Always true: a tool is called with arguments that were checked, gets the store and gives a text; what goes wrong is one line that
says what would work. Calls come one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from counterpoint.app.mcp import judgements, looks
from counterpoint.app.mcp.answers import Reply, failure, rendered
from counterpoint.app.mcp.reading import Reading
from counterpoint.app.words import os_error
from counterpoint.errors import CounterpointError, InputError, did_you_mean

_LONGEST = 4_000


class Parameter(NamedTuple):
    """One argument of a tool."""

    default: str | int | None
    """None where it has to be given."""
    words: str
    most: int = 0
    """The largest number."""

    @property
    def is_number(self) -> bool:
        """Whether it is a whole number; else a text."""
        return isinstance(self.default, int)


class Tool(NamedTuple):
    """One tool."""

    words: str
    parameters: Mapping[str, Parameter]
    tell: Callable[..., Reply]

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        of: dict[str, Any] = {}
        for name, one in self.parameters.items():
            limits = {"minimum": 0 if name == "offset" else 1, "maximum": one.most} if one.is_number else {"maxLength": _LONGEST}
            default = {} if one.default is None else {"default": one.default}
            of[name] = {"type": "integer" if one.is_number else "string", "description": one.words, **limits, **default}
        needed = [name for name, one in self.parameters.items() if one.default is None]
        return {"type": "object", "properties": of, "additionalProperties": False, **({"required": needed} if needed else {})}


_TRACE = "an id or its beginning as search lists it, or last:1, the newest session of this folder's project"
_WHICH = f"{_TRACE}; or a query for many, such as project:shop last:7d"
_QUERY = 'words and fields, such as: project:shop errors>0 cost>=5 last:7d model:opus "two words"'
_EVENTS = 'over the events of trace: kind:tool_call agent:main tool:Bash failed tokens>5k "two words"'


def _rows(default: int, most: int = 50) -> Parameter:
    return Parameter(default, "rows", most)


def _from(what: str) -> Parameter:
    return Parameter(0, f"{what} to leave out first", 2**31)


TOOLS: Mapping[str, Tool] = {
    "search": Tool(
        "Find recorded sessions of coding agents, the newest first; or, with trace, events in one session.",
        {
            "query": Parameter("", f"{_QUERY}; {_EVENTS}; empty for all"),
            "trace": Parameter("", _TRACE), "limit": _rows(10), "offset": _from("rows"),
        },
        looks.search,
    ),
    "show": Tool(
        "Show one session: what was asked, what it cost beside earlier ones, its agents. With event: that event with its text.",
        {
            "trace": Parameter("last:1", _TRACE), "event": Parameter("", "the id of one of its events"),
            "offset": _from("characters of the event's text"),
        },
        looks.show,
    ),
    "top": Tool(
        "Where tokens, money and time went: in one session, with its largest events, or over many. Answers why it cost so much.",
        {
            "which": Parameter("last:1", _WHICH),
            "by": Parameter("", "agent, role, tool, type or model; of many also trace, project, day, system, topology"),
            "limit": _rows(12),
        },
        looks.top,
    ),
    "failures": Tool(
        "What failed and why: every failure of one session with its event, or how often each kind happened in many.",
        {
            "which": Parameter("last:1", _WHICH),
            "by": Parameter("", "reason, tool, agent, trace, project, model or day"), "limit": _rows(12),
        },
        judgements.failures,
    ),
    "blame": Tool(
        "Which step of a failed session may have decided it, whose it is, and why; where none stands out, what failed.",
        {"trace": Parameter("last:1", _TRACE)}, judgements.blame,
    ),
    "credit": Tool(
        "What each agent of a session cost and what became of its work, and who earned the outcome where that is identified.",
        {"trace": Parameter("last:1", _TRACE)}, judgements.credit,
    ),
    "diff": Tool(
        "Compare two sessions: where they part, what changed, came and went, and what each cost.",
        {"a": Parameter(None, _TRACE), "b": Parameter(None, _TRACE)}, looks.diff,
    ),
    "sql": Tool(
        "Ask the finished sessions in SQL (DuckDB, reading only, secrets masked). Without a query: the views and their columns.",
        {"query": Parameter("", "one select"), "limit": _rows(20, 200)}, looks.sql,
    ),
    "issues": Tool(
        "What recurs over many sessions: failing tools, loops, stuck and costly runs. Answers what to change in CLAUDE.md.",
        {"query": Parameter("", _QUERY), "issue": Parameter("", "the id of one issue"), "limit": _rows(10)}, judgements.issues,
    ),
}
"""By their names."""
_ONE_BY_ONE = threading.Lock()


class CallResult(NamedTuple):
    """What a call gives."""

    text: str
    is_error: bool = False


def answered(reading: Reading, name: str, arguments: Mapping[str, Any] | None) -> CallResult:
    """The answer of a tool, or the line that says what is wrong with the call."""
    with _ONE_BY_ONE:
        reading.idle.clear()
        try:
            tool = TOOLS.get(name)
            if tool is None:
                raise InputError(f"no tool named {name!r}", fix=did_you_mean(name, TOOLS))
            given = checked(name, tool, arguments or {})
            reading.refresh()
            told = tool.tell(reading, **given)
            return CallResult(rendered(told._replace(more=[*told.more, *reading.remarks(given.values())])))
        except CounterpointError as error:
            return CallResult(failure(error.one_line()), is_error=True)
        except OSError as error:
            return CallResult(failure(os_error(error).one_line()), is_error=True)
        except RecursionError:
            return CallResult("what was read is nested too deeply; ask about another session", is_error=True)
        except Exception as error:  # a client that loses its server could not ask anything else
            what = f"{name} failed: {type(error).__name__}: {error}; this is a bug in Counterpoint"
            return CallResult(failure(what), is_error=True)
        finally:
            reading.idle.set()


def checked(name: str, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the tool takes them."""
    out: dict[str, Any] = {}
    for given in arguments:
        if given not in tool.parameters:
            raise InputError(f"{name} has no argument {given!r}", fix=did_you_mean(given, tool.parameters))
    for word, one in tool.parameters.items():
        value = arguments.get(word, one.default)
        if value is None:
            raise InputError(f"{name} needs {word}", fix=f"{word}: {one.words}")
        if one.is_number:
            least = 0 if word == "offset" else 1
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= one.most:
                raise InputError(f"{word} of {name} is no whole number", fix=f"from {least} to {one.most}")
        elif not isinstance(value, str) or len(value) > _LONGEST:
            raise InputError(f"{word} of {name} is no text of at most {_LONGEST:,} characters", fix=f"{word}: {one.words}")
        out[word] = value
    return out
