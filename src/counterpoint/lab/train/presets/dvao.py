"""DVAO: several rewards, weighed by how much they vary within a task.

    w_k = K var_k / sum var,   R = sum w_k r_k;      A = (R - mean) / (std + 1e-6);      var_k: mean variance within tasks

Source: DVAO, arXiv 2605.25604 (abstract; the exact form was not found).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

dvao = Preset(
    source="DVAO, arXiv 2605.25604 (abstract)",
    grade="S",
    departures="the weights are our short form of the idea; two rewards of ours, the team's outcome and the share of spawned "
    "agents that returned something; the rest as grpo",
    reward={"team_outcome": {}, "orchestration": {"parts": ("finish",)}},
    balance="variance",
    credit={"group_relative": {"convention": "grpo"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=8,
    episodes=32,
    regime="B",
    needs=("workers",),
    unit="team",
    learns=("network", "lm"),
    knob={"reward": {"orchestration": {"weight": 0.3}}},
    guessed=("form of the weights", "which rewards"),
)
