"""What every topology, tool and model promises, called: `testing.check_topology`, `check_tool` and `check_model` are these.

Always true: a check returns nothing when the contract is kept, and calls `require(False, what)` when it is not.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from counterpoint.errors import CounterpointError, NotIdentified, Refused
from counterpoint.lab.lm.model import Call, Completion, Message, Model
from counterpoint.lab.tasks.packages.world_task import world_task
from counterpoint.lab.tasks.task import Choice, Document, Instance, Subtask, View, ViewItem
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import play_fakes, play_in_memory
from counterpoint.lab.team.tool import Effect, Place, Tool, ToolResult
from counterpoint.lab.team.toolbox import read_arguments
from counterpoint.lab.team.topology import Topology
from counterpoint.trace import encode, problems

Require = Callable[[bool, str], None]
_ODD = ("", " ", "none", "-1", "9" * 400, "\u2028 ½ Ж", "{", '{"no such argument": 1}', "'; drop table t; --", "(" * 500)
"""Texts that an agent may give a tool."""


def check_topology(topology: Topology, require: Require) -> None:
    """A topology names its root's role and who works, and a team of fakes runs a small task in it to its end."""
    require(isinstance(topology, Topology), f"is a {type(topology).__name__}, not a Topology")
    require(bool(topology.root), "names no role for its root")
    require(inspect.iscoroutinefunction(topology.run), "`run` is no coroutine function of a team")
    require(set(topology.more) <= set(topology.workers), "gives tools to a role that does not work")
    for seed in range(3):
        try:
            trace = play_in_memory(topology, seed)
        except Exception as error:
            require(False, f"a small team ends in {type(error).__name__}: {error}")
            raise
        found = [str(p) for p in problems(trace) if p.severity == "error"]
        require(not found, f"its trace is not sound: {found[:3]}")
        keys = [e.key for e in trace.events]
        require(bool(keys), "nobody does anything in it")
        require(None not in keys and len(set(keys)) == len(keys), "an event has no key, or one that another has")
        require(topology.root in {e.role for e in trace.events}, f"nobody acts in the role of its root, {topology.root!r}")
        require("team" in trace.rewards, "its answer was not scored: `run` gives the text of the answer")
        require(encode(play_in_memory(topology, seed)) == encode(trace), f"seed {seed} gives another trace the second time")


def check_turns(name: str, require: Require) -> None:
    """A package's world is played by a team of fakes to a sound trace, twice the same, and its fork is a replay."""
    play = lambda: play_fakes(name, seed=1)  # noqa: E731
    trace = play()
    found = [str(p) for p in problems(trace) if p.severity == "error"]
    require(not found, f"its trace is not sound: {found[:3]}")
    require(any(e.type == "tool_call" for e in trace.events), "nobody acts in it")
    require(encode(play()) == encode(trace), "a team of fakes plays the same seed to another trace the second time")
    act = next(e for e in trace.events if e.type == "tool_call")
    replay = LiveReplay(allow=[name])
    if why := str(getattr(world_task(name), "no_fork", "")):
        try:
            replay.fork(trace, act.id)
        except NotIdentified:
            return
        require(False, f"it says that it does not fork ({why}), and a fork is not refused")
    again = replay.fork(trace, act.id)
    same = [(e.key, e.type, trace.text(e)) for e in trace.events] == [(e.key, e.type, again.text(e)) for e in again.events]
    require(same and again.rewards == trace.rewards, "a replay of its trace comes out otherwise")


def check_tool(maker: Callable[..., Any], require: Require, **options: Any) -> None:
    """A tool describes itself, answers its own example, and meets odd arguments with a result and not with an exception.

    It is really called, in a folder of its own that goes away: for a tool that cannot be undone, give options under which a call
    does no harm. What this machine lacks comes out as the tool's own `Refused`.
    """
    tool = maker(_instance(), **options)
    require(isinstance(tool, Tool), f"makes a {type(tool).__name__}, not a Tool")
    require(bool(tool.name and tool.version and tool.about.strip()), "has no name, version or line about itself")
    require(tool.effect in get_args(Effect), f"effect {tool.effect!r} is none of {', '.join(get_args(Effect))}")
    require(tool.arguments.get("type") == "object", "`arguments` is no schema of an object")
    known = tool.arguments.get("properties", {})
    require(not tool.main or tool.main in known, f"its main argument {tool.main!r} is not in its schema")
    example = getattr(tool, "example", None)
    require(isinstance(example, Mapping), "has no `example`: arguments to call it with")
    assert isinstance(example, Mapping)
    require(
        isinstance(checked := read_arguments(tool, json.dumps(example)), dict), f"its schema refuses its own example: {checked}"
    )
    again = maker(_instance(), **options)
    require(again.version == tool.version, "the same instance and options give another version")
    try:
        asyncio.run(_calls(tool, again, dict(example or {}), require))
    except (AssertionError, Refused):
        raise
    except Exception as error:
        require(False, f"a call ends in {type(error).__name__} and not in a ToolResult: {error}")


async def _calls(tool: Tool, again: Tool, example: dict[str, Any], require: Require) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = lambda name: Place("lead.1", Path(folder) / name, {}, event="e1")  # noqa: E731
        first = await tool.call(example, place("a"))
        require(isinstance(first, ToolResult), f"call gives a {type(first).__name__}, not a ToolResult")
        require(first.ok, f"its own example is not answered: {first.error}: {first.text[:200]}")
        if tool.effect != "irreversible":
            require(await again.call(example, place("b")) == first, "the same call in the same place gives another result")
        if tool.effect == "pure":
            require(await tool.call(example, place("a")) == first, "it is called pure, and the second call gives another result")
        for text in _ODD if tool.main and tool.effect != "irreversible" else ():
            args = read_arguments(tool, text)
            odd = args if isinstance(args, ToolResult) else await tool.call(args, place("c"))
            require(isinstance(odd, ToolResult) and odd.ok == (odd.error is None), f"{text[:20]!r} gives {odd!r}")
        for one in (tool, again):
            await one.close()


def _instance() -> Instance:
    """A question with a document, a table and a file, for tools to work on."""
    return Instance(
        task="-",
        seed=0,
        question="?",
        answer_format="-",
        subtasks=(Subtask("s1", "-"),),
        documents=(Document("D-1", "Harbour", "The harbour has two cranes."),),
        database="create table t(a integer); insert into t values (1), (2);",
        files={"data.txt": "1\n2\n"},
    )


def check_model(factory: Callable[..., Any], require: Require, *given: Any, **options: Any) -> None:
    """A model is made by a documented function, says its name and version, and answers a call the same way twice."""
    require(callable(factory), f"is a {type(factory).__name__}, not a function")
    require(bool((inspect.getdoc(factory) or "").strip()), "has no docstring")
    model = factory(*given, **options)
    require(isinstance(model, Model), f"makes a {type(model).__name__}, which has no name, version, complete or close")
    require(bool(model.name and model.version), "has no name or no version")
    asyncio.run(_answers(model, require))


async def _answers(model: Model, require: Require) -> None:
    view = View("lead.1", "worker", "work", (ViewItem("question", "user", "What is 6 times 7?"),), (Choice("return"),))
    asked = (Message("system", "Answer in one line: RETURN: and the number."), Message("user", "What is 6 times 7?"))
    call = Call(messages=asked, view=view, max_tokens=8, temperature=0.0, seed=1)
    try:
        first, second = await model.complete(call), await model.complete(call)
    except CounterpointError as error:
        require(False, f"does not answer a plain call: {error}")
        raise
    finally:
        await model.close()
    require(isinstance(first, Completion), f"answers with a {type(first).__name__}, not a Completion")
    require(isinstance(first.text, str), f"its text is a {type(first.text).__name__}")
    for name in ("tokens_in", "tokens_out"):
        count = getattr(first, name)
        require(count is None or (isinstance(count, int) and count >= 0), f"{name} is {count!r}, which is no count")
    require(
        first.logps is None or len(first.logps) == len(first.token_ids or first.logps), "logps and token_ids differ in length"
    )
    require(first.text == second.text, "the same call, with the same seed and temperature 0, gives another text")
