"""Harness: one model with tools in a runtime, a person who asks and approves, and few sub-agents or none.

Always true: the model works in one line from the person's question to its own stop; sub-agents run beside it, at most two
at a time, and their results are read where the model next pauses.
"""

from __future__ import annotations

from counterpoint.envs.synthetic import acts
from counterpoint.envs.synthetic.acts import Actor
from counterpoint.envs.synthetic.dice import shares
from counterpoint.envs.synthetic.script import Script
from counterpoint.trace.vocabulary import EdgeType

_BESIDE = 2
# A person is asked once in so many steps of the model.
_ASKED = 48


def harness(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Write the whole run; the waves of other shapes have no counterpart here."""
    model = acts.lead("model", "agent")
    beside = 0 if not agents else max(agents, steps // 2 if steps // 2 >= agents else 0)
    portions, own = shares(script.dice, beside, agents, is_heavy=True), steps - beside
    at, last = _person(script, model, 0, -1)
    at, last = acts.decide(script, model, at, "noop", [(last, "message")])
    pauses = max(-(-agents // _BESIDE), own // _ASKED, 1)
    kind: EdgeType = "causal"
    for k in range(pauses):
        wave = range(k * _BESIDE, min(agents, (k + 1) * _BESIDE))
        at, last, team, reads = _delegate(script, model, portions, wave, at, last, kind)
        now = own // pauses + (k < own % pauses)
        at, last = acts.work(script, model, at, last, "causal", now)
        if team:
            at, last = acts.aggregate(script, model, script.end, [(last, "causal"), *reads])
            at = acts.despawn(script, model, team, at, last)
        kind = "causal"
        if k < pauses - 1 and script.dice.below(2):
            at, last = _person(script, model, at, last)
            kind = "message"
        script.settle()
    acts.decide(script, model, at, "stop", [(last, kind)], reward={})
    script.settle()


def _person(script: Script, model: Actor, at: int, last: int) -> tuple[int, int]:
    """The person asks, or approves what the model wants to do."""
    dur = 2000 + 200 * script.dice.below(64)
    handle = script.add(
        at,
        "human_intervention",
        "user",
        dur,
        role="user",
        from_="user",
        to=model.name,
        content_ref=script.ref("human", 0),
        trusted=True,
        source="user",
        ok=True,
    )
    if last >= 0:
        script.edge(last, handle, "message")
    return at + dur, handle


def _delegate(
    script: Script, model: Actor, portions: list[int], wave: range, at: int, last: int, kind: EdgeType
) -> tuple[int, int, list[Actor], list[tuple[int, EdgeType]]]:
    """The model decides: sub-agents for a part of the work, or none this time."""
    at, last = acts.decide(script, model, at, "spawn" if wave else "noop", [(last, kind)])
    team, reads = [], list[tuple[int, EdgeType]]()
    for i in wave:
        child = Actor(f"helper-{i + 1}", "helper", i, path=model.path)
        at, born = acts.spawn(script, model, child, at, last)
        over, done = acts.work(script, child, at, born, "spawn", portions[i])
        over = acts.report(script, child, model, over, done, reads)
        _, back = acts.give_back(script, child, model, over, done)
        team.append(child)
        reads.append((back, "return"))
    return at, last, team, reads
