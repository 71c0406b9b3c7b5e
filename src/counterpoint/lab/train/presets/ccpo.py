"""CCPO: the team's verdict, and a bonus where words to another agent decide it; roles learn in turn.

    R = 1 or -1;   thinker i: R_i = R + 0.2 ([R = 1, b_i < 0] - [R = -1, b_i > 0]);   solver: R;   A_i = R_i - mean of the task

b_i is the mean verdict of the task's rollouts without the words of i. Clip 0.2, dual 3.

Source: CCPO, arXiv 2603.21563; official code (16 rollouts, no KL).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

ccpo = Preset(
    source="CCPO, arXiv 2603.21563; official code",
    grade="R",
    departures="thinkers are the workers, each left out by itself, where the source has one; the solver is the orchestrator; "
    "without an agent means that its votes are not counted, where the source lets the solver answer again; a verdict is right "
    "where the outcome is above the mean of its task; an agent of one rollout alone, and a rollout without votes, get no credit",
    credit={"sharp": {"give": "advantage", "event": "verdict", "lambda_s": 0.2, "lambda_p": 0.0, "scale": False}},
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
