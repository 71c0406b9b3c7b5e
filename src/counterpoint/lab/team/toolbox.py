"""`Toolbox`: the tools of one team, each agent's own place, and what must hold for every call.

Always true: a call gives a `ToolResult` and never an exception, whatever the agent wrote and whatever the tool did: what its
role may not use is refused and not run (`not allowed`), what cannot be read is refused with the right form (`malformed`), what
takes too long is ended (`timeout`), what floods is cut, and the cut is said. Each agent has a folder of its own, made when a
tool first needs it; after `close` nothing runs and nothing is left.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import counterpoint.registry as registry
from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.sandbox import folders
from counterpoint.lab.team.tool import Place, Tool, ToolResult

_GRACE_S = 5.0
"""How long a call that was told to end may take to clean up."""
_END = 200
"""Characters of the end of a result that are kept where it went wrong and is cut."""
_SLOTS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]] = weakref.WeakKeyDictionary()


class Toolbox:
    """The tools of a team over one instance."""

    def __init__(
        self,
        instance: Instance,
        allowed: Mapping[str, Sequence[str]],
        options: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        limit_chars: int = 8000,
        limit_s: float = 30.0,
    ) -> None:
        """`allowed`: the tools of each role, by id; `options`: what a tool is made with, by id.

        `limit_chars`: the most characters of a result; `limit_s`: how long a call may take once it has a slot.
        """
        self.shared: dict[str, Any] = {}
        self._limit_chars, self._limit_s = limit_chars, limit_s
        self._tools: dict[str, Tool] = {}
        made: dict[str, str] = {}
        for id_ in dict.fromkeys(id_ for ids in allowed.values() for id_ in ids):
            tool = _made(id_, instance, (options or {}).get(id_, {}))
            made[id_] = tool.name
            self._tools[tool.name] = tool
        self._allowed = {role: tuple(dict.fromkeys(made[id_] for id_ in ids)) for role, ids in allowed.items()}
        self._forbidden = {planted.tool for planted in instance.planted if planted.tool} | set(registry.ids("tool"))
        self._base = Path(tempfile.gettempdir()) / f"counterpoint-{secrets.token_hex(8)}"
        self._folders: dict[str, Path] = {}
        self._running: set[asyncio.Task[ToolResult]] = set()
        self._under_way = 0

    def tool(self, name: str) -> Tool | None:
        """The tool of that name, if the team has it."""
        return self._tools.get(name)

    def offered(self, role: str) -> list[Tool]:
        """The tools that a role may use, in the order of its list."""
        return [self._tools[name] for name in self._allowed.get(role, ())]

    def arguments(self, name: str, text: str) -> dict[str, Any] | ToolResult:
        """The arguments that a text gives a tool, or the `malformed` result that says why it gives none."""
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(sorted(self._tools)) or "none"
            return ToolResult(f"there is no tool {name[:80]!r}; tools: {known}", ok=False, error="malformed", trusted=True)
        return read_arguments(tool, text)

    def place(self, agent: str, *, event: str = "", round: int = 0) -> Place:
        """Where an agent's call works; the folder is named here and made by the tool that needs it."""
        if agent not in self._folders:
            self._folders[agent] = self._base / secrets.token_hex(8)
        return Place(agent, self._folders[agent], self.shared, event, round)

    async def call(self, agent: str, role: str, name: str, text: str, *, event: str = "", round: int = 0) -> ToolResult:
        """Make an agent's call: allowed, readable, in time, and cut to the length that is allowed."""
        mine = self._allowed.get(role, ())
        if name not in mine and (name in self._tools or name in self._forbidden):
            said = f"the tool {name!r} is not allowed to {role!r}; allowed: {', '.join(mine) or 'none'}"
            return ToolResult(said, ok=False, error="not allowed", trusted=True)
        args = self.arguments(name, text)
        if isinstance(args, ToolResult):
            return args
        tool = self._tools[name]
        self._under_way += 1
        try:
            async with _slot(tool):
                result = await self._in_time(tool, args, self.place(agent, event=event, round=round))
        finally:
            self._under_way -= 1
        return self._cut(result)

    async def close(self) -> None:
        """End what still runs, close the tools, and remove every folder."""
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_GRACE_S)
        for tool in self._tools.values():
            await tool.close()
        if self._base.exists():  # most teams need no folder, and a thread costs more than this look
            await asyncio.to_thread(folders.remove, self._base)

    @property
    def is_busy(self) -> bool:
        """Whether a tool is at work, or waits for its slot."""
        return self._under_way > 0

    async def _in_time(self, tool: Tool, args: Mapping[str, Any], place: Place) -> ToolResult:
        task = asyncio.ensure_future(_guarded(tool, args, place))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            # `wait`, not `wait_for`: a tool that will not be cancelled may not hold up the agent.
            await asyncio.wait({task}, timeout=self._limit_s)
            if task.done() and not task.cancelled():
                return task.result()
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE_S)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE_S)
            raise
        return ToolResult(f"{tool.name} did not answer within {self._limit_s:g} s", ok=False, error="timeout", trusted=True)

    def _cut(self, result: ToolResult) -> ToolResult:
        over = len(result.text) - self._limit_chars
        if over <= 0:
            return result
        # The end is kept too: it says how a program ended.
        end = result.text[-_END:] if result.error else ""
        text = f"{result.text[: self._limit_chars]}\n[cut: {over - len(end)} more characters]" + (f"\n{end}" if end else "")
        return replace(result, text=text, extra={**result.extra, "cut": over})


def _made(id_: str, instance: Instance, options: Mapping[str, Any]) -> Tool:
    maker = registry.get("tool", id_)
    try:
        tool = maker(instance, **options)
    except TypeError as error:
        raise InputError(f"the tool {id_!r} cannot be made: {error}", fix="check its options") from error
    if not isinstance(tool, Tool):
        raise InputError(f"{id_!r} makes no tool", fix="a tool has name, version, effect, about, arguments, main, call and close")
    return tool


async def _guarded(tool: Tool, args: Mapping[str, Any], place: Place) -> ToolResult:
    """The call, with what a tool should not have raised as its result: one broken tool must not end a team."""
    try:
        return await tool.call(args, place)
    except CounterpointError as error:
        return ToolResult(error.one_line(), ok=False, error="broken", trusted=True)
    except Exception as error:
        return ToolResult(f"{tool.name} broke: {type(error).__name__}: {error}", ok=False, error="broken", trusted=True)


def _slot(tool: Tool) -> Any:
    """A tool that starts processes says by `at_once` how many of its calls may run together in this whole process."""
    at_once = getattr(tool, "at_once", None)
    if at_once is None:
        return nullcontext()
    slots = _SLOTS.setdefault(asyncio.get_running_loop(), {})
    return slots.setdefault(tool.name, asyncio.Semaphore(at_once))


# -- The arguments of a call -------------------------------------------------------------------------------------------


_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def read_arguments(tool: Tool, text: str) -> dict[str, Any] | ToolResult:
    """The arguments that a text gives a tool, or a `ToolResult` with error `malformed` that shows the right form; never raises.

    A text that begins with `{` is a JSON object; any other is the tool's main argument, as it stands. Of JSON Schema, type, enum,
    length, range, required and additionalProperties are checked; the rest passes.
    """
    text = text.strip()
    if text.startswith("{"):
        try:
            args = json.loads(text)
        except (ValueError, RecursionError) as error:
            return _malformed(tool, f"the arguments are no JSON object ({error})")
        if not isinstance(args, dict):
            return _malformed(tool, "the arguments are no JSON object")
    elif not text:
        args = {}
    elif not tool.main:
        return _malformed(tool, "it takes no argument")
    else:
        args = {tool.main: _bare(text, tool.arguments.get("properties", {}).get(tool.main, {}))}
    problem = _problem(args, tool.arguments)
    return _malformed(tool, problem) if problem else args


def right_form(tool: Tool) -> str:
    """How a call of the tool is written."""
    properties: Mapping[str, Any] = tool.arguments.get("properties", {})
    required = tool.arguments.get("required", ())
    bare = f"TOOL {tool.name}: {tool.main}" if tool.main else f"TOOL {tool.name}"
    if not properties:
        return bare
    fields = ", ".join(
        f'"{name}": {schema.get("type", "anything")}' + ("" if name in required else " (may be left out)")
        for name, schema in properties.items()
    )
    return f"{bare}, or TOOL {tool.name}: {{{fields}}}"


def _malformed(tool: Tool, problem: str) -> ToolResult:
    return ToolResult(f"{tool.name}: {problem}; write {right_form(tool)}", ok=False, error="malformed", trusted=True)


def _bare(text: str, schema: Mapping[str, Any]) -> Any:
    """A bare text as its argument's type; one that does not fit stays a text, and the check says so."""
    if schema.get("type") in ("integer", "number", "boolean"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _problem(args: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    properties: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in args:
            return f"{name!r} is missing"
    for name, value in args.items():
        if name not in properties:
            if schema.get("additionalProperties", True) is False:
                return f"there is no argument {name[:40]!r}"
        elif problem := _wrong(value, properties[name]):
            return f"{name!r} {problem}"
    return None


def _wrong(value: Any, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with one value."""
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES.get(kind, lambda _: True)(value) for kind in kinds):
        return f"must be of type {' or '.join(kinds)}"
    if "enum" in schema and value not in schema["enum"]:
        return "must be one of " + ", ".join(map(str, schema["enum"]))
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            return "is empty" if not value else f"must have at least {schema['minLength']} characters"
        if len(value) > schema.get("maxLength", len(value)):
            return f"has {len(value)} characters; at most {schema['maxLength']}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high:
            return f"must be from {schema.get('minimum', 'any')} to {schema.get('maximum', 'any')}"
    return None
