"""W1, wide verify: many yes/no questions, two model families with shared misconceptions."""

from __future__ import annotations

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.world import TeamWorld

wide_verify = TeamWorld("wide_verify", "W1", Config(vote_items=512, max_agents=128))
