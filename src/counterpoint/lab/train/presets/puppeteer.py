"""Puppeteer: plain REINFORCE on the orchestrator's decisions, with reward to go and a growing step cost.

    R_T = r - lambda C_T,   R_t = gamma R_{t+1} - lambda C_t,   C_t = log(1 + t / phi);      no baseline, no critic

Source: Puppeteer, arXiv 2505.19591 (equation from transcriptions, code read).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

puppeteer = Preset(
    source="Puppeteer, arXiv 2505.19591; official code",
    grade="R",
    departures="r is what the team added to the draft that was there before it began, since there is no baseline; a round has "
    "five decisions and an episode tens of rounds, where the paper has four steps: phi is 100; actions are sampled,"
    " not taken by threshold with forks; the policy reads features, not a reward model's embedding",
    reward={"team_outcome": {"gain": True}},
    credit={"puppeteer": {"lam": 0.1, "gamma": 0.99, "phi": 100.0}},
    loss={"reinforce": {"scale": False}},
    group=1,
    episodes=32,
    regime="A",
    rates={"policy": 2e-2, "spawn": 5e-2, "critic": 3e-3},
    needs=("workers",),
    trains=("O2", "O5"),
    unit="orchestrator",
    learns=("network", "lm"),
    as_released={"credit": {"form": "released", "most": 100}, "loss": {"entropy": 1.0}},
    knob={"credit": {"lam": 0.03}},
    guessed=("phi",),
)
