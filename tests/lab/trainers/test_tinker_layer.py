"""The credit layer in Tinker's own types, and in the training step of tinker_cookbook."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tinker", reason="the package tinker is not installed: pip install '.[tinker]'")

from tinker import Datum, ModelInput, SampledSequence

from counterpoint.errors import InputError
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout
from counterpoint.lab.trainers.tinker_layer import TrajectoryCredit, datums_of, samples_of


def said(*tokens: int, bare: bool = False) -> SampledSequence:
    logps = None if bare else np.full(len(tokens), -0.5, np.float32)
    return SampledSequence(stop_reason="stop", sequence_id="s", tokens_np=np.asarray(tokens, np.int32), logprobs_np=logps)


def prompt(*tokens: int) -> ModelInput:
    return ModelInput.from_ints(list(tokens))


def run(name: str, reward: float, workers: int) -> Rollout:
    """A lead of two turns that goes on from what it said, a worker or two with adapters of their own, and a frozen judge."""
    lead = samples_of([(prompt(1, 2), said(3, 4)), (prompt(1, 2, 3, 4, 9), said(5))], agent="lead", name="lead")
    others = [one for k in range(workers)
              for one in samples_of([(prompt(7), said(8, 6))], agent=f"w{k}", parent="lead", policy=f"lora{k}")]  # fmt: skip
    judge = samples_of([(prompt(7), said(8))], agent="judge", frozen=True)
    return Rollout(name, "t", [*lead, *others, *judge], reward=reward)


def test_a_team_with_adapters_of_its_own_becomes_datums_of_each_policy() -> None:
    batch = CreditLayer("group_relative", convention="prime_rl")([run("one", 1.0, 1), run("two", 3.0, 2)])  # -1 and +1
    data = datums_of(batch)
    assert {policy: len(own) for policy, own in data.items()} == {"policy": 2, "lora0": 2, "lora1": 1}
    lead = data["policy"][0]
    assert isinstance(lead, Datum)
    assert lead.model_input.to_ints() == [1, 2, 3, 4, 9]
    found = {name: part.to_numpy().tolist() for name, part in lead.loss_fn_inputs.items()}
    assert found == {"target_tokens": [2, 3, 4, 9, 5], "advantages": [0, -1, -1, 0, -1], "logprobs": [0, -0.5, -0.5, 0, -0.5]}
    worker = data["lora1"][0].loss_fn_inputs
    assert (worker["target_tokens"].to_numpy().tolist(), worker["advantages"].to_numpy().tolist()) == ([8, 6], [1, 1])


def test_turns_that_do_not_go_on_are_samples_of_their_own() -> None:
    turns = [(prompt(1), said(2)), (prompt(1, 2, 3), said(4)), (prompt(5), said(6)), (prompt(5, 6), said(7))]
    first, second = samples_of(turns, agent="a", name="a")
    assert (first.ids, first.mask, first.spans) == ([2, 3, 4], [1, 0, 1], [(0, 1), (2, 3)])
    assert (second.name, second.parent, second.after, second.spans) == ("a.1", "a", 1, [(0, 1), (1, 2)])
    other = samples_of(turns[:1], agent="a")
    data = datums_of(CreditLayer("agent_wise")([Rollout("x", "t", [first, second], reward=1.0), Rollout("y", "t", other, reward=0.0)]))
    signs = [np.sign(d.loss_fn_inputs["advantages"].to_numpy()).tolist() for d in data["policy"]]
    assert signs == [[1, 0, 1], [1, 1], [-1]]


def test_what_tinker_cannot_learn_from_is_refused() -> None:
    with pytest.raises(InputError, match="lead: 2 tokens and no log-probabilities"):
        samples_of([(prompt(1), said(2, 3, bare=True))], name="lead")
    rollouts = [Rollout(n, "t", samples_of([(prompt(), said(2))]), reward=r) for n, r in (("x", 1.0), ("y", 0.0))]
    with pytest.raises(InputError, match="x: an empty prompt"):
        datums_of(CreditLayer("group_relative")(rollouts))


# -- tinker_cookbook


def world(count: int, *, broken: bool = False) -> Any:
    """A group of the cookbook: `count` runs of a speaker and a listener, paid 0, 1, 2, ... for the speaker and 1 for the listener."""
    types = pytest.importorskip("tinker_cookbook.rl.types", reason="the package tinker-cookbook is not installed")
    from tinker_cookbook.completers import TokensWithLogprobs

    def trajectory(reward: float, turns: int) -> Any:
        whole, moves = [1, 2], []
        for k in range(turns):
            answer = [10 + k, 11 + k]
            metrics = {"parse_error_masked": 1.0} if broken and k == 1 else {}
            acted = TokensWithLogprobs(tokens=answer, maybe_logprobs=[-1.0, -2.0])
            moves.append(types.Transition(ob=prompt(*whole), ac=acted, reward=reward * (k == turns - 1), episode_done=k == turns - 1,
                                          metrics=metrics))  # fmt: skip
            whole += [*answer, 3]
        return types.Trajectory(transitions=moves, final_ob=prompt(*whole))

    trajectories = [trajectory(float(i // 2) if i % 2 == 0 else 1.0, 1 + i % 2 + i // 2) for i in range(2 * count)]
    return types.TrajectoryGroup(trajectories, [0.0] * len(trajectories), [{}] * len(trajectories))


def who(group: int, place: int, trajectory: Any) -> dict[str, Any]:
    agent = ("speaker", "listener")[place % 2]
    return {"task": str(group), "rollout": f"{group}-{place // 2}", "agent": agent, "name": agent, "frozen": False}


def test_the_cookbooks_data_has_our_advantages_and_nothing_else_changes() -> None:
    groups = [world(3), world(2)]
    from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages

    theirs, about = assemble_training_data(groups, compute_advantages(groups))
    ours, told = TrajectoryCredit(CreditLayer("agent_wise", convention="prime_rl"), who)(groups, compute_advantages(groups))
    assert told == about
    for own, other in zip(ours, theirs, strict=True):
        assert own.model_input == other.model_input
        for name in ("target_tokens", "logprobs", "mask"):
            assert own.loss_fn_inputs[name].to_numpy().tolist() == other.loss_fn_inputs[name].to_numpy().tolist()
    # speakers are paid 0, 1, 2 and compared with speakers; listeners are all paid 1 and learn nothing
    found = {a["traj_idx"]: d.loss_fn_inputs for a, d in zip(told, ours, strict=True) if a["group_idx"] == 0}
    taught = {i: part["advantages"].to_numpy()[part["mask"].to_numpy() == 1] for i, part in found.items()}
    mean = 8 / 6  # of the speakers' calls, as Dr. MAS counts: one paid 0, two paid 1, three paid 2
    for i, value in enumerate((0 - mean, 0, 1 - mean, 0, 2 - mean, 0)):
        assert taught[i] == pytest.approx(value)


def test_each_trajectory_by_itself_is_the_cookbooks_own_advantage() -> None:
    groups = [world(3), world(2)]
    from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages

    theirs, _ = assemble_training_data(groups, compute_advantages(groups))
    ours, _ = TrajectoryCredit(CreditLayer("group_relative", convention="prime_rl"))(groups)
    for own, other in zip(ours, theirs, strict=True):
        both = [d.loss_fn_inputs["advantages"].to_numpy() for d in (own, other)]
        np.testing.assert_allclose(*both, rtol=0, atol=1e-6)


def test_turns_that_the_cookbook_masks_and_frozen_agents_teach_nothing() -> None:
    groups = [world(3, broken=True)]
    frozen = TrajectoryCredit(CreditLayer("group_relative"), lambda *at: {**who(*at), "frozen": at[1] % 2 == 1})
    data, told = frozen(groups)
    assert [a["traj_idx"] for a in told] == [0, 2, 4]
    from tinker_cookbook.rl import types

    kept = 4 if hasattr(types, "PARSE_ERROR_MASKED_METRIC_KEY") else 6  # the second of three turns is masked, in versions that can
    assert [int(d.loss_fn_inputs["mask"].to_numpy().sum()) for d in data] == [2, kept - 2, kept]
    with pytest.raises(InputError, match=r"group 0 trajectory 0: no 'rollout'"):
        TrajectoryCredit(CreditLayer("group_relative"), lambda *at: {"task": "t"})(groups)


def test_the_cookbooks_own_step_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    train = pytest.importorskip("tinker_cookbook.rl.train")
    import asyncio

    monkeypatch.setattr(train, "assemble_training_data", TrajectoryCredit(CreditLayer("agent_wise"), who))
    monkeypatch.setattr(train, "print_group", lambda *_: None)

    class Builder:
        def logging_tags(self) -> list[str]:
            return []

    groups = [world(3)]
    data, *_ = asyncio.run(train.prepare_minibatch([Builder()], groups, None, None, 0.0, 0.0))
    taught = [d.loss_fn_inputs["advantages"].to_numpy() for d in data]
    assert any(row.any() for row in taught)
    assert len(taught) == 6
