"""QMIX: a monotone mix of the five sub-decisions' utilities, learned by temporal differences over rounds.

    Q_tot = |w2(s)| . elu(q |W1(s)| + b1(s)) + V(s);      target r + gamma max Q_tot'

Source: QMIX, arXiv 1803.11485; pymarl. Agent Q-Mix, arXiv 2604.00344, mixes communication choices of agents in the same way.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

qmix = Preset(
    source="QMIX, arXiv 1803.11485; pymarl",
    grade="R",
    departures="the agents of the mix are the five sub-decisions, not the workers; softmax behaviour whose temperature falls, "
    "not epsilon-greedy; the batch just played instead of a replay buffer; the target network is the one at the "
    "start of the update; no double Q, no recurrence; see counterpoint.lab.train.losses.td",
    credit={"qmix": {}},
    loss={"td": {"gamma": 0.99, "tau_from": 1.0, "tau_to": 0.5, "epochs": 24}},
    group=1,
    episodes=32,
    regime="A",
    rates={"policy": 5e-3, "spawn": 2e-2, "critic": 3e-3},
    unit="team",
    knob={"loss": {"lam": 0.6}},
    renames="agents are five decision heads, on-policy, no double Q",
)
