"""`report`: a week of sessions on one page: spend, time, failures, waste, patterns and trends.

Always true: every number is one that `ls`, `top`, `failures` or `audit` gives for the same traces; what could not be judged is
said; traces are read one at a time and not kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from counterpoint.app.api.inputs import many_traces
from counterpoint.app.api.sums import Sum, sums_of_lines
from counterpoint.audit.facts import Facts
from counterpoint.audit.failures import failures
from counterpoint.audit.rollups import rollup
from counterpoint.audit.waste import KINDS, waste
from counterpoint.audit.work.agents import work
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace

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


class Report(Struct, kw_only=True):
    """Everything on the page."""

    query: str
    first: float
    last: float
    """The first and the last start among the traces, seconds since the epoch."""
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
    """Figure to its mean per trace in the earlier and the later half of the traces."""

    def as_dict(self) -> dict[str, Any]:
        """What `counterpoint report --json` prints."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        for row, pattern in zip(told["patterns"], self.patterns, strict=True):
            row["reward"] = pattern.reward
        return told


class Reporting:
    """A report in the making: traces are taken one by one."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._lines: list[Summary] = []
        self._models: dict[str, Sum] = {}
        self._failures: dict[tuple[str | None, str], FailureSum] = {}
        self._waste = {kind: WasteSum(kind=kind, what=what) for kind, what in KINDS.items()}
        self._patterns: dict[tuple[str, str], Pattern] = {}
        self._useful: Counter[tuple[str, str]] = Counter()
        self._acts: Counter[tuple[str, str]] = Counter()

    def take(self, trace: Trace, line: Summary | None = None) -> None:
        """Count a trace in; `line` is what the store lists of it."""
        line, facts = line or Summary.of_trace(trace), Facts(trace)
        self._lines.append(line)
        self._take_models(trace, facts)
        self._take_failures(trace, facts)
        self._take_waste(line, facts)
        self._take_agents(trace, facts)
        self._take_tools(trace, facts)

    def _take_models(self, trace: Trace, facts: Facts) -> None:
        for row in rollup(trace, "model", facts=facts):
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
        for failure in failures(trace, facts=facts):
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
        done = {one.agent: one for one in work(trace, facts=facts).agents}
        for row in rollup(trace, "agent", facts=facts):
            a = team.number[row.name or ""]
            if not facts.is_sub_A[a]:
                continue
            key = ("sub-agent", row.role or "(no role)")
            found = self._pattern(key, trace, key not in met)
            met.add(key)
            found.runs += 1
            found.tokens += row.tokens_own or 0
            found.cost_usd = found.cost_usd if row.cost_own is None else (found.cost_usd or 0.0) + row.cost_own
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
        for row in rollup(trace, "tool", facts=facts):
            if row.name is None:
                continue
            key = ("tool", row.name)
            found = self._pattern(key, trace, True)
            found.runs += row.calls
            found.tokens += row.tokens_own or 0
            found.cost_usd = found.cost_usd if row.cost_own is None else (found.cost_usd or 0.0) + row.cost_own
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
        days = sums_of_lines(lines, "day")
        kinds = sorted(self._failures.values(), key=lambda f: (-f.count, f.reason))
        return Report(
            query=self._query,
            first=lines[0].date if lines else 0.0,
            last=lines[-1].date if lines else 0.0,
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
            trends=trends(lines),
        )


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
    making = Reporting(query)
    for trace in many_traces(traces, store):
        making.take(trace)
    return making.done()


def trends(lines: Iterable[Summary]) -> dict[str, tuple[float, float]]:
    """Means per trace in the earlier and the later half, by date; nothing for fewer than four traces."""
    ordered = sorted(lines, key=lambda line: line.date)
    half = len(ordered) // 2
    if half < 2:
        return {}
    figures = {"cost": "cost_usd", "tokens": "tokens", "time": "wall_clock_s", "agents": "agents", "errors": "errors"}
    figures["reward"] = "team_reward"
    out = {}
    for name, field in figures.items():
        parts = ordered[:half], ordered[half:]
        early, late = ([float(v) for line in part if (v := getattr(line, field)) is not None] for part in parts)
        if early and late:
            out[name] = (sum(early) / len(early), sum(late) / len(late))
    return out


