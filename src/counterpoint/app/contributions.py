"""What each agent of a run cost and what became of its work: what is shown where nobody can say who earned the outcome.

Always true: the numbers are those of `audit.work`, and the share of the result's words is provenance's; commands, page and
notebooks all take them from `contributions`. None of them is a cause, and they share nothing out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec.structs import replace

import counterpoint.registry as registry
from counterpoint.answer import Section
from counterpoint.audits.work.agents import AgentWork, TeamWork, work
from counterpoint.credits.choice import NoMechanism
from counterpoint.display import at_least, compact, duration, money, number, percent
from counterpoint.errors import CounterpointError
from counterpoint.trace import Trace
from counterpoint.trace.rows import Bar, Credit

MOST_READ = 20_000
"""Events up to which the origin of the result's words is looked for."""
_HEAD = (
    "agent", "cost", "tokens", "busy", "path", "lines kept", "tests", "commands", "returns used", "useful", "errors", "of result",
)  # fmt: skip
_DROP = ("of result", "path", "useful", "busy", "tokens", "commands")


def contributions(trace: Trace, *, words: bool = True) -> TeamWork:
    """Every member's work; with `words` also how much of the result it was the first to say."""
    told = work(trace)
    shares = _shares(trace) if words and len(trace.events) <= MOST_READ else None
    if shares is None:
        return told
    agents = [replace(one, result=shares.get(one.agent, 0.0)) for one in told.agents]
    return replace(told, agents=agents)


def _shares(trace: Trace) -> Mapping[str, float] | None:
    try:
        found: Credit = registry.get("mechanism", "provenance")([trace], unit="agent")
    except CounterpointError:
        return None
    return found.of(0, "agent")


def work_section(team: TeamWork, most: int | None = None) -> Section:
    """A row for each agent, and what it comes to in words; a dash stands for what is not recorded."""
    names = [one.name for one in team.agents]
    rows = [_cells(one, one.name if names.count(one.name) == 1 else one.agent) for one in team.agents]
    more = f"{len(rows) - most:,} more agents: --rows 0 prints all" if most and len(rows) > most else ""
    lines = [("work", team.headline), *(("note", words) for words in team.notes)]
    title, right = "what each agent cost, and what became of its work", range(1, len(_HEAD))
    return Section(title, head=_HEAD, rows=rows[:most], right=right, drop=_DROP, lines=lines, more=more)


def _cells(one: AgentWork, name: str) -> list[str]:
    tests = f"{one.tests_passed:,} of {one.tests:,} passed" if one.tests else "0" if one.is_recorded else "-"
    lines = "-" if one.lines is None else f"{one.lines_kept:,} of {one.lines:,}" if one.lines else "0"
    commands = "-" if one.commands is None else f"{one.commands:,}"
    commands += f" ({one.commands_failed:,} failed)" if one.commands_failed else ""
    used = f"{one.returns_used:,} of {one.returns:,}" if one.returns else "-"
    useful = "-" if not one.acts else f"{one.useful:,} of {one.acts:,}"
    spent = [at_least(money(one.cost_usd), one.unpriced), compact(one.tokens), duration(one.busy_s), percent(one.path)]
    return [name, *spent, lines, tests, commands, used, useful, number(one.failures), percent(one.result)]


@dataclass(frozen=True)
class Uncredited(Credit):
    """No credit, for nothing says what the team would have got without an agent; as a table, what each agent cost and did."""

    TABLE: ClassVar = {
        "trace_id": "string", "agent": "string", "name": "string", "cost_usd": "double", "tokens": "int64", "busy_s": "double",
        "files": "int64", "files_kept": "int64", "lines": "int64", "lines_kept": "int64", "commands": "int64",
        "commands_failed": "int64", "tests": "int64", "tests_passed": "int64", "tests_failed": "int64", "returns": "int64",
        "returns_used": "int64", "acts": "int64", "useful": "int64", "failures": "int64", "result": "double", "became": "string",
    }  # fmt: skip

    work: tuple[TeamWork, ...] = ()
    """Of each trace."""

    @staticmethod
    def of_traces(traces: Sequence[Trace], error: NoMechanism) -> Uncredited:
        """What there is to say instead."""
        ids = tuple(trace.trace_id for trace in traces)
        notes = {"passed": error.passed, "fix": error.fix}
        return Uncredited(
            "none", "what each agent cost, and what became of its work", False, ids, (),
            unidentified={(i, ""): error.what for i in range(len(ids))}, notes=notes, work=tuple(map(contributions, traces)),
        )  # fmt: skip

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per agent."""
        for trace_id, told in zip(self.trace_ids, self.work, strict=True):
            for one in told.agents:
                yield [trace_id, *(getattr(one, name) for name in list(self.TABLE)[1:])]

    def row_count(self) -> int:
        """How many agents there are."""
        return sum(len(told.agents) for told in self.work)

    def picture(self) -> list[Bar]:
        """Nothing is shared out, so there is nothing to draw."""
        return []

    def caption(self) -> str:
        """Why there is no credit, and what the run did and cost."""
        why = next(iter(self.unidentified.values()), "")
        return " · ".join([why, *(told.headline for told in self.work[:1])])
