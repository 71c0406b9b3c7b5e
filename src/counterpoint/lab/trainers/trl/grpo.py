"""TRL's `GRPOTrainer` with an advantage for each token, from rows of a file or of teams that play with its weights.

Always true: a step learns from rows as they are, in batches made up with rows that teach nothing, never cut; so the loss is that
of the rows alone, and losses that average over rows instead of tokens are refused.

    L = -1/N sum_t min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t),   rho_t = pi(t) / recorded pi(t)

with N tokens that teach in the batch (`loss_type="dapo"`, TRL's default).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from counterpoint.errors import InputError
from counterpoint.lab.trainers.row import TrainingRow, as_float32, only_policy
from counterpoint.lab.trainers.team_play import TeamPlay
from counterpoint.lab.trainers.trainer import warn_version
from counterpoint.lab.trainers.trl import TESTED

LOSSES = ("dapo", "cispo", "vespo")
"""Losses that are a sum over tokens divided by their number."""
_ROUNDS = 20
"""Rounds without a single row, one after the other, after which there is nothing to learn."""

Source = Callable[["CreditGRPOTrainer"], Sequence[TrainingRow]]


class CreditGRPOTrainer(GRPOTrainer):
    """GRPO whose advantages are ours: no reward function, no groups of one size."""

    def __init__(self, model: Any, source: Source | TeamPlay | Sequence[TrainingRow], args: GRPOConfig, **more: Any) -> None:
        """`source`: teams that play with the trainer's weights, rows that are gone through again and again, or a function that is
        asked for rows whenever none are left. Whatever else `GRPOTrainer` takes goes in `more`."""
        warn_version("trl", TESTED)
        _check(args, source)
        self._source: Source = (
            source if callable(source) else _from_teams(source) if isinstance(source, TeamPlay) else _again(source)
        )
        self._rows: deque[TrainingRow] = deque()
        size = args.generation_batch_size or args.per_device_train_batch_size
        super().__init__(model, _no_reward, args, train_dataset=Dataset.from_dict({"prompt": ["-"] * max(1, size)}), **more)
        if self.accelerator.num_processes > 1:
            fix = "the asynchronous trainer: counterpoint.lab.trainers.trl.rollout_worker"
            raise InputError(f"{self.accelerator.num_processes} processes, and teams play in one", fix=fix)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """As many rows as the batch holds, those that are missing made up: what TRL would have sampled and scored itself."""
        if not self.model.training:
            raise InputError("an evaluation of rows", fix="TeamPlay.evaluate, or an evaluation of TRL with its own trainer")
        rows = self._next(len(inputs))
        blank = len(inputs) - len(rows)
        shortest = min(rows, key=lambda row: len(row.prompt_ids) + len(row.completion_ids))
        out = self._tensors([*rows, *[shortest] * blank], taught=len(rows))
        metrics = self._metrics["train"]
        metrics["rows"].append(float(len(rows)))
        metrics["advantage_size"].append(float(np.mean(np.concatenate([np.abs(row.advantages) for row in rows]))))
        if self.beta:
            out["ref_per_token_logps"] = self._reference(out)
        return out

    def _next(self, most: int) -> list[TrainingRow]:
        for _ in range(_ROUNDS):
            if self._rows:
                break
            self._rows.extend(only_policy(list(self._source(self))))
        if not self._rows:
            raise InputError(
                f"no row in {_ROUNDS} rounds", why="all samples of a task earned the same", fix="easier tasks, more samples"
            )
        return [self._rows.popleft() for _ in range(min(most, len(self._rows)))]

    def _tensors(self, rows: Sequence[TrainingRow], *, taught: int) -> dict[str, torch.Tensor]:
        wide, long = (max(len(getattr(row, name)) for row in rows) for name in ("prompt_ids", "completion_ids"))
        sizes = {"prompt_ids": wide, "prompt_mask": wide, "completion_ids": long, "completion_mask": long, "tool_mask": long}
        ints = {name: np.zeros((len(rows), size), np.int64) for name, size in sizes.items()}
        floats = {name: np.zeros((len(rows), long), np.float32) for name in ("advantages", "old_per_token_logps")}
        for name in ("prompt_ids", "completion_ids"):
            ints[name] += self.processing_class.pad_token_id
        for i, row in enumerate(rows):
            p, n = len(row.prompt_ids), len(row.completion_ids)
            ints["prompt_ids"][i, wide - p :], ints["prompt_mask"][i, wide - p :] = row.prompt_ids, 1
            ints["completion_ids"][i, :n], ints["completion_mask"][i, :n] = row.completion_ids, 1
            ints["tool_mask"][i, :n] = row.mask if i < taught else 0
            floats["advantages"][i, :n] = as_float32(row.advantages, "advantages", row.name)
            if row.logps is not None:
                floats["old_per_token_logps"][i, :n] = as_float32(row.logps, "log-probabilities", row.name)
        out = {name: torch.as_tensor(array, device=self.accelerator.device) for name, array in (ints | floats).items()}
        bare = [i for i, row in enumerate(rows) if row.logps is None]
        if bare:  # nobody told how likely these were: the weights that learn from them now say it
            out["old_per_token_logps"][bare] = self._logps_under(self.model, out)[bare].float()
        return out | {"num_items_in_batch": out["tool_mask"].sum()}

    def _reference(self, out: dict[str, torch.Tensor]) -> torch.Tensor:
        if self.ref_model is None:
            raise InputError("beta without a reference model", fix="beta=0.0, or a model that is not an adapter")
        return self._logps_under(self.ref_model, out)

    def _logps_under(self, model: Any, out: dict[str, torch.Tensor]) -> torch.Tensor:
        ids = torch.cat([out["prompt_ids"], out["completion_ids"]], dim=1)
        mask = torch.cat([out["prompt_mask"], out["completion_mask"]], dim=1)
        with torch.no_grad():
            size, most = out["completion_ids"].size(1), self.args.per_device_train_batch_size
            logps, _, _ = self._get_per_token_logps_and_entropies(model, ids, mask, size, batch_size=most)
        return logps


def _check(args: GRPOConfig, source: Any) -> None:
    """Refuse settings under which TRL would do something else with the rows than what is said here."""
    if args.loss_type not in LOSSES:
        why = "it averages over rows, and batches are padded with rows without a gradient"
        raise InputError(f"loss_type={args.loss_type!r}", why=why, fix=f"one of {', '.join(LOSSES)}")
    if args.use_vllm or args.use_liger_kernel:
        raise InputError(
            "vLLM or Liger", why="rows are sampled elsewhere, and Liger takes one advantage per row", fix="leave them out"
        )
    if isinstance(source, TeamPlay) and args.temperature != source.temperature:
        what = f"temperature={args.temperature}, and the teams sample at {source.temperature}"
        raise InputError(what, why="ratios would be of another policy", fix=f"GRPOConfig(temperature={source.temperature})")


def _from_teams(play: TeamPlay) -> Source:
    def source(trainer: CreditGRPOTrainer) -> list[TrainingRow]:
        play.load(trainer.accelerator.unwrap_model(trainer.model).state_dict(), trainer.state.global_step)
        rows = play.rows()
        for name, value in play.told.items():
            trainer._metrics["train"][f"teams/{name}"].append(value)
        return rows

    return source


def _again(rows: Sequence[TrainingRow]) -> Source:
    own = only_policy(list(rows))
    if not own:
        raise InputError("no rows", fix="a file of `counterpoint export --to trl`")
    return lambda trainer: own


def _no_reward(completions: Sequence[Any], **_: Any) -> list[float]:
    raise InputError("TRL asked for a reward", why="advantages come with the rows", fix="a bug; report it with TRL's version")
