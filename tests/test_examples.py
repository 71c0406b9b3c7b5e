"""Every example runs as a user would run it, twice, and leaves what it says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from warm_help import commands_in

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
# Imported once, before the two runs of the example, and not in each.
HEAVY = {"record_openai_agents": "agents", "record_langgraph": "langgraph.graph"}


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A process of its own each, forked from one that has imported the package."""
    with commands_in(tmp_path_factory.mktemp("warm")) as programs:
        yield f"{programs}/python"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_it_runs(path: Path, tmp_path: Path, python: str) -> None:
    environment = {**os.environ, "WARM_IMPORTS": HEAVY.get(path.stem, "")}
    for _ in range(2):
        done = subprocess.run([python, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        assert "problems: []" in done.stdout
