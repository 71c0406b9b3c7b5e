"""The credit layer on verifiers' own episodes: advantages stand on the nodes, branch by branch, as prime-rl reads them."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

vf = pytest.importorskip("verifiers.v1", reason="the package verifiers is not installed: pip install '.[verifiers]'")

from counterpoint.errors import InputError  # noqa: E402
from counterpoint.lab.trainers.layer import CreditLayer  # noqa: E402
from counterpoint.lab.trainers.limits import Limits  # noqa: E402
from counterpoint.lab.trainers.verifiers_layer import credit_algorithm, credit_episodes  # noqa: E402


def read(*tokens: int, parent: int | None = None, **more: Any) -> Any:
    message = vf.UserMessage(content="?")
    return vf.MessageNode(message=message, parent=parent, token_ids=list(tokens), mask=[False] * len(tokens), **more)


def wrote(*tokens: int, parent: int | None = None, scaffold: int = 1, **more: Any) -> Any:
    """An assistant's node: template tokens first, then what was sampled."""
    mask = [False] * scaffold + [True] * (len(tokens) - scaffold)
    return vf.MessageNode(message=vf.AssistantMessage(content="x"), parent=parent, token_ids=list(tokens), mask=mask, sampled=True,
                          logprobs=[-0.5] * (len(tokens) - scaffold), **more)  # fmt: skip


def trace(name: str, nodes: list[Any], reward: float | None, *, trainable: bool = True, ok: bool = True, **more: Any) -> Any:
    rewards = {"solved": None if reward is None else vf.Reward(score=reward)}
    task = vf.TraceTask(type="Task", data=vf.TaskData(idx=0, prompt="x"), key="task")
    agent = vf.AgentInfo(config=vf.AgentConfig(), name=name, trainable=trainable)
    return vf.Trace(task=task, agent=agent, nodes=nodes, rewards=rewards, ok=ok, **more)


def episode(name: str, *traces: Any, group: str | None = "g", version: int = 3) -> Any:
    work = vf.TrainWorkInfo(step=version + 1, policy=vf.PolicySpan(start=version, end=version))
    info = None if group is None else vf.GroupInfo(id=group)
    return vf.Episode(id=name, task=traces[0].task, traces=list(traces), ok=True, group=info, run=vf.TrainRunInfo(id="run", work=work))


def solver(reward: float | None, turns: int = 1, name: str = "solver", **more: Any) -> Any:
    nodes = [read(1, 2)]
    for _ in range(turns):
        nodes += [wrote(9, 5, 6, parent=len(nodes) - 1), read(7, parent=len(nodes))]
    return trace(name, nodes, reward, **more)


def advantages(one: Any) -> list[list[float] | None]:
    return [node.advantages for node in one.nodes if node.sampled]


def test_agents_are_compared_with_themselves_and_frozen_ones_learn_nothing() -> None:
    group = [episode(f"e{i}", solver(float(i)), solver(float(i), 2, "critic"), solver(None, name="judge", trainable=False)) for i in range(3)]
    batch = credit_episodes(group, CreditLayer("agent_wise", convention="prime_rl"))
    for i, one in enumerate(group):
        mine, critic, judge = one.traces
        assert advantages(mine) == [[i - 1.0, i - 1.0]]
        assert advantages(critic) == [[i - 1.0, i - 1.0]] * 2
        assert advantages(judge) == [None]
        assert mine.branches[0].advantages == [0.0, 0.0, 0.0, i - 1.0, i - 1.0, 0.0]
    assert [account.kept_out.keys() for account in batch.accounts] == [{"frozen"}] * 3
    wire = vf.Episode.model_validate(group[2].model_dump(mode="python"))  # what goes to the trainer has every digit
    assert [n.advantages for t in wire.traces for n in t.nodes] == [n.advantages for t in group[2].traces for n in t.nodes]


def test_a_shared_prefix_is_one_call_and_sub_agents_are_agents() -> None:
    def forked(reward: float) -> Any:
        link = {"semantic_parents": [vf.ParentLink(node=1, type="subagent_call")]}
        nodes = [read(1), wrote(9, 5, parent=0), read(2, parent=1), wrote(9, 6, parent=2), read(3, parent=1), wrote(9, 7, parent=4),
                 read(4), wrote(9, 8, parent=6, **link)]  # fmt: skip
        return trace("lead", nodes, reward)

    group = [episode(f"e{i}", forked(r)) for i, r in enumerate((0.0, 4.0))]
    batch = credit_episodes(group, CreditLayer("uniform", against="nothing"))
    first = batch.rollouts[1]
    assert [(s.agent, len(s.ids), len(s.calls_at())) for s in first.samples] == [("lead", 6, 2), ("lead", 3, 1), ("lead/1", 3, 1)]
    assert sum(len(s.calls_at()) for s in first.samples) == 4  # the shared one once
    told = {s.name.partition("#")[2]: (s.parent and s.parent.partition("#")[2], s.after) for s in first.samples}
    assert told == {"0": (None, 0), "1": ("0", 0), "2": ("0", 0)}
    assert batch.accounts[1].given == pytest.approx(4.0)
    assert len(group[1].traces[0].branches) == 3


def test_what_went_wrong_is_kept_out_and_said() -> None:
    group = [
        episode("good", solver(1.0)), episode("bad", solver(0.0)), episode("broken", solver(None, ok=False)),
        episode("old", solver(0.5), version=0), episode("cut", solver(0.25, stop_condition="max_turns")),
    ]  # fmt: skip
    layer = CreditLayer("group_relative", limits=Limits(most_stale=1, truncated=False))
    batch = credit_episodes(group, layer, version=4)
    assert batch.unknown == {"broken": "aborted"}
    assert [advantages(one.traces[0])[0] is None for one in group] == [False, False, True, True, True]
    kept = [{reason for reason, amount in account.kept_out.items()} for account in batch.accounts]
    assert kept == [set(), set(), {"stale"}, {"truncated"}]


def test_one_reward_for_the_team_or_a_clear_error() -> None:
    def pair(a: float, b: float) -> Any:
        return episode(f"{a} {b}", solver(a, name="one"), solver(b, name="two"))

    group = [pair(1.0, 1.0), pair(0.0, 0.0)]
    batch = credit_episodes(group, CreditLayer("group_relative"), paid="team")
    assert [rollout.reward for rollout in batch.rollouts] == [1.0, 0.0]
    assert [r.reward for r in credit_episodes(group, CreditLayer("group_relative")).rollouts] == [2.0, 0.0]
    with pytest.raises(InputError, match=r"1\.0 0\.0: its traces are paid from 0 to 1"):
        credit_episodes([pair(1.0, 0.0), group[0]], CreditLayer("group_relative"), paid="team")
    with pytest.raises(InputError, match="paid='teams'"):
        credit_episodes(group, CreditLayer("group_relative"), paid="teams")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="two rollouts of one name"):
        credit_episodes([group[0], group[0]], CreditLayer("group_relative"))
    named = credit_episodes([episode(n, solver(r), group=None) for n, r in (("x", 0.0), ("y", 1.0))], CreditLayer("group_relative"))
    assert {rollout.task for rollout in named.rollouts} == {"task"}


def test_parents_and_policies_that_the_environment_tells() -> None:
    lead = solver(None, 2, "lead")
    worker = solver(1.0, 1, "worker", info={"counterpoint": {"parent": lead.id, "after": 1, "policy": "worker-lora", "role": "w"}})
    batch = credit_episodes([episode("e", lead, worker)], CreditLayer("uniform", against="nothing"))
    (_, mine), (_, theirs) = batch.samples
    assert (theirs.parent, theirs.after, theirs.policy, theirs.role) == (mine.name, 1, "worker-lora", "w")
    assert batch.of_policy("worker-lora") == [1]


def test_advantages_of_a_second_scoring_replace_the_first() -> None:
    group = [episode("x", solver(1.0)), episode("y", solver(0.0))]
    credit_episodes(group, CreditLayer("group_relative"))
    credit_episodes([group[0]], CreditLayer("group_relative"))  # nobody to compare with: not scored, which is not a credit of 0
    assert advantages(group[0].traces[0]) == [None]
    assert advantages(group[1].traces[0]) != [None]


class PrimeAlgorithm:
    """The part of prime-rl's contract that is used: PrimeIntellect-ai/prime-rl, src/prime_rl/orchestrator/algo, commit 8142e69a."""

    def __init__(self, config: Any, clients: Any) -> None:
        self.config, self.clients = config, clients

    async def score_group(self, episodes: list[Any]) -> None:
        raise NotImplementedError


def test_prime_rls_form_scores_a_finished_group() -> None:
    made = credit_algorithm(PrimeAlgorithm, CreditLayer("agent_wise", convention="prime_rl"))(None, None)
    group = [episode(f"e{i}", solver(float(i)), solver(float(i), 2, "critic")) for i in range(2)]
    asyncio.run(made.score_group(group))
    for one in group:
        for some in one.traces:  # what its trainer asks: as many advantages as sampled tokens, on trainable paths
            for branch in some.branches:
                assert branch.trainable
                for node in branch.nodes:
                    assert node.advantages is None if not any(node.mask) else len(node.advantages) == sum(node.mask)
    values = np.array([node.advantages[0] for one in group for some in one.traces for node in some.nodes if node.sampled])
    assert sorted(set(values.tolist())) == [-0.5, 0.5]
