"""Kimi PARL's reward arithmetic (arXiv 2602.02276): both formulas that circulate, and critical steps.

Always true: pure functions of numbers. Two formulas circulate under the name; `FORMS` has both:

    additive   r = lambda1 r_parallel + lambda2 r_finish + r_perf               (the K2.5 report; lambdas annealed to zero)
    mixture    r = lambda r_parallel + (1 - lambda) 1[success] Q                (older text of a third-party re-implementation)

The report publishes neither r_parallel nor r_finish nor the lambdas. Ours: r_parallel = min(1, spawned / most), r_finish =
finished / spawned with 0 / 0 = 0. Critical steps = sum over stages of S_main + max_i S_sub,i: a budget in the report, no reward
term; the survey reads it as a signal. `speed_up` is that reading, by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from counterpoint.errors import InputError, did_you_mean


def parallel(spawned: float, most: float) -> float:
    """r_parallel: spawned sub-agents against the number asked for, at most 1."""
    if not most > 0 or spawned < 0:
        raise InputError(f"r_parallel wants a positive target and a count, not {most} and {spawned}")
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


def critical_steps(stages: Sequence[tuple[int, Sequence[int]]]) -> tuple[int, int]:
    """(critical, total) steps of stages given as (own steps, steps of each sub-agent)."""
    critical = sum(own + max(subs, default=0) for own, subs in stages)
    return critical, sum(own + sum(subs) for own, subs in stages)


def speed_up(critical: float, total: float) -> float:
    """1 - critical / total: the share of all steps that parallel work took off the critical way; 0 for a serial run."""
    if not 0 <= critical <= total:
        raise InputError(f"{critical} critical steps of {total} in all")
    return 1.0 - critical / total if total else 0.0
