"""A small example: six rollouts of one team on two tasks, which rewards and credit mechanisms are shown and checked on.

Always true: the same traces at every call, and valid. They hold what plug-ins ask for: turns, roles, tokens, log-probabilities,
contents that agree up to where rollouts differ, a tool call with its result, scored claims (R2), steps (R4), verdicts (R6) and
drafts. A claim is 0 or 1, and 1 is right; the team reward is the share of items on which more than half of the claims are right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from counterpoint.trace.records import Edge, Event
from counterpoint.trace.trace import Trace

WORKERS = ("w1", "w2", "w3")
_ROLES = {"lead": "orchestrator", "w1": "worker", "w2": "worker", "w3": "checker"}
# task, the workers' claims on item 1 and on item 2, whether the tool of w1 answered
_ROLLOUTS = (
    ("easy", (1, 1, 1), (1, 1, 0), True),
    ("easy", (1, 0, 1), (0, 1, 0), True),
    ("easy", (0, 0, 1), (1, 0, 0), False),
    ("hard", (1, 0, 0), (1, 1, 1), True),
    ("hard", (0, 1, 1), (0, 1, 1), True),
    ("hard", (0, 0, 0), (0, 0, 1), False),
)


class Example(NamedTuple):
    """What a plug-in is shown on: traces, and the options it is called with."""

    traces: Sequence[Trace]
    options: Mapping[str, Any] = {}


def rollouts() -> list[Trace]:
    """The six rollouts, three of each task."""
    numbered = enumerate(_ROLLOUTS)
    return [_rollout(f"{task}-{i % 3}", task, first, second, answered) for i, (task, first, second, answered) in numbered]


def share_right(*items: Sequence[int]) -> float:
    """The share of items on which more than half of the claims are right."""
    return sum(2 * sum(claims) > len(claims) for claims in items) / len(items)


def _rollout(name: str, task: str, first: Sequence[int], second: Sequence[int], answered: bool) -> Trace:
    steps: list[dict[str, Any]] = [_decides("spawn", ["spawn", "noop"], 0.8, 0)]
    steps += [{"type": "spawn", "agent": "lead", "role": _ROLES[w], "to": w, "turn": 0} for w in WORKERS]
    steps += [
        {"type": "tool_call", "agent": "w1", "tool": "search", "turn": 0, "tokens_out": 3},
        {"type": "tool_result", "agent": "w1", "tool": "search", "turn": 0, "ok": answered, "reward": {"R5": float(answered)}},
    ]
    steps += [_claims("message", w, 2, claim, 1) for w, claim in zip(WORKERS, second, strict=True)]
    steps += [_drafts(share_right(second) / 2, 1), _decides("noop", ["stop", "noop"], 0.7, 1, sub_decision="stop")]
    steps += [_claims("return", w, 1, claim, 2) for w, claim in zip(WORKERS, first, strict=True)]
    steps += [_drafts(share_right(first, second), 2), _decides("stop", ["stop"], 1.0, 2, sub_decision="stop")]
    contents: dict[str, str] = {}
    events = []
    for k, step in enumerate(steps):
        statement = step.get("extra", {}).get("claim", step.get("ok", ""))
        words = f"{task}: {step['type']} {step['agent']} {step.get('to', '')} {statement}"
        contents[f"text:{words}"] = words
        known = {"role": _ROLES[step["agent"]], "tokens_in": 5, "content_ref": f"text:{words}", "key": f"{task}/{k}"}
        events.append(Event(**{"id": f"e{k}", "t": k, **known, **step}))
    edges = [Edge(f"e{k}", f"e{k + 1}", "tool_dependency" if k == 4 else "causal") for k in range(len(events) - 1)]
    total = sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in events)
    costs: dict[str, int | float] = {"tokens": total, "wall_clock_s": len(events)}
    rewards = {"team": share_right(first, second)}
    return Trace(trace_id=name, task_id=task, events=events, edges=edges, rewards=rewards, costs=costs, contents=contents)


def _decides(decision: str, options: list[str], chance: float, turn: int, **extra: Any) -> dict[str, Any]:
    fields = {"type": "orchestrator_decision", "agent": "lead", "decision": decision, "options": options, "turn": turn}
    return {**fields, "logp": math.log(chance), "tokens_out": 2, **({"extra": extra} if extra else {})}


def _claims(kind: str, worker: str, item: int, claim: int, turn: int) -> dict[str, Any]:
    fields = {"type": kind, "agent": worker, "from_": worker, "to": "lead", "task": f"vote {item}", "turn": turn, "tokens_out": 4}
    return {**fields, "extra": {"claim": claim}, "reward": {"R2": float(claim), "R6": 0.5 + claim / 4}}


def _drafts(worth: float, turn: int) -> dict[str, Any]:
    return {"type": "aggregate", "agent": "lead", "turn": turn, "tokens_out": 6, "reward": {"draft": worth, "R4": worth}}
