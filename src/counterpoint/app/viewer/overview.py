"""`About`: everything about a trace but its events.

Always true: agents stand by their number in `TraceTeam`, so that an agent's number is its place in the list; totals are own
figures plus those of all that was spawned below; money and busy time that no event carries are null, not 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from counterpoint.app.forks import fork_refusal, parent_of
from counterpoint.app.price_file import cost_words
from counterpoint.app.side_words import sides_of_trace
from counterpoint.app.viewer.credit_tab import credit, default_method, team_work
from counterpoint.app.viewer.shapes import TYPES, VERSION, About, Agent, Alert, AlertCount, Fact
from counterpoint.app.viewer.trace_view import TraceView, finite, injected_orders, is_dear, sinks, view_of
from counterpoint.audits.collaboration import collaboration
from counterpoint.audits.hacks import hacks
from counterpoint.audits.overhead import overhead
from counterpoint.audits.parallelism import parallelism
from counterpoint.audits.records import Measure
from counterpoint.audits.rollups import coverage
from counterpoint.display import at_least, compact, counted, local_moment, money, percent, zone
from counterpoint.trace import Trace
from counterpoint.trace.activity import waiting_of
from counterpoint.trace.line_records import UNFINISHED
from counterpoint.trace.naming import models_of, project_of, started, title_of
from counterpoint.trace.steering import is_steered
from counterpoint.trace.vocabulary import EDGE_TYPES

# -- The answer strip, the alerts and the notes: computed facts, each leading to an event or an agent -----------------
# Always true: a fact that the records do not give is left out, never guessed; a count names all, the events beside it are the
# first few. What was not judged because the trace is too large is said in a note.

_SHOWN = 50
_MEASURED = 10_000
"""Events up to which the strip takes measures, which nobody waits for in a larger trace."""
_MEASURES = {
    "parallelism_efficiency": "{}× parallel",
    "protocol_overhead": "{} of tokens spent on coordination",
    "message_redundancy": "{} of messages repeat earlier ones",
}

# One agent after the other is no news.
_WORTH_SAYING = {"parallelism_efficiency": 1.1}
_LONG = 300
_SHORT_ID = 12


# -- facts -----------------------------------------------------------------------------------------------------------


def facts(view: TraceView, agents: list[Agent], found: list[Alert]) -> list[Fact]:
    """What the strip says, most telling first."""
    out = [*_slowest(view, agents), *_costliest(view, agents), *_credit_fact(view), *_first_failure(view)]
    out += _counted(view, found)
    if view.untrusted_E.any() and not is_dear(view) and injected_orders(view):
        reached = int(view.tainted_E.sum())
        first = min(int(view.team.place_E[view.trace.index[one.event]]) for one in injected_orders(view))
        text = f"content from outside gives orders, and may have reached {reached:,} of {view.n:,} events"
        out.append(Fact(kind="reach", text=text, event=first))
    return [*out, *(_measure_facts(view) if _is_team(agents) else ())]


def _counted(view: TraceView, found: list[Alert]) -> Iterable[Fact]:
    """How many incidents there were, how many were stopped, and how many agents nobody knows the parent of."""
    incidents = [a for a in found if a.kind == "incident"]
    if incidents:
        event = next((n for alert in incidents for n in alert.events), -1)
        yield Fact(kind="incident", text=counted(len(incidents), "incident"), event=event)
    blocked = [] if is_dear(view) else [s.event for s in sinks(view)[1] if s.status == "blocked"]
    if blocked:
        first = int(view.team.place_E[view.trace.index[blocked[0]]])
        yield Fact(kind="blocked", text=counted(len(blocked), "blocked incident"), event=first)
    if view.report.unlinked_count:
        first = min((int(view.team.place_E[view.team.agent_E == a].min()) for a in view.unlinked_A if _acts(view, a)), default=-1)
        text = counted(view.report.unlinked_count, "unlinked child", "unlinked children")
        yield Fact(kind="unlinked", text=text, event=first)


def _groups(agents: list[Agent]) -> dict[str, list[int]]:
    """Members of the team that do the same: one role at one depth, as the map folds them."""
    out: dict[tuple[str, int], list[int]] = {}
    for a, agent in enumerate(agents):
        if not agent.is_outside:
            out.setdefault((agent.role or agent.label, agent.depth), []).append(a)
    return {agents[m[0]].label if len(m) == 1 else f"{role} ×{len(m):,}": m for (role, _), m in out.items()}


def _is_team(agents: list[Agent]) -> bool:
    return sum(not agent.is_outside for agent in agents) > 1


def _most(agents: list[Agent], value: list[float]) -> tuple[str, int, float] | None:
    """The group with the most of something, its first among equals, and how much; None when there is nothing."""
    sums = {name: sum(value[a] for a in members) for name, members in _groups(agents).items()}
    best = max(sums, key=lambda name: sums[name], default=None)
    if best is None or sums[best] <= 0:
        return None
    return best, max(_groups(agents)[best], key=lambda a: (value[a], -a)), sums[best]


def _slowest(view: TraceView, agents: list[Agent]) -> Iterable[Fact]:
    found, path = _most(agents, [a.path_share for a in agents]), view.facts.path
    if found is not None and path is not None and _is_team(agents):
        name, who, share = found
        unit = "the critical path" + {"s": "", "tokens": ", in tokens", "steps": ", in steps"}[path.unit]
        on_path = [(adds, i) for i, adds in zip(path.events, path.adds, strict=True) if view.team.agent_E[i] == who]
        event = max(on_path, key=lambda one: one[0])[1] if on_path else -1
        n = int(view.team.place_E[event]) if event >= 0 else -1
        yield Fact(kind="slowest", text=f"slowest: {name} ({percent(share)} of {unit})", event=n, agent=who)


def _has_unpriced(view: TraceView, agent: int) -> bool:
    """Whether an agent has tokens that no cost covers."""
    facts = view.facts
    return bool((~facts.has_cost_E & (facts.tokens_E > 0) & (view.team.agent_E == agent)).any())


def _costliest(view: TraceView, agents: list[Agent]) -> Iterable[Fact]:
    found, is_paid = _most(agents, [a.cost_own or 0.0 for a in agents]), True
    if found is None:
        found, is_paid = _most(agents, [a.tokens_own for a in agents]), False
    if found is not None and _is_team(agents):
        members = _groups(agents)[found[0]]
        is_more = bool(view.trace.unpriced) and any(_has_unpriced(view, a) for a in members)
        word, amount = ("most expensive", at_least(money(found[2]), is_more)) if is_paid else ("most tokens", compact(found[2]))
        yield Fact(kind="costliest", text=f"{word}: {found[0]} ({amount})", agent=found[1])


def _credit_fact(view: TraceView) -> Iterable[Fact]:
    """Who earned most, by the method that the page shows; where none is identified, what became of what was written."""
    if view.n > _MEASURED:
        return
    best_method = default_method(view)
    if best_method is None:
        written, kept = team_work(view).lines
        if written:
            text = f"{kept:,} of {written:,} lines written are there at the end, in {counted(len(team_work(view).files), 'file')}"
            yield Fact(kind="credit", text=text)
    elif len(view.trace.members) > 1:
        told = credit(view.trace, best_method.credit.mechanism, "agent")
        best = max(told.by_agent, key=lambda name: told.by_agent[name], default=None)
        if best is not None and told.by_agent[best]:
            who, method = view.team.label_A[view.team.number[best]], best_method.credit.mechanism
            text = f"credit: {who} {told.by_agent[best]:+.3g} ({method})"
            yield Fact(kind="credit", text=text, agent=view.team.number[best])


def _first_failure(view: TraceView) -> Iterable[Fact]:
    """The first wrong turn: where a person marked it, else the first failure."""
    marked = [i for i, e in enumerate(view.trace.events) if e.extra and e.extra.get("is_mistake") is True]
    failed = marked or np.flatnonzero(view.facts.failed_E).tolist()
    if failed:
        first = min(failed, key=lambda i: int(view.team.place_E[i]))
        what = "first wrong turn (marked)" if marked else "first failure"
        agent, event = int(view.team.agent_E[first]), view.trace.events[first]
        where = f"{event.tool or event.type.replace('_', ' ')} of {view.team.label_A[agent]}"
        where += f" ({event.id})" if len(event.id) <= _SHORT_ID else ""
        yield Fact(kind="wrong", text=f"{what}: {where}", event=int(view.team.place_E[first]), agent=agent)


def _measure_facts(view: TraceView) -> Iterable[Fact]:
    """Three of the survey's measures, where they can be had."""
    if view.n > _MEASURED:
        return
    found: list[Measure] = [*parallelism(view.facts), *overhead(view.facts), *collaboration(view.facts)]
    for measure in found:
        if measure.name in _MEASURES and measure.value and measure.value >= _WORTH_SAYING.get(measure.name, 0):
            value = percent(measure.value) if measure.unit == "share" else f"{measure.value:.2g}"
            bound = "" if measure.bound == "exact" else f"{measure.bound} "
            yield Fact(kind=measure.name, text=bound + _MEASURES[measure.name].format(value))


# -- alerts ----------------------------------------------------------------------------------------------------------


def alerts(view: TraceView) -> list[Alert]:
    """What to look at, the most severe first."""
    return view.once("alerts", lambda: _alerts(view))


def alert_count(trace: Trace) -> AlertCount:
    """The same in one line, for the list of traces."""
    found = alerts(view_of(trace))
    return AlertCount(count=len(found), severity=found[0].severity if found else "", text=found[0].text if found else "")


def _alerts(view: TraceView) -> list[Alert]:
    """What a person would act on: incidents and attempts, reward hacks that are not small, and what hangs. Failures, what was
    stopped and what an importer could not link are told elsewhere: in the facts, the list's errors and the notes."""
    out = [*_incidents(view), *_hacks(view), *_open(view)]
    rank = {"high": 0, "medium": 1, "low": 2}
    return sorted((alert for alert in out if alert.severity != "low"), key=lambda alert: rank[alert.severity])


def _numbers(view: TraceView, ids: Iterable[str]) -> list[int]:
    places = [int(view.team.place_E[view.trace.index[name]]) for name in ids]
    return sorted(places)[:_SHOWN]


def _incidents(view: TraceView) -> Iterable[Alert]:
    """Incidents, as `counterpoint audit --taint` counts them, and orders from outside that somebody tried to carry out."""
    if is_dear(view):
        return
    place, index = view.team.place_E, view.trace.index
    for sink in sinks(view)[1]:
        if sink.status == "violation":
            text = f"{sink.what.replace('_', ' ')}: {sink.rule}"
            numbers = [int(place[index[name]]) for name in sink.path or (sink.event,)]
            yield Alert(kind="incident", severity="high", text=_line(text), events=numbers[-_SHOWN:])
    for one in injected_orders(view):
        if one.status == "attempted":
            numbers = [int(place[index[name]]) for name in (one.event, one.effects[0].event)]
            text = f"{one.effects[0].what} tried what a text from outside orders, and failed: {one.effects[0].order}"
            yield Alert(kind="attempt", severity="medium", text=_line(text), events=numbers)


def _line(text: str) -> str:
    """A text on one line, and not a long one."""
    words = " ".join(text[: 4 * _LONG].split())
    return words if len(words) <= _LONG else words[: _LONG - 1] + "…"


def _hacks(view: TraceView) -> Iterable[Alert]:
    if view.is_large or view.trace.meta.get(UNFINISHED):  # what nobody has read yet may still be read
        return
    for finding in hacks(view.trace):
        if finding.status == "found":
            text = f"{finding.hack.replace('_', ' ')}: {finding.why}"
            yield Alert(kind="hack", severity=finding.severity or "low", text=text, events=_numbers(view, finding.events))


def _acts(view: TraceView, agent: int) -> bool:
    return bool((view.team.agent_E == agent).any())


def _open(view: TraceView) -> Iterable[Alert]:
    if view.open:
        numbers = sorted(view.team.place_E[view.open].tolist())
        if not view.trace.meta.get(UNFINISHED):  # else nobody knows yet whether they finish
            text = f"{counted(len(numbers), 'event')} started and did not finish"
            yield Alert(kind="open", severity="medium", text=text, events=numbers[:_SHOWN])


# -- notes -----------------------------------------------------------------------------------------------------------


def is_masked(trace: Trace) -> bool:
    """Whether texts of the trace were masked."""
    return any("[masked:" in text for text in trace.contents.values())


def notes(view: TraceView) -> list[str]:
    """What the reader should know beside the picture."""
    trace, report = view.trace, view.report
    out = []
    if trace.meta.get(UNFINISHED):
        out.append("This trace has no end: it is still running, or was interrupted.")
    for one in waiting_of(trace)[:1]:
        since = "" if one.since is None else f" since {local_moment(one.since)} ({zone()})"
        out.append(
            f"Its record ends in a call without an answer: {one.name} waits for {one.what}{since}. Working, stuck or interrupted."
        )
    out += [f"Corrected on import: {what} ({count:,})." for what, count in report.mended.items()]
    out += [f"The source does not say: {what} ({count:,})." for what, count in report.lacks.items()]
    if report.unlinked_count:
        some = "; ".join(report.unlinked[:3])
        what = counted(report.unlinked_count, "sub-agent or spawn", "sub-agents or spawns")
        out.append(_line(f"{what} whose other end is missing: {some}") + ".")
    if report.broken_count:
        out.append(f"{counted(report.broken_count, 'record')} of the source could not be read.")
    if report.unknown:
        kinds = ", ".join(list(report.unknown)[:5])
        out.append(f"{counted(sum(report.unknown.values()), 'record')} of unknown kinds left out of the graph: {kinds}.")
    if inferred := sum(report.inferred.values()):
        out.append(f"{counted(inferred, 'link')} were inferred by rule: {', '.join(report.inferred)}.")
    if not trace.contents and any(e.content_ref for e in trace.events):
        out.append("The texts are not in this file: events point to them by hash only.")
    covered = coverage(trace)
    if trace.unpriced and (trace.cost_usd is not None or any(trace.unpriced)):
        out.append(f"Cost: {cost_words(trace.cost_usd, trace.unpriced)}.")
    if sides := sides_of_trace(trace):
        out.append(f"Sub-agents: {sides}.")
    if covered.no_record and covered.total:
        without = counted(covered.no_record, "event that used a model has", "events that used a model have")
        out.append(f"Tokens are at least {covered.accounted:,}: {without} no token count.")
    if view.is_large:
        out.append(f"{view.n:,} events, shown as slices of time. For reward hacks and incidents use counterpoint audit.")
    elif is_dear(view):
        out.append("Incidents are not counted here, because the trace has much text: open the Safety view for them.")
    return out


def overview(trace: Trace) -> About:
    """The card, the agents, the answer strip and the notes of a trace."""
    view = view_of(trace)
    return view.once("about", lambda: _about(view))


def _about(view: TraceView) -> About:
    trace, (start, end) = view.trace, view.span
    rows = agents(view)
    found = alerts(view)
    refusal = fork_refusal(trace)
    return About(
        version=VERSION,
        id=trace.trace_id,
        title=title_of(trace),
        project=project_of(trace.meta),
        started=started(trace.events, trace.meta),
        task_id=trace.task_id,
        system=trace.system,
        topology=trace.topology,
        rewards=finite(trace.rewards),
        costs=finite(trace.known_costs),
        metrics=finite(trace.metrics),
        unpriced={model: min(count, 1 << 53) for model, count in trace.unpriced.items()},
        errors=len(trace.failures),
        events=view.n,
        edges=view.facts.graph.m,
        start=start,
        end=end,
        agents=rows,
        tools=view.tools[0],
        models=models_of(trace.events, trace.meta),
        types=list(TYPES),
        edge_types=list(EDGE_TYPES),
        facts=facts(view, rows, found),
        alerts=found,
        notes=notes(view),
        can_fork=refusal is None,
        fork_refusal=refusal,
        has_reward="team" in trace.rewards,
        has_logp=any(e.logp is not None for e in trace.events),
        is_masked=is_masked(trace),
        is_large=view.is_large,
        parent=parent_of(trace),
        is_steered=is_steered(trace),
    )


def agents(view: TraceView) -> list[Agent]:
    """Every agent, by number."""
    team, seen_ = view.team, view.facts
    count = np.bincount(team.agent_E, minlength=len(team)).tolist()
    tokens = team.per_agent(seen_.tokens_E)
    cost, has_cost = team.per_agent(seen_.cost_E), team.per_agent(seen_.has_cost_E)
    busy, has_dur = team.per_agent(seen_.pieces.length_E), team.per_agent(seen_.has_dur_E & seen_.work_E)
    first, last = np.full(len(team), np.inf), np.full(len(team), -np.inf)
    np.minimum.at(first, team.agent_E, seen_.t_E)
    np.maximum.at(last, team.agent_E, view.end_E)
    # one that was spawned and never acts begins and ends with its spawn
    silent = ~np.isfinite(first)
    first[silent] = last[silent] = np.where(team.spawn_A >= 0, seen_.t_E[team.spawn_A], 0.0)[silent] if view.n else 0.0
    spawn = np.where(team.spawn_A >= 0, team.place_E[team.spawn_A], -1) if view.n else team.spawn_A
    columns = zip(
        team.names, team.label_A, seen_.role_A, team.parent_A.tolist(), team.depth_A.tolist(), spawn.tolist(), count,
        tokens.tolist(), team.with_children(tokens).tolist(),
        cost.tolist(), team.with_children(cost).tolist(), has_cost.tolist(), team.with_children(has_cost).tolist(),
        busy.tolist(), has_dur.tolist(), first.tolist(), last.tolist(), _shares(view), (~team.is_member_A).tolist(),
        strict=True,
    )  # fmt: skip
    return [
        Agent(
            name=name, label=label, role=role, parent=up, depth=depth, spawn=made, events=events, tokens_own=own,
            tokens_total=total, cost_own=paid if has_paid else None, cost_total=paid_below if has_below else None,
            busy_s=team_work if is_timed else None, start=begin, end=until, path_share=share, is_outside=outside,
        )
        for (name, label, role, up, depth, made, events, own, total, paid, paid_below, has_paid, has_below, team_work, is_timed,
             begin, until, share, outside) in columns
    ]  # fmt: skip


def _shares(view: TraceView) -> list[float]:
    """Each agent's share of the critical path."""
    on_path, path = np.zeros(view.n), view.facts.path
    if path is not None:
        on_path[path.events] = np.array(path.adds) / path.length
    shares: list[float] = view.team.per_agent(on_path).tolist()
    return shares


def depth_first(view: TraceView, top: int) -> list[int]:
    """An agent and all below it."""
    out = [top]
    for a in out:
        out.extend(view.team.children[a])
    return out
