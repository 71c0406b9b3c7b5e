"""Whether finer credit points where the team's reward points, and how fast its signal fades as teams grow.

For each width a team of 2, 4, 8 or 16 workers answers twice as many questions (W1 of TeamWorld); one network, learned for two
updates at eight workers, plays them all, and its gradient under each credit is held against that of 20,000 other teams under the
team's reward (`lab/bench/gradients.py`). A seed has its own network, tasks and noise. Expected: under the team's reward every
decision pays for the noise of all workers, so that its signal to noise falls with the width; a credit that sees the returns
of its own questions does not. Held are the power of the width for the team, and that it is below the partition's; the rest is
reported: bias (cosine of the mean), and what a call buys, forks counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_most, reported
from counterpoint.lab.bench.gradients import NAMES, PARTITION, TEAM, Fidelity, Setting, fidelity, gradient_sample, reference
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


def _dials(workers: int) -> dict[str, int]:
    return {"vote_items": 2 * workers, "max_agents": workers}


def gradient_fidelity(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Each seed: a network, and at each width 20,000 teams for the reference and 1,536 under each credit, 128 where it forks."""
    yield from rows(seed, seeds, WIDTHS, _TEAMS, _BATCHES)


def rows(seed: int, seeds: int, widths: tuple[int, ...], teams: int, batches: int) -> Iterator[ClaimRow]:
    """The claim at any size."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    found = [_measured(s, widths, teams, batches) for s in tracked(range(seed, seed + seeds), "seeds")]
    for name in NAMES:
        for width in widths:
            mine = [f[width][name] for f in found]
            yield reported(f"cosine of 16 teams with the truth, {width} workers: {name}", [m.batch for m in mine])
            if name != TEAM:
                yield reported(f"cosine of the mean, {width} workers: {name}", [m.cosine for m in mine])
            yield reported(f"signal to noise of a team, {width} workers: {name}", [m.per_team for m in mine])
            over = [f[width][name].per_call / f[width][TEAM].per_call for f in found]
            yield reported(f"signal to noise of a call over the team's, {width} workers: {name}", over)
    slopes = {name: [_slope(f, name, widths) for f in found] for name in NAMES}
    for name in NAMES:
        yield reported(f"power of the width in signal to noise: {name}", slopes[name])
    yield at_most("power of the width in signal to noise, team", slopes[TEAM], -0.5, by="mean")
    gap = [a - b for a, b in zip(slopes[TEAM], slopes[PARTITION], strict=True)]
    yield at_most("power, team less partition", gap, 0.0, by="high" if seeds > 1 else "mean")


def _measured(seed: int, widths: tuple[int, ...], teams: int, batches: int) -> dict[int, dict[str, Fidelity]]:
    key = purpose("gradient fidelity")
    run = Training(settings_of({
        "preset": "dense_clip", "world": "W1", "set": _dials(_TRAINED), "seed": child_seed(seed, key) >> 40, "updates": _UPDATES,
    }))  # fmt: skip
    while not run.is_done:
        job = run.job(run.update, run.update, run.weights())
        run.learn([play(job.payload, job.weights)])
    out = {}
    for width in widths:
        setting = Setting(run.net, run.weights(), "W1", _dials(width))
        first = 1_000_000 + (child_seed(seed, key, width) >> 24)
        tasks = max(1, teams // (8 * _REFERENCE))
        truth = reference(setting, first, _REFERENCE, tasks)
        own = first + _REFERENCE * tasks
        mine = gradient_sample(setting, [name for name in NAMES if name not in _FORKS], own, batches, _TASKS)
        mine |= gradient_sample(setting, _FORKS, own, min(_FORKED, batches), _TASKS)
        out[width] = {name: fidelity(mine[name], truth, is_truth=name == TEAM) for name in NAMES}
    return out


def _slope(found: Mapping[int, Mapping[str, Fidelity]], name: str, widths: tuple[int, ...]) -> float:
    """Of log signal to noise over log width, by least squares; NaN where a width has no signal above the noise."""
    y = np.array([found[width][name].per_team for width in widths])
    if not (y > 0).all() or len(widths) < 2:
        return float("nan")
    return float(np.polyfit(np.log(widths), np.log(y), 1)[0])
