"""`counterpoint audit --taint`: texts from outside that give orders, what came of them, and a summary over many runs.

Always true: VIOLATION stands only for incidents (`audit.incidents`): an order that was carried out, or what the run's own
monitor reports. What merely shares a context or a word with content from outside is counted, not shown. Only obeyed orders,
and violations that a monitor reports, end the command with exit code 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from counterpoint.answer import Section, some
from counterpoint.app.api.audit import TraceTaint, taint_of, taint_summary
from counterpoint.app.load_save import about
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, say
from counterpoint.app.terminal.selection import Selection
from counterpoint.audits.authority import Sink
from counterpoint.audits.facts import Facts, facts_of
from counterpoint.audits.injection import Injection, verdict_of
from counterpoint.audits.taint import MayTaint
from counterpoint.display import counted
from counterpoint.trace import Trace
from counterpoint.trace.naming import title_of

_PATH, _SHOWN, _LONG = 8, 10, 800
_LOOK = ("obeyed", "reported", "obeyed in part", "attempted")


def taint_report(which: Selection, options: Mapping[str, Any], *, as_json: bool) -> bool:
    """Print each trace's taint, and of several a summary; whether orders from outside were obeyed in any."""
    is_each = not options["is_summary"] and (as_json or options["is_full"] or not which.is_query)
    runs: list[tuple[str, str, str]] = []
    is_obeyed = False
    for k, (name, trace) in enumerate(which.named(quiet=as_json)):
        with about(name):
            facts = facts_of(trace)
            taint = taint_of(trace)
        is_obeyed |= taint.is_obeyed
        runs.append((taint.status, taint.place, f"{title_of(trace) or ''} ({trace.trace_id})".strip()))
        if is_each and as_json:
            emit(_object(trace, facts, taint))
        elif is_each:
            say(*_sections(trace, facts, taint), is_next=k > 0)
    if options["is_summary"] or len(runs) > 1 or not is_each:
        sums = taint_summary((status, place) for status, place, _ in runs)
        if as_json:
            emit({"schema": SCHEMA_VERSION, "summary": sums})
        else:
            say(*_summary(sums, runs), is_next=is_each)
    return is_obeyed


def _summary(sums: Mapping[str, Any], runs: Sequence[tuple[str, str, str]]) -> list[Section]:
    names = [name for name in sums if name not in ("runs", "by_source")]
    counts = ", ".join(f"{sums[name]:,} {name}" for name in names if sums[name])
    columns = [name for name in names[:-1] if sums[name]]
    rows = [(place, *(own[name] for name in columns)) for place, own in sums["by_source"].items()]
    look = [(status, name[:_LONG]) for status in _LOOK for own, _, name in runs if own == status]
    right = range(1, len(columns) + 1)
    return [
        Section(lines=[("SUMMARY", f"{counted(sums['runs'], 'run')}: {counts}")]),
        Section(head=("orders came by", *columns), rows=rows[:_SHOWN], right=right, more=_rest(rows, "sources")),
        Section(lines=look[:_SHOWN], more=_rest(look, "to look at")),
    ]


def _rest(items: Sequence[Any], what: str) -> str:
    return f"and {len(items) - _SHOWN:,} more {what}: --json" if len(items) > _SHOWN else ""


def _layers(trace: Trace, facts: Facts, may: MayTaint, suspects: list[str]) -> dict[str, Any]:
    team = facts.team
    reached = np.unique(team.agent_E[may.tainted])
    labels = Counter(trace.events[i].source or "unknown" for i in may.sources)
    return {
        "sources": len(may.sources),
        "by_label": dict(sorted(labels.items())),
        "may_taint": {
            "events": int(may.tainted.sum()),
            "of": facts.n,
            "agents": int(team.is_member_A[reached].sum()),
            "of_agents": len(trace.members),
        },
        "suspects": suspects,
    }


def _object(trace: Trace, facts: Facts, one: TraceTaint) -> dict[str, Any]:
    counts = {status: sum(s.status == status for s in one.sinks) for status in ("violation", "blocked", "possible")}
    about_ = {"schema": SCHEMA_VERSION, "trace_id": trace.trace_id, "task_id": trace.task_id}
    verdict = {"status": one.status, "verdict": verdict_of(one.injections), "injections": msgspec.to_builtins(one.injections)}
    layers = _layers(trace, facts, one.may, one.suspects) | verdict
    return about_ | layers | {"counts": counts, "sinks": msgspec.to_builtins(one.sinks)}


def _sections(trace: Trace, facts: Facts, one: TraceTaint) -> list[Section]:
    layers, violations = _layers(trace, facts, one.may, one.suspects), one.violations
    reach = layers["may_taint"]
    blocked, possible = (sum(s.status == status for s in one.sinks) for status in ("blocked", "possible"))
    labels = ", ".join(f"{n:,} {name}" for name, n in layers["by_label"].items()) or "none"
    agents = f"{reach['agents']:,} of {reach['of_agents']:,} agents, at most"
    lines = [
        ("trace", f"{trace.trace_id}: {counted(len(violations), 'incident')}, {blocked} blocked, {possible} possible"),
        ("sources", f"{counted(layers['sources'], 'event')} from outside ({labels})"),
        ("reach", f"{reach['events']:,} of {reach['of']:,} events, {agents}"),
        ("verdict", verdict_of(one.injections)),
    ]
    others = [name for name in one.suspects if name not in {i.event for i in one.injections}]
    doubt = "look wrong by what they say; whether they changed anything takes a fork"
    lines += [("suspects", f"{some(others, _SHOWN, ' ')}: {doubt}")] if others else []
    reported = [s for s in violations if s.strength != "order"]  # the orders themselves stand above
    return [
        Section(lines=lines),
        *map(_order, one.injections[:_SHOWN]),
        Section(words=_rest(one.injections, "texts that give orders")),
        *map(_incident, reported[:_SHOWN]),
        Section(words=_rest(reported, "violations")),
    ]


def _order(one: Injection) -> Section:
    """A text that gives orders: the words in their context, what they reached, and what came of it."""
    did = [f"{e.what} ({e.event}) {_did(e.failed, e.is_act)}, with {e.target!r}" for e in one.effects]
    did += [f"not done: {order}" for order in one.missing]
    rows = [
        ("text", f"{one.event}{f'  {one.tool}' if one.tool else ''}{f', {one.source}' if one.source else ''}"),
        ("does", "; ".join(one.kinds[:5])),
        ("words", one.excerpt),
        ("reached", f"at most {counted(one.events, 'event')} of {counted(one.agents, 'agent')}" if one.events else "nothing"),
        ("orders", "; ".join(one.orders[:3])),
        *((("effects" if not k else ""), line) for k, line in enumerate(did[:5])),
    ]
    return _block("INJECTION", f"{one.status} (score {one.score:g}, threshold {one.bar:g})", rows)


def _did(failed: bool, is_act: bool) -> str:
    return "tried it, and failed" if failed else "does it" if is_act else "says it"


def _block(name: str, title: str, lines: Sequence[tuple[str, str]]) -> Section:
    """A finding for people: its name, and what is known of it, in a few lines each."""
    return Section(lines=[(name, title), *((label, words[:_LONG]) for label, words in lines)])


def _incident(sink: Sink) -> Section:
    path = list(sink.path)
    if len(path) > _PATH:
        path = [*path[: _PATH // 2], "...", *path[-_PATH // 2 :]]
    rows = [
        ("source", f"{sink.source or '-'}  {', '.join(sink.label)}"),
        ("path", " > ".join(path)),
        ("sink", f"{sink.event}  {sink.what}"),
        ("rule", f"{sink.rule} ({sink.strength})"),
    ]
    return _block(
        "VIOLATION", "of no source on record" if sink.after is None else f"{counted(sink.after, 'event')} after its source", rows
    )
