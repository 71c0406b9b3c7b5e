"""Debate-as-Reward: 1 where every judge accepts, else 0; mean-centred, with a constant divisor.

    R = AND of the judges;      A = R - mean(R) over the task

Source: Debate-as-Reward, arXiv 2604.16723 (abstract).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

debate_as_reward = Preset(
    source="Debate-as-Reward, arXiv 2604.16723 (abstract)",
    grade="S",
    departures="judges are checks, not models: the team's reward is above half of the world's optimum, and no tool call failed; "
    "the unbiased variant of GRPO is taken to be Dr. GRPO's; rows are averaged within each decision type",
    reward={"judge_panel": {"share": True, "judges": ("outcome", "protocol"), "above": 0.5}},
    credit={"group_relative": {"convention": "dr_grpo"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=8,
    episodes=32,
    regime="A",
    trains=("w",),
    unit="team",
    learns=("network", "lm"),
    knob={"reward": {"judge_panel": {"above": 0.7}}},
    guessed=("judges", "group", "clip"),
)
