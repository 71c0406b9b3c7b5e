"""C3: a message against what the same agent said at the same place in the other rollouts, leave-one-out.

    A_i = r_i - mean_{j != i} r_j, then scaled;      r_i: mean reward of the rollouts that say the same up to message i

Source: C3, arXiv 2603.06859; official code, in its published ablation without replay.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

c3 = Preset(
    source="C3, arXiv 2603.06859; official code, ablation no_replay",
    grade="R",
    departures="no replay from frozen prefixes: rollouts of a task share a prefix only until they first differ, so siblings "
    "are the messages of one agent at one place in the rollouts of the task (the paper's ablation no_replay), and "
    "most of the method's advantage is lost; reward only, no critic Q (the code's default); no KL (0.01)",
    credit={"c3": {"replay": False, "normalise": True}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=8,
    episodes=32,
    regime="B",
    trains=("w", "O3"),
    unit="message",
    learns=("network", "lm"),
    knob={"credit": {"normalise": False}},
)
