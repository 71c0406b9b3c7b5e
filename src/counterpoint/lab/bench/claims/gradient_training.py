"""Whether a credit whose gradient is less noisy teaches more, at equal teams and equal change of the policy.

Of `gradient-fidelity` the two extremes: the team's return less that of the other teams of the task, and the partition. From its
networks and in its world, at 2 and 16 workers, each learns the delegation for 16 updates of 32 teams, the same tasks for both. A
step goes along the gradient as far as a mean KL of 0.01 of a decision (`train/kl_step.py`), so that the longer step is not the
gain. The control goes `rate` times the gradient, for both credits the geometric mean of what the team's credit needed for it.

Expected of the signal to noise of a team, s, before a run was made: with n teams a batch's cosine with the truth is about
sqrt(n s / (1 + n s)): 0.6 and 0.8 at two workers, 0.15 and 0.8 at 16. So the partition is to learn more at 16 workers, and to
lead by more there than at two, in shares of the optimum's bound. Nothing is held at two.

`--seeds` counts runs: 3 starts by 4 runs are asked for; run k begins with start k mod 3 (`_starts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._starts import STARTS, Starts
from counterpoint.lab.bench.claims.gradient_fidelity import dials, start
from counterpoint.lab.bench.gradients import GROUP, PARTITION, TEAM, Setting, gradient, item_returns, team_advantages, teams_of
from counterpoint.lab.train.jobs import world_of
from counterpoint.lab.train.kl_step import step
from counterpoint.lab.train.policies.network import Network
from counterpoint.trace.keyed import child_seed, purpose

_ADVANTAGES = {TEAM: team_advantages, PARTITION: item_returns}
WIDTHS = (2, 16)
_UPDATES, _TASKS, _KL, _HELD_OUT = 16, 4, 0.01, 50
_KEY = purpose("gradient training")
Floats = NDArray[np.float64]
Weights = Mapping[str, np.ndarray]


def gradient_training(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Each run: two credits by matched KL and by a common rate, at each width."""
    yield from rows(seed, seeds, WIDTHS, _UPDATES, _HELD_OUT)


def rows(seed: int, runs: int, widths: tuple[int, ...], updates: int, held_out: int) -> Iterator[ClaimRow]:
    """The claim at any size."""
    if runs < 1:
        raise InputError(f"seeds is at least 1, not {runs}")
    plan = Starts(Path(), seed, runs)
    begins = [start(child_seed(seed, _KEY, k) >> 40).weights() for k in range(min(STARTS, runs))]
    lead: dict[int, Floats] = {}
    for width in tracked(widths, "widths"):
        bound, world = world_of("W1", dials(width)).optimum().value, f"{width} workers"
        first = [_returns(weights, width, seed, held_out) for weights in begins]
        before = np.stack([first[k % STARTS] for k in range(runs)])
        yield reported(f"{world}, before: share of the bound", plan.of_runs(before / bound))
        found: dict[tuple[str, str], list[_Run]] = {}
        for k in range(runs):
            arm = None
            for name in _ADVANTAGES:
                arm = _run(begins[k % STARTS], width, name, (seed, k), updates, held_out, rate=None)
                found.setdefault((name, "matched KL"), []).append(arm)
            rate = float(np.exp(np.log(found[TEAM, "matched KL"][k].factors).mean()))
            for name in _ADVANTAGES:
                arm = _run(begins[k % STARTS], width, name, (seed, k), updates, held_out, rate=rate)
                found.setdefault((name, "one rate"), []).append(arm)
        for (name, how), made in found.items():
            gain = (np.stack([one.held_out for one in made]) - before) / bound
            yield reported(f"{world}, {how}, {name}: gained, share of the bound", plan.of_runs(gain))
            yield reported(f"{world}, {how}, {name}: KL of a step", plan.of_runs([one.kl for one in made]))
            yield reported(f"{world}, {how}, {name}: calls", plan.of_runs([one.calls for one in made]))
        for how in ("matched KL", "one rate"):
            gap = (
                np.stack([a.held_out - b.held_out for a, b in zip(found[PARTITION, how], found[TEAM, how], strict=True)]) / bound
            )
            is_held = how == "matched KL" and width == max(WIDTHS)
            row = f"{world}, {how}: partition less team, share of the bound"
            yield at_least(row, plan.of_runs(gap), 0.0) if is_held else reported(row, plan.of_runs(gap))
            if how == "matched KL":
                lead[width] = gap
    yield at_least(
        "matched KL: lead of the partition, widest less narrowest", plan.of_runs(lead[widths[-1]] - lead[widths[0]]), 0.0
    )


class _Run:
    """What a run of updates came to."""

    def __init__(self) -> None:
        self.held_out = np.zeros(0)
        """Return on each held-out task at the end."""
        self.factors: list[float] = []
        self.kls: list[float] = []
        self.calls = 0

    @property
    def kl(self) -> float:
        """Of a step, on average."""
        return float(np.mean(self.kls))


def _arrays(net: Network) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in net.state_dict().items()}


def _returns(weights: Weights, width: int, seed: int, tasks: int) -> Floats:
    """(tasks,) mean return of eight teams on each held-out task, as the policy draws."""
    net = Network.of(weights, apart=False)
    out, _ = teams_of(Setting(net, weights, "W1", dials(width)), 1_000 + (child_seed(seed, _KEY, 2) >> 30), tasks, log=False)
    return out.values.reshape(tasks, GROUP).mean(axis=1)


def _run(
    weights: Weights, width: int, credit: str, of: tuple[int, int], updates: int, held_out: int, *, rate: float | None
) -> _Run:  # fmt: skip
    """Updates under one credit: by matched KL, or, with a rate, by that."""
    net, made, factor = Network.of(weights, apart=False), _Run(), 0.1 if rate is None else rate
    seed, k = of
    first = (1 << 40) + (child_seed(seed, _KEY, 1, k) >> 24)
    for update in range(updates):
        out, _ = teams_of(Setting(net, _arrays(net), "W1", dials(width)), first + update * _TASKS, _TASKS, log=False)
        tables = {name: table for name, table in out.tables.items() if name in ("item", "candidate")}
        way = gradient(net, out, _ADVANTAGES[credit](out))
        factor, kl = step(net, tables, way, kl=_KL if rate is None else None, rate=factor)
        made.factors.append(factor)
        made.kls.append(kl)
        made.calls += out.charged
    made.held_out = _returns(_arrays(net), width, seed, held_out)
    return made
