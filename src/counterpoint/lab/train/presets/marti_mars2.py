"""MARTI-MARS2: every node of a search tree against all nodes of the tree, with one ratio per generation.

    r + g (r - b),  b of parent and siblings;   A = (r - mean) / (std + 1e-9) over the tree;   rho = exp(mean log rho) of the node

Source: MARTI-MARS2, arXiv 2602.07848; MARTI code (GSPO, veto 1e-4, k3 1e-3).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

marti_mars2 = Preset(
    source="MARTI-MARS2, arXiv 2602.07848; MARTI code",
    grade="R",
    departures="a node is a round, its reward the share of its answers that were right; the tree is of rollouts that part at "
    "rounds drawn at random, not of a search; the sampler is the network itself, so that no truncated importance "
    "weight is needed; no penalty for length",
    credit={"mars2": {"by": "turn", "channel": "R2", "shape": True, "singleton": "zero"}},
    loss={"clip": {"clip": 0.2, "level": "turn", "veto": 0.0001, "kl": "k3", "kl_weight": 0.001, "scale": False}},
    group=8,
    episodes=32,
    tree=(2, 4),
    regime="C",
    delegate="agent",
    needs=("workers", "votes"),
    trains=("w",),
    unit="turn",
    as_released={"credit": {"shape": False}},
    knob={"loss": {"kl_weight": 0.01}},
)
