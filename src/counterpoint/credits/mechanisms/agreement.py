"""Agreement: a claim earns 1 where most of the team's claims on its item say the same, else 0.

    A(claim) = 1 if claim = majority of the claims on its item, else 0

Always true: rewards are never looked at, so that the truth cannot leak into what is learned from it. An item on which claims
are split evenly, or which fewer than two claims are about, has no majority: its claims are refused by name. With `first`
an agent's later claims on an item have no row: what it said before it heard the others is what counts.

Source: multi-agent fine-tuning (Subramaniam et al.), arXiv 2501.05707, which keeps each agent's answers that agree with the
majority. Departure: the majority is over all claims that were made, whoever made how many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from counterpoint.credits.masked_replay import votes_of
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, credit_of
from counterpoint.errors import NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "1 where the claim is the majority's of its item, else 0"
_LEAST = 2
"""Claims on an item, without which it has no majority."""


def _agreement_credit(traces: Sequence[Trace], *, first: bool = False) -> Credit:
    rows: list[tuple[TraceUnit, float]] = []
    votes_T = [votes_of(trace) for trace in traces]
    if not any(votes_T):
        raise NotIdentified("no message carries a claim", 'extra["claim"] on messages or returns, with the task they are about')
    for i, (trace, votes) in enumerate(zip(traces, votes_T, strict=True)):
        count = {task: Counter(v.claim for v in votes if v.task == task) for task in {v.task for v in votes}}
        counted: set[tuple[str, str]] = set()
        for vote in votes:
            who = (trace.events[trace.index[vote.id]].agent, vote.task)
            if first and who in counted:
                continue
            counted.add(who)
            ranked = count[vote.task].most_common(2)
            is_split = len(ranked) > 1 and ranked[0][1] == ranked[1][1]
            none = is_split or count[vote.task].total() < _LEAST
            rows.append((TraceUnit(i, "message", vote.id), np.nan if none else float(vote.claim == ranked[0][0])))
    why = "its item has no majority"
    return credit_of("agreement", _ESTIMAND, traces, rows, why_not=why, fix="more claims on an item", notes={"first": first})


agreement = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="the majority is right more often than one claim is",
    cost="nothing",
    additive=False,
    source="multi-agent fine-tuning, arXiv 2501.05707",
    run=_agreement_credit,
    needs=("claims",),
    example=lambda: Example(rollouts()),
)
