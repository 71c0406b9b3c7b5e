"""Every plug-in that the registry knows keeps the contract of its kind, from the moment its file exists."""

from __future__ import annotations

import pytest

from counterpoint import registry
from counterpoint.envs.teamworld.world import TeamWorld
from counterpoint.testing import CHECKS

PLUGINS = [(kind, name) for kind in registry.kinds() for name in registry.ids(kind)]
# The TeamWorlds are one engine with different numbers. Its laws are checked on fewer items and agents, of every kind that a world has;
# at their own sizes only some of them are played by other tests.
SMALL = {
    "vote_items": 16, "pool_items": 1, "draft_items": 2, "chain_items": 3, "node_modules": 2, "node_module_size": 4, "max_agents": 12,
    "pool_calls": 30, "draft_calls": 16,
}  # fmt: skip


def smaller(world: TeamWorld) -> TeamWorld:
    return world.replace(**{name: min(most, getattr(world.config, name)) for name, most in SMALL.items()})


@pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=[f"{k}-{n}" for k, n in PLUGINS])
def test_it_conforms(kind: str, name: str) -> None:
    plugin = registry.get(kind, name)
    if kind not in CHECKS:
        pytest.skip(f"plug-ins of kind {kind} have no contract yet")
    CHECKS[kind](smaller(plugin) if isinstance(plugin, TeamWorld) else plugin)


@pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=[f"{k}-{n}" for k, n in PLUGINS])
def test_its_file_says_in_one_line_what_it_is(kind: str, name: str) -> None:
    line = registry.summary(kind, name)
    assert 10 <= len(line) <= 110
    assert line[-1] in ".:"


def test_there_are_formats_and_commands() -> None:
    assert {"csv", "jsonl", "parquet", "perfetto", "survey"} <= set(registry.ids("format"))
    assert {"check", "export"} <= set(registry.ids("command"))
