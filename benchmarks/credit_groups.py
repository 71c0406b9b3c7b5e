"""Group-relative advantages of a million rows, and GAE over 64 chains of 4,000 steps, against pandas, loops and verl."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
from _timing import arguments, interleaved, report, row

from counterpoint.credits.advantages import gae
from counterpoint.credits.groups import group_advantages

GAMMA, LAM = 0.99, 0.95


def by_pandas(table: pd.DataFrame) -> np.ndarray:
    """What a user of pandas writes."""
    groups = table.groupby("group", sort=False)["reward"]
    out = (table["reward"] - groups.transform("mean")) / (groups.transform("std") + 1e-6)
    return out.to_numpy()


def by_loop(rewards: list[float], groups: list[int]) -> list[float]:
    """A dict of lists and numpy per group, as the trainers of the field do it with tensors."""
    members: dict[int, list[float]] = defaultdict(list)
    for reward, group in zip(rewards, groups, strict=True):
        members[group].append(reward)
    stats = {g: (float(np.mean(m)), float(np.std(m, ddof=1))) for g, m in members.items()}
    return [(r - stats[g][0]) / (stats[g][1] + 1e-6) for r, g in zip(rewards, groups, strict=True)]


def gae_by_loop(rewards: list[list[float]], values: list[list[float]]) -> list[list[float]]:
    """Plain Python, one step after another."""
    out = []
    for r, v in zip(rewards, values, strict=True):
        advantage, after, own = 0.0, 0.0, [0.0] * len(r)
        for t in range(len(r) - 1, -1, -1):
            advantage = own[t] = r[t] + GAMMA * after - v[t] + GAMMA * LAM * advantage
            after = v[t]
        out.append(own)
    return out


def gae_by_columns(rewards: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A loop over time with a column of all chains, as verl and TRL do it; needs chains of one length, or padding."""
    out, advantage, after = np.empty_like(rewards), np.zeros(len(rewards)), np.zeros(len(rewards))
    for t in range(rewards.shape[1] - 1, -1, -1):
        advantage = rewards[:, t] + GAMMA * after - values[:, t] + GAMMA * LAM * advantage
        out[:, t], after = advantage, values[:, t]
    return out


def groups(n: int, repeats: int) -> list[dict[str, Any]]:
    """n rows in groups of eight, in random order."""
    rng = np.random.default_rng(0)
    group, reward = rng.permutation(np.arange(n) // 8), rng.random(n)
    table, lists = pd.DataFrame({"group": group, "reward": reward}), (reward.tolist(), group.tolist())
    ours = group_advantages(reward, group, "grpo")
    assert np.abs(ours - by_pandas(table)).max() < 1e-8, "pandas says otherwise"
    assert np.abs(ours - np.array(by_loop(*lists))).max() < 1e-8, "the loop says otherwise"
    work = {"ours": lambda: group_advantages(reward, group, "grpo"), "pandas": lambda: by_pandas(table)}
    fast = interleaved(work, repeats, "cpu")
    slow = interleaved({"loop": lambda: by_loop(*lists)}, 1, "cpu")
    what = f"group-relative advantages, {n:,} rows in groups of 8"
    return [
        row(f"{what} | pandas groupby-transform", fast["ours"] * 1e3, fast["pandas"] * 1e3, "ms CPU", target=1.5),
        row(f"{what} | loop over groups", fast["ours"] * 1e3, slow["loop"] * 1e3, "ms CPU", target=20),
    ]


def chains(steps: int, many: int, repeats: int) -> list[dict[str, Any]]:
    """GAE over `many` chains."""
    rng = np.random.default_rng(1)
    r, v = rng.random((many, steps)), rng.random((many, steps))
    flat, segment, lists = (r.ravel(), v.ravel()), np.repeat(np.arange(many), steps), (r.tolist(), v.tolist())
    ours = lambda: gae(*flat, segments=segment, gamma=GAMMA, lam=LAM)[0]  # noqa: E731
    assert np.abs(ours() - np.ravel(gae_by_loop(*lists))).max() < 1e-9, "the loop says otherwise"
    assert np.abs(ours() - gae_by_columns(r, v).ravel()).max() < 1e-9, "the columns say otherwise"
    work = {"ours": ours, "loop": lambda: gae_by_loop(*lists), "columns": lambda: gae_by_columns(r, v)}
    took = interleaved(work, repeats, "cpu")
    what = f"GAE, {many} chains of {steps:,} steps"
    return [
        row(f"{what} | Python loop", took["ours"] * 1e3, took["loop"] * 1e3, "ms CPU", target=3),
        row(f"{what} | numpy, step by step", took["ours"] * 1e3, took["columns"] * 1e3, "ms CPU", target=1.5),
    ]


def by_verl(n: int, repeats: int) -> list[dict[str, Any]]:
    """verl's own function, where verl and torch are installed; they are no extra of the benchmarks."""
    if importlib.util.find_spec("verl") is None or importlib.util.find_spec("torch") is None:
        print("skipped: verl's own GRPO (verl needs torch, some gigabytes; pip install '.[verl]')")
        print("skipped: TRL's own GRPO (it is written inside the trainer's step, with no function to call)")
        return []
    import torch
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    rng = np.random.default_rng(0)
    group, reward = rng.permutation(np.arange(n) // 8), rng.random(n)
    scores, mask = torch.tensor(reward)[:, None], torch.ones(n, 1, dtype=torch.float64)
    theirs = lambda: compute_grpo_outcome_advantage(scores, mask, group)[0]  # noqa: E731
    assert np.abs(theirs()[:, 0].numpy() - group_advantages(reward, group, "verl")).max() < 1e-6, "verl says otherwise"
    took = interleaved({"ours": lambda: group_advantages(reward, group, "verl"), "verl": theirs}, repeats, "cpu")
    return [row(f"GRPO, {n:,} rows in groups of 8 | verl", took["ours"] * 1e3, took["verl"] * 1e3, "ms CPU", target=20)]


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    n = 100_000 if asked.quick else 1_000_000
    rows = [*groups(n, 3 if asked.quick else 7), *chains(4000, 64, 3 if asked.quick else 7), *by_verl(20_000, 3)]
    report("Credit: groups and chains", rows, as_json=asked.json)


if __name__ == "__main__":
    main()
