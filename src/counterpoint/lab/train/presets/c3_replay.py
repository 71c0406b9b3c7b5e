"""C3 with replay: a message against other messages after the same beginning, leave-one-out.

    A_i = r_i - mean_{j != i} r_j,  then scaled;      r_i: mean reward of the rollouts that go on from it

Source: C3, arXiv 2603.06859; official code (fan-out 2 x 4, k1 0.01).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

c3_replay = Preset(
    source="C3, arXiv 2603.06859; official code",
    grade="R",
    departures="with networks a message is all that the team did in a round; rollouts part at the first round (or call) and at "
    "one drawn at random, not at every role; reward only, no critic Q (the released default takes the baseline from Q alone)",
    credit={"c3": {"replay": True, "by": "turn", "normalise": True}},
    loss={"clip": {"clip": 0.2, "kl": "k1", "kl_in": "reward", "kl_weight": 0.01, "scale": False}},
    group=8,
    episodes=32,
    tree=(2, 4),
    regime="B",
    trains=("w", "O3"),
    unit="message",
    learns=("network", "lm"),
    language={"credit": {"by": "action"}},
    knob={"credit": {"normalise": False}},
)
