"""SPIRAL: a role's reward against a running mean of that role's rewards, one per game and role.

    A = R_p - b;   b <- 0.95 b + 0.05 R_p        the old b is subtracted; b starts at 0

Always true: roles share no baseline. This is a sequence: the order of the traces is the order of play and matters; the final
baselines are in the notes, to go on from (`start`, one number or by group as the notes have them).

Source: SPIRAL arXiv 2506.24119, role-conditioned advantage; official code. Departure: one baseline per task and role, as the
paper says (the code has one per role and process); samples with an advantage of exactly 0 are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from counterpoint.credits.groups import ema_advantages, group_codes
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, credit_of, keys_of, payments_of, unit_events
from counterpoint.credits.shared_options import GroupKey, PaidSignals
from counterpoint.options import Channel, Share
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "R of the role - running mean of the role's rewards"


def _spiral_credit(
    traces: Sequence[Trace],
    *,
    decay: Share = 0.95,
    start: float | Mapping[str, float] = 0.0,
    by: str = "role",
    key: GroupKey = "task_id",
    channel: Channel = "team",
    signals: PaidSignals = None,
) -> Credit:
    units = [unit_events(t, by) for t in traces]
    rewards = payments_of(traces, units, by, channel=channel, signals=signals)
    tasks = keys_of(traces, key)
    rows = [TraceUnit(i, by, name) for i, own in enumerate(rewards) for name in own]
    codes, names = group_codes((tasks[r.trace], r.unit_id) for r in rows)
    known = start if isinstance(start, Mapping) else {}
    first = [known.get(str(name), 0.0 if isinstance(start, Mapping) else start) for name in names]
    amounts, after = ema_advantages([rewards[r.trace][r.unit_id] for r in rows], codes, decay=decay, start=first)
    held = {**known, **{str(names[c]): b for c, b in zip(codes.tolist(), after.tolist(), strict=True)}}
    notes = {"decay": decay, "baselines": held}
    return credit_of("spiral", _ESTIMAND, traces, zip(rows, amounts.tolist(), strict=True), notes=notes)


spiral = Mechanism(
    unit="role",
    estimand=_ESTIMAND,
    assumptions="traces come in the order of play; a role's mean reward moves slowly",
    cost="nothing",
    additive=False,
    source="SPIRAL, arXiv 2506.24119; official code",
    run=_spiral_credit,
    example=lambda: Example(rollouts()),
    relative=True,
)
