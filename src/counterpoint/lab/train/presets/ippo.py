"""IPPO: every agent its own PPO, with its own chain of rounds and a critic that sees no more than it does.

    A_t = d_t + gamma lam A_{t+1} along the rounds of one agent;      networks apart, clip 0.2

Source: IPPO, arXiv 2011.09533; code of MAPPO with local observations (gamma 0.99, lam 0.95).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

ippo = Preset(
    source="IPPO, arXiv 2011.09533; MAPPO code",
    grade="R",
    departures="a step is a round in which the agent acted; every agent's V is the public one, of the draft so far and of going "
    "on: workers have no critic of their own; advantages are standardised over all agents; squared error, not Huber; "
    "no value clip",
    credit={"gae": {"preset": "ippo", "by": "turn", "normalise": "mappo"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=1,
    episodes=32,
    regime="C",
    delegate="agent",
    unit="agent",
    knob={"loss": {"epochs": 10}},
)
