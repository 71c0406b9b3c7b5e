"""The reward as the run scored itself: what stands beside a fork's reward or a draft's, where a person scored the trace.

Always true: a difference is taken between two numbers of one source. A fork is scored by its replay and a draft by the run, never
by a person; so where a person's outcome counts in the channel, the number that the source stated before is compared instead, or
the replay's own for the unchanged run, and the notes of the credit say so. Where neither exists the question is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from counterpoint.credits.mechanism import team_reward
from counterpoint.errors import NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.outcome import as_recorded, by_hand
from counterpoint.trace.replay import Replay

_FIX = "a mechanism that makes no forks (`counterpoint credit --list`), or a channel that the replay scores itself"


def beside_forks(trace: Trace, replay: Replay, at: str | None, channel: str) -> Trace:
    """The trace with the reward that the replay gives it, to be compared with its forks; `at` is an event that can be forked.

    A fork that changes nothing is made only where a person alone scored the channel.
    """
    score, own = by_hand(trace, channel), as_recorded(trace)
    if channel in own.rewards or at is None:
        return own
    if score is None:
        team_reward(trace, channel)  # the clear error: nobody scored it
    again = replay.fork(own, at, None)
    if channel not in again.rewards:
        what = f"{channel!r} was scored by hand ({score}), and the replay gives its forks no such score"
        raise NotIdentified(what, _FIX, where=trace.trace_id)
    return replace(own, rewards={**own.rewards, channel: again.rewards[channel]})


def beside_drafts(trace: Trace, channel: str) -> float:
    """The reward to be compared with scores of drafts: as the run stated it, whatever a person said of the run since."""
    score, own = by_hand(trace, channel), as_recorded(trace)
    if score is not None and channel not in own.rewards:
        what = f"{channel!r} was scored by hand ({score}) and the drafts by the run: their difference means nothing"
        fix = "give value=, a critic of what the person scores, or name a mechanism that needs no drafts"
        raise NotIdentified(what, fix, where=trace.trace_id)
    return team_reward(own, channel)


def unused(traces: Sequence[Trace], channel: str) -> dict[str, Any]:
    """The note that names the verdicts of people that were not compared with forks or drafts; nothing where there are none."""
    scores = {trace.trace_id: score for trace in traces if (score := by_hand(trace, channel)) is not None}
    return {"by_hand_not_used": scores} if scores else {}
