"""MCP, the client and the server of the official package: one trace over both processes.

    session = client(rec, session)             # a ClientSession or a Client: its tool calls are recorded
    server(app, store="traces")                # an MCPServer: each tool call is a recording of its own

A call of the client is a tool call with its result; W3C trace context goes along in `params._meta`. What the server records for
that call is, in one store, a sub-agent of it, named after the server.

Always true: calls give and raise what they did; a server that is called without trace context records all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from counterpoint.errors import InputError
from counterpoint.recorder.hops import caller_meta, propagation
from counterpoint.recorder.recording import Recording, record
from counterpoint.recorder.values import text_of

Session = TypeVar("Session")


def client(recording: Recording, session: Session) -> Session:
    """The same session, whose `call_tool` is recorded and carries trace context."""
    call_tool = getattr(session, "call_tool", None)
    if not callable(call_tool):
        raise InputError(f"{type(session).__name__} has no call_tool", fix="client(rec, ClientSession(...)), or a Client")

    async def recorded(name: str, arguments: dict[str, Any] | None = None, *args: Any, **more: Any) -> Any:
        with recording.tool_call(name, arguments or {}) as call:
            carrier = recording.trace_context()
            if carrier:
                more["meta"] = {**(more.get("meta") or {}), **carrier}
            with propagation(carrier):
                result = await call_tool(name, arguments, *args, **more)
            text, failed = _said(result)
            call.result(text, **({"ok": False, "error": text[:500] or "failed"} if failed else {}))
        return result

    object.__setattr__(session, "call_tool", recorded)
    return session


def server(app: Any, *, store: Any = None, **about: Any) -> Any:
    """The same server, which records each of its tool calls in a store; `about` is what else `record` takes."""
    layers = getattr(getattr(app, "_lowlevel_server", app), "middleware", None)
    if not isinstance(layers, list):
        fix = "server(MCPServer(...)), or a lowlevel Server, of mcp 2 or later"
        raise InputError(f"{type(app).__name__} takes no middleware", fix=fix)
    name = str(getattr(app, "name", None) or "server")

    async def layer(context: Any, call_next: Any) -> Any:
        if context.method != "tools/call" or context.request_id is None:
            return await call_next(context)
        headers = getattr(context.request, "headers", None) or {}
        asked = context.params.get("name") if isinstance(context.params, Mapping) else None
        task = str(asked or "tool")
        meta = {**(about.get("meta") or {}), **caller_meta({**headers, **(context.meta or {})})}
        how = {"agent": name, "system": name, **about, "task": about.get("task", task), "meta": meta}
        rec = record(store, **how)
        async with rec:
            result = await call_next(context)
            text, failed = _said(result)
            if failed:
                rec.stop(text, ok=False, error=text[:500] or "failed")
            else:
                rec.stop(text)
        return result

    layers.append(layer)
    return app


def _said(result: Any) -> tuple[str, bool]:
    """The words of a result, and whether it is an error; of what has no words, its JSON."""
    got = result if isinstance(result, Mapping) else getattr(result, "__dict__", {})
    failed = any(got.get(name) is True for name in ("is_error", "isError"))
    parts = [text for item in got.get("content") or () if isinstance(text := _field(item, "text"), str)]
    if parts or not isinstance(result, Mapping):
        dumped = None if parts else getattr(result, "model_dump_json", None)
        return "\n".join(parts) if parts or dumped is None else str(dumped()), failed
    try:
        return msgspec.json.encode(result).decode(), failed
    except (TypeError, ValueError):
        return text_of(result) or "", failed


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
