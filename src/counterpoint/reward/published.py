"""Reward arithmetic of published methods, part one: outcomes, formats, roles and judges of a single rollout.

Always true: pure functions of numbers; each names its paper, and `as_released=True` is what the authors' code does where it
differs from the text. None (no row) stands for what a method does not say. A score that is not a number is an error.

    MATPO 2510.04678        M-GRPO 2511.13288       MarsRL 2511.11373      SHARP 2602.08335 (reconstructed, weights ours)
    WideSeek-R1 2602.04634  Agent Q-Mix 2604.00344  MAE 2510.23595         CoMAS 2510.08529
    HIMPO (DEPART), ParaManager 2604.17009, Debate-as-Reward 2604.16723, HERA 2604.00901 (reconstructed from abstracts)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from counterpoint.errors import InputError


def _number(**values: float) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise InputError(f"{name} is {value}", fix="leave out what was not scored")


# -- outcome and format -----------------------------------------------------------------------------------------------------


def matpo(accuracy: float, main: float, workers: Sequence[float], *, w_acc: float = 0.9, w_fmt: float = 0.1) -> float:
    """MATPO: w_acc acc + (w_fmt f_main + w_fmt mean f_worker) / 2; without a worker its half is 0."""
    _number(accuracy=accuracy, main=main, **{f"worker {i}": f for i, f in enumerate(workers)})
    mean = float(np.mean(workers)) if len(workers) else 0.0
    return w_acc * accuracy + 0.5 * (w_fmt * main + w_fmt * mean)


def m_grpo_main(format_ok: bool, correct: float, *, alpha: tuple[float, float] = (0.1, 0.9)) -> float:
    """M-GRPO, main agent: 0.1 format + 0.9 correct; 0 where the format is invalid."""
    _number(correct=correct)
    return alpha[0] + alpha[1] * correct if format_ok else 0.0


def m_grpo_sub(
    format_ok: bool,
    main: float,
    expert: float | None = None,
    *,
    beta: tuple[float, float, float] = (0.1, 0.4, 0.5),
    as_released: bool = False,
) -> float:
    """M-GRPO, sub-call: 0.1 format + 0.4 correct_main + 0.5 expert; 0 where the format is invalid.

    The public code has no expert term: 0, 0.1, or 1.0 from the format and the main score.
    """
    _number(main=main)
    if not format_ok:
        return 0.0
    if as_released:
        return 1.0 if main >= 1.0 else 0.1
    if expert is None:
        raise InputError("M-GRPO's sub reward wants an expert's score", fix="give expert, or as_released=True")
    _number(expert=expert)
    return beta[0] + beta[1] * main + beta[2] * expert


def wideseek(
    item_f1: float,
    *,
    format_ok: bool,
    accessed: bool,
    max_turn_tokens: float,
    hit_limit: bool = False,
    w_format: float = 0.1,
    w_access: float = 0.05,
    w_length: float = 0.1,
) -> float:
    """WideSeek-R1: F1 + 0.1 format + 0.05 if a page was opened - 0.1 clip((L - 3000) / 2000, 0, 1), L the longest turn's tokens.

    0 where the answer cannot be parsed or the lead agent hit a limit.
    """
    _number(item_f1=item_f1, max_turn_tokens=max_turn_tokens)
    if not format_ok or hit_limit:
        return 0.0
    over = min(max((max_turn_tokens - 3000.0) / 2000.0, 0.0), 1.0)
    return item_f1 + w_format + w_access * accessed - w_length * over


def agent_qmix(accuracy: float, tokens: float, *, max_tokens: float = 10_000, w_acc: float = 1.0, w_tok: float = 0.1) -> float:
    """Agent Q-Mix: w_acc acc - w_tok min(tokens / max, 1). The training script sets w_acc 1.5; 1.0 is the class default."""
    _number(accuracy=accuracy, tokens=tokens)
    return w_acc * accuracy - w_tok * min(tokens / max_tokens, 1.0)


def himpo(task: float, dense: Sequence[float], *, w_dense: float = 0.5) -> float:
    """HIMPO: task + w mean(dense role reward); the task alone where nothing dense was scored. Shape only, the weight is ours."""
    _number(task=task, **{f"dense {i}": d for i, d in enumerate(dense)})
    return task + w_dense * float(np.mean(dense)) if len(dense) else task


def paramanager(
    success: float, protocol: float, diversity: float, efficiency: float, *, weights: Sequence[float] = (1.0, 0.2, 0.1, 0.1)
) -> float:
    """ParaManager: a weighted sum of success, protocol, diversity and efficiency; the weights are ours."""
    _number(success=success, protocol=protocol, diversity=diversity, efficiency=efficiency)
    return float(np.dot(weights, [success, protocol, diversity, efficiency]))


# -- marginal credit in the reward --------------------------------------------------------------------------------------------


def sharp(
    full: float,
    without: Mapping[str, float],
    tool: Mapping[str, float],
    *,
    base: float | None = None,
    lambda_s: float = 0.5,
    lambda_p: float = 0.1,
) -> dict[str, float]:
    """SHARP: R_m = R_b + lambda_s (R - R without m) + lambda_p R_tool,m; an agent without tool reward gets no such term."""
    _number(full=full, **{f"without {m}": v for m, v in without.items()}, **{f"tool {m}": v for m, v in tool.items()})
    base = full if base is None else base
    return {m: base + lambda_s * (full - value) + lambda_p * tool.get(m, 0.0) for m, value in without.items()}


# -- roles and judges -------------------------------------------------------------------------------------------------------


def marsrl(solved: bool, no_error_found: bool, corrected: bool | None = None) -> dict[str, float]:
    """MarsRL: solver and corrector 1 for a right answer, verifier 1 for a verdict that is true; who did not act has no entry."""
    out = {"solver": float(solved), "verifier": float(no_error_found == solved)}
    return out if corrected is None else {**out, "corrector": float(corrected)}


def mae_proposer(quality: float, solver_mean: float, format_: float, *, parsed: bool = True, least: float = 0.7) -> float:
    """MAE's proposer: q/3 + (1 - solver mean)/3 + f/3; no difficulty third below quality 0.7, 0 where no question was parsed."""
    _number(quality=quality, solver_mean=solver_mean, format_=format_)
    difficulty = 1.0 - solver_mean if quality >= least else 0.0
    return (quality + difficulty + format_) / 3.0 if parsed else 0.0


def mae_solver(judge: float, format_: float) -> float:
    """MAE's solver: half judge, half format."""
    _number(judge=judge, format_=format_)
    return 0.5 * judge + 0.5 * format_


def mae_judge(format_: float) -> float:
    """MAE's judge: its format only."""
    _number(format_=format_)
    return format_


def comas(score: Any) -> dict[str, float]:
    """CoMAS: of a score s in 1, 2, 3: solution (s - 1)/2, evaluation (3 - s)/2, scorer 0.

    An unparsed score costs the scorer 1; what the other two then get the paper does not say, so they have no entry.
    """
    if isinstance(score, bool) or not isinstance(score, int | float) or score not in (1, 2, 3):
        return {"scorer": -1.0}
    return {"solution": (score - 1) / 2, "evaluation": (3 - score) / 2, "scorer": 0.0}


def debate_gate(verdicts: Sequence[Sequence[bool | int]]) -> list[float]:
    """Debate-as-Reward: 1 where every judge (row) says yes of an answer (column), else 0."""
    if not len(verdicts) or len({len(row) for row in verdicts}) != 1:
        raise InputError("every judge gives one verdict per answer", fix="rows of equal length")
    return [float(all(column)) for column in zip(*verdicts, strict=True)]


class HeraGroup(NamedTuple):
    """HERA's reading of a group of topologies."""

    order: list[int]
    """Places, best first."""
    reflect: bool
    """Mixed group: at least one success and one failure, which alone yields an insight."""
    mutate: bool
    """Every one failed: the topology is changed."""


def hera_rank(f1: Sequence[float], tokens: Sequence[float], *, success_above: float = 0.0) -> HeraGroup:
    """HERA: by F1 descending, then tokens ascending, then place."""
    _number(**{f"f1 {i}": v for i, v in enumerate(f1)}, **{f"tokens {i}": v for i, v in enumerate(tokens)})
    order = sorted(range(len(f1)), key=lambda i: (-f1[i], tokens[i], i))
    won = [v > success_above for v in f1]
    return HeraGroup(order, any(won) and not all(won), bool(won) and not any(won))


def hera_utility(uses: int, successes: int) -> float | None:
    """HERA: successes / uses of a library entry; None before its first use."""
    if not 0 <= successes <= uses:
        raise InputError(f"{successes} successes of {uses} uses")
    return successes / uses if uses else None
