"""MARSHAL: self-play; a turn is worth what its player gains from then on, against the mean of that player's.

    G_t = sum of the player's rewards from turn t on;   A = G - mean over all turns of (game, player)

Source: MARSHAL, arXiv 2510.15414; official code (whitens twice and takes the mean of the distinct returns).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

marshal = Preset(
    source="MARSHAL, arXiv 2510.15414; official code",
    grade="R",
    departures="the game is a team against a second side that chooses its attacks, AV1 to AV8; a turn is a round, paid by "
    "what it changed in the team's return; the team is one player, its orchestrator, whose decisions alone learn "
    "on its side; the means are over the whole batch, not by task; as_released is the mean of the distinct returns alone: the "
    "two whitenings of the released code are over tokens, and are left out",
    credit={"marshal": {"channel": "zero_sum", "key": "batch"}},
    loss={"clip": {"clip": 0.2, "dual": 1.4, "scale": False, "kl": "k3", "kl_weight": 0.2}},
    group=1,
    episodes=32,
    regime="B",
    needs=("opponent",),
    trains=("O1", "O2", "O3", "O4", "O5", "opponent"),
    unit="turn",
    as_released={"credit": {"form": "unique"}},
    knob={"loss": {"kl_weight": 0.02}},
)
