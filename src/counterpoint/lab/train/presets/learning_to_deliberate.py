"""Learning to Deliberate: workers persist, refine or concede; only the order of a group's rewards counts.

    s_i = sum_j sigmoid((r_i - r_j) / tau);     A_i = Phi^-1(s_i / n)

Source: Learning to Deliberate, arXiv 2509.03817 (abstract and a reproduction; the form of the soft rank is ours).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

learning_to_deliberate = Preset(
    source="Learning to Deliberate (SoftRankPO), arXiv 2509.03817",
    grade="S",
    departures="the reward is the team's (the source's is not known); a worker's state is what it sees of the votes, not a "
    "reasoning profile; one head for all workers; the orchestrator learns from the same ranks",
    credit={"group_relative": {"convention": "soft_rank", "tau": 0.1}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=8,
    episodes=32,
    regime="C",
    needs=("votes", "deliberation"),
    trains=("w",),
    unit="turn",
    knob={"credit": {"tau": 1.0}},
    guessed=("reward", "tau", "clip", "group"),
)
