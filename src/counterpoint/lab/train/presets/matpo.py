"""MATPO: planner rollouts of a task against each other; their workers inherit the advantage.

    R = 0.9 outcome + 0.05 format of the planner + 0.05 mean format of the workers;    A = (R - mean) / (std + 1e-6) of planners

Source: MATPO, arXiv 2510.04678; official code.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

matpo = Preset(
    source="MATPO, arXiv 2510.04678; official code",
    grade="R",
    departures="the outcome is the team's reward as a share of the world's optimum, not 0 or 1; the format is the share of an "
    "agent's tool calls that did not fail; every worker keeps its own mask (the released code copies the planner's masked "
    "tensor, which silences workers at random); rows are averaged within each decision type",
    reward={"matpo": {"share": True, "format": "tools"}},
    credit={"matpo": {}},
    loss={"clip": {"clip": 0.2, "dual": 3.0, "scale": False}},
    group=8,
    episodes=32,
    regime="B",
    delegate="agent",
    needs=("workers",),
    trains=("O1", "O2", "w"),
    unit="role",
    learns=("network", "lm"),
    knob={"loss": {"clip_high": 0.28}},
)
