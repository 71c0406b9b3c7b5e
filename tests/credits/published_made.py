"""Small teams made by hand for the published mechanisms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from counterpoint.trace import Event, Trace


def said(agent: str, text: str | None = None, **fields: Any) -> dict[str, Any]:
    """One message; the text is its content."""
    return {"type": "message", "agent": agent, "content_ref": text, **fields}


def team(name: str, reward: float | None, steps: Sequence[dict[str, Any]], *, task: str = "q", **fields: Any) -> Trace:
    """A trace whose events are e0, e1, ... at times 0, 1, ..."""
    events = [
        Event(**{"id": f"e{i}", "t": i, **{k: v for k, v in step.items() if v is not None}}) for i, step in enumerate(steps)
    ]
    rewards = {} if reward is None else {"team": reward}
    return Trace(trace_id=name, task_id=task, events=events, rewards=rewards, **fields)
