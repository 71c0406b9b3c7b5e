"""Run folders of an invented training, written with `RunFolder` itself: known means, seeds and budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.lab.train.folder import RunFolder

TASKS, FIRST = 40, 10_000
HARD = np.random.default_rng(7).normal(size=TASKS)


def made(
    folder: Path,
    preset: str = "grpo",
    seed: int = 0,
    *,
    mean: float = 5.0,
    calls: int = 1000,
    updates: int = 4,
    evals: int = 2,
    status: str = "finished",
    first: int = FIRST,
    extra: dict[str, Any] | None = None,
    **about: Any,
) -> Path:
    """A run that ends at `mean` on the held-out tasks, give or take its seed's luck, having spent `calls`."""
    rng = np.random.default_rng([seed, len(preset)])
    said = {"preset": preset, "world": "s1", "world_version": "1", "world_config": {"horizon": 20}, "seed": seed}
    said |= {"eval_seeds": [first, TASKS], "optimum": {"value": 10.0, "kind": "exact"}}
    with RunFolder.create(folder, {"preset": preset, "seed": seed}, said | about) as run:
        totals = dict.fromkeys(("episodes", "forks", "calls", "decisions"), 0)
        for k in range(1, updates + 1):
            totals = {"episodes": 8 * k, "forks": k, "calls": round(calls * k / updates), "decisions": 50 * k}
            level = mean * k / updates + 0.1 * rng.normal()
            run.append_metrics({"update": k, **totals, "reward": level, "loss": 0.5})
            if k > updates - evals:
                lists = {"values": level + HARD + 0.1 * rng.normal(size=TASKS), "agents": rng.integers(1, 6, TASKS)}
                lists |= {"rounds": rng.integers(2, 9, TASKS), "calls_made": rng.integers(10, 20, TASKS)}
                run.append_eval({"update": k, **totals, "first_seed": first, **lists, **(extra or {})})
        run.set_status(status, updates=updates, spent=totals, **({"why": "NaN loss"} if status == "failed" else {}))
    return folder
