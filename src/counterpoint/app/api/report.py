"""`report`: a week of sessions on one page: spend, time, failures, waste, patterns and trends.

Always true: every number is one that `ls`, `top`, `failures` or `audit` gives for the same traces; what could not be judged is
said; traces are read one at a time and not kept. Spend, failures and trends are of the time that the query names, waste and
patterns of whole traces.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from counterpoint.app.api.inputs import many_traces
from counterpoint.app.api.mix import FIGURES, Change, change_of
from counterpoint.app.api.sums import Period, Sum, sums_of_lines
from counterpoint.app.search import period_of
from counterpoint.audits.facts import Facts, facts_of
from counterpoint.audits.failures import failures
from counterpoint.audits.rollups import rollup
from counterpoint.audits.waste import KINDS, waste
from counterpoint.audits.work.agents import work
from counterpoint.display import zone
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace
from counterpoint.trace.activity import QUARTER_S, moments, sliced

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import Source, StorePlace

_EXAMPLES, _LINES = 3, 8


class WasteSum(Struct, kw_only=True):
    """One kind of waste over all traces."""

    kind: str
    what: str
    count: int = 0
    traces: int = 0
    unjudged: int = 0
    """Traces whose records do not allow to judge it."""
    tokens: int = 0
    cost_usd: float = 0.0
    busy_s: float = 0.0
    examples: list[dict[str, Any]] = []
    """The largest: trace, title, agents, tools, events."""


class FailureSum(Struct, kw_only=True):
    """One kind of failure over all traces."""

    reason: str
    tool: str | None
    count: int = 0
    traces: int = 0
    mended: int = 0
    """How many in a tool that worked later."""
    trace_id: str = ""
    event: str = ""


class Pattern(Struct, kw_only=True):
    """A kind of sub-agent (its role), or a tool, and what came of it."""

    kind: str
    """`sub-agent` or `tool`."""
    name: str
    runs: int = 0
    """Agents, or calls."""
    traces: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    unpriced: int = 0
    """Tokens that no cost covers."""
    busy_s: float = 0.0
    errors: int = 0
    used: int = 0
    """Returns that their reader said again or acted on (sub-agents), or results that were read (tools)."""
    judged: int = 0
    """Of how many."""
    lines: int | None = None
    """Lines that sub-agents wrote to files; None where no record says it."""
    lines_kept: int = 0
    """Of these, how many are there at the end."""
    useful: float | None = None
    """Sub-agents: at most this share of their actions, for the result depends on them; tools: share of results that were read."""
    rewards: list[float] = []
    """Team rewards of the traces it was used in."""

    @property
    def reward(self) -> float | None:
        """The mean team reward of the traces it was used in."""
        return sum(self.rewards) / len(self.rewards) if self.rewards else None


class Hanging(Struct, kw_only=True):
    """A trace whose record ends in calls without an answer."""

    trace_id: str
    title: str | None
    project: str | None
    agent: str
    """What people call the agent that waits longest, and what it waits for."""
    what: str
    since: float | None
    calls: int
    is_recording: bool
    """Whether its writer has not said yet that it is over."""


class Report(Struct, kw_only=True):
    """Everything on the page."""

    query: str
    first: float
    last: float
    """When the traces were first and last at work, seconds since the epoch."""
    zone: str
    """The time zone of the days."""
    total: Sum
    agents: int
    rewarded: int
    reward: float | None
    """The mean team reward of the traces that have one, and how many have."""
    projects: list[Sum]
    models: list[Sum]
    days: list[Sum]
    costliest: list[Sum]
    """The traces that cost most."""
    failures: list[FailureSum]
    failed: int
    """Traces in which anything failed."""
    waste: list[WasteSum]
    patterns: list[Pattern]
    useful: float | None
    """At most this share of what sub-agents did was of use: the audit's `useful_agent_utilisation` over all traces together."""
    trends: dict[str, tuple[float, float]]
    """Figure to its mean per trace in the earlier and the later half."""
    changes: dict[str, Change]
    """The same with totals, and with how much of a change is of more traces, of another mix, and of traces alike."""
    waiting: list[Hanging]
    """Traces whose record ends in a call without an answer: at work, stuck, or cut off; the last active first."""
    outside: Sum
    """What these traces did at other times than the query names: in none of the other sums."""

    def as_dict(self) -> dict[str, Any]:
        """What `counterpoint report --json` prints."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        for name in ("projects", "days", "costliest", "models"):
            told[name] = [line.as_dict() for line in getattr(self, name)]
        told |= {"total": self.total.as_dict(), "outside": self.outside.as_dict()}
        for row, pattern in zip(told["patterns"], self.patterns, strict=True):
            row["reward"] = pattern.reward
        return told


class Reporting:
    """A report in the making: traces are taken one by one."""

    def __init__(self, query: str, period: Period | None = None) -> None:
        """With a period, what was done outside of it is left out of spend, failures and trends."""
        self._query, self._period = query, period
        self._lines: list[Summary] = []
        self._outside = Sum(name=None)
        self._models: dict[str, Sum] = {}
        self._failures: dict[tuple[str | None, str], FailureSum] = {}
        self._waste = {kind: WasteSum(kind=kind, what=what) for kind, what in KINDS.items()}
        self._patterns: dict[tuple[str, str], Pattern] = {}
        self._useful: Counter[tuple[str, str]] = Counter()
        self._acts: Counter[tuple[str, str]] = Counter()

    def take(self, trace: Trace, line: Summary | None = None) -> None:
        """Count a trace in; `line` is what the store lists of it."""
        line, facts = line or Summary.of_trace(trace), facts_of(trace)
        part, inside, inner = line, trace, facts
        if self._period is not None:
            found = line.within(*self._period)
            if found is None:
                return
            part, inside = found, sliced(trace, *self._period)
            inner = facts if inside is trace else facts_of(inside)
            self._take_outside(line, part)
        self._lines.append(part)
        self._take_models(inside, inner)
        self._take_failures(trace, facts)
        self._take_waste(line, facts)
        self._take_agents(trace, facts)
        self._take_tools(trace, facts)

    def _take_outside(self, line: Summary, part: Summary) -> None:
        if part is not line:
            cost = None if line.cost_usd is None else float(line.cost_usd) - float(part.cost_usd or 0.0)
            tokens = None if line.tokens is None else line.tokens - (part.tokens or 0)
            left = {name: n for name, count in line.unpriced.items() if (n := count - part.unpriced.get(name, 0)) > 0}
            events = line.events - part.events
            self._outside.add(Sum(name=None, traces=1, events=events, tokens=tokens, cost_usd=cost, unpriced=left))

    def _take_models(self, trace: Trace, facts: Facts) -> None:
        for row in rollup(trace, "model"):
            if row.name is None and not row.tokens_own:
                continue
            left = trace.unpriced.get(row.name or "", 0)
            piece = Sum(
                name=row.name, traces=1, events=row.events, errors=row.errors, tokens=row.tokens_own, cost_usd=row.cost_own,
                unpriced={row.name or "": left} if left else {}, seconds=row.busy_s,
            )  # fmt: skip
            self._models.setdefault(row.name or "", Sum(name=row.name)).add(piece)

    def _take_failures(self, trace: Trace, facts: Facts) -> None:
        met = set()
        when = moments(trace.events, trace.meta) if trace.failures else []
        begin, end = self._period or (-math.inf, math.inf)
        for failure in failures(trace):
            at = when[trace.index[failure.event]]
            if at is not None and not begin <= at < end:
                continue
            key = failure.tool or failure.type.replace("_", " "), failure.kind
            first = FailureSum(reason=failure.kind, tool=key[0], trace_id=trace.trace_id, event=failure.event)
            found = self._failures.setdefault(key, first)
            found.count += 1
            found.mended += failure.is_mended
            found.traces += key not in met
            met.add(key)

    def _take_waste(self, line: Summary, facts: Facts) -> None:
        for one in waste(facts):
            total = self._waste[one.kind]
            total.unjudged += one.count is None
            if not one.count:
                continue
            total.count += one.count
            total.traces += 1
            total.tokens += one.tokens
            total.cost_usd += one.cost_usd
            total.busy_s += one.busy_s
            example: dict[str, Any] = {"trace_id": line.id, "title": line.title, "count": one.count, "tokens": one.tokens}
            example |= {"cost_usd": one.cost_usd, "busy_s": one.busy_s}
            example |= {"agents": one.agents[:4], "tools": one.tools[:4], "events": one.events[:4]}
            ranked = sorted([*total.examples, example], key=lambda e: (-e["cost_usd"], -e["tokens"], -e["busy_s"], -e["count"]))
            total.examples = ranked[:_EXAMPLES]

    def _take_agents(self, trace: Trace, facts: Facts) -> None:
        """Sub-agents by their role: what they cost, and what became of their work."""
        team, met = facts.team, set()
        done = {one.agent: one for one in work(trace).agents}
        for row in rollup(trace, "agent"):
            a = team.number[row.name or ""]
            if not facts.is_sub_A[a]:
                continue
            key = ("sub-agent", row.role or "(no role)")
            found = self._pattern(key, trace, key not in met)
            met.add(key)
            found.runs += 1
            found.tokens += row.tokens_own or 0
            found.cost_usd = found.cost_usd if row.cost_own is None else (found.cost_usd or 0.0) + row.cost_own
            found.unpriced += sum(row.unpriced.values())
            found.busy_s += row.busy_s or 0.0
            found.errors += row.errors
            one = done[row.name or ""]
            found.judged += one.returns
            found.used += one.returns_used
            if one.lines is not None:
                found.lines, found.lines_kept = (found.lines or 0) + one.lines, found.lines_kept + (one.lines_kept or 0)
            self._useful[key] += one.useful or 0
            self._acts[key] += one.acts or 0

    def _take_tools(self, trace: Trace, facts: Facts) -> None:
        """Tools: how often they were called and failed, how long they took, and whether their results were read."""
        results = facts.team.of_types(("tool_result",))
        is_told = bool((results & facts.used_E).any())
        came = Counter(e.tool for e, is_result in zip(facts.events, results, strict=True) if is_result)
        read = Counter(e.tool for e, is_read in zip(facts.events, results & facts.used_E, strict=True) if is_read)
        for row in rollup(trace, "tool"):
            if row.name is None:
                continue
            key = ("tool", row.name)
            found = self._pattern(key, trace, True)
            found.runs += row.calls
            found.tokens += row.tokens_own or 0
            found.cost_usd = found.cost_usd if row.cost_own is None else (found.cost_usd or 0.0) + row.cost_own
            found.unpriced += sum(row.unpriced.values())
            found.busy_s += row.busy_s or 0.0
            found.errors += row.errors
            if is_told:
                found.used += read[row.name]
                found.judged += came[row.name]
                self._useful[key] += read[row.name]
                self._acts[key] += came[row.name]

    def _pattern(self, key: tuple[str, str], trace: Trace, is_first: bool) -> Pattern:
        found = self._patterns.setdefault(key, Pattern(kind=key[0], name=key[1]))
        found.traces += is_first
        if is_first and "team" in trace.rewards:
            found.rewards.append(float(trace.rewards["team"]))
        return found

    def done(self) -> Report:
        """The report on what was taken."""
        lines = sorted(self._lines, key=lambda line: line.date)
        for key, pattern in self._patterns.items():
            pattern.useful = self._useful[key] / self._acts[key] if self._acts[key] else None
        rewards = [float(line.team_reward) for line in lines if line.team_reward is not None]
        days, changed = sums_of_lines(lines, "day"), changes(lines)
        kinds = sorted(self._failures.values(), key=lambda f: (-f.count, f.reason))
        return Report(
            query=self._query,
            first=min((line.date for line in lines), default=0.0),
            last=max((_last(line) for line in lines), default=0.0),
            zone=zone(),
            total=days.total,
            agents=sum(line.agents for line in lines),
            rewarded=len(rewards),
            reward=sum(rewards) / len(rewards) if rewards else None,
            projects=list(sums_of_lines(lines, "project").rows),
            models=sorted(self._models.values(), key=lambda s: (-(s.cost_usd or 0), -(s.tokens or 0))),
            days=list(days.rows),
            costliest=list(sums_of_lines(lines, "trace").rows[:_LINES]),
            failures=kinds,
            failed=sum(line.errors > 0 for line in lines),
            waste=list(self._waste.values()),
            useful=_all(self._useful, self._acts),
            patterns=sorted(self._patterns.values(), key=lambda p: (-(p.cost_usd or 0), -p.tokens, -p.busy_s, p.name)),
            trends={name: change.means for name, change in changed.items()},
            changes=changed,
            waiting=_hanging(lines),
            outside=self._outside,
        )


def _last(line: Summary) -> float:
    return line.date if line.started is None else line.active


def _hanging(lines: Iterable[Summary]) -> list[Hanging]:
    found = [line for line in lines if line.waiting]
    return [
        Hanging(
            trace_id=line.id, title=line.title, project=line.project, agent=line.waiting[0].name, what=line.waiting[0].what,
            since=line.waiting[0].since, calls=len(line.waiting), is_recording=line.is_open,
        )
        for line in sorted(found, key=lambda line: -_last(line))
    ]  # fmt: skip


def _all(useful: Counter[tuple[str, str]], acts: Counter[tuple[str, str]]) -> float | None:
    whole = sum(n for (kind, _), n in acts.items() if kind == "sub-agent")
    return sum(n for (kind, _), n in useful.items() if kind == "sub-agent") / whole if whole else None


def report(traces: Source, *, store: StorePlace = None, query: str = "") -> Report:
    """Report on traces: themselves, files, ids or queries of a store.

    >>> import counterpoint as cpt
    >>> from counterpoint.app.api.report import report
    >>> told = report(cpt.world("W1", vote_items=12).run("reference", [0], log=True).trace(0))
    >>> told.total.traces
    1
    """
    asked = traces if isinstance(traces, str) and not os.path.exists(traces) else query
    making = Reporting(query or (asked if isinstance(asked, str) else ""), period_of(asked))
    for trace in many_traces(traces, store):
        making.take(trace)
    return making.done()


def changes(lines: Iterable[Summary]) -> dict[str, Change]:
    """From the time before the middle trace began to the time from then on; nothing for fewer than four traces.

    A trace that was at work in both counts in both, each time with what it did then.
    """
    ordered = sorted(lines, key=lambda line: line.date)
    half = len(ordered) // 2
    if half < 2:
        return {}
    cut = ordered[half].date // QUARTER_S * QUARTER_S
    early, late = ([part for line in ordered if (part := line.within(*span))] for span in ((-math.inf, cut), (cut, math.inf)))
    if not early or not late:  # all of them within a quarter of an hour
        early, late = ordered[:half], ordered[half:]
    found = {name: change_of(early, late, field) for name, field in FIGURES.items()}
    return {name: change for name, change in found.items() if change is not None}
