"""From played teams to what each call is taught: rewards less prices, credit of one or several mechanisms, advantages.

Always true: a mechanism that compares the samples of a task itself is taken as it is; amounts of the others become advantages
against the same unit in the task's other samples. Where several mechanisms cover a call, the most specific unit wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

import counterpoint.registry as registry
from counterpoint.credits.call_rows import CallRow, CallRows, call_rows, model_call
from counterpoint.credits.mechanism import identified
from counterpoint.lab.team.remerge import Remerge
from counterpoint.lab.team.removal import Removal
from counterpoint.lab.train.lm.settings import Learn, Prices
from counterpoint.rewards.paying import Payment, pay
from counterpoint.trace import Trace, summed_costs
from counterpoint.trace.rows import Credit, CreditRow

_LEAST_SPREAD = 1e-6
_REMEMBERED = 512
_SOFT = 0.05
"""Added to a spread before it divides: small differences stay small."""


def less_prices(trace: Trace, prices: Prices) -> Trace:
    """The trace with the prices taken off its team reward; the task's own score stays in its metrics."""
    cost = price_of(trace, prices)
    score = trace.rewards["team"]
    metrics = {**(trace.metrics or {}), "task_score": score, "price": cost}
    return msgspec.structs.replace(trace, rewards={**trace.rewards, "team": score - cost}, metrics=metrics)


def price_of(trace: Trace, prices: Prices) -> float:
    """What a team owes for its agents, calls, tokens and time."""
    spawned = sum(e.type == "spawn" and e.ok is not False for e in trace.events)
    calls = sum(model_call(e) is not None for e in trace.events)
    written = sum(e.tokens_out or 0 for e in trace.events)
    seconds = float(summed_costs(trace.events).get("wall_clock_s", 0.0)) if prices.second else 0.0
    return prices.agent * spawned + prices.call * calls + prices.token * written + prices.second * seconds


@lru_cache(maxsize=1)
def _removals() -> dict[int, tuple[Trace, Removal | None]]:
    """Episodes of packages' worlds by the identity of their trace, as `_merges` has merges."""
    return {}


def _removal(trace: Trace) -> Removal | None:
    """The replays of a trace of a package's world; None of any other."""
    known = _removals()
    found = known.get(id(trace))
    if found is None or found[0] is not trace:
        if len(known) >= _REMEMBERED:
            known.clear()
        found = known[id(trace)] = trace, Removal.of(trace)
    return found[1]


@lru_cache(maxsize=1)
def _merges() -> dict[int, Remerge]:
    """Merges by the identity of their trace, which each of them holds; a few hundred at most."""
    return {}


def _remerge(trace: Trace) -> Remerge | None:
    """The trace's last merge; None where the answer is not a merge that can be made again."""
    known = _merges()
    found = known.get(id(trace))
    if found is None or found.trace is not trace:
        if len(known) >= _REMEMBERED:
            known.clear()
        found = known[id(trace)] = Remerge(trace)
    return found if found.is_identified else None


def without_returns(trace: Trace, agent: str) -> float:
    """The team's reward had the last merge not had what this agent returned: exact, and without a model call.

    Other agents' behaviour is held fixed: only the merge is made again. Where the answer is no merge, or nothing of the agent's
    is in it, it is the reward itself. In a package's world it is what the world pays when the agent does nothing.
    """
    if (world := _removal(trace)) is not None:
        return trace.rewards["team"] - (world.score(()) - world.score((agent,) if agent in world.members else ()))
    merge, reward = _remerge(trace), trace.rewards["team"]
    if merge is None or agent not in merge.workers:
        return reward
    return reward - (merge.score(()) - merge.score((agent,)))


def merged_worth(trace: Trace, agents: frozenset[str]) -> float:
    """What the returns of some agents are worth when they are merged alone: the game of `shapley` and its kin. Where the answer
    is no merge, every group is worth 0; in a package's world it is what the world pays when nobody else does anything."""
    if (world := _removal(trace)) is not None:
        return world.score(set(world.members) - agents)
    merge = _remerge(trace)
    return 0.0 if merge is None else merge.score(set(merge.workers) - agents)


def merged_value(trace: Trace) -> list[float]:
    """After each event, what a merge of all that was returned so far would score: a critic for `ledger` without a model call."""
    merge, now = _remerge(trace), 0.0
    values = [0.0]
    for i, event in enumerate(trace.events):
        if merge is not None and event.type == "return" and event.ok is not False:
            now = merge.score((), until=i)
        values.append(now)
    return values


def merged_before(trace: Trace) -> list[float]:
    """Before each event, what a merge of all that was returned until then would score: V of the prefix, for `gae` and its kin."""
    return merged_value(trace)[:-1]


def _team_reward(trace: Trace, event: Any) -> float:
    return trace.rewards["team"]


TASK_ANSWERS: dict[str, Callable[..., Any]] = {
    "task:without_returns": without_returns,
    "task:worth": merged_worth,
    "task:value": merged_value,
    "task:value_before": merged_before,
    "task:reward": _team_reward,
}
"""What the task of a live team can answer without a model call, by the names that mechanisms ask for it (`Mechanism.live`)."""


def advantages(traces: Sequence[Trace], learn: Learn, *, progress: float = 0.0) -> CallRows:
    """Rows of every model call, with the advantage that the mechanisms give it for what the rewards pay."""
    rows: list[CreditRow] = []
    for name in learn.credit:
        mechanism = registry.get("mechanism", name)
        live = {option: TASK_ANSWERS.get(value, value) for option, value in mechanism.live.items()}
        options = {**live, **learn.options.get(name, {})}
        paid_traces = list(traces)
        if learn.reward:
            told = _rewarded(traces, learn, name, progress)
            paid_traces, options = told.traces, options | ({} if told.signals is None else {"signals": told.signals})
        credit, kept = identified(mechanism, paid_traces, options)
        found = [row._replace(trace=kept[row.trace]) for row in credit.rows]
        if "counterfactual" in mechanism.live:
            found = [row for row in found if _was_spawned(traces[row.trace], row)]
        is_relative = "group" in mechanism.needs or mechanism.relative or options.get("give") == "advantage"
        rows += found if is_relative else normalise(found, traces, learn.normalise)
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


def normalise(rows: Sequence[CreditRow], traces: Sequence[Trace], how: str) -> list[CreditRow]:
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
    """The tasks whose samples teach nothing: no call has an advantage. Where teams earned the same, agents may still differ."""
    by: dict[str, list[float]] = {}
    for trace in traces:
        by.setdefault(trace.task_id or trace.trace_id, []).append(trace.rewards["team"])
    level = {task for task, values in by.items() if learn.reward or max(values) - min(values) < _LEAST_SPREAD}
    asked = [t for t in traces if (t.task_id or t.trace_id) in level]
    rows = advantages(asked, learn, progress=progress).rows if asked else ()
    return level - {asked[r.trace].task_id or asked[r.trace].trace_id for r in rows if _teaches(r)}


def _teaches(row: CallRow) -> bool:
    """Whether a call has an advantage beyond rounding."""
    amounts = [row.advantage or 0.0] if row.token_advantages is None else row.token_advantages
    return bool(np.abs(amounts).max(initial=0.0) > _LEAST_SPREAD)
