"""VDN: the team's value is the plain sum of the sub-decisions' utilities, learned by temporal differences.

    Q_tot = sum_i q_i;      target r + gamma sum_i max q_i'

Source: VDN, arXiv 1706.05296; pymarl (gamma 0.99).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

vdn = Preset(
    source="VDN, arXiv 1706.05296; pymarl",
    grade="R",
    departures="the agents of the sum are the five sub-decisions, not the workers; Q_tot has a level V(s) too, because logits "
    "have none, and it learns alone in the first three updates; softmax behaviour whose temperature falls; the batch "
    "just played instead of a replay buffer; no double Q, no recurrence; see counterpoint.lab.train.losses.td",
    credit={"vdn": {}},
    loss={"td": {"mix": "vdn", "gamma": 0.99, "tau_from": 1.0, "tau_to": 0.5, "epochs": 24, "warm": 3}},
    group=1,
    episodes=32,
    regime="A",
    rates={"policy": 0.005, "spawn": 0.02, "critic": 0.003},
    unit="team",
    knob={"loss": {"lam": 0.6}},
    renames="agents are five decision heads, on-policy, no double Q",
)
