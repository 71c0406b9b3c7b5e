"""MARFT: advantages along a chain of agents, each followed by the next one of the same step.

    chain: step 1 agent 1, step 1 agent 2, ..., step 2 agent 1, ...;    A as in GAE;      no step where the KL is above 1e-3

Source: MARFT, arXiv 2504.16129; official code (gamma 0.99, lam 0.95, 5 epochs, entropy 0.01).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

marft = Preset(
    source="MARFT, arXiv 2504.16129; official code",
    grade="R",
    departures="the chain is the actions of the trace, of which a round has ten or more: lam 0.995 and gamma 0.999 make about "
    "0.95 and 0.99 of a round; V is the round's; Adam at 3e-3, not 5e-7; squared error, not Huber; no value clip",
    credit={"marft": {"gamma": 0.999, "lam": 0.995}},
    loss={"clip": {"clip": 0.2, "epochs": 5, "entropy": 0.01, "kl_most": 0.001, "scale": False}},
    group=1,
    episodes=32,
    regime="C",
    delegate="agent",
    trains=("w",),
    unit="turn",
    knob={"loss": {"kl_most": 0.01}},
)
