"""Behaviour cloning: do what was recorded (`counterpoint train log --preset clone`).

    loss = -log pi(decision)

The log may be of a hand-made policy or of a learned one; what it was worth is not read.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

clone = Preset(
    source="behaviour cloning (Pomerleau, ALVINN, 1988)",
    grade="M",
    departures="decisions that a learned team cannot express (a second call on one question in a round, an agent called twice, "
    "waiting) are carried out and not learned; the size of a spawn is cloned as a log size",
    credit={"uniform": {}},
    loss={"clone": {}},
    group=1,
    episodes=32,
    rates={"policy": 5e-3, "spawn": 2e-2, "critic": 3e-3},
    unit="turn",
    learns=("network", "lm"),
    knob={"loss": {"steps": 24}},
)
