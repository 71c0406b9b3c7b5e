"""verifiers' episodes of a team, credited in memory as prime-rl's `score_group` would have it: each agent against itself.

Needs: pip install '.[verifiers]' in a clone
Run it: python examples/trainers/with_verifiers_team.py
"""

from __future__ import annotations

import verifiers.v1 as vf

from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.verifiers_layer import credit_episodes


def trace(agent, reward, *, trainable=True):
    """What one agent read and wrote: here by hand, else by verifiers' own rollout."""
    read = vf.MessageNode(message=vf.UserMessage(content="?"), token_ids=[1, 2], mask=[False, False])
    wrote = vf.MessageNode(
        message=vf.AssistantMessage(content="x"), parent=0, token_ids=[9, 5, 6], mask=[False, True, True], sampled=True,
        logprobs=[-0.5, -0.5],
    )  # fmt: skip
    return vf.Trace(
        task=vf.TraceTask(type="Task", data=vf.TaskData(idx=0, prompt="?"), key="task"), nodes=[read, wrote],
        agent=vf.AgentInfo(config=vf.AgentConfig(), name=agent, trainable=trainable),
        rewards={"solved": None if reward is None else vf.Reward(score=reward)}, ok=True,
    )  # fmt: skip


def episode(name, reward):
    """One run of the team: a solver, a critic, and a judge that does not learn."""
    traces = [trace("solver", reward), trace("critic", reward / 2), trace("judge", None, trainable=False)]
    work = vf.TrainWorkInfo(step=4, policy=vf.PolicySpan(start=3, end=3))
    run = vf.TrainRunInfo(id="run", work=work)
    return vf.Episode(id=name, task=traces[0].task, traces=traces, ok=True, group=vf.GroupInfo(id="task"), run=run)


def main():
    """Credit a group of three, and show what stands on the nodes."""
    group = [episode(f"run {k}", float(k)) for k in range(3)]
    credit_episodes(group, CreditLayer("agent_wise", convention="prime_rl"))
    for one in group:
        print(one.id, {t.agent.name: [n.advantages for n in t.nodes if n.sampled] for t in one.traces})


if __name__ == "__main__":
    main()
