"""Message credit by deletion: what the team would have got had a message never arrived, others reacting.

    c_del(m) = E[R | G<=m] - E[R | G<m, m never delivered, others react]

Always true: a message that nobody reads has credit exactly 0 with coupled forks, since both arms then share every draw. Credits
do not sum to R: two messages of which either suffices both get about 0 (see `pair_interaction`), and the whole team would get
more or less than there is. C3 (arXiv 2603.06859) warns, rightly, that a team with a silenced message never
occurs under the policy: use this for audit and steering, and `message_substitute` as an advantage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from counterpoint.credits.default import MOST_REPLAYED, Beside, Default, no_replay
from counterpoint.credits.example import Recount
from counterpoint.credits.forks import MESSAGES, message_credit
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.shared_options import SEED, Coupled, EventIds, EventTypes, ReplayOf, Replicates
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.replay import Delete
from counterpoint.trace.rows import Credit

_ESTIMAND = "E[R | prefix with m] - E[R | m never delivered, others react]"


def _message_delete_credit(
    traces: Sequence[Trace],
    *,
    replay: ReplayOf = None,
    k: Replicates = 1,
    seed: Annotated[int, SEED] = 0,
    coupled: Coupled = True,
    types: EventTypes = MESSAGES,
    ids: EventIds = None,
    channel: Channel = "team",
) -> Credit:
    return message_credit(
        "message_delete", _ESTIMAND, Delete(), traces, replay,
        types=types, ids=ids, k=k, seed=seed, coupled=coupled, channel=channel,
    )  # fmt: skip


def _no_message_replay(traces: Sequence[Trace], beside: Beside) -> str | None:
    if beside.replay is not None:
        size = sum(len(t.events) * sum(e.type in ("message", "return") for e in t.events) for t in traces)
        if size > 10 * MOST_REPLAYED:
            return "one replay per message is a lot of work here: ask for it by name"
    return no_replay(traces, beside)


message_delete = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="the replay reacts as the team would; k replicates after the message stand for all",
    cost="2k - 1 forks per message, from the message on",
    additive=False,
    source="docs/lab/research/message-credit.md; estimand after C3 v2, arXiv 2603.06859. Departure: coupled noise, unnormalised",
    run=_message_delete_credit,
    needs=("replay",),
    example=lambda: Example(rollouts(), {"replay": Recount()}),
    default=Default(
        "the run can be replayed without each message, which shows what each caused",
        _no_message_replay,
        takes=("replay",),
        unit="message",
    ),
)
