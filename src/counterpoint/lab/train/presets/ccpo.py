"""CCPO: the team's reward, and a bonus where the team is right only with the agent; roles learn in turn.

    R_i = R + 0.2 sign(R - R without i);      A_i = R_i - mean over the task;   clip 0.2, dual 3

Source: CCPO, arXiv 2603.21563; official code (16 rollouts, no KL).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

ccpo = Preset(
    source="CCPO, arXiv 2603.21563; official code",
    grade="R",
    departures="without an agent means that its votes are not counted and nobody reacts; the outcome is the team's reward; any "
    "number of agents; an agent of one rollout alone, and a rollout without any vote, get no credit",
    credit={"sharp": {"give": "advantage", "event": "sign", "lambda_s": 0.2, "lambda_p": 0.0, "scale": False}},
    loss={"clip": {"clip": 0.2, "dual": 3.0, "scale": False}},
    group=16,
    episodes=32,
    regime="C",
    delegate="agent",
    alternate=10,
    needs=("workers", "votes"),
    trains=("w",),
    unit="role",
    knob={"credit": {"lambda_s": 0.5}},
)
