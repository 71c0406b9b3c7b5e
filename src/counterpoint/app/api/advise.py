"""`cpt.advise`: what to change in a team, ranked by what it gains, with how sure that is.

Always true: a run that can be replayed is tried, never guessed; one that cannot is judged by other runs of its task, or refused.
A model that costs money is asked only where `budget_tokens` says how much; `price_of` says first what it would take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import counterpoint.registry as registry
from counterpoint.app.api.credit import asks_model
from counterpoint.app.api.inputs import many_traces
from counterpoint.app.forks import replay_for
from counterpoint.app.load_save import store_path
from counterpoint.credits.advice import KINDS, Advice, Advised, Trials, advise_from_runs
from counterpoint.credits.advice import advise as raced
from counterpoint.credits.best_arm import LEAST
from counterpoint.credits.fork_price import ForkPrice
from counterpoint.display import counted
from counterpoint.errors import InputError, NotFound, NotIdentified, Refused, did_you_mean
from counterpoint.trace import Trace

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import Source, StorePlace
    from counterpoint.recorder.orders import Order

RUNS = 40
"""Scored runs of a task that a log needs: 20 with a change and 20 without."""
WORLD_BUDGET, LIVE_BUDGET = 40, 8
"""Trials for each change, where nobody says how many."""


def advise(
    traces: Source,
    *,
    store: StorePlace = None,
    budget: int | None = None,
    scope: str = "all",
    kinds: Sequence[str] = (),
    models: Mapping[str, str] | None = None,
    say: Sequence[str] = (),
    at: Sequence[str] = (),
    sure: float = 0.95,
    rank: str = "gain",
    seed: int = 0,
    model: Any = None,
    base_url: str | None = None,
    key_env: str | None = None,
    allow: Sequence[str] = (),
    budget_tokens: int | None = None,
    team: Any = None,
) -> Advice:
    """What to change: candidate changes of a run, tried until the best is certain or `budget` trials are spent.

    `scope` is `task` (habits that other runs can follow), `run` (one event of this run) or `all`; `kinds` and `at` (event ids)
    narrow the candidates; `models` names another model to try for a role, `say` messages to try. Of several traces the first is
    advised (`team` is the function that ran it, or its `FILE:FUNCTION`); where it cannot be replayed all others, or all runs of
    its task in the store, say what each change is worth.

    >>> import counterpoint as cpt
    >>> trace = cpt.world("W1", vote_items=12).run("spawn_all", [0], log=True).trace(0)
    >>> found = cpt.advise(trace, scope="task", kinds=["width"])
    >>> found.first.change.says[:18], found.first.verdict
    ('spawn half as many', 'helps')
    """
    many = many_traces(traces, store)
    _check(many[0], scope, kinds, at, sure)
    live = {"model": model, "base_url": base_url, "key_env": key_env, "allow": allow, "budget_tokens": budget_tokens}
    trials = trials_of(many[0], team=team, kinds=kinds, models=models, say=say, seed=seed, **live)
    runs = [many[0]] if trials is not None else _group(many, store)
    if (lacking := needed(many[0], can_replay=trials is not None, others=len(runs) - 1)) is not None:
        raise lacking
    if trials is None:
        return advise_from_runs(runs, delta=1 - sure, ids=at)
    trials.changes = [c for c in trials.changes if scope in ("all", c.scope) and (not at or c.at in at)]
    _allowed(many[0], trials, is_named=model is not None or team is not None, budget_tokens=budget_tokens)
    each, at_once = (WORLD_BUDGET, 16) if many[0].meta.get("world") else (LIVE_BUDGET, 4)
    chosen = max(LEAST, each * len(trials.changes)) if budget is None else budget
    return raced(trials, many[0].trace_id, budget=chosen, delta=1 - sure, rank=rank, at_once=at_once)


def trials_of(trace: Trace, *, team: Any = None, **asked: Any) -> Trials | None:
    """What can try changes of this run, by an installed package that can replay it; None where none can. `asked` is what the
    package's own `trials_of` takes: kinds, models, say, seed, and the model for changed calls. `team` is a person's own code."""
    if team is not None:
        from counterpoint.app.own_trials import OwnTrials

        replay = replay_for(trace, model=asked.get("model"), allow=asked.get("allow", ()), team=team)
        return OwnTrials(trace, replay, kinds=asked.get("kinds", ()), seed=asked.get("seed", 0), cap=asked.get("budget_tokens"))
    found: Trials | None = registry.answer("trials_of", trace, **asked)
    return found


def advise_orders(
    so_far: Trace,
    *,
    agent: str = "",
    say: Sequence[str] = (),
    budget: int | None = None,
    model: str | None = None,
    base_url: str | None = None,
    key_env: str | None = None,
    budget_tokens: int | None = None,
    sure: float = 0.95,
) -> tuple[Advice, Order | None]:
    """What orders to a running team would gain, and the best that gains: its recording is played on with each, and without."""
    asked = registry.hook("order_trials", "orders are tried")
    trials = asked(so_far, say=say, agent=agent, model=model, base_url=base_url, key_env=key_env)
    if asks_model(so_far):
        if model is None:
            fix = "name the model again, as in --model openai:NAME --base-url URL"
            raise NotIdentified("its model's next answer is unknown", fix, where=so_far.trace_id)
        least = LEAST * 2 * sum(trials.tokens(c) for c in trials.changes)  # about as much again as it has spent, a run
        if budget_tokens is None or budget_tokens < least:
            what = f"trials may ask a model for about {least:,} tokens, if what is left costs what there was"
            why = "no budget is given" if budget_tokens is None else f"the budget is {budget_tokens:,}"
            raise Refused(what, where=so_far.trace_id, why=why, fix=f"--cap tokens={least}")
    chosen = LIVE_BUDGET * len(trials.changes) if budget is None else budget
    found = raced(trials, so_far.trace_id, budget=chosen, delta=1 - sure)
    return found, None if found.first is None else trials.order_of(found.first.change)


def price_of(trials: Trials) -> ForkPrice:
    """The least that a race takes: four trials of each change, and of the run without it."""
    habits = [c for c in trials.changes if c.is_habit]
    tokens = LEAST * (sum(trials.tokens(c) for c in trials.changes) + (trials.tokens(habits[0]) if habits else 0))
    return ForkPrice(LEAST * len(trials.changes), tokens)


def applied(trials: Trials, chosen: Advised) -> Trace:
    """The run with a change that was advised."""
    return trials.apply(chosen.change)


def needed(trace: Trace, *, can_replay: bool, others: int) -> NotIdentified | None:
    """All that is missing before a change of this run can be judged, and what would do; None where nothing is.

    `others` are scored runs of its task."""
    name, is_scored = trace.trace_id, "team" in trace.rewards
    if is_scored and (can_replay or others):
        return None  # too few others say so themselves
    if can_replay or others >= RUNS - 1:
        fix = f"counterpoint notes score {name} team=1"
        return NotIdentified("this run has no outcome that a change could improve", fix, where=name)
    stored = f"only {counted(others, 'other scored run')} of its task" if others else "no other run of its task"
    also = "" if is_scored else "; it has no outcome either, which alone would not do"
    what = f"this run cannot be replayed, and the store has {stored}{also}"
    fix = (
        f"{RUNS} scored runs of the task, 20 with a change and 20 without, or a team that is played here: `counterpoint play`, "
        f"`play --world`; what went wrong in this one say `counterpoint audit {name} --failures` and `counterpoint blame {name}`"
    )
    return NotIdentified(what, fix, where=name)


def _allowed(trace: Trace, trials: Trials, *, is_named: bool, budget_tokens: int | None) -> None:
    """Raise where a model that costs something would be asked without being named again, or without a budget: both at once."""
    if not asks_model(trace) or not trials.changes or (is_named and budget_tokens is not None):
        return
    price = price_of(trials)
    what = f"{price.forks:,} trials at least would ask a model for up to {price.tokens:,} tokens"
    lacks = {} if is_named else {"no model is named": "--model openai:NAME --base-url URL (its own, or another)"}
    lacks |= {"no budget is given": f"--cap tokens={price.tokens}"} if budget_tokens is None else {}
    fix = f"{' and '.join(lacks.values())}; fewer --kinds cost less"
    raise Refused(what, where=trace.trace_id, why=" and ".join(lacks), fix=fix)


def first_of(traces: Sequence[Trace]) -> list[Trace]:
    """Of runs that a query found, the one to advise, first, and those that can say something about it.

    Of the scored runs that can be replayed it is the one that earned least; else those of the task with the most scored runs.
    Where none can be advised, the error says what they lack."""
    scored = sorted((t for t in traces if "team" in t.rewards), key=lambda t: float(t.rewards["team"]))
    if (first := next(filter(can_replay, scored), None)) is not None:
        return [first]
    tasks = Counter(t.task_id for t in scored)
    task, most = next(iter(tasks.most_common(1)), ("", 0))
    if most > 1:
        return [t for t in scored if t.task_id == task]
    what = f"none of {len(traces):,} runs can be advised: {len(traces) - len(scored):,} have no outcome"
    replayed = sum(map(can_replay, traces))
    what += f", {len(traces) - replayed:,} cannot be replayed, and no two scored ones are of one task"
    fix = f"runs with an outcome (`counterpoint notes score`) of a team of `counterpoint play`, or {RUNS} of one task"
    raise NotIdentified(what, fix)


def can_replay(trace: Trace) -> bool:
    """Whether changes of a run could be tried: by what it says of itself, nothing is loaded."""
    return isinstance(trace.meta.get("team"), dict) or isinstance(trace.meta.get("world"), str)


def _check(trace: Trace, scope: str, kinds: Sequence[str], at: Sequence[str], sure: float) -> None:
    if scope not in ("all", "task", "run"):
        raise InputError(f"no scope {scope!r}", fix="all, task or run")
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"no kind of change {kind!r}", fix=did_you_mean(kind, KINDS))
    for name in at:
        if name not in trace.index:
            raise NotFound(f"no event {name!r}", where=trace.trace_id, fix="counterpoint show lists events")
    if not 0.5 <= sure < 1:
        raise InputError(f"sure is {sure:g}", fix="a share from 0.5 to below 1, such as 0.95")
    if len(trace.events) < 2:
        fix = "a run in which a team decided something"
        raise NotIdentified("a run of one step has nothing to change", fix, where=trace.trace_id)


def _group(traces: list[Trace], store: StorePlace) -> list[Trace]:
    """The runs that were given; of one alone, all scored runs of its task that the store has, itself first."""
    first = traces[0]
    if len(traces) > 1:
        others = [t for t in traces[1:] if "team" in t.rewards]
    else:
        others = [t for t in _stored(first.task_id, store) if t.trace_id != first.trace_id and "team" in t.rewards]
    return [first, *others]


def _stored(task_id: str, store: StorePlace) -> list[Trace]:
    from counterpoint.store import Store

    if isinstance(store, Store):
        return [store.get(row.id) for row in store.rows() if row.task_id == task_id and not row.is_open]
    if not store_path(store).exists():
        return []
    with Store(store_path(store), create=False, read_only=True) as opened:
        return [opened.get(row.id) for row in opened.rows() if row.task_id == task_id and not row.is_open]
