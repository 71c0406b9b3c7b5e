"""DEPART (HIMPO): planner and executors are paid the task and a dense reward of their own, and learn in turn.

    R_role = R_task + w mean(dense of the role);      each role against itself over the task's rollouts, the other frozen

Source: DEPART, OpenReview Q4Nk6PlZYH (abstract).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

depart = Preset(
    source="DEPART (HIMPO), OpenReview Q4Nk6PlZYH (abstract)",
    grade="S",
    departures="the dense reward of workers is the share of their claims that were right, of the orchestrator what its events "
    "carry for its role (R3), which TeamWorld does not give; groups, ratio and clip are GRPO's",
    reward={"team_outcome": {}, "role_rubric": {"weight": 0.5, "channels": ("R3", "R2")}},
    credit={"agent_wise": {"by": "role", "convention": "grpo", "singleton": "zero"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=8,
    episodes=32,
    regime="C",
    delegate="agent",
    alternate=10,
    needs=("workers",),
    trains=("O2", "w"),
    unit="role",
    learns=("network", "lm"),
    knob={"reward": {"role_rubric": {"weight": 0.25}}},
    guessed=("weight of the dense reward", "algorithm", "how long each role learns"),
)
