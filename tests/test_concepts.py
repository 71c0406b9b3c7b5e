"""The goals of the house as `tools/concepts.py` counts them; what is not reached yet is a bound that only shrinks."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "concepts.py"

# Not reached yet: a bound in place of the goal. Lower it when the count falls; an entry whose goal is reached has to go.
NOT_YET: dict[str, int] = {}


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("concepts", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["concepts"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["concepts"]


def test_every_concept_is_within_its_goal_or_its_bound(tool: ModuleType) -> None:
    found = {concept.name: concept for concept in tool.concepts()}
    over = {n: c.count for n, c in found.items() if c.goal is not None and c.count > max(c.goal, NOT_YET.get(n, 0))}
    assert over == {}
    assert [n for n in NOT_YET if found[n].count <= (found[n].goal or 0)] == [], "reached: take these off the list"


def test_parts_of_settings_add_up(tool: ModuleType) -> None:
    settings = tool.settings()
    assert sum(settings.parts.values()) == settings.count
    assert min(settings.parts.values()) > 0


def test_what_counts_as_a_participle(tool: ModuleType) -> None:
    assert all(map(tool.is_participle, ("found", "Played", "NobodyChosen", "most_said")))
    assert not any(map(tool.is_participle, ("find", "is_given", "as_told", "Choice", "events_of_types", "left_over")))


def test_a_shared_option_is_counted_once(tool: ModuleType) -> None:
    from counterpoint.options import Channel

    def one(traces: object, *, channel: Channel = "team", depth: int = 1) -> None: ...
    def two(traces: object, *, channel: Channel = "R2", depth: int = 2) -> None: ...

    # the names are looked up where the functions are written
    one.__annotations__["channel"] = two.__annotations__["channel"] = Channel
    assert tool.option_names([one, two]) == ({"channel"}, 2, 4)


def test_the_exit_code_says_whether_something_is_over(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    code = tool.main(["--json"])
    assert code == any(c["is_over"] for c in json.loads(capsys.readouterr().out))
    assert tool.main([]) == code
    assert "settings" in capsys.readouterr().out
