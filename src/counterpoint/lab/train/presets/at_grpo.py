"""AT-GRPO: what an agent did in a turn against its other candidates from the same state; team and local reward.

    A = (r - mean) / (std + 1e-6) over the candidates of one agent in one turn after the same turns;   r = team + own

Source: Stronger-MAS (AT-GRPO), arXiv 2510.11062 (abstract and third-party notes).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

at_grpo = Preset(
    source="Stronger-MAS (AT-GRPO), arXiv 2510.11062 (secondary)",
    grade="S",
    departures="four candidates at the first turn and at one that is drawn, not at every turn, and every candidate is played to "
    "the end, where the source goes on with the best: a candidate's reward is the mean of the rollouts through it; the local "
    "reward is the share of an agent's returns that were right (R2), over the whole rollout",
    reward={"team_outcome": {}, "individual": {}},
    credit={"agent_wise": {"by": "turn", "state": True, "convention": "grpo", "singleton": "zero"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=16,
    episodes=32,
    tree=(4, 4),
    regime="C",
    delegate="agent",
    needs=("workers",),
    trains=("O1", "O2", "w"),
    unit="turn",
    learns=("network", "lm"),
    knob={"regime": "B"},
    guessed=("weight of the local reward", "clip", "size of a group"),
)
