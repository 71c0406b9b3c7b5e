"""Planner, executors, critics: a plan is carried out, each draft is judged, and what fails is revised.

Always true: a critic judges one draft at a time, in order of arrival; an executor returns only after its draft was accepted.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from counterpoint.envs.synthetic import acts
from counterpoint.envs.synthetic.acts import Actor
from counterpoint.envs.synthetic.dice import Dice, shares
from counterpoint.envs.synthetic.script import Script
from counterpoint.envs.synthetic.star import close_wave
from counterpoint.trace.vocabulary import EdgeType


def critics_of(agents: int) -> int:
    """How many of the agents judge."""
    return max(1, agents // 8)


def review(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Write the whole run."""
    planner = acts.lead("planner", "planner")
    judges = critics_of(agents)
    portions = shares(script.dice, steps, agents - judges, is_heavy=True)
    at, last = acts.decide(script, planner, 0, "delegate", [])
    at, last = acts.decide(script, planner, at, "spawn", [(last, "causal")])
    critics = []
    for i in range(judges):
        critic = Actor(f"critic-{i + 1}", "critic", i, path=planner.path, model="atlas-judge")
        at, born = acts.spawn(script, planner, critic, at, last)
        critics.append(_Critic(critic, at, born))
    for wave in waves:
        at, last = acts.decide(script, planner, at, "spawn", [(last, "causal")])
        at, last = _wave(script, planner, critics, wave, portions, at, last)
    _dismiss(script, planner, critics, at, last)


def _dismiss(script: Script, planner: Actor, critics: list[_Critic], at: int, last: int) -> None:
    reads: list[tuple[int, EdgeType]] = [(last, "aggregate")]
    for critic in critics:
        _, back = acts.give_back(script, critic.actor, planner, at, critic.last, "causal")
        reads.append((back, "return"))
    at = acts.despawn(script, planner, [c.actor for c in critics], script.end, last)
    acts.decide(script, planner, at, "stop", reads, reward={})
    script.settle()


class _Critic:
    """A critic, when it is free, and the last thing it did."""

    def __init__(self, actor: Actor, free: int, born: int) -> None:
        self.actor, self.free, self.last = actor, free, born
        self.kind: EdgeType = "spawn"

    def judge(self, script: Script, draft: int, author: Actor, at: int, *, is_accepted: bool) -> tuple[int, int]:
        """A verdict on a draft that was ready at `at`."""
        at, verdict = acts.say(
            script,
            self.actor,
            author,
            max(at, self.free),
            "verdict",
            [(draft, "message"), (self.last, self.kind)],
            ok=is_accepted,
            reward={"verdict": float(is_accepted)},
        )
        self.free, self.last, self.kind = at, verdict, "temporal"
        return at, verdict


def _parts(dice: Dice, steps: int) -> list[int]:
    """The steps before each draft: one part, or two or three where there is to be a revision."""
    parts = 1 + (dice.below(3) if steps >= 4 else 0)
    return [steps // parts + (i < steps % parts) for i in range(parts)][::-1]


def _wave(
    script: Script, planner: Actor, critics: list[_Critic], wave: range, portions: list[int], at: int, last: int
) -> tuple[int, int]:
    team = [Actor(f"executor-{i + 1}", "executor", i, path=planner.path) for i in wave]
    parts = [_parts(script.dice, portions[i]) for i in wave]
    queue, backs = list[tuple[int, int, int]](), list[tuple[int, int]]()
    for k, executor in enumerate(team):
        at, born = acts.spawn(script, planner, executor, at, last)
        queue.append(_draft(script, critics, executor, k, at, born, "spawn", parts[k].pop()))
    heapify(queue)
    while queue:
        ready, k, draft = heappop(queue)
        critic, executor = critics[wave[k] % len(critics)], team[k]
        over, verdict = critic.judge(script, draft, executor, ready, is_accepted=not parts[k])
        if parts[k]:
            heappush(queue, _draft(script, critics, executor, k, over, verdict, "message", parts[k].pop()))
        else:
            backs.append(acts.give_back(script, executor, planner, over, verdict, "message"))
    return close_wave(script, planner, team, last, [(back, "return") for _, back in backs], min(backs))


def _draft(
    script: Script, critics: list[_Critic], who: Actor, k: int, at: int, last: int, kind: EdgeType, steps: int
) -> tuple[int, int, int]:
    """Some steps and a draft for the critic: when it is ready, whose it is, and its handle."""
    at, last = acts.work(script, who, at, last, kind, steps)
    at, draft = acts.say(script, who, critics[who.number % len(critics)].actor, at, "draft", [(last, "causal")])
    return at, k, draft
