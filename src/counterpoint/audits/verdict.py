"""An audit in a verdict and three sentences: what came of it and at what price, how the team worked, what to look at.

Always true: each number is one of the measures, findings, failures or incidents that the audit lists; what could not be judged is
said, never passed over as fine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from counterpoint.audits.facts import Facts
from counterpoint.audits.failures import failures
from counterpoint.audits.outside import outside
from counterpoint.audits.records import Finding, Measure
from counterpoint.audits.waste import waste
from counterpoint.audits.work.agents import work
from counterpoint.display import compact, counted, duration, money, number, percent

Level = Literal["look", "failed", "fine", "unknown"]
_LEVELS: dict[Level, str] = {
    "look": "look at this",
    "failed": "the task was not done",
    "fine": "nothing wrong was found",
    "unknown": "too little is recorded to judge",
}


class Verdict(Struct, frozen=True, kw_only=True):
    """What an audit says in words."""

    level: Level
    """`look`: a reward hack or an incident; `failed`: the task was not done; `unknown`: no check could be made."""
    line: str
    sentences: list[str]
    """Three: result and price; how the team worked; what to look at."""


def verdict(facts: Facts, measures: Sequence[Measure], findings: Sequence[Finding], *, incidents: int | None = None) -> Verdict:
    """The words for one trace. `incidents` are effects that untrusted content decided; None where they were not looked for."""
    known = {m.name: m for m in measures if m.value is not None}
    hacks = [f for f in findings if f.status == "found"]
    reasons = [f"{f.hack.replace('_', ' ')} ({f.severity})" for f in hacks]
    reasons += [counted(incidents, "incident")] if incidents else []
    success = known["task_success"].value if "task_success" in known else None
    judged = sum(f.status != "missing" for f in findings)
    level: Level = "look" if reasons else "failed" if success is not None and success <= 0 else "fine" if judged else "unknown"
    line = _LEVELS[level] + (f": {', '.join(reasons)}" if reasons else "")
    if level == "fine" and judged < len(findings):
        line += f"; {len(findings) - judged} of {len(findings)} checks could not be made"
    sentences = [_result(facts, success), _work(facts, known), _look(facts, findings, incidents)]
    return Verdict(level=level, line=line, sentences=sentences)


def _result(facts: Facts, success: float | int | None) -> str:
    """What came of it, and at what price."""
    trace, spent = facts.trace, []
    if trace.tokens:
        spent.append(f"{compact(trace.tokens)} tokens")
    if trace.cost_usd is not None:
        spent.append(money(trace.cost_usd) + (" and what has no price" if trace.unpriced else ""))
    if trace.duration_s is not None:
        spent.append(duration(trace.duration_s))
    who = counted(len(trace.members), "agent")
    price = f" for {', '.join(spent)}" if spent else "; what it took is not recorded"
    came = "Nothing says whether the task was done" if success is None else f"The task's success is {number(success, 3)}"
    return f"{came}; {who} took {counted(facts.n, 'event')}{price}."


def _work(facts: Facts, known: Mapping[str, Measure]) -> str:
    """How the team worked: alone or side by side, how much was talk, how much led to the result."""
    written, remaining = work(facts.trace).lines
    lines = f"{remaining:,} of {counted(written, 'line')} written to files are there at the end" if written else ""
    if len(facts.trace.members) < 2:
        return f"One agent worked alone{f'; {lines}' if lines else ': there is nothing to coordinate'}."
    out = []
    out += _side_by_side(known)
    if (m := known.get("protocol_overhead")) is not None:
        out.append(f"{percent(m.value)} of the tokens went into coordination")
    out += [lines] if lines else []
    if (m := known.get("useful_agent_utilisation")) is not None:
        out.append(f"at most {percent(m.value)} of what sub-agents did can have contributed to the result")
    if (m := known.get("message_redundancy")) is not None and m.value:
        out.append(f"{percent(m.value)} of the messages repeat an earlier one")
    text = ", ".join(out) or "the records do not say how the team worked together"
    return text[0].upper() + text[1:] + "."


def _side_by_side(known: Mapping[str, Measure]) -> list[str]:
    """How much more the agents did than one could, or, where that is less, for how much of the time any of them worked."""
    did, at_once = known.get("parallelism_efficiency"), known.get("mean_parallelism")
    if did is None or did.value is None or at_once is None or not at_once.value:
        return []
    if did.value >= 1:
        return [f"the agents did {number(did.value, 2)} times what one could do in that time"]
    bound = "" if did.bound == "exact" else f"{did.bound} "
    return [f"some agent was at work {bound}{percent(did.value / at_once.value)} of the time"]


def _look(facts: Facts, findings: Sequence[Finding], incidents: int | None) -> str:
    """What to look at: failures, waste, untrusted content, and what could not be judged."""
    failed = failures(facts.trace)
    mended = sum(f.is_mended for f in failed)
    out = [f"{counted(len(failed), 'failure')}, {mended:,} of them in a tool that worked later" if failed else "Nothing failed"]
    wasted = [w for w in waste(facts) if w.count]
    if wasted:
        tokens = sum(w.tokens for w in wasted)
        what = ", ".join(f"{w.what} ({w.count:,})" for w in wasted)
        out.append(f"nothing came of {f'at least {compact(tokens)} tokens' if tokens else 'some work'}: {what}")
    if outside(facts.trace):
        decided = f"decided {counted(incidents, 'effect')}" if incidents else "decided nothing"
        unknown = "what content from outside decided was not looked for"
        out.append(unknown if incidents is None else f"content from outside {decided}")
    missing = [f.hack.replace("_", " ") for f in findings if f.status == "missing"]
    if missing:
        out.append(f"cannot be judged: {', '.join(missing)}")
    return "; ".join(out) + "."
