"""The contracts of the laboratory's kinds can fail: each check catches a plug-in that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from counterpoint import registry
from counterpoint.lab import testing
from counterpoint.lab.lm.model import Call, Completion, ModelFailed
from counterpoint.lab.tasks.task import Choice
from counterpoint.lab.team.tool import ToolResult
from counterpoint.lab.team.topology import Topology
from counterpoint.lab.testing import CHECKS, check_claim, check_model, check_preset, check_tool, check_topology
from counterpoint.testing import ConformanceError

# -- presets -------------------------------------------------------------------------------------------------------------


_calls = iter(range(10**6))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"source": " "}, "states no source"),
        ({"reward": {}}, "pays nothing"),
        ({"reward": {"team_outcome": {"weight": min}}}, "holds code"),
        ({"rates": {"policy": 1e-3}}, "rates name"),
        ({"rates": {"policy": 0.0, "spawn": 1e-3, "critic": 1e-3}}, "above 0"),
        ({"credit": {"no_such_credit": {}}}, "names what there is not"),
        ({"credit": {"group_relative": {"no_such_option": 1}}}, "names what there is not.*no_such_option"),
        ({"credit": {"vdn": {}}}, "names what there is not.*do not go together"),
    ],
)
def test_a_broken_preset_is_caught(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_preset(replace(registry.get("preset", "grpo"), **change))


# -- topologies, tools, models -------------------------------------------------------------------------------------------


async def _alone(team: Any) -> str:
    lead = team.root("orchestrator")
    await lead.choose("turn", [Choice("stop", "", "none")], key="lead|turn|1")
    return "none"


async def _drifting(team: Any) -> str:
    lead = team.root("orchestrator")
    await lead.choose("turn", [Choice("stop", "", "none")], key=f"lead|turn|{next(_calls)}")
    return "none"


async def _silent_team(team: Any) -> Any:
    return None


@pytest.mark.parametrize(
    ("topology", "says"),
    [
        (3, "not a Topology"),
        (Topology(run=lambda team: "answer"), "no coroutine"),  # type: ignore[arg-type, return-value]
        (Topology(run=_alone, root=""), "no role for its root"),
        (Topology(run=_alone, more={"judge": ("sql",)}), "a role that does not work"),
        (Topology(run=_silent_team), "a small team ends in TypeError"),
        (Topology(run=_alone, root="chair"), "role of its root, 'chair'"),
        (Topology(run=_drifting), "second time"),
    ],
)
def test_a_broken_topology_is_caught(topology: Any, says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_topology(topology)


class _Doubles:
    """A tool that doubles a number."""

    name, version, effect, about, main = "double", "1", "pure", "doubles a number; argument: the number", "number"
    arguments = {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]}
    example: Any = {"number": "21"}

    def __init__(self, instance: Any, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self, name, value)

    async def call(self, args: Any, place: Any) -> Any:
        try:
            return ToolResult(str(2 * int(args["number"])))
        except ValueError:
            return ToolResult("no number", ok=False, error="malformed")

    async def close(self) -> None: ...


async def _raises(args: Any, place: Any) -> ToolResult:
    return ToolResult(str(2 * int(args["number"])))


async def _drifts(args: Any, place: Any) -> ToolResult:
    return ToolResult(str(next(_calls)))


async def _talks(args: Any, place: Any) -> str:
    return "42"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": ""}, "no name, version"),
        ({"effect": "harmless"}, "none of pure"),
        ({"arguments": {"type": "string"}}, "no schema of an object"),
        ({"main": "digits"}, "main argument 'digits'"),
        ({"example": None}, "no `example`"),
        ({"example": {"number": 21}}, "refuses its own example"),
        ({"example": {"number": "many"}}, "own example is not answered"),
        ({"call": _talks}, "not a ToolResult"),
        ({"call": _drifts}, "another result"),
        ({"call": _raises}, "ends in ValueError"),
    ],
)
def test_a_broken_tool_is_caught(change: dict[str, Any], says: str) -> None:
    check_tool(_Doubles)
    with pytest.raises(ConformanceError, match=says):
        check_tool(_Doubles, **change)


class _Echo:
    """A model that says the same thing always."""

    name, version = "echo", "1"

    def __init__(self, say: Callable[[], Any] = lambda: Completion(text="RETURN: 42", tokens_out=2), **changes: Any) -> None:
        self._say = say
        for name, value in changes.items():
            setattr(self, name, value)

    async def complete(self, call: Call) -> Any:
        return self._say()

    async def close(self) -> None: ...


def _fails() -> Completion:
    raise ModelFailed("down", "nobody is there")


@pytest.mark.parametrize(
    ("factory", "given", "says"),
    [
        (3, (), "not a function"),
        (lambda: _Echo(), (), "no docstring"),
        (dict, (), "makes a dict"),
        (_Echo, (lambda: "42",), "not a Completion"),
        (_Echo, (lambda: Completion(text="x", tokens_out=-1),), "tokens_out is -1"),
        (_Echo, (lambda: Completion(text="x", logps=(-1.0,), token_ids=(1, 2)),), "differ in length"),
        (_Echo, (lambda: Completion(text=str(next(_calls))),), "another text"),
        (_Echo, (_fails,), "does not answer a plain call.*nobody is there"),
    ],
)
def test_a_broken_model_is_caught(factory: Any, given: tuple[Any, ...], says: str) -> None:
    check_model(_Echo)
    with pytest.raises(ConformanceError, match=says):
        check_model(factory, *given)


# -- claims ---------------------------------------------------------------------------------------------------------------


def _holds(*, seed: int, seeds: int, scale: float = 1.0) -> Iterator[Any]:
    """Would cost an hour: a check does not run it."""
    raise AssertionError("a claim was run")


def _positional(seed: int, seeds: int) -> None:
    """Takes its seeds by place."""


def _demanding(*, seed: int, seeds: int, model: str) -> None:
    """Needs something that nobody gives it."""


def _silent(*, seed: int, seeds: int) -> None: ...


def test_a_claim_is_looked_at_and_not_run() -> None:
    check_claim(_holds)
    assert CHECKS["claim"] is check_claim


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        (3, "not a function"),
        (lambda: None, "`seed`"),
        (_positional, "keyword-only"),
        (_demanding, "model"),
        (_silent, "docstring"),
    ],
)
def test_a_broken_claim_is_caught(claim: Any, says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_claim(claim)


def test_public_names_are_there() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)
    assert testing.checks() is CHECKS
