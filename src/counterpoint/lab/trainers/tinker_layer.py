"""The credit layer under Tinker: what was sampled, in memory, in; a Datum for each sample out, by policy.

    lead = samples_of([(prompt, response.sequences[0])], agent="lead", name="lead")      # tinker's ModelInput, SampledSequence
    worker = samples_of([...], agent="worker", parent="lead", policy="worker-lora")
    data = datums_of(layer([Rollout("run 1", "task", [*lead, *worker], reward=1.0), ...]))
    client.forward_backward(data["policy"], "importance_sampling")
    lora.forward_backward(data["worker-lora"], "importance_sampling")

Under tinker_cookbook's loop, whose `TrajectoryGroup`s hold the agents of a world (`EnvGroupBuilder`), one line more:

    train.assemble_training_data = TrajectoryCredit(layer, who)

Always true: places of prompts, and of what was read between turns, have advantage 0; a sample of which no token teaches has no
Datum; what the Datums hold is checked against what the layer gave, and an error names the rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoint.errors import InputError
from counterpoint.lab.trainers.credit_batch import CreditBatch
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout, Sample
from counterpoint.lab.trainers.trainer import need

Turn = tuple[Any, Any]
"""A prompt (`tinker.ModelInput`) and what was said to it (`tinker.SampledSequence`, or the cookbook's `TokensWithLogprobs`)."""


def samples_of(turns: Iterable[Turn], *, agent: str = "agent", name: str | None = None, **about: Any) -> list[Sample]:
    """The turns of one agent: a sample for each run of turns whose prompts go on from all before, as `about` says further."""
    runs: list[_Run] = []
    for prompt, said in turns:
        if not (runs and runs[-1].goes_on(prompt)):
            runs.append(_Run(prompt))
        runs[-1].add(prompt, said, name or agent)
    out: list[Sample] = []
    for k, run in enumerate(runs):
        own = about if not k else about | {"parent": out[-1].name, "after": len(runs[k - 1].spans) - 1}
        called = name if not k else f"{name or agent}.{k}"
        if called is None and len(runs) > 1:
            called = agent
        out.append(Sample(ids=run.ids, mask=run.mask, logps=run.logps, prompt_ids=run.prompt, spans=run.spans, agent=agent,
                          name=called, **own))  # fmt: skip
    return out


def datums_of(batch: CreditBatch) -> dict[str, list[Any]]:
    """What each policy learns from: its samples as `tinker.Datum`s, in the order of the batch."""
    need("tinker", "tinker")
    out: dict[str, list[Any]] = {}
    found: list[NDArray[np.float32] | None] = []
    for (rollout, sample), array, mask in zip(batch.samples, batch.arrays(), batch.masks(), strict=True):
        found.append(None)
        if mask.any():
            datum = _datum(sample, array, rollout.name)
            out.setdefault(sample.policy, []).append(datum)
            found[-1] = datum.loss_fn_inputs["advantages"].to_numpy()[-sample.size :]
    batch.check(found)
    return out


def _datum(sample: Sample, advantages: NDArray[np.float32], where: str) -> Any:
    from tinker import Datum, EncodedTextChunk, ModelInput

    if sample.prompt_ids is None or not sample.prompt_ids.length:
        raise InputError("an empty prompt, and the first token needs something before it", where=where, fix="samples_of(...)")
    if sample.logps is None:
        raise InputError("no log-probabilities, and Tinker learns from them", where=where, fix="samples_of(...)")
    ids = [int(i) for i in sample.ids]
    chunks = [*sample.prompt_ids.chunks, *([EncodedTextChunk(tokens=ids[:-1])] if len(ids) > 1 else [])]
    before = _tokens(sample.prompt_ids)[1:]
    blank = np.zeros(len(before), np.float32)
    inputs = {
        "target_tokens": np.asarray([*before, *ids], np.int64),
        "logprobs": np.concatenate([blank, np.asarray(sample.logps, np.float32)]),
        "advantages": np.concatenate([blank, advantages]),
    }
    return Datum(model_input=ModelInput(chunks=chunks), loss_fn_inputs=inputs)


def _tokens(prompt: Any) -> list[int]:
    """The tokens of a prompt, 0 where there is an image: what no loss is asked about."""
    return [i for chunk in prompt.chunks for i in (chunk.tokens if hasattr(chunk, "tokens") else [0] * chunk.length)]


class _Run:
    """Turns that are one sequence of tokens."""

    def __init__(self, prompt: Any) -> None:
        self.prompt, self.whole = prompt, _tokens(prompt)
        self.ids, self.mask, self.logps = list[int](), list[int](), list[float]()
        self.spans: list[tuple[int, int]] = []

    def goes_on(self, prompt: Any) -> bool:
        """Whether this prompt begins with all that was read and said."""
        first = self.prompt.chunks
        if any(not hasattr(chunk, "tokens") for chunk in [*first, *prompt.chunks]):
            return False  # images: not compared, so a sample of their own
        return _tokens(prompt)[: len(self.whole)] == self.whole

    def add(self, prompt: Any, said: Any, where: str) -> None:
        """One more turn."""
        tokens, logps = [int(i) for i in said.tokens], said.logprobs
        if not tokens or logps is None or len(logps) != len(tokens):
            what = f"{len(tokens)} tokens and {'no' if logps is None else len(logps)} log-probabilities"
            raise InputError(what, where=where, fix="turns that said something, sampled with their log-probabilities")
        read = _tokens(prompt)[len(self.whole) :]
        for ids, mask, some in ((read, 0, [0.0] * len(read)), (tokens, 1, list(logps))):
            self.ids += ids
            self.mask += [mask] * len(ids)
            self.logps += some
        self.whole += [*read, *tokens]
        self.spans.append((len(self.ids) - len(tokens), len(self.ids)))


Who = Callable[[int, int, Any], Mapping[str, Any]]


def each_its_own(group: int, place: int, trajectory: Any) -> Mapping[str, Any]:
    """The cookbook's usual group: as many runs of one task as it has trajectories, each of one agent."""
    return {"task": str(group), "rollout": f"{group}-{place}"}


class TrajectoryCredit:
    """What takes the place of tinker_cookbook's `assemble_training_data`: the same Datums, with our advantages in them."""

    def __init__(self, layer: CreditLayer, who: Who = each_its_own) -> None:
        """`who(group, place, trajectory)` says of each trajectory its `task` and its `rollout` (trajectories of one name are one
        run of a team), and as they are needed `agent`, `role`, `parent`, `policy`, `frozen`, ... as `Sample` has them."""
        need("tinker_cookbook", "tinker-cookbook")
        self.layer, self.who = layer, who
        self.batch = CreditBatch([], [], [], {})

    def __call__(
        self, trajectory_groups_P: Sequence[Any], advantages_P: Any = None, **more: Any
    ) -> tuple[list[Any], list[dict[str, int]]]:
        """The cookbook's own signature; its own advantages are not looked at."""
        from tinker_cookbook.rl.data_processing import trajectory_to_data

        placed = [(g, i, t) for g, group in enumerate(trajectory_groups_P) for i, t in enumerate(group.trajectories_G)]
        rewards = [reward for group in trajectory_groups_P for reward in group.get_total_rewards()]
        rollouts, order = self._rollouts(placed, rewards)
        self.batch = self.layer(rollouts)
        given = dict(zip(order, zip(self.batch.arrays(), self.batch.masks(), strict=True), strict=True))
        data, about = [], []
        back: list[Any] = [None] * len(placed)
        for k, (g, i, trajectory) in enumerate(placed):
            made = trajectory_to_data(trajectory, 1.0, **more)
            own, back[k] = _with_advantages(made, *given[k], where=f"group {g} trajectory {i}")
            data += own
            about += [{"group_idx": g, "traj_idx": i} for _ in own]
        self.batch.check([back[k] for k in order])
        return data, about

    def _rollouts(self, placed: Sequence[tuple[int, int, Any]], rewards: Sequence[float]) -> tuple[list[Rollout], list[int]]:
        """The trajectories as runs, and the place of each of their samples among them."""
        runs: dict[tuple[str, str], list[tuple[int, Sample]]] = {}
        for k, (g, i, trajectory) in enumerate(placed):
            about = dict(self.who(g, i, trajectory))
            missing = [name for name in ("task", "rollout") if name not in about]
            if missing:
                raise InputError(f"no {missing[0]!r}", where=f"group {g} trajectory {i}", fix="who(...) says task and rollout")
            run = (str(about.pop("task")), str(about.pop("rollout")))
            runs.setdefault(run, []).append((k, replace(_written(trajectory), reward=float(rewards[k]), **about)))
        out = [Rollout(name, task, [sample for _, sample in some], about=[placed[k] for k, _ in some])
               for (task, name), some in runs.items()]  # fmt: skip
        return out, [k for some in runs.values() for k, _ in some]


class _Count:
    """Tokens that nobody looks at: the cookbook's own lists hold them."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n


def _written(trajectory: Any) -> Sample:
    """What an agent said, turn by turn, without what the cookbook masks itself."""
    from tinker_cookbook.rl import types

    masked = getattr(types, "PARSE_ERROR_MASKED_METRIC_KEY", "")  # not in every version
    spans: list[tuple[int, int]] = []
    end = 0
    for turn in trajectory.transitions:
        if n := 0 if float(turn.metrics.get(masked, 0.0)) >= 1 else len(turn.ac.tokens):
            spans.append((end, end + n))
            end += n
    return Sample(ids=_Count(end), spans=spans)


def _with_advantages(
    made: Sequence[Any], advantages: NDArray[np.float32], mask: NDArray[np.bool_], *, where: str
) -> tuple[list[Any], NDArray[np.float32]]:
    """The Datums with these advantages where something was said, and what they hold then; none where nothing teaches."""
    from tinker import TensorData

    places = [np.flatnonzero(datum.loss_fn_inputs["mask"].to_numpy()) for datum in made]
    if sum(map(len, places)) != len(advantages):
        what = f"{sum(map(len, places))} tokens in the cookbook's data and {len(advantages)} that were said"
        raise InputError(what, where=where, fix="a first observation that is not empty")
    out, back, first = [], [], 0
    for datum, at in zip(made, places, strict=True):
        own, taught = advantages[first : first + len(at)], mask[first : first + len(at)]
        first += len(at)
        inputs = dict(datum.loss_fn_inputs)
        for name, values in (("advantages", own), ("mask", taught)):
            row = np.zeros(len(inputs["mask"].to_numpy()), np.float32)
            row[at] = values
            inputs[name] = TensorData.from_numpy(row)
        back.append(inputs["advantages"].to_numpy()[at])
        if taught.any():
            out.append(replace(datum, loss_fn_inputs=inputs))
    return out, np.concatenate([*back, np.zeros(0, np.float32)])
