"""Whether a server speaks with the weights that it is given, tried once before it plays.

Always true: a server that keeps old weights, or parts of them, that serves another model under an adapter, or that tells
log-probabilities of another distribution than it draws from is refused before anything is learned. It is told by handing over
weights that are far from the model's, then the model's own, and comparing its log-probabilities with the learner's each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch

from counterpoint.errors import Refused
from counterpoint.lab.lm.adapter import Adapter, PolicyWeights
from counterpoint.lab.lm.engine import Answer, Ask
from counterpoint.lab.lm.served.engine import ServedEngine
from counterpoint.lab.lm.served.link import ServerFailed
from counterpoint.lab.train.lm.learner import CallTokens, LanguageLearner

_MOST_GAP, _MOST_SHARE = 0.25, 0.5
"""In log-probability of a token, on average: rounding to bfloat16 stays far below, another temperature goes far beyond. And as a
share of the distance to the weights that were not given, which is short for a tiny model."""
_WORDS, _MAPS = 0.3, 0.05
"""How far the weights that are tried are from the model's, in standard deviations: its table of words, or its linear maps."""
_SAMPLES, _TOKENS = 4, 16


def check_server(
    engine: ServedEngine, learners: Mapping[str, LanguageLearner], prompt: Sequence[int], temperature: float
) -> None:
    """Raise where it does not; in any case it was given the learners' weights last."""
    own = {name: PolicyWeights(learner.weights, learner.adapter) for name, learner in learners.items()}
    far = {name: _far(each) for name, each in own.items()}
    for policies, others, what in ((far, own, "new weights"), (own, far, "the run's weights")):
        engine.load(policies)
        for name, policy in policies.items():
            asks = [Ask(prompt=prompt, most=_TOKENS, temperature=temperature, seed=k, policy=name) for k in range(_SAMPLES)]
            said = engine.run(asks)
            gap, other = (_gap(learners[name], each, said, prompt, temperature) for each in (policy, others[name]))
            if not gap <= min(_MOST_GAP, _MOST_SHARE * other):
                if policies is far:
                    with suppress(ServerFailed):  # what went wrong first is told
                        engine.load(own)
                _refuse(engine, gap, what, is_adapted=policy.adapter is not None, temperature=temperature)


def _gap(
    learner: LanguageLearner, policy: PolicyWeights, said: Sequence[Answer], prompt: Sequence[int], temperature: float
) -> float:
    """How far log-probabilities are from those that the learner's network gives with these weights, on average."""
    calls = [CallTokens(str(k), np.array(prompt, np.int32), np.array(a.token_ids, np.int32)) for k, a in enumerate(said)]
    before, learner.options = learner.options, replace(learner.options, temperature=temperature)
    try:
        own = learner.logps(calls, policy.whole())
    finally:
        learner.options = before
    return float(np.abs(np.concatenate(own) - np.concatenate([a.logps for a in said])).mean())


def _far(policy: PolicyWeights) -> PolicyWeights:
    """Weights that nobody takes for these."""
    random = torch.Generator().manual_seed(0)

    def noise(like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=random).to(like.device)

    with torch.no_grad():
        if policy.adapter is None:
            words = policy.base["words"]
            return PolicyWeights({**policy.base, "words": words + _WORDS * words.std() * noise(words)})
        far = Adapter(policy.adapter.rank, policy.adapter.scale, dict(policy.adapter.a))
        for name, b in policy.adapter.b.items():
            unit = (far.a[name].square().mean() * far.rank).sqrt() * far.scale  # of the change that a B of ones would make
            far.b[name] = _MAPS * policy.base[name].std() / unit * noise(b)
    return PolicyWeights(policy.base, far)


def _refuse(engine: ServedEngine, gap: float, what: str, *, is_adapted: bool, temperature: float) -> None:
    said = f"given {what}, its log-probabilities differ from the learner's by {gap:.2f} on average"
    fix = "serve the run's own model" if is_adapted else "--set adapters=shared, or a server that takes all weights over"
    if temperature != 1:
        fix += f"; at temperature {temperature:g}, vLLM with --logprobs-mode processed_logprobs"
    raise Refused(said, where=engine.link.url, why="it speaks with other weights, or tells another distribution", fix=fix)
