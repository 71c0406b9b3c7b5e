"""From played teams to what each call is taught: rewards less prices, credit of one or several mechanisms, advantages.

Always true: a mechanism that compares the samples of a task itself is taken as it is; amounts of the others become advantages
against the same unit in the task's other samples. Where several mechanisms cover a call, the most specific unit wins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

import counterpoint.registry as registry
from counterpoint.credits.call_rows import CallRows, call_rows, model_call
from counterpoint.credits.mechanism import identified
from counterpoint.lab.team.session import Spec
from counterpoint.lab.train.lm.settings import Learn, Prices
from counterpoint.rewards.paying import Payment, pay
from counterpoint.trace import Trace, summed_costs
from counterpoint.trace.rows import Credit, CreditRow

_LEAST_SPREAD = 1e-6
_SOFT = 0.05
"""Added to a spread before it divides: small differences stay small."""


def paid(trace: Trace, prices: Prices) -> Trace:
    """The trace with the prices taken off its team reward; the task's own score stays in its metrics."""
    cost = priced(trace, prices)
    score = trace.rewards["team"]
    metrics = {**(trace.metrics or {}), "task_score": score, "price": cost}
    return msgspec.structs.replace(trace, rewards={**trace.rewards, "team": score - cost}, metrics=metrics)


def priced(trace: Trace, prices: Prices) -> float:
    """What a team owes for its agents, calls, tokens and time."""
    spawned = sum(e.type == "spawn" and e.ok is not False for e in trace.events)
    calls = sum(model_call(e) is not None for e in trace.events)
    written = sum(e.tokens_out or 0 for e in trace.events)
    seconds = float(summed_costs(trace.events).get("wall_clock_s", 0.0)) if prices.second else 0.0
    return prices.agent * spawned + prices.call * calls + prices.token * written + prices.second * seconds


@lru_cache(maxsize=4096)
def _instance(task: str, config: str, seed: int) -> tuple[Any, Any]:
    made = Spec(task=task, config=json.loads(config), seed=seed).make_task()
    return made, made.instance(seed)


class _Merge:
    """What workers returned, and what the last merge would have been worth with some of it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        told = [(i, e) for i, e in enumerate(trace.events) if e.type == "return" and e.ok is not False]
        self.returns = [(i, e.agent, trace.contents.get(e.content_ref or "", "")) for i, e in told]
        merges = [e for e in trace.events if e.type == "aggregate"]
        self.rule = (merges[-1].extra or {}).get("rule") if merges else None

    def worth(self, kept: Callable[[int, str], bool]) -> float:
        """The task's score of a merge of what is kept (place of the event, agent)."""
        team = self.trace.meta["team"]
        task, instance = _instance(team["task"], json.dumps(dict(team["config"]), sort_keys=True), int(team["seed"]))
        texts = [text for place, agent, text in self.returns if kept(place, agent)]
        return float(task.check(instance, task.merge(instance, self.rule or task.rules[0], texts)).value)


def without_returns(trace: Trace, agent: str) -> float:
    """The team's reward had the last merge not had what this agent returned: exact, and no model is asked.

    What the team would have done otherwise is no part of it: only the merge is made again. Where nothing was merged, or the
    agent returned nothing, it is the reward itself.
    """
    merge, reward = _Merge(trace), trace.rewards["team"]
    if merge.rule is None or agent not in {a for _, a, _ in merge.returns}:
        return reward
    return reward - (merge.worth(lambda place, who: True) - merge.worth(lambda place, who: who != agent))


def merged_worth(trace: Trace, agents: frozenset[str]) -> float:
    """What the returns of some agents are worth when they are merged alone: the game of `shapley` and its kin."""
    return _Merge(trace).worth(lambda place, who: who in agents)


def merged_value(trace: Trace) -> list[float]:
    """After each event, what a merge of all that was returned so far would score: a critic for `ledger` that asks no model."""
    merge, now = _Merge(trace), 0.0
    places = {place for place, _, _ in merge.returns}
    values = [0.0]
    for i in range(len(trace.events)):
        if i in places:
            now = merge.worth(lambda place, who, i=i: place <= i)  # type: ignore[misc]
        values.append(now)
    return values


def merged_before(trace: Trace) -> list[float]:
    """Before each event, what a merge of all that was returned until then would score: V of the prefix, for `gae` and its kin."""
    return merged_value(trace)[:-1]


_RELATIVE = ("gae", "marft", "puppeteer", "spiral", "marshal")
"""Mechanisms with a baseline of their own, or with none by intent: their amounts are taken as they are."""
_TEAM_GIVES: dict[str, dict[str, Any]] = {
    "difference": {"counterfactual": without_returns},
    "shapley": {"worth": merged_worth},
    "winter": {"worth": merged_worth},
    "sharp": {"worth": merged_worth},
    "ledger": {"value": merged_value, "unit": "agent"},
    "step_pairs": {"critic": lambda trace, event: trace.rewards["team"]},
    "gae": {"value": merged_before},
    "marft": {"value": merged_before},
}
"""What mechanisms need beyond the traces, as far as the task itself can answer."""


def advantages(traces: Sequence[Trace], learn: Learn, *, progress: float = 0.0) -> CallRows:
    """Rows of every model call, with the advantage that the mechanisms give it for what the rewards pay."""
    rows: list[CreditRow] = []
    for name in learn.credit:
        mechanism = registry.get("mechanism", name)
        options = {**_TEAM_GIVES.get(name, {}), **learn.options.get(name, {})}
        paid_traces = list(traces)
        if learn.reward:
            told = _rewarded(traces, learn, name, progress)
            paid_traces, options = told.traces, options | ({} if told.signals is None else {"signals": told.signals})
        credit, kept = identified(mechanism, paid_traces, options)
        found = [row._replace(trace=kept[row.trace]) for row in credit.rows]
        found = [row for row in found if name != "difference" or _was_spawned(traces[row.trace], row)]
        is_relative = "group" in mechanism.needs or name in _RELATIVE or options.get("give") == "advantage"
        rows += found if is_relative else normalised(found, traces, learn.normalise)
    ids = tuple(t.trace_id for t in traces)
    return call_rows(traces, Credit("+".join(learn.credit), "advantages", False, ids, tuple(rows)))


def _rewarded(traces: Sequence[Trace], learn: Learn, reader: str, progress: float) -> Payment:
    tasks = np.unique([t.task_id or t.trace_id for t in traces], return_inverse=True)[1]
    leads = {t.trace_id: e.agent for t in traces for e in reversed(t.events) if e.role == "orchestrator"}
    told: dict[str, Any] = {"balance": learn.balance, "progress": progress, "leads": leads}
    told["at_first"] = np.zeros(len(traces))  # before the first round nothing was returned
    return pay(learn.reward, traces, tasks=tasks, reader=reader, **told)


def _was_spawned(trace: Trace, row: CreditRow) -> bool:
    """Whether leaving an agent out means anything: who leads the team cannot be left out of its merge."""
    return any(e.type == "spawn" and e.to == row.unit_id for e in trace.events)


def normalised(rows: Sequence[CreditRow], traces: Sequence[Trace], how: str) -> list[CreditRow]:
    """Amounts against those of the same unit in the other samples of the task.

        group           (x - mean) / (std + 0.05)
        leave_one_out   x - mean over the other samples
        none            x

    A unit is the same in two samples by its name: the team, a role, an agent; units of single events by the agent they are of.
    What only one sample has is compared with nothing and gets 0, except with `none`.
    """
    if how == "none":
        return list(rows)
    found: dict[tuple[str, str, str], list[int]] = {}
    agents: list[Mapping[str, str]] = [{e.id: e.agent for e in t.events} for t in traces]
    for i, row in enumerate(rows):
        own = row.unit_id if row.unit in ("team", "role", "agent") else row.unit_id.partition("#")[0]
        own = agents[row.trace].get(own, own)
        found.setdefault((traces[row.trace].task_id or "", row.unit, own), []).append(i)
    out = list(rows)
    for places in found.values():
        values = np.array([rows[i].value for i in places])
        samples, own_sample = np.unique([rows[i].trace for i in places], return_inverse=True)
        if len(samples) < 2 or values.std() < _LEAST_SPREAD:
            new = np.zeros(len(values))
        elif how == "group":
            new = (values - values.mean()) / (values.std() + _SOFT)
        else:
            its, many = np.bincount(own_sample, values)[own_sample], np.bincount(own_sample)[own_sample]
            new = values - (values.sum() - its) / (len(values) - many)
        for i, value in zip(places, new.tolist(), strict=True):
            out[i] = rows[i]._replace(value=value, se=None)
    return out


def flat_groups(traces: Sequence[Trace], learn: Learn, *, progress: float = 0.0) -> set[str]:
    """The tasks whose samples teach nothing: all earned the same or, with rewards of the run's own, no call has an advantage."""
    if learn.reward:
        rows = advantages(traces, learn, progress=progress).rows
        taught = {r.trace for r in rows if r.advantage or (r.token_advantages is not None and r.token_advantages.any())}
        return {t.task_id or t.trace_id for t in traces} - {traces[i].task_id or traces[i].trace_id for i in taught}
    by: dict[str, list[float]] = {}
    for trace in traces:
        by.setdefault(trace.task_id or trace.trace_id, []).append(trace.rewards["team"])
    return {task for task, values in by.items() if max(values) - min(values) < _LEAST_SPREAD}
