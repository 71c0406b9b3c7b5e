"""`counterpoint audit --taint`: sources, what they may have reached, and the sinks that untrusted content decided.

Always true: a violation is only what untrusted content decided; what merely shares a context with it is told apart, as possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from counterpoint.app.api.taint import taint_of
from counterpoint.app.cli._output import SCHEMA_VERSION, emit, table
from counterpoint.app.library import about, load
from counterpoint.app.words import plain_text
from counterpoint.audit.authority import Sink
from counterpoint.audit.facts import Facts
from counterpoint.audit.taint import MayTaint
from counterpoint.trace import Trace

_PATH, _SHOWN = 8, 10


def report(traces: Sequence[str], store: Path | str | None, *, as_json: bool) -> int:
    """Print each trace's taint; the number of violations."""
    violations = 0
    for k, ref in enumerate(traces):
        trace = load(ref, store=store)
        with about(ref):
            facts = Facts(trace)
            found = taint_of(trace, facts=facts)
        violations += len(found.violations)
        if as_json:
            emit(_object(trace, facts, found.may, found.sinks, found.suspects))
        else:
            click.echo(("\n" if k else "") + _text(trace, facts, found.may, found.sinks, found.suspects))
    return violations


def _layers(trace: Trace, facts: Facts, may: MayTaint, seen: list[str]) -> dict[str, Any]:
    team = facts.team
    reached = np.unique(team.agent_E[may.tainted])
    labels = Counter(trace.events[i].source or "unknown" for i in may.sources)
    return {
        "sources": len(may.sources),
        "by_label": dict(sorted(labels.items())),
        "may_taint": {"events": int(may.tainted.sum()), "of": facts.n, "agents": int(team.is_member_A[reached].sum()),
                      "of_agents": len(trace.members)},
        "suspects": seen,
    }


def _object(trace: Trace, facts: Facts, may: MayTaint, sinks: list[Sink], seen: list[str]) -> dict[str, Any]:
    counts = {status: sum(s.status == status for s in sinks) for status in ("violation", "blocked", "possible")}
    about_ = {"schema": SCHEMA_VERSION, "trace_id": trace.trace_id, "task_id": trace.task_id}
    return about_ | _layers(trace, facts, may, seen) | {"counts": counts, "sinks": msgspec.to_builtins(sinks)}


def _text(trace: Trace, facts: Facts, may: MayTaint, sinks: list[Sink], seen: list[str]) -> str:
    told = _layers(trace, facts, may, seen)
    reach = told["may_taint"]
    found = [s for s in sinks if s.status == "violation"]
    blocked, possible = (sum(s.status == status for s in sinks) for status in ("blocked", "possible"))
    labels = ", ".join(f"{n:,} {name}" for name, n in told["by_label"].items()) or "none"
    rows = [
        ("trace", f"{trace.trace_id}: {len(found)} violations, {blocked} blocked, {possible} possible"),
        ("sources", f"{told['sources']:,} untrusted events ({labels})"),
        (
            "reach",
            f"{reach['events']:,} of {reach['of']:,} events, {reach['agents']:,} of {reach['of_agents']:,} agents (may-taint)",
        ),
        ("suspects", _some(seen, "look wrong by what they say; whether they changed anything takes a fork")),
    ]
    parts = ["\n".join(plain_text(f"{label:9}{text}") for label, text in rows)]
    parts += [_incident(s) for s in found[:_SHOWN]]
    if len(found) > _SHOWN:
        parts.append(f"and {len(found) - _SHOWN:,} more violations: --json")
    return "\n\n".join(parts)


def _some(ids: list[str], what: str) -> str:
    if not ids:
        return "none"
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return f"{' '.join(ids[:_SHOWN])}{more}: {what}"


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
    return table(("VIOLATION", "" if sink.after is None else f"{sink.after:,} events after its source"), rows)
