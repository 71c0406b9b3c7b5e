"""CoLLM-MAAC: actors with a central critic, one-step targets, neither ratio nor clip.

    A_t = r_t + gamma V_{t+1} - V_t,  standardised within each agent and turn;      loss = -A log pi

Source: CoLLM-MAAC, arXiv 2601.21972; CoMLRL code (central critic, gamma 1, ddof 0, std at least 1e-6).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

collm_maac = Preset(
    source="CoLLM-MAAC, arXiv 2601.21972; CoMLRL code",
    grade="R",
    departures="V is the team's of the round (central, cc); an agent of one rollout alone in a round gets 0; no KL in the reward",
    credit={"gae": {"preset": "maac", "by": "turn"}},
    loss={"reinforce": {"scale": False}},
    group=1,
    episodes=32,
    regime="C",
    delegate="agent",
    rates={"policy": 0.01, "spawn": 0.02, "critic": 0.003},
    trains=("w",),
    unit="turn",
    knob={"credit": {"chain": "agent"}},
)
