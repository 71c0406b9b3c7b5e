"""LangGraph in spans: which runs are graphs and so agents, which tools pass control on, and where a human was asked.

Used by the sources that carry LangGraph's metadata (LangSmith, Langfuse). A run whose children are one level deeper in the
checkpoint namespace is a graph. A graph inside another is a sub-agent; the outermost is an agent only where a model is called in
its own nodes, else it is the workflow that its agents run in. Nodes of a graph are no agents of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from counterpoint.formats.importing.values import as_dict, as_list, compact, string, text_of
from counterpoint.formats.spans.span import Span, opened

KEPT = ("thread_id", "langgraph_node", "langgraph_step", "langgraph_checkpoint_ns", "ls_agent_type", "lc_agent_name")
"""Metadata worth keeping on events."""
_PLAIN = frozenset({"LangGraph", "CompiledStateGraph", "CompiledGraph"})
_TRANSFER = re.compile(r"^(?:transfer|handoff|hand_off|delegate)_to_(.+)$")
_GOTO = re.compile(r"Command\(.*?goto='([^']+)'", re.S)


def mark_graphs(spans: list[Span], metas: Mapping[str, Mapping[str, Any]]) -> None:
    """Make agents of the runs that are graphs, and name them."""
    by_id = {span.id: span for span in spans}
    graphs: set[str] = set()
    for span in spans:
        place, above = _place(metas.get(span.id)), by_id.get(span.parent or "")
        if place and above is not None and place != (outer := _place(metas.get(above.id))) and _outer(place) == outer:
            graphs.add(above.id)
    at_work = {_above(span, by_id, graphs) for span in spans if span.kind == "llm"}
    for name in graphs:
        graph, meta = by_id[name], metas.get(name, {})
        is_inner = _above(graph, by_id, graphs) is not None
        if graph.kind != "chain" or not (is_inner or name in at_work):
            continue
        node = string(meta.get("langgraph_node")) if is_inner else None
        own = graph.name if graph.name not in _PLAIN else None
        graph.kind = "agent"
        graph.agent = string(meta.get("lc_agent_name")) or own or (node if node != "tools" else None) or graph.name


def _place(meta: Mapping[str, Any] | None) -> str:
    namespace = meta and (meta.get("langgraph_checkpoint_ns") or meta.get("checkpoint_ns"))
    return namespace if isinstance(namespace, str) else ""


def _outer(place: str) -> str:
    return place.rpartition("|")[0]


def _above(span: Span, by_id: Mapping[str, Span], graphs: set[str]) -> str | None:
    """The innermost graph around a span."""
    at, visited = by_id.get(span.parent or ""), {span.id}
    while at is not None and at.id not in graphs and at.id not in visited:
        visited.add(at.id)
        at = by_id.get(at.parent or "")
    return at.id if at is not None and at.id in graphs and at is not span else None


def mark_tool(span: Span, inputs: Any, outputs: Any) -> None:
    """A tool that passes control on is a handoff; one that starts an agent of a named type says so."""
    goto = _goto(outputs)
    named = _TRANSFER.match(span.tool or span.name)
    if goto or named:
        span.kind, span.to = "handoff", goto or (named[1] if named else None)
        span.extra["is_handoff"] = True
        return
    kind = string(as_dict(opened(inputs)).get("subagent_type"))
    if kind is not None:
        span.to = kind


def _goto(value: Any) -> str | None:
    value = opened(value)
    for inner in (value, as_dict(value).get("output")):
        inner = opened(inner)
        if isinstance(inner, str) and (match := _GOTO.search(inner)):
            return match[1]
        command = as_dict(inner)
        if "goto" in command:
            goto = command.get("goto")
            return string(goto[0] if isinstance(goto, list) and goto else goto)
    return None


def result_text(value: Any) -> str:
    """The content of a tool's answer, out of the message that it was wrapped in."""
    value = opened(value)
    inner = as_dict(value)
    if len(inner) == 1 and "output" in inner:
        return result_text(inner["output"])
    if "lc" in inner and isinstance(inner.get("kwargs"), dict):
        inner = inner["kwargs"]
    return text_of(inner["content"]) if "content" in inner else value if isinstance(value, str) else compact(value or "")


def human_of(span: Span, outputs: Any, order: int) -> Span | None:
    """The question that a graph stopped with: `__interrupt__` in what it gave."""
    asked = as_list(as_dict(opened(outputs)).get("__interrupt__"))
    if not asked:
        return None
    words = "\n".join(text_of(as_dict(one).get("value", one)) for one in asked)
    human = Span(f"{span.id}:interrupt", span.trace, span.id, "interrupt", "human", start=span.end, end=span.end, order=order)
    human.input, human.extra = words, {"is_question": True}
    return human
