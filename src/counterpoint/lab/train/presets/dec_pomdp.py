"""Dec-POMDP: a team of given size, its reward for all, plain REINFORCE.

    loss = -R log pi(decision) for every decision of every agent;      nobody is spawned or sent away by choice

Source: Bernstein et al., 2002; Littman, 1994 (Markov games).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

dec_pomdp = Preset(
    source="Bernstein, Givan, Immerman, Zilberstein 2002; Littman 1994",
    grade="T",
    departures="R is what the team added to the draft that was there before it began, since there is no baseline; the "
    "orchestrator sees the public record, not a local view; sizes of the fixed team are those the network starts with; with "
    "language models a fixed team is a debate, whose panel has the run's width",
    reward={"team_outcome": {"gain": True}},
    credit={"group_relative": {"convention": "reinforce"}},
    loss={"reinforce": {"scale": False}},
    group=1,
    episodes=32,
    fixed_team=True,
    regime="B",
    rates={"policy": 0.01, "spawn": 0.02, "critic": 0.003},
    needs=("workers",),
    trains=("w",),
    unit="agent",
    learns=("network", "lm"),
    knob={"credit": {"convention": "dr_grpo"}, "group": 8},
)
