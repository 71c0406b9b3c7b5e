"""Difference rewards: the team's return less what it would have been without the agent, by real forks.

    D_i = G(z) - G(z without i);      for every delegation to agent i

Source: Wolpert and Tumer, 2001 (textbook form).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

difference_rewards = Preset(
    source="Wolpert and Tumer, 2001",
    grade="T",
    departures="absence is the default act: an agent is never spawned; every fork is played on by the network with the same "
    "noise and is paid for; a clipped loss; only agents get credit, so that spawns and stops stay as they are (credit "
    "option `also` gives spawns one)",
    credit={"difference": {}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=1,
    episodes=32,
    regime="A",
    delegate="agent",
    needs=("workers",),
    trains=("O2", "O3"),
    unit="agent",
    knob={"loss": {"epochs": 8}},
    guessed=("loss",),
)
