"""slime, vime and miles by a recorded contract: runs of any number of Samples, rewards split by K, frozen agents, adapters, trimmed runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from counterpoint.errors import InputError, Refused  # noqa: E402
from counterpoint.lab.trainers.layer import CreditLayer  # noqa: E402
from counterpoint.lab.trainers.limits import Limits  # noqa: E402
from counterpoint.lab.trainers.slime_layer import Answer, SlimeCredit  # noqa: E402
from recorded_help import Sample, Status, arguments, compute_advantages, log_rollout_data, on_rank, taught, train_data  # noqa: E402

PATH = "team_credit.advantages"


def run(rollout: int, reward: float, workers: int, *, group: int = 0, split: bool = False, **more: Any) -> list[Sample]:
    """A lead with one Sample of two calls, and a Sample for each worker."""
    paid = reward / (workers + 1) if split else reward
    lead = Sample(group, rollout, rollout, [1, 2, 3, 4, 5, 6], 4, paid, [1, 1, 0, 1], metadata={"team": {"agent": "lead", "name": "lead"}})
    out = [lead]
    for k in range(workers):
        about = {"agent": f"w{k}", "parent": "lead"} | more
        out.append(Sample(group, rollout, rollout, [9, 7 + k, 8], 2, paid, None, metadata={"team": about}))
    return out


def numbers(credit: SlimeCredit, samples: list[Sample], **more: Any) -> list[float]:
    return credit.rewards(arguments(**more), samples)[1]


def test_runs_of_a_varying_number_of_samples_are_compared_as_runs() -> None:
    samples = [*run(0, 1.0, 2), *run(1, 4.0, 0), *run(2, 0.0, 1, group=1), *run(3, 2.0, 3, group=1)]
    credit = SlimeCredit(CreditLayer("group_relative", convention="prime_rl"))
    data = train_data(arguments(), samples, credit.rewards)
    assert data["raw_reward"] == [s.reward for s in samples]
    assert data["rewards"] == [-1.5] * 3 + [1.5] + [-1.0] * 2 + [1.0] * 4  # slime would reshape, and miles and vime refuse
    rank = on_rank(data, [3, 0, 5])
    compute_advantages(arguments(), rank)
    assert taught(rank) == [[1.5, 1.5, None, 1.5], [-1.5, -1.5, None, -1.5], [-1.0, -1.0]]


def test_a_reward_split_by_k_is_put_together_again() -> None:
    split, whole = ([*run(0, 1.0, 2, split=s), *run(1, 0.1, 4, split=s)] for s in (True, False))
    layer = CreditLayer("group_relative", convention="prime_rl")
    parts = numbers(SlimeCredit(layer, paid="parts"), split)
    assert parts == pytest.approx(numbers(SlimeCredit(layer), whole), abs=1e-7)
    assert parts == pytest.approx([0.45] * 3 + [-0.45] * 5)
    split[0].reward = 5.0
    with pytest.raises(InputError, match=r"0: its samples are paid from 0\.333333 to 5"):
        numbers(SlimeCredit(layer), split)


def test_a_number_for_each_token_where_calls_earned_different_amounts() -> None:
    samples = [*run(0, 1.0, 1), *run(1, 3.0, 1)]
    value = lambda rollout: [0.0, 0.25, 0.25, 0.25, 0.5, rollout.reward]  # noqa: E731
    with pytest.raises(InputError, match="calls of lead earned"):
        numbers(SlimeCredit(CreditLayer("ledger", value=value, against="nothing")), samples)
    credit = SlimeCredit(CreditLayer("ledger", value=value, against="nothing"))
    args = arguments(custom_advantage_function_path=PATH)
    data = train_data(args, samples, credit.rewards)
    wanted = [array.tolist() for array in credit.batch.arrays()]
    found: dict[int, list[float]] = {}
    for rows in ([2, 1], [3, 0]):  # two ranks, in another order
        rank = on_rank(data, rows)
        compute_advantages(args, rank, credit.advantages)
        assert all(a is not b for a, b in zip(rank["advantages"], rank["returns"], strict=True))
        found |= {i: row.tolist() for i, row in zip(rows, rank["advantages"], strict=True)}
        assert log_rollout_data(rank)["rewards"] == pytest.approx(sum(sum(wanted[i]) for i in rows) / sum(len(wanted[i]) for i in rows))
    assert [found[i] for i in range(4)] == wanted  # bit for bit
    assert wanted[0][0] != wanted[0][3]


def test_frozen_removed_and_aborted_samples_teach_nothing() -> None:
    samples = [*run(0, 1.0, 1, frozen=True), *run(1, 3.0, 2), *run(2, 5.0, 1), *run(3, 0.0, 1)]
    samples[3].remove_sample = True
    for sample in samples[7:]:
        sample.status = Status.ABORTED
    data = train_data(arguments(), samples, credit := SlimeCredit(CreditLayer("group_relative", convention="prime_rl")).rewards)
    assert credit.__self__.batch.unknown == {"3": "aborted"}
    assert data["loss_masks"] == [[1, 1, 0, 1], [0, 0], [1, 1, 0, 1], [0, 0], [1, 1], [1, 1, 0, 1], [1, 1], [0] * 4, [0, 0]]
    assert data["rollout_mask_sums"] == [3, 3, 5, 5, 5, 5, 5, 0, 0]
    assert data["rewards"][0] == -2.0  # 1 against the mean of 1, 3 and 5


def test_a_trimmed_run_is_compared_with_nothing() -> None:
    samples = [*run(0, 1.0, 2, split=True), *run(1, 4.0, 1, split=True), *run(2, 2.0, 1, split=True)]
    for sample in samples:
        sample.metadata["num_segments"] = 3 if sample.rollout_id == 0 else 2
    credit = SlimeCredit(CreditLayer("group_relative", convention="prime_rl"), paid="parts")
    assert numbers(credit, samples[1:]) == [0.0, 0.0, 1.0, 1.0, -1.0, -1.0]
    assert credit.batch.unknown == {"0": "aborted"}


def test_of_several_attempts_at_a_run_the_last_one_counts() -> None:
    samples = [*run(0, 9.0, 1), *run(0, 1.0, 2), *run(1, 3.0, 0)]
    for sample in samples[2:5]:
        sample.metadata["team"]["attempt"] = 1
    credit = SlimeCredit(CreditLayer("group_relative", convention="prime_rl"))
    assert numbers(credit, samples) == [0.0, 0.0, -1.0, -1.0, -1.0, 1.0]
    assert samples[0].loss_mask == [0, 0, 0, 0]
    assert dict(credit.batch.unknown) == {"0": "retried"}


def test_a_call_that_forks_repeat_is_learnt_once() -> None:
    samples = [*run(0, 1.0, 0), *run(1, 3.0, 0)]
    for sample, last in zip(samples, "lr", strict=True):
        sample.metadata["team"]["calls"] = ["first", last]
    args = arguments(custom_advantage_function_path=PATH)
    found = SlimeCredit(CreditLayer("group_relative", convention="prime_rl")).rewards(args, samples)[1]
    assert [value.tolist() for value in found] == [[-0.5, -0.5, 0, -1.0], [0.5, 0.5, 0, 1.0]]


def test_segments_of_claude_code_are_a_main_agent_and_its_sub_agents() -> None:
    samples = run(0, 1.0, 2)
    for sample, kind in zip(samples, ("final", "subagent", "compact"), strict=True):
        sample.metadata = {"segment_kind": kind}
    (rollout,), order = SlimeCredit(CreditLayer()).rollouts(arguments(), samples)
    assert [s.agent for s in rollout.samples] == ["main", "subagent", "main"]
    assert order == [0, 1, 2]


def test_adapters_are_policies_and_old_weights_do_not_teach() -> None:
    samples = [*run(0, 1.0, 1), *run(1, 3.0, 1)]
    for sample, name, version in zip(samples, ("plan", "work") * 2, ("3", "7", "7", "x"), strict=True):
        sample.adapter, sample.weight_versions = SimpleNamespace(name=name, slot=0), [version]
    samples[3].weight_versions = ["7", "8"]
    credit = SlimeCredit(CreditLayer("agent_wise", limits=Limits(most_stale=2)))
    assert numbers(credit, samples)[0] == 0.0
    assert credit.batch.of_policy("plan") == [0, 2]
    assert samples[0].loss_mask == [0, 0, 0, 0]
    assert samples[2].loss_mask == [1, 1, 0, 1]


def test_rewards_of_several_parts_by_their_key() -> None:
    samples = [*run(0, 1.0, 0), *run(1, 3.0, 0)]
    for sample in samples:
        sample.reward = {"score": sample.reward, "length": 9}
    credit = SlimeCredit(CreditLayer("group_relative", convention="prime_rl"))
    assert numbers(credit, samples, reward_key="score") == [-1.0, 1.0]
    with pytest.raises(InputError, match=r"sample 0: the reward is .*--reward-key"):
        numbers(credit, samples)


BAD = [
    (lambda s: setattr(s, "group_index", None), "no group_index"),
    (lambda s: setattr(s, "group_index", 7), "samples of 2 tasks"),
    (lambda s: (setattr(s, "index", None), setattr(s, "rollout_id", None)), "sample 1: neither rollout_id nor index"),
    (lambda s: setattr(s, "reward", float("nan")), "the reward is nan"),
    (lambda s: s.metadata["team"].update(agnet="x"), "sample 1: no word 'agnet' in 'team'; did you mean 'agent'"),
    (lambda s: s.metadata["team"].update(after="x"), "sample 1: 'after' is a str; after: a int"),
    (lambda s: s.metadata.update(team="lead"), "sample 1: 'team' is a str"),
    (lambda s: s.metadata["team"].update(parent="who"), "no sample 'who'"),
]


@pytest.mark.parametrize(("spoil", "says"), BAD)
def test_what_is_wrong_names_the_sample_or_the_run(spoil: Any, says: str) -> None:
    samples = [*run(0, 1.0, 1), *run(1, 3.0, 1)]
    spoil(samples[1])
    with pytest.raises(InputError, match=says):
        numbers(SlimeCredit(CreditLayer()), samples)


def test_what_would_change_the_credit_on_its_way_is_refused() -> None:
    samples = [*run(0, 1.0, 1), *run(1, 3.0, 1)]
    credit = SlimeCredit(CreditLayer())
    with pytest.raises(Refused, match="normalize-advantages"):
        numbers(credit, samples, normalize_advantages=True)
    with pytest.raises(Refused, match="advantage-estimator ppo"):
        numbers(credit, samples, advantage_estimator="ppo")
    with pytest.raises(InputError, match="paid='each'"):
        SlimeCredit(CreditLayer(), paid="each")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a list of lists"):
        credit.rewards(arguments(), [samples])
    rank = on_rank(train_data(arguments(), samples, credit.rewards), [0])
    with pytest.raises(InputError, match="a reward of float, not one for each token"):
        credit.advantages(arguments(), rank)
    rank["rewards"] = [torch.zeros(2)]
    with pytest.raises(InputError, match="4 places for 2 advantages"):
        credit.advantages(arguments(), rank)


def test_an_answer_is_seen_without_a_copy() -> None:
    tokens = [1, 2, 3, 4, 5]
    answer = Answer(tokens, 3)
    assert (len(answer), list(answer), answer[0], answer[-1], answer[1:], answer[:0]) == (3, [3, 4, 5], 3, 5, [4, 5], [])
    assert answer.tokens is tokens
    with pytest.raises(IndexError):
        answer[3]
