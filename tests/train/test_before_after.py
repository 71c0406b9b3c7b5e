"""What the demo shows: policies on the same unseen tasks, sort by sort, and the learned decisions."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterpoint.app.cli.demo import decisions_screen, policies_screen, tasks_screen
from counterpoint.train.before_after import first_and_last
from counterpoint.train.start import train_run

JOBS = {
    "types": 1, "max_agents": 4, "node_module_size": 1, "node_cross_edges": 0, "max_rounds": 20, "pool_slots": 8, "pool_calls": 4,
}  # fmt: skip
SORTS = [{"node_modules": 6, "node_weight": 3.0}, {"node_modules": 0, "pool_items": 2, "round_price": 0.0}]


def test_every_policy_plays_the_same_tasks_of_every_sort(tmp_path: Path) -> None:
    config = {
        "preset": "counterpoint", "world": "P", "set": JOBS, "mix": SORTS, "updates": 1, "budget_calls": 0, "episodes": 4,
        "eval_episodes": 2, "keep_traces": 1,
    }  # fmt: skip
    with train_run(tmp_path / "run", config) as run:
        found = first_and_last(run, tasks=6, hand_made=("serial", "best_size"))
    names = [row["name"] for row in found["policies"]]
    assert names == ["serial", "best_size", "before training", "learned"]
    jobs, pools = found["by_task"]
    assert (jobs["task"], pools["task"]) == ("6 nodes, urgent", "2 pools, no hurry")
    best = found["gain"]["over"]
    means = {row["name"]: row["mean"] for row in found["policies"]}
    assert means[best] == max(means["serial"], means["best_size"])
    assert found["gain"]["mean"] == pytest.approx(means["learned"] - means[best])
    assert (jobs["learned"] + pools["learned"]) / 2 == pytest.approx(means["learned"])
    assert found["optimum"]["value"] == pytest.approx((jobs["bound"] + pools["bound"]) / 2)
    assert [row["task"] for row in found["behaviour"]["spawn"]] == ["6 nodes, urgent", "2 pools, no hurry"]
    said = policies_screen(found) + tasks_screen(found) + decisions_screen(found)
    assert f"learned - {best}" in said
    assert "6 nodes, urgent" in said
