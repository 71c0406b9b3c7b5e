"""What went wrong in a trace: each failure once, with who, what was tried, why, and whether it worked later.

Always true: failures are those of `Trace.failures`, in the story's order. A reason is what the source says; where an error has no
words of its own (`exit 1`), the first line of the text that came back stands behind it. Nothing is guessed.
"""

from __future__ import annotations

import re

from msgspec import Struct

from counterpoint.audit.facts import Facts
from counterpoint.audit.rollups import models_in_force
from counterpoint.trace import Event, Trace
from counterpoint.trace.naming import first_line

_REASON, _TRIED = 160, 100
# What says no more than that it failed, and the line of a traceback that says why.
_BARE = re.compile(
    r"\W*(?:error|failed|failure|true|false|none|is_error|traceback.*|stderr|stdout|(?:code )?output"
    r"|exit(?:ed)?(?: with)?(?: ?code| status)?\W*-?\d+)?\W*(?:\(?execution failed\)?)?\W*",
    re.IGNORECASE,
)
_RAISED = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception)\b.*$", re.MULTILINE)
# What differs between two failures of one kind: numbers, paths, quoted words, long ids.
_PARTICULAR = (
    (re.compile(r"(['\"`]).{1,200}?\1"), "…"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\\/][^\s:;,()]+)+"), "…"),
    (re.compile(r"\b[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]+)*\b"), "…"),
    (re.compile(r"(?<!code )(?<!status )\b\d+(?:[.,:]\d+)*"), "#"),
)


class Failure(Struct, frozen=True, kw_only=True):
    """One thing that went wrong."""

    event: str
    t: float
    agent: str
    name: str
    """What people call the agent."""
    type: str
    tool: str | None
    tried: str | None
    """The beginning of what was called or handed over, where the trace has it."""
    reason: str | None
    """Why, as the source says it; None where it only says that it failed."""
    model: str | None
    """What its agent was thinking with."""
    is_mended: bool
    """Whether a later call of the same tool by the same agent worked."""

    @property
    def kind(self) -> str:
        """The reason without what is particular to this failure: what failures are counted by."""
        return kind_of_reason(self.reason)


def kind_of_reason(reason: str | None) -> str:
    """A reason without numbers, paths, ids and quoted words."""
    text = reason or "(no reason given)"
    for pattern, sign in _PARTICULAR:
        text = pattern.sub(sign, text)
    return first_line(text, 90) or text.strip() or "(no reason given)"


def failures(trace: Trace, *, facts: Facts | None = None) -> list[Failure]:
    """Everything that went wrong, in the story's order."""
    if not trace.failures:
        return []
    facts = facts or Facts(trace)
    team, events = facts.team, trace.events
    calls, models = _calls(facts), models_in_force(facts)
    worked = _worked(facts)
    out = []
    for i in sorted(trace.failures, key=lambda i: int(team.place_E[i])):
        event, agent = events[i], int(team.agent_E[i])
        call = events[calls[i]] if i in calls else event
        tool = event.tool or call.tool
        tried = trace.text(call) if call.type in ("tool_call", "spawn") else None
        failure = Failure(
            event=event.id, t=float(event.t), agent=team.names[agent], name=team.label_A[agent], type=event.type, tool=tool,
            tried=first_line(tried, _TRIED) if tried else None, reason=_reason(trace, event, call),
            model=models[i], is_mended=tool is not None and worked.get((agent, tool), -1) > int(team.place_E[i]),
        )  # fmt: skip
        out.append(failure)
    return out


def _calls(facts: Facts) -> dict[int, int]:
    """Failed result to the call that it answers."""
    failed, events = set(facts.trace.failures), facts.events
    pairs = zip(facts.graph.src.tolist(), facts.graph.dst.tolist(), strict=True)
    wanted = {"tool_result": "tool_call", "return": "spawn"}
    return {d: s for s, d in pairs if d in failed and events[s].type == wanted.get(events[d].type)}


def _worked(facts: Facts) -> dict[tuple[int, str], int]:
    """Agent and tool to the place in the story of the last result that is no failure."""
    failed, team = set(facts.trace.failures), facts.team
    out: dict[tuple[int, str], int] = {}
    for i in team.events_of(("tool_result",)):
        tool = facts.events[i].tool
        if tool is not None and i not in failed and facts.events[i].ok is not False:
            out[int(team.agent_E[i]), tool] = int(team.place_E[i])
    return out


def _reason(trace: Trace, event: Event, call: Event) -> str | None:
    """The error's own words; with the text that came back where it has none."""
    said = next((e.error for e in (event, call) if e.error), None)
    if said is not None and (telling := _telling(said)) and not _BARE.fullmatch(telling):
        return telling
    text = trace.text(event) if event.type != "tool_call" else None
    came = _telling(text) if text else None
    return came if said is None else said if came is None else f"{said}: {came}"[:_REASON]


def _telling(text: str) -> str | None:
    """The line of a text that says why: the last that names an exception, else the first that says more than that it failed."""
    raised = _RAISED.findall(text[-20_000:])
    lines = [raised[-1]] if raised else text[:20_000].splitlines()
    telling = next((line for line in lines if not _BARE.fullmatch(line)), None)
    return first_line(telling if telling is not None else text, _REASON)
