"""OWL: the planner imitates rollouts that went well, then prefers the better of two rollouts of a task.

    SFT where R > mean of the task;      then DPO: -log sigmoid(beta [(log pi/ref)(better) - (log pi/ref)(worse)])

Source: OWL, arXiv 2505.23885 (1,599 traces of SFT, 1,009 pairs of DPO).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

owl = Preset(
    source="OWL, arXiv 2505.23885",
    grade="P",
    departures="a trace is filtered by whether it beats the mean of its task; pairs are whole rollouts, best with worst, second "
    "with second to last; both stages on rollouts of the present policy",
    credit={"group_relative": {"convention": "dr_grpo"}},
    loss={"dpo": {"pairs": "task", "first": 0.6, "beta": 0.1}},
    group=8,
    episodes=32,
    regime="A",
    rates={"policy": 0.005, "spawn": 0.01, "critic": 0.003},
    trains=("O2",),
    unit="orchestrator",
    knob={"loss": {"beta": 0.3}},
    guessed=("beta", "how pairs are made"),
)
