"""M, mixture: a long campaign with work of every kind, in which one family wears out."""

from __future__ import annotations

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.world import TeamWorld

mixture = TeamWorld(
    "mixture",
    "M",
    Config(vote_items=96, pool_items=2, draft_items=6, chain_items=6, node_modules=3, types=1, max_agents=48, drift=(0.002, 0.0)),
)
