"""SHARP: the team's reward and what the team would lose without the agent, each agent against itself.

    R_m = R + 0.5 (R - R without m's votes) + 0.1 tool;      A = (R_m - mean_m) / (std_m + 1e-6)

Source: SHARP, arXiv 2602.08335, from third-party notes; the full text was not found.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

sharp = Preset(
    source="SHARP, arXiv 2602.08335 (reconstructed)",
    grade="S",
    departures="lambda_s, lambda_p and ddof are ours; masking: the agent's votes are not counted, nobody reacts, and the "
    "majority answers; a worker's skill is the world's, so what is trained is the delegation to it and whether it "
    "repeats the draft that stands; an agent of one rollout alone, and a rollout without any vote, get no credit, "
    "so not spawning at all is never judged",
    credit={"sharp": {"give": "advantage", "lambda_s": 0.5, "lambda_p": 0.1}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=8,
    episodes=32,
    regime="B",
    delegate="agent",
    needs=("workers", "votes"),
    trains=("w", "O2"),
    unit="agent",
    learns=("network", "lm"),
    knob={"credit": {"lambda_s": 1.0}},
    guessed=("lambda_s", "lambda_p", "ddof", "clip", "KL"),
)
