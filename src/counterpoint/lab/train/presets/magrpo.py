"""MAGRPO: joint actions of a task against each other, the same advantage for every agent; no ratio, no clip.

    A_g = R_g - mean(R);      loss = -A log pi, a step for every task

Source: MAGRPO, arXiv 2508.04652; CoMLRL code (mean only, 4 rollouts, a batch of one prompt).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

magrpo = Preset(
    source="MAGRPO, arXiv 2508.04652; CoMLRL code",
    grade="R",
    departures="agents are named by the place at which they were spawned, and an agent of one rollout alone gets 0; rollouts do "
    "not branch turn by turn (aligned, one turn): the tree of the paper costs 4 to the number of turns; with language models "
    "each of the 8 steps of an update is on an eighth of the agents' calls, whatever their tasks",
    credit={"magrpo": {"mode": "aligned"}},
    loss={"reinforce": {"scale": False, "steps": 8}},
    group=4,
    episodes=32,
    regime="C",
    delegate="agent",
    trains=("w",),
    unit="agent",
    learns=("network", "lm"),
    knob={"credit": {"convention": "m_grpo"}},
)
