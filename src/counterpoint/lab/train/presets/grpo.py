"""GRPO: the team's reward against the rollouts of the same task, one advantage for every decision.

    A_i = (R_i - mean(R)) / (std(R) + 1e-6)      over the group, ddof 1;  loss: clip 0.2

Source: DeepSeekMath, arXiv 2402.03300; arithmetic of verl.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

grpo = Preset(
    source="GRPO (DeepSeekMath), arXiv 2402.03300; verl",
    grade="R",
    departures="groups of 8, not 64; decisions are the tokens; no reference policy, so no KL term (0.04 in the paper); rows "
    "are averaged within each decision type, not within a response",
    credit={"group_relative": {"convention": "grpo"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=8,
    episodes=32,
    regime="B",
    unit="team",
    learns=("network", "lm"),
    knob={"loss": {"clip_high": 0.28}},
)
