"""A trained model as a team of a fixed width: what it can do, with the choice of how many to hire taken from it.

Always true: so many workers are hired, and each is given a part, by turns that are forced (as forks force them), in the order of
the demonstrator; all else the model says itself, held to what is legal. Nobody is hired without a part: on a task of one part,
two workers are one, and are played once for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoint.lab.bench.claims._language import HELD_OUT, Player, player, scaled
from counterpoint.lab.team.edits import edit_note, keyed_seed
from counterpoint.lab.train.folder import RunFolder
from counterpoint.trace import Trace
from counterpoint.trace.replay import Force


def at_widths(
    folder: Path,
    run: Path,
    tasks: Sequence[Mapping[str, Any]],
    prices: Mapping[str, float],
    widths: Sequence[int],
    first: int,
    at_once: int,
) -> None:
    """What a model earns on each held-out task at each width: an evaluation for each, in the order of the widths."""
    count = scaled(HELD_OUT)
    with player(folder, run, tasks, at_once, prices=dict(prices), eval_first=first, eval_episodes=count) as playing:
        playing.training.policies.refresh()
        found: dict[tuple[int, int], Trace] = {}
        for place, width in enumerate(widths):
            hired = {seed: min(width, _parts(playing, seed)) for seed in range(first, first + count)}
            new = [(seed, many) for seed, many in hired.items() if (seed, many) not in found]
            found |= zip(new, _played(playing, new), strict=True)
            traces = [found[one] for one in hired.items()]
            row = {
                "update": place, "width": width, "first_seed": first, "values": [t.rewards["team"] for t in traces],
                "successes": [(t.metrics or {})["task_success"] for t in traces],
                "agents": [sum(e.type == "spawn" for e in t.events) for t in traces],
            }  # fmt: skip
            playing.written.append_eval(row)


def rewards_at(folders: Sequence[Path], width: int) -> NDArray[np.float64]:
    """What each model earned on each held-out task at a width: [models, tasks]."""
    rows = [next(row for row in RunFolder.open(folder).evals() if row["width"] == width) for folder in folders]
    return np.array([row["values"] for row in rows], np.float64)


def _parts(playing: Player, seed: int) -> int:
    return int(playing.training.mix_of(seed).set["parts"])


def _played(playing: Player, some: Sequence[tuple[int, int]]) -> list[Trace]:
    """The teams of these tasks with so many workers each, prices taken off."""
    from counterpoint.lab.train.lm.advantages import less_prices
    from counterpoint.lab.train.lm.driver import Rollout

    training = playing.training
    rollouts = []
    for seed, many in some:
        spec = training.mix_of(seed).spec(seed, "engine")
        limits = replace(spec.limits, **({"width": many} if many else {"depth": 0}))
        name = f"width-{many}-{seed}"
        rollouts.append(
            Rollout(
                spec=replace(spec, limits=limits), seed=keyed_seed(0, name), trace_id=name, constrained=True,
                policies=training.policies.speaks_for(), notes=tuple(_hiring(many)),
            )
        )  # fmt: skip
    return [less_prices(t, training.settings.prices) for t in training.driver.play(rollouts, training.policies.engines)]


def _hiring(many: int) -> list[dict[str, Any]]:
    """Turns that spawn a worker and give it a part, one after the other."""
    acts: list[Mapping[str, Any]] = [{"spawn": 1}, {"delegate": 1}] * many
    return [edit_note("", f"lead|turn|{turn}", 0, Force(act), None) for turn, act in enumerate(acts, start=1)]
