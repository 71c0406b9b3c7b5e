"""WideSeek-R1: one advantage per rollout for all agents; valid answers and opened pages pay, long turns cost.

    R = outcome + 0.1 format + 0.05 opened - 0.1 clip((longest turn - 3000) / 2000, 0, 1);      A = (R - mean) / (std + 1e-6)

    L = 1/G sum_i 1/N_i sum_a 1/T_a sum over the T_a tokens (decisions) of agent a of rollout i

Source: WideSeek-R1, arXiv 2602.04634; RLinf code.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

wideseek_r1 = Preset(
    source="WideSeek-R1, arXiv 2602.04634; RLinf code",
    grade="R",
    departures="F1 is the team's reward as a share of the world's optimum; a page is opened by any tool call that did not fail; "
    "a network's tokens are its decisions; every turn trains, also after a failure",
    reward={"wideseek": {"share": True}},
    credit={"wideseek": {}},
    loss={"clip": {"clip": 0.2, "clip_high": 0.28, "dual": 10.0, "scale": False, "weigh": "agent", "kl_weight": 0.001}},
    group=8,
    episodes=32,
    regime="B",
    delegate="agent",
    needs=("workers",),
    trains=("O1", "O2", "w"),
    unit="team",
    learns=("network", "lm"),
    knob={"loss": {"kl_weight": 0.01}},
)
