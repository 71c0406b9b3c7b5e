"""A language model learns when to work alone and how many to hire: priced tasks of mixed size.

One agent with tools, which may also spawn workers (topology `harness`), plays ledger hunts of three sizes: 4 papers in 1 book, 8
in 2, 24 in 4. Agents and seconds cost. Alone it is slow on the large ones; workers cost more than they save on the small ones.
The demonstrator (`fake:0.8`) tosses a coin whether it hires anybody, and another for each further worker, so its teams show every
width and no rule. Held against: the demonstrator; the same demonstrator at each fixed width; and the best of those for each size,
which knows the size.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most, reported
from counterpoint.lab.bench.claims._language import (
    AT_ONCE,
    begun,
    by_hand,
    folder_of,
    go_on,
    last_eval,
    ledger_hunt,
    side_by_side,
    usual,
)
from counterpoint.lab.bench.claims._language import imitate_settings as imitated
from counterpoint.lab.bench.claims._language import learn_settings as reinforced

_SIZES = {"small": (4, 1), "medium": (8, 2), "large": (24, 4)}
_PRICES = {"agent": 0.03, "second": 0.08}
_COIN = {"explore": 0.0, "hires": 0.5, "crew": 0.5}
_WIDTHS = {"alone": (0.0, 4), "1 worker": (1.0, 1), "2 workers": (1.0, 2), "4 workers": (1.0, 4)}


def _tasks(width: int = 4) -> list[dict[str, Any]]:
    return [ledger_hunt(*size, width=width, topology="harness") for size in _SIZES.values()]


def _by_size(values: Any) -> dict[str, float]:
    """Means over the tasks of each size; tasks take turns."""
    return {name: float(np.mean(values[i :: len(_SIZES)])) for i, name in enumerate(_SIZES)}


def lm_decide(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Priced tasks of mixed size: reward above the demonstrator's and the best fixed width's, no idle hires; needs CUDA."""
    folder = folder_of("lm-decide")
    shown = imitated(1000, demos="fake:0.8", options=_COIN)
    start = begun(folder, seed, usual(seed, 1, task=_tasks(), prices=_PRICES, imitate=shown, slots=256))
    how = {"task": _tasks(), "prices": _PRICES, "model": str(start), "imitate": {"steps": 0}, "learn": reinforced(20, groups=15)}
    runs = [folder / f"learn-{seed}-{one}" for one in range(seed, seed + seeds)]
    side_by_side(go_on, [(run, usual(seed + i, AT_ONCE, slots=128, **how)) for i, run in enumerate(runs)])
    coin = by_hand(_tasks(), "fake:0.8", _COIN, _PRICES)[0]
    fixed = {
        name: by_hand(_tasks(width), "fake:0.8", {"explore": 0.0, "hires": hires}, _PRICES)[0]
        for name, (hires, width) in _WIDTHS.items()
    }
    best = max(float(x.mean()) for x in fixed.values())
    knows = float(np.mean([max(_by_size(x)[size] for x in fixed.values()) for size in _SIZES]))
    yield reported("demonstrator, reward", [coin.mean()])
    for name, rewards in fixed.items():
        yield reported(f"demonstrator always {name}, reward", [rewards.mean()])
    yield reported("demonstrator that knows the size, reward", [knows])
    yield reported("imitation, reward", [last_eval(start)["mean"]])
    yield reported("reinforcement, reward", [last_eval(run)["mean"] for run in runs])
    yield reported("reinforcement, reward, greedy", [last_eval(run)["greedy_mean"] for run in runs])
    over = [last_eval(run)["mean"] for run in runs]
    yield at_least("reinforcement over the demonstrator", [x - coin.mean() for x in over], 0.0, by="low")
    yield at_least("reinforcement over the best fixed width", [x - best for x in over], 0.0, by="low")
    yield reported("reinforcement over the demonstrator that knows the size", [x - knows for x in over])
    yield from _screen(start, runs)
    spare = [_by_size(last_eval(run)["agents"])["small"] for run in runs]
    yield at_most("workers on small tasks, where one agent is enough", spare, 0.1, by="high")


def _screen(start: Path, runs: list[Path]) -> Iterator[ClaimRow]:
    """What the teams decide, before and after."""
    for when, some in (("before", [start]), ("after", runs)):
        for size in _SIZES:
            yield reported(f"{when}: workers on {size} tasks", [_by_size(last_eval(run)["agents"])[size] for run in some])
        for name in ("spawned", "delegated", "told", "merged", "stopped_after", "tool_calls"):
            yield reported(f"{when}: {name.replace('_', ' ')}", [last_eval(run)["decisions_made"][name] for run in some])
        for name in ("solved", "score"):
            yield reported(f"{when}: {name}", [last_eval(run)[name] for run in some])
