"""M-GRPO: one baseline for the main agent, one for all its sub-agents, as many of them in every rollout.

    main: (R - mean_K) / std_K;      sub: the same over d x K sub-agents;   R_sub = 0.4 team + 0.5 its own score;  population std

Source: M-GRPO, arXiv 2511.13288 (paper form; the released code has neither the expert's score nor the alignment).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

m_grpo = Preset(
    source="M-GRPO, arXiv 2511.13288",
    grade="P",
    departures="the expert's score of a sub-task is the share of a worker's returns that were right (R2), and the outcome is "
    "the team's reward, not 0 or 1; format is always valid; main and sub agents are heads of one team, apart in "
    "their networks; ratios are per decision, not per sequence",
    reward={"team_outcome": {"weight": 0.4}, "individual": {"weight": 0.5}},
    credit={"hierarchical": {"convention": "m_grpo", "sub": "task", "d": 8, "singleton": "zero"}},
    loss={"clip": {"clip": 0.2, "clip_high": 0.28, "scale": False}},
    group=8,
    episodes=32,
    regime="C",
    delegate="agent",
    trains=("O1", "O2", "w"),
    unit="agent",
    learns=("network", "lm"),
    as_released={"reward": {"team_outcome": {"weight": 1.0}, "individual": {"weight": 0.0}}, "credit": {"d": None}},
    knob={"credit": {"d": 4}},
)
