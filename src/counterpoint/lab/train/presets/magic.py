"""MAGIC: an attacker and a defender learn against each other, each compared with itself.

    r(attacker) = -R,  r(defender) = R;      A = (r - mean) / std of the role, over the rollouts of the task

Source: MAGIC, arXiv 2602.01539 (abstract; terms of the rewards and all numbers are ours).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

magic = Preset(
    source="MAGIC, arXiv 2602.01539",
    grade="S",
    departures="read from the abstract: the rewards' further terms are not known, and normalisation and loss are ours; an "
    "attack is one of AV1 to AV8, chosen round by round, not a rewritten text; a defence is what the team "
    "decides; heads of one team apart in their networks",
    reward={"zero_sum": {}},
    credit={"agent_wise": {"by": "role", "convention": "grpo", "singleton": "zero"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=8,
    episodes=32,
    regime="C",
    needs=("opponent",),
    trains=("O1", "O2", "O3", "O4", "O5", "w", "opponent"),
    unit="role",
    knob={"alternate": 10},
    guessed=("terms of the rewards", "credit", "loss", "group"),
)
