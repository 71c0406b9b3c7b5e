"""What went wrong in a trace: each failure once, with who, what was tried, why, and whether it worked later.

Always true: failures are those of `Trace.failures`, in the story's order. A reason is a line that the source says: of several the
one that says most, where wrappers, banners and what was run say nothing. An error that has no words of its own (`exit 1`) has
the line of the text that came back behind it. Nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from counterpoint.audits.facts import Facts, facts_of
from counterpoint.audits.rollups import models_in_force
from counterpoint.trace import Event, Trace
from counterpoint.trace.naming import first_line

_REASON, _TRIED = 160, 100
# What says no more than that it failed, and the line of a traceback that says why.
_BARE = re.compile(
    r"\W*(?:error|failed|failure|true|false|none|is_error|traceback.*|stderr|stdout|(?:code )?output"
    r"|(?:process )?exit(?:ed)?(?: with)?(?: ?code| status)?\W*-?\d+)?\W*(?:\(?execution failed\)?)?\W*",
    re.IGNORECASE,
)
_RAISED = re.compile(r"^(?:E +)?((?:[\w.]+\.)?\w*(?:Error|Exception)\b.*)$", re.MULTILINE)
_ENDED = re.compile(r"Traceback \(most recent call last\):[^\n]*\n(?:[ \t\r][^\n]*\n|\n)*([^\s|][^\n]*)")
# What stands around an output, or above the part of it that tells: heads of clients, banners, what was run, warnings of npm.
_AROUND = re.compile(
    r"(?:chunk id:|wall time|process (?:exited|running)|original token count:|total output lines:|output:"
    r"|script (?:completed|failed)|npm (?:warn|notice)\b|[>$] |\[[\w:.-]+\] (?:\$|error task failed)|# \S+(?: \[\S+\])?$"
    r"|(?:code )?output:\W*traceback|found \d+ \w+\W*$|//|[=\-─_*#~+]{2,}(?!.*\bFAIL\b)"
    r"|platform |rootdir:|collected \d|\? +\S+\s+\[no test files)|\W*$",
    re.IGNORECASE,
)
# A word at the beginning of a line, and a place in a file with a remark about it.
_MARKED = re.compile(
    r"\s*(?:fatal|error|panic|npm err!|E  |FAILED|--- FAIL|FAIL|\S+ failed|uncaught|abort(?:ed|ing)?|segmentation fault)(?![\w-])"
    r"|.*\berror(?:\[\w+\])?: |[\w./\\-]+\.\w+:\d+:(?:\d+:?)? \S",
    re.IGNORECASE,
)
_COMPLAINS = re.compile(
    r"\b(?:error|exception|failed|fails|failure|no such|not (?:found|permitted|allowed|defined|recognized|exist)|cannot|can't"
    r"|couldn't|could not|unable to|denied|refused|rejected|timed out|timeout|unmatched|undefined|unexpected|invalid|unknown"
    r"|missing|mismatch)\b",
    re.IGNORECASE,
)
_COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_CUT = 200
"""Characters that importers keep of an error at least: a longer one may be cut."""
_READ = 20_000
"""Characters of a text, at its beginning and at its end, among which the line is looked for."""
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


def failures(trace: Trace) -> list[Failure]:
    """Everything that went wrong, in the story's order."""
    if not trace.failures:
        return []
    facts = facts_of(trace)
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
    error = next((e.error for e in (event, call) if e.error), None)
    text = trace.text(event) if event.type != "tool_call" else None
    if error is not None and text is not None and len(error) >= _CUT and text.strip().startswith(error.strip()):
        error, text = text, None  # the error is the beginning of what came back
    telling = _reason_line(error) if error is not None else None
    if telling is not None:
        return telling
    came = _reason_line(text) if text else None
    if error is None:
        return came or (first_line(text, _REASON) if text else None)
    own = _bare(error)
    return own if came is None else f"{own}: {came}"[:_REASON]


def _bare(error: str) -> str:
    """Words that say no more than that it failed: the line about how it ended, else the first."""
    line = next((line for line in error.splitlines() if "exit" in line.lower() and _BARE.fullmatch(line)), error)
    return first_line(line, _REASON) or error.strip()[:_REASON]


def _reason_line(text: str) -> str | None:
    """The line of a text that says why; None where none says more than that it failed.

    The best is the last that names an exception, then the first that is marked as an error, then the first that complains, then
    the first that is not only around the others.
    """
    plain = _COLOURS.sub("", _inside(text))
    last = plain[-_READ:]
    if matches := _ENDED.findall(last) or _RAISED.findall(last):
        return first_line(matches[-1], _REASON)
    lines = [line for line in _lines(plain) if not _BARE.fullmatch(line) and not _AROUND.match(line.strip())]
    for sign in (_MARKED.match, _COMPLAINS.search):
        if (line := next((line for line in lines if sign(line)), None)) and (telling := first_line(line, _REASON)):
            return telling
    return next((telling for line in lines if (telling := first_line(line, _REASON))), None)


def _lines(text: str) -> list[str]:
    """The lines at the beginning of a text and at its end."""
    return (text if len(text) <= 2 * _READ else f"{text[:_READ]}\n{text[-_READ:]}").splitlines()


def _inside(text: str) -> str:
    """A text with what commands printed in place of the records that a code cell shows of them."""
    if '"chunk_id"' not in text:
        return text
    return "\n".join(_printed(text.splitlines()))


def _printed(lines: list[str]) -> Iterator[str]:
    for line in lines:
        try:
            value = msgspec.json.decode(line) if line.startswith(('{"chunk_id"', '[{"chunk_id"')) else None
        except msgspec.DecodeError:
            value = None
        records = value if isinstance(value, list) else [value]
        outputs = [r["output"] for r in records if isinstance(r, dict) and isinstance(r.get("output"), str)]
        yield from outputs or [line]
