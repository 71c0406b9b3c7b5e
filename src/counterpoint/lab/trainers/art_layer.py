"""ART: TrajectoryGroups in memory to credit, and back as groups in which ART's own arithmetic gives each call what it earned.

    for policy, groups in credited_groups(groups, CreditLayer("agent_wise")).items():
        await backend.train(models[policy], groups, normalize_advantages=False)

A Trajectory is a run of a team, and each of its histories (its own, then `additional_histories`) what one agent read and wrote;
`metadata["team"]` says who, a mapping for each history in order (`team_words`; `parent` is the `name` or else the agent of a
history before it). A group is a task. ART takes one reward for each Trajectory, and subtracts their mean in its group: a history
becomes a Trajectory for each amount that its calls earned, with the other calls as messages, and each group is balanced to a mean
of 0 by a Trajectory without a call, of which no token is learnt.

Always true: where ART makes sequences of the groups with `scale_rewards=False`, a token that its policy wrote has the layer's
advantage, and no other token teaches; what the user gave is not changed. Each Trajectory that comes out weighs as much as any
other in ART's loss, however many tokens it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from counterpoint.errors import InputError
from counterpoint.lab.trainers.credit_batch import CreditBatch
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout, Sample
from counterpoint.lab.trainers.rollout_metadata import KEY, of_call, team_words

TESTED = ("0.5.23",)
_ROUNDED = 1e-7
Calls = list[tuple[int, Any]]
"""The place of each sample's history in its Trajectory, and its Choice."""


def credited_groups(groups: Sequence[Any], layer: CreditLayer) -> dict[str, list[Any]]:
    """For each policy, the groups to train it on."""
    rollouts, calls = rollouts_of(groups)
    versions = [s.version for r in rollouts for s in r.samples if s.version is not None]
    return groups_of(groups, layer(rollouts, version=max(versions, default=None)), calls)


def rollouts_of(groups: Sequence[Any]) -> tuple[list[Rollout], list[Calls]]:
    """Runs of teams, a sample for each call; and which call of ART's that is, for each run."""
    rollouts: list[Rollout] = []
    calls: list[Calls] = []
    for g, group in enumerate(groups):
        for t, trajectory in enumerate(group.trajectories):
            name = f"{g}:{t}"
            samples, own = _samples(trajectory, name)
            if not math.isfinite(trajectory.reward):
                raise InputError(f"the reward is {trajectory.reward}", where=name, fix="a number")
            rollouts.append(Rollout(name, str(g), samples, reward=trajectory.reward, about=trajectory))
            calls.append(own)
    return rollouts, calls


def groups_of(groups: Sequence[Any], batch: CreditBatch, calls: Sequence[Calls]) -> dict[str, list[Any]]:
    """The groups with what the batch says, by policy."""
    numbers = iter(zip(batch.samples, _numbers(batch), strict=True))
    made: dict[str, list[list[Any]]] = {}
    for rollout, own in zip(batch.rollouts, calls, strict=True):
        earned: dict[str, dict[tuple[int, float], list[Any]]] = {}
        for history, choice in own:
            (_, sample), number = next(numbers)
            if number is not None:
                earned.setdefault(sample.policy, {}).setdefault((history, number), []).append(choice)
        for policy, parts in earned.items():
            trajectories = made.setdefault(policy, [[] for _ in groups])[int(rollout.task)]
            trajectories += [_part(rollout.about, history, choices, number) for (history, number), choices in parts.items()]
    return {policy: [_balanced(group, some) for group, some in zip(groups, parts, strict=True) if some]
            for policy, parts in made.items()}  # fmt: skip


def _samples(trajectory: Any, where: str) -> tuple[list[Sample], Calls]:
    if getattr(trajectory, "exchanges", None):
        raise InputError(
            "exchanges", where=where, why="only histories are read", fix="messages_and_choices, additional_histories"
        )
    histories = [trajectory.messages_and_choices, *(h.messages_and_choices for h in trajectory.additional_histories)]
    words = _words(trajectory, len(histories), where)
    names = [str(told.get("name") or told.get("agent") or f"history {h}") for h, told in enumerate(words)]
    samples: list[Sample] = []
    calls: Calls = []
    for h, (messages, told) in enumerate(zip(histories, words, strict=True)):
        for c, choice in enumerate(_choices(messages)):
            extra = choice.model_extra or {}
            ids = extra.get("token_ids")
            if ids is None:
                fix = "a vLLM endpoint with return_token_ids, as ART asks for"
                raise InputError("a Choice without token ids", where=f"{where} {names[h]}", fix=fix)
            own = {"agent": names[h], "version": trajectory.initial_policy_version} | of_call(told, h, c, names, where)
            samples.append(Sample(ids=ids, prompt_ids=extra.get("prompt_token_ids"), **own))
            calls.append((h, choice))
    return samples, calls


def _words(trajectory: Any, count: int, where: str) -> list[dict[str, Any]]:
    told = trajectory.metadata.get(KEY)
    if told is None:
        return [{} for _ in range(count)]
    told = [told] if isinstance(told, Mapping) else told
    if not isinstance(told, list | tuple) or len(told) != count:
        fix = f"metadata[{KEY!r}]: a mapping for each history, its own first"
        raise InputError(f"{KEY!r} does not fit {count} histories", where=where, fix=fix)
    return [team_words({KEY: one}, f"{where} history {h}") for h, one in enumerate(told)]


def _choices(messages: Sequence[Any]) -> list[Any]:
    """What ART trains on: its Choices, not the messages between them."""
    return [one for one in messages if not isinstance(one, Mapping)]


def _numbers(batch: CreditBatch) -> list[float | None]:
    """What each call earned; None for one that does not teach."""
    out: list[float | None] = []
    for array, mask, (rollout, sample) in zip(batch.arrays(), batch.masks(), batch.samples, strict=True):
        values = {float(x) for x in array[mask]}
        if len(values) > 1:
            why = "ART takes one number for each call"
            raise InputError(
                f"tokens of {sample.agent} earned different amounts", where=rollout.name, why=why, fix="a credit by call"
            )
        out.append(values.pop() if values else None)
    return out


def _part(trajectory: Any, history: int, choices: Sequence[Any], number: float) -> Any:
    """One history alone, of which only these Choices are Choices."""
    kept = {id(choice) for choice in choices}
    histories = [trajectory, *trajectory.additional_histories]
    messages = [
        one if isinstance(one, Mapping) or id(one) in kept else _message(one) for one in histories[history].messages_and_choices
    ]
    update = {"messages_and_choices": messages, "tools": histories[history].tools, "additional_histories": [], "reward": number}
    return trajectory.model_copy(update=update)


def _message(choice: Any) -> dict[str, Any]:
    return {name: value for name, value in choice.message.model_dump().items() if value is not None}


def _balanced(group: Any, trajectories: list[Any]) -> Any:
    """The group with these, and one more whose reward makes their mean 0."""
    total = math.fsum(trajectory.reward for trajectory in trajectories)
    if abs(total) > _ROUNDED * len(trajectories):
        blank = {
            "messages_and_choices": [{"role": "user", "content": ""}],
            "tools": None,
            "additional_histories": [],
            "reward": -total,
        }
        trajectories = [*trajectories, trajectories[0].model_copy(update=blank)]
    return group.model_copy(update={"trajectories": trajectories})
