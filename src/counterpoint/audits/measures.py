"""The survey's E1-E4 measures, scale and cost of one trace, and their summary over a batch.

Always true: every name of `records.DEFINITIONS` comes out once, in that order, for every trace; a value that cannot be had is
missing with its reason, never zero. The same records in another file order give the same measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoint.audits.collaboration import collaboration
from counterpoint.audits.cost import Prices, cost
from counterpoint.audits.facts import Facts, facts_of
from counterpoint.audits.overhead import overhead
from counterpoint.audits.parallelism import parallelism
from counterpoint.audits.records import DEFINITIONS, Measure, Summary, ids, standing
from counterpoint.audits.redundancy import THRESHOLD
from counterpoint.trace import Trace
from counterpoint.trace.quantities import counted_tokens, has_times, is_thinking
from counterpoint.trace.statistics import mean_ends


def measures(
    trace: Trace,
    *,
    prices: Prices | None = None,
    threshold: float = THRESHOLD,
    k: int = 3,
    similarity: Callable[[str, str], float] | None = None,
    embed: Callable[[list[str]], NDArray[Any]] | None = None,
) -> list[Measure]:
    """Every measure of a trace.

    `prices` turns tokens and calls into C_rollout; `threshold`, `k`, `similarity` and `embed` say when two messages are
    the same (`collaboration.repeated`). `facts`, when given, are those of this trace, worked out before.
    """
    facts = facts_of(trace)
    every = [
        task_success(facts),
        *parallelism(facts),
        *collaboration(facts, threshold=threshold, k=k, similarity=similarity, embed=embed),
        *overhead(facts),
        *cost(facts, prices or Prices()),
        *scale(facts),
    ]
    by_name = {m.name: m for m in every}
    return [by_name[name] for name in DEFINITIONS]


def task_success(facts: Facts) -> Measure:
    """E1: `metrics.task_success`, else `rewards.team`, whichever the source states first. We judge no answer ourselves."""
    name, metrics = "task_success", facts.trace.metrics or {}
    if "task_success" in metrics:
        return Measure.of(name, metrics["task_success"], "metrics.task_success")
    if "team" in facts.trace.rewards:
        return Measure.of(name, facts.trace.rewards["team"], "rewards.team; the source states no metrics.task_success")
    return Measure.missing(name, "neither metrics.task_success nor rewards.team is stated")


def scale(facts: Facts) -> list[Measure]:
    """The size of the trace, as the survey's reporting checklist asks (section 7)."""
    team = facts.team
    out = [Measure.of("events", facts.n, "counted")]
    for name, kind in (("messages", "message"), ("tool_calls", "tool_call")):
        events = [i for i in team.events_of((kind,)) if not is_thinking(facts.events[i])]
        out.append(Measure.of(name, len(events), "counted", events=ids(facts.trace, events)))
    spawned = np.flatnonzero(team.parent_A >= 0)
    spawns = ids(facts.trace, sorted(team.spawn_A[spawned].tolist(), key=team.place_E.__getitem__))
    out.append(Measure.of("sub_agents", len(spawned), "spawn events that name a new agent", events=spawns))
    out.append(Measure.of("depth", int(team.depth_A.max(initial=0)), "the spawn tree"))
    return [*out, _wall_clock(facts), _tokens(facts)]


def _wall_clock(facts: Facts) -> Measure:
    name, value, stated = "wall_clock", facts.trace.duration_s, facts.trace.costs.get("wall_clock_s", 0)
    if value is not None:
        return Measure.of(name, value, "costs.wall_clock_s" if value == stated else "span of the events, from t and dur")
    if not has_times(facts.trace.meta):
        return Measure.missing(name, "the source has no times: t counts events")
    return Measure.missing(name, "costs.wall_clock_s is absent or 0 and no event carries dur")


def _tokens(facts: Facts) -> Measure:
    name, value, counted = "tokens", facts.trace.tokens, counted_tokens(facts.events)
    stated = facts.trace.costs.get("tokens", 0)
    has = facts.has_tokens_E
    if value is None:
        return Measure.missing(name, "costs.tokens is absent or 0 and no event carries tokens")
    text = f"{counted:,} on {int(has.sum()):,} of {facts.n:,} events"
    events = ids(facts.trace, facts.in_story(has & (facts.tokens_E > 0)))
    if stated > counted:
        return Measure.of(name, value, f"costs.tokens; {text}", events=events)
    status, bound = standing(bool(has[facts.thinks_E].all()) or stated == counted)
    return Measure.of(name, value, text, status=status, bound=bound, events=events)


def summary(traces: Iterable[Trace] | Sequence[Sequence[Measure]], **options: Any) -> list[Summary]:
    """Each measure over many traces (or over measures already taken): its mean and Student's interval for it.

    Traces without a value are counted in `missing` and left out of the mean; with fewer than two values there is no interval.
    Traces are taken as independent runs; several runs of one task are not, and make it too narrow.
    """
    tables = [list(t) if not isinstance(t, Trace) else measures(t, **options) for t in traces]
    out = []
    for k, (name, (family, unit, _)) in enumerate(DEFINITIONS.items()):
        rows = [row[k] for row in tables]
        values = [float(m.value) for m in rows if m.value is not None]
        low, high = mean_ends(values)
        out.append(
            Summary(
                name=name,
                family=family,
                unit=unit,
                n=len(values),
                missing=len(rows) - len(values),
                estimated=sum(m.status == "estimated" for m in rows),
                mean=math.fsum(values) / len(values) if values else None,
                low=low,
                high=high,
            )
        )
    return out
