"""P, project graph: planted modules; who builds what decides what fits."""

from __future__ import annotations

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.world import TeamWorld

project_graph = TeamWorld(
    "project_graph",
    "P",
    Config(node_modules=6, node_module_size=8, types=1, max_agents=24, price=(0.01, 0.03), spawn_price=0.4, round_price=0.3),
)
