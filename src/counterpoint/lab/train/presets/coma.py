"""COMA: a decision against what the policy would have done in its place, by a critic of all acts.

    A = Q(x, a) - sum_b pi(b) Q(x, (a_-i, b));      critic: TD(lambda 0.8), gamma 0.99

Source: COMA, arXiv 1705.08926; pymarl.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

coma = Preset(
    source="COMA, arXiv 1705.08926; pymarl",
    grade="R",
    departures="the critic reads the team's features and the means of a round's acts, so that one decision's alternative moves a "
    "mean; agents are the decisions, one by one; no recurrence; the target critic follows by Polyak, not every 150 "
    "steps",
    credit={"coma": {}},
    loss={"joint_critic": {"actor": "coma", "gamma": 0.99, "lam": 0.8, "polyak": 0.05}},
    group=1,
    episodes=32,
    regime="A",
    rates={"policy": 0.01, "spawn": 0.02, "critic": 0.003},
    unit="turn",
    knob={"loss": {"lam": 0.95}},
)
