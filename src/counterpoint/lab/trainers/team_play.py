"""Teams that play with the weights of a model that somebody else trains, and the rows of what they did, with our credit.

Always true: a round is a function of the settings, the weights and its number. Rows carry the version of the weights that spoke.
Tasks of training begin at 1,000,000; those below are held out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.errors import InputError
from counterpoint.lab.lm.network import of_transformers
from counterpoint.lab.team.edits import keyed_seed
from counterpoint.lab.train.lm.advantages import advantages, flat_groups, less_prices
from counterpoint.lab.train.lm.driver import Driver, Rollout
from counterpoint.lab.train.lm.policies import check_device, engine_of, read_model
from counterpoint.lab.train.lm.settings import language_settings
from counterpoint.lab.trainers.row import TrainingRow, training_rows
from counterpoint.trace import Trace

_FIRST = 1_000_000


class TeamPlay:
    """Plays rounds of teams; also a context manager that ends their processes."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config` has the keys of a run (docs/lab/language-models.md): model, task, prices, learn (credit, groups, ...)."""
        learn = {"updates": 1, **dict(config.get("learn", {}))}
        self.settings = language_settings({**config, "learn": learn})
        if self.settings.adapters:
            raise InputError("adapters of our own, where another trainer learns", where="adapters", fix="leave it out")
        device = check_device(self.settings.device)
        self.files = read_model(self.settings.model, device)
        self.engine = engine_of(self.settings, self.files)
        workers = self.settings.workers or max(1, (os.cpu_count() or 2) - 1)
        self.driver = Driver(self.files.folder, workers=workers, is_repeatable=device.type == "cpu")
        self.version = 0
        self.rounds = 0
        self.told: dict[str, float] = {}
        """What the last round was like: reward, solved, share of groups that taught nothing."""
        self._by_seed = [mix for mix in self.settings.task for _ in range(mix.share)]

    @property
    def temperature(self) -> float:
        """What answers are sampled at; a trainer must divide its logits by the same."""
        return self.settings.learn.temperature

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Speak with these weights, by the names of transformers, from now on."""
        with torch.no_grad():
            self.engine.load(of_transformers(self.files.shape, {name: w.detach() for name, w in weights.items()}))
        self.version = version

    def play(self, seeds: Sequence[int], *, samples: int = 1, temperature: float = 1.0, name: str = "play") -> list[Trace]:
        """Teams on the tasks of these seeds, each `samples` times."""
        rollouts = [
            Rollout(
                spec=self._by_seed[seed % len(self._by_seed)].spec(seed, "engine"),
                seed=keyed_seed(self.settings.seed, f"{name} {seed} {k}"),
                temperature=temperature,
                version=str(self.version),
                trace_id=f"{name}-{seed}-{k}",
            )
            for seed in seeds
            for k in range(samples)
        ]
        return [less_prices(t, self.settings.prices) for t in self.driver.play(rollouts, self.engine)]

    def rows(self) -> list[TrainingRow]:
        """The rows of one round: tasks, samples of each, credit; tasks whose samples all earned the same are replaced."""
        learn, useful = self.settings.learn, list[Trace]()
        everything: list[Trace] = []
        missing = learn.groups
        for turn in range(learn.resample + 1):
            first = _FIRST + (self.rounds * (learn.resample + 1) + turn) * learn.groups
            seeds, name = range(first, first + missing), f"r{self.rounds}"
            traces = self.play(seeds, samples=learn.samples, temperature=learn.temperature, name=name)
            equal = flat_groups(traces, learn)
            everything += traces
            useful += [t for t in traces if (t.task_id or t.trace_id) not in equal]
            missing = len(equal)
            if not missing:
                break
        self.rounds += 1
        self.told = {**_summary(everything), "flat": missing / learn.groups}
        return training_rows(advantages(useful, learn)).rows if useful else []

    def evaluate(self, tasks: int) -> dict[str, float]:
        """What the model earns on tasks that are never learned on, sampled at temperature 1."""
        return _summary(self.play(range(tasks), name=f"held-{self.version}"))

    def close(self) -> None:
        """End the processes of the teams."""
        self.driver.close()

    def __enter__(self) -> TeamPlay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _summary(traces: Sequence[Trace]) -> dict[str, float]:
    reward = float(np.mean([t.rewards["team"] for t in traces]))
    return {"reward": reward, "solved": float(np.mean([(t.metrics or {}).get("task_success", 0.0) for t in traces]))}
