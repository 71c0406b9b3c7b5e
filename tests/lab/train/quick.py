"""A preset and settings so small that a run takes a second; and how to compare two runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.train.preset import Preset

quick = Preset(
    source="a test", grade="M", departures="none", credit={"task_returns": {}}, loss={"soft": {"steps": 2, "keep": 16}}, group=2, episodes=8,
    forks=0.2, keeps=0.1, goes_on=True,
)  # fmt: skip
tried = replace(quick, trial_every=2)
needy = Preset(source="a test", grade="M", departures="none", credit={"task_returns": {}}, loss={"soft": {}}, needs=("votes",))
wild = Preset(
    source="a test", grade="M", departures="none", credit={"task_returns": {}}, loss={"soft": {"steps": 2}}, group=2, episodes=8,
    rates={"policy": 1e30, "spawn": 1e30, "critic": 1e30},
)  # fmt: skip

TINY: dict[str, Any] = {"vote_items": 4, "max_agents": 4, "max_rounds": 6}
CONFIG: dict[str, Any] = {
    "preset": "lab.train.quick:quick", "world": "wide_verify", "set": TINY, "updates": 4, "eval_every": 2, "eval_episodes": 4,
    "checkpoint_every": 1, "keep_traces": 1,
}  # fmt: skip


def numbers(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Metrics without their seconds, evaluations, alerts."""
    run = RunFolder.open(folder)
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics()], run.evals(), run.alerts()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of the last checkpoint: the network, its running mean, and the optimizers' first moments."""
    path = RunFolder.open(folder).latest_checkpoint()
    assert path is not None
    held = torch.load(path, weights_only=False)
    out = {f"net.{k}": v for k, v in held["net"].items()} | {f"mean.{k}": v for k, v in held["mean"].items()}
    for name in ("policy", "critic"):
        out |= {f"{name}.{i}": s["exp_avg"] for i, s in held[name]["state"].items()}
    return out


def same(a: Path, b: Path) -> None:
    """Two runs gave the same numbers and weights, to the last bit."""
    assert numbers(a) == numbers(b)
    one, other = weights(a), weights(b)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[k], other[k]) for k in one)
