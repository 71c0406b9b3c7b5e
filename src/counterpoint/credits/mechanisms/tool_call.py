"""Credit of a tool call: the team without its result or with another; else what its outcome went with.

    forks, delete:       E[R | prefix with the result] - E[R | the result never comes, others react]
    forks, substitute:   E[R | prefix with the result] - E[R | the tool is asked again]
    outcome:             mean R over calls of the tool with this outcome - mean R over all calls of the tool

Always true: a row belongs to the tool_call event; a result that nobody reads is worth exactly 0 by coupled forks. `outcome` is an
association, not an effect: it says so, and refuses where an outcome is too rare or nothing else was seen. Its standard error
counts traces, not calls. The survey (arXiv 2605.02801) leaves pricing of tool calls by outcome open; the forks are those
of messages (docs/lab/research/message-credit.md). Departure: R5, which pays success as such, is not used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

import numpy as np

from counterpoint.credits.example import Recount
from counterpoint.credits.forks import Contrast, check_ids, fork_credit
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.shared_options import SEED, Coupled, EventIds, ReplayOf, Replicates
from counterpoint.errors import InputError, NotIdentified, did_you_mean
from counterpoint.options import Channel
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.replay import Delete, Substitute
from counterpoint.trace.rows import Credit, CreditRow

_ESTIMAND = "E[R | prefix with the tool's result] - E[R | without it, or with another draw of it]"
_OUTCOME = "mean R over calls of the tool with this outcome - mean R over all its calls (association)"
_ESTIMATORS = ("delete", "substitute", "outcome")
_LEAST = 5


def results_of(trace: Trace) -> dict[str, Event | None]:
    """Each tool call's id to its result: the next one by a tool_dependency edge, else the caller's next of that tool."""
    events, index = trace.events, trace.index
    out: dict[str, Event | None] = {e.id: None for e in events if e.type == "tool_call"}
    for edge in trace.edges:
        if edge.src in out and out[edge.src] is None and events[index[edge.dst]].type == "tool_result":
            out[edge.src] = events[index[edge.dst]]
    used = {e.id for e in out.values() if e is not None}
    for call, result in out.items():
        if result is None:
            mine = events[index[call]]
            after = (e for e in events[index[call] + 1 :] if e.type == "tool_result" and e.id not in used)
            out[call] = next((e for e in after if e.tool == mine.tool and e.agent == mine.agent), None)
            if (got := out[call]) is not None:
                used.add(got.id)
    return out


def outcome_gap(
    group_C: np.ndarray, class_C: np.ndarray, r_C: np.ndarray, cluster_C: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(calls,) mean R of a call's class in its group minus the group's mean, and its standard error over clusters."""
    gap, se = np.full(len(r_C), np.nan), np.full(len(r_C), np.nan)
    for group in np.unique(group_C):
        inside = group_C == group
        for kind in np.unique(class_C[inside]):
            mine = inside & (class_C == kind)
            influence = np.where(inside, -(r_C - r_C[inside].mean()) / inside.sum(), 0.0)
            influence[mine] += (r_C[mine] - r_C[mine].mean()) / mine.sum()
            by_cluster = np.bincount(np.unique(cluster_C, return_inverse=True)[1], influence)
            gap[mine], se[mine] = r_C[mine].mean() - r_C[inside].mean(), np.sqrt((by_cluster**2).sum())
    return gap, se


def _by_outcome(traces: Sequence[Trace], ids: Collection[str] | None, channel: str) -> Credit:
    """The association of outcomes with the team reward, over all calls of a tool in the traces given."""
    calls = [(i, t.events[t.index[c]], r) for i, t in enumerate(traces) for c, r in results_of(t).items()]
    silent = {(i, c.id): "not identified: whether the call succeeded was not recorded" for i, c, r in calls if _ok(c, r) is None}
    calls = [(i, c, r) for i, c, r in calls if _ok(c, r) is not None]
    if not calls:
        raise NotIdentified("no tool call has an outcome", "ok on tool results, or a replay and estimator='delete'")
    names = {name: n for n, name in enumerate(dict.fromkeys(c.tool for _, c, _ in calls))}
    group, cluster = np.array([names[c.tool] for _, c, _ in calls]), np.array([i for i, _, _ in calls])
    kind = np.array([int(bool(_ok(c, r))) for _, c, r in calls])
    gap, se = outcome_gap(group, kind, np.array([team_reward(traces[i], channel) for i, _, _ in calls]), cluster)
    rows = []
    for n, (i, c, _) in enumerate(calls):
        if ids is not None and c.id not in ids:
            continue
        alike, others = (len(set(cluster[(group == group[n]) & (kind == k)])) for k in (kind[n], 1 - kind[n]))
        if min(alike, others) < _LEAST:
            silent[i, c.id] = f"not identified: {alike} traces have this outcome and {others} the other; each needs {_LEAST}"
        else:
            rows.append(CreditRow(i, "tool", c.id, float(gap[n]), float(se[n])))
    if not rows:
        raise NotIdentified(next(iter(silent.values())).removeprefix("not identified: "), "more traces, or a replay")
    trace_ids = tuple(t.trace_id for t in traces)
    return Credit("tool_call", _OUTCOME, False, trace_ids, tuple(rows), unidentified=silent, notes={"kind": "association"})


def _ok(call: Event, result: Event | None) -> bool | None:
    """Whether a call succeeded, as far as it was recorded."""
    flags = [e.ok for e in (result, call) if e is not None and e.ok is not None]
    return flags[0] if flags else False if any(e is not None and e.error for e in (result, call)) else None


def _tool_call_credit(
    traces: Sequence[Trace],
    *,
    estimator: str = "delete",
    replay: ReplayOf = None,
    k: Replicates = 1,
    seed: Annotated[int, SEED] = 0,
    coupled: Coupled = True,
    ids: EventIds = None,
    channel: Channel = "team",
) -> Credit:
    if estimator not in _ESTIMATORS:
        raise InputError(f"no estimator {estimator!r}", fix=did_you_mean(estimator, _ESTIMATORS))
    check_ids(traces, ids)
    if estimator == "outcome":
        return _by_outcome(traces, ids, channel)
    do = Delete() if estimator == "delete" else Substitute()

    def by_call(trace: Trace) -> Mapping[str, Contrast]:
        chosen = {c: r for c, r in results_of(trace).items() if ids is None or c in ids}
        return {call: Contrast(call if result is None else result.id, None, do) for call, result in chosen.items()}

    return fork_credit("tool_call", _ESTIMAND, "tool", traces, replay, by_call, k=k, seed=seed, coupled=coupled, channel=channel)


tool_call = Mechanism(
    unit="tool",
    estimand=_ESTIMAND,
    assumptions="forks: the replay reacts as the team would. outcome: none is needed for the association; for an effect, that "
    "outcomes come as if by lot",
    cost="delete, substitute: 2k - 1 forks per call; outcome: none",
    additive=False,
    source="docs/lab/research/message-credit.md, at the unit tool of the survey, arXiv 2605.02801. Departure: success as such "
    "earns nothing",
    run=_tool_call_credit,
    needs=("replay",),
    example=lambda: Example(rollouts(), {"replay": Recount()}),
)
