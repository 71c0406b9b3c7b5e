"""The gradient that a credit gives a policy, held against the gradient of the expected team reward.

For one network and one world, with E teams a batch,

    g_c = 1/E sum_e sum_d grad log pi(d) A_c(d)          d: decisions of the delegation (purpose, brief, whom), A_c: credit c

    g*  = the same with A = R_e - mean of R over the other teams of the task (REINFORCE, leave one out): unbiased

Always true: no clip, no scale, no entropy, so that nothing but the credit differs; every credit of a batch judges the same teams;
forks are counted as calls; the teams of g* are others than those that are judged. What a credit does not cover (to call nobody is
nobody's work) gets 0. A credit that does not compare teams itself is compared here: less the mean of what it gives the covered
decisions of the other teams of the task.

How it is judged: `lab/bench/fidelity.py`.

Greensmith, Bartlett and Baxter 2004 (variance of baselines).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import counterpoint.registry as registry
from counterpoint.credits.advantages import reward_to_go
from counterpoint.credits.groups import convention_of, group_advantages, group_codes
from counterpoint.lab.bench.fidelity import Floats, GradientSample
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.learner import score_gradient
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.presets.grpo import grpo
from counterpoint.lab.train.rollouts import Rollout, Table
from counterpoint.lab.train.row_credit import assigned
from counterpoint.trace import Trace

TEAM, PARTITION = "team", "partition"
CREDITS: Mapping[str, Mapping[str, Any]] = {
    "groups by agent": {"agent_wise": {"by": "agent", "convention": "rloo", "singleton": "zero"}},
    "siblings (C3)": {"c3": {"replay": False, "normalise": False}},
    "Shapley of agents": {"shapley": {"orders": 4}},
    "difference": {"difference": {}},
    "messages by forks": {"message_delete": {"k": 1}},
}
"""Credits that are judged on traces, by what rows call them. Beside them: `TEAM`, and `PARTITION`, the part of the return
that the calls on a question bring from a call on (docs/lab/research/partition.md)."""
NAMES = (TEAM, *CREDITS, PARTITION)
GROUP = 8
"""Teams on a task."""
_TYPES = "item", "brief", "point"
_GROUPS = {
    "for_purpose": "encoder", "for_brief": "encoder", "for_query": "encoder", "purpose": "what for", "brief": "brief",
    "query": "whom", "key": "whom", "pair": "whom",
}  # fmt: skip
_RLOO = convention_of("rloo", singleton="zero")


class Setting(NamedTuple):
    """A network and the world that it plays in."""

    net: Network
    weights: Mapping[str, np.ndarray]
    world: str
    dials: Mapping[str, Any]


def teams_of(setting: Setting, first: int, tasks: int, *, log: bool) -> tuple[Rollout, list[Trace]]:
    """`GROUP` teams on each of some tasks."""
    seeds = np.repeat(first + np.arange(tasks), GROUP)
    payload = {
        "world": setting.world, "set": dict(setting.dials), "seeds": seeds, "salts": np.arange(len(seeds)) + 1, "apart": False,
        "log": log, "goes_on": False, "name": f"fidelity-{first}", "workers": False,
    }  # fmt: skip
    made = play(payload, setting.weights)
    return made.rollout, made.traces


def gradient(net: Network, out: Rollout, advantages: Mapping[str, np.ndarray]) -> Floats:
    """Of the delegation under these advantages, by team."""
    tables: dict[str, Table] = {name: table for name, table in out.tables.items() if name in ("item", "candidate")}
    return score_gradient(net, tables, {name: advantages[name] for name in _TYPES if name in advantages}) / len(out.values)


def team_advantages(out: Rollout) -> dict[str, np.ndarray]:
    """The team's reward less the mean of the other teams on the task, for every decision."""
    each = group_advantages(out.values, group_codes(out.seeds.tolist())[0], _RLOO)
    return dict.fromkeys(_TYPES, each[out.tables["item"]["ep"]])


def item_returns(out: Rollout) -> dict[str, np.ndarray]:
    """What the calls on a question bring from a call on."""
    t = out.tables["item"]
    order, to_go = t["order"], np.zeros(len(t["ep"]))
    to_go[order] = reward_to_go(t["reward"][order], segments=t["chain"][order])
    return less_others(out, dict.fromkeys(_TYPES, to_go))


def less_others(
    out: Rollout, advantages: Mapping[str, np.ndarray], covered: NDArray[np.bool_] | None = None
) -> dict[str, np.ndarray]:
    """Less the mean over the (covered) decisions of the other teams of the task: a baseline that no own decision moves."""
    episode = out.tables["item"]["ep"]
    weight = np.ones(len(episode)) if covered is None else covered.astype(np.float64)
    task = group_codes(out.seeds.tolist())[0]
    rows_E = np.bincount(episode, weight, len(task))
    done = {}
    for name in _TYPES:
        sum_E = np.bincount(episode, weight * advantages[name], len(task))
        others = np.maximum(np.bincount(task, rows_E)[task] - rows_E, 1)
        done[name] = weight * (advantages[name] - ((np.bincount(task, sum_E)[task] - sum_E) / others)[episode])
    return done


def parameter_groups(net: Network) -> dict[str, NDArray[np.int64]]:
    """Places in a gradient: the rows' encoder, and the heads of what for, brief and whom; the rest has no gradient here."""
    named, at = {id(p): name for name, p in net.named_parameters()}, 0
    found: dict[str, list[NDArray[np.int64]]] = {}
    for p in net.policy_parameters():
        found.setdefault(_GROUPS.get(named[id(p)].split(".")[0], "rest"), []).append(np.arange(at, at + p.numel()))
        at += p.numel()
    return {name: np.concatenate(found[name]) for name in dict.fromkeys(_GROUPS.values()) if name in found}


def gradient_sample(setting: Setting, names: Sequence[str], first: int, batches: int, tasks: int) -> dict[str, GradientSample]:
    """Gradients of batches of teams under each credit."""
    grads: dict[str, list[Floats]] = {name: [] for name in names}
    charged = dict.fromkeys(names, 0)
    traced = [name for name in names if name in CREDITS]
    for b in range(batches):
        out, traces = teams_of(setting, first + b * tasks, tasks, log=bool(traced))
        for name in names:
            given, forks = _advantages(setting.net, out, traces, name)
            grads[name].append(gradient(setting.net, out, given))
            charged[name] += out.charged + forks
    teams = GROUP * tasks
    return {name: GradientSample(np.stack(grads[name]), teams, charged[name] / (teams * batches)) for name in names}


def _advantages(net: Network, out: Rollout, traces: Sequence[Trace], name: str) -> tuple[dict[str, np.ndarray], int]:
    """Of every decision under a credit, and the calls and rounds of its forks."""
    if name == TEAM:
        return team_advantages(out), 0
    if name == PARTITION:
        return item_returns(out), 0
    found = assigned(replace(grpo, credit=CREDITS[name], delegate="agent"), out, traces, net, progress=0.0)
    (mechanism,) = CREDITS[name]
    told = {kind: found.advantages[kind] for kind in _TYPES}
    needs = registry.get("mechanism", mechanism).needs
    called = out.tables["item"]["agent"] >= 0
    return told if "group" in needs else less_others(out, told, called), found.spent.get("charged", 0)


def reference(setting: Setting, first: int, batches: int, tasks: int) -> GradientSample:
    """Gradients of the expected team reward."""
    return gradient_sample(setting, [TEAM], first, batches, tasks)[TEAM]
