"""E2, parallelism: how much ran at once, what the run had to wait for, and whether the sub-agents' work was used.

Always true: time measures rest on recorded durations and are missing without them; `t` alone never becomes a duration. Busy
time counts an agent once however its spans nest, so critical path <= serial time, critical path <= wall clock, and
busy share of the wall clock <= parallelism efficiency <= max parallelism.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from counterpoint.audits.facts import ACTIONS, Facts
from counterpoint.audits.records import Bound, Measure, Status, ids, standing
from counterpoint.trace.critical_path import CriticalPath, path_in, path_in_seconds, profile
from counterpoint.trace.quantities import has_times


def parallelism(facts: Facts) -> list[Measure]:
    """Every E2 measure (survey section 7)."""
    return [*_time(facts), *_steps(facts), *_paths(facts), utilisation(facts)]


def _durations(facts: Facts) -> tuple[str, Status, Bound]:
    """What the durations cover, and what that makes of a sum of them."""
    work = facts.work_E
    has, all_ = int((facts.has_dur_E & work).sum()), int(work.sum())
    return f"{has:,} of {all_:,} work events carry dur", *standing(has == all_)


def _no_seconds(facts: Facts) -> str:
    return "no work event carries dur" if has_times(facts.trace.meta) else "the source has no times: t counts events"


def _time(facts: Facts) -> list[Measure]:
    """Serial time / parallel time, and the profile of running agents.

    Serial time = sum over agents of the union of [t, t + dur) of their work; parallel time = last end - first start of all
    events. Departure: the survey says serial time / parallel time; a sum of raw durations would count nested spans twice.
    """
    names = ("parallelism_efficiency", "mean_parallelism", "max_parallelism")
    if not bool((facts.has_dur_E & facts.work_E).any()):
        return [Measure.missing(name, _no_seconds(facts)) for name in names]
    text, status, bound = _durations(facts)
    cut, order = facts.pieces, facts.team.order_E
    serial = float(cut.length_E[order].sum())
    times, running = profile(cut)
    if not len(times) or not facts.makespan:
        return [Measure.missing(name, "all recorded durations are zero") for name in names]
    step = np.diff(times)
    on = running[:-1] > 0
    busy = float(step[on].sum())
    peak = int(np.argmax(running))
    at_peak = facts.in_story((cut.start_E <= times[peak]) & (cut.end_E > times[peak]))
    span = f"{serial:.6g} s of work in {facts.makespan:.6g} s; {text}"
    works = ids(facts.trace, facts.in_story(cut.end_E > cut.start_E))
    mean = float((running[:-1] * step).sum()) / busy
    peak_text = f"at t={times[peak]:.6g}; {text}"
    return [
        Measure.of(names[0], serial / facts.makespan, span, status=status, bound=bound, events=works),
        Measure.of(names[1], mean, f"over {busy:.6g} s in which any agent runs; {text}", status=status, events=works),
        Measure.of(names[2], int(running[peak]), peak_text, status=status, bound=bound, events=ids(facts.trace, at_peak)),
    ]


def _steps(facts: Facts) -> list[Measure]:
    """Critical steps (PARL) and all steps / critical steps. The formula and its rules: `trace.team.critical_steps`."""
    steps, roots = facts.steps, len(facts.team.roots)
    if not steps.total:
        why = "no event in which an agent acts (decision, message, tool call, aggregate)"
        return [Measure.missing(name, why) for name in ("critical_steps", "parallelism_efficiency_steps")]
    text = f"{steps.total:,} steps, {len(steps.stages):,} stages"
    status: Status = "measured"
    if steps.ended < steps.spawned:
        status = "estimated"
        text += f"; {steps.spawned - steps.ended:,} of {steps.spawned:,} sub-agents have no return and end at their last event"
    if roots > 1:
        status = "estimated"
        text += f"; {roots} roots: the largest, or the longest chain of dependent steps"
    chain = int(facts.steps_path[0])
    low: Bound = "exact"
    high: Bound = "exact"
    if chain > steps.critical:
        status, low, high = "estimated", "at least", "at most"
        text += f"; sub-agents wait for each other: the longest chain of dependent steps is {chain:,}"
    events = ids(facts.trace, facts.in_story(steps.events_E))
    ratio = steps.total / steps.critical
    return [
        Measure.of("critical_steps", steps.critical, text, status=status, bound=low, events=events),
        Measure.of("parallelism_efficiency_steps", ratio, text, status=status, bound=high, events=events),
    ]


def _paths(facts: Facts) -> list[Measure]:
    """The critical path by time (`trace.critical_path`), by tokens and by steps."""
    has_dur, has = facts.has_dur_E & facts.work_E, facts.has_tokens_E
    thinks = facts.thinks_E
    text = f"{int(has[thinks].sum()):,} of {int(thinks.sum()):,} acts carry tokens"
    tokens: tuple[str, Status, Bound] = (text, *standing(bool(has[thinks].all())))
    steps: tuple[str, Status, Bound] = (f"{int(facts.steps_E.sum()):,} steps", "measured", "exact")
    return [
        _path(facts, "critical_path_s", lambda: path_in_seconds(facts.team, facts.pieces), has_dur, *_durations(facts)),
        _path(facts, "critical_path_tokens", lambda: path_in(facts.team, "tokens", facts.tokens_E), has, *tokens),
        _path(facts, "critical_path_steps", lambda: path_in(facts.team, "steps", facts.steps_E), facts.steps_E, *steps),
    ]


def _path(
    facts: Facts,
    name: str,
    find: Callable[[], CriticalPath | None],
    has_E: NDArray[np.bool_],
    text: str,
    status: Status,
    bound: Bound,
) -> Measure:
    if not bool(has_E.any()):
        what = "dur" if name.endswith("_s") else name.rsplit("_", 1)[1]
        return Measure.missing(name, _no_seconds(facts) if what == "dur" else f"no event carries {what}")
    if not facts.graph.m and facts.n > 1:
        return Measure.missing(name, "the trace has no edges: nothing says what waited for what")
    critical = find()
    length, path = (critical.length, critical.events) if critical is not None else (0.0, [])
    value = length if name.endswith("_s") else int(length)
    return Measure.of(name, value, f"{len(path):,} events in a chain; {text}", status=status, bound=bound,
                      events=ids(facts.trace, path))  # fmt: skip


def utilisation(facts: Facts) -> Measure:
    """Useful-agent utilisation: sub-agent actions that the result depends on / all sub-agent actions.

    Sub-agents are all members but the orchestrator; an action is a decision, message, tool call, aggregate or return. It is
    task-relevant when the result depends on it through what was read (`Facts.result`, `Facts.info`): it can have contributed,
    which is not yet to have changed it, hence at most.
    """
    name, team = "useful_agent_utilisation", facts.team
    actions = team.of_types(ACTIONS) & facts.is_sub_A[team.agent_E]
    if not bool(actions.any()):
        return Measure.missing(name, "no sub-agent acts")
    if not facts.graph.m:
        return Measure.missing(name, "the trace has no edges: nothing says what was read")
    acts, useful = facts.sub_acts
    text = f"{useful:,} of {acts:,} actions are among what {facts.result[1]} depends on"
    unused = ids(facts.trace, facts.in_story(actions & ~facts.relevant_E))
    return Measure.of(name, useful / acts, text + "; events: the others", status="measured",
                      bound="at most", events=unused)  # fmt: skip
