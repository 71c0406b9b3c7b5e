"""Agent Lightning: one advantage per rollout, copied to all its transitions; every rollout weighs the same.

    A_i = (R_i - mean) / (std + 1e-6) over rollouts;      a row weighs 1 / (rows of its rollout x rollouts);   clip 0.2, dual 3

Source: Agent Lightning, arXiv 2508.03680; code v1.0 (per_rollout_mean).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

agent_lightning = Preset(
    source="Agent Lightning, arXiv 2508.03680; code v1.0",
    grade="R",
    departures="a transition is a turn; means are over the decisions of a rollout, not over tokens times transitions",
    credit={"agent_lightning": {}},
    loss={"clip": {"clip": 0.2, "dual": 3.0, "weigh": "rollout", "scale": False}},
    group=8,
    episodes=32,
    regime="B",
    unit="turn",
    learns=("network", "lm"),
    knob={"loss": {"clip_high": 0.28}},
)
