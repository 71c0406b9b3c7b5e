"""ParaManager: one set of actions, agents and tools; success, protocol, diversity and efficiency in one reward.

    R = success + 0.2 protocol + 0.1 diversity + 0.1 efficiency;      A = (R - mean) / (std + 1e-6) over the task

Source: ParaManager, arXiv 2604.17009 (abstract).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

paramanager = Preset(
    source="ParaManager, arXiv 2604.17009 (abstract)",
    grade="S",
    departures="weights, the forms of the four terms, the group and the loss are ours: the abstract names the terms alone; "
    "success is the team's reward as a share of the world's optimum; no supervised start on traces with recovery, which needs "
    "text; delegation is not asynchronous",
    reward={"paramanager": {"share": True}},
    credit={"group_relative": {"convention": "grpo"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=8,
    episodes=32,
    regime="A",
    needs=("workers",),
    trains=("O1", "O2"),
    unit="orchestrator",
    learns=("network", "lm"),
    knob={"reward": {"paramanager": {"w_protocol": 0.1, "w_diversity": 0.05, "w_efficiency": 0.05}}},
    guessed=("weights of the four terms", "forms of protocol, diversity and efficiency", "group", "loss"),
)
