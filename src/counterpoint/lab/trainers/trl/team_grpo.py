"""TRL's GRPOTrainer for teams: its own generation, rewards and loss, and an advantage for each token from a credit layer.

    TeamGRPOTrainer(model, reward, args, train_dataset=tasks, rollout_func=play, layer=CreditLayer("agent_wise"))

`rollout_func(prompts, trainer)` is TRL's; its columns besides `prompt_ids`, `completion_ids` and `logprobs` say what a row is:
`rollout` (rows of one number are one run of the team), `agent`, and as they are needed `prompt` (the place in `prompts`, where a
run has several rows), `role`, `parent`, `after`, `name`, `policy`, `version`, `frozen`, `status`, `calls`, `env_mask`. A column
`task` names the task; else it is the prompt. Reward functions are TRL's: rows of one run are paid the same, or some of them None.

Always true: what the layer gives stands in the batch token for token, tokens that do not teach are masked, and nothing else of
TRL's batch is changed; a number of rows that does not divide is filled up with rows of which no token teaches (`rollout` is -1).
Groups are gathered over all processes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from accelerate.utils import gather_object
from trl import GRPOConfig, GRPOTrainer

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.trainers.credit_batch import CreditBatch
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout, Sample, Status
from counterpoint.lab.trainers.trainer import warn_version
from counterpoint.lab.trainers.trl import TESTED

LOSSES = ("dapo", "cispo", "vespo")
"""Losses that are a sum over tokens divided by their number."""
_SAMPLE = ("agent", "role", "parent", "after", "name", "policy", "version", "frozen", "status", "calls")
_TRL = ("prompt_ids", "completion_ids", "logprobs")
Play = Callable[[list[Any], Any], Mapping[str, Any]]


class TeamGRPOTrainer(GRPOTrainer):
    """GRPO for runs of any number of rows, with the credit of a layer."""

    def __init__(
        self, model: Any, reward_funcs: Any, args: GRPOConfig, *, rollout_func: Play, layer: CreditLayer,
        paid: Literal["team", "sample"] = "team", **more: Any,
    ) -> None:  # fmt: skip
        """`paid`: whether a row's reward is that of its team, or its own. Whatever else `GRPOTrainer` takes goes in `more`."""
        warn_version("trl", TESTED)
        if args.loss_type not in LOSSES:
            why = "it averages over rows, and runs have any number of them"
            raise InputError(f"loss_type={args.loss_type!r}", why=why, fix=f"one of {', '.join(LOSSES)}")
        if args.use_liger_kernel:
            raise InputError("Liger", why="it takes one advantage for each row", fix="leave it out")
        if paid not in ("team", "sample"):
            raise InputError(f"paid={paid!r}", fix=did_you_mean(paid, ("team", "sample")))
        self.layer, self.paid, self.batch = layer, paid, CreditBatch([], [], [], {})
        self._play: Any = rollout_func
        self._rows, self._paid_rows = list[dict[str, Any]](), list[float]()
        self._order: list[int] = []
        super().__init__(model, reward_funcs, args, rollout_func=rollout_func, **more)
        if self.accelerator.num_processes > 1 and layer.gather is None:
            layer.gather = gather_object

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's own batch of what the teams did, with our advantages."""
        prompts = [one["prompt"] for one in inputs]
        played = self._play(list(prompts), self)
        output = {name: list(v) if isinstance(v, tuple | np.ndarray) else v for name, v in played.items()}
        places = _places(output, prompts)
        rows = len(places)
        self._rows = [_about(output, i, prompts[place], place) for i, place in enumerate(places)]
        wanted = self._whole(rows)
        output["env_mask"] = list(output.get("env_mask") or [[1] * len(ids) for ids in output["completion_ids"]])
        for _ in range(wanted - rows):
            _fill(output, next(iter(self.eos_token_ids), 0))
        told: Any = lambda prompts, trainer: output  # noqa: E731
        self.rollout_func = told
        filled = [*places, *[places[0]] * (wanted - rows)]
        try:
            out: dict[str, Any] = super()._generate_and_score_completions([dict(inputs[place]) for place in filled])
        finally:
            self.rollout_func = self._play
        if not self.model.training:
            return out
        self.batch = self.layer(self._rollouts(output), version=int(self.state.global_step))
        self._put(out)
        self._tell()
        return out

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        """TRL's rewards, kept for the layer: the weighted sum of each row here."""
        told: torch.Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        first = self.accelerator.process_index * len(prompts)
        own = told[first : first + len(prompts)]
        sums = (own * self.reward_weights.to(own.device)).nansum(1)
        sums[torch.isnan(own).all(1)] = math.nan
        self._paid_rows = sums.tolist()
        return told

    def _whole(self, rows: int) -> int:
        """How many rows TRL needs: as many in each process, and whole groups in each of its batches."""
        group = self.num_generations if self.model.training else self.num_generations_eval
        step = math.lcm(group, self.args.steps_per_generation if self.model.training else 1)
        return max(math.ceil(n / step) for n in gather_object([max(rows, 1)])) * step

    def _rollouts(self, output: Mapping[str, Any]) -> list[Rollout]:
        """The rows as runs of teams, in memory."""
        self._order.clear()
        runs: dict[tuple[Any, int], list[int]] = {}
        for i, row in enumerate(self._rows):
            runs.setdefault((row["rollout"], row["attempt"]), []).append(i)
        step = f"{self.accelerator.process_index}-{self.state.global_step}"
        return [self._rollout(f"{step}-{run}", attempt, rows, output) for (run, attempt), rows in runs.items()]

    def _rollout(self, name: str, attempt: int, rows: Sequence[int], output: Mapping[str, Any]) -> Rollout:
        tasks = {self._rows[i]["task"] for i in rows}
        if len(tasks) > 1:
            raise InputError(f"rows of {len(tasks)} tasks", where=name, fix="a number of its own in `rollout` for each run")
        paid = [self._paid_rows[i] for i in rows]
        known = [x for x in paid if not math.isnan(x)]
        if self.paid == "team" and known and max(known) - min(known) > 1e-6:
            what = f"its rows are paid from {min(known):g} to {max(known):g}"
            raise InputError(what, where=name, fix="one reward for the team (None for the other rows), or paid='sample'")
        samples = []
        for i, x in zip(rows, paid, strict=True):
            about = {key: self._rows[i][key] for key in _SAMPLE if self._rows[i].get(key) is not None}
            if self.paid == "sample" and not math.isnan(x):
                about["reward"] = x
            samples.append(Sample(ids=output["completion_ids"][i], mask=output["env_mask"][i], **about))
            self._order.append(i)
        team = known[0] if self.paid == "team" and known else None
        status: Status = "complete" if known else "aborted"
        about_rows = [self._rows[i] for i in rows]
        return Rollout(name, tasks.pop(), samples, reward=team, attempt=attempt, status=status, about=about_rows)

    def _put(self, out: dict[str, Any]) -> None:
        """Our advantages, and which tokens teach, in TRL's batch and in its order of rows."""
        advantages = np.zeros(tuple(out["completion_ids"].shape), np.float32)
        teaches = np.zeros(advantages.shape, np.int64)
        advantages[self._order] = self.batch.padded(advantages.shape[1])
        for place, mask in zip(self._order, self.batch.masks(), strict=True):
            teaches[place, : len(mask)] = mask
        self.batch.check(list(advantages[self._order]))
        device = out["completion_ids"].device
        out["advantages"] = torch.as_tensor(advantages, device=device)
        out["tool_mask"] = out["tool_mask"] * torch.as_tensor(teaches, device=device)
        out["num_items_in_batch"] = self.accelerator.gather((out["tool_mask"] * out["completion_mask"]).sum()).sum()

    def _tell(self) -> None:
        metrics = self._metrics["train"]
        accounts = self.batch.accounts
        metrics["credit/rows"].append(float(len(self._rows)))
        metrics["credit/rollouts"].append(float(len(accounts)))
        metrics["credit/unknown"].append(float(len(self.batch.unknown)))


def _places(output: Mapping[str, Any], prompts: Sequence[Any]) -> list[int]:
    """The prompt of each row; refused where nobody says it."""
    missing = [name for name in (*_TRL, "rollout") if name not in output]
    if missing:
        fix = "rows with prompt_ids, completion_ids, logprobs, and rollout: the number of the run"
        raise InputError(f"no column {missing[0]!r}", where="rollout_func", fix=fix)
    rows = len(output["completion_ids"])
    for name, values in output.items():
        if isinstance(values, list) and len(values) != rows:
            raise InputError(f"{len(values)} values of {name!r} for {rows} rows", where="rollout_func", fix="one for each row")
    if "prompt" not in output and rows != len(prompts):
        what = f"{rows} rows for {len(prompts)} prompts"
        raise InputError(what, where="rollout_func", fix="a column `prompt`: the place of each row's prompt")
    places = [int(place) for place in output.get("prompt", range(rows))]
    if not rows or not all(0 <= place < len(prompts) for place in places):
        raise InputError("rows of no prompt", where="rollout_func", fix=f"a place from 0 to {len(prompts) - 1} in `prompt`")
    return places


def _about(output: Mapping[str, Any], i: int, prompt: Any, place: int) -> dict[str, Any]:
    """What a row says of itself, and whatever else `rollout_func` gave."""
    row = {name: values[i] for name, values in output.items() if name not in (*_TRL, "env_mask") and isinstance(values, list)}
    task = row.get("task") or (prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True, default=str))
    return {**row, "task": str(task), "attempt": int(row.get("attempt") or 0), "prompt": place}


def _fill(output: dict[str, Any], token: int) -> None:
    """A row more, of no run (`rollout` is -1), of which no token teaches."""
    blank = {"completion_ids": [token], "logprobs": [0.0], "env_mask": [0], "rollout": -1}
    for name, values in output.items():
        if isinstance(values, list):
            output[name] = [*values, blank.get(name, values[0])]
