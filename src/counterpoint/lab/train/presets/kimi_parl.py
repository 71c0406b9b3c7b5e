"""PARL: only the orchestrator learns, centred in its group, with parallel and finish terms that fade to zero.

    loss = -exp(clamp(log rho, low, high)) A + tau (log rho)^2, the mean over all decisions
    r = lambda1 r_parallel + lambda2 r_finish + r_perf;      A = r - mean(r), no scale;   lambdas fall to 0 over the run

Source: Kimi K2.5, arXiv 2602.02276, section on PARL.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

kimi_parl = Preset(
    source="Kimi K2.5 (PARL), arXiv 2602.02276",
    grade="P",
    departures="lambdas (0.2), their straight fall, r_parallel = min(1, spawned / 10) and r_finish = returned / spawned are "
    "ours: the report publishes none; bounds on log ratios (2 times likelier or half as likely) and tau are ours too;"
    " no budget of critical steps, because the world itself charges for time; Adam, not MuonClip",
    reward={"team_outcome": {}, "orchestration": {"parts": ("parallel", "finish"), "weight": {"from": 0.2, "to": 0.0}}},
    credit={"critical_steps": {}},
    loss={"clip": {"mask_low": -0.693147, "mask_high": 0.693147, "pull": 0.1, "weigh": "row", "scale": False}},
    group=8,
    episodes=32,
    regime="A",
    needs=("workers",),
    trains=("O1", "O2"),
    unit="orchestrator",
    learns=("network", "lm"),
    knob={"reward": {"orchestration": {"weight": {"from": 0.1, "to": 0.0}}}},
    guessed=("lambda1 and lambda2", "how they fall", "forms of r_parallel and r_finish", "alpha, beta and tau of the mask"),
)
