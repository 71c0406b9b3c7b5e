"""`counterpoint audit --taint`: texts from outside that give orders, what came of them, and a summary over many runs.

Always true: VIOLATION stands only for incidents (`audit.incidents`): an order that was carried out, or what the run's own
monitor reports. What merely shares a context or a word with content from outside is counted, not shown. Only obeyed orders,
and violations that a monitor reports, end the command with exit code 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec
import numpy as np

from counterpoint.app.api.audit import TraceTaint, taint_of, taint_summary
from counterpoint.app.load_save import about
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, fitted, table
from counterpoint.app.terminal.selection import Selection
from counterpoint.app.words import plain_text
from counterpoint.audits.authority import Sink
from counterpoint.audits.facts import Facts, facts_of
from counterpoint.audits.injection import Injection, verdict_of
from counterpoint.audits.taint import MayTaint
from counterpoint.display import counted
from counterpoint.trace import Trace
from counterpoint.trace.naming import title_of

_PATH, _SHOWN = 8, 10
_LOOK = ("obeyed", "reported", "obeyed in part", "attempted")


def taint_report(which: Selection, options: Mapping[str, Any], *, as_json: bool) -> bool:
    """Print each trace's taint, and of several a summary; whether orders from outside were obeyed in any."""
    is_each = not options["is_summary"] and (as_json or options["is_full"] or not which.is_query)
    runs: list[tuple[str, str, str]] = []
    is_obeyed = False
    for k, (name, trace) in enumerate(which.named(quiet=as_json)):
        with about(name):
            facts = facts_of(trace)
            found = taint_of(trace)
        is_obeyed |= found.is_obeyed
        runs.append((found.status, found.place, f"{title_of(trace) or ''} ({trace.trace_id})".strip()))
        if is_each and as_json:
            emit(_object(trace, facts, found))
        elif is_each:
            click.echo(("\n" if k else "") + _taint_text(trace, facts, found))
    if options["is_summary"] or len(runs) > 1 or not is_each:
        summed = taint_summary((status, place) for status, place, _ in runs)
        if as_json:
            emit({"schema": SCHEMA_VERSION, "summary": summed})
        else:
            click.echo(("\n" if is_each else "") + _summary_text(summed, runs))
    return is_obeyed


def _summary_text(summed: Mapping[str, Any], runs: Sequence[tuple[str, str, str]]) -> str:
    names = [name for name in summed if name not in ("runs", "by_source")]
    said = ", ".join(f"{summed[name]:,} {name}" for name in names if summed[name])
    lines = fitted(f"{counted(summed['runs'], 'run')}: {said}", "SUMMARY  ")
    if summed["by_source"]:
        shown = [name for name in names[:-1] if summed[name]]
        rows = [(place, *(own[name] for name in shown)) for place, own in list(summed["by_source"].items())[:_SHOWN]]
        lines += ["", table(("orders came by", *shown), rows, right=range(1, len(shown) + 1))]
        more = len(summed["by_source"]) - _SHOWN
        lines += [f"and {more:,} more sources: --json"] if more > 0 else []
    look = [(status, name) for status in _LOOK for own, _, name in runs if own == status]
    if look:
        lines += ["", *(line for status, name in look[:_SHOWN] for line in fitted(name, f"{status:15}")[:2])]
        lines += [f"and {len(look) - _SHOWN:,} more to look at: --json"] if len(look) > _SHOWN else []
    return plain_text("\n".join(lines), keep_lines=True)


def _layers(trace: Trace, facts: Facts, may: MayTaint, seen: list[str]) -> dict[str, Any]:
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
        "suspects": seen,
    }


def _object(trace: Trace, facts: Facts, one: TraceTaint) -> dict[str, Any]:
    counts = {status: sum(s.status == status for s in one.sinks) for status in ("violation", "blocked", "possible")}
    about_ = {"schema": SCHEMA_VERSION, "trace_id": trace.trace_id, "task_id": trace.task_id}
    said = {"status": one.status, "verdict": verdict_of(one.injections), "injections": msgspec.to_builtins(one.injections)}
    told = _layers(trace, facts, one.may, one.suspects) | said
    return about_ | told | {"counts": counts, "sinks": msgspec.to_builtins(one.sinks)}


def _taint_text(trace: Trace, facts: Facts, one: TraceTaint) -> str:
    told, found = _layers(trace, facts, one.may, one.suspects), one.violations
    reach = told["may_taint"]
    blocked, possible = (sum(s.status == status for s in one.sinks) for status in ("blocked", "possible"))
    labels = ", ".join(f"{n:,} {name}" for name, n in told["by_label"].items()) or "none"
    rows = [
        ("trace", f"{trace.trace_id}: {counted(len(found), 'incident')}, {blocked} blocked, {possible} possible"),
        ("sources", f"{counted(told['sources'], 'event')} from outside ({labels})"),
        (
            "reach",
            f"{reach['events']:,} of {reach['of']:,} events, {reach['agents']:,} of {reach['of_agents']:,} agents, at most",
        ),
        ("verdict", verdict_of(one.injections)),
    ]
    others = [name for name in one.suspects if name not in {i.event for i in one.injections}]
    if others:
        rows.append(("suspects", _some(others, "look wrong by what they say; whether they changed anything takes a fork")))
    parts = ["\n".join(plain_text(line) for label, text in rows for line in fitted(text, f"{label:9}"))]
    parts += [_order(i) for i in one.injections[:_SHOWN]]
    if len(one.injections) > _SHOWN:
        parts.append(f"and {len(one.injections) - _SHOWN:,} more texts that give orders: --json")
    reported = [s for s in found if s.strength != "order"]  # the orders themselves stand above
    parts += [_incident(s) for s in reported[:_SHOWN]]
    if len(reported) > _SHOWN:
        parts.append(f"and {len(reported) - _SHOWN:,} more violations: --json")
    return "\n\n".join(parts)


def _some(ids: list[str], what: str) -> str:
    if not ids:
        return "none"
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return f"{' '.join(ids[:_SHOWN])}{more}: {what}"


def _order(one: Injection) -> str:
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


def _block(name: str, title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A finding for people: its name, and labelled lines that fit the terminal, at most eight of each."""
    out = [f"{name:11}{title}".rstrip()]
    for label, text in rows:
        out += fitted(text or "-", f"{label:11}")[:8]
    return plain_text("\n".join(out), keep_lines=True)


def _incident(sink: Sink) -> str:
    path = list(sink.path)
    if len(path) > _PATH:
        path = [*path[: _PATH // 2], "...", *path[-_PATH // 2 :]]
    rows = [
        ("source", f"{sink.source or '-'}  {', '.join(sink.label)}"),
        ("path", " > ".join(path)),
        ("sink", f"{sink.event}  {sink.what}"),
        ("rule", f"{sink.rule} ({sink.strength})"),
    ]
    return _block("VIOLATION", "" if sink.after is None else f"{counted(sink.after, 'event')} after its source", rows)
