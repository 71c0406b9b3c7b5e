"""What to change in a team: candidate changes, tried against the run as it was, and ranked with a certificate.

Always true: a trial is a pair, with and without the change on the same noise; the recorded trace is not touched. A change is made
once, at one event of the recorded run, and tried by forks of that run; or it is a habit that other runs of the task can follow,
and is tried on fresh questions of the task. The two are raced apart. Where nothing can be replayed the effect is estimated from
many runs of the task (`advise_from_runs`), or refused with what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, ClassVar, Protocol

import numpy as np

import counterpoint.registry as registry
from counterpoint.credits.best_arm import LEAST, Race, race
from counterpoint.display import counted, working
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.replay import Do
from counterpoint.trace.tabular import Tabular

KINDS = ("message", "spawn", "width", "brief", "merge", "stop", "model", "rounds", "topology")
RANKS = ("gain", "per-cost")
SCOPES = ("task", "run")
"""What a change is for: all runs of the task (habits), or the recorded run alone."""


@dataclass(frozen=True)
class Change:
    """One thing that could be different."""

    kind: str
    says: str
    """In words, as advice."""
    at: str = ""
    """The event of the recorded run where it begins."""
    do: Do | None = None
    """What is done there, once; None for a habit."""
    habit: Mapping[str, Any] = field(default_factory=dict)
    """What is done from there on, in the world's or the team's own terms."""
    first: int = 0
    last: int = 1 << 40
    """The rounds of a habit in a simulated world."""

    @property
    def is_habit(self) -> bool:
        """Whether other runs can follow it."""
        return bool(self.habit)

    @property
    def scope(self) -> str:
        """What it is for."""
        return "task" if self.is_habit else "run"


class Trials(Protocol):
    """What can try changes of one recorded run."""

    changes: Sequence[Change]

    def gains(self, change: Change, start: int, count: int) -> list[float]:
        """With the change less without it, of trials `start` and up; fewer where the tokens are spent."""

    def tokens(self, change: Change) -> int:
        """Tokens that the recorded run would have to spend (again) to follow the change."""

    def apply(self, change: Change) -> Trace:
        """The run with the change."""


@dataclass(frozen=True)
class Advised:
    """One change with what is known of it."""

    change: Change
    gain: float
    """Mean of the trials, or the estimate; NaN where it was not tried."""
    low: float
    high: float
    trials: int
    tokens: int | None
    """What following it costs; None where nothing says."""

    @property
    def per_cost(self) -> float | None:
        """Gain for 1,000 tokens of following it."""
        return None if not self.tokens else 1000 * self.gain / self.tokens

    @property
    def verdict(self) -> str:
        """Whether the interval says something."""
        return "helps" if self.low > 0 else "hurts" if self.high < 0 else "not tried" if not self.trials else "open"


@dataclass(frozen=True)
class Advice(Tabular):
    """Changes of one run, the best first, and how sure that is."""

    TABLE: ClassVar = {
        "for": "string", "kind": "string", "change": "string", "event": "string", "gain": "double", "low": "double",
        "high": "double", "trials": "int64", "tokens": "int64", "per_1k_tokens": "double", "verdict": "string",
    }  # fmt: skip

    trace_id: str
    rows: tuple[Advised, ...]
    source: str
    """forks, or runs."""
    certificates: Mapping[str, str]
    """What is certain, in words, by what the changes are for: all runs of the task, or the recorded run."""
    trials: int
    races: Mapping[str, Race] = field(default_factory=dict)

    @property
    def first(self) -> Advised | None:
        """The first advice: what is best for the task, else for the run; None where doing nothing is best as far as is known."""
        tops = [rows[0] for scope in SCOPES if (rows := self.of(scope))]
        return next((row for row in tops if row.gain > 0), None)

    def of(self, scope: str) -> list[Advised]:
        """The changes for the task, or for the run."""
        return [row for row in self.rows if row.change.scope == scope]

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per change, the best first."""
        return (
            (c.scope, c.kind, c.says, c.at, r.gain, r.low, r.high, r.trials, r.tokens, r.per_cost, r.verdict)
            for r in self.rows
            for c in [r.change]
        )

    def row_count(self) -> int:
        """How many changes were considered."""
        return len(self.rows)

    def caption(self) -> str:
        """The certificate."""
        return f"{self.trace_id}: " + "; ".join(f"for the {scope}, {sentence}" for scope, sentence in self.certificates.items())


def advise(
    trials: Trials, trace_id: str, *, budget: int, delta: float = 0.05, within: float = 0.0, rank: str = "gain", at_once: int = 4
) -> Advice:
    """Try the changes until the best is certain or the budget is spent."""
    if rank not in RANKS:
        raise InputError(f"no rank {rank!r}", fix="gain or per-cost")
    if not trials.changes:
        fix = "advise a run in which a team decided something: a spawn, a merge, a message or a stop"
        raise NotIdentified("this run offers no change to try", fix, where=trace_id)
    if budget < LEAST * len(trials.changes):
        what = f"{counted(len(trials.changes), 'change')}, of at least {LEAST} trials each, and the budget is {budget}"
        fix = f"a budget of {LEAST * len(trials.changes)} or more, or fewer kinds of change"
        raise InputError(what, where=trace_id, fix=fix)
    rows: list[Advised] = []
    races: dict[str, Race] = {}
    certificates: dict[str, str] = {}
    for scope in SCOPES:
        mine = [c for c in trials.changes if c.scope == scope]
        if not mine:
            continue
        share = budget * len(mine) // len(trials.changes)
        most = max(share, LEAST * len(mine))
        with working(f"trials for the {scope}", most) as work:

            def pull(arm: int, start: int, count: int, mine: list[Change] = mine, work: Any = work) -> Sequence[float]:
                gains = trials.gains(mine[arm], start, count)
                work.step(count, about=mine[arm].says)
                return gains

            race_result = races[scope] = race(pull, len(mine), budget=most, delta=delta, within=within, at_once=at_once)
        columns = zip(mine, race_result.mean_A, race_result.low_A, race_result.high_A, race_result.trials_A, strict=True)
        advised = [Advised(c, float(g), float(lo), float(hi), int(n), trials.tokens(c)) for c, g, lo, hi, n in columns]
        rows += _ranked(advised, rank)
        certificates[scope] = _certified(race_result, mine, delta)
    return Advice(trace_id, tuple(rows), "forks", certificates, sum(r.trials for r in races.values()), races)


def _ranked(rows: Sequence[Advised], rank: str) -> tuple[Advised, ...]:
    """The best first; what was not tried, last. What helps for sure stands before what only seems to."""

    def order(row: Advised) -> tuple[bool, bool, float]:
        value = row.per_cost if rank == "per-cost" and row.per_cost is not None else row.gain
        return not row.trials, row.verdict != "helps" and rank == "per-cost", -value if np.isfinite(value) else 0.0

    return tuple(sorted(rows, key=order))


def _certified(result: Race, changes: Sequence[Change], delta: float) -> str:
    sure = f"{100 * (1 - delta):g} %"
    if result.best < 0:
        most = float(max(result.high_A[np.isfinite(result.high_A)], default=0.0))
        if most <= 0:
            return f"nothing here helps: doing as the team did is best of all {len(changes) + 1} ({sure})"
        return f"no change gained in {result.trials:,} trials; none is worth more than {most:.4g} ({sure})"
    says = changes[result.best].says
    if result.is_certified:
        return f"{says}: the best of {len(changes)} changes and better than none ({sure})"
    helps = "helps" if result.helps else "gained, which may be chance"
    untried = int((result.trials_A < LEAST).sum())
    more = f"; {untried} changes were not tried enough" if untried else ""
    return f"{says}: {helps}; no other change is better by more than {result.behind:.4g} ({sure}){more}"


# -- from many runs, where nothing can be replayed -------------------------------------------------------------------------


def advise_from_runs(traces: Sequence[Trace], *, delta: float = 0.05, ids: Sequence[str] = ()) -> Advice:
    """What other runs of the task say about sending each message, spawning and stopping, doubly robust, all intervals at once.

    The advice is about the first trace: its messages, and the decisions that it had. `ids` restricts it to some events.
    """
    asked = traces[0]
    if len(traces) == 1:
        fix = "40 runs of the task, 20 with and 20 without; or a run that can be replayed: `counterpoint play`, `play --world`"
        raise NotIdentified("this run cannot be replayed, and the store has no other run of its task", fix, where=asked.trace_id)
    rows: list[tuple[Change, float, float, int]] = []
    reasons: list[str] = []
    for make in (_message_changes, _decision_changes):
        try:
            rows += [row for row in make(traces) if not ids or row[0].at in ids]
        except NotIdentified as error:
            reasons.append(error.what)
    if not rows:
        why = reasons[0].removeprefix("not identified: ") if reasons else "no message and no decision has two arms"
        fix = "runs that differ, 20 with and 20 without; or a run that can be replayed: `counterpoint play`, `play --world`"
        many = "one run" if len(traces) == 1 else f"{len(traces)} runs"
        what = f"{many} of the task cannot say what a change would bring: {why}"
        raise NotIdentified(what, fix, where=asked.trace_id)
    z = NormalDist().inv_cdf(1 - delta / len(rows) / 2)
    ranked = _ranked([Advised(c, g, g - z * se, g + z * se, n, None) for c, g, se, n in rows], "gain")
    sure = f"{100 * (1 - delta):g} %, if what decided is in the log"
    if ranked[0].low > 0:
        sentence = f"{ranked[0].change.says}: helps ({sure})"
    elif all(r.high <= 0 for r in ranked):
        sentence = f"nothing here helps ({sure})"
    else:
        sentence = f"no change is certain to help; more runs than {len(traces)} narrow the intervals ({sure})"
    return Advice(asked.trace_id, ranked, "runs", {"run": sentence}, len(traces))


def _message_changes(traces: Sequence[Trace]) -> list[tuple[Change, float, float, int]]:
    asked = traces[0]
    credit = registry.get("mechanism", "message_logged")(list(traces), key="batch")
    out = []
    for row in credit.rows:
        if row.trace == 0 and row.se is not None:
            event = asked.events[asked.index[row.unit_id]]
            whom = f" to {event.to}" if event.to else ""
            says = f"do not send {event.id} ({event.agent}{whom})"
            out.append((Change("message", says, at=event.id), -float(row.value), float(row.se), len(traces)))
    return out


def _decision_changes(traces: Sequence[Trace]) -> list[tuple[Change, float, float, int]]:
    """Stop rather than go on, and spawn rather than not, turn by turn of the first trace."""
    asked, out = traces[0], []
    by_turn: Callable[[Trace, Any], int] = lambda trace, event: int(event.turn or 0)  # noqa: E731
    for kind, words in (("stop", ("stop", "go on")), ("spawn", ("spawn", "do not spawn"))):
        more = {"propensity": "auto"} if kind == "stop" else {"value": "effect"}
        try:
            credit = registry.get("mechanism", kind)(list(traces), estimator="doubly_robust", leaf=by_turn, **more)
        except NotIdentified:
            continue
        for row in credit.rows:
            event = asked.events[asked.index[row.unit_id]] if row.trace == 0 else None
            if event is None or row.se is None or not row.value:
                continue
            effect = credit.notes["delta" if kind == "stop" else "tau"][0, row.unit_id]
            se = float(row.se) * abs(effect / row.value)
            is_taken = event.decision == kind
            says = f"{words[1] if is_taken else words[0]} at {event.id} (turn {event.turn})"
            out.append((Change(kind, says, at=event.id), -effect if is_taken else effect, se, len(traces)))
    return out
