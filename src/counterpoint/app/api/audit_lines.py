"""Audits of many traces, summed by trace, project, model, day, system, role or tool.

Always true: a trace is in one line of a group of whole traces (of models: in that of its first; of days: in that of every day on
which it was at work, with what it spent and what failed on that day); a mean is over the traces that
have a value, and `-` where none has. Of roles and tools a line counts what their agents and calls did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from counterpoint.app.api.audit import TraceAudit
from counterpoint.app.search import facet
from counterpoint.audits.facts import Facts
from counterpoint.audits.rollups import rollup
from counterpoint.audits.waste import waste
from counterpoint.display import at_least, compact, counted, duration, money, number, percent
from counterpoint.store.summary import Summary

AUDIT_GROUPS = ("trace", "project", "model", "day", "system", "role", "tool")
_MEANS = ("task_success", "parallelism_efficiency", "protocol_overhead", "useful_agent_utilisation", "message_redundancy")


class AuditLine(Struct, kw_only=True):
    """One line: what the audits of several traces say of one thing."""

    name: str
    label: str | None = None
    traces: int = 0
    suspects: int = field(default=0, name="found")
    """Traces with a reward hack or an incident; of a role: agents that a reward hack names."""
    errors: int = 0
    tokens: float | None = None
    cost_usd: float | None = None
    unpriced: int = 0
    """Tokens that no cost covers."""
    runs: int = 0
    """Agents of a role, calls of a tool."""
    acts: int = 0
    useful: int = 0
    """Actions of sub-agents that the result depends on, of `acts`; of a tool: results that were read, of those that came."""
    repeated: int = 0
    """Events of repeated reads."""
    sums: dict[str, tuple[float, int]] = {}
    """Measure to the sum of its values and how many there are."""

    @property
    def cost(self) -> str:
        """The cost in words, with a plus where tokens have no price."""
        return at_least(money(self.cost_usd), self.unpriced)

    def spend(self, tokens: float | None, cost_usd: float | None, unpriced: Mapping[str, int]) -> None:
        """Count tokens and money in, where they are known, and the tokens that have no price."""
        self.unpriced += sum(unpriced.values())
        self.tokens = self.tokens if tokens is None else (self.tokens or 0) + tokens
        self.cost_usd = self.cost_usd if cost_usd is None else (self.cost_usd or 0.0) + float(cost_usd)

    def mean(self, measure: str) -> float | None:
        """The mean of a measure over the traces that have it."""
        total, count = self.sums.get(measure, (0.0, 0))
        return total / count if count else None


class AuditLines:
    """Audits of many traces in the making."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.traces = 0
        self.failed = 0
        """Traces in which anything failed."""
        self.hacks: Counter[str] = Counter()
        """Reward hack to the traces that it was found in."""
        self.incidents = 0
        """Effects that untrusted content decided."""
        self.unsearched = 0
        """Traces in which they were not looked for."""
        self._total = AuditLine(name="total")
        self._lines: dict[str, AuditLine] = {}
        self._seconds = 0.0

    @property
    def suspects(self) -> int:
        """Traces with a reward hack or an incident."""
        return self._total.suspects

    @property
    def is_whole(self) -> bool:
        """Whether a line is a set of whole traces."""
        return self.group not in ("role", "tool")

    def take(self, facts: Facts, said: TraceAudit, *, added: float = 0.0, incidents: int | None = None) -> None:
        """Count the audit of a trace in; `incidents` are effects that untrusted content decided, None where not looked for."""
        line = replace(Summary.of_trace(facts.trace), added=added)
        self.traces += 1
        self.failed += line.errors > 0
        self._seconds += float(line.wall_clock_s or 0)
        self.hacks.update(sorted({f.hack for f in said.hacks}))
        self.incidents += incidents or 0
        self.unsearched += incidents is None
        is_suspect = bool(said.hacks or incidents)
        self._add(self._total, line, said, facts, is_suspect=is_suspect)
        if self.group == "role":
            self._roles(facts, said)
        elif self.group == "tool":
            self._tools(facts)
        elif self.group == "day":
            for day, part in line.by_day().items():
                name = day or "(no date)"
                self._add(self._lines.setdefault(name, AuditLine(name=name)), part, said, facts, is_suspect=is_suspect)
        else:
            name = line.id if self.group == "trace" else next(iter(facet(line, self.group)), "(none)")
            first = AuditLine(name=name, label=line.title if self.group == "trace" else None)
            self._add(self._lines.setdefault(name, first), line, said, facts, is_suspect=is_suspect)

    def _add(self, into: AuditLine, line: Summary, said: TraceAudit, facts: Facts, *, is_suspect: bool) -> None:
        into.traces += 1
        into.acts += facts.sub_acts[0]
        into.useful += facts.sub_acts[1]
        into.suspects += is_suspect
        into.errors += line.errors
        into.spend(line.tokens, line.cost_usd, line.unpriced)
        for measure in said.all_measures:
            if measure.name in _MEANS and measure.value is not None:
                total, count = into.sums.get(measure.name, (0.0, 0))
                into.sums[measure.name] = total + float(measure.value), count + 1

    def _roles(self, facts: Facts, said: TraceAudit) -> None:
        team, named = facts.team, {agent for f in said.hacks for agent in f.agents}
        acts_A, useful_A = facts.acts_A
        met = set()
        for row in rollup(facts.trace, "agent"):
            a = team.number[row.name or ""]
            if not team.is_member_A[a]:
                continue
            role = row.role or "(no role)"
            line = self._lines.setdefault(role, AuditLine(name=role))
            line.traces += role not in met
            met.add(role)
            line.runs += 1
            line.suspects += row.name in named
            line.errors += row.errors
            line.spend(row.tokens_own, row.cost_own, row.unpriced)
            line.acts += int(acts_A[a]) if facts.is_sub_A[a] else 0
            line.useful += int(useful_A[a]) if facts.is_sub_A[a] else 0

    def _tools(self, facts: Facts) -> None:
        again = {name for w in waste(facts) if w.kind == "repeated_reads" for name in w.events}
        results = facts.team.of_types(("tool_result",))
        for row in rollup(facts.trace, "tool"):
            if row.name is None:
                continue
            line = self._lines.setdefault(row.name, AuditLine(name=row.name))
            mine = [i for i, e in enumerate(facts.events) if e.tool == row.name]
            line.traces += 1
            line.runs += row.calls
            line.errors += row.errors
            line.spend(row.tokens_own, row.cost_own, row.unpriced)
            line.acts += sum(bool(results[i]) for i in mine)
            line.useful += sum(bool(results[i] and facts.used_E[i]) for i in mine)
            line.repeated += sum(facts.events[i].type == "tool_call" and facts.events[i].id in again for i in mine)

    def rows(self) -> list[AuditLine]:
        """The lines, those with most to look at first."""
        found = list(self._lines.values())
        if self.group == "day":
            return sorted(found, key=lambda line: line.name)
        return sorted(found, key=lambda x: (-x.suspects, -x.errors, -(x.cost_usd or 0), -(x.tokens or 0), x.name))

    def sentences(self) -> list[str]:
        """What all of them took, how the teams worked, what failed."""
        total = self._total
        success, overhead = total.mean("task_success"), total.mean("protocol_overhead")
        came = "nothing says whether the tasks were done" if success is None else f"mean success {number(success, 3)}"
        spent = f"{compact(total.tokens)} tokens, {total.cost}, {duration(self._seconds)}"
        talk = "" if overhead is None else f"{percent(overhead)} of the tokens of a trace went into coordination on average; "
        useful = _share(total.useful, total.acts)
        led = "no trace says what came of the sub-agents' work"
        led = led if not total.acts else f"at most {useful} of what sub-agents did can have contributed to a result"
        failed = f"{counted(total.errors, 'failure')} in {counted(self.failed, 'trace')}: counterpoint audit --failures."
        return [f"{came[0].upper()}{came[1:]}, for {spent}.", f"{(talk + led)[0].upper()}{(talk + led)[1:]}.", failed]

    def table(self, rows: Sequence[AuditLine]) -> tuple[list[str], list[list[str]]]:
        """Head and cells."""
        if self.is_whole:
            measured = ["success", "parallel", "coordination", "useful"]
            head = [self.group, "traces", "to look at", *measured, "errors", "tokens", "cost"]
            return head, [self._whole(line) for line in rows]
        if self.group == "role":
            head = ["role", "agents", "traces", "to look at", "useful", "errors", "tokens", "cost"]
            made = [[number(x.runs), number(x.traces), number(x.suspects), _share(x.useful, x.acts)] for x in rows]
        else:
            head = ["tool", "calls", "traces", "repeated", "read", "errors", "tokens", "cost"]
            made = [[number(x.runs), number(x.traces), number(x.repeated), _share(x.useful, x.acts)] for x in rows]
        spent = [[number(x.errors), compact(x.tokens), x.cost] for x in rows]
        return head, [[x.name, *cells, *paid] for x, cells, paid in zip(rows, made, spent, strict=True)]

    def _whole(self, line: AuditLine) -> list[str]:
        means = [number(line.mean(name), 3) for name in _MEANS[:2]]
        means += [percent(line.mean(_MEANS[2])), _share(line.useful, line.acts)]
        counts = [number(line.errors), compact(line.tokens), line.cost]
        return [line.label or line.name, number(line.traces), number(line.suspects), *means, *counts]

    def as_dict(self) -> dict[str, Any]:
        """What `counterpoint audit --group WHAT --json` prints."""
        rows = [msgspec.to_builtins(line) | {"means": {m: line.mean(m) for m in line.sums}} for line in self.rows()]
        for row in rows:
            del row["sums"]
        about: dict[str, Any] = {"group": self.group, "traces": self.traces, "found": self.suspects, "failed": self.failed}
        about |= {"hacks": dict(self.hacks), "incidents": self.incidents, "unsearched": self.unsearched}
        return about | {"sentences": self.sentences(), "rows": rows}


def _share(part: int, whole: int) -> str:
    return percent(part / whole) if whole else "-"
