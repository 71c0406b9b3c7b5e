"""A language model's gradients under six credits, by the width of its teams (T1, a part of the answer each).

Each start imitates, then plays as it is: the gradient of batches of 16 teams under each credit is held against that of 20,000
other teams under the team's reward (`lab/bench/fidelity.py`), for all calls and by the role that made them, for all weights and
by group of weights. Gradients are kept as sketches (`train/lm/gradient_sketch.py`): cosines are off by about two points. Merges
are made again without a model call, so that no credit here has forks to pay. Nothing is held: it is not known what comes out.

On a GPU that is lent for ten minutes at a time, the same command again until it prints its rows, with `COUNTERPOINT_RUNS` a
folder that stays: what is there of each start and width is kept, a batch at a time.

    timeout 540 counterpoint reproduce counterpoint.lab.bench.claims.gradient_lm:at_two --seed 2401 --seeds 3

`gradient_lm` asks for all widths. A trial on a CPU: COUNTERPOINT_LM=TINY COUNTERPOINT_LM_SCALE=0.004, --seeds 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoint.display import working
from counterpoint.lab.bench.claim import ClaimRow, reported
from counterpoint.lab.bench.claims._language import (
    another_model,
    device,
    folder_of,
    imitate_settings,
    ledger_hunt,
    player,
    scaled,
)
from counterpoint.lab.bench.claims._starts import Starts
from counterpoint.lab.bench.fidelity import Fidelity, Floats, GradientSample, fidelity
from counterpoint.trace.keyed import child_seed, purpose

if TYPE_CHECKING:
    from counterpoint.lab.train.lm.training import LanguageTraining

WIDTHS = (2, 4, 8, 16)
_TEAM, _EVERYBODY, _ALL = "team", "everybody", "all weights"
_RLOO = {"convention": "rloo", "singleton": "zero"}
CREDITS: Mapping[str, Mapping[str, Any]] = {
    _TEAM: {"group_relative": _RLOO},
    "groups by agent": {"agent_wise": {"by": "agent", **_RLOO}},
    "siblings (C3)": {"c3": {"replay": False, "normalise": False}},
    "Shapley of agents": {"shapley": {}},
    "difference": {"difference": {}},
    "ledger": {"ledger": {}},
}
"""By what rows call them; amounts that compare no teams themselves are taken less those of the task's other teams."""
_GROUP, _TASKS, _BATCHES, _REFERENCE, _TEAMS = 8, 2, 48, 40, 20_000
_KEY = purpose("gradient lm")
_FIRST = 1_500_000
"""Beyond what a start is held to, and below what it was shown."""


def gradient_lm(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Gradients under six credits for teams of 2 to 16 workers; needs CUDA."""
    yield from rows(seed, seeds, WIDTHS)


def at_two(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with two workers."""
    yield from rows(seed, seeds, WIDTHS[:1])


def _task(width: int) -> dict[str, Any]:
    """Four papers and one part of the answer for each worker."""
    return ledger_hunt(4 * width, width, width=width)


def rows(seed: int, seeds: int, widths: Sequence[int]) -> Iterator[ClaimRow]:
    """The claim at some widths; each seed is a start."""
    yield from another_model()
    for width in widths:
        plan = Starts(folder_of("gradient-lm") / str(width), seed, seeds)
        plan.begin({"task": [_task(width)], "imitate": imitate_settings(500), "is_eval_first": False}, at_once=1)
        found = [_measured(plan.folder / f"batches-{seed}-{s}", run, width, seed + s) for s, run in enumerate(plan.starts)]
        for key in found[0]:
            credit, role, group = key
            where = f"{width} workers, {role}, {group}: {credit}"
            each = [one[key] for one in found]
            yield reported(f"cosine of 16 teams with the truth, {where}", [one.batch for one in each])
            if credit != _TEAM:
                yield reported(f"cosine of the mean, {where}", [one.cosine for one in each])
            yield reported(f"signal to noise of a team, {where}", [one.per_team for one in each])


def _measured(folder: Path, run: Path, width: int, seed: int) -> dict[tuple[str, str, str], Fidelity]:
    """Of a start, by credit, role and group of weights; what is lacking is played."""
    halves = scaled(_REFERENCE, 4)
    big = max(1, scaled(_TEAMS) // (_GROUP * halves))
    orders: list[tuple[str, int, int, tuple[str, ...]]] = []
    orders += [(f"truth-{b}", b * big, big, (_TEAM,)) for b in range(halves)]
    orders += [(f"credit-{b}", halves * big + b * _TASKS, _TASKS, tuple(CREDITS)) for b in range(scaled(_BATCHES, 4))]
    folder.mkdir(parents=True, exist_ok=True)
    missing = [order for order in orders if not (folder / f"{order[0]}.npz").is_file()]
    if missing:
        device()  # what is refused is refused before anything begins
        with ExitStack() as held, working(f"batches of {width} workers", len(missing)) as work:
            playing = held.enter_context(player(folder / "player", run, [_task(width)], 1)).training
            playing.policies.refresh()
            first = _FIRST + child_seed(seed, _KEY, width) % 100_000
            for name, at, tasks, credits in missing:
                found = batch_sketches(playing, range(first + at, first + at + tasks), credits, seed)
                part = folder / f"{name}.part.npz"
                kept: dict[str, Any] = {"|".join(key): value.astype(np.float32) for key, value in found.items()}
                np.savez(part, **kept)
                part.replace(folder / f"{name}.npz")
                work.step(about=name)
    truth = _sample([folder / f"{o[0]}.npz" for o in orders if len(o[3]) == 1], _GROUP * big)
    mine = _sample([folder / f"{o[0]}.npz" for o in orders if len(o[3]) > 1], _GROUP * _TASKS)
    return {key: fidelity(one, truth[_TEAM, *key[1:]], is_truth=key[0] == _TEAM) for key, one in mine.items()}


def batch_sketches(
    playing: LanguageTraining, seeds: Sequence[int], credits: Sequence[str], seed: int
) -> dict[tuple[str, str, str], Floats]:  # fmt: skip
    """Teams on some tasks, and the sketch of their gradient by (credit, role, group of weights); zeros where nobody is taught."""
    from counterpoint.lab.train.lm.advantages import advantages
    from counterpoint.lab.train.lm.gradient_sketch import Sketch, group_of, score_sketch
    from counterpoint.lab.train.lm.learner import sequences_of
    from counterpoint.lab.train.lm.settings import Learn

    traces = playing.play(seeds, samples=_GROUP, temperature=1.0, name="gradient").traces
    sketch, (learner,) = Sketch(seed=seed), playing.policies.learners.values()
    groups = sorted({group_of(name) for name in learner.weights})
    roles = ("orchestrator", "worker")
    out: dict[tuple[str, str, str], Floats] = {}
    for credit in credits:
        options = {name: dict(given) for name, given in CREDITS[credit].items()}
        told = advantages(traces, Learn(credit=tuple(options), options=options, normalise="leave_one_out"))
        role_of = {f"{told.trace_ids[row.trace]} {row.event}": row.role for row in told.rows}
        calls = sequences_of(told)
        for role in roles:
            mine = [call for call in calls if (role_of[call.name] == "orchestrator") == (role == "orchestrator")]
            found = score_sketch(learner, mine, sketch, len(traces))
            for group in groups:
                out[credit, role, group] = found.get(group, np.zeros(sketch.directions))
            out[credit, role, _ALL] = sum((out[credit, role, group] for group in groups), np.zeros(sketch.directions))
        for group in (*groups, _ALL):
            out[credit, _EVERYBODY, group] = sum((out[credit, role, group] for role in roles), np.zeros(sketch.directions))
    return out


def _sample(files: Sequence[Path], teams: int) -> dict[tuple[str, str, str], GradientSample]:
    """What was kept of some batches. Calls are not told: no credit here has forks, so that a call is worth what a team is."""
    kept = []
    for file in files:
        with np.load(file) as found:
            kept.append({tuple(key.split("|")): found[key].astype(np.float64) for key in found.files})
    return {key: GradientSample(np.stack([one[key] for one in kept]), teams, 1.0) for key in kept[0]}
