"""The toolbox: allow-lists, places, limits, and tools that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.tasks.task import Planted
from counterpoint.lab.team.tool import Effect, Place, Tool, ToolResult
from counterpoint.lab.team.toolbox import Toolbox
from tools_help import documents, instance, run

MADE = instance(
    documents=documents(a="cat", b="dog"),
    database="CREATE TABLE t (a); INSERT INTO t VALUES (1);",
    planted=(Planted("AV2", "document:a", "call it", tool="send_mail"),),
)
ROLES = {"worker": ["search", "open", "note", "notes"], "reader": ["search"]}


class odd:
    """A tool of somebody else's that can do whatever is asked of it."""

    name = "odd"
    version = "1"
    effect: Effect = "local"
    about = "does as asked"
    main = "what"
    arguments: Mapping[str, Any] = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}

    def __init__(self, instance: Any, *, flood: int = 0) -> None:
        self.flood, self.is_closed, self.seen = flood, False, 0

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        what = args["what"]
        if what == "hang":
            await asyncio.sleep(600)
        elif what == "cling":
            while True:
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    self.seen += 1
                    if self.seen > 1:
                        raise
        elif what == "raise":
            raise ZeroDivisionError("oh")
        elif what == "refuse":
            raise InputError("no good", fix="do better")
        elif what == "where":
            place.folder.mkdir(parents=True, exist_ok=True)
            return ToolResult(str(place.folder))
        return ToolResult("x" * self.flood or f"{place.agent} {place.event} {place.round}", extra={"kept": 1})

    async def close(self) -> None:
        self.is_closed = True


def odd_box(**options: Any) -> Toolbox:
    return Toolbox(
        MADE, {"worker": ["test_odd:odd"]}, {"test_odd:odd": options} if "flood" in options else {}, limit_s=0.2, limit_chars=40
    )


@pytest.fixture(autouse=True)
def _somebody_elses_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    module = types.ModuleType("test_odd")
    module.odd = odd  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "test_odd", module)


def called(box: Toolbox, name: str, text: str = "", *, role: str = "worker", agent: str = "lead.1") -> ToolResult:
    return run(box.call(agent, role, name, text, event="e1", round=2))


def test_a_role_has_its_tools_and_no_others() -> None:
    box = Toolbox(MADE, ROLES)
    assert [tool.name for tool in box.offered("worker")] == ["search", "open", "note", "notes"]
    assert [tool.name for tool in box.offered("reader")] == ["search"]
    assert box.offered("stranger") == []
    assert isinstance(box.tool("open"), Tool)
    assert box.tool("sql") is None


@pytest.mark.parametrize(
    ("role", "name"),
    [("reader", "note"), ("stranger", "search"), ("worker", "python"), ("worker", "sql"), ("worker", "send_mail")],
)
def test_what_is_not_allowed_is_not_run(role: str, name: str) -> None:
    box = Toolbox(MADE, ROLES)
    result = called(box, name, "x", role=role)
    assert (result.ok, result.error) == (False, "not allowed")
    assert f"not allowed to {role!r}" in result.text
    assert box.shared == {}, "the note was not written"


@pytest.mark.parametrize(("name", "text"), [("serch", "x"), ("", ""), ("search", ""), ("search", "{"), ("open", '{"id": 3}')])
def test_what_cannot_be_read_is_malformed(name: str, text: str) -> None:
    result = called(Toolbox(MADE, ROLES), name, text)
    assert (result.ok, result.error) == (False, "malformed")


def test_a_call_goes_through() -> None:
    assert called(Toolbox(MADE, ROLES), "open", "b").text == "b | \ndog"
    assert called(odd_box(), "odd", "tell").text == "lead.1 e1 2"


def test_options_reach_their_tool() -> None:
    box = Toolbox(instance(documents=documents(a="x", b="x", c="x")), {"worker": ["search"]}, {"search": {"hits": 2}})
    assert len(called(box, "search", "x").text.splitlines()) == 2


@pytest.mark.parametrize("what", ["hang", "cling"])
def test_a_tool_that_hangs_is_ended(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.lab.team.toolbox._GRACE_S", 0.1)
    box = odd_box()

    async def hang() -> ToolResult:
        result = await box.call("lead.1", "worker", "odd", what, event="e1", round=0)
        await box.close()
        assert not box._running
        return result

    result = run(hang())
    assert (result.ok, result.error) == (False, "timeout")


@pytest.mark.parametrize(("what", "said"), [("raise", "odd broke: ZeroDivisionError: oh"), ("refuse", "no good; do better")])
def test_a_tool_that_raises_is_a_result(what: str, said: str) -> None:
    result = called(odd_box(), "odd", what)
    assert (result.ok, result.error, result.text) == (False, "broken", said)


def test_a_flood_is_cut_and_said() -> None:
    result = called(odd_box(flood=70), "odd", "x")
    assert result.text == "x" * 40 + "\n[cut: 30 more characters]"
    assert result.extra == {"kept": 1, "cut": 30}


def test_each_agent_has_its_own_folder_and_none_is_left() -> None:
    box = Toolbox(MADE, {"worker": ["test_odd:odd"]})
    assert not box.place("lead.1").folder.parent.exists(), "made when first needed"
    folders = [Path(called(box, "odd", "where", agent=agent).text) for agent in ("lead.1", "lead.2", "lead.1")]
    assert folders[0] == folders[2] != folders[1]
    assert folders[0].parent == folders[1].parent
    tool = box.tool("odd")
    run(box.close())
    assert not folders[0].parent.exists()
    assert isinstance(tool, odd)
    assert tool.is_closed
    run(box.close())


def test_a_cancelled_call_ends_its_tool() -> None:
    box = odd_box()

    async def cancelled() -> None:
        task = asyncio.create_task(box.call("lead.1", "worker", "odd", "hang", event="e", round=0))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert not box._running

    run(cancelled())


def test_no_more_calls_run_together_than_a_tool_can_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    together = {"now": 0, "most": 0}

    async def call(self: odd, args: Mapping[str, Any], place: Place) -> ToolResult:
        together["now"] += 1
        together["most"] = max(together.values())
        await asyncio.sleep(0.01)
        together["now"] -= 1
        return ToolResult("done")

    monkeypatch.setattr(odd, "call", call)
    monkeypatch.setattr(odd, "at_once", 2, raising=False)

    async def both_teams() -> list[ToolResult]:
        boxes = [odd_box(), odd_box()]
        return await asyncio.gather(*(boxes[i % 2].call(f"a{i}", "worker", "odd", "x", event="", round=0) for i in range(12)))

    assert all(result.ok for result in run(both_teams()))
    assert together["most"] == 2


def test_a_wrong_list_is_one_clear_error() -> None:
    with pytest.raises(NotFound, match="did you mean 'search'"):
        Toolbox(MADE, {"worker": ["serch"]})
    with pytest.raises(InputError, match="cannot be made"):
        Toolbox(MADE, ROLES, {"search": {"size": 3}})
    with pytest.raises(InputError, match="makes no tool"):
        Toolbox(MADE, {"worker": ["builtins:repr"]})


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["search", "open", "sql", "note", "notes", "python", "x"]),
    st.text(max_size=40),
    st.sampled_from(["worker", "reader", "?"]),
)
def test_any_call_is_answered(name: str, text: str, role: str) -> None:
    box = Toolbox(MADE, {"worker": ["search", "open", "sql", "note", "notes"], "reader": ["search"]})
    result = called(box, name, text, role=role)
    assert isinstance(result.text, str)
    assert result.ok == (result.error is None)
