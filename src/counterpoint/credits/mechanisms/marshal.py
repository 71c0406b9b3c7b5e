"""MARSHAL: the return from a turn on, of the player who took it, against the mean over that player's turns.

    G_t = sum of the player's rewards from turn t on (gamma 1);   A = G - mean over all turns of (game, player)

Always true: players are never compared with each other. `form="unique"` subtracts the mean of the DISTINCT returns, which is
step 4 of the released pipeline and weighs a value once however often it occurs.

Source: MARSHAL arXiv 2510.15414; official code. Departures: the whitenings before and after (steps 1, 2 and 5) need tokens and
are left out of the adapter; `released` is the whole released pipeline on token arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from counterpoint.credits.advantages import reward_to_go
from counterpoint.credits.groups import Floats, group_codes, group_stats, whiten
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, credit_of, keys_of, paid_steps, unit_events
from counterpoint.credits.shared_options import Discount, GroupKey
from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "return from this turn on - mean over the player's turns"


def player_centred(returns: ArrayLike, players: ArrayLike, *, form: str = "plain") -> Floats:
    """Returns minus their player's mean, over turns or over distinct values."""
    g, code = np.asarray(returns, np.float64), np.asarray(players, np.int64)
    if form == "plain":
        return g - group_stats(g, code).mean[code]
    if form != "unique":
        raise InputError(f"no form {form!r}", fix="plain or unique")
    pairs = np.unique(np.stack([code.astype(np.float64), g]), axis=1)
    return g - group_stats(pairs[1], pairs[0].astype(np.int64)).mean[code]


def released(rewards: ArrayLike, is_end: ArrayLike, chains: ArrayLike, players: ArrayLike, *, padded: bool = False) -> Floats:
    """The released pipeline on flat response tokens: `rewards` stand at turn ends, `chains` are one player's tokens of a game.

    (1) minus the player's mean over turn ends; (2) whitened over all tokens, which moves the zeros between too; (3) reverse sums
    along a chain; (4) minus the player's mean of distinct values, with one zero more where batches are `padded`; (5) whitened.
    """
    x, code = np.array(rewards, np.float64), np.asarray(players, np.int64)
    end = np.asarray(is_end, np.bool_)
    x[end] -= group_stats(x[end], code[end]).mean[code[end]] if end.any() else 0.0
    g = reward_to_go(whiten(x), segments=chains)
    if padded:
        every = np.unique(code)
        g = player_centred(np.append(g, np.zeros(len(every))), np.append(code, every), form="unique")[: len(g)]
    else:
        g = player_centred(g, code, form="unique")
    return whiten(g)


def _marshal_credit(
    traces: Sequence[Trace], *, form: str = "plain", gamma: Discount = 1.0, key: GroupKey = "task_id", channel: Channel = "team"
) -> Credit:
    tasks = keys_of(traces, key)
    rows, returns, players = [], [], []  # type: list[TraceUnit], list[float], list[object]
    for i, trace in enumerate(traces):
        chains: dict[str, dict[str, list[int]]] = {}
        for name, places in unit_events(trace, "turn").items():
            chains.setdefault(trace.events[places[0]].agent, {})[name] = places
        for agent, turns in chains.items():
            returns += reward_to_go(paid_steps(trace, list(turns.values()), channel), gamma=gamma).tolist()
            rows += [TraceUnit(i, "turn", name) for name in turns]
            players += [(tasks[i], agent)] * len(turns)
    codes, names = group_codes(players)
    amounts = player_centred(returns, codes, form=form) if rows else np.zeros(0)
    sizes = np.bincount(codes, minlength=len(names)).tolist()
    notes = {"form": form, "gamma": gamma, "groups": {str(n): size for n, size in zip(names, sizes, strict=True)}}
    return credit_of("marshal", _ESTIMAND, traces, zip(rows, amounts.tolist(), strict=True), notes=notes)


marshal = Mechanism(
    sees="item",
    unit="turn",
    estimand=_ESTIMAND,
    assumptions="a seat (agent name) means the same in every game of a task",
    cost="nothing",
    additive=False,
    source="MARSHAL, arXiv 2510.15414; official code, plain form",
    run=_marshal_credit,
    needs=("turns",),
    example=lambda: Example(rollouts()),
    relative=True,
)
