"""FoldGRPO: the outcome and a process term, clipped to [0, 1], against the outcomes of the task.

    R <- (R - min) / (max - min) over the group;      A = (clip(R + Q, 0, 1) - mean(R)) / std(R)
    Q: -1 failed call, -1 long main context outside branches, -0.2 out of scope

Source: Context-Folding, arXiv 2510.11967.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

foldgrpo = Preset(
    source="Context-Folding, arXiv 2510.11967",
    grade="S",
    departures="R is the team's reward as a share of the world's optimum, mapped to [0, 1] by the least and "
    "the most of its group (the paper's is 0 or 1); a branch is a worker, and out of scope where less than half of its claims "
    "are right (an oracle for the paper's judge); the context is what the orchestrator itself wrote, "
    "in tokens, against 32,768; credit is per action, not per token",
    reward={"team_outcome": {"share": True}},
    credit={"fold_grpo": {"context_limit": 32_768, "scope": 0.5, "rescale": "group"}},
    loss={"clip": {"clip": 0.2, "clip_high": 0.28, "scale": False}},
    group=8,
    episodes=32,
    regime="B",
    needs=("workers",),
    trains=("O1", "O4"),
    unit="message",
    learns=("network", "lm"),
    as_released={"credit": {"int8": True}},
    knob={"credit": {"context_limit": 16_384}},
    guessed=("clip low and high", "group", "judge of scope"),
)
