"""Masked replay: delete a message, freeze every other event, and run only the deterministic aggregator and verifier again.

Always true: no model is called. A vote that cannot change its task's answer is worth exactly 0; what the aggregator never read
(lost, rejected, or come after the last merge) is worth exactly 0, too. It is biased where anybody would have reacted. For votes
V_j of task j, answer f(V_j) and worth w_j of an answer:

    c_mask(m) = w_j(f(V_j)) - w_j(f(V_j without m))
    c_soft(m) = s(M) - s(M - v_m),  s(x) = 1 / (1 + exp(-x)),  M = sum of v over the task,  v = 2 worth - 1 in [-1, 1]
    gain(m)   = s(M_before + v_m) - s(M_before),  M_before: the votes that came before m

See docs/lab/research/message-credit.md. The majority after each turn is the answer; a tie keeps the answer before it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace import Trace

Aggregate = Callable[[Sequence[Any]], Any]
"""The claims on one task, in the order of arrival, to its answer."""
Verify = Callable[[str, Any], float]
"""(task, answer) to its worth."""


class Vote(NamedTuple):
    """What a message said on a task, as the aggregator read it."""

    id: str
    task: str
    turn: int
    claim: Hashable
    worth: float | None
    """What the verifier gave this claim, where it is known."""
    is_read: bool


def votes_of(trace: Trace, channel: str = "R2") -> list[Vote]:
    """The messages that carry a claim on a task (`extra["claim"]`), in the file's order."""
    rejected, merged = _rejected(trace), read_by_merges(trace)
    out = []
    for e in trace.events:
        if e.type in ("message", "return") and e.task is not None and e.extra is not None and "claim" in e.extra:
            is_read = not e.extra.get("lost", False) and e.ok is not False and e.id not in rejected
            is_read = is_read and (merged is None or e.id in merged)
            worth = float(e.reward[channel]) if e.reward and channel in e.reward else None
            out.append(Vote(e.id, e.task, e.turn or 0, e.extra["claim"], worth, is_read))
    return out


_READS = frozenset({"message", "return", "aggregate"})


def read_by_merges(trace: Trace) -> frozenset[str] | None:
    """The events that some merge (`aggregate`) read, by the edges that carried their words into it; None where no such edge was
    recorded, so that nobody knows what was read."""
    merges = {e.id for e in trace.events if e.type == "aggregate"}
    read = frozenset(edge.src for edge in trace.edges if edge.dst in merges and edge.type in _READS) if merges else None
    return read or None


def _rejected(trace: Trace) -> set[str]:
    """Messages that a critic said no to: the verdict is a message whose text ends in `reject`."""
    no = {e.id for e in trace.events if e.role == "critic" and (trace.text(e) or "").endswith("reject")}
    return {edge.src for edge in trace.edges if edge.dst in no} if no else set()


def majority(claims: Sequence[Hashable], turns: Sequence[int], start: Hashable | None = None) -> Hashable | None:
    """The claim with the most votes after the last turn at which one led alone; `start` if none ever did."""
    answer, count = start, {}  # type: Hashable | None, dict[Hashable, int]
    for i, claim in enumerate(claims):
        count[claim] = count.get(claim, 0) + 1
        if i + 1 == len(claims) or turns[i + 1] != turns[i]:
            most = max(count.values())
            leaders = [c for c, n in count.items() if n == most]
            answer = leaders[0] if len(leaders) == 1 else answer
    return answer


def worth_of(votes: Sequence[Vote], task: str, answer: Any, start: Any = None) -> float | None:
    """What the recorded scores of a task say about an answer; None where they say nothing.

    An answer that nobody gave is worth what is left of 1 where the claims are yes or no, and 0 elsewhere; no answer is worth 0.
    """
    worths: dict[Hashable, float] = {v.claim: v.worth for v in votes if v.task == task and v.worth is not None}
    if not worths:
        return None
    if answer in worths:
        return worths[answer]
    if answer is None:
        return 0.0
    return 1.0 - max(worths.values()) if {*worths, answer, start} - {None} <= {0, 1} else 0.0


def masked(
    votes: Sequence[Vote], *, rule: str | Aggregate = "majority", verify: Verify | None = None, start: Any = None
) -> tuple[dict[str, float], dict[str, str]]:
    """Masked value of every vote, and the reason for those that have none."""
    if isinstance(rule, str) and rule != "majority":
        raise InputError(f"no aggregator {rule!r}", fix=f"{did_you_mean(rule, ['majority'])} or a function of the claims")

    def answer(rest: Sequence[Vote]) -> Any:
        if callable(rule):
            return rule([v.claim for v in rest]) if rest else start
        return majority([v.claim for v in rest], [v.turn for v in rest], start)

    values: dict[str, float] = {}
    reasons: dict[str, str] = {}
    by_task: dict[str, list[Vote]] = {}
    for vote in votes:
        by_task.setdefault(vote.task, []).append(vote)
    for task, mine in by_task.items():
        read = [v for v in mine if v.is_read]
        final = answer(read)
        base = verify(task, final) if verify else worth_of(mine, task, final, start)
        worths: dict[Any, float | None] = {final: base}
        for vote in mine:
            if not vote.is_read:
                values[vote.id] = 0.0
                continue
            without = answer([v for v in read if v.id != vote.id])
            if without not in worths:
                worths[without] = verify(task, without) if verify else worth_of(mine, task, without, start)
            other = worths[without]
            if base is None or other is None:
                reasons[vote.id] = f"not identified: no answer to {task!r} was scored; give verify(task, answer)"
            else:
                values[vote.id] = float(base) - float(other)
    return values, reasons


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def smoothed(task_V: np.ndarray, v_V: np.ndarray) -> np.ndarray:
    """(votes,) s(M) - s(M - v): the masked value with a soft majority; tasks are numbered from 0."""
    total_V = np.bincount(task_V, v_V)[task_V] if len(task_V) else v_V
    return _sigmoid(total_V) - _sigmoid(total_V - v_V)


def gains(task_V: np.ndarray, v_V: np.ndarray) -> np.ndarray:
    """(votes,) s(M_before + v) - s(M_before): what a vote added when it came; votes in the order of arrival."""
    before: dict[int, float] = {}
    out = np.zeros(len(v_V))
    for i, (task, v) in enumerate(zip(task_V.tolist(), v_V.tolist(), strict=True)):
        m = before.get(task, 0.0)
        out[i] = 1 / (1 + np.exp(-m - v)) - 1 / (1 + np.exp(-m))
        before[task] = m + v
    return out
