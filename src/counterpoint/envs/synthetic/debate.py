"""Debate: agents argue over rounds in small panels; a resolver listens and decides.

Always true: a step is one argument; an argument of a later round has read its author's own last one and up to three of its
panel's; nobody speaks before what it answers is over.
"""

from __future__ import annotations

from counterpoint.envs.synthetic import acts
from counterpoint.envs.synthetic.acts import Actor
from counterpoint.envs.synthetic.script import Script
from counterpoint.envs.synthetic.star import close_wave
from counterpoint.trace.vocabulary import EdgeType

_PANEL = 5
_HEARD = 3
# Every so many arguments begin with a look at a source.
_LOOKUP = 6


def lookups(steps: int) -> int:
    """How many tool steps a debate of `steps` arguments has."""
    return -(-steps // _LOOKUP)


def debate(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Write the whole run; a debate has rounds rather than waves, so `waves` is not used."""
    resolver = acts.lead("resolver", "resolver")
    at, last = acts.decide(script, resolver, 0, "delegate", [])
    at, last = acts.decide(script, resolver, at, "spawn", [(last, "causal")])
    team = [Actor(f"debater-{i + 1}", "debater", i // _PANEL, path=resolver.path) for i in range(agents)]
    said = list[tuple[int, int]]()
    for debater in team:
        at, born = acts.spawn(script, resolver, debater, at, last, dur=1)
        said.append((at, born))
    turn, seen, watched = 0, at, last
    while turn < steps:
        speakers = min(agents, steps - turn)
        heard = said[:]
        for i in range(speakers):
            said[i] = _argue(script, team, i, heard, is_first=turn < agents, is_looking=(turn + i) % _LOOKUP == 0)
        turn += speakers
        if turn < steps:
            over = max(seen, *(end for end, _ in said[:speakers]))
            reads: list[tuple[int, EdgeType]] = [(watched, "temporal"), *((m, "message") for _, m in said[: min(speakers, 8)])]
            seen, watched = acts.decide(script, resolver, over, "noop", reads)
    backs = [acts.give_back(script, who, resolver, *said[i]) for i, who in enumerate(team)]
    over, first = min(backs)
    # Panels run apart: the first to finish may do so before the resolver has heard the others' last round.
    at, last = close_wave(script, resolver, team, watched, [(back, "return") for _, back in backs], (max(over, seen), first))
    acts.decide(script, resolver, at, "stop", [(last, "aggregate")], reward={})
    script.settle()


def _argue(
    script: Script, team: list[Actor], i: int, said: list[tuple[int, int]], *, is_first: bool, is_looking: bool
) -> tuple[int, int]:
    """One argument by debater `i`: when it is over, and its handle."""
    who, panel = team[i], i - i % _PANEL
    size = min(_PANEL, len(team) - panel)
    others = [panel + (i - panel + k) % size for k in range(1, min(size, _HEARD + 1))]
    own = said[i]
    reads: list[tuple[int, EdgeType]] = [(own[1], "spawn" if is_first else "causal")]
    at = own[0]
    if not is_first:
        reads += [(said[k][1], "message") for k in others]
        at = max(at, *(said[k][0] for k in others)) if others else at
    if is_looking:
        at, found = acts.work(script, who, at, *reads[0], 1)
        reads[0] = (found, "causal")
    to = team[others[0]] if others else team[i - 1]
    over, handle = acts.say(script, who, to, at, "argument", reads)
    script.busy += over - at
    return over, handle
