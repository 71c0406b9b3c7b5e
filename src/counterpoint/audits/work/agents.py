"""What each agent of a run cost and what became of its work: the one answer that commands, page and notebooks show.

Always true: cost, time, path share and failures are those of `counterpoint top`; useful acts are those of the measure
`useful_agent_utilisation`; what the record does not say is None and never 0. Lines are those of recorded edits, replayed in the
story's order (`audit.work.files`): a call that failed changed nothing, and what commands did to files is not seen, so that
`notes` say how many may have. Nothing here is a cause: who earned an outcome is a question for credit.
"""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

from counterpoint.audits.facts import Facts, facts_of
from counterpoint.audits.rollups import Row, rollup
from counterpoint.audits.work.edits import Edit, commands_of, edits_of, may_change_files, removed_by
from counterpoint.audits.work.files import Files
from counterpoint.audits.work.returns import Handover, handed_over
from counterpoint.display import at_least, compact, counted, duration, money, percent
from counterpoint.trace import Trace
from counterpoint.trace.test_output import test_run

_TESTS = re.compile(
    r"\b(?:pytest|py\.test|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|"
    r"(?:go|cargo|swift|dotnet|mix|deno|bun|flutter|zig|gradle|gradlew|mvn|sbt|lein|bazel)\s+(?:\S+\s+)?test|"
    r"(?:npm|pnpm|yarn)\s+(?:run\s+)?test\S*|make\s+(?:\S+\s+)?(?:test|check)\S*|manage\.py\s+test)\b"
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TEST_TOOL = re.compile(r"(?:^|_)(?:pytest|tests?)(?:_|$)", re.I)
_LED = ("orchestrator_decision", "message", "tool_call", "aggregate", "spawn")


class AgentWork(Struct, frozen=True, kw_only=True):
    """One agent's."""

    agent: str
    name: str
    """What people call it."""
    role: str | None
    parent: str | None
    tokens: int | None
    cost_usd: float | None
    unpriced: int
    """Its tokens that no cost covers."""
    busy_s: float | None
    path: float | None
    """Share of the critical path."""
    calls: int
    failures: int
    acts: int | None
    """What it did that can help; None where nothing says what was read."""
    useful: int | None
    """How much of that the result depends on: at most this much was of use."""
    is_recorded: bool
    """Its own steps are in the trace; else only what others state of it."""
    files: int | None
    """Files that it wrote to; None where that is not recorded."""
    files_kept: int | None
    """Of these, how many hold lines of its at the end."""
    lines: int | None
    """Lines that it wrote or changed, blank ones left out."""
    lines_kept: int | None
    """Of these, how many are there after all later edits."""
    unmeasured: int
    """Its calls that write and whose contents are not recorded."""
    commands: int | None
    commands_failed: int
    tests: int
    """Commands that ran tests."""
    tests_passed: int
    tests_failed: int
    returns: int
    """What it handed to others of the team, with a text."""
    returns_used: int
    """Of these, how many the reader said again or acted on: at least."""
    is_read: bool
    """Whether another agent read anything of it, by the recorded edges."""
    result: float | None = None
    """Share of the result's words that it was the first to say; None where that was not looked for or is not in words."""

    @property
    def expense(self) -> str:
        """What it cost, in words."""
        parts = [at_least(money(self.cost_usd), self.unpriced)] if self.cost_usd is not None else []
        parts += [f"{compact(self.tokens)} tokens"] if self.tokens else []
        parts += [duration(self.busy_s)] if self.busy_s else []
        parts += [f"{percent(self.path)} of the critical path"] if self.path else []
        parts += [counted(self.failures, "error")] if self.failures else []
        return " · ".join(parts) or "cost not recorded"

    @property
    def became(self) -> str:
        """What became of its work, in words."""
        parts = []
        if self.lines is not None and self.files:
            remaining = "all there at the end" if self.lines_kept == self.lines else f"{self.lines_kept:,} there at the end"
            parts.append(f"{counted(self.lines, 'line')} in {counted(self.files, 'file')}, {remaining}")
        if self.unmeasured:
            parts.append(f"{counted(self.unmeasured, 'write')} not measured")
        if self.tests:
            outcomes = [f"{n:,} {word}" for n, word in ((self.tests_passed, "passed"), (self.tests_failed, "failed")) if n]
            parts.append(counted(self.tests, "test run") + (f" ({', '.join(outcomes)})" if outcomes else ""))
        if self.commands:
            failed = f" ({self.commands_failed:,} failed)" if self.commands_failed else ""
            parts.append(f"{counted(self.commands, 'command')}{failed}")
        if self.returns:
            parts.append(_handover_words(self.returns, self.returns_used))
        elif self.parent is not None:
            parts.append("read by others" if self.is_read else "read by nobody")
        if self.result:
            parts.append(f"{percent(self.result)} of the result's words")
        if not self.is_recorded:
            parts.append("no transcript: files and commands not measured")
        return "; ".join(parts) or ("leads" if self.parent is None else "nothing is recorded of what it did")


def _handover_words(count: int, used: int) -> str:
    if count == 1:
        return "its return was used" if used else "no use of its return is seen"
    return f"{used:,} of {count:,} returns used"


class TeamWork(Struct, frozen=True, kw_only=True):
    """A run's: every member, in the order of cost."""

    agents: list[AgentWork]
    lead: str | None
    """The orchestrator; all others are sub-agents."""
    notes: list[str]
    """What the numbers leave out."""
    files: dict[str, dict[str, int]]
    """File to the lines of each agent that are there at the end."""

    @property
    def lines(self) -> tuple[int, int]:
        """Lines written and lines kept, over all agents whose writes are recorded."""
        return sum(a.lines or 0 for a in self.agents), sum(a.lines_kept or 0 for a in self.agents)

    @property
    def useful(self) -> float | None:
        """At most this share of what sub-agents did was of use: the measure `useful_agent_utilisation`."""
        subs = [a for a in self.agents if a.agent != self.lead]
        acts = sum(a.acts or 0 for a in subs)
        return sum(a.useful or 0 for a in subs) / acts if acts else None

    @property
    def headline(self) -> str:
        """What was done and what it cost, in one line."""
        parts = []
        written, final = self.lines
        if written:
            parts.append(f"{counted(written, 'line')} written, {final:,} there at the end in {counted(len(self.files), 'file')}")
        tests, commands = sum(a.tests for a in self.agents), sum(a.commands or 0 for a in self.agents)
        if tests:
            passed, failed = sum(a.tests_passed for a in self.agents), sum(a.tests_failed for a in self.agents)
            parts.append(f"{counted(tests, 'test run')} ({passed:,} passed, {failed:,} failed)")
        if commands:
            parts.append(f"{counted(commands, 'command')} ({sum(a.commands_failed for a in self.agents):,} failed)")
        returns = sum(a.returns for a in self.agents)
        if returns:
            parts.append(f"{sum(a.returns_used for a in self.agents):,} of {counted(returns, 'return')} used")
        tokens, cost = sum(a.tokens or 0 for a in self.agents), [a.cost_usd for a in self.agents if a.cost_usd is not None]
        spent = [f"{compact(tokens)} tokens"] if tokens else []
        spent += [at_least(money(sum(cost)), any(a.unpriced for a in self.agents))] if cost else []
        return " · ".join([*parts, *spent]) or "nothing is recorded of what was done and what it cost"


def work(trace: Trace) -> TeamWork:
    """Every member's work, the most expensive first."""
    facts = facts_of(trace)
    team, done = facts.team, _Done(facts)
    handed = handed_over(facts)
    read = set(team.agent_E[facts.read_E].tolist())
    final = done.files.final_lines()
    rows = [row for row in rollup(trace, "agent") if team.is_member_A[team.number[row.name or ""]]]
    agents = [_agent(facts, row, done, final.get(team.number[row.name or ""], {}), handed, read) for row in rows]
    agents.sort(key=lambda a: (-(a.cost_usd or 0.0), -(a.tokens or 0), -(a.lines_kept or 0), -(a.acts or 0), a.agent))
    files: dict[str, dict[str, int]] = {}
    for a, of in final.items():
        for path, lines in of.items():
            files.setdefault(path, {})[team.names[a]] = lines
    lead = None if team.main is None else team.names[team.main]
    return TeamWork(agents=agents, lead=lead, notes=done.notes(agents), files=files)


def _agent(facts: Facts, row: Row, done: _Done, final: dict[str, int], handed: dict[int, Handover], read: set[int]) -> AgentWork:
    a = facts.team.number[row.name or ""]
    acts_A, useful_A = facts.acts_A
    is_recorded = bool(facts.team.per_agent(facts.team.of_types(_LED))[a]) or row.parent is None
    touched = done.files.touched.get(a, set())
    is_silent = bool(done.unmeasured[a]) and not touched
    returned = handed.get(a, Handover(0, 0))
    return AgentWork(
        agent=row.name or "", name=row.label or row.name or "", role=row.role, parent=row.parent, tokens=row.tokens_own,
        cost_usd=row.cost_own, unpriced=sum(row.unpriced.values()),
        busy_s=row.busy_s, path=row.path, calls=row.calls, failures=row.errors,
        acts=int(acts_A[a]) if facts.graph.m else None, useful=int(useful_A[a]) if facts.graph.m else None,
        is_recorded=is_recorded,
        files=len(touched) if is_recorded and not is_silent else None,
        files_kept=len(final) if is_recorded and not is_silent else None,
        lines=done.files.written[a] if is_recorded and not is_silent else None,
        lines_kept=sum(final.values()) if is_recorded and not is_silent else None,
        unmeasured=done.unmeasured[a],
        commands=done.commands[a] if is_recorded else None, commands_failed=done.commands_failed[a],
        tests=done.tests[a], tests_passed=done.tests_passed[a], tests_failed=done.tests_failed[a],
        returns=returned.given, returns_used=returned.used, is_read=a in read,
    )  # fmt: skip


class _Done:
    """What the tool calls of a run did, in the story's order."""

    def __init__(self, facts: Facts) -> None:
        self.facts, self.files = facts, Files()
        counters = ("unmeasured", "commands", "commands_failed", "tests", "tests_passed", "tests_failed")
        self.unmeasured, self.commands, self.commands_failed, self.tests, self.tests_passed, self.tests_failed = (
            Counter[int]() for _ in counters
        )
        self.unseen: Counter[str] = Counter()
        self._edited: set[str] = set()
        result = _results(facts)
        for i in facts.team.events_of(("tool_call",)):
            self._take(i, result.get(i))

    def _take(self, i: int, result: int | None) -> None:
        facts = self.facts
        event, a, text = facts.events[i], int(facts.team.agent_E[i]), facts.text(i)
        is_failed = bool(facts.failed_E[i]) or (result is not None and _went_wrong(facts, result))
        commands = commands_of(event.tool, text)
        tested = _tested(facts.text(result) or "") if result is not None else None
        is_test = any(map(_TESTS.search, commands)) or bool(event.tool and _TEST_TOOL.search(event.tool))
        self.commands[a] += bool(commands)
        self.commands_failed[a] += bool(commands) and is_failed
        if is_test:
            self.tests[a] += 1
            passed = tested[0] if tested is not None else False if is_failed else None
            self.tests_passed[a] += passed is True
            self.tests_failed[a] += passed is False
        edits = edits_of(event.tool, text)
        if is_failed:
            return
        if edits is None:
            self._without_contents(a, text, bool((event.extra or {}).get("is_nested")))
            return
        for edit in edits:
            self._apply(edit, a)
        for command in commands:
            self._look_at(command, a)

    def _apply(self, edit: Edit, a: int) -> None:
        self.files.apply(edit, a)
        self._edited.add(self.files.path(edit.path))

    def _without_contents(self, a: int, text: str | None, is_nested: bool) -> None:
        """A write whose contents are not recorded; one inside a script was read there, where the script says the patch."""
        paths = [self.files.path(path) for path in re.findall(r'"((?:[^"\\]|\\.)+)"', text or "")]
        if not (is_nested and paths and all(path in self._edited for path in paths)):
            self.unmeasured[a] += 1

    def _look_at(self, command: str, a: int) -> None:
        gone = {path for named in removed_by(command) if (path := self.files.path(named)) in self.files.files}
        for path in gone:
            self.files.apply(Edit("delete", path), a)
        if (what := may_change_files(command)) is not None and not (gone and what.split()[0] == "rm"):
            self.unseen[what] += 1

    def notes(self, agents: list[AgentWork]) -> list[str]:
        """What the numbers leave out."""
        out = []
        if self.files.written and self.unseen:
            most = ", ".join(what for what, _ in self.unseen.most_common(4))
            n = sum(self.unseen.values())
            out.append(f"lines are those of recorded edits; {counted(n, 'command')} may have changed files too ({most})")
        if self.files.unplaced:
            out.append(f"{counted(self.files.unplaced, 'edit')} not found in the file as recorded, and left out")
        unmeasured = sum(self.unmeasured.values())
        if unmeasured:
            out.append(f"{counted(unmeasured, 'write')} without contents in the log: not measured")
        silent = sum(not a.is_recorded for a in agents)
        if silent:
            out.append(f"{counted(silent, 'agent')} without a transcript: only cost and return are known")
        return out


def _results(facts: Facts) -> dict[int, int]:
    """Call to its result."""
    out: dict[int, int] = {}
    for s, d in zip(facts.graph.src.tolist(), facts.graph.dst.tolist(), strict=True):
        if facts.events[s].type == "tool_call" and facts.events[d].type == "tool_result":
            out.setdefault(s, d)
    return out


def _tested(output: str) -> tuple[bool, str] | None:
    """What a test run says in an output; also where the output is shown as a string inside a record."""
    plain = _COLOURS.sub("", output)
    return test_run(plain) or (
        test_run(_COLOURS.sub("", plain.replace("\\u001b", "\x1b").replace("\\n", "\n"))) if "\\n" in plain else None
    )


def _went_wrong(facts: Facts, result: int) -> bool:
    event = facts.events[result]
    return bool(facts.failed_E[result]) or event.ok is False or event.error is not None
