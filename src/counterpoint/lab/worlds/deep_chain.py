"""D, deep chain: every hop needs the last; spawning only costs, verifying pays."""

from __future__ import annotations

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.world import TeamWorld

deep_chain = TeamWorld(
    "deep_chain",
    "D",
    Config(
        chain_items=12,
        orchestrator_works=True,
        round_price=0.0,
        price=(0.12, 0.15),
        spawn_price=2.0,
        check_price=0.1,
        max_agents=12,
        types=1,
        max_rounds=2000,
        context_capacity=2000,
    ),
    silent={"communicate": "the orchestrator does the work itself, so nobody is briefed"},
)
