"""SAW: rewards weighed by their coefficient of variation in the batch; the weights do not depend on scale.

    w_k = K (std_k / |mean_k|) / sum,   R = sum w_k r_k;      A = (R - mean) / (std + 1e-6)

The sum does: a reward on a larger scale counts for more in R.

Source: SAW, arXiv 2606.07705 (secondary; the exact form was not found).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

saw = Preset(
    source="SAW, arXiv 2606.07705 (secondary)",
    grade="S",
    departures="the weights are our short form of the idea; two rewards of ours, the team's outcome and the share of spawned "
    "agents that returned something; the rest as grpo",
    reward={"team_outcome": {}, "orchestration": {"parts": ("finish",)}},
    balance="variation",
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
