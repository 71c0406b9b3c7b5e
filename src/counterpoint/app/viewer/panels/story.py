"""The run as a story for everybody: what each agent was given, did and gave back, in order and in plain words.

Always true: texts are the trace's own, from their beginning, and say where they are cut; numbers are those of `audits.work`; what
is not recorded is said to be not recorded, and nothing is made up.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from counterpoint.app.viewer.panel import Panel
from counterpoint.app.viewer.trace_view import TraceView, view_of
from counterpoint.audits.work.agents import AgentWork, work
from counterpoint.display import counted, duration, money
from counterpoint.trace import Event, Trace
from counterpoint.trace.ending import is_unfinished
from counterpoint.trace.naming import title_of

_AGENTS, _TEXT, _TOOLS = 400, 700, 3
_LARGE = 200_000
_SAID = ("message", "aggregate", "orchestrator_decision", "return")
_LOOKS = {"grep", "glob", "search", "websearch", "web_search", "search_files", "file_search", "toolsearch"}
_READS = {"read", "ls", "webfetch", "web_fetch", "fetch", "read_file", "view", "notebookread", "open"}
_KINDS = (("looked something up", _LOOKS), ("read files or pages", _READS))
_ELSEWHERE = {"bash", "shell", "exec_command", "edit", "write", "multiedit", "notebookedit", "apply_patch", "task", "agent"}
"""Tools that are told of as files, commands and helpers."""


class StoryText(Struct, frozen=True, kw_only=True):
    """Something that was handed over."""

    text: str
    length: int
    """Characters of the whole: more than `text` has where it is cut."""
    event: int
    """Its number on the page."""
    agent: str
    """Who gave it, or to whom; empty where that is not said."""


class StoryAgent(Struct, frozen=True, kw_only=True):
    """One agent's part."""

    agent: int
    name: str
    given: StoryText | None
    did: list[str]
    gave: StoryText | None
    spent: str
    note: str
    """What the record lacks; empty where it lacks nothing."""


class Story(Struct, frozen=True, kw_only=True):
    """The whole team's."""

    title: str
    summary: str
    agents: list[StoryAgent]
    left_out: int
    """Agents that there is no room for."""


def _answer(trace: Trace) -> Story:
    return view_of(trace).once("story", lambda: _story(view_of(trace)))


def _story(view: TraceView) -> Story:
    trace, team = view.trace, view.team
    if len(trace.events) > _LARGE:
        summary = f"{len(trace.events):,} events are too many to tell here."
        return Story(title=title_of(trace) or trace.task_id, summary=summary, agents=[], left_out=len(team))
    by_name = {one.agent: one for one in work(trace).agents}
    parts = _Parts(view)
    members = [a for a in range(len(team)) if team.is_member_A[a]]
    members.sort(key=lambda a: (parts.first.get(a, len(trace.events)), a))
    told = [parts.agent(a, by_name.get(team.names[a])) for a in members[:_AGENTS]]
    costs = [one.cost_usd for one in by_name.values() if one.cost_usd is not None]
    ends = [e.t + (e.dur or 0) for e in trace.events]
    length = float(max(ends) - min(e.t for e in trace.events)) if ends else 0.0
    words = [counted(len(members), "agent"), duration(length), *([f"at least {money(sum(costs))}"] if costs else [])]
    words += [f"{counted(len(trace.failures), 'thing')} went wrong on the way"] if trace.failures else []
    words += ["the end is not recorded"] if is_unfinished(trace.meta) else []
    left_out, title = len(members) - len(told), title_of(trace) or trace.task_id
    return Story(title=title, summary=", ".join(words) + ".", agents=told, left_out=left_out)


class _Parts:
    """Who was given what, and gave back what, over a whole run."""

    def __init__(self, view: TraceView) -> None:
        self._view, trace, team = view, view.trace, view.team
        self.first: dict[int, int] = {}
        """Agent to the place of what it was given, or of its first event."""
        self._given: dict[int, Event] = {}
        self._gave: dict[int, Event] = {}
        self._said: dict[int, Event] = {}
        self._tools: dict[int, Counter[str]] = {}
        self._spawns: Counter[int] = Counter()
        for i in team.order_E.tolist():
            self._take(trace.events[i], int(team.agent_E[i]), int(team.place_E[i]))

    def _take(self, event: Event, owner: int, place: int) -> None:
        number = self._view.team.number
        self.first.setdefault(owner, place)
        to = number.get(event.to or "")
        if event.type == "spawn":
            if to is not None and to != owner:
                self._spawns[owner] += 1
                self.first[to] = min(self.first.get(to, place), place)
                self._given.setdefault(to, event)
        elif event.type == "human_intervention" and to is not None:
            self._given.setdefault(to, event)
        elif event.type == "return":
            self._gave[number.get(event.from_ or "", owner)] = event
        elif event.type == "tool_call":
            self._tools.setdefault(owner, Counter())[event.tool or "a tool"] += 1
        if event.type in _SAID and self._view.trace.text(event):
            self._said[owner] = event

    def agent(self, a: int, done: AgentWork | None) -> StoryAgent:
        """One agent's part."""
        gave = self._gave.get(a)
        is_lead = done is None or done.parent is None
        if gave is None and is_lead:
            gave = self._said.get(a)
        spent = [] if done is None else [money(done.cost_usd)] if done.cost_usd is not None else []
        spent += [duration(done.busy_s)] if done is not None and done.busy_s else []
        return StoryAgent(
            agent=a, name=self._view.team.label_A[a], given=self._handed(self._given.get(a), is_to=False), did=self._did(a, done),
            gave=self._handed(gave, is_to=True), spent=" · ".join(spent),
            note="" if done is None or done.is_recorded else "Its own steps are not in the record.",
        )  # fmt: skip

    def _handed(self, event: Event | None, *, is_to: bool) -> StoryText | None:
        if event is None or not (text := (self._view.trace.text(event) or "").strip()):
            return None
        team, i = self._view.team, self._view.trace.index[event.id]
        other = team.number.get(event.to or "") if is_to else int(team.agent_E[i])
        is_person = event.type == "human_intervention"
        who = "a person" if is_person else "" if other is None or not team.is_member_A[other] else team.label_A[other]
        return StoryText(text=text[:_TEXT], length=len(text), event=int(team.place_E[i]), agent=who)

    def _did(self, a: int, done: AgentWork | None) -> list[str]:
        """What it did, in plain words."""
        tools, words = Counter(self._tools.get(a, Counter())), []
        if count := self._spawns[a]:
            words.append(f"started {counted(count, 'helper')}")
        for said, names in _KINDS:
            if count := sum(tools.pop(name) for name in list(tools) if name.lower() in names):
                words.append(f"{said} {_times(count)}")
        if done is not None and done.files:
            words.append(f"changed {counted(done.files, 'file')}")
        if done is not None and done.commands:
            words.append(f"ran {counted(done.commands, 'command')}")
        if done is not None and done.tests:
            results = [f"{n:,} {word}" for n, word in ((done.tests_passed, "passed"), (done.tests_failed, "failed")) if n]
            words.append(f"ran tests {_times(done.tests)}" + (f" ({', '.join(results)})" if results else ""))
        others = [(name, n) for name, n in tools.most_common() if name.lower() not in _ELSEWHERE]
        if others:
            named = ", ".join(name for name, _ in others[:_TOOLS]) + (" and others" if len(others) > _TOOLS else "")
            words.append(f"used other tools {_times(sum(n for _, n in others))} ({named})")
        if done is not None and done.failures:
            words.append(f"met {counted(done.failures, 'failure')}")
        return words


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count:,} times"


story = Panel(name="Story", key="8", answer=_answer, shapes=(StoryText, StoryAgent, Story))
