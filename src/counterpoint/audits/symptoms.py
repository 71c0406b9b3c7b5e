"""Symptoms: what is wrong in one run, in the words of a kind that recurs: the input of a board of issues.

| kind | what shows it |
|---|---|
| `injection` | a text from outside gives orders (`audits.injection`), by what came of it and by the tool that brought it |
| `stuck` | the record ends in a call without an answer (`trace.activity.waiting_of`) |
| `failure` | a tool, spawn or model call that failed (`audits.failures`), by tool and cause |
| `loop` | one agent makes the same call again and again and gets the same result, or the same failure |
| `runaway` | more sub-agents, or deeper ones, than a team of people would start |
| `blame` | the run failed, and a step stands out (`audits.blame`), by cause and role |

Always true: a symptom depends on its own run alone, so that another run can neither rename nor split an issue; what is particular
to a run (numbers, paths, ids, quoted words) is in no key. A trace has at most one symptom of a key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from counterpoint.audits.blame.judge import blame
from counterpoint.audits.facts import Facts, facts_of
from counterpoint.audits.failures import failures, kind_of_reason
from counterpoint.audits.incidents import DONE
from counterpoint.audits.injection import injections
from counterpoint.errors import CounterpointError
from counterpoint.trace import Trace
from counterpoint.trace.activity import moments, waiting_of

VERSION = 3
"""Of the detectors: what another version found is looked for again."""
KINDS = {
    "injection": "texts from outside that give orders",
    "stuck": "runs that end in a call without an answer",
    "failure": "calls that fail",
    "loop": "the same call again and again",
    "runaway": "more agents than anybody wanted",
    "cost_jump": "runs that cost far more than others of their project",
    "blame": "steps that broke a run",
}
"""What each kind is, the gravest first; `cost_jump` needs other runs, and is told from the store's list."""
_EXAMPLES = 3
_SAME = 4
"""Calls alike of one agent, from which on they are a loop."""
_AGENTS, _DEPTH = 100, 4
"""Sub-agents of a run, and spawns between the first and the last of them, up to which nobody is surprised."""
_FOLLOWED, _RESISTED = (*DONE, "attempted"), "resisted"
_BROKEN_BY = {
    "tool": "a tool that fails or says nothing",
    "code": "the code that it writes",
    "claim": "claims that nothing supports",
    "result": "results that it misreads or does not use",
    "plan": "its plan, or a change of it",
    "stop": "it ends the work at the wrong time",
    "repeat": "work done again",
}
"""Suspicions that somebody can act on; where a step stood and how it was worded are none."""
_NAMED, _READ = 60, 2_000
"""Characters of a tool's name, and those of a reason that are looked at."""

# Causes that many tools share: a code, words, and what their many messages say. Those with "{}" are each tool's own.
_SHARED = (
    ("refused", "A person says no to a call",
     r"user (?:doesn't|does not|didn't|did not) (?:want|allow)|rejected by (?:the )?user"
     r"|user (?:has )?(?:rejected|denied|declined)"),
    ("asking", "The asking for an approval fails", r"permission request failed"),
    ("approval", "A call needs an approval that nobody gave",
     r"requires? approval|permission request|requested permission|haven't granted|was blocked"
     r"|not allowed to|approval (?:denied|required)"),
    ("unread", "An edit of a file that was not read before", r"(?:has not|hasn't) been read|read it first|modified since read"),
    ("match", "An edit whose old text is not in the file",
     r"string to replace|not found in file|old_string|no match(?:es)? (?:was |were )?found"
     r"|patch (?:failed|does not apply)"),
    ("aborted", "A call is interrupted",
     r"request was aborted|\binterrupted\b|operation (?:was )?(?:aborted|cancell?ed)|sibling tool"
     r"|user (?:cancell?ed|stopped|aborted)"),
    ("limit", "The model's provider refuses or is overloaded",
     r"rate.?limit|overloaded|quota|too many requests|\b429\b|\b529\b|temporarily unavailable|usage limit"
     r"|billing|credit balance"),
    ("context", "The context is too long",
     r"context (?:length|window)|prompt is too long|maximum context|too many tokens|exceeds maximum"),
    ("timeout", "{}: times out", r"timed? ?out|deadline exceeded|took too long|no answer (?:with)?in \d"),
    ("network", "{}: the network fails",
     r"econnre|connection (?:refused|reset|closed|error)|getaddrinfo|name or service|socket hang|\bssl\b"),
    ("http", "{}: a page or service answers with an error", r"status code [45]\d\d|http error|\b404\b|\b50[0-4]\b"),
    ("unknown_tool", "{}: a tool that does not exist",
     r"(?:unknown|no such) tool|tool .* (?:not found|does not exist|not available)"),
    ("command", "{}: a command or module that is not installed",
     r"command not found|is not recognized as|no module named|modulenotfound|cannot find module"),
    ("path", "{}: a path that is not there",
     r"no such (?:file|directory)|(?:file|folder|directory) (?:does not|doesn't) exist|enoent|cannot access"
     r"|(?:path|file|folder|directory)\b.*not (?:found|exist)|did not match any files"),
    ("directory", "{}: a folder read as a file", r"eisdir|is a directory"),
    ("rights", "{}: the system does not permit it",
     r"permission denied|eperm|eacces|operation not permitted|access denied|forbidden|\b403\b"),
    ("arguments", "{}: arguments that it does not take",
     r"validation ?error|unexpected (?:keyword )?argument|missing \d* ?required|inputvalidation"
     r"|(?:invalid|bad) (?:argument|input|parameter)|zoderror|schema"),
    ("types", "{}: code that does not type-check", r"error ts\d+|\bmypy\b|incompatible type|possible misuse"),
    ("syntax", "{}: code that does not parse", r"syntaxerror|indentationerror|parse error|unexpected token|unterminated"),
    ("tests", "{}: tests that fail", r"assertionerror|\b(?-i:FAIL(?:ED)?:? +\w)|tests? failed|--- fail|\d+ failed"),
    ("nothing", "{}: finds nothing", r"\b(?:nothing|no \w+) (?:was |were )?found\b"),
    ("missing", "{}: asks for what does not exist",
     r"\bnot found\b|does(?: not|n't) exist|\bno such\b|unknown (?:id|user|order|name)"),
)  # fmt: skip
_CAUSES = tuple((code, words, re.compile(pattern, re.IGNORECASE)) for code, words, pattern in _SHARED)
_MISSING = (
    re.compile(r"\b(?:no such|unknown) (?P<what>[a-z]+(?: type)?)\b", re.IGNORECASE),
    re.compile(r"(?P<what>[^:;.!?\n]*?)\s(?:(?:was |is |were )?not found|does(?: not|n't) exist)\b", re.IGNORECASE),
)
_WORDLESS = re.compile(r"(?:'[^']*'?|\"[^\"]*\"?|`[^`]*`?|\S*[\d_/#{}<>…]\S*)")
_ABOUT = re.compile(r"\s(?:with|for|named|called|in|of|at|by)\s")
_NO_NOUN = {"a", "an", "any", "error", "it", "new", "one", "such", "that", "the", "this", "type", "value"}
_EXIT = re.compile(r"\W*(?:error|failed|command |process )*\W*exit(?:ed)?(?: with)?(?: ?code| status)?\W*-?[\d#]*\W*", re.I)


class Symptom(Struct, frozen=True, array_like=True, gc=False):
    """One thing that is wrong in one run, however often it happened there. An array in files: new fields go to the end."""

    kind: str
    key: str
    """The issue that it belongs to: a digest of the kind and of what is alike in all runs."""
    name: str
    """The issue's name: made of what is alike in all runs."""
    count: int
    open: int
    """How many of them nothing mended later in the run."""
    events: tuple[str, ...]
    """The first of them."""
    first: float | None
    last: float | None
    """When, seconds since the epoch; None where the run has no clock's time."""
    tokens: int = 0
    cost_usd: float | None = None
    """What the model calls cost that led to it: at least this much; None where no cost is known."""
    words: str = ""
    """The first of them in its own words."""


def symptom_key(kind: str, *alike: str) -> str:
    """The id of an issue."""
    return hashlib.sha256("\0".join((kind, *alike)).encode("utf-8", "surrogatepass")).hexdigest()[:8]


class _Found(Struct):
    """One occurrence."""

    kind: str
    alike: tuple[str, ...]
    name: str
    event: str
    is_open: bool = True
    words: str = ""


def symptoms(trace: Trace) -> list[Symptom]:
    """Everything that is wrong in a run, the gravest kinds first."""
    facts = facts_of(trace)
    try:
        when = moments(trace.events, trace.meta)
    except OverflowError:
        when = [None] * len(trace.events)
    groups: dict[tuple[str, ...], list[_Found]] = {}
    for find in _DETECTORS:
        for one in find(trace, facts):
            groups.setdefault((one.kind, *one.alike), []).append(one)
    return [_symptom(trace, facts, when, found) for found in groups.values()]


def _symptom(trace: Trace, facts: Facts, when: Sequence[float | None], found: list[_Found]) -> Symptom:
    first = found[0]
    places = [trace.index[one.event] for one in found]
    times = [at for place in places if (at := when[place]) is not None]
    steps = sorted({step for place in places if (step := _step_behind(facts, place)) is not None})
    is_paid = bool(steps) and bool(facts.has_cost_E[steps].all())
    return Symptom(
        first.kind, symptom_key(first.kind, *first.alike), first.name, len(found), sum(one.is_open for one in found),
        tuple(one.event for one in found[:_EXAMPLES]), min(times, default=None), max(times, default=None),
        int(facts.tokens_E[steps].sum()) if steps else 0, float(facts.cost_E[steps].sum()) if is_paid else None, first.words,
    )  # fmt: skip


def _step_behind(facts: Facts, i: int) -> int | None:
    """The model call that an event came of: its own, or the last of its agent before it."""
    if facts.has_tokens_E[i]:
        return i
    team = facts.team
    mine = facts.has_tokens_E & (team.agent_E == team.agent_E[i]) & (team.place_E < team.place_E[i])
    where = np.flatnonzero(mine)
    return int(where[np.argmax(team.place_E[where])]) if len(where) else None


# -- kinds -------------------------------------------------------------------------------------------------------------


def _injections(trace: Trace, facts: Facts) -> Iterator[_Found]:
    for one in injections(trace):
        if (is_done := one.status in _FOLLOWED) or one.status == _RESISTED:
            tool, what = _short(one.tool or one.source or "a text"), "followed" if is_done else "resisted"
            name = f"Orders in what {tool} brings were {what}"
            yield _Found("injection", (what, tool), name, one.event, is_done, one.excerpt)


def _stuck(trace: Trace, facts: Facts) -> Iterator[_Found]:
    for one in waiting_of(trace):
        event = trace.events[trace.index[one.event]]
        tool = _short(event.tool or ("a sub-agent" if event.type == "spawn" else event.type.replace("_", " ")))
        yield _Found("stuck", (tool,), f"Runs end while {tool} has no answer", one.event, words=one.what)


def _failures(trace: Trace, facts: Facts) -> Iterator[_Found]:
    for one in failures(trace):
        tool = _short(one.tool or {"spawn": "a sub-agent"}.get(one.type, "the model"))
        code, words = cause_of(one.reason)
        alike = (tool, code) if "{}" in words else (code,)
        yield _Found("failure", alike, words.replace("{}", tool, 1), one.event, not one.is_mended, one.reason or "")


def cause_of(reason: str | None) -> tuple[str, str]:
    """Why a call failed: a code that is alike in all runs, and words in which `{}` stands for the tool that had the failure."""
    text = (reason or "")[:_READ]
    for code, words, pattern in _CAUSES:
        if pattern.search(text):
            noun = _missing(text) if code == "missing" else None
            return (code, words) if noun is None else (f"{code} {noun}", f"No such {noun}")
    if not text or _EXIT.fullmatch(text):
        return "unsaid", "{}: fails and does not say why"
    kind = kind_of_reason(text).replace("{", "(").replace("}", ")")
    return kind, "{}: " + kind


def _missing(text: str) -> str | None:
    """What kind of thing is not there: `channel`, `user`, `agent type`; None where no word says it.

    Ids, quoted words and names are no kinds.
    """
    for pattern in _MISSING:
        if (found := pattern.search(text)) is not None:
            said = _WORDLESS.sub(" ", _ABOUT.split(found["what"])[0]).split()
            kinds = [w.lower() for i, w in enumerate(said) if w.isalpha() and w.isascii() and (i == 0 or w.islower())]
            kinds = ["agent" if w == "subagent" else w for w in kinds]
            last = kinds[-2:] if kinds[-1:] == ["type"] else [w for w in kinds if w not in _NO_NOUN][-1:]
            if last and last[0] not in _NO_NOUN and len(last[-1]) > 2:
                return " ".join(last)
    return None


def _loops(trace: Trace, facts: Facts) -> Iterator[_Found]:
    """Calls alike of one agent in a row, no other call of it in between that brought anything else."""
    events, team = facts.events, facts.team
    answer = {s: d for s, d in zip(facts.graph.src.tolist(), facts.graph.dst.tolist(), strict=True)
              if events[s].type == "tool_call" and events[d].type == "tool_result"}  # fmt: skip
    rows: dict[int, list[int]] = {}
    same: dict[int, tuple[object, ...]] = {}
    for i in team.events_of(("tool_call",)):
        call, agent = events[i], int(team.agent_E[i])
        if call.content_ref is None:
            rows[agent] = []
            continue
        result = events[answer[i]] if i in answer else None
        brought = None if result is None else (result.content_ref, bool(facts.failed_E[answer[i]]))
        key = (call.tool, call.content_ref, brought)
        if brought is not None and same.get(agent) == key:
            rows[agent].append(i)
        else:
            yield from _loop(facts, rows.get(agent, []))
            rows[agent], same[agent] = [i], key
    for calls in rows.values():
        yield from _loop(facts, calls)


def _loop(facts: Facts, calls: list[int]) -> Iterator[_Found]:
    if len(calls) >= _SAME:
        tool = _short(facts.events[calls[0]].tool or "a tool")
        name, words = f"{tool}: the same call again and again, with the same result", (facts.text(calls[0]) or "")[:200]
        yield from (_Found("loop", (tool,), name, facts.events[i].id, words=words) for i in calls)


def _runaway(trace: Trace, facts: Facts) -> Iterator[_Found]:
    spawns = facts.team.events_of(("spawn",))
    if len(spawns) > _AGENTS:
        name = f"Runs that start more than {_AGENTS} sub-agents"
        yield _Found("runaway", ("agents",), name, facts.events[spawns[_AGENTS]].id, words=f"{len(spawns):,} spawns")
    depth: dict[str, int] = {}
    for i in spawns:
        event = facts.events[i]
        below = depth.get(event.agent, 0) + 1
        if event.to is not None:
            depth.setdefault(event.to, below)
        if below > _DEPTH:
            name = f"Sub-agents more than {_DEPTH} spawns below the first"
            yield _Found("runaway", ("depth",), name, event.id, words=f"{below} spawns deep")


def _blame(trace: Trace, facts: Facts) -> Iterator[_Found]:
    try:
        found = blame(trace, most=1)
    except (CounterpointError, ValueError):  # it succeeded, nobody says anything, or nobody acted
        return
    if found.stands_out and found.suspects and found.cause in _BROKEN_BY:
        first = found.suspects[0]
        event = trace.events[trace.index[first.event]]
        who = _short(re.sub(r"[-_ #.]*\d+$", "", event.role or event.agent) or event.agent).lower()
        name = f"{who} breaks runs: {_BROKEN_BY[found.cause]}"
        yield _Found("blame", (found.cause, who), name, first.event, words=found.why.words)


_DETECTORS: tuple[Callable[[Trace, Facts], Iterator[_Found]], ...] = (_injections, _stuck, _failures, _loops, _runaway, _blame)


def _short(name: str) -> str:
    return name if len(name) <= _NAMED else name[: _NAMED - 1] + "…"
