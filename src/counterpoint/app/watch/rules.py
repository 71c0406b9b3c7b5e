"""Which rules a run breaks: its alerts, from what the audits find.

Always true: the same run gives the same alerts with the same ids; nothing is told of what happened before `quiet_until`, where a
run is older than the watch; what somebody marked ignored in `counterpoint issues` is not told.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import NamedTuple

from counterpoint.app.watch.alert import Alert, alert_id, clean, clean_title
from counterpoint.app.watch.settings import Rules
from counterpoint.audits.symptoms import Symptom, symptoms
from counterpoint.display import compact, counted, duration, money
from counterpoint.store.annotations import IssueMark
from counterpoint.trace import Event, Trace
from counterpoint.trace.activity import moments, waiting_of
from counterpoint.trace.naming import agent_names, project_of, title_of


class Judgement(NamedTuple):
    """What there is to tell of a run."""

    alerts: list[Alert]
    stuck: list[Alert]
    """To be told where nothing of the run grows for the minutes of the rule."""


def judgement(
    trace: Trace, rules: Rules, marks: Mapping[str, IssueMark] | None = None, *, quiet_until: float | None = None
) -> Judgement:
    """The alerts of a run as far as it is recorded."""
    run = _Run(trace, rules, quiet_until)
    run.of_symptoms(marks or {})
    run.of_sums()
    run.of_spawns()
    stuck = run.stuck() if rules.stuck_minutes else []
    return Judgement(list({one.id: one for one in run.alerts}.values()), stuck)


def alert_of(trace: Trace, rule: str, words: str, event: str | None, *subject: str) -> Alert:
    """An alert of a run; `subject` is what tells it from others of the same rule and run."""
    agent = None if event is None else trace.events[trace.index[event]].agent
    return Alert(
        id=alert_id(rule, trace.trace_id, *subject), rule=rule, trace_id=trace.trace_id, title=clean_title(title_of(trace)),
        project=clean_title(project_of(trace.meta)), agent=clean_title(agent_names(trace).get(agent or "", agent)), event=event,
        words=clean(words) or "", at=round(time.time(), 3),
    )  # fmt: skip


class _Run:
    def __init__(self, trace: Trace, rules: Rules, quiet_until: float | None) -> None:
        self._trace, self._rules = trace, rules
        self._quiet = -math.inf if quiet_until is None else quiet_until
        try:
            self._when = moments(trace.events, trace.meta)
        except OverflowError:
            self._when = [None] * len(trace.events)
        self.alerts: list[Alert] = []

    def _alert(self, rule: str, words: str, event: str | None, *subject: str) -> Alert:
        return alert_of(self._trace, rule, words, event, *subject)

    # -- what the audits find

    def of_symptoms(self, marks: Mapping[str, IssueMark]) -> None:
        for one in symptoms(self._trace):
            mark = marks.get(one.key)
            if (one.last is not None and one.last <= self._quiet) or (mark is not None and mark.state == "ignored"):
                continue
            if mark is not None and mark.state == "resolved":
                if self._rules.regressions and one.last is not None and one.last > mark.at:
                    said = f"happens again, and was resolved by {mark.by}: {one.name}"
                    self.alerts.append(self._alert("regression", said, _first(one), one.key, repr(mark.at)))
                continue
            self._symptom(one)

    def _symptom(self, one: Symptom) -> None:
        rules, said = self._rules, f": {one.words}" if one.words else ""
        if one.kind == "failure" and rules.failures and one.open >= rules.failures:
            self.alerts.append(self._alert("failure", f"{one.name}, {counted(one.open, 'time')}{said}", _first(one), one.key))
        elif one.kind == "loop" and rules.loops and one.count >= rules.loops:
            self.alerts.append(self._alert("loop", f"{one.name}, {counted(one.count, 'time')}{said}", _first(one), one.key))
        elif one.kind == "injection" and rules.injections and one.open:
            self.alerts.append(self._alert("injection", f"{one.name}{said}", _first(one), one.key))

    # -- sums, told at the limit and at each doubling of it

    def of_sums(self) -> None:
        rules, events = self._rules, self._trace.events
        if rules.dollars:
            stated = float(self._trace.costs.get("cost_usd", 0) or 0)
            paid = [float(e.cost_usd or 0) for e in events]
            self._sum("spend", "dollars", max(stated, math.fsum(paid)), self._before(paid), rules.dollars)
        if rules.tokens:
            counts = [float((e.tokens_in or 0) + (e.tokens_out or 0)) for e in events]
            total = max(float(self._trace.costs.get("tokens", 0) or 0), math.fsum(counts))
            self._sum("spend", "tokens", total, self._before(counts), float(rules.tokens))

    def _before(self, amounts: list[float]) -> float:
        return math.fsum(amount for amount, at in zip(amounts, self._when, strict=True) if at is not None and at <= self._quiet)

    def _sum(self, rule: str, what: str, now: float, before: float, limit: float) -> None:
        step = doublings(now, limit)
        if step < 0 or step <= doublings(before, limit):
            return
        if what == "agents":
            said = f"{counted(int(now), 'sub-agent')} were started, over the limit of {limit:,.0f}"
        elif what == "dollars":
            said = f"it has cost at least {money(now)}, over the limit of {money(limit)}"
        else:
            said = f"it has read and written at least {compact(now)} tokens, over the limit of {compact(limit)}"
        self.alerts.append(self._alert(rule, said, None, what, str(step)))

    def of_spawns(self) -> None:
        spawns = [(e, at) for e, at in zip(self._trace.events, self._when, strict=True) if e.type == "spawn"]
        if self._rules.agents:
            before = sum(at is not None and at <= self._quiet for _, at in spawns)
            limit = float(self._rules.agents)
            # the limit itself is allowed: more than so many are too many
            now, then = (float(n) if n > limit else 0.0 for n in (len(spawns), before))
            self._sum("runaway", "agents", now, then, limit)
        if self._rules.depth:
            self._depth([e for e, _ in spawns])

    def _depth(self, spawns: list[Event]) -> None:
        depth: dict[str, int] = {}
        for event in spawns:
            below = depth.get(event.agent, 0) + 1
            if event.to is not None and event.to != event.agent:
                depth.setdefault(event.to, below)
            at = self._when[self._trace.index[event.id]]
            if below > self._rules.depth and (at is None or at > self._quiet):
                said = f"a sub-agent {below} spawns below the first agent, over the limit of {self._rules.depth}"
                self.alerts.append(self._alert("runaway", said, event.id, "depth"))
                return

    # -- calls without an answer

    def stuck(self) -> list[Alert]:
        minutes = duration(60 * self._rules.stuck_minutes)
        out = []
        for one in waiting_of(self._trace):
            if one.since is None or one.since > self._quiet:
                said = f"{one.what} has no answer, and nothing grew, for {minutes}: it hangs, waits for a person, or was ended"
                out.append(self._alert("stuck", said, one.event, one.event))
        return out[:1]  # the call that hangs: those that wait for it are no events of their own


def _first(one: Symptom) -> str | None:
    return one.events[0] if one.events else None


def doublings(amount: float, limit: float) -> int:
    """How often an amount has doubled since it reached a limit: 0 from the limit on, 1 from twice as much; -1 below it."""
    return -1 if amount < limit else int(math.log2(amount / limit)) if limit > 0 else -1
