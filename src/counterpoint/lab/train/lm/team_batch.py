"""Teams that were played, and what to say of them: what they earned, how they spoke, how they decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.trace import Trace


@dataclass(frozen=True)
class TeamBatch:
    """Teams that were played, their rewards with prices taken off."""

    traces: list[Trace]

    @property
    def values(self) -> np.ndarray:
        """What each earned."""
        return np.array([t.rewards["team"] for t in self.traces])

    def column(self, name: str) -> np.ndarray:
        """A metric of each."""
        return np.array([(t.metrics or {}).get(name, 0.0) for t in self.traces])

    def measures(self) -> dict[str, float]:
        """The means of what the task measured, by its names: of a package's world, the package's own measures."""
        names = dict.fromkeys(name for t in self.traces for name in t.metrics or {} if name.startswith("task_"))
        return {name.removeprefix("task_"): float(self.column(name).mean()) for name in names}

    def row(self) -> dict[str, Any]:
        """What to say of them."""
        values, calls = self.values, [list(calls_of(t)) for t in self.traces]
        said = [c for trace in calls for c in trace]
        logps = [x for c in said for x in (c["note"].get("logps") or ())]
        failures = Counter(str(t.meta["rollout"]["failed"]) for t in self.traces if "failed" in (t.meta.get("rollout") or {}))
        roles: dict[str, int] = {}
        for c in said:
            roles[c["role"]] = roles.get(c["role"], 0) + 1
        tokens = [c["tokens"] for c in said]
        n = max(1, len(said))
        return {
            "reward": float(values.mean()),
            "reward_se": float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0,
            "solved": float(self.column("task_success").mean()),
            "score": float(self.column("task_score").mean()),
            "agents": float(np.mean([len({e.to for e in t.events if e.type == "spawn"}) for t in self.traces])),
            "rounds": float(np.mean([sum(c["role"] == "orchestrator" for c in trace) for trace in calls])),
            "calls_per_episode": len(said) / len(self.traces),
            "tokens_per_call": float(np.mean(tokens)) if tokens else 0.0,
            "malformed": sum(c["is_malformed"] for c in said) / n,
            "too_long": sum("failed" in c["note"] for c in said) / n,
            "entropy": -float(np.mean(logps)) if logps else None,
            "roles": roles,
            **({"failures": dict(failures.most_common(3)), "failed": failures.total() / len(self.traces)} if failures else {}),
        }


def calls_of(trace: Trace) -> Iterator[dict[str, Any]]:
    """The model calls of a trace: whose they were, their tokens, and the note that the recorder left."""
    for e in trace.events:
        note = (e.extra or {}).get("call")
        if isinstance(note, Mapping) and e.type != "tool_result":
            yield {"role": e.role, "tokens": e.tokens_out or 0, "is_malformed": e.ok is False, "note": note}


def decisions(traces: Sequence[Trace]) -> dict[str, float]:
    """How the teams decide, on average: whom they spawn, what they delegate, tell and merge, and when they stop (O1 to O5)."""
    n = max(1, len(traces))
    events = [e for t in traces for e in t.events]
    return {
        "spawned": sum(e.type == "spawn" for e in events) / n,
        "delegated": sum(e.type == "message" and e.role == "orchestrator" for e in events) / n,
        "told": sum(e.type == "message" and e.role not in ("orchestrator", "user") for e in events) / n,
        "merged": sum(e.type == "aggregate" for e in events) / n,
        "stopped_after": sum(e.type == "orchestrator_decision" and "call" in (e.extra or {}) for e in events) / n,
        "tool_calls": sum(e.type == "tool_call" for e in events) / n,
        "stopped_itself": sum(t.meta.get("ended") == "stopped" for t in traces) / n,
    }
