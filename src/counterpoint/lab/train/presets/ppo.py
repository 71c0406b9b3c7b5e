"""PPO: generalised advantages along the team's rounds with one critic, whitened over the batch.

    d_t = r_t + gamma V_{t+1} - V_t,   A_t = d_t + gamma lam A_{t+1},  then (A - mean) / std;      clip 0.2, dual clip 3

Source: PPO, arXiv 1707.06347; arithmetic of verl (gamma 1, lam 0.95, ddof 1).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

ppo = Preset(
    source="PPO, arXiv 1707.06347; verl",
    grade="R",
    departures="a step is a round, not a token; V is the value of the draft so far and what the team critic expects of going on; "
    "4 epochs in 3 parts; squared error, no value clip",
    credit={"gae": {"preset": "ppo", "by": "turn"}},
    loss={"clip": {"clip": 0.2, "dual": 3.0, "scale": False}},
    group=1,
    episodes=32,
    regime="B",
    unit="turn",
    knob={"credit": {"lam": 0.99}},
)
