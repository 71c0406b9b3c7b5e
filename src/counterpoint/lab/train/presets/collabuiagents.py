"""CollabUIAgents: a critic scores every step, and better steps are preferred to worse ones at the same place.

    pairs (a, b): the same task, role, item and place, score(a) > score(b);      loss: DPO, beta 0.1

Source: CollabUIAgents, arXiv 2502.14496 (abstract).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

collabuiagents = Preset(
    source="CollabUIAgents, arXiv 2502.14496 (abstract)",
    grade="S",
    departures="the critic is an oracle: whether a claim was right (R2), a verdict true (R6), a draft better (R4); the worse "
    "step of a pair was played in another rollout, where the paper has a model make it up; who talks to whom is learned with the "
    "briefs, not by rewiring at random; spawning and stopping, which it does not train, stay as they are; not for language "
    "models, since text teams log no score of a step",
    credit={"step_pairs": {}},
    loss={"dpo": {"beta": 0.1, "pairs": "notes", "most": 256, "skips": ("item",)}},
    group=8,
    episodes=32,
    regime="B",
    delegate="agent",
    needs=("workers",),
    trains=("O3", "w"),
    unit="turn",
    learns=("network",),
    knob={"loss": {"beta": 0.3}},
    guessed=("beta", "group", "regime"),
)
