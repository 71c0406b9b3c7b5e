"""Using a tool: allowed or not, recorded or run, and what a fork may not do without consent.

Always true: a result is taken from the recording only for the very same call, which for a tool that changes the agent's folder
means after the very same calls before it; when such a call must run after recorded ones, these are run first, so that the
folder is what it was. An irreversible call that a recording cannot answer is not made in a fork or a resumed run without
consent: its result says so.
"""

from __future__ import annotations

import time
from typing import Any

from counterpoint.lab.tasks.task import Act, ViewItem
from counterpoint.lab.team.memory import Recalled, tool_address
from counterpoint.lab.team.state import AgentState
from counterpoint.lab.team.tool import Tool, ToolResult
from counterpoint.trace.replay import Delete, Insert, Substitute


async def use_tool(agent: AgentState, act: Act, because: str | None, key: str, item: str | None) -> None:
    """Make the call that an act chose, record its result, and let the agent hear it."""
    team = agent.team
    if because is None:
        return  # the call was deleted: nothing comes back
    await agent.safe_point(f"{key}|result")
    name = f"{key}|result"
    do = team.edits.at(name)
    event = team.recorder.open(
        agent.name, "tool_result", key=name, reads=[(because, "tool_dependency")], role=agent.role, tool=act.target, task=item,
        turn=agent.turn,
    )  # fmt: skip
    begin = time.monotonic()
    result, note, took = await _result(agent, act, because, name)
    text, extra = result.text, {**result.extra, "call": note | {"result": team.recorder.sink.content(result.text)}}
    for source in result.reads:
        team.recorder.edge(source, event, "message")
    if isinstance(do, Delete):
        agent.unread += team.recorder.drop(event)
        agent.seen.append(ViewItem("error", agent.name, "(no result came back)"))
        return
    if isinstance(do, Substitute):
        text, extra = str(do.value if do.value is not None else ""), {**extra, "edited": True}
    dur = took if took is not None else time.monotonic() - begin
    team.recorder.close(
        event, text=text, ok=result.ok, error=result.error, trusted=result.trusted, source=result.source, dur=dur, extra=extra
    )
    if team.watch is not None:
        team.watch("tool_result", agent, {"id": event, "tool": act.target, "ok": result.ok})
    agent.hear(ViewItem("result", act.target, text, item or ""), event, "tool_dependency")
    if result.error in ("not allowed", "held"):
        team.emit(
            agent, "safety_event", key=f"{key}|safety", reads=[(because, "safety_flow")], tool=act.target, ok=False,
            error=result.error, text=f"{act.target} was not run: {result.error}",
        )  # fmt: skip
    if isinstance(do, Insert):
        team.insert(do, event, name)


async def _result(agent: AgentState, act: Act, because: str, key: str) -> tuple[ToolResult, dict[str, Any], float | None]:
    team, box = agent.team, agent.team.toolbox
    tool = box.tool(act.target)
    args = box.arguments(act.target, act.text) if tool is not None else act.text
    if tool is None or isinstance(args, ToolResult) or tool.name not in [t.name for t in box.offered(agent.role)]:
        return await _run(agent, act, because), {}, 0.0
    address = tool_address(tool.name, tool.version, args, _before(agent, tool, key))
    found = None if tool.effect == "shared" else team.memory.find(address)
    if tool.effect == "local":
        agent.folder_past.append(act)
    if found is not None:
        return _recall(agent, found, key, address)
    team.badges[key] = "re-run"
    if tool.effect == "irreversible" and team.consent is not None and tool.name not in team.consent:
        team.held.append(key)
        team.badges[key] = "simulated"
        held = f"({tool.name} was not run: it cannot be undone; --allow {tool.name} would let it run)"
        return ToolResult(held, ok=False, error="held", trusted=True), {}, 0.0
    if tool.effect == "local":
        await _rebuild(agent, because)
    begin = time.monotonic()
    result = await _run(agent, act, because)
    # What nobody waited for takes no logical time, so that teams of fake models are the same to the byte.
    took = 0.0 if tool.effect in ("pure", "shared") or team.is_timeless else time.monotonic() - begin
    return result, {"address": address}, took


def _before(agent: AgentState, tool: Tool, key: str) -> str:
    """What the address of a call holds beside tool and arguments."""
    if tool.effect == "irreversible":
        return key
    if tool.effect == "local":
        return f"{agent.name}|" + "|".join(f"{a.target}:{a.text}" for a in agent.folder_past)
    return ""


def _recall(agent: AgentState, found: Recalled, key: str, address: str) -> tuple[ToolResult, dict[str, Any], float | None]:
    assert isinstance(found.answer, ToolResult)
    agent.team.badges[key] = "recorded"
    return found.answer, {"address": address}, found.dur


async def _rebuild(agent: AgentState, because: str) -> None:
    """Run the folder's recorded calls again, before one that the recording cannot answer."""
    while agent.folder_done < len(agent.folder_past) - 1:
        await _run(agent, agent.folder_past[agent.folder_done], because)
        agent.folder_done += 1
    agent.folder_done = len(agent.folder_past)


async def _run(agent: AgentState, act: Act, because: str) -> ToolResult:
    team = agent.team
    return await team.toolbox.call(agent.name, agent.role, act.target, act.text, event=because, round=team.round)
