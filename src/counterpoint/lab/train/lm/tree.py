"""Samples of a task as a tree: teams that branch off one that was played, at a call of its own.

A tree of fan-outs (2, 4) is two teams, and of each three more that make its first calls again with the same noise, up to a call
that is drawn, and go on from there with noise of their own: four ways to go on after the same words, one of which is its own.

Always true: what stands before the call is said again word for word, as far as the engine computes the same for the same prompt
(what differs is no sibling: mechanisms that compare siblings find them by their contents). Which call it is, and the noise
after it, are functions of the name of the team and of the branch. Calls that are made again are made, and counted.

C3, arXiv 2603.06859 (fan-outs; there by role, here at a drawn call); AT-GRPO, arXiv 2510.11062 (candidates at a turn).
"""

from __future__ import annotations

from dataclasses import replace

from counterpoint.lab.team.edits import edit_note, keyed_seed
from counterpoint.lab.train.lm.rollout_worker import Rollout
from counterpoint.trace import Trace


def branches(rollout: Rollout, trace: Trace, fan: int, width: int) -> list[Rollout]:
    """The `fan` - 1 teams that branch off this one, `width` sample numbers apart; none where it makes no call after its last
    branch."""
    begin = rollout.notes[-1]["count"] + 1 if rollout.notes else 0
    calls = [i for i, e in enumerate(trace.events) if i >= begin and "call" in (e.extra or {}) and e.type != "tool_result"]
    if not calls:
        return []
    place = calls[keyed_seed(rollout.seed, f"{rollout.trace_id} branch") % len(calls)]
    event, keys = trace.events[place], tuple(e.key for e in trace.events)
    stem, _, number = rollout.trace_id.rpartition("-")
    out = []
    for j in range(1, fan):
        name = f"{stem}-{int(number) + j * width}"
        note = edit_note(event.id, event.key or "", place, None, keyed_seed(rollout.seed, f"{name} fresh"))
        out.append(replace(rollout, notes=(*rollout.notes, note), keys=keys, trace_id=name))
    return out
