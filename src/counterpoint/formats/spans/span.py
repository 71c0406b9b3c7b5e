"""Spans of any tracer, in one form: who did what, inside what, from when to when.

Dialects (OTLP, Jaeger, OpenInference, LangSmith, Langfuse, the OpenAI Agents SDK, Agent Lightning) are read into `Span`;
`trees.py` makes traces of them, so that an agent inside a tool is a sub-agent in every dialect.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, Literal

from counterpoint.formats.importing.usage import Usage

Kind = Literal["agent", "llm", "tool", "handoff", "guardrail", "human", "retriever", "evaluator", "chain"]


@dataclass(slots=True)
class Span:
    """One span, normalised. What a dialect does not say stays None."""

    id: str
    trace: str
    """The tracer's own trace id; spans of one trace become one trace of ours."""
    parent: str | None = None
    name: str = ""
    kind: Kind = "chain"
    """`chain` is any wrapper that is none of the others: workflows, nodes, turns, HTTP."""
    start: float | None = None
    """Seconds since the epoch."""
    end: float | None = None
    """None while it runs, or where the source lost its end."""
    agent: str | None = None
    """On an agent span: its name. On others: the agent that acts, where the source says so without nesting."""
    agent_id: str | None = None
    """The agent instance, where the source has one; otherwise the agent span's own id is the instance."""
    model: str | None = None
    usage: Usage | None = None
    """Only on spans that are one model call; sums on wrappers are for checking."""
    cost_usd: float | None = None
    input: str = ""
    output: str = ""
    tool: str | None = None
    call: str | None = None
    """The id of a tool call, where the model's answer and the tool's span share one."""
    to: str | None = None
    """On a handoff: the agent that control passes to."""
    ok: bool | None = None
    error: str | None = None
    verdict: str | None = None
    """On a guardrail: allow, deny, triggered, ..."""
    reward: dict[str, float] = field(default_factory=dict)
    """Scores that were attached to the span."""
    links: list[str] = field(default_factory=list)
    """Ids of spans that this one names as its cause, beside its parent."""
    order: int = 0
    """Place in the source, to break ties of time."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What else is worth keeping, by the source's name."""


def close_wrappers(spans: list[Span], wrappers: Set[str]) -> None:
    """Give each wrapper the beginning and the end of what is in it."""
    inside: dict[str, list[Span]] = {}
    for span in spans:
        if span.id not in wrappers:
            inside.setdefault(span.trace, []).append(span)
    for span in spans:
        held = inside.get(span.trace, [])
        if span.id not in wrappers or not held:
            continue
        starts = [s.start for s in held if s.start is not None]
        ends = [s.end for s in held if s.end is not None]
        span.start = min(starts, default=span.start)
        span.end = max(ends) if len(ends) == len(held) else None
