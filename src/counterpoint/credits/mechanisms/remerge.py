"""Credit of workers by the recorded merges, made again without some of them: Shapley values. No calls.

    v(S) = score of the answer when only what the workers in S returned is merged
    phi_i = mean over orders of v(before and i) - v(before)                      (Shapley 1953)

Always true: rows sum to v(all) - v(nobody), v(all) being the recorded reward. Everything that was said stays as it was: only the
merge rule and the checker run again, so it costs no model call, and it is biased where somebody would have reacted. Who merges
is always there and has no row. Of two workers that found the same thing each gets half, where taking out one would give both
nothing. Exact for up to 8 workers, else the mean over antithetic orders. The agent-level counterpart is SHARP (arXiv
2602.08335); departure: the recorded merge in place of a placeholder message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Protocol

import numpy as np

from counterpoint.credits.default import Beside, Default, no_reward
from counterpoint.credits.games import Game
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.shared_options import ORDERS, SEED
from counterpoint.credits.team_games import solve
from counterpoint.errors import NotIdentified
from counterpoint.options import NonNegativeInt, PositiveInt
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, CreditRow

MOST_EXACT = 8
_ESTIMAND = "Shapley value of each worker for the score of the recorded merge, everything else frozen"


class Merged(Protocol):
    """The last merge of a trace, to be made again."""

    @property
    def workers(self) -> list[str]:
        """Whose returns it is made of."""

    def score(self, absent: Collection[str]) -> float:
        """What the answer scores without what these workers returned."""


def _remerge_credit(
    traces: Sequence[Trace],
    *,
    merged: Callable[[Trace], Merged | None] | None = None,
    orders: Annotated[PositiveInt, ORDERS] = 64,
    seed: Annotated[NonNegativeInt, SEED] = 0,
) -> Credit:
    rows: list[CreditRow] = []
    silent: dict[tuple[int, str], str] = {}
    declared: list[float] = []
    about: list[dict[str, float]] = []
    for k, trace in enumerate(traces):
        merge = None if merged is None else merged(trace)
        if merge is None:
            what = "nothing here can make this team's merges again"
            raise NotIdentified(what, "a trace of `counterpoint play`", where=trace.trace_id)
        workers = np.array(merge.workers)
        game = Game(len(workers), lambda present, f=merge, w=workers: f.score(w[~present].tolist()))  # type: ignore[misc]
        is_exact = len(workers) <= MOST_EXACT
        top = np.full(len(workers), -1)
        solved = solve(game, "exact" if is_exact else "sampled", top, orders=None if is_exact else orders, seed=[seed, k])
        found_se = np.full(len(workers), np.nan) if solved.se_A is None else solved.se_A
        se = [x if np.isfinite(x) else None for x in found_se.tolist()]  # one antithetic pair shows no spread
        rows += [CreditRow(k, "agent", *row) for row in zip(workers.tolist(), solved.value_A.tolist(), se, strict=True)]
        everybody, nobody = merge.score(()), merge.score(workers.tolist())
        declared.append(everybody - nobody)
        about.append({"v_all": everybody, "v_nobody": nobody, "orders": solved.orders})
        others = sorted(trace.members - set(workers.tolist()))
        silent |= {(k, name): "it returned nothing that the last merge read by itself" for name in others}
    ids = tuple(t.trace_id for t in traces)
    notes = {"traces": about}
    return Credit("remerge", _ESTIMAND, True, ids, tuple(rows), declared=np.array(declared), unidentified=silent, notes=notes)


class _Counted:
    """The example's merge: an item is right where anybody claims it right."""

    def __init__(self, trace: Trace) -> None:
        self._claims = [(e.agent, e.task, float(e.reward["R2"])) for e in trace.events if e.reward and "R2" in e.reward]
        self.workers = list(dict.fromkeys(agent for agent, _, _ in self._claims))

    def score(self, absent: Collection[str]) -> float:
        """The share of items that somebody who is there answered right."""
        items = {task for _, task, _ in self._claims}
        right = {task for agent, task, worth in self._claims if worth > 0.5 and agent not in absent}
        return len(right) / len(items) if items else 0.0


def _no_merge(traces: Sequence[Trace], beside: Beside) -> str | None:
    merges = [] if beside.merged is None else [one for trace in traces if (one := beside.merged(trace)) is not None]
    if len(merges) < len(traces):
        return "its merges cannot be made again: this is no recording of `counterpoint play`"
    if any(one.runs_code for one in merges):
        return "the task's checker runs what the team wrote as a program: ask for it by name"
    if any(len(one.workers) < 2 for one in merges):
        return "fewer than two workers are in the last merge"
    return no_reward(traces)


remerge = Mechanism(
    unit="agent",
    estimand=_ESTIMAND,
    assumptions="the answer is a deterministic function of what was returned; the other agents' behaviour is held fixed",
    cost="none: the merge rule and the checker, 2^n times for up to 8 workers, orders * n times for more",
    additive=True,
    source="Shapley 1953; cf. SHARP, arXiv 2602.08335. Departure: the recorded merge is made again, without placeholders",
    run=_remerge_credit,
    needs=("merges",),
    example=lambda: Example(rollouts(), {"merged": _Counted}),
    default=Default(
        "the team's last merge can be made and scored again without each worker's returns: no model calls; "
        "other agents' behaviour is held fixed",
        _no_merge,
        takes=("merged",),
    ),
)
