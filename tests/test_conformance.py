"""Every plug-in that the registry knows keeps the contract of its kind, from the moment its file exists."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from chat_endpoint_help import ChatEndpoint
from counterpoint import registry
from counterpoint.app.discover import importers
from counterpoint.errors import Refused
from counterpoint.formats.importer import Importer
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.testing import checks
from endpoint_help import FaultServer
from logs import SAMPLES, files_of
from tiny_help import make_tiny

CHECKS = checks()
PLUGINS = [(kind, name) for kind in registry.kinds() for name in registry.ids(kind)]
# The TeamWorlds are one engine with different numbers. Its laws are checked on fewer items, agents and rounds, of every kind that a
# world has; at their own sizes only some of them are played by other tests.
SMALL = {
    "vote_items": 4, "pool_items": 1, "draft_items": 1, "chain_items": 1, "node_modules": 2, "node_module_size": 2, "max_agents": 5,
    "pool_calls": 12, "draft_calls": 8, "max_rounds": 12,
}  # fmt: skip


def smaller(world: TeamWorld) -> TeamWorld:
    return world.replace(**{name: min(most, getattr(world.config, name)) for name, most in SMALL.items()})


def options(kind: str, name: str, folder: Path, stack: ExitStack) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a check needs beyond the plug-in: samples of what we only read; where a model's weights, lines or endpoint are."""
    if kind == "format" and (SAMPLES / name).is_dir() and isinstance(registry.get(kind, name), Importer):
        return ({f.name: f.data() for f in files_of(SAMPLES / name)},), {}
    if (kind, name) == ("tool", "outbox"):
        return (), {"path": str(folder / "sent.jsonl")}
    if (kind, name) == ("model", "fake"):
        return (), {"task": registry.get("task", "ledger_hunt")}
    if (kind, name) == ("model", "scripted"):
        (folder / "lines").write_text("[*]\nRETURN: 42\n")
        return (str(folder / "lines"),), {}
    if (kind, name) == ("model", "local"):
        return (str(make_tiny(folder)),), {}
    if (kind, name) == ("model", "openai"):
        return ("some-model",), {"base_url": stack.enter_context(FaultServer("RETURN: 42")).url}
    if (kind, name) == ("model", "anthropic"):
        return ("some-model",), {"base_url": stack.enter_context(ChatEndpoint(lambda _: ("RETURN: 42", []))).url}
    return (), {}


@pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=[f"{k}-{n}" for k, n in PLUGINS])
def test_it_conforms(kind: str, name: str, tmp_path: Path) -> None:
    plugin = registry.get(kind, name)
    with ExitStack() as stack:
        given, named = options(kind, name, tmp_path, stack)
        if isinstance(plugin, TeamWorld):
            plugin, named = smaller(plugin), {"episodes": 24}
        try:
            CHECKS[kind](plugin, *given, **named)
        except Refused as error:
            pytest.skip(f"this machine lacks what it needs: {error}")


@pytest.mark.parametrize("name", importers())
def test_an_importer_says_what_was_seen_what_is_exact_and_what_is_lost(name: str) -> None:
    """In a few words each, that stand in a cell of the table in docs/import.md."""
    one = importers()[name]
    for text, most in ((one.versions, 20), (one.exact, 20), (one.lost, 24)):
        assert 0 < len(text.split()) <= most, text
        assert not set("|\n") & set(text)
        assert text == text.strip(" .")


@pytest.mark.parametrize("name", registry.ids("mechanism"))
def test_a_mechanism_signs_its_credit_with_its_own_name(name: str) -> None:
    mechanism = registry.get("mechanism", name)
    given = mechanism.example()
    assert mechanism(given.traces, **given.options).mechanism == name


@pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=[f"{k}-{n}" for k, n in PLUGINS])
def test_its_file_says_in_one_line_what_it_is(kind: str, name: str) -> None:
    line = registry.summary(kind, name)
    assert 10 <= len(line) <= 110
    assert line[-1] in ".:"


def test_every_kind_has_plugins_and_a_contract() -> None:
    assert set(CHECKS) == set(registry.kinds())
    assert all(registry.ids(kind) for kind in registry.kinds())
