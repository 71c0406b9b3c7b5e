"""ReMA: both roles share the outcome, and a turn has one ratio, the geometric mean of its tokens'.

    A = (R - mean) / (std + 1e-6);   rho_turn = exp(mean log rho), its log at most 3;    clip 0.2, dual 3; means of turns

Source: ReMA, arXiv 2503.09501; official code (16 rollouts, ddof 1).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

rema = Preset(
    source="ReMA, arXiv 2503.09501; official code",
    grade="R",
    departures="a turn is what the orchestrator, or a worker, decided in a round; meta-thinking is the orchestrator's part, "
    "reasoning the workers'",
    credit={"rema": {}},
    loss={"clip": {"clip": 0.2, "dual": 3.0, "level": "turn", "log_max": 3.0, "scale": False}},
    group=16,
    episodes=32,
    regime="B",
    trains=("w",),
    unit="turn",
    learns=("network", "lm"),
    knob={"regime": "C", "delegate": "agent", "alternate": 10},
)
