"""Gradients under a credit at the table of philosophers, measured as those of TeamWorld (`lab/bench/fidelity.py`).

    R = Phi_T,   Phi_t = sum over i of phi_{i,t},   phi_{i,t} = meals_{i,t} / 30 x fairness_t - deadlock_t / N

    team            R less its mean over the other teams                                    the truth, on other teams
    turns           R - Phi_t, what comes from step t on
    groups          phi_{i,T} of the philosopher who decides, in place of R
    partition       phi_{i,T} - phi_{i,t}: parts by philosopher and step that add up to R
    siblings (C3)   R among the decisions of a batch with the same philosopher, step and sight; no replay
    difference      R - R with philosopher i idle, replayed with the same draws
    Shapley         the mean over orders of what i adds to those who are not idle
    forks           of decisions (t, i) drawn by how undecided they were: another action instead, all else with the same draws

Always true: all but forks are less the mean over the other teams at the same philosopher and step; forks are unbiased by
themselves. Only decisions with an alternative count. A call is a philosopher's step, at tables that go on, those of forks too.
What others do without i does not depend on what i did, so that the difference is an unbiased credit here. Groups and partition
pay nobody for what it keeps from neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from counterpoint.lab.bench.dining.learn import (
    Group,
    Net,
    Rows,
    draw,
    fork_effects,
    meals_and_fairness,
    play,
    score_gradient,
)
from counterpoint.lab.bench.dining.memory import Memory
from counterpoint.lab.bench.dining.tables import STEPS, WAIT, Tables, fairness
from counterpoint.lab.bench.fidelity import Floats, GradientSample

TEAM, PARTITION = "team", "partition"
FORKING = "difference", "Shapley of agents", "decisions by forks"
NAMES = (TEAM, "turns", "groups by agent", "siblings (C3)", PARTITION, *FORKING)
_ORDERS, _FORKS = 2, 8
"""Orders of a Shapley value, and decisions of a table that are forked."""


def teams_of(net: Net, size: int, count: int, seed: int) -> Group:
    """Tables that a network plays to the end."""
    return play(net, Tables(count, size), np.random.default_rng(seed).random((STEPS, count, size)))


def parts_of(played: Group) -> Floats:
    """(T + 1, B, N) phi before each step and at the end."""
    states = [*(tables for tables, _ in played.before), played.tables]
    return np.stack([s.meals / STEPS * fairness(s.meals)[:, None] - s.is_dead[:, None] / s.size for s in states])


def less_others(value: Floats) -> Floats:
    """(T, B, N) less the mean over the other tables of a batch."""
    count = value.shape[1]
    out: Floats = (value - value.mean(axis=1, keepdims=True)) * count / (count - 1)
    return out


def without(net: Net, draws: np.ndarray, active: np.ndarray) -> tuple[Floats, int]:
    """(what tables earn where only the active (B, N) philosophers do anything, the calls that takes)."""
    tables, memory, calls = Tables(*active.shape), Memory(*active.shape), 0
    for step in range(STEPS):
        sight = tables.sight()
        logp = net.log_probs(memory.numbers(sight, step, numbered=net.numbered), sight.possible)
        actions = np.where(active, draw(logp, draws[step]), WAIT)
        calls += int(active[~tables.is_dead].sum())
        tables.step(actions)
        memory.update(sight, actions, tables.sight())
    return meals_and_fairness(Group(tables, draws)), calls


def differences(net: Net, played: Group) -> tuple[Floats, int]:
    """((B, N) R less R with a philosopher idle, the calls of the forks)."""
    count, size = played.tables.meals.shape
    active = ~np.tile(np.eye(size, dtype=np.bool_), (count, 1))
    ends, calls = without(net, np.repeat(played.draws, size, axis=1), active)
    return meals_and_fairness(played)[:, None] - ends.reshape(count, size), calls


def shapley(net: Net, played: Group, rng: np.random.Generator) -> tuple[Floats, int]:
    """((B, N) mean over orders of what a philosopher adds to those before it, the calls of the forks)."""
    count, size = played.tables.meals.shape
    out, calls = np.zeros((count, size)), 0
    for _ in range(_ORDERS):
        place = rng.permuted(np.tile(np.arange(size), (count, 1)), axis=1)
        active = (place[:, None, :] < np.arange(1, size)[None, :, None]).reshape(-1, size)
        ends, own = without(net, np.repeat(played.draws, size - 1, axis=1), active)
        value = np.concatenate([np.zeros((count, 1)), ends.reshape(count, -1), meals_and_fairness(played)[:, None]], axis=1)
        out += np.take_along_axis(np.diff(value, axis=1), place, axis=1) / _ORDERS
        calls += own
    return out, calls


def siblings(played: Group) -> Floats:
    """(T, B, N) R less its mean among the other tables' decisions of the philosopher, at the step, of the same sight; else 0."""
    paid, x = meals_and_fairness(played), np.stack(played.x)
    out = np.zeros(x.shape[:3])
    for t in range(x.shape[0]):
        for i in range(x.shape[2]):
            code = np.unique(x[t, :, i], axis=0, return_inverse=True)[1].reshape(-1)
            many, total = np.bincount(code)[code], np.bincount(code, paid)[code]
            out[t, :, i] = np.where(many > 1, paid - (total - paid) / np.maximum(many - 1, 1), 0.0)
    return out


def _advantages(net: Net, played: Group, name: str, rng: np.random.Generator) -> tuple[Floats, int]:
    """((T, B, N) of every decision, the calls of forks)."""
    phi, shape = parts_of(played), np.stack(played.actions).shape
    plain: dict[str, Callable[[], Floats]] = {
        TEAM: lambda: np.broadcast_to(phi[-1].sum(axis=-1)[None, :, None], shape),
        "turns": lambda: np.broadcast_to((phi[-1] - phi[:-1]).sum(axis=-1, keepdims=True), shape),
        "groups by agent": lambda: np.broadcast_to(phi[-1], shape),
        PARTITION: lambda: phi[-1] - phi[:-1],
    }
    if name in plain:
        return less_others(plain[name]()), 0
    if name == "siblings (C3)":
        return siblings(played), 0
    each, calls = differences(net, played) if name == "difference" else shapley(net, played, rng)
    return less_others(np.broadcast_to(each, shape)), calls


def gradient(net: Net, played: Group, advantage: Floats) -> Floats:
    """Of all decisions that had an alternative, by team."""
    possible = np.stack(played.possible)
    at = np.nonzero((possible.sum(axis=-1) > 1) & np.stack(played.live)[..., None])
    choice = np.stack(played.actions)[at]
    rows = Rows(np.stack(played.x)[at], possible[at], choice, np.zeros(len(choice)), advantage[at])
    return score_gradient(net, rows) / played.tables.count


def fork_gradient(net: Net, played: Group, rng: np.random.Generator, count: int) -> tuple[Floats, int]:
    """Of `count` decisions, both arms, each weighed by one over the chance of having been drawn; and the calls of the forks."""
    rows, steps = fork_effects(net, played, meals_and_fairness(played), meals_and_fairness, rng, count)
    return score_gradient(net, rows) / (2 * count * played.tables.count), steps * played.tables.size


def gradient_sample(net: Net, size: int, names: Sequence[str], seed: int, batches: int, teams: int) -> dict[str, GradientSample]:
    """Gradients of batches of tables under each credit."""
    grads: dict[str, list[Floats]] = {name: [] for name in names}
    charged = dict.fromkeys(names, 0)
    for b in range(batches):
        played = teams_of(net, size, teams, seed + b)
        for name in names:
            rng = np.random.default_rng([seed + b, NAMES.index(name)])
            if name == "decisions by forks":
                found, forks = fork_gradient(net, played, rng, _FORKS * teams)
            else:
                given, forks = _advantages(net, played, name, rng)
                found = gradient(net, played, given)
            grads[name].append(found)
            charged[name] += played.steps * size + forks
    return {name: GradientSample(np.stack(grads[name]), teams, charged[name] / (teams * batches)) for name in names}
