"""Shapley-Q: a critic of what each adds to those before it, over sampled orders; the sum is the team's value.

    phi_i = 1/M sum_m psi(x, acts of i and of its predecessors, i);   sum_i phi_i -> r + gamma sum_i phi_i';   i ascends phi_i

Source: SQDDPG, arXiv 1907.05707; official code.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

shapley_q = Preset(
    source="SQDDPG, arXiv 1907.05707; official code",
    grade="R",
    departures="players are the five sub-decisions; acts are means over a round's decisions, ascended through probabilities; 4 "
    "orders per update, the same for all states; the batch just played instead of a replay buffer; actors wait for "
    "five updates",
    credit={"shapley_q": {}},
    loss={"joint_critic": {"actor": "shapley", "gamma": 0.95, "orders": 4, "epochs": 16, "warm": 5}},
    group=1,
    episodes=32,
    regime="C",
    rates={"policy": 0.001, "spawn": 0.003, "critic": 0.003},
    trains=("w",),
    unit="agent",
    knob={"loss": {"orders": 8}},
    guessed=("number of orders",),
    renames="agents are five decision heads, on-policy, no replay buffer",
)
