"""Swarm: many near-equal agents at once, who tell each other what they found.

Always true: all peers are alive at the same time; a message that arrives after its reader's last act is sent and never read.
"""

from __future__ import annotations

from bisect import bisect_left

from counterpoint.envs.synthetic import acts
from counterpoint.envs.synthetic.acts import Actor
from counterpoint.envs.synthetic.dice import shares
from counterpoint.envs.synthetic.script import Script
from counterpoint.envs.synthetic.star import close_wave
from counterpoint.trace.vocabulary import EdgeType


def swarm(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Write the whole run; `waves` are where the seed looks round before it spawns on."""
    seed = acts.lead("seed", "seed")
    portions = shares(script.dice, steps, agents, is_heavy=False)
    peers = [Actor(f"peer-{i + 1}", "peer", i, path=seed.path) for i in range(agents)]
    at, last = acts.decide(script, seed, 0, "delegate", [])
    at, last = acts.decide(script, seed, at, "spawn", [(last, "causal")])
    backs, sent = [], list[tuple[int, int, int]]()
    for peer, steps_of_peer in zip(peers, portions, strict=True):
        at, born = acts.spawn(script, seed, peer, at, last, dur=1)
        backs.append(_live(script, seed, peers, peer, (at, born), steps_of_peer, sent))
    for over, message, reader in sent:
        calls = peers[reader].calls
        k = bisect_left(calls, (over, -1))
        if k < len(calls):
            script.edge(message, calls[k][1], "message")
    at, last = close_wave(script, seed, peers, last, [(back, "return") for _, back in backs], min(backs))
    acts.decide(script, seed, at, "stop", [(last, "aggregate")], reward={})
    script.settle()


def _live(
    script: Script,
    seed: Actor,
    peers: list[Actor],
    who: Actor,
    birth: tuple[int, int],
    steps: int,
    sent: list[tuple[int, int, int]],
) -> tuple[int, int]:
    """One peer from birth to return: a few steps, a message to somebody, a few more."""
    at, last = birth
    kind: EdgeType = "spawn"
    left = steps
    while left:
        w = script.dice.word()
        now = min(left, 3 + w % 6)
        left -= now
        at, last = acts.work(script, who, at, last, kind, now)
        kind = "causal"
        if left and len(peers) > 1:
            other = (who.number + 1 + (w >> 8) % (len(peers) - 1)) % len(peers)
            over, message = acts.say(script, who, peers[other], at, "message", [(last, "causal")])
            sent.append((over, message, other))
            at = over
    return acts.give_back(script, who, seed, at, last)
