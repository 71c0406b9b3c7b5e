"""SEPO: a verdict of 1 or -1, moved by how an agent and its peers split the merit; roles learn in turn.

    R_i = R +- 0.2 (w_i - mean w),   w = 0.3 self + 0.7 peer;      A_i = R_i - mean over the task

Source: SEPO (with CCPO), arXiv 2603.21563; official code.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

sepo = Preset(
    source="SEPO (CCPO), arXiv 2603.21563; official code",
    grade="R",
    departures="ratings are an oracle's, the share of an agent's claims that were right, in place of a model's self- and "
    "peer-evaluation; the verdict is whether a rollout beats the mean of its task; any number of agents, an even split "
    "being 0.5; not for language models, where nobody rates",
    credit={"peer_split": {"threshold": "mean", "singleton": "zero"}},
    loss={"clip": {"clip": 0.2, "dual": 3.0, "scale": False}},
    group=16,
    episodes=32,
    regime="C",
    delegate="agent",
    needs=("workers",),
    trains=("w",),
    unit="role",
    learns=("network",),
    alternate=10,
    knob={"credit": {"lam": 0.5}},
)
