"""Who broke it, for commands and the page: runs judged beside other runs of their task, and the decisive step by forks.

Always true: a fork that would ask a model that costs something is priced first, and made only within `budget_tokens`; without a
model that was named, an endpoint is never asked. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from counterpoint.app.api.credit import asks_model
from counterpoint.app.forking import named_model, replay_for
from counterpoint.audit.blame.judge import Blame, blame
from counterpoint.audit.blame.search import Decisive, Redo, find_decisive
from counterpoint.audit.blame.steps import Steps
from counterpoint.credit.fork_price import BudgetedReplay, CountingReplay, ForkPrice
from counterpoint.errors import Refused
from counterpoint.trace import Trace

_OTHERS = 8
"""Other runs of a task that a run is held against."""


def judged(
    traces: Iterable[Trace], *, bar: float = 1.0, anyway: bool = False, most: int | None = None, surprise: str | None = None
) -> Iterator[tuple[Trace, Blame | Refused]]:
    """Each run with its blame, or with the reason why nobody is to blame; runs of one task are held against each other.

    `surprise` names local weights that judge how odd each text is.
    """
    odd = None
    if surprise is not None:
        from counterpoint.team.lm.surprise import surprise_of

        odd = surprise_of(surprise.removeprefix("local:"))
    every = list(traces)
    tasks: dict[str, list[Trace]] = {}
    for trace in every:
        tasks.setdefault(trace.task_id, []).append(trace)
    for trace in every:
        others = [t for t in tasks[trace.task_id] if t.trace_id != trace.trace_id][:_OTHERS]
        try:
            yield trace, blame(trace, others=others, surprise=odd, bar=bar, anyway=anyway, most=most)
        except Refused as refused:
            yield trace, refused


def search_price(trace: Trace, draws: int) -> ForkPrice:
    """At most how many forks the search makes, and the most tokens that they ask of a model."""
    steps = Steps(trace)
    counting = CountingReplay(asks_model=asks_model(trace))
    redo = Redo(trace, counting, bar=float("inf"), draws=draws)
    for i in steps.places[: 1 + int(np.ceil(np.log2(max(len(steps), 2))))]:  # the earliest are the dearest
        redo.saves(i)
    return ForkPrice(counting.forks_made, counting.tokens)


def decisive_by_forks(
    trace: Trace,
    found: Blame,
    *,
    bar: float = 1.0,
    draws: int = 2,
    seed: int = 0,
    budget_tokens: int | None = None,
    model: str | None = None,
    allow: Collection[str] = (),
    **live: Any,
) -> Decisive:
    """The decisive step by forks, guided by the ranking."""
    made = named_model(trace, {"model_name": model, "allow": tuple(allow), "base_url": None, "key_env": None, **live})
    replay: Any = replay_for(trace, model=made, allow=tuple(allow))
    if model is not None and model.partition(":")[0] not in ("fake", "scripted") and budget_tokens is None:
        price = search_price(trace, draws)
        what = f"the search may make {price.forks:,} forks and ask {model} for up to {price.tokens:,} tokens"
        raise Refused(
            what, where=trace.trace_id, fix=f"--budget-tokens {price.tokens} allows that much; a smaller number stops earlier"
        )
    if budget_tokens is not None:
        replay = BudgetedReplay(replay, budget_tokens)
    steps = Steps(trace)
    score = {s.event: s.score for s in found.suspects}
    weights = np.array([score.get(trace.events[i].id, 0.0) for i in steps.places])
    return find_decisive(trace, Redo(trace, replay, bar=bar, draws=draws, seed=seed), weights, steps=steps)
