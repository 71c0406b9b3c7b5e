"""EvoSteer: flows along the rounds of an episode make the policy its anchor, weighed by reward.

    mean over spans of (F_i + sum log pi/anchor - F_j)^2,   F_T = log(1 + (e^beta - 1) R);      beta 2

Source: EvoSteer, arXiv 2609.38661; official code (2 + 2 rollouts).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

evosteer = Preset(
    source="EvoSteer, arXiv 2609.38661; official code",
    grade="R",
    departures="a span begins and ends at rounds; R is the return between the least and the largest seen; the anchor is the "
    "network of up to ten updates ago; no acts that rerun or drop an agent, and no author of skills",
    credit={"uniform": {}},
    loss={"anchor_tb": {"beta": 2.0, "anchor_every": 10}},
    group=4,
    episodes=32,
    regime="A",
    trains=("O1", "O2", "O3", "O5"),
    unit="orchestrator",
    knob={"loss": {"beta": 4.0}},
    guessed=("how often the anchor moves",),
)
