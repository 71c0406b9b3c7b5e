"""MADDPG: a critic of the state and everybody's acts for each sub-decision, whose gradient its actor ascends.

    y = r + gamma (1 - done) Q_i'(x', a_1'..a_n');      actor i ascends Q_i(x, a_1, .., pi_i(o_i), .., a_n), logits held by 1e-3

Source: MADDPG, arXiv 1706.02275; official code (gamma 0.95, Polyak 0.01).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

maddpg = Preset(
    source="MADDPG, arXiv 1706.02275; official code",
    grade="R",
    departures="agents are the five sub-decisions; acts are means over a round's decisions, and actors ascend through "
    "probabilities, not Gumbel samples; the batch just played instead of a replay buffer; softmax behaviour, no added "
    "noise; actors wait for five updates, as the code waits for its buffer to fill",
    credit={"uniform": {}},
    loss={"joint_critic": {"actor": "ascend", "gamma": 0.95, "polyak": 0.01, "penalty": 0.001, "warm": 5}},
    group=1,
    episodes=32,
    regime="C",
    unit="agent",
    knob={"loss": {"lam": 0.8}},
    renames="agents are five decision heads, on-policy, no replay buffer",
)
