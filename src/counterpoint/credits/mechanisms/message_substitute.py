"""Message credit by substitution: this message against another draw of its writer, the default for training.

    c_sub(m) = E[R | G<=m] - E_{m' ~ pi(. | G<m)} E[R | G<m, m']

Always true: its mean over messages drawn from pi is 0, so it is an advantage; replicate i compares with the writer's i-th fresh
draw under the noise that both arms share. A message that nobody reads has credit exactly 0. It is the quantity of C3
(arXiv 2603.06859), whose leave-one-out over siblings is the fresh-noise form of it. Departures: coupled noise after the message;
one recorded message instead of a sibling set; no division by a standard deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from counterpoint.credits.example import Recount
from counterpoint.credits.forks import message_credit
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.shared_options import SEED, Coupled, EventIds, EventTypes, ReplayOf, Replicates
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.replay import Substitute
from counterpoint.trace.rows import Credit

_ESTIMAND = "E[R | prefix with m] - E[R | prefix, m resampled from its writer]"


def _message_substitute_credit(
    traces: Sequence[Trace],
    *,
    replay: ReplayOf = None,
    k: Replicates = 1,
    seed: Annotated[int, SEED] = 0,
    coupled: Coupled = True,
    types: EventTypes = ("return",),
    ids: EventIds = None,
    channel: Channel = "team",
) -> Credit:
    return message_credit(
        "message_substitute", _ESTIMAND, Substitute(), traces, replay,
        types=types, ids=ids, k=k, seed=seed, coupled=coupled, channel=channel,
    )  # fmt: skip


message_substitute = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="the replay can resample a message from its writer, and reacts as the team would",
    cost="2k - 1 forks per message, from the message on, and k fresh draws of it",
    additive=False,
    source="C3, arXiv 2603.06859. Departure: coupled noise, one recorded message instead of a sibling set",
    run=_message_substitute_credit,
    needs=("replay",),
    example=lambda: Example(rollouts(), {"replay": Recount()}),
)
