"""R7, orchestration: PARL's parallel and finish terms, speed-up, split and aggregation, by name.

Always true: rows of unit orchestrator, to the main agent, one per part that could be judged, each under its own channel:

    R7_parallel   min(1, spawned / most)                                   R7_speed_up   1 - critical steps / all steps
    R7_finish     spawned agents that returned / spawned; no row for none  R7_split, R7_aggregation   the callables' scores

A `judge` scores single decisions: rows of unit orchestrator with the event's id, R7_decision. With `form` the parts become ONE
row, R7; two formulas circulate under the name of PARL (Kimi K2.5, arXiv 2602.02276), and `FORMS` has both:

    additive   lambda1 r_parallel + lambda2 r_finish + r_perf          the report's; r_perf where `perf` names a channel
    mixture    lambda1 r_parallel + (1 - lambda1) 1[success] Q         an older text of a third-party re-implementation

The lambdas are numbers or schedules of `step`. A trace in which nobody spawned has r_parallel 0; without a member there is no
row.
Departures: the report publishes neither term nor the lambdas; critical steps are its budget and not a reward, so `speed_up` is
the survey's reading. A returned agent counts as finished whatever it returned, which pseudo-parallelism exploits:
`counterpoint.audit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from counterpoint.errors import InputError, did_you_mean
from counterpoint.rewards.reward import Judge, Reward, events_of_types
from counterpoint.rewards.schedules import weight_at
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal
from counterpoint.trace.team import CriticalSteps, critical_steps, team_of


def parallel(spawned: float, most: float) -> float:
    """r_parallel: spawned sub-agents against the number asked for, at most 1."""
    if not most > 0 or spawned < 0:
        raise InputError(f"r_parallel needs a positive target and a count, not {most} and {spawned}")
    return min(1.0, spawned / most)


def finish(finished: float, spawned: float) -> float:
    """r_finish: the share of spawned sub-agents that finished; 0 where none was spawned."""
    if not 0 <= finished <= spawned:
        raise InputError(f"{finished} of {spawned} cannot have finished")
    return finished / spawned if spawned else 0.0


def additive(perf: float, r_parallel: float, r_finish: float, lambda1: float, lambda2: float) -> float:
    """The K2.5 report's form."""
    return lambda1 * r_parallel + lambda2 * r_finish + perf


def mixture(quality: float, success: bool, r_parallel: float, weight: float) -> float:
    """The older form: parallelism against quality, the latter only on success."""
    if not 0 <= weight <= 1:
        raise InputError(f"the mixture's weight lies in [0, 1], not {weight}")
    return weight * r_parallel + (1 - weight) * (quality if success else 0.0)


FORMS = ("additive", "mixture")


def parl(
    form: str, *, perf: float, r_parallel: float, r_finish: float, lambda1: float, lambda2: float, success_above: float = 0.0
) -> float:
    """Either form by name; the mixture takes lambda1 as weight and `perf` as quality, a success above `success_above`."""
    if form == "additive":
        return additive(perf, r_parallel, r_finish, lambda1, lambda2)
    if form == "mixture":
        return mixture(perf, perf > success_above, r_parallel, lambda1)
    raise InputError(f"no PARL formula {form!r}", fix=did_you_mean(form, FORMS))


def speed_up(critical: float, total: float) -> float:
    """1 - critical / total: the share of all steps that parallel work took off the critical way; 0 for a serial run."""
    if not 0 <= critical <= total:
        raise InputError(f"{critical} critical steps of {total} in all")
    return 1.0 - critical / total if total else 0.0


PARTS = ("parallel", "finish", "speed_up", "split", "aggregation")
Quality = Callable[[Trace], float | bool | None]
Weight = float | Callable[[float], float] | Mapping[str, Any]


def _parts(
    trace: Trace, steps: CriticalSteps, most: float, split: Quality | None, aggregation: Quality | None
) -> dict[str, float]:
    out = {"parallel": parallel(steps.spawned, most)}
    if steps.spawned:
        out["finish"] = finish(steps.ended, steps.spawned)
    if steps.total:
        out["speed_up"] = speed_up(steps.critical, steps.total)
    for name, quality in (("split", split), ("aggregation", aggregation)):
        score = None if quality is None else quality(trace)
        if score is not None:
            out[name] = float(score)
    return out


def _orchestration_signals(
    trace: Trace,
    *,
    parts: Sequence[str] = PARTS,
    most: float = 10.0,
    split: Quality | None = None,
    aggregation: Quality | None = None,
    judge: Judge | None = None,
    form: str | None = None,
    lambda1: Weight = 0.1,
    lambda2: Weight = 0.1,
    step: float = 0.0,
    perf: str | None = None,
    success_above: float = 0.0,
) -> Iterator[Signal]:
    for name in parts:
        if name not in PARTS:
            raise InputError(f"R7 has no part {name!r}", fix=did_you_mean(name, PARTS))
    if form is not None and form not in FORMS:
        raise InputError(f"no PARL formula {form!r}", fix=did_you_mean(form, FORMS))
    if form == "mixture" and perf is None:
        raise InputError("the mixture weighs parallelism against an outcome", fix="perf='team', or another reward of the trace")
    team = team_of(trace) if trace.events else None
    if team is None or team.main is None:
        return
    main, values = team.names[team.main], _parts(trace, critical_steps(team), most, split, aggregation)
    for event in events_of_types(trace, ["orchestrator_decision"]) if judge is not None else ():
        if (score := judge(trace, event)) is not None:  # type: ignore[misc]
            yield Signal("orchestrator", event.id, "R7_decision", float(score))
    if form is None:
        for name in parts:
            if name in values:
                yield Signal("orchestrator", main, f"R7_{name}", values[name])
        return
    outcome = 0.0 if perf is None else trace.rewards.get(perf)
    if outcome is None:
        return
    value = parl(
        form,
        perf=float(outcome),
        r_parallel=values["parallel"],
        r_finish=values.get("finish", 0.0),
        lambda1=weight_at(lambda1, step, "lambda1"),
        lambda2=weight_at(lambda2, step, "lambda2"),
        success_above=success_above,
    )
    yield Signal("orchestrator", main, "R7", value)


orchestration = Reward(
    family="R7",
    unit="orchestrator",
    source="Kimi K2.5 2602.02276; survey 2605.02801, section 3",
    score=_orchestration_signals,
    example=lambda: Example(rollouts()),
)
