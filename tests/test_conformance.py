"""Every plug-in that the registry knows keeps the contract of its kind, from the moment its file exists."""

from __future__ import annotations

import pytest

from counterpoint import registry
from counterpoint.testing import CHECKS

PLUGINS = [(kind, name) for kind in registry.kinds() for name in registry.ids(kind)]


@pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=[f"{k}-{n}" for k, n in PLUGINS])
def test_it_conforms(kind: str, name: str) -> None:
    plugin = registry.get(kind, name)
    if kind not in CHECKS:
        pytest.skip(f"plug-ins of kind {kind} have no contract yet")
    CHECKS[kind](plugin)


@pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=[f"{k}-{n}" for k, n in PLUGINS])
def test_its_file_says_in_one_line_what_it_is(kind: str, name: str) -> None:
    line = registry.summary(kind, name)
    assert 10 <= len(line) <= 110
    assert line[-1] in ".:"


def test_there_are_formats_and_commands() -> None:
    assert {"csv", "jsonl", "parquet", "perfetto", "survey"} <= set(registry.ids("format"))
    assert {"check", "export"} <= set(registry.ids("command"))
