"""Centralized: one orchestrator sends out waves of sub-agents, reads what comes back, and decides whether to go on.

Always true: the sub-agents of a wave work at the same time; a wave begins after the aggregate of the one before.
"""

from __future__ import annotations

from counterpoint.envs.synthetic import acts
from counterpoint.envs.synthetic.acts import Actor
from counterpoint.envs.synthetic.dice import shares
from counterpoint.envs.synthetic.script import Script
from counterpoint.trace.vocabulary import EdgeType

_ROLES = ("researcher", "coder", "analyst", "checker")


def star(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Write the whole run."""
    boss = acts.lead()
    portions = shares(script.dice, steps, agents, is_heavy=True)
    at, last = acts.decide(script, boss, 0, "delegate", [])
    for wave in waves:
        at, last = acts.decide(script, boss, at, "spawn", [(last, "causal")])
        team, reads, first_back = list[Actor](), list[tuple[int, EdgeType]](), (0, 0)
        for i in wave:
            role = _ROLES[script.dice.below(len(_ROLES))]
            child = Actor(f"{role}-{i + 1}", role, i, path=boss.path)
            at, born = acts.spawn(script, boss, child, at, last)
            over, back = _live(script, boss, child, at, born, portions[i], reads)
            first_back = min(first_back, (over, back)) if team else (over, back)
            reads.append((back, "return"))
            team.append(child)
        at, last = close_wave(script, boss, team, last, reads, first_back)
    acts.decide(script, boss, at, "stop", [(last, "aggregate")], reward={})
    script.settle()


def _live(
    script: Script, boss: Actor, who: Actor, at: int, born: int, steps: int, reads: list[tuple[int, EdgeType]]
) -> tuple[int, int]:
    """One sub-agent from birth to return; most report once on the way, and some of those are answered."""
    w = script.dice.word()
    before = 1 + (w >> 8) % steps
    at, last = acts.work(script, who, at, born, "spawn", before)
    kind: EdgeType = "causal"
    if w % 5 < 3:
        done = last
        at, last = acts.say(script, who, boss, at, "message", [(done, "causal")])
        reads.append((last, "message"))
        kind = "temporal"
        if w >> 4 & 3 == 0:
            at, asked = acts.decide(script, boss, at, "communicate", [(last, "message")])
            at, last = acts.say(script, boss, who, at, "reply", [(asked, "causal")])
            kind = "message"
    at, last = acts.work(script, who, at, last, kind, steps - before)
    return acts.give_back(script, who, boss, at, last, "causal" if before < steps else kind)


def close_wave(
    script: Script, boss: Actor, team: list[Actor], last: int, reads: list[tuple[int, EdgeType]], first_back: tuple[int, int]
) -> tuple[int, int]:
    """The end of a wave: not stopping at the first result, then merging all results and ending the team."""
    acts.decide(script, boss, first_back[0], "noop", [(first_back[1], "return"), (last, "temporal")])
    at, chosen = acts.decide(script, boss, script.end, "aggregate", [(last, "temporal")])
    at, last = acts.aggregate(script, boss, at, [(chosen, "causal"), *reads])
    at = acts.despawn(script, boss, team, at, last)
    script.settle()
    return at, last
