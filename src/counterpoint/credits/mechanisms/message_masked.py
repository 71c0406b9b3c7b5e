"""Message credit by masked replay: one message gone, all else frozen, the aggregator run again; no calls.

    c_mask(m) = worth(answer with all votes) - worth(answer without m)

Always true: nothing but the deterministic aggregator and the verifier runs, so it costs no fork and no token; a vote that cannot
change the answer gets exactly 0, and so does one that was never read. Biased: nobody reacts. Answers are scored
by `verify`, else by what their events carry in R2. A message that carries no claim, or one on a task that nobody
scored, has no row but a reason. SHARP's placeholder credit (arXiv 2602.08335) is its agent-level counterpart.
Departure: per message, ties keep earlier draft.
"""

from __future__ import annotations

from collections.abc import Sequence

from counterpoint.credits.forks import MESSAGES, check_ids, messages_of
from counterpoint.credits.masked_replay import masked, votes_of
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.shared_options import EventIds, EventTypes, MergeRule, StartAnswer, Verifier
from counterpoint.errors import NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, CreditRow

_ESTIMAND = "worth of the answer - worth of the answer without m, everything else frozen"


def _message_masked_credit(
    traces: Sequence[Trace],
    *,
    rule: MergeRule = "majority",
    verify: Verifier = None,
    start: StartAnswer = None,
    types: EventTypes = MESSAGES,
    ids: EventIds = None,
) -> Credit:
    check_ids(traces, ids)
    rows: list[CreditRow] = []
    silent: dict[tuple[int, str], str] = {}
    for i, trace in enumerate(traces):
        values, reasons = masked(votes_of(trace), rule=rule, verify=verify, start=start)
        for e in messages_of(trace, types, ids):
            if e.id in values:
                rows.append(CreditRow(i, "message", e.id, values[e.id]))
            else:
                silent[i, e.id] = reasons.get(e.id, "not identified: it carries no claim that an aggregator reads")
    if silent and not rows:
        raise NotIdentified("no message carries a scored claim", 'extra["claim"] and task on messages, and verify=')
    ids_of = tuple(t.trace_id for t in traces)
    return Credit("message_masked", _ESTIMAND, False, ids_of, tuple(rows), unidentified=silent)


message_masked = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="the answer is a deterministic function of the claims; the other agents' behaviour is held fixed",
    cost="none: the aggregator and the verifier on recorded claims",
    additive=False,
    source="docs/lab/research/message-credit.md; cf. SHARP, arXiv 2602.08335. Departure: per message, ties keep earlier draft",
    run=_message_masked_credit,
    example=lambda: Example(rollouts()),
)
