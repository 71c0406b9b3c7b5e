"""W2, wide discover: a pool with an unknown number of finds; when to stop, and how wide to search."""

from __future__ import annotations

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.world import TeamWorld

wide_discover = TeamWorld(
    "wide_discover",
    "W2",
    Config(pool_items=1, types=1, price=(0.08, 0.3), spawn_price=0.5, round_price=0.6, max_agents=12, pool_calls=100),
)
