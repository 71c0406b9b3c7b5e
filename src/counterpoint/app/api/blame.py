"""`cpt.blame`: who broke it. Runs judged beside other runs of their task, what recurs, and the decisive step by forks.

Always true: a fork that would ask a model that costs something is priced first, and made only within `budget_tokens`; without a
model that was named, an endpoint is never asked. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

import counterpoint.registry as registry
from counterpoint.app.api.credit import asks_model
from counterpoint.app.api.inputs import many_traces
from counterpoint.app.forks import is_log, named_model, replay_for
from counterpoint.audits.blame.judge import Blame, Cause, Suspect, causes
from counterpoint.audits.blame.judge import blame as ranked
from counterpoint.audits.blame.repair import ARMS, Repair, advice_of, repair_arms
from counterpoint.audits.blame.search import Decisive, Redo, find_decisive
from counterpoint.audits.blame.steps import Steps
from counterpoint.credits.fork_price import BudgetedReplay, CountingReplay, ForkPrice
from counterpoint.credits.own_scores import beside_forks
from counterpoint.errors import InputError, NotIdentified, Refused
from counterpoint.trace import Trace
from counterpoint.trace.keys import REPLAY
from counterpoint.trace.outcome import by_hand
from counterpoint.trace.tabular import Tabular

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import Source, StorePlace
    from counterpoint.trace.replay import Replay

_OTHERS = 8
"""Other runs of a task that a run is held against."""


@dataclass(frozen=True)
class Blamed(Tabular):
    """Who broke one run or many; as a table, a row for each suspect."""

    TABLE: ClassVar = {
        "trace_id": "string", "rank": "int64", "agent": "string", "step": "int64", "score": "double", "event": "string",
        "name": "string", "type": "string", "text": "string", "reasons": "list:string", "sure": "string",
    }  # fmt: skip

    found: tuple[tuple[Trace, Blame], ...] = field(repr=False)
    """Each run that was judged."""
    refused: tuple[tuple[str, Refused], ...] = ()
    """Runs that were not, by trace id, with the reason: they succeeded, or nobody says anything."""
    decisive: Decisive | None = None
    """The decisive step by forks, where `replay` asked for it."""
    repair: Repair | None = None
    """Whether going back to the first suspect mends the run, where `repair` asked for it."""

    @property
    def runs(self) -> list[Blame]:
        """The ranking of each run."""
        return [one for _, one in self.found]

    @property
    def first(self) -> Suspect:
        """The first suspect of the first run."""
        return self.runs[0].suspects[0]

    @property
    def suspects(self) -> list[Suspect]:
        """The steps of the first run, the largest share first."""
        return self.runs[0].suspects

    @property
    def agents(self) -> dict[str, float]:
        """Each agent's share in the first run: all its steps together."""
        return self.runs[0].agents

    def causes(self) -> list[Cause]:
        """What recurs over the runs, the most frequent first."""
        return causes(self.found)

    def as_dicts(self) -> Iterator[dict[str, Any]]:
        """What `counterpoint blame --json` prints, a line each."""
        for one in self.runs:
            for rank, suspect in enumerate(one.suspects, 1):
                row = {"trace_id": one.trace_id, "rank": rank, **msgspec.to_builtins(suspect), "sure": one.sure}
                about: dict[str, Any] = {"outcome": one.outcome, "agents": one.agents, "notes": one.notes}
                about |= {"stands_out": one.stands_out, "verdict": one.verdict}
                about |= {"rate": None if one.rate is None else msgspec.to_builtins(one.rate)}
                about |= {"why": msgspec.to_builtins(one.why), "step_set": one.step_set, "set": one.set_words}
                about |= {} if one.stands_out else {"failed": msgspec.to_builtins(one.failed)}
                yield row | (about if rank == 1 else {})
            if self.decisive is not None:
                yield {"trace_id": one.trace_id, "decisive": msgspec.to_builtins(self.decisive)}
            if self.repair is not None:
                yield {"trace_id": one.trace_id, "repair": self.repair.as_dict()}

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per suspect, its reasons in words."""
        for one in self.runs:
            for rank, s in enumerate(one.suspects, 1):
                why = [r.words for r in s.reasons]
                yield (one.trace_id, rank, s.agent, s.step, s.score, s.event, s.name, s.type, s.text, why, one.sure)

    def caption(self) -> str:
        """Who is suspected first, how often such suspects were right, and why."""
        one, more = self.runs[0], len(self.runs) - 1
        because = f". {one.why.words}" if one.stands_out else ""
        return f"{one.trace_id}: {one.verdict}{because}" + (f", and {more:,} more runs" if more else "")


def blame(
    traces: Source,
    *,
    store: StorePlace = None,
    limit: int | None = 20,
    success: float = 1.0,
    anyway: bool = False,
    surprise: str | None = None,
    replay: bool = False,
    repair: bool = False,
    draws: int = 2,
    seed: int = 0,
    model: str | None = None,
    base_url: str | None = None,
    key_env: str | None = None,
    allow: Collection[str] = (),
    budget_tokens: int | None = None,
    team: Any = None,
) -> Blamed:
    """Which step of a failed run may have decided it, whose it is, and why; of many runs, also what recurs.

    `limit` is how many suspects of a run are kept. A run whose team reward is at least `success`, or that nothing says failed, is
    refused unless `anyway`; among several it is left out. `runs[0].verdict` says how often first suspects were right on labelled
    runs of its kind. Where no step stands out, `runs[0].stands_out` is False and its `failed` has what went wrong. `replay` finds
    the decisive step of one run by forks, if it can be done again; a model that costs money is asked only where `model` names it,
    and for at most `budget_tokens`. `repair` goes back to the named step (the first suspect, or with `replay` the decisive step)
    with advice, and holds that against a random step, the last one and `draws` plain retries at equal calls. `team` is the
    function that ran a recorded team of your own, or `FILE:FUNCTION`.

    >>> import counterpoint as cpt
    >>> from counterpoint.testing import synthetic_trace
    >>> trace = synthetic_trace(3, 24, "debate", contents=True)  # a run that failed
    >>> found = cpt.blame(trace)
    >>> found.first.agent in found.agents, round(sum(found.agents.values()), 3), found.first.score < 1
    (True, 1.0, True)
    """
    many = many_traces(traces, store)
    again = replay or repair
    if again and len(many) != 1:
        raise InputError(f"{'replay' if replay else 'repair'} is about one trace, not {len(many):,}", fix="name one")
    found = collected(judged(many, bar=success, anyway=anyway, most=None if again else limit, surprise=surprise))
    if not again:
        return found
    about: dict[str, Any] = {"model": model, "base_url": base_url, "key_env": key_env, "allow": allow, "team": team}
    about |= {"bar": success, "draws": draws, "seed": seed, "budget_tokens": budget_tokens}
    return with_forks(found, limit=limit, is_decisive=replay, is_repair=repair, **about)


def collected(each: Iterable[tuple[Trace, Blame | Refused]]) -> Blamed:
    """Runs that were judged as one result; where none could be, an error says so with the first reason."""
    found, refused = [], []
    for trace, told in each:
        if isinstance(told, Blame):
            found.append((trace, told))
        else:
            refused.append((trace.trace_id, told))
    if not found:
        first = refused[0][1]
        if len(refused) == 1:
            raise first
        raise Refused(f"none of {len(refused):,} runs can be judged; of {refused[0][0]}: {first.what}", fix=first.fix)
    return Blamed(tuple(found), tuple(refused))


def with_forks(
    blamed: Blamed, *, limit: int | None = None, is_decisive: bool = True, is_repair: bool = False, **options: Any
) -> Blamed:
    """The decisive step of the first run by forks, or whether the named step mends it, with its first suspects; `options` are
    those of `decisive_by_forks`."""
    trace, found = blamed.found[0]
    shown = msgspec.structs.replace(found, suspects=found.suspects[:limit])
    decisive = decisive_by_forks(trace, found, **options) if is_decisive else None
    first = [decisive.event] if decisive is not None and decisive.event is not None else []
    repair = repair_by_forks(trace, found, first=first, **options) if is_repair else None
    return Blamed(((trace, shown),), decisive=decisive, repair=repair)


def judged(
    traces: Iterable[Trace], *, bar: float = 1.0, anyway: bool = False, most: int | None = None, surprise: str | None = None
) -> Iterator[tuple[Trace, Blame | Refused]]:
    """Each run with its blame, or with the reason why nobody is to blame; runs of one task are held against each other.

    `surprise` names local weights that judge how odd each text is.
    """
    odd = None
    if surprise is not None:
        odd = registry.hook("surprise", "a language model reads texts")(surprise.removeprefix("local:"))
    every = list(traces)
    tasks: dict[str, list[Trace]] = {}
    for trace in every:
        tasks.setdefault(trace.task_id, []).append(trace)
    for trace in every:
        others = [t for t in tasks[trace.task_id] if t.trace_id != trace.trace_id][:_OTHERS]
        try:
            yield trace, ranked(trace, others=others, surprise=odd, bar=bar, anyway=anyway, most=most)
        except Refused as refused:
            yield trace, refused


def search_price(trace: Trace, draws: int) -> ForkPrice:
    """At most how many forks the search makes, and the most tokens that they ask of a model."""
    steps = Steps(trace)
    counting = CountingReplay(asks_model=asks_model(trace))
    redo = Redo(trace, counting, bar=float("inf"), draws=draws)
    for i in steps.places[: 1 + int(np.ceil(np.log2(max(len(steps), 2))))]:  # the earliest are the costliest
        redo.saves(i)
    return ForkPrice(counting.forks_made, counting.tokens, counting.calls, counting.usd)


def as_scored_by(replay: Replay, trace: Trace) -> Trace:
    """The run with the reward that it, or its replay, gives itself: a person's score is never held against those of forks."""
    if by_hand(trace, "team") is None:
        return trace
    at = next((event.id for event in trace.events if event.key is not None or REPLAY in trace.meta), None)
    return beside_forks(trace, replay, at, "team")


def _check_failed(replay: Replay, trace: Trace, bar: float) -> None:
    """Refuse a search whose forks would count as successes because they end as well as the run itself did."""
    said, own = by_hand(trace, "team"), as_scored_by(replay, trace).rewards.get("team")
    if said is not None and own is not None and own >= bar - 1e-9:
        what = f"{said} is a person's score; forks score themselves, and so scored this run has {own:g}, a success"
        fix = f"--success above {own:g}, if forks can be better than that; or without --replay"
        raise NotIdentified(what, fix, where=trace.trace_id)


def repair_price(trace: Trace, samples: int) -> ForkPrice:
    """At most how many runs the repair plays, and the tokens that they ask of a model, as long as they are no longer than this
    one: the retries, as many calls for each other arm, and a try of each that ends past its budget."""
    counting = CountingReplay(asks_model=asks_model(trace))
    start = next((e.id for e in trace.events if e.key is not None or REPLAY in trace.meta), None)
    for _ in range(len(ARMS) * samples + len(ARMS) - 1 if start is not None else 0):
        counting.fork(trace, str(start))
    return ForkPrice(counting.forks_made, counting.tokens, counting.calls, counting.usd)


def decisive_by_forks(
    trace: Trace, found: Blame, *, bar: float = 1.0, draws: int = 2, seed: int = 0, budget_tokens: int | None = None, **live: Any
) -> Decisive:
    """The decisive step by forks, guided by the ranking; whether the run failed is asked of it as of its forks."""
    replay, limited = _replays(trace, lambda: search_price(trace, draws), budget_tokens, **live)
    _check_failed(replay, trace, bar)
    steps = Steps(trace)
    score = {s.event: s.score for s in found.suspects}
    weights = np.array([score.get(trace.events[i].id, 0.0) for i in steps.places])
    return find_decisive(trace, Redo(trace, limited, bar=bar, draws=draws, seed=seed), weights, steps=steps)


def repair_by_forks(
    trace: Trace,
    found: Blame,
    *,
    first: Sequence[str] = (),
    bar: float = 1.0,
    draws: int = 2,
    seed: int = 0,
    budget_tokens: int | None = None,
    **live: Any,
) -> Repair:
    """Whether going back to the named step with advice mends the run, against its controls; `first` goes before the suspects."""
    if is_log(trace):
        what = "nobody can run the team of an imported log again"
        event = next((s.event for s in found.suspects), "EVENT")
        fix = f"counterpoint fork {trace.trace_id} --at {event} --model NAME plays a logged session on with a model"
        raise NotIdentified(what, fix, where=trace.trace_id)
    replay, limited = _replays(trace, lambda: repair_price(trace, draws), budget_tokens, **live)
    _check_failed(replay, trace, bar)
    named = [*first, *(s.event for s in found.suspects)]
    teller = getattr(replay, "message_before", None)
    return repair_arms(trace, limited, named, advice_of(found), teller=teller, bar=bar, samples=draws, seed=seed)


def _replays(
    trace: Trace,
    price_of: Callable[[], ForkPrice],
    budget_tokens: int | None,
    *,
    model: str | None = None,
    allow: Collection[str] = (),
    team: Any = None,
    **live: Any,
) -> tuple[Any, Any]:
    """Who does the run again, and the same within the budget; refused where a model that costs money has none."""
    about = {"model_name": model, "allow": tuple(allow), "base_url": None, "key_env": None, "team": team, **live}
    replay: Any = replay_for(trace, model=named_model(trace, about), allow=tuple(allow), team=team)
    is_paid = team is not None or (model is not None and model.partition(":")[0] not in ("fake", "scripted"))
    if is_paid and budget_tokens is None and ((price := price_of()).tokens or team is None):
        who = model if team is None else "your team's models"
        what = f"this may make {price.forks:,} forks and ask {who} for up to {price.tokens:,} tokens"
        fix = f"--cap tokens={price.tokens} allows that much; a smaller number stops earlier"
        raise Refused(what, where=trace.trace_id, fix=fix)
    return replay, replay if budget_tokens is None else BudgetedReplay(replay, budget_tokens)
