"""SPIRAL: self-play of two sides with opposite rewards; each side against a running mean of its own.

    A = R_p - b_p;   b_p <- 0.95 b_p + 0.05 R_p,  b from 0;      no division by a spread, no KL

Source: SPIRAL, arXiv 2506.24119; official code (one baseline per role and process; the paper has one per game and role).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

spiral = Preset(
    source="SPIRAL, arXiv 2506.24119; official code",
    grade="R",
    departures="the game is a team against a second side that chooses its attacks, AV1 to AV8; what one side gains is the "
    "team's return, in points, not won or lost; both sides are heads of one network; one step of clipped PPO per "
    "part of a batch",
    reward={"zero_sum": {}},
    credit={"spiral": {"decay": 0.95, "key": "batch"}},
    loss={"clip": {"clip": 0.2, "scale": False, "epochs": 2}},
    group=1,
    episodes=32,
    regime="B",
    needs=("opponent",),
    trains=("O1", "O2", "O3", "O4", "O5", "w", "opponent"),
    unit="role",
    knob={"credit": {"decay": 0.8}},
)
