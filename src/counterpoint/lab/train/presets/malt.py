"""MALT: rollouts branch; a step is right if most of its leaves are; imitate the right, then prefer them.

    V(step) = share of right leaves;   right iff V > 0.5;    SFT on what is right, then DPO on (right, wrong) after the same words

Source: MALT, arXiv 2412.01928 v3.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

malt = Preset(
    source="MALT, arXiv 2412.01928 v3",
    grade="P",
    departures="a step is a round of the team, not one of three roles; a leaf is right where it beats the mean of its task; "
    "branches part at rounds drawn at random; preferences are of all roles, not of verifier and refiner alone; both "
    "stages on rollouts of the present policy, half of the run each",
    credit={"malt": {"by": "turn", "leaf": "better"}},
    loss={"dpo": {"pairs": "notes", "first": 0.5, "above": 0.5, "beta": 0.1}},
    group=8,
    episodes=32,
    tree=(2, 2, 2),
    regime="C",
    delegate="agent",
    rates={"policy": 0.005, "spawn": 0.01, "critic": 0.003},
    trains=("w",),
    unit="role",
    knob={"loss": {"beta": 0.3}},
    guessed=("beta", "how long each stage lasts"),
)
