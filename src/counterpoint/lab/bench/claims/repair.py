"""A fork at the named step mends a failed run, held against a random step, the last step and a plain retry.

Teams of fakes play T1 to T6 at a skill at which they often fail. A run that fails by itself is a case; one that succeeds gets a
mistake of the next of the nine kinds that makes it fail, and is a case. The first suspect of `blame` is the named step. The plain
retry plays once, and no other arm has more model calls than it took (`audits.blame.repair`). Mended means that a try succeeded,
by the task's own checker. Intervals are over the runs, differences paired by run.

Fakes hear the advice and do not heed it: in their rows the arms differ by the step alone. `COUNTERPOINT_LM`, a name that
`counterpoint models` lists or a path, adds teams of that model at T1's easiest, and the named step without the advice.

Two further controls name nothing: `random steps`, one drawn anew for each try, and `back from the last`, which begins there and
goes a quarter of the steps earlier at each try.

Always true: tasks, teams, mistakes and steps are drawn by the seed; the mistake is known to no arm but `planted step`, which
shows what a perfect naming would give.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from counterpoint.audits.blame.injecting import inject
from counterpoint.audits.blame.judge import blame
from counterpoint.audits.blame.repair import ARMS, Repair, advice_of, repair_arms
from counterpoint.audits.blame.search import able_steps
from counterpoint.audits.blame.steps import Steps
from counterpoint.display import tracked
from counterpoint.lab.bench.blame_cases import TEAMS, team_run
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._blame import share_row
from counterpoint.lab.bench.claims._language import T1, has_gpu, model, scaled
from counterpoint.lab.bench.claims._live import check_seeds
from counterpoint.lab.lm.model import Model
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec, make_model
from counterpoint.lab.team.state import Limits
from counterpoint.trace import Trace
from counterpoint.trace.keyed import child_seed, purpose
from counterpoint.trace.mistake import MISTAKES, mistake_of

_SKILLS = {
    "ledger_hunt": 0.9, "sql_audit": 0.9, "pointer_chase": 0.9, "split_evidence": 0.7, "module_dag": 0.8, "timetables": 0.8,
}  # fmt: skip
_GAMES = 14
_COSTLY = {"module_dag": 4}
"""Games of teams whose runs take a hundred times as long."""
_TRIES = 3
_PLANTED, _OWN = "planted mistakes", "failures of their own"
_PERFECT, _SILENT = "planted step", "named step, no advice"
_ANYWHERE, _BACK = "random steps", "back from the last"
_SOME = 12
_MODEL_GAMES = 24


class Case(NamedTuple):
    """What came of one failed run."""

    group: str
    kind: str
    """Of the mistake; empty for a failure of its own."""
    task: str
    mended: Mapping[str, bool]
    """By arm."""
    calls: Mapping[str, int]
    told: tuple[int, int]
    """Tries from the named step whose agent heard the advice, and all of them."""
    hits: tuple[bool, bool]
    """Whether the named step is the planted one, and whether it is that or an earlier one."""


def repair(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """A fork at the named step mends more failed runs than one at a random step, at equal model calls; the last step, a retry."""
    check_seeds(seeds)
    jobs = [(team, child_seed(s, purpose("repair")) % (1 << 30)) for s in range(seed, seed + seeds) for team in range(len(TEAMS))]
    jobs.sort(key=lambda job: TEAMS[job[0]][0] not in _COSTLY)  # what takes longest begins first
    with ProcessPoolExecutor(min(4, os.cpu_count() or 2), multiprocessing.get_context("spawn")) as pool:
        ended = [pool.submit(cases_of, *job) for job in jobs]
        cases = [case for done in tracked(ended, "teams") for case in done.result()]
    for group in (_PLANTED, _OWN):
        yield from rows_of(group, [case for case in cases if case.group == group], has_target=True)
    yield from _named([case for case in cases if case.group == _PLANTED])
    for kind in MISTAKES:
        yield from _shares(kind, [case for case in cases if case.kind == kind])
    for task in dict.fromkeys(case.task for case in cases):
        some = [case for case in cases if case.task == task]
        yield reported(f"{task} ({len(some)} runs): named over random step", _gains(some, "named step", "random step"))
    if "COUNTERPOINT_LM" in os.environ:
        yield from rows_of(model(), list(cases_of_model(seed, seeds)), has_target=False)


def rows_of(name: str, cases: Sequence[Case], *, has_target: bool) -> Iterator[ClaimRow]:
    """A group's arms, and the named step against each of the others; the random one is the control that it is held to."""
    if not cases:
        return
    yield from _shares(name, cases)
    for arm in cases[0].calls:
        yield reported(f"{name}: {arm}, calls", [case.calls[arm] for case in cases])
    yield reported(f"{name}: tries in which the advice was heard", _heard(cases))
    for arm in (arm for arm in cases[0].mended if arm not in ("named step", _PERFECT)):
        title, gains = f"{name}: named step over {arm}", _gains(cases, "named step", arm)
        is_held = has_target and arm == "random step"
        yield at_least(title, gains, 0.0, by="low") if is_held else reported(title, gains)


def _shares(name: str, cases: Sequence[Case]) -> Iterator[ClaimRow]:
    for arm in cases[0].mended if cases else ():
        yield share_row(f"{name} ({len(cases)} runs): {arm}, mended", [float(case.mended[arm]) for case in cases])


def _gains(cases: Sequence[Case], arm: str, other: str) -> list[float]:
    return [float(case.mended[arm]) - float(case.mended[other]) for case in cases]


def _heard(cases: Sequence[Case]) -> float:
    return sum(case.told[0] for case in cases) / max(1, sum(case.told[1] for case in cases))


def _named(cases: Sequence[Case]) -> Iterator[ClaimRow]:
    """How near the named step is to the planted one."""
    if cases:
        yield share_row("the named step is the planted one", [float(case.hits[0]) for case in cases])
        yield share_row("the named step is the planted one or earlier", [float(case.hits[1]) for case in cases])


# -- cases -----------------------------------------------------------------------------------------------------------------


def cases_of(team: int, base: int, games: int | None = None) -> list[Case]:
    """What came of the failed runs of one team: its own failures, and its successes with one mistake."""
    task, topology, config = TEAMS[team]
    out = []
    for game in range(games or _COSTLY.get(task, _GAMES)):
        spec = Spec(
            task=task, config=config, seed=(base + game) % (1 << 31), topology=topology, model=f"fake:{_SKILLS[task]:g}",
            options={"explore": 0.0}, limits=Limits(width=3),
        )  # fmt: skip
        trace = team_run(spec)
        failed = _broken(trace, base + game, team + game) if trace.rewards["team"] >= 1 else trace
        if failed is not None:
            out.append(_case(failed, LiveReplay(), task, base + game))
    return out


def _broken(trace: Trace, seed: int, first: int) -> Trace | None:
    """The run with a mistake that makes it fail: of the kind whose turn it is, or of the next one that can."""
    for k in range(len(MISTAKES)):
        kind = MISTAKES[(first + k) % len(MISTAKES)]
        subtlety = (seed * 31 + k) % 101 / 100
        for found in inject(trace, LiveReplay(), kinds=[kind], seed=seed, subtlety=subtlety, tries=_TRIES):
            return found
    return None


def _case(trace: Trace, replay: LiveReplay, task: str, seed: int, *, is_silent: bool = False) -> Case:
    found, mistake = blame(trace), mistake_of(trace)
    able = _able(trace)
    named = [s.event for s in found.suspects if s.event in able]
    drawn = np.random.default_rng(child_seed(seed, purpose("random steps"))).integers(len(able), size=_SOME)
    back = [able[round((len(able) - 1) * left / 4)] for left in (4, 3, 2, 1, 0)]
    also: dict[str, tuple[Sequence[str], bool]] = {_ANYWHERE: ([able[int(k)] for k in drawn], True), _BACK: (back, True)}
    also |= {_PERFECT: ([mistake.event], True)} if mistake is not None else {}
    also |= {_SILENT: (named[:1], False)} if is_silent else {}
    teller, advice = replay.message_before, advice_of(found)
    made = repair_arms(trace, replay, named, advice, teller=teller, samples=1, seed=seed, is_first_enough=True, also=also)
    return _told(made, trace, task)


def _able(trace: Trace) -> list[str]:
    """The steps that can be done again, in the order of the run."""
    steps = Steps(trace)
    return [trace.events[steps.places[k]].id for k in able_steps(steps)]


def _told(made: Repair, trace: Trace, task: str) -> Case:
    mistake, tries = mistake_of(trace), made.arm("named step").tries
    at = trace.index[tries[0].event] if tries else None
    hits = (False, False)
    if mistake is not None and at is not None:
        hits = (at == trace.index[mistake.event], at <= trace.index[mistake.event])
    return Case(
        group=_OWN if mistake is None else _PLANTED,
        kind="" if mistake is None else mistake.kind,
        task=task,
        mended={arm.name: arm.is_mended for arm in sorted(made.arms, key=_place)},
        calls={arm.name: arm.calls + arm.cut for arm in sorted(made.arms, key=_place)},
        told=(sum(one.is_told for one in tries), len(tries)),
        hits=hits,
    )


def _place(arm: Any) -> int:
    return ARMS.index(arm.name) if arm.name in ARMS else len(ARMS)


def cases_of_model(seed: int, seeds: int, games: int = _MODEL_GAMES, playing: Model | None = None) -> Iterator[Case]:
    """The failed runs of teams of the model that $COUNTERPOINT_LM names, at T1's easiest."""
    options = {"device": "cuda" if has_gpu() else "cpu"}
    dials: dict[str, Any] = {"config": T1["set"], "topology": T1["topology"], "limits": Limits(**T1["limits"])}
    for s in range(seed, seed + seeds):
        base = child_seed(s, purpose("repair of a model")) % (1 << 30)
        for game in range(scaled(games)):
            name = f"local:{model()}"
            spec = Spec(task="T1", seed=base + game, model=name, options=options, **dials)
            playing = playing or make_model(name, spec.make_task(), **options)
            trace = team_run(spec, playing)
            if trace.rewards["team"] < 1:
                yield _case(trace, LiveReplay(model=playing), "T1", base + game, is_silent=True)
