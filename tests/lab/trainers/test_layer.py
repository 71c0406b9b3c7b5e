"""The credit layer: advantages computed by hand, arrays that fit the trainer's, accounts that notice a lost amount."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.lab.trainers.kept_rollouts import KeptRollouts
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.limits import Limits
from counterpoint.lab.trainers.rollout import Rollout, Sample
from counterpoint.lab.trainers.rollout_traces import trace_of
from counterpoint.store import Store
from counterpoint.trace.check import problems


def team(name: str, right: dict[str, float], *, task: str = "t", **more: Any) -> Rollout:
    """A lead that calls workers and merges; each worker adds its number to the reward."""
    lead = Sample(ids=[1, 2, 3, 9, 9, 4], mask=[1, 1, 1, 0, 0, 1], agent="lead", role="lead", name="lead")
    workers = [Sample(ids=[7, 8], agent=agent, role="worker", parent="lead", name=agent) for agent in right]
    return Rollout(name, task, [lead, *workers], reward=sum(right.values()), about=right, **more)


def without(rollout: Rollout, agent: str) -> float:
    return sum(value for name, value in rollout.about.items() if name != agent) if agent != "lead" else 0.0


ONE, TWO = team("one", {"a": 1.0, "b": 0.0}), team("two", {"a": 0.0, "b": 3.0})


def test_a_team_is_a_trace_with_its_calls_spawns_and_returns() -> None:
    trace = trace_of(ONE)
    kinds = [(e.id, e.type, e.agent, e.tokens_out) for e in trace.events]
    assert kinds == [
        ("lead#0", "message", "lead", 3), ("a#spawn", "spawn", "lead", None), ("a#0", "message", "a", 2),
        ("a#return", "return", "a", None), ("b#spawn", "spawn", "lead", None), ("b#0", "message", "b", 2),
        ("b#return", "return", "b", None), ("lead#1", "message", "lead", 1),
    ]  # fmt: skip
    assert {(e.src, e.dst) for e in trace.edges} >= {("a#spawn", "a#0"), ("a#return", "lead#1"), ("b#return", "lead#1")}
    assert not [p for p in problems(trace) if p.severity == "error"]
    assert "token_ids" not in str(trace.events)


def test_identical_credit_is_the_reward_against_the_others() -> None:
    batch = CreditLayer("group_relative", convention="prime_rl")([ONE, TWO])  # 1 and 3: -1 and +1 from the mean
    assert [a.tolist() for a in batch.arrays()] == [[-1, -1, -1, 0, 0, -1], [-1, -1], [-1, -1], [1, 1, 1, 0, 0, 1], [1, 1], [1, 1]]
    assert [m.tolist() for m in batch.masks()[:2]] == [[True, True, True, False, False, True], [True, True]]
    assert batch.arrays()[0].dtype == np.float32


def test_differences_are_compared_with_the_same_agent_of_other_rollouts() -> None:
    layer = CreditLayer("difference", counterfactual=without, convention="prime_rl")
    one = dict(zip(("lead", "a", "b"), layer([ONE, TWO]).numbers()[:3], strict=True))
    assert one == {"lead": -1.0, "a": 0.5, "b": -1.5}  # lead 1 against 3; a: 1 against 0; b: 0 against 3
    scaled = CreditLayer("difference", counterfactual=without, convention="trl")([ONE, TWO]).numbers()[:3]
    assert scaled == pytest.approx([-1 / (math.sqrt(2) + 1e-4), 0.5 / (math.sqrt(0.5) + 1e-4), -1.5 / (math.sqrt(4.5) + 1e-4)])


def test_amounts_without_a_comparison_add_up_to_the_reward() -> None:
    worth = lambda rollout, agents: sum(rollout.about.get(a, 0.0) for a in agents) * ("lead" in agents)  # noqa: E731
    batch = CreditLayer("shapley", worth=worth, against="nothing")([ONE])
    assert batch.numbers() == [0.5, 0.5, 0.0]  # half of a's 1 is the lead's, without whom it is nothing
    assert batch.accounts[0].given == batch.accounts[0].taught == 1.0
    assert not batch.unknown


def test_reward_by_the_number_of_samples_compares_everybody() -> None:
    small, large = team("small", {"a": 2.0}), team("large", {"a": 2.0, "b": 1.0})  # 2 over 2 agents, 3 over 3: all have 1
    assert CreditLayer("uniform", against="task")([small, large]).numbers() == [0.0] * 5
    assert CreditLayer("uniform", against="agent")([small, large]).numbers() == [0.0] * 5
    assert CreditLayer("group_relative", convention="prime_rl")([small, large]).numbers() == [-0.5] * 2 + [0.5] * 3


def test_a_number_of_samples_that_varies_from_task_to_task() -> None:
    third = team("three", {"a": 0.0, "b": 0.0, "c": 1.0}, task="other")
    fourth = team("four", {"a": 0.0}, task="other")
    batch = CreditLayer("difference", counterfactual=without, convention="prime_rl")([ONE, third, TWO, fourth])
    assert len(batch.arrays()) == 3 + 4 + 3 + 2
    assert batch.numbers() == [-1, 0.5, -1.5, 0.5, 0, 0, 0, 1, -0.5, 1.5, -0.5, 0]  # c is in one rollout alone


def test_rewards_of_samples_are_paid_to_their_agents() -> None:
    def paid(name: str, a: float, b: float) -> Rollout:
        return Rollout(name, "t", [Sample(ids=[1], agent="a", reward=a), Sample(ids=[1, 2], agent="b", reward=b)])

    rollouts = [paid("one", 1.0, 0.0), paid("two", 0.0, 4.0)]
    assert [r.team_reward() for r in rollouts] == [1.0, 4.0]
    assert CreditLayer("agent_wise", convention="prime_rl")(rollouts).numbers() != CreditLayer("group_relative")(rollouts).numbers()
    assert np.sign(CreditLayer("agent_wise")(rollouts).numbers()).tolist() == [1, -1, -1, 1]


def test_what_does_not_teach_is_kept_out_and_accounted_for() -> None:
    lead, a, b = ONE.samples
    mixed = dataclasses.replace(ONE, samples=[lead, dataclasses.replace(a, frozen=True), dataclasses.replace(b, status="dropped")])
    batch = CreditLayer("group_relative", convention="prime_rl")([mixed, TWO])
    assert [x.tolist() for x in batch.arrays()[1:3]] == [[0, 0], [0, 0]]
    assert [x.any() for x in batch.masks()[1:3]] == [False, False]
    account = batch.accounts[0]  # -1 over four calls, two of them the lead's
    assert (account.given, account.taught, dict(account.kept_out)) == (-1.0, -0.5, {"frozen": -0.25, "dropped": -0.25})
    assert batch.numbers()[3] == 1.0  # they were there when the team was paid


def test_stale_cut_off_aborted_and_retried() -> None:
    old = dataclasses.replace(ONE, samples=[dataclasses.replace(s, version=v) for s, v in zip(ONE.samples, (5, 3, 2), strict=True)])
    new = dataclasses.replace(TWO, samples=[dataclasses.replace(s, version=5, status="truncated") for s in TWO.samples])
    layer = CreditLayer("group_relative", limits=Limits(most_stale=2, truncated=False))
    batch = layer([old, new], version=5)
    assert [c.why for calls in batch.calls for c in calls] == [None, None, None, "stale", *["truncated"] * 4]
    with pytest.raises(InputError, match="one: most_stale, and no version that learns"):
        layer([old, new])
    again = [dataclasses.replace(ONE, status="aborted", reward=None), dataclasses.replace(ONE, attempt=1), TWO]
    batch = CreditLayer("group_relative", convention="prime_rl")(again)
    assert batch.numbers() == [0, 0, 0, -1, -1, -1, 1, 1, 1]
    assert batch.unknown == {"one": "retried"}
    alone = CreditLayer("group_relative")([dataclasses.replace(ONE, status="aborted"), TWO])
    assert alone.unknown == {"one": "aborted", "two": "nobody to compare with"}
    assert set(alone.numbers()) == {0.0}


def test_a_call_that_forks_repeat_is_learnt_once() -> None:
    def fork(name: str, reward: float, *calls: str) -> Rollout:
        return Rollout(name, "t", [Sample(ids=[1, 5, 2], mask=[1, 0, 1], agent="a", calls=calls)], reward=reward)

    given_ = [fork("root", 1.0, "first", "r"), fork("left", 2.0, "first", "l"), fork("right", 6.0, "first", "x")]
    batch = CreditLayer("group_relative", convention="prime_rl")(given_)  # -2, -1, +3 from the mean
    first, last = (np.array([a[i] for a in batch.arrays()]) for i in (0, 2))
    assert last.tolist() == [-2, -1, 3]
    assert first == pytest.approx(np.array([-2, -1, 3]) / 3)
    assert first.sum() == pytest.approx(0)  # the mean of what its continuations earned
    root = batch.accounts[0]
    assert (root.given, root.taught, root.repeated) == pytest.approx((-2, -1 - 1 / 3, -2 / 3))
    frozen = [dataclasses.replace(r, samples=[dataclasses.replace(r.samples[0], status="dropped")]) for r in given_[:1]]
    assert CreditLayer("group_relative", convention="prime_rl")([*frozen, *given_[1:]]).arrays()[1][0] == pytest.approx(-0.5)


def test_groups_split_over_ranks_are_gathered_or_refused() -> None:
    whole = CreditLayer("difference", counterfactual=without)([ONE, TWO]).numbers()
    sent: list[Any] = []
    CreditLayer("difference", counterfactual=without, gather=lambda items: sent.extend(items) or items)([TWO])
    here = CreditLayer("difference", counterfactual=without, gather=lambda items: [*items, *sent])([ONE])
    assert here.numbers() == whole[:3]
    assert not here.unknown
    assert all(not hasattr(member, "ids") for member in sent)
    assert "[7, 8]" not in str(sent)
    seen: list[Any] = []
    CreditLayer("group_relative", gather=lambda items: seen.extend(items) or items)([TWO])
    both = CreditLayer("group_relative")([ONE, TWO]).numbers()
    assert CreditLayer("group_relative", gather=lambda items: [*items, *seen])([ONE]).numbers() == both[:3]
    with pytest.raises(Refused, match="one: 1 of the 2 rollouts of task 't'"):
        CreditLayer("group_relative", limits=Limits(group_size=2))([ONE])
    with pytest.raises(InputError, match="two ranks have a rollout of this name"):
        CreditLayer("group_relative", gather=lambda items: items * 2)([ONE])


def test_padded_and_packed_rows_and_those_that_were_changed() -> None:
    batch = CreditLayer("group_relative", convention="prime_rl")([ONE, TWO])
    padded = batch.padded(8, before=[2, 0, 0, 0, 0, 0])
    assert padded[0].tolist() == [0, 0, -1, -1, -1, 0, 0, -1]
    assert padded[1].tolist() == [-1, -1, 0, 0, 0, 0, 0, 0]
    assert batch.packed().tolist() == [-1, -1, -1, 0, 0, -1, -1, -1, -1, -1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]
    rows = batch.padded(8)
    batch.check(list(rows))
    batch.check([None, *rows[1:]])
    with pytest.raises(InputError, match="one: advantages of a are not those that it was given"):
        batch.check([rows[0], rows[1] / 2, *rows[2:]])
    with pytest.raises(InputError, match="two: advantages of lead"):
        batch.check([*rows[:3], *rows[[4, 3, 5]]])
    with pytest.raises(InputError, match="one: 6 tokens from place 0 on, and rows of 4"):
        batch.padded(4)
    lost = dataclasses.replace(batch.accounts[1], taught=0.5)
    with pytest.raises(InputError, match=r"two: 0\.5 of its credit was lost"):
        lost.check()


def test_one_number_for_calls_that_earned_different_ones_is_refused() -> None:
    value = lambda rollout: [0.0, 0.5, *[0.5] * 6, rollout.reward]  # noqa: E731
    batch = CreditLayer("ledger", value=value, against="nothing")([ONE])
    assert batch.arrays()[0].tolist() == [0.5, 0.5, 0.5, 0.0, 0.0, 0.5]
    assert batch.numbers()[0] == 0.5
    value = lambda rollout: [0.0, 0.25, *[0.25] * 6, rollout.reward]  # noqa: E731
    with pytest.raises(InputError, match=r"one: calls of lead earned 0\.25, 0\.75"):
        CreditLayer("ledger", value=value, against="nothing")([ONE]).numbers()


BAD = [
    ({"mask": [1]}, "one sample 0: 1 places of mask for 2 tokens"), ({"logps": [0.0]}, "1 places of logps"),
    ({"parent": "x"}, "no sample 'x'"), ({"reward": float("nan")}, "the reward is nan"), ({"spans": [(1, 5)]}, "of 2 tokens"),
    ({"mask": [float("nan"), 1]}, "one sample 0: a mask that is not a row of 0 and 1"), ({"mask": [[1], [0]]}, "a row of 0 and 1"),
    ({"mask": [2, 1]}, "a row of 0 and 1"), ({"ids": None}, "ids of type NoneType"), ({"agent": None}, "agent None"), ({"after": -1}, "after -1"),
    ({"calls": ["a", "b"]}, "2 names for 1 calls"), ({"parent": "0"}, "each other's parents"), ({"status": "x"}, "no status 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "says"), BAD)
def test_what_is_wrong_names_the_rollout(more: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        CreditLayer("group_relative")([Rollout("one", "t", [Sample(**{"ids": [1, 2], **more})], reward=1.0), TWO])


def test_other_wrong_input() -> None:
    for rollouts, says in (
        ([ONE, ONE], "one: two rollouts of one name"), ([dataclasses.replace(ONE, reward=None)], "one: no reward"),
        ([dataclasses.replace(ONE, reward=math.inf)], "one: the reward is inf"), ([dataclasses.replace(ONE, name=3)], "3: its name is 3"),
        ([dataclasses.replace(ONE, task=None)], "one: its task is None"), ("x", r"rollouts\[0\]: a str where a rollout is expected"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=says):
            CreditLayer("group_relative")(rollouts)
    with pytest.raises(InputError, match="no option 'wort'"):
        CreditLayer("shapley", wort=1)
    with pytest.raises(InputError, match="nothing to compare against 'x'"):
        CreditLayer(against="x")  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="no mechanism"):
        CreditLayer("shapely")
    assert CreditLayer("group_relative")([]).packed().tolist() == []


def test_a_share_is_kept_for_the_viewer_and_nothing_else_is_written(tmp_path: Path) -> None:
    keep = KeptRollouts(tmp_path / "kept", share=1.0, decode=lambda ids: " ".join(map(str, ids)))
    CreditLayer("group_relative", keep=keep)([ONE, TWO], version=3)
    with Store(tmp_path / "kept", read_only=True) as store:
        trace = store.get("v3-0-one")
    assert trace.text(trace.events[0]) == "1 2 3"
    assert trace.rewards == {"team": 1.0}
    CreditLayer("group_relative", keep=KeptRollouts(tmp_path / "none", share=0.0))([ONE, TWO])
    assert not (tmp_path / "none").exists()
    many = [dataclasses.replace(ONE, name=f"r{i}") for i in range(400)]
    assert 20 < len(KeptRollouts(tmp_path / "some", share=0.1).add(many)) < 70
    with pytest.raises(InputError, match="between 0 and 1"):
        KeptRollouts(tmp_path, share=2)


def test_agents_that_are_all_alone_teach_nothing_and_are_said() -> None:
    rollouts = [Rollout(name, "t", [Sample(ids=[1], agent=name)], reward=1.0) for name in ("a", "b")]
    batch = CreditLayer("agent_wise")(rollouts)
    assert batch.unknown == dict.fromkeys("ab", "nobody to compare with")
    assert batch.numbers() == [0.0, 0.0]


class Untouched:
    """Tokens of which only the number may be asked."""

    def __len__(self) -> int:
        return 3


def test_tokens_are_never_looked_at() -> None:
    rollouts = [Rollout(f"r{i}", "t", [Sample(ids=Untouched(), agent="a")], reward=float(i)) for i in range(3)]
    assert CreditLayer("group_relative", convention="prime_rl")(rollouts).numbers() == [-1.0, 0.0, 1.0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.booleans()), min_size=1, max_size=6),
                min_size=2, max_size=5), st.sampled_from(["group_relative", "agent_wise", "uniform"]))  # fmt: skip
def test_nothing_is_lost_whatever_the_teams_are_like(teams: list[list[tuple[str, int, bool]]], credit: str) -> None:
    rollouts = [
        Rollout(f"r{i}", "t", [Sample(ids=[0] * n, agent=a, frozen=frozen) for a, n, frozen in team_], reward=float(i % 3))
        for i, team_ in enumerate(teams)
    ]
    batch = CreditLayer(credit)(rollouts)
    batch.check(batch.arrays())
    assert [len(a) for a in batch.arrays()] == [s.size for _, s in batch.samples]
    assert all(not a.any() for a, (_, s) in zip(batch.arrays(), batch.samples, strict=True) if s.frozen)
