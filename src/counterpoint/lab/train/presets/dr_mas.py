"""Dr. MAS: every agent against itself, over all of its calls in the rollouts of the task.

    A = (R - mu_k) / (sigma_k + 1e-6)      mu_k, sigma_k of agent k's invocations in the group, ddof 1

Source: Dr. MAS, arXiv 2602.08847; official code: group key (task, agent), 8 rollouts, no KL.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

dr_mas = Preset(
    source="Dr. MAS, arXiv 2602.08847; official code",
    grade="R",
    departures="agents are named by the place at which they were spawned; a worker's skill is the world's, so what is trained "
    "is the delegation to it and whether it repeats the draft that stands; an agent of one rollout alone gets 0, "
    "not its raw reward; no penalty for invalid actions, which cannot be made",
    credit={"agent_wise": {"by": "agent", "convention": "dr_mas", "singleton": "zero"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=8,
    episodes=32,
    regime="C",
    delegate="agent",
    trains=("w",),
    unit="agent",
    learns=("network", "lm"),
    knob={"loss": {"clip_high": 0.28}},
)
