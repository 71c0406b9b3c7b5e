"""ART's own types and arithmetic: teams as Trajectories with histories, and the advantages that its sequences have."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

art = pytest.importorskip("art", reason="the package openpipe-art is not installed: pip install '.[art]'")

from art.trajectories import LegacyHistory  # noqa: E402
from openai.types.chat.chat_completion import Choice  # noqa: E402

from counterpoint.errors import InputError  # noqa: E402
from counterpoint.lab.trainers.art_layer import credited_groups, groups_of, rollouts_of  # noqa: E402
from counterpoint.lab.trainers.layer import CreditLayer  # noqa: E402
from counterpoint.lab.trainers.rollout_traces import trace_of  # noqa: E402


def choice(prompt: list[int], ids: list[int]) -> Choice:
    """An answer as vLLM gives it, with its token ids."""
    told = [{"token": f"token_id:{i}", "logprob": -0.5, "bytes": None, "top_logprobs": []} for i in ids]
    fields = {"finish_reason": "stop", "index": 0, "logprobs": {"content": told, "refusal": None},
              "message": {"role": "assistant", "content": " ".join(map(str, ids))}, "prompt_token_ids": prompt, "token_ids": ids}  # fmt: skip
    return Choice.model_validate(fields)


def run(reward: float, workers: int, **about: Any) -> Any:
    """A lead with two calls, the second of which goes on from the first, and a history for each worker."""
    asked = {"role": "user", "content": "q"}
    lead = [asked, choice([1, 2], [3, 4]), asked, choice([1, 2, 3, 4, 5], [6])]
    others = [LegacyHistory(messages_and_choices=[asked, choice([9, k], [8, 7, k])]) for k in range(workers)]
    team = [{"agent": "lead"}, *({"agent": f"w{k}", "parent": "lead"} | about for k in range(workers))]
    return art.Trajectory(messages_and_choices=lead, additional_histories=others, reward=reward, metadata={"team": team, "kept": 1})


def groups() -> list[Any]:
    return [art.TrajectoryGroup([run(1.0, 2), run(0.0, 1)]), art.TrajectoryGroup([run(5.0, 1), run(2.0, 1), run(2.0, 3)])]


def by_answer(group: Any) -> dict[tuple[int, ...], list[float]]:
    """What each Choice of a group earns by ART's rule without scaling: the reward less the mean of the group."""
    mean = sum(t.reward for t in group.trajectories) / len(group.trajectories)
    out: dict[tuple[int, ...], list[float]] = {}
    for trajectory in group.trajectories:
        for one in trajectory.messages_and_choices:
            if not isinstance(one, dict):
                out.setdefault(tuple(one.model_extra["token_ids"]), []).append(trajectory.reward - mean)
    return out


@pytest.mark.parametrize("credit", ["group_relative", "agent_wise", "uniform"])
def test_every_call_gets_what_the_layer_gave(credit: str) -> None:
    given = groups()
    before = copy.deepcopy([g.model_dump() for g in given])
    rollouts, calls = rollouts_of(given)
    batch = CreditLayer(credit)(rollouts)
    (made,) = groups_of(given, batch, calls).values()
    wanted: dict[tuple[int, tuple[int, ...]], list[float]] = {}
    for (rollout, sample), number in zip(batch.samples, batch.numbers(), strict=True):
        wanted.setdefault((int(rollout.task), tuple(sample.ids)), []).append(number)
    assert len(made) == 2
    for g, group in enumerate(made):
        for ids, values in by_answer(group).items():
            assert sorted(values) == pytest.approx(sorted(wanted[g, ids]), abs=1e-6)
    assert [g.model_dump() for g in given] == before


def test_histories_are_agents_called_by_others() -> None:
    (rollout, *_), _ = rollouts_of(groups())
    assert [(s.agent, s.name, s.parent, list(s.ids)) for s in rollout.samples] == [
        ("lead", "0.0", None, [3, 4]), ("lead", "0.1", None, [6]), ("w0", "1.0", "0.0", [8, 7, 0]), ("w1", "2.0", "0.0", [8, 7, 1]),
    ]  # fmt: skip
    assert {e.type for e in trace_of(rollout).events} == {"message", "spawn", "return"}


def test_calls_of_one_history_that_earned_different_amounts_are_apart() -> None:
    value = lambda rollout: [0.0, 0.25, *[0.25] * 3, rollout.reward]  # noqa: E731
    given = [art.TrajectoryGroup([run(1.0, 1), run(0.5, 1)])]
    (made,) = credited_groups(given, CreditLayer("ledger", value=value, against="nothing"))["policy"]
    parts = [t for t in made.trajectories if len(t.messages_and_choices) == 4]
    assert [[isinstance(m, dict) for m in t.messages_and_choices] for t in parts[:2]] == [[True, False, True, True], [True, True, True, False]]
    assert parts[0].messages_and_choices[3] == {"role": "assistant", "content": "6"}
    assert by_answer(made)[3, 4] == pytest.approx([0.25, 0.25])
    assert by_answer(made)[6,] == pytest.approx([0.75, 0.25])


def test_policies_apart_and_frozen_agents_nowhere() -> None:
    given = [art.TrajectoryGroup([run(1.0, 2, policy="worker"), run(0.0, 1, policy="worker")])]
    made = credited_groups(given, CreditLayer("agent_wise"))
    assert sorted(made) == ["policy", "worker"]
    assert set(by_answer(made["worker"][0])) == {(8, 7, 0)}  # nobody to compare the other worker with
    frozen = credited_groups([art.TrajectoryGroup([run(1.0, 1, frozen=True), run(0.0, 1, frozen=True)])], CreditLayer("group_relative"))
    (group,) = frozen["policy"]
    assert set(by_answer(group)) == {(3, 4), (6,)}
    assert all(t.additional_histories == [] and t.metadata["kept"] == 1 for t in group.trajectories)
    assert credited_groups([art.TrajectoryGroup([run(1.0, 1)])], CreditLayer("group_relative")) == {}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda t: t.metadata.update(team=[{"agent": "lead"}]), "'team' does not fit 2 histories"),
        (lambda t: t.metadata["team"][1].update(parent="who"), "no 'who'; parent: one of lead, w0"),
        (lambda t: t.messages_and_choices[1].model_extra.pop("token_ids"), "a Choice without token ids"),
        (lambda t: setattr(t, "reward", math.nan), "the reward is nan"),
    ],
)
def test_what_is_wrong_names_the_trajectory(spoil: Any, says: str) -> None:
    bad = run(1.0, 1)
    spoil(bad)
    with pytest.raises(InputError, match=rf"0:0.*{says}"):
        credited_groups([art.TrajectoryGroup([bad, run(0.0, 1)])], CreditLayer("agent_wise"))


def test_art_makes_sequences_with_these_advantages() -> None:
    pytest.importorskip("torch")
    tokenize = pytest.importorskip("art.preprocessing.tokenize").tokenize_trajectory_groups
    given = groups()
    rollouts, calls = rollouts_of(given)
    batch = CreditLayer("agent_wise")(rollouts)
    wanted: dict[int, list[float]] = {}
    for (_, sample), number in zip(batch.samples, batch.numbers(), strict=True):
        for token in sample.ids:
            wanted.setdefault(token, []).extend([round(number, 5)] if number else [])
    found: dict[int, list[float]] = {}
    (made,) = groups_of(given, batch, calls).values()
    for row in tokenize(None, made, allow_training_without_logprobs=False, scale_rewards=False, shuffle_group_trajectories=False):
        for token, teaches in zip(row.token_ids, row.assistant_mask, strict=True):
            if teaches:
                found.setdefault(token, []).append(round(row.advantage, 5))
    assert {k: sorted(v) for k, v in found.items()} == {k: sorted(v) for k, v in wanted.items() if v}
