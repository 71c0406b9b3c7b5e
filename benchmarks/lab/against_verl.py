"""A second check of the formulas: the same random batches through verl's own functions and ours, largest difference of each.

verl needs torch and a dozen packages more, so it is no extra of the benchmarks; where it is importable this runs, elsewhere it
says what to install. Nothing is timed: a difference above 1e-5 (verl computes in float32) is a miss.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import arguments

from counterpoint.credits.advantages import gae
from counterpoint.credits.groups import group_advantages, whiten
from counterpoint.lab.train.objectives import clip_loss, kl

TOLERANCE = 1e-5
INSTALL = (
    "pip install torch && pip install --no-deps verl, then packaging ray tensordict omegaconf transformers codetiming orjson"
)


def differences(seed: int) -> Iterator[tuple[str, float]]:
    """(what, largest difference) of each function on one random batch of 12 answers of up to 9 tokens, in groups of 4."""
    import torch
    from verl.trainer.ppo import core_algos as verl

    rng = np.random.default_rng(seed)
    n, t = 12, 9
    lengths = rng.integers(2, t + 1, n)
    mask = np.arange(t) < lengths[:, None]
    group = np.repeat(np.arange(n // 4), 4)
    reward = np.zeros((n, t))
    reward[np.arange(n), lengths - 1] = rng.normal(size=n)
    score = reward.sum(axis=1)
    tensor = lambda a: torch.tensor(np.asarray(a, np.float64))  # noqa: E731
    m, r, index = tensor(mask), tensor(reward), group.astype(object)
    first = lambda a: a[0].numpy()[:, 0]  # noqa: E731

    ours = group_advantages(score, group, "verl")
    yield "GRPO advantage", _far(first(verl.compute_grpo_outcome_advantage(r, m, index)), ours)
    ours = score - np.array([score[group == g].mean() for g in group])
    yield "Dr. GRPO advantage", _far(first(verl.compute_grpo_outcome_advantage(r, m, index, norm_adv_by_std_in_grpo=False)), ours)
    yield "RLOO advantage", _far(first(verl.compute_rloo_outcome_advantage(r, m, index)), group_advantages(score, group, "rloo"))
    yield from _chains(verl, tensor, rng, mask, reward)
    yield from _losses(verl, tensor, rng, mask)


def _chains(
    verl: object, tensor: object, rng: np.random.Generator, mask: np.ndarray, reward: np.ndarray
) -> Iterator[tuple[str, float]]:
    """GAE, with tokens in the middle that the policy did not write, skipped by both; whitened, as verl returns it."""
    n, t = mask.shape
    own = mask & ~((np.arange(t) == 1) & (mask.sum(axis=1) > 3)[:, None])
    values = rng.normal(size=(n, t)) * own
    adv, ret = verl.compute_gae_advantage_return(tensor(reward), tensor(values), tensor(own), 0.97, 0.9)  # type: ignore[attr-defined, operator]
    segments = np.repeat(np.arange(n), own.sum(axis=1))
    a, g = gae(reward[own], values[own], segments=segments, gamma=0.97, lam=0.9)
    yield "GAE returns, tool tokens skipped", _far(ret.numpy()[own], g)
    yield "GAE advantages, whitened", _far(adv.numpy()[own], whiten(a))


def _losses(verl: object, tensor: object, rng: np.random.Generator, mask: np.ndarray) -> Iterator[tuple[str, float]]:
    """Clipped policy loss with dual clip, and KL estimates."""
    shape = mask.shape
    old, new, a = rng.normal(-1, 0.3, shape), rng.normal(-1, 0.5, shape), rng.normal(size=shape)
    of = lambda name, *args, **kw: getattr(verl, name)(*args, **kw)  # noqa: E731
    theirs = of(
        "compute_policy_loss",
        tensor(old),
        tensor(new),
        tensor(a),
        tensor(mask),
        cliprange=0.2,
        cliprange_high=0.28,
        cliprange_low=0.2,
    )[0]  # type: ignore[operator]
    loss = clip_loss(tensor((new - old)[mask]), tensor(a[mask]), low=0.2, high=0.28, dual=3.0)  # type: ignore[operator]
    yield "policy loss, clip-higher and dual clip, mean over tokens", _far(float(theirs), float(loss.mean()))
    for name, estimator in (("kl", "k1"), ("mse", "k2"), ("low_var_kl", "k3")):
        theirs = of("kl_penalty", tensor(new), tensor(old), name).numpy()  # type: ignore[operator]
        yield f"KL {estimator}", _far(theirs, kl(tensor(new - old), estimator).numpy())  # type: ignore[operator]


def _far(theirs: np.ndarray | float, ours: np.ndarray | float) -> float:
    return float(np.abs(np.asarray(theirs, np.float64) - np.asarray(ours, np.float64)).max())


def main() -> int:
    """Print the table; 1 when something differs."""
    asked = arguments(__doc__ or "")
    if importlib.util.find_spec("verl") is None or importlib.util.find_spec("torch") is None:
        print(f"skipped: verl is not installed ({INSTALL})")
        return 0
    worst: dict[str, float] = {}
    for seed in range(5 if asked.quick else 50):
        for name, far in differences(seed):
            worst[name] = max(worst.get(name, 0.0), far)
    for name, far in worst.items():
        print(f"{name:<42} {far:10.2e}  {'ok' if far <= TOLERANCE else 'DIFFERS'}")
    return int(any(far > TOLERANCE for far in worst.values()))


if __name__ == "__main__":
    sys.exit(main())
