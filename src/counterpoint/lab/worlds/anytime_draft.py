"""A, anytime draft: drafts improve, then rot unseen; patience decides."""

from __future__ import annotations

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.world import TeamWorld

anytime_draft = TeamWorld(
    "anytime_draft",
    "A",
    Config(
        draft_items=8,
        types=1,
        round_price=0.0,
        price=(0.06, 0.12),
        spawn_price=0.6,
        max_agents=12,
        max_rounds=2000,
        context_capacity=2000,
    ),
)
