"""plugin_name: a review desk, where agents of two models, one cheap and one good, judge cases.

Always true: the rules are those of TeamWorld, so its policies play it and `counterpoint train net` learns in it; the numbers are
this world's own. Every draw depends on the seed alone, and the optimum is known.
"""

from __future__ import annotations

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.world import TeamWorld

plugin_name = TeamWorld(
    "plugin_name",
    "plugin_name",
    Config(  # `counterpoint train worlds W1` explains every number
        vote_items=12,
        types=1,
        difficulty_shares=(0.6, 0.3, 0.1),
        skill_a=(0.8, 0.7, 0.6),
        skill_b=(0.95, 0.9, 0.85),
        price=(0.01, 0.05),
        spawn_price=0.1,
        round_price=0.02,
        max_agents=8,
        max_rounds=60,
    ),
)


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a world, and its optimum is what was computed by hand."""

# from here import plugin_name
from counterpoint.lab.testing import check_world


def test_it_keeps_the_contract() -> None:
    check_world(plugin_name)


def test_an_optimum_by_hand() -> None:
    # a call that costs more than any answer is worth is not made: of four cases two are right by guessing
    assert plugin_name.replace(vote_items=4, price=(5.0, 5.0)).optimum().value == 2.0
