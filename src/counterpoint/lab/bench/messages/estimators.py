"""Estimators of what a message was worth, each from finished runs: by name, with what they ask of a model.

Always true: none reads a label of the run that it judges; an estimator that cannot be computed says why and has no row of
numbers; a message for which it has no number counts as 0 in ranks, and the share of those that have one is told.

| name | of a message m |
|---|---|
| `leave-one-out` | R - R(m deleted) of this run, by one fork on the recorded noise |
| `masked replay` | the last merge made again without m (a return), everything else frozen; 0 for what is in no merge |
| `message_logged` | doubly robust, sent against not sent, over the runs of its team |
| `c3` | reward over that of the samples that said something else after the same words |
| `c3, by place` | the same without the same words: by sender and place |
| `shapley` | of its worker, by merges of groups' returns, divided among the worker's messages |
| `provenance` | share of the answer's words that m was the first to say |
| `judge` | chance that a model says it helped, shown question, message and answer |
| `regression` | ridge on kind, place, length, readers and reward, learned on other instances |
| `kind` | mean label of its kind on other instances |
| `readers`, `length`, `late` | edges that lead away; characters; place in the run |
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.credits.doubly_robust import ridge
from counterpoint.credits.mechanism import Mechanism
from counterpoint.errors import CounterpointError, InputError, NotIdentified
from counterpoint.lab.bench.messages.rows import MessageRow
from counterpoint.lab.lm.model import Call, Message, Model
from counterpoint.lab.team.remerge import Remerge
from counterpoint.lab.train.lm.advantages import merged_worth
from counterpoint.trace import Trace
from counterpoint.trace.rows import Credit

Place = tuple[str, str]
"""A run's name and an event of it."""
_FOLDS, _AT_ONCE = 5, 256
KINDS = ("order", "return", "peer")


@dataclass(frozen=True)
class Batch:
    """What is judged: labelled rows of one change, and their runs."""

    rows: tuple[MessageRow, ...]
    runs: Mapping[str, Trace]
    model: Model | None = None
    """A judge."""

    def by_run(self) -> dict[str, list[MessageRow]]:
        """The rows of each run."""
        out: dict[str, list[MessageRow]] = {}
        for row in self.rows:
            out.setdefault(row.run, []).append(row)
        return out

    def together(self, key: Callable[[MessageRow], str]) -> Iterator[list[Trace]]:
        """The runs of one group after the other, such as the samples of an instance: never all at once."""
        names: dict[str, dict[str, None]] = {}
        for row in self.rows:
            names.setdefault(key(row), {})[row.run] = None
        for some in names.values():
            yield [self.runs[name] for name in some]

    def folds(self) -> Iterator[tuple[list[int], list[int]]]:
        """Places of rows to learn from and to judge: instances are never split."""
        groups = list(dict.fromkeys(r.group for r in self.rows))
        fold = {group: i % _FOLDS for i, group in enumerate(groups)}
        for f in range(min(_FOLDS, len(groups))):
            test = [i for i, r in enumerate(self.rows) if fold[r.group] == f]
            yield [i for i, r in enumerate(self.rows) if fold[r.group] != f], test


@dataclass(frozen=True)
class Estimates:
    """What an estimator says of the messages that it has a number for."""

    values: Mapping[Place, float] = field(default_factory=dict)
    se: Mapping[Place, float] = field(default_factory=dict)
    calls: float = 0.0
    """Model calls a message."""
    why_not: str = ""
    """Why there is no number at all."""


Estimator = Callable[[Batch], Estimates]


def _of_rows(value: Callable[[MessageRow], float]) -> Estimator:
    return lambda batch: Estimates({(r.run, r.event): float(value(r)) for r in batch.rows})


def _leave_one_out(batch: Batch) -> Estimates:
    """The fork that the label's file keeps beside the label, on noise that the label does not have."""
    calls = [r.calls_here or 0 for r in batch.rows]
    found = {(r.run, r.event): float(r.here) for r in batch.rows if r.here is not None}
    return Estimates(found, {}, float(np.mean(calls)) if calls else 0.0)


def _masked(batch: Batch) -> Estimates:
    out: dict[Place, float] = {}
    for run, rows in batch.by_run().items():
        merge = Remerge(batch.runs[run])
        if merge.is_identified:
            for row in rows:
                out[run, row.event] = merge.score(()) - merge.score((row.event,)) if row.kind == "return" else 0.0
    return Estimates(out) if out else Estimates(why_not="no team answered with a merge that can be made again")


def _credit(make: Callable[[Sequence[Trace]], Credit], traces: Sequence[Trace]) -> list[Credit]:
    """Of all traces at once; where some are refused, of each that is not."""
    try:
        return [make(traces)]
    except (NotIdentified, InputError):
        found = []
        for trace in traces if len(traces) > 1 else ():
            found += _credit(make, [trace])
        return found


def _of_credit(batch: Batch, credits_: Sequence[Credit], *, calls: float = 0.0) -> Estimates:
    """Rows of messages as they are; those of an agent go to what it said, and to the orders it got, in equal parts."""
    by_agent: dict[Place, list[str]] = defaultdict(list)
    for r in batch.rows:
        by_agent[r.run, r.receiver if r.kind == "order" else r.sender].append(r.event)
    values: dict[Place, float] = {}
    se: dict[Place, float] = {}
    known = {(r.run, r.event) for r in batch.rows}
    for credit in credits_:
        for row in credit.rows:
            run = credit.trace_ids[row.trace]
            events = by_agent[run, row.unit_id] if row.unit == "agent" else [row.unit_id]
            for event in events:
                if (run, event) in known:
                    values[run, event] = row.value / len(events)
                    if row.se is not None and row.unit != "agent":
                        se[run, event] = row.se
    return Estimates(values, se, calls) if values else Estimates(why_not="it refuses every message of these runs")


def _by_mechanism(name: str, **options: Any) -> Estimator:
    def estimate(batch: Batch) -> Estimates:
        mechanism: Mechanism = registry.get("mechanism", name)
        return _by_instance(batch, lambda some: mechanism(some, **options))

    return estimate


def _by_instance(batch: Batch, make: Callable[[Sequence[Trace]], Credit]) -> Estimates:
    return _of_credit(batch, [c for some in batch.together(lambda r: r.group) for c in _credit(make, some)])


def _logged(batch: Batch) -> Estimates:
    mechanism: Mechanism = registry.get("mechanism", "message_logged")
    found, why = [], ""
    for some in batch.together(lambda r: r.team):
        try:
            found.append(mechanism(some, key="batch"))
        except CounterpointError as error:
            why = error.one_line()
    return _of_credit(batch, found) if found else Estimates(why_not=why)


def _regression(batch: Batch) -> Estimates:
    def row_of(r: MessageRow) -> list[float]:
        kinds = [float(r.kind == kind) for kind in KINDS]
        return [*kinds, r.place / max(1, r.of - 1), math.log1p(r.length), float(r.length == 0), float(r.readers), r.reward]

    x, y = np.array([row_of(r) for r in batch.rows]), np.array([r.value or 0.0 for r in batch.rows])
    values: dict[Place, float] = {}
    se: dict[Place, float] = {}
    for learn, test in batch.folds():
        if len(learn) < 2 * x.shape[1]:
            return Estimates(why_not="too few labels on other instances to learn from")
        model = ridge(x[learn], y[learn], 3.0)
        spread = float(np.std(y[learn] - model(x[learn])))
        for i, value in zip(test, model(x[test]).tolist(), strict=True):
            place = (batch.rows[i].run, batch.rows[i].event)
            values[place], se[place] = value, spread
    return Estimates(values, se)


def _kind(batch: Batch) -> Estimates:
    values: dict[Place, float] = {}
    for learn, test in batch.folds():
        means = {k: [batch.rows[i].value or 0.0 for i in learn if batch.rows[i].kind == k] for k in KINDS}
        for i in test:
            row = batch.rows[i]
            values[row.run, row.event] = float(np.mean(means[row.kind])) if means[row.kind] else 0.0
    return Estimates(values)


_ASK = (
    "A team of agents answered a question. You see the question, one message of the team and the team's answer. Did the message "
    "help the team to its answer? Answer with one word: yes or no."
)


def _judge(batch: Batch) -> Estimates:
    if batch.model is None:
        return Estimates(why_not="no local model was named: --model local:NAME")
    return asyncio.run(_judged(batch, batch.model))


async def _judged(batch: Batch, model: Model) -> Estimates:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(row: MessageRow) -> float:
        async with gate:
            return await verdict(row)

    async def verdict(row: MessageRow) -> float:
        trace = batch.runs[row.run]
        question = next((trace.text(e) for e in trace.events if e.key == "user|question"), "") or ""
        shown = f"Question:\n{question[:1500]}\n\nMessage from {row.sender} to {row.receiver}:\n{row.text[:800]}\n\n"
        shown += f"The team's answer:\n{str(trace.meta.get('answer', ''))[:800]}\n\nDid the message help? yes or no:"
        call = Call(messages=(Message("system", _ASK), Message("user", shown)), starts=("yes\n", "no\n"), max_tokens=4)
        done = await model.complete(call)
        if done.start_logps is None:
            return float(done.text.strip().lower().startswith("yes"))
        return float(np.exp(done.start_logps[0]))

    values = await asyncio.gather(*(one(r) for r in batch.rows))
    return Estimates({(r.run, r.event): v for r, v in zip(batch.rows, values, strict=True)}, {}, 1.0)


ESTIMATORS: dict[str, Estimator] = {
    "leave-one-out": _leave_one_out,
    "masked replay": _masked,
    "message_logged": _logged,
    "c3": _by_mechanism("c3"),
    "c3, by place": _by_mechanism("c3", replay=False),
    "shapley": _by_mechanism("shapley", worth=merged_worth),
    "provenance": _by_mechanism("provenance", unit="message"),
    "judge": _judge,
    "regression": _regression,
    "kind": _kind,
    "readers": _of_rows(lambda r: r.readers),
    "length": _of_rows(lambda r: r.length),
    "late": _of_rows(lambda r: r.place),
}
"""By the names of the leaderboard."""


def own_estimator(name: str) -> Estimator:
    """A mechanism by its id, or anybody's `package.module:object`: a mechanism, or a function of a trace that gives a number for
    each message by its event's id."""
    found = registry.get("mechanism", name)
    if isinstance(found, Mechanism):
        return lambda batch: _by_instance(batch, found)
    if not callable(found):
        raise InputError(f"is a {type(found).__name__}", where=name, fix="a mechanism, or a function of a trace")

    def estimate(batch: Batch) -> Estimates:
        values: dict[Place, float] = {}
        for run in batch.by_run():
            said = found(batch.runs[run])
            if not isinstance(said, Mapping) or not all(isinstance(v, int | float) and math.isfinite(v) for v in said.values()):
                raise InputError("gives no number for each message", where=name, fix='{"e8": 0.5, ...} by ids of events')
            values |= {(run, str(event)): float(v) for event, v in said.items()}
        known = {(r.run, r.event) for r in batch.rows}
        return Estimates({at: v for at, v in values.items() if at in known})

    return estimate
