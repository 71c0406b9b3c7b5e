"""rLLM by a recorded contract: Episodes of several Trajectories, whose Steps get their advantages before rLLM groups them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from counterpoint.errors import InputError
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rllm_layer import RLLMCredit
from counterpoint.lab.trainers.rollout_traces import trace_of
from recorded_help import Episode, Step, Trajectory, group_by_task_and_name, precomputed


def episode(name: str, reward: float | None, solvers: int, *, own: bool = False, **about: Any) -> Episode:
    """A lead with two steps, who calls solvers after the first one."""
    lead = Trajectory("lead", [Step([1], [2, 3]), Step([1, 2, 3, 4], [5])], reward)
    paid = [reward if not own or reward is None else reward + k for k in range(solvers)]
    some = [Trajectory("solver", [Step([7], [8, 9, k]), Step([7, 8], [k])], paid[k], {"team": {"agent": f"solver {k}", "parent": "lead"} | about})
            for k in range(solvers)]  # fmt: skip
    return Episode(name, [lead, *some])


def hook(layer: CreditLayer, **more: Any) -> RLLMCredit:
    return RLLMCredit(layer, group=group_by_task_and_name, **more)


def test_every_step_has_its_advantages_and_rllm_takes_them_as_they_are() -> None:
    episodes = [episode("t:0", 1.0, 1), episode("t:1", 3.0, 2)]
    credit = hook(CreditLayer("group_relative", convention="prime_rl"))
    groups = credit(episodes, None)
    assert [(g.group_id, len(g.trajectories), len(g.metadata)) for g in groups] == [("t:lead", 2, 2), ("t:solver", 3, 3)]
    assert precomputed(groups) == [[-1, -1], [-1], [1, 1], [1], [-1, -1, -1], [-1], [1, 1, 1], [1], [1, 1, 1], [1]]
    assert groups[0].trajectories[0] is episodes[0].trajectories[0]
    flat = [s for e in episodes for t in e.trajectories for s in t.steps]
    assert [s.advantage for s in flat] == [array.tolist() for array in credit.batch.arrays()]  # in order, digit for digit


def test_a_solver_is_called_by_the_step_that_its_metadata_names() -> None:
    credit = hook(CreditLayer("group_relative"))
    credit([episode("t:0", 1.0, 1, after=0), episode("t:1", 2.0, 1, after=1)], None)
    ids = [[event.id for event in trace_of(rollout).events] for rollout in credit.batch.rollouts]
    assert ids[0] == ["0.0#0", "1.0#spawn", "1.0#0", "1.1#0", "1.0#return", "0.1#0"]
    assert ids[1] == ["0.0#0", "0.1#0", "1.0#spawn", "1.0#0", "1.1#0", "1.0#return"]
    with pytest.raises(InputError, match="t:0 solver: no 'nobody'; parent: one of lead, solver"):
        credit([episode("t:0", 1.0, 1, parent="nobody")], None)


def test_what_each_trajectory_was_paid_is_its_own() -> None:
    episodes = [episode("t:0", 1.0, 2, own=True), episode("t:1", 3.0, 2, own=True)]
    with pytest.raises(InputError, match="t:0: its samples are paid from 1 to 2"):
        hook(CreditLayer())(episodes, None)
    credit = hook(CreditLayer("agent_wise", convention="prime_rl"), paid="sample")
    credit(episodes, None)
    assert credit.batch.rollouts[0].team_reward() == 1 + 1 + 2
    assert {np.sign(step.advantage[0]) for step in episodes[1].trajectories[2].steps} == {1.0}


def test_frozen_and_masked_teach_nothing_and_stand_in_no_group() -> None:
    compact = SimpleNamespace(should_mask=lambda reason: reason == "timeout")
    episodes = [episode("t:0", 1.0, 1, frozen=True), episode("t:1", 3.0, 1), episode("t:2", 5.0, 1)]
    episodes[2].termination_reason = "timeout"
    credit = hook(CreditLayer("group_relative", convention="prime_rl"))
    groups = credit(episodes, None, compact)
    assert [(g.group_id, len(g.trajectories)) for g in groups] == [("t:lead", 2), ("t:solver", 1)]
    assert groups[0].trajectories[0].steps[0].advantage == [-2.0, -2.0]  # the masked one was paid, and is compared with
    assert episodes[0].trajectories[1].steps[0].advantage == [0.0, 0.0, 0.0]
    assert dict(credit.batch.accounts[2].kept_out) == {"dropped": pytest.approx(2.0)}
    alone = hook(CreditLayer())([episode("u:0", 1.0, 0)], None)
    assert alone == []


def test_a_reward_that_is_no_number_names_the_trajectory() -> None:
    with pytest.raises(InputError, match="t:0 lead: the reward is nan"):
        hook(CreditLayer())([episode("t:0", float("nan"), 1)], None)
    with pytest.raises(InputError, match="t:0: two rollouts of one name"):
        hook(CreditLayer())([episode("t:0", 1.0, 1), episode("t:0", 1.0, 1)], None)
