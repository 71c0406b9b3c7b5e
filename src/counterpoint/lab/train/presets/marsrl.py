"""MarsRL: who answers is paid for a right answer, who checks for a true verdict, each against its own stage.

    r = 1 if right (or, for a verdict, true) else 0;      A = (r - mean) / (std + 1e-6) over the same stage

Source: MarsRL, arXiv 2511.11373.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

marsrl = Preset(
    source="MarsRL, arXiv 2511.11373",
    grade="P",
    departures="samples of a stage share their task, not their input: they are not branched from it; the orchestrator, which the "
    "paper does not have, learns from the team's reward; no sampling that prefers wrong solutions, no pipeline of "
    "updates; not for language models, since text teams log no score of a stage",
    reward={"team_outcome": {}, "marsrl": {}},
    credit={"marsrl": {"inputs": "any", "others": "team"}},
    loss={"clip": {"clip": 0.2, "scale": False, "kl_weight": 0.001}},
    group=8,
    episodes=32,
    regime="B",
    delegate="agent",
    needs=("workers",),
    trains=("w",),
    unit="role",
    learns=("network",),
    knob={"loss": {"kl_weight": 0.01}},
    guessed=("KL coefficient", "ddof"),
)
