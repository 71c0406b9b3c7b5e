"""Every preset of language models is a method of its own: on one batch of teams no two of them pull the tokens alike."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, cast

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoint import registry  # noqa: E402
from counterpoint.lab.team.session import make_model  # noqa: E402
from counterpoint.lab.team.state import Limits  # noqa: E402
from counterpoint.lab.train.lm.learner import CallTokens, Options  # noqa: E402
from counterpoint.lab.train.lm.objective import Objective  # noqa: E402
from counterpoint.lab.train.lm.settings import language_settings  # noqa: E402
from counterpoint.lab.train.lm.stopwatch import Stopwatch  # noqa: E402
from counterpoint.lab.train.lm.team_batch import TeamBatch  # noqa: E402
from counterpoint.lab.train.lm.training import LanguageTraining  # noqa: E402
from counterpoint.lab.train.preset import named_preset  # noqa: E402
from counterpoint.trace import Event, Trace  # noqa: E402
from team_help import WithIds, record  # noqa: E402

PRESETS = [name for name in registry.ids("preset") if "lm" in named_preset(name).learns and name != "clone"]
ROLES = ("orchestrator", "worker")
SAMPLES = 16
SAME = 0.02
"""Of the length of a pull: two that are no further apart count as equal."""


def drawn(name: str, count: int, spread: float) -> np.ndarray:
    """Numbers that a name stands for."""
    return spread * np.random.default_rng(zlib.crc32(name.encode())).standard_normal(count)


class Probe:
    """A learner without a model: the policy and the reference are moved away from the sampler by numbers that stand for the call,
    and what an update would pull every token by is kept."""

    def __init__(self, pulls: dict[str, np.ndarray]) -> None:
        self.options, self.pulls, self.watch = Options(), pulls, Stopwatch()

    def set_rate(self, lr: float) -> None:
        pass

    def logps(self, sequences: Sequence[CallTokens], weights: Any = None) -> list[np.ndarray]:
        spread, who = (0.0, "") if weights is None else (0.2, "reference ")
        return [np.asarray(s.sampler) + drawn(who + s.name, len(s.said), spread) for s in sequences]

    def add(self, name: str, pull: np.ndarray) -> None:
        self.pulls[name] = self.pulls.get(name, np.zeros(len(pull))) + pull

    def imitate_some(self, sequences: Sequence[CallTokens]) -> dict[str, float]:
        count = sum(len(s.said) for s in sequences)
        for one in sequences:
            self.add(one.name, np.full(len(one.said), 1 / count))
        return {"loss": 0.0}

    def prefer(self, pairs: Sequence[tuple[CallTokens, CallTokens]], reference: Any, beta: float) -> dict[str, float]:
        for pair in pairs:
            for sign, one in zip((1, -1), pair, strict=True):
                self.add(one.name, np.full(len(one.said), sign * beta / len(pairs)))
        return {"loss": 0.0}

    def improve(self, sequences: Sequence[CallTokens], objective: Objective, reference: Any = None) -> dict[str, float]:
        flat = lambda parts: torch.as_tensor(np.concatenate(list(parts)))  # noqa: E731
        count = sum(len(s.said) for s in sequences)
        old = flat(s.sampler if s.old is None else s.old for s in sequences)
        logp = (old + flat(drawn(s.name, len(s.said), 0.4) for s in sequences)).requires_grad_()
        weights = flat(np.full(len(s.said), 1 / count if s.weight is None else s.weight) for s in sequences)
        calls = flat(np.full(len(s.said), i) for i, s in enumerate(sequences))
        references = None if reference is None else flat(self.logps(sequences, reference))
        gain = flat(s.advantages for s in sequences)
        total, report = objective(logp, old, gain, weights, calls, sampler=flat(s.sampler for s in sequences), reference=references)
        total.backward()
        for one, pull in zip(sequences, np.split(-logp.grad.numpy(), np.cumsum([len(s.said) for s in sequences])[:-1]), strict=True):
            self.add(one.name, pull)
        return report | {"loss": float(total.detach())}


class Policies:
    """Probes for one policy, or for one for each role."""

    def __init__(self, adapters: str) -> None:
        self.names = ROLES if adapters == "role" else ("shared",)
        self.pulls: dict[str, np.ndarray] = {}
        self.learners = {name: Probe(self.pulls) for name in self.names}
        self.engines = type("Engines", (), {"stats": type("Stats", (), {"reused": 0, "read": 1})()})()

    def policy_of(self, role: str) -> str:
        return role if role in self.names else self.names[0]

    def speaks_for(self) -> dict[str, str]:
        return {}

    def refresh(self) -> None:
        pass

    def snapshot(self) -> dict[str, str]:
        return dict.fromkeys(self.names, "as it was")


class Drawn(WithIds):
    """A model with token ids, whose log-probabilities are drawn by what it said."""

    async def complete(self, call: Any) -> Any:
        done = await super().complete(call)
        return replace(done, logps=tuple((-0.1 - np.abs(drawn(done.text, len(done.token_ids), 1.0))).tolist()))


@pytest.fixture(scope="module")
def teams(tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    """Two ledger hunts, each played by eight skills at three widths; in every third of them somebody is spawned who does nothing."""
    dials, out = {"documents": 12, "rows": 3, "parts": 3}, []
    task = registry.get("task", "ledger_hunt").replace(**dials)
    for seed in (4, 7):
        for k in range(SAMPLES):
            fake = f"fake:{0.3 + 0.1 * (k // 2)}"
            using, limits = Drawn(make_model(fake, task)), Limits(width=2 + k % 3, steps=30)
            folder = tmp_path_factory.mktemp("store")
            trace = record(folder, using=using, model=fake, config=dials, seed=seed, limits=limits, trace_id=f"t{seed}-{k}")
            idle = Event(id="idle", t=trace.events[-1].t + 1, type="spawn", agent="lead", role="orchestrator", to="lead.9")
            out.append(msgspec.structs.replace(trace, events=[*trace.events, *([idle] if k % 3 == 1 else [])]))
    assert len({t.rewards["team"] for t in out}) > 3
    return out


def pull(teams: Sequence[Trace], name: str) -> dict[str, np.ndarray]:
    """What two updates on the one batch, one in each half of a run, pull every token by; of methods in which roles take turns, one
    of each role's."""
    preset = named_preset(name)
    learn: dict[str, Any] = {"updates": 20, "groups": 2, "samples": SAMPLES, "resample": 0}
    learn |= {"tree": [2, SAMPLES // 2]} if preset.tree else {}
    task = {"name": "ledger_hunt", **({"topology": "debate"} if preset.fixed_team else {})}
    told = language_settings({"model": "x", "preset": name, "task": [task], "learn": learn})
    policies = Policies(told.adapters)
    driver = type("Driver", (), {"play": lambda self, rollouts, engines: list(teams)})()
    training = LanguageTraining(told, cast("Any", policies), cast("Any", driver))
    training.play_tree = lambda *_, **__: TeamBatch(list(teams))  # type: ignore[method-assign]
    for learned in (0, 10):
        training.learned = learned
        training.learn()
    return policies.pulls


def apart(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """How far two pulls are apart, as a share of the longer of the two."""
    names = sorted({*one, *other})
    flat = [np.concatenate([own.get(n, np.zeros(len({**one, **other}[n]))) for n in names]) for own in (one, other)]
    return float(np.linalg.norm(flat[0] - flat[1]) / max(np.linalg.norm(x) for x in flat))


def test_no_two_presets_pull_the_tokens_alike(teams: list[Trace]) -> None:
    pulls = {name: pull(teams, name) for name in PRESETS}
    assert all(pulls.values())
    far = {pair: apart(*(pulls[name] for name in pair)) for pair in combinations(PRESETS, 2)}
    assert not {pair: x for pair, x in far.items() if x < SAME}
    assert apart(pulls["grpo"], pull(teams, "grpo")) == 0.0  # one method under two names would be noticed
    print(sorted((x, *pair) for pair, x in far.items())[:4])  # pytest -rP shows it
