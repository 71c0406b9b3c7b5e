"""MAPPO: PPO with one critic of the whole team, generalised advantages along the team's actions, standardised.

    d_t = r_t + gamma V_{t+1} - V_t,   A_t = d_t + gamma lam A_{t+1};      V of the team's state;   clip 0.2

Source: MAPPO, arXiv 2103.01955; official code (gamma 0.99, lam 0.95 per step, ddof 0, eps 1e-5).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

mappo = Preset(
    source="MAPPO, arXiv 2103.01955; official code",
    grade="R",
    departures="a step is an action of the trace, of which a round has ten or more: lam 0.995 and gamma 0.999 make about 0.95 "
    "and 0.99 of a round; V is the draft's value so far and what the team critic expects of going on, in units of "
    "its own spread; 4 epochs in 3 parts, not up to 15 in one; squared error, not Huber; no value clip",
    credit={"gae": {"preset": "mappo", "gamma": 0.999, "lam": 0.995}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=1,
    episodes=32,
    regime="B",
    unit="turn",
    knob={"loss": {"epochs": 10}},
)
