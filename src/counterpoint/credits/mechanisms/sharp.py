"""SHARP-style credit: the team reward, what is lost when an agent's output is masked, and its tool reward.

Always true: an agent whose masking changes nothing has marginal 0. The marginals need not sum to the team reward (leave-one-out
counts what two agents could each have done for neither, and what both were needed for twice).

    delta_m = R(tau) - R(tau with m's output replaced by a placeholder)            one extra evaluation per agent
    R_m     = R_b + lambda_s * delta_m + lambda_p * R_tool,m
    A_m     = (R_m - mean_m) / (std_m + eps)     over the traces of the same task in which m takes part

SHARP, arXiv:2602.08335, RECONSTRUCTED from third-party notes. Departures: lambda_s, lambda_p and ddof are ours (the paper's
were not found); R_b is the trace's team reward; R_tool is the mean of the R5 rewards on the agent's own tool results, and the
term is left out for an agent without any; masking is: its votes are not counted, or `worth` without it, or (`replay`) a fork
in which it is never spawned. With the default action as placeholder, delta is the difference reward D_i = G(z) - G(z with
c_i).

`event="verdict"` is CCPO's, arXiv:2603.21563, with lambda_s 0.2, lambda_p 0 and `scale=False` (the mean is taken off, nothing
divided). Outcomes are verdicts: 1 above the mean of the task's outcomes, else -1 (theirs: right or wrong).

    delta_m = [R = 1 and b_m < 0] - [R = -1 and b_m > 0],   b_m = mean over the task's traces of R without m
    R_m     = R + lambda_s * delta_m for who gives its words to another; who answers (it leads the team) gets R alone
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.rows import main_of
from counterpoint.credits.shared_options import DDOF, EPS, ReplayOf, Tie, WorthOf
from counterpoint.credits.team_games import play
from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Cost, Credit, CreditRow

Floats = NDArray[np.float64]


def marginals(full: float, without_A: ArrayLike) -> Floats:
    """delta_m = R - R without m; the difference reward, where `without` has a default action in m's place."""
    return full - np.asarray(without_A, np.float64)


def rewards(base: float, delta_A: Floats, tool_A: ArrayLike, lambda_s: float, lambda_p: float) -> Floats:
    """R_m = base + lambda_s delta_m + lambda_p tool_m; NaN in `tool` leaves the term out."""
    return base + lambda_s * delta_A + lambda_p * np.nan_to_num(np.asarray(tool_A, np.float64))


def normalised(values_G: ArrayLike, ddof: int = 1, eps: float = 1e-6) -> Floats:
    """(x - mean) / (std + eps) over a group; where nobody differs, everybody gets exactly 0, whatever eps is."""
    apart = _centred(values_G)
    if not apart.any():
        return apart
    return apart / (apart.std(ddof=ddof) + eps)


def _centred(values_G: ArrayLike) -> Floats:
    """x - mean, measured from the first: equal values centre to exactly 0."""
    x = np.asarray(values_G, np.float64)
    apart = x - x[0]
    return np.asarray(apart - apart.mean(), np.float64)


def _tools(trace: Trace, names: list[str]) -> Floats:
    paid: dict[str, list[float]] = defaultdict(list)
    for e in trace.events:
        if e.type == "tool_result" and e.reward and "R5" in e.reward:
            paid[e.agent].append(float(e.reward["R5"]))
    return np.array([float(np.mean(paid[name])) if paid[name] else np.nan for name in names])


def _sharp_credit(
    traces: list[Trace],
    *,
    give: str = "reward",
    lambda_s: float = 0.5,
    lambda_p: float = 0.1,
    worth: WorthOf = None,
    replay: ReplayOf = None,
    tie: Tie = 0.5,
    ddof: Annotated[int, DDOF] = 1,
    eps: Annotated[float, EPS] = 1e-6,
    event: str = "size",
    scale: bool = True,
) -> Credit:
    if give not in _GIVES:
        raise InputError(f"no give={give!r}", fix=did_you_mean(give, _GIVES))
    if event not in ("size", "verdict"):
        raise InputError(f"no event={event!r}", fix="size or verdict")
    rows: list[CreditRow] = []
    costs: list[Cost] = []
    masked: list[_Masked] = []
    for trace in traces:
        played = play(trace, worth=worth, replay=replay, tie=tie)
        n = len(played.names)
        full = played.game.worth(np.ones(n, np.bool_))
        masked.append(_Masked(played.names, full, [played.game.worth(np.arange(n) != a) for a in range(n)]))
        costs.append(played.cost)
    bases, deltas = [team_reward(t) for t in traces], [marginals(m.full, m.without) for m in masked]
    if event == "verdict":
        bases, deltas = _verdicts(bases, [t.task_id for t in traces]), _bonuses(traces, masked)
    for k, (trace, m, base, values) in enumerate(zip(traces, masked, bases, deltas, strict=True)):
        if give != "marginal":
            values = rewards(base, values, _tools(trace, m.names), lambda_s, lambda_p)
        rows += [CreditRow(k, "agent", name, value) for name, value in zip(m.names, values.tolist(), strict=True)]
    unidentified: dict[tuple[int, str], str] = {}
    if give == "advantage":
        rows = _by_group(traces, rows, ddof, eps if scale else None, unidentified)
    return Credit(
        mechanism="sharp",
        estimand=_GIVES[give],
        additive=False,
        trace_ids=tuple(t.trace_id for t in traces),
        rows=tuple(rows),
        cost=Cost(sum(c.forks for c in costs), sum(c.tokens for c in costs)),
        unidentified=unidentified,
        notes={"lambda_s": lambda_s, "lambda_p": lambda_p, "ddof": ddof, "eps": eps, "event": event, "scale": scale},
    )


class _Masked(NamedTuple):
    """What a trace is worth, and what it is without each agent."""

    names: list[str]
    full: float
    without: list[float]


def _verdicts(outcomes: Sequence[float], tasks: Sequence[str], level: Mapping[str, float] | None = None) -> list[float]:
    """1 for an outcome above the mean of its task (or the task's level), else -1."""
    of_task: dict[str, list[float]] = defaultdict(list)
    for task, outcome in zip(tasks, outcomes, strict=True):
        of_task[task].append(outcome)
    mean = {task: float(np.mean(own)) for task, own in of_task.items()} if level is None else level
    return [1.0 if outcome > mean[task] else -1.0 for task, outcome in zip(tasks, outcomes, strict=True)]


def _bonuses(traces: Sequence[Trace], masked: Sequence[_Masked]) -> list[Floats]:
    """CCPO's delta of every agent of every trace; 0 for who leads."""
    tasks = [t.task_id for t in traces]
    level = {task: float(np.mean([m.full for t, m in zip(tasks, masked, strict=True) if t == task])) for task in set(tasks)}
    joint = _verdicts([m.full for m in masked], tasks, level)
    solo: dict[tuple[str, str], list[float]] = defaultdict(list)
    for task, m in zip(tasks, masked, strict=True):
        for name, verdict in zip(m.names, _verdicts(m.without, [task] * len(m.names), level), strict=True):
            solo[task, name].append(verdict)
    mean = {place: float(np.mean(own)) for place, own in solo.items()}
    out = []
    for trace, task, m, verdict in zip(traces, tasks, masked, joint, strict=True):
        lead = main_of(trace)
        own = [0.0 if name == lead or verdict * mean[task, name] >= 0 else verdict for name in m.names]
        out.append(np.array(own, np.float64))
    return out


def _by_group(
    traces: list[Trace], rows: list[CreditRow], ddof: int, eps: float | None, unidentified: dict[tuple[int, str], str]
) -> list[CreditRow]:
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[traces[row.trace].task_id, row.unit_id].append(i)
    out: dict[int, CreditRow] = {}
    for members in groups.values():
        if len(members) < 2:
            unidentified[rows[members[0]].trace, rows[members[0]].unit_id] = "the only trace of its task in which it takes part"
            continue
        own = np.array([rows[i].value for i in members])
        advantages = _centred(own) if eps is None else normalised(own, ddof, eps)
        for i, value in zip(members, advantages.tolist(), strict=True):
            out[i] = rows[i]._replace(value=value)
    return [out[i] for i in sorted(out)]


_GIVES = {
    "marginal": "what the team reward loses when the agent's output is masked",
    "reward": "team reward + lambda_s * marginal + lambda_p * tool reward",
    "advantage": "that reward, centred and scaled over the traces of the task in which the agent takes part",
}

sharp = Mechanism(
    sees="item",
    unit="agent",
    estimand="leave-one-out marginal of each agent, added to the team reward and its tool reward",
    assumptions="masking changes nothing but the masked output; agents of one name are comparable between traces of a task",
    cost="one evaluation of the worth per agent; with replay, one fork per agent",
    additive=False,
    source="SHARP, arXiv:2602.08335 (reconstructed; weights are ours); event='verdict': CCPO, arXiv:2603.21563",
    run=_sharp_credit,
    needs=("worth or replay, unless the trace holds scored votes", "group for give='advantage'"),
    example=lambda: Example(rollouts()),
    live={"worth": "task:worth"},
)
