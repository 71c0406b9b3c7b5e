"""V, debate panel: clones that share a misconception, and a few independents; how to weigh them."""

from __future__ import annotations

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.world import TeamWorld

debate_panel = TeamWorld(
    "debate_panel",
    "V",
    Config(
        topology="debate",
        vote_items=64,
        votes_per_agent=1,
        max_votes=17,
        types=1,
        round_price=0.0,
        skill_a=(0.85, 0.85, 0.85),
        skill_b=(0.75, 0.75, 0.75),
        misconception_a=(0.35, 0.35, 0.35),
        misconception_b=(0.0, 0.0, 0.0),
        price=(0.002, 0.06),
        spawn_price=0.02,
        max_agents=24,
        max_rounds=4000,
        context_capacity=4000,
    ),
)
