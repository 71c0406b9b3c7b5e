"""What a learner does in the tests of several processes: torchrun starts this file, and the tests do the same in one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpoint.errors import CounterpointError
from counterpoint.lab.lm.adapter import Adapter
from counterpoint.lab.lm.network import Network, Rope, Shape, Weights, sizes
from counterpoint.lab.train.lm.learner import CallTokens, LanguageLearner, Options, with_old
from counterpoint.lab.train.lm.objective import Objective

SHAPE = Shape(
    layers=3, heads=4, kv_heads=2, head_width=8, width=32, inner=48, vocabulary=50, context=256, eps=1e-5, rope=Rope(),
    has_qkv_bias=True, has_qk_norm=True, is_tied=False,
)  # fmt: skip
KINDS = ("all", "adapter", "all recomputed", "adapter recomputed")


def weights_of(shape: Shape = SHAPE) -> Weights:
    random = torch.Generator().manual_seed(3)
    return {name: torch.randn(*size, generator=random) * 0.3 + (len(size) == 1) for name, size in sizes(shape).items()}


def calls() -> list[CallTokens]:
    """Conversations of unlike lengths, some of which begin alike; not as many as divide among two."""
    rng, out = np.random.default_rng(5), []
    for k in range(9):
        trunk = rng.integers(0, 50, 20 + 9 * (k % 3))
        for j in range(2 if k % 2 else 1):
            prompt, said = np.concatenate([trunk, rng.integers(0, 50, 3 + j)]), rng.integers(0, 50, 4 + k % 4)
            more = {"advantages": rng.normal(size=len(said)), "sampler": rng.normal(-2, 0.3, len(said))}
            out.append(CallTokens(f"c{k}.{j}", prompt, said, **more))
    return out


def learner_of(kind: str, ranks: Any = None, **options: Any) -> LanguageLearner:
    network = Network(SHAPE, dtype=torch.bfloat16 if "narrow" in kind else None, is_recomputed="recomputed" in kind)
    weights, how = weights_of(), Options(**{"lr": 0.01, "steps": 2, "tokens": 100, "clip_norm": 0.5, **options})
    adapter = Adapter.new(SHAPE, weights, rank=3, seed=1) if "adapter" in kind else None
    if ranks is None:
        return LanguageLearner(network, weights, how, adapter)
    from counterpoint.lab.train.lm.sharded import ShardedLearner, blank_weights

    if not ranks.is_first:
        weights = blank_weights(SHAPE)
        adapter = Adapter.new(SHAPE, weights, rank=3, seed=9) if adapter is not None else None
    return ShardedLearner(network, weights, how, adapter, ranks=ranks)


def learned(learner: LanguageLearner, first: int = 0, updates: int = 2) -> list[dict[str, float]]:
    """Some updates, each with a reference, a limit in KL that bites, and a mean of the weights."""
    out, reference = [], learner.snapshot()
    for k in range(first, first + updates):
        learner.options = replace(learner.options, kl_limit=0.05)
        out.append(learner.improve(with_old(learner, calls()[k:]), Objective(beta=0.1), reference))
        learner.average(0.5)
    return out


def found(learner: LanguageLearner) -> dict[str, Any]:
    """What one may want to compare."""
    logps = learner.logps(calls())
    told = {"logps": logps, "weights": {n: w.detach().clone() for n, w in learner.now().items()}, "state": learner.state()}
    learner.swap()
    told["mean"] = {n: w.detach().clone() for n, w in learner.now().items()}
    learner.swap()
    return told


def main(folder: Path) -> None:
    """Every kind from the start, and on from a checkpoint that one process has written."""
    from counterpoint.lab.train.lm.ranks import Ranks

    torch.set_num_threads(1)
    ranks = Ranks()
    out: dict[str, Any] = {}
    for kind in KINDS:
        learner = learner_of(kind, ranks)
        out[kind] = {"told": learned(learner), **found(learner)}
        again = learner_of(kind, ranks)
        again.restore(torch.load(folder / f"{kind}.pt", weights_only=True) if ranks.is_first else {})
        out[kind] |= {"again": again.improve(with_old(again, calls()), Objective()), "again found": found(again)}
    out["few"] = [learner_of("all", ranks).imitate(calls()[:1]), learner_of("all", ranks, tokens=10_000).imitate(calls())]
    for kind in ("all narrow", "adapter narrow"):  # as on a GPU: computed in bfloat16
        learner = learner_of(kind, ranks, steps=1)
        out[kind] = [learner.improve(calls(), Objective()), learner.logps(calls())]
    pairs = list(zip(calls()[:4], calls()[4:8], strict=True))
    learner = learner_of("all", ranks)
    out["prefer"] = learner.prefer(pairs, learner.snapshot(), 0.3)
    dealt = learner_of("all", ranks)._dealt(calls())
    out["dealt"] = ranks.gather([[(sum(map(len, batch)), [i for row in batch for i in row.calls]) for batch in dealt]])
    out["refused"] = refused(ranks)
    out["short"] = short(ranks)
    everybodys = ranks.gather(out | {"same": None})
    if ranks.is_first:
        torch.save(everybodys[0], folder / "ranks.pt")
        torch.save([one["all"]["told"] for one in everybodys], folder / "told.pt")
    torch.distributed.destroy_process_group()


def refused(ranks: Any) -> str:
    """What all processes say of a call whose loss is no number, though only one of them has it."""
    bad = [replace(c, advantages=np.full(len(c.said), np.nan)) if c.name == "c4.0" else c for c in calls()]
    try:
        learner_of("all", ranks).improve(bad, Objective())
    except CounterpointError as error:
        return "|".join(set(ranks.gather(error.one_line())))
    return "nothing"


def short(ranks: Any) -> Any:
    """The size of micro-batches on all processes where one of them lacks the memory for more, and what they learn."""
    from counterpoint.lab.train.lm.sharded import ShardedLearner

    class Small(ShardedLearner):
        """Its second process has room for few tokens."""

        def _take(self, size: int) -> None:
            if self.ranks.rank == 1 and size > self._bytes_of(60, 60):
                raise torch.OutOfMemoryError("out of memory")

    learner = Small(Network(SHAPE), weights_of(), Options(lr=0.01, steps=2, tokens=200, clip_norm=0.5), ranks=ranks)
    told = learner.improve(calls(), Objective())
    return told, ranks.gather(learner.options.tokens)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
