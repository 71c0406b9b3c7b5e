"""GDPO: each reward normalised in its group, then summed, then the batch normalised.

    A = whiten(sum over k of (r_k - mean_k) / std_k)

Source: GDPO, arXiv 2601.05242.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

gdpo = Preset(
    source="GDPO, arXiv 2601.05242",
    grade="S",
    departures="two rewards of ours, the team's outcome and the share of spawned agents that returned something, equally "
    "weighed; no KL term; the rest as grpo",
    reward={"team_outcome": {}, "orchestration": {"parts": ("finish",)}},
    balance="gdpo",
    credit={"group_relative": {"convention": "reinforce"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=8,
    episodes=32,
    regime="B",
    needs=("workers",),
    unit="team",
    learns=("network", "lm"),
    knob={"reward": {"orchestration": {"weight": 0.3}}},
    guessed=("which rewards", "their weights"),
)
