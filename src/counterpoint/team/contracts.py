"""What must hold for every topology, tool and model: called by `counterpoint.testing` over all that the registry knows.

Always true: a check returns nothing when the contract is kept, and calls `require(False, what)` when it is not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from counterpoint.envs.task import Instance, Subtask
from counterpoint.errors import Refused
from counterpoint.team.session import play_in_memory
from counterpoint.team.tool import Tool
from counterpoint.team.topology import Topology
from counterpoint.trace import problems

Require = Callable[[bool, str], None]


def check_topology(topology: Topology, require: Require) -> None:
    """A topology names its root's role and who works, and a team of fakes runs a small task in it to its end."""
    require(isinstance(topology, Topology), f"is a {type(topology).__name__}, not a Topology")
    require(bool(topology.root), "names no role for its root")
    require(inspect.iscoroutinefunction(topology.run), "`run` is no coroutine function of a team")
    require(set(topology.more) <= set(topology.workers), "gives tools to a role that does not work")
    for seed in range(3):
        trace = play_in_memory(topology, seed)
        found = [str(p) for p in problems(trace) if p.severity == "error"]
        require(not found, f"its trace is not sound: {found[:3]}")
        keys = [e.key for e in trace.events]
        require(None not in keys and len(set(keys)) == len(keys), "an event has no key, or one that another has")


def check_tool(maker: Callable[..., Any], require: Require) -> None:
    """A tool describes itself: name, version, effect, a schema with its main argument."""
    parts = (Subtask("s1", "-"),)
    instance = Instance(task="-", seed=0, question="?", answer_format="-", subtasks=parts, database="create table t(a);")
    try:
        tool = maker(instance)
    except Refused:
        return  # it needs what this machine does not have, and says so
    require(isinstance(tool, Tool), f"makes a {type(tool).__name__}, not a Tool")
    require(bool(tool.name and tool.version and tool.about.strip()), "has no name, version or line about itself")
    require(tool.effect in ("pure", "local", "shared", "irreversible"), f"effect {tool.effect!r} is none of the four")
    require(tool.arguments.get("type") == "object", "`arguments` is no schema of an object")
    known = tool.arguments.get("properties", {})
    require(not tool.main or tool.main in known, f"its main argument {tool.main!r} is not in its schema")


def check_model(factory: Callable[..., Any], require: Require) -> None:
    """A model is made by a documented function of what follows the colon, and its options by keyword."""
    require(callable(factory), f"is a {type(factory).__name__}, not a function")
    found = list(inspect.signature(factory).parameters.values())
    require(bool(found) and found[0].kind is not inspect.Parameter.KEYWORD_ONLY, "takes nothing that follows the colon")
    require(bool((inspect.getdoc(factory) or "").strip()), "has no docstring")
