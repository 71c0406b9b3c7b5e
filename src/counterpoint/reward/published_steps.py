"""Reward arithmetic of published methods, part two: turns, steps, branches and trees.

Always true: pure functions of arrays; each names its paper, and `as_released=True` is what the authors' code does where it
differs from the text. A score that is not a number is an error.

    MAPoRL 2502.18439     Puppeteer 2505.19591     MALT 2412.01928     FoldGRPO 2510.11967     MARTI-MARS2 2602.07848
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from counterpoint.errors import InputError


def _finite(values: np.ndarray | Sequence[float], what: str) -> np.ndarray:
    out = np.asarray(values, np.float64)
    if not np.isfinite(out).all():
        raise InputError(f"a {what} is not a number", fix="leave out what was not scored")
    return out


# -- MAPoRL -----------------------------------------------------------------------------------------------------------------


def maporl(score_TA: np.ndarray | Sequence[Sequence[float]], *, gamma: float = 0.3) -> np.ndarray:
    """(T, A) own score now, the team's mean score later, discounted: (v_ta + sum_t'>t gamma^(t'-t) mean_b v_t'b) / sum gamma^."""
    score_TA = _finite(np.asarray(score_TA, np.float64), "score")
    if score_TA.ndim != 2 or not score_TA.size:
        raise InputError(f"scores are turns by agents, not shape {score_TA.shape}")
    out = np.empty_like(score_TA)
    later, weight = 0.0, 0.0
    for t in range(len(score_TA) - 1, -1, -1):
        out[t] = (score_TA[t] + later) / (1.0 + weight)
        later, weight = gamma * (float(score_TA[t].mean()) + later), gamma * (1.0 + weight)
    return out


def maporl_bonus(
    correct_TA: np.ndarray | Sequence[Sequence[float]], alpha: Sequence[float], *, as_released: bool = False
) -> np.ndarray:
    """(T, A) the incentives added to `maporl`; four signed constants, nothing at turn 0, thresholds 0.5.

    Own wrong to right: +a0 if the others were right, +a1 if wrong; right to wrong: -a0 if the others were wrong, -a1 if right.
    Others wrong to right at t + 1: +a3 if self is right, +a2 if wrong; others right to wrong: -a2 if self right, -a3 if wrong.
    The text means this second line as pay for good influence; the released signs are the opposite and punish it: `as_released`.
    """
    right = _finite(np.asarray(correct_TA, np.float64), "correctness") > 0.5
    turns, agents = right.shape
    if len(alpha) != 4:
        raise InputError(f"MAPoRL has four constants, not {len(alpha)}")
    if agents < 2:
        raise InputError("MAPoRL's incentives want at least two agents")
    others = (right.sum(axis=1, keepdims=True) - right) / (agents - 1) > 0.5
    out = np.zeros((turns, agents))
    sign = -1.0 if as_released else 1.0
    a0, a1, a2, a3 = (float(a) for a in alpha)
    for t in range(1, turns):
        was, now, heard = right[t - 1], right[t], others[t - 1]
        out[t] += np.where(~was & now, np.where(heard, a0, a1), 0.0) - np.where(was & ~now, np.where(heard, a1, a0), 0.0)
        if t + 1 < turns:
            then, next_ = others[t], others[t + 1]
            out[t] += sign * np.where(~then & next_, np.where(now, a3, a2), 0.0)
            out[t] -= sign * np.where(then & ~next_, np.where(now, a2, a3), 0.0)
    return out


# -- Puppeteer --------------------------------------------------------------------------------------------------------------


class PuppeteerSteps(NamedTuple):
    """Costs, rewards and returns of each step."""

    cost_T: np.ndarray
    reward_T: np.ndarray
    return_T: np.ndarray


def _returns(reward_T: np.ndarray, gamma: float) -> np.ndarray:
    out, later = np.empty_like(reward_T), 0.0
    for t in range(len(reward_T) - 1, -1, -1):
        out[t] = later = reward_T[t] + gamma * later
    return out


def puppeteer(
    outcome: float, load_T: Sequence[float], *, budget: float, weight: float = 0.1, gamma: float = 0.99
) -> PuppeteerSteps:
    """The paper: C_t = F_t log(1 + t / budget), t from 1; reward -lambda C_t, plus the outcome at the last step."""
    load = _finite(load_T, "load")
    if not len(load) or not budget > 0:
        raise InputError("Puppeteer wants at least one step and a positive budget")
    cost = load * np.log1p(np.arange(1, len(load) + 1) / budget)
    reward = -weight * cost
    reward[-1] += outcome
    return PuppeteerSteps(cost, reward, _returns(reward, gamma))


def puppeteer_released(
    outcome: float,
    agents: Sequence[str],
    tokens: Sequence[float],
    *,
    max_steps: int,
    factors: Mapping[str, float] | None = None,
    scale: float = 0.1,
    gamma: float = 0.99,
) -> PuppeteerSteps:
    """The released code: s_t = 0.1 log(1 + (t + 1) / (M + 1)) / log 2, t from 0; a step earns s_t factor tokens / 1e5.

    The last agent is the terminator: outcome + 0.5 s if the outcome is positive, else outcome - 0.5 s, with s at the trajectory's
    length (one step later), so that a longer success is paid slightly more. `tokens` has one entry less than `agents`.
    """
    if len(agents) != len(tokens) + 1:
        raise InputError(f"{len(agents)} agents and {len(tokens)} token counts", fix="the terminator, last, has none")
    factors = {"default": -1.0, "web_search": -1.5, "terminator": 0.5, **(factors or {})}
    cost = scale * np.log1p(np.arange(1, len(agents) + 2) / (max_steps + 1)) / math.log(2)
    factor = np.array([factors.get(a, factors["default"]) for a in agents[:-1]])
    last = outcome + (1 if outcome > 0 else -1) * factors["terminator"] * cost[-1]
    reward = np.append(cost[:-2] * factor * _finite(tokens, "token count") / 1e5, last)
    return PuppeteerSteps(cost[:-1], reward, _returns(reward, gamma))


# -- MALT -------------------------------------------------------------------------------------------------------------------


class MaltTree(NamedTuple):
    """Values, labels and training pairs (place of the right one, place of the wrong one) of a tree of n^3 leaves."""

    verifier_GV: np.ndarray
    generator_G: np.ndarray
    verifier_right_GV: np.ndarray
    generator_right_G: np.ndarray
    refiner_pairs: list[tuple[int, int, int, int]]
    """(g, v, right, wrong)."""
    verifier_pairs: list[tuple[int, int, int]]
    """(g, right, wrong)."""
    generator_pairs: list[tuple[int, int]]


def malt(leaf_GVR: np.ndarray | Sequence[Sequence[Sequence[float]]], *, threshold: float = 0.5) -> MaltTree:
    """MALT: a node is worth the mean of its leaves and is right iff above the threshold, which itself is wrong."""
    leaf = _finite(np.asarray(leaf_GVR, np.float64), "leaf")
    if leaf.ndim != 3 or not leaf.size:
        raise InputError(f"leaves are generators by verifiers by refiners, not shape {leaf.shape}")
    verifier = leaf.mean(axis=2)
    generator = verifier.mean(axis=1)

    def pairs(right: np.ndarray) -> list[tuple[int, int]]:
        return [(int(i), int(j)) for i in np.flatnonzero(right) for j in np.flatnonzero(~right)]

    return MaltTree(
        verifier,
        generator,
        verifier > threshold,
        generator > threshold,
        [(g, v, *p) for g in range(leaf.shape[0]) for v in range(leaf.shape[1]) for p in pairs(leaf[g, v] > threshold)],
        [(g, *p) for g in range(leaf.shape[0]) for p in pairs(verifier[g] > threshold)],
        pairs(generator > threshold),
    )


# -- FoldGRPO ---------------------------------------------------------------------------------------------------------------


def fold_process(
    *,
    on_main: bool,
    creates_branch: bool = False,
    context_share: float = 0.0,
    in_scope: bool | None = None,
    tool_failed: bool = False,
    never_branched: bool = False,
    odd_characters: bool = False,
    as_released: bool = False,
) -> float:
    """FoldGRPO's Q of a turn: -1 on the main thread (not a branching turn) past half the context limit; -0.2 in a branch out of
    scope; -1 on a failed tool call; else 0; they add up.

    Released: also +0.2 in scope, -1 on a main thread that never branched on a success, -1 for odd characters; and the sum is
    stored as int8, which cuts every part of 0.2 off.
    """
    q = -1.0 * (on_main and not creates_branch and context_share > 0.5) - 1.0 * tool_failed
    q += -0.2 if not on_main and in_scope is False else 0.0
    if not as_released:
        return q
    q += (0.2 if not on_main and in_scope else 0.0) - 1.0 * (on_main and never_branched) - 1.0 * odd_characters
    return float(int(q))


def fold_reward(outcome: float, process: Sequence[float] | np.ndarray) -> np.ndarray:
    """FoldGRPO: clip(R + Q, 0, 1), token by token or turn by turn."""
    return np.clip(outcome + _finite(process, "process reward"), 0.0, 1.0)


def fold_flat(outcome: float, in_scope: bool, *, shift: float = 0.2) -> float:
    """The released `flat` mode, which is also the survey's reading: a branch earns the main outcome, shifted by its scope."""
    return outcome + (shift if in_scope else -shift)


# -- MARTI-MARS2 ------------------------------------------------------------------------------------------------------------


def mars2_shaping(
    parent: Sequence[int], reward: Sequence[float], *, gain: float = 0.5, mix: float = 0.5, as_released: bool = False
) -> np.ndarray:
    """MARS2: r += gain (r - b), b = mix of the parent's shaped reward and the siblings' leave-one-out mean; parents come first.

    Where one of the two is missing the other is b; where both are, r stays. Released: the workflow never stores a parent, so
    nothing is shaped.
    """
    shaped = _finite(reward, "reward").copy()
    raw = shaped.copy()
    if as_released:
        return shaped
    for i, p in enumerate(parent):
        if p >= i:
            raise InputError(f"node {i} has the parent {p}", fix="list parents before their children, -1 for none")
        siblings = [raw[j] for j, q in enumerate(parent) if q == p and j != i]
        known = ([float(shaped[p])] if p >= 0 else []) + ([float(np.mean(siblings))] if siblings else [])
        if known:
            base = mix * known[0] + (1 - mix) * known[1] if len(known) == 2 else known[0]
            shaped[i] = raw[i] + gain * (raw[i] - base)
    return shaped
