"""Whether finer credit points where the team's reward points, and how fast its signal fades as teams grow.

For each width a team of 2, 4, 8 or 16 workers answers twice as many questions (W1 of TeamWorld); one network, learned for two
updates at eight workers, plays them all, and its gradient under each credit is held against that of 20,000 other teams under the
team's reward (`lab/bench/gradients.py`). A seed has its own network, tasks and noise. Expected: under the team's reward every
decision pays for the noise of all workers, so that its signal to noise falls with the width; a credit that sees the returns
of its own questions does not. Held are the power of the width for the team, and that it is below the partition's; the rest is
reported: bias (cosine of the mean), and what a call buys, forks counted. Whether it teaches more: `gradient_training.py`;
another world: `gradient_dining.py`.

`counterpoint reproduce counterpoint.lab.bench.claims.gradient_fidelity:parts` says it by parameter group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_most, reported
from counterpoint.lab.bench.fidelity import Fidelity, fidelity
from counterpoint.lab.bench.gradients import (
    GROUP,
    NAMES,
    PARTITION,
    TEAM,
    Setting,
    gradient_sample,
    parameter_groups,
    reference,
)
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from counterpoint.trace.keyed import child_seed, purpose

WIDTHS = (2, 4, 8, 16)
_UPDATES, _TRAINED = 2, 8
_TEAMS, _BATCHES, _TASKS, _FORKED = 20_000, 96, 2, 8
_REFERENCE = 40
"""Batches of the reference. Credits that fork are measured on the first `_FORKED` batches of sixteen teams."""
_FORKS = "difference", "messages by forks"
_KEY = purpose("gradient fidelity")


def dials(workers: int) -> dict[str, int]:
    """Of W1 at a width."""
    return {"vote_items": 2 * workers, "max_agents": workers}


def start(seed: int) -> Training:
    """A network after two updates at eight workers."""
    run = Training(settings_of({
        "preset": "dense_clip", "world": "W1", "set": dials(_TRAINED), "seed": child_seed(seed, _KEY) >> 40, "updates": _UPDATES,
    }))  # fmt: skip
    while not run.is_done:
        job = run.job(run.update, run.update, run.weights())
        run.learn([play(job.payload, job.weights)])
    return run


def gradient_fidelity(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Each seed: a network, and at each width 20,000 teams for the reference and 1,536 under each credit, 128 where it forks."""
    yield from rows(seed, seeds, WIDTHS, _TEAMS, _BATCHES)


def rows(seed: int, seeds: int, widths: tuple[int, ...], teams: int, batches: int) -> Iterator[ClaimRow]:
    """The claim at any size."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    found = [_measured(s, widths, teams, batches) for s in tracked(range(seed, seed + seeds), "seeds")]
    slopes = {name: [slope(f, name, widths) for f in found] for name in NAMES}
    yield from measured_rows(found, NAMES, widths, "workers")
    for name in NAMES:
        yield reported(f"power of the width in signal to noise: {name}", slopes[name])
    yield at_most("power of the width in signal to noise, team", slopes[TEAM], -0.5, by="mean")
    gap = [a - b for a, b in zip(slopes[TEAM], slopes[PARTITION], strict=True)]
    yield at_most("power, team less partition", gap, 0.0, by="high" if seeds > 1 else "mean")


def measured_rows(
    found: Sequence[Mapping[int, Mapping[str, Fidelity]]], names: Sequence[str], widths: Sequence[int], who: str
) -> Iterator[ClaimRow]:  # fmt: skip
    """What each credit's gradient is worth at each width, over seeds; the first of `names` is the truth's."""
    for name in names:
        for width in widths:
            mine, first = [f[width][name] for f in found], [f[width][names[0]] for f in found]
            yield reported(f"cosine of 16 teams with the truth, {width} {who}: {name}", [m.batch for m in mine])
            if name != names[0]:
                yield reported(f"cosine of the mean, {width} {who}: {name}", [m.cosine for m in mine])
            yield reported(f"signal to noise of a team, {width} {who}: {name}", [m.per_team for m in mine])
            over = [m.per_call / t.per_call for m, t in zip(mine, first, strict=True)]
            yield reported(f"signal to noise of a call over the team's, {width} {who}: {name}", over)


def parts(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """By parameter group, at the widest; not the credits that fork. One role decides: the delegation is the orchestrator's."""
    yield from part_rows(seed, seeds, max(WIDTHS), _TEAMS, _BATCHES)


def part_rows(seed: int, seeds: int, width: int, teams: int, batches: int) -> Iterator[ClaimRow]:
    """The same at any size."""
    names = [name for name in NAMES if name not in _FORKS]
    found: dict[tuple[str, str], list[Fidelity]] = {}
    for s in tracked(range(seed, seed + seeds), "seeds"):
        run = start(s)
        setting, first, tasks = _setting(run, s, width), _first(s, width), max(1, teams // (GROUP * _REFERENCE))
        truth = reference(setting, first, _REFERENCE, tasks)
        mine = gradient_sample(setting, names, first + _REFERENCE * tasks, batches, _TASKS)
        for name in names:
            for group, at in parameter_groups(run.net).items():
                part = fidelity(mine[name].of(at), truth.of(at), is_truth=name == TEAM)
                found.setdefault((name, f"parameters: {group}"), []).append(part)
    for (name, where), each in found.items():
        if name != TEAM:
            yield reported(f"{where}, {width} workers, cosine of the mean: {name}", [one.cosine for one in each])
        yield reported(f"{where}, {width} workers, signal to noise of a team: {name}", [one.per_team for one in each])


def _setting(run: Training, seed: int, width: int) -> Setting:
    return Setting(run.net, run.weights(), "W1", dials(width))


def _first(seed: int, width: int) -> int:
    """The first task of a seed and width."""
    return 1_000_000 + (child_seed(seed, _KEY, width) >> 24)


def _measured(seed: int, widths: tuple[int, ...], teams: int, batches: int) -> dict[int, dict[str, Fidelity]]:
    run, out = start(seed), {}
    for width in widths:
        setting, first = _setting(run, seed, width), _first(seed, width)
        tasks = max(1, teams // (GROUP * _REFERENCE))
        truth = reference(setting, first, _REFERENCE, tasks)
        own = first + _REFERENCE * tasks
        mine = gradient_sample(setting, [name for name in NAMES if name not in _FORKS], own, batches, _TASKS)
        mine |= gradient_sample(setting, _FORKS, own, min(_FORKED, batches), _TASKS)
        out[width] = {name: fidelity(mine[name], truth, is_truth=name == TEAM) for name in NAMES}
    return out


def slope(found: Mapping[int, Mapping[str, Fidelity]], name: str, widths: Sequence[int]) -> float:
    """Of log signal to noise over log width, by least squares; NaN where a width has no signal above the noise."""
    y = np.array([found[width][name].per_team for width in widths])
    if not (y > 0).all() or len(widths) < 2:
        return float("nan")
    return float(np.polyfit(np.log(widths), np.log(y), 1)[0])
