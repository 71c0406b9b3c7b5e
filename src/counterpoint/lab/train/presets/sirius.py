"""SiriuS: every role imitates the turns of rollouts that succeeded; what failed has no weight.

    loss = -log pi(turn) over rollouts with R > mean of the task

Source: SiriuS, arXiv 2502.04780 (abstract).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

sirius = Preset(
    source="SiriuS, arXiv 2502.04780 (abstract)",
    grade="S",
    departures="no failure is repaired: that needs a model that rewrites it with the answer at hand; success is to beat the mean "
    "of the task; rollouts are of the present policy, in place of rounds over a growing library",
    credit={"group_relative": {"convention": "dr_grpo"}},
    loss={"sft": {"steps": 8}},
    group=8,
    episodes=32,
    regime="C",
    delegate="agent",
    rates={"policy": 0.005, "spawn": 0.01, "critic": 0.003},
    trains=("w",),
    unit="turn",
    learns=("network", "lm"),
    knob={"loss": {"weigh": "credit"}},
    guessed=("numbers of the fine-tuning",),
)
