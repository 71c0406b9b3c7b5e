"""The six shapes that an invented run can have, one writer each: centralized, reviewed, debate, swarm, hierarchical, harness.

Always true: nobody acts on what is not over yet; a wave, round or revision begins after what it waits for; every writer ends
with the root's stop.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush

from counterpoint.trace.synthetic.script import (
    Actor,
    Dice,
    Script,
    aggregate,
    decide,
    despawn,
    give_back,
    lead,
    report,
    say,
    shares,
    spawn,
    work,
)
from counterpoint.trace.vocabulary import EdgeType

_ROLES = ("researcher", "coder", "analyst", "checker")


def star(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Centralized: one orchestrator sends out waves of sub-agents, reads what comes back, and decides whether to go on.

    The sub-agents of a wave work at the same time; a wave begins after the aggregate of the one before.
    """
    boss = lead()
    portions = shares(script.dice, steps, agents, is_heavy=True)
    at, last = decide(script, boss, 0, "delegate", [])
    for wave in waves:
        at, last = decide(script, boss, at, "spawn", [(last, "causal")])
        team, reads, first_back = list[Actor](), list[tuple[int, EdgeType]](), (0, 0)
        for i in wave:
            role = _ROLES[script.dice.below(len(_ROLES))]
            child = Actor(f"{role}-{i + 1}", role, i, path=boss.path)
            at, born = spawn(script, boss, child, at, last)
            over, back = _live_worker(script, boss, child, at, born, portions[i], reads)
            first_back = min(first_back, (over, back)) if team else (over, back)
            reads.append((back, "return"))
            team.append(child)
        at, last = close_wave(script, boss, team, last, reads, first_back)
    decide(script, boss, at, "stop", [(last, "aggregate")], reward={})
    script.settle()


def _live_worker(
    script: Script, boss: Actor, who: Actor, at: int, born: int, steps: int, reads: list[tuple[int, EdgeType]]
) -> tuple[int, int]:
    """One sub-agent from birth to return; most report once on the way, and some of those are answered."""
    w = script.dice.word()
    before = 1 + (w >> 8) % steps
    at, last = work(script, who, at, born, "spawn", before)
    kind: EdgeType = "causal"
    if w % 5 < 3:
        done = last
        at, last = say(script, who, boss, at, "message", [(done, "causal")])
        reads.append((last, "message"))
        kind = "temporal"
        if w >> 4 & 3 == 0:
            at, asked = decide(script, boss, at, "communicate", [(last, "message")])
            at, last = say(script, boss, who, at, "reply", [(asked, "causal")])
            kind = "message"
    at, last = work(script, who, at, last, kind, steps - before)
    return give_back(script, who, boss, at, last, "causal" if before < steps else kind)


def close_wave(
    script: Script, boss: Actor, team: list[Actor], last: int, reads: list[tuple[int, EdgeType]], first_back: tuple[int, int]
) -> tuple[int, int]:
    """The end of a wave: not stopping at the first result, then merging all results and ending the team."""
    decide(script, boss, first_back[0], "noop", [(first_back[1], "return"), (last, "temporal")])
    at, chosen = decide(script, boss, script.end, "aggregate", [(last, "temporal")])
    at, last = aggregate(script, boss, at, [(chosen, "causal"), *reads])
    at = despawn(script, boss, team, at, last)
    script.settle()
    return at, last


# -- planner, executors, critics ---------------------------------------------------------------------------------------


def critics_of(agents: int) -> int:
    """How many of the agents judge."""
    return max(1, agents // 8)


def review(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Planner, executors, critics: a plan is carried out, each draft is judged, and what fails is revised.

    A critic judges one draft at a time, in order of arrival; an executor returns only after its draft was accepted.
    """
    planner = lead("planner", "planner")
    judges = critics_of(agents)
    portions = shares(script.dice, steps, agents - judges, is_heavy=True)
    at, last = decide(script, planner, 0, "delegate", [])
    at, last = decide(script, planner, at, "spawn", [(last, "causal")])
    critics = []
    for i in range(judges):
        critic = Actor(f"critic-{i + 1}", "critic", i, path=planner.path, model="atlas-judge")
        at, born = spawn(script, planner, critic, at, last)
        critics.append(_Critic(critic, at, born))
    for wave in waves:
        at, last = decide(script, planner, at, "spawn", [(last, "causal")])
        at, last = _wave(script, planner, critics, wave, portions, at, last)
    _dismiss(script, planner, critics, at, last)


def _dismiss(script: Script, planner: Actor, critics: list[_Critic], at: int, last: int) -> None:
    reads: list[tuple[int, EdgeType]] = [(last, "aggregate")]
    for critic in critics:
        _, back = give_back(script, critic.actor, planner, at, critic.last, "causal")
        reads.append((back, "return"))
    at = despawn(script, planner, [c.actor for c in critics], script.end, last)
    decide(script, planner, at, "stop", reads, reward={})
    script.settle()


class _Critic:
    """A critic, when it is free, and the last thing it did."""

    def __init__(self, actor: Actor, free: int, born: int) -> None:
        self.actor, self.free, self.last = actor, free, born
        self.kind: EdgeType = "spawn"

    def judge(self, script: Script, draft: int, author: Actor, at: int, *, is_accepted: bool) -> tuple[int, int]:
        """A verdict on a draft that was ready at `at`."""
        at, verdict = say(
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
        at, born = spawn(script, planner, executor, at, last)
        queue.append(_draft(script, critics, executor, k, at, born, "spawn", parts[k].pop()))
    heapify(queue)
    while queue:
        ready, k, draft = heappop(queue)
        critic, executor = critics[wave[k] % len(critics)], team[k]
        over, verdict = critic.judge(script, draft, executor, ready, is_accepted=not parts[k])
        if parts[k]:
            heappush(queue, _draft(script, critics, executor, k, over, verdict, "message", parts[k].pop()))
        else:
            backs.append(give_back(script, executor, planner, over, verdict, "message"))
    return close_wave(script, planner, team, last, [(back, "return") for _, back in backs], min(backs))


def _draft(
    script: Script, critics: list[_Critic], who: Actor, k: int, at: int, last: int, kind: EdgeType, steps: int
) -> tuple[int, int, int]:
    """Some steps and a draft for the critic: when it is ready, whose it is, and its handle."""
    at, last = work(script, who, at, last, kind, steps)
    at, draft = say(script, who, critics[who.number % len(critics)].actor, at, "draft", [(last, "causal")])
    return at, k, draft


# -- debate ------------------------------------------------------------------------------------------------------------


_PANEL = 5
_HEARD = 3
_LOOKUP = 6
"""One argument in this many begins with a look at a source."""


def lookups(steps: int) -> int:
    """How many tool steps a debate of `steps` arguments has."""
    return -(-steps // _LOOKUP)


def debate(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Debate: agents argue over rounds (not waves) in small panels; a resolver listens and decides.

    A step is one argument; one of a later round has read its author's own last one and up to three of its panel's.
    """
    resolver = lead("resolver", "resolver")
    at, last = decide(script, resolver, 0, "delegate", [])
    at, last = decide(script, resolver, at, "spawn", [(last, "causal")])
    team = [Actor(f"debater-{i + 1}", "debater", i // _PANEL, path=resolver.path) for i in range(agents)]
    statements = list[tuple[int, int]]()
    for debater in team:
        at, born = spawn(script, resolver, debater, at, last, dur=1)
        statements.append((at, born))
    turn, checked, watched = 0, at, last
    while turn < steps:
        speakers = min(agents, steps - turn)
        heard = statements[:]
        for i in range(speakers):
            statements[i] = _argue(script, team, i, heard, is_first=turn < agents, is_looking=(turn + i) % _LOOKUP == 0)
        turn += speakers
        if turn < steps:
            over = max(checked, *(end for end, _ in statements[:speakers]))
            recent = statements[: min(speakers, 8)]
            reads: list[tuple[int, EdgeType]] = [(watched, "temporal"), *((m, "message") for _, m in recent)]
            checked, watched = decide(script, resolver, over, "noop", reads)
    backs = [give_back(script, who, resolver, *statements[i]) for i, who in enumerate(team)]
    over, first = min(backs)
    # Panels run apart: the first to finish may do so before the resolver has heard the others' last round.
    at, last = close_wave(script, resolver, team, watched, [(back, "return") for _, back in backs], (max(over, checked), first))
    decide(script, resolver, at, "stop", [(last, "aggregate")], reward={})
    script.settle()


def _argue(
    script: Script, team: list[Actor], i: int, statements: list[tuple[int, int]], *, is_first: bool, is_looking: bool
) -> tuple[int, int]:
    """One argument by debater `i`: when it is over, and its handle."""
    who, panel = team[i], i - i % _PANEL
    size = min(_PANEL, len(team) - panel)
    others = [panel + (i - panel + k) % size for k in range(1, min(size, _HEARD + 1))]
    own = statements[i]
    reads: list[tuple[int, EdgeType]] = [(own[1], "spawn" if is_first else "causal")]
    at = own[0]
    if not is_first:
        reads += [(statements[k][1], "message") for k in others]
        at = max(at, *(statements[k][0] for k in others)) if others else at
    if is_looking:
        at, result = work(script, who, at, *reads[0], 1)
        reads[0] = (result, "causal")
    to = team[others[0]] if others else team[i - 1]
    over, handle = say(script, who, to, at, "argument", reads)
    script.busy += over - at
    return over, handle


# -- swarm -------------------------------------------------------------------------------------------------------------


def swarm(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Swarm: many near-equal agents at once, who tell each other what they found.

    All peers are alive at the same time; a message that arrives after its reader's last act is sent and never read. `waves` are
    where the seed looks round before it spawns on.
    """
    seed = lead("seed", "seed")
    portions = shares(script.dice, steps, agents, is_heavy=False)
    peers = [Actor(f"peer-{i + 1}", "peer", i, path=seed.path) for i in range(agents)]
    at, last = decide(script, seed, 0, "delegate", [])
    at, last = decide(script, seed, at, "spawn", [(last, "causal")])
    backs, sent = [], list[tuple[int, int, int]]()
    for peer, steps_of_peer in zip(peers, portions, strict=True):
        at, born = spawn(script, seed, peer, at, last, dur=1)
        backs.append(_live_peer(script, seed, peers, peer, (at, born), steps_of_peer, sent))
    for over, message, reader in sent:
        calls = peers[reader].calls
        k = bisect_left(calls, (over, -1))
        if k < len(calls):
            script.edge(message, calls[k][1], "message")
    at, last = close_wave(script, seed, peers, last, [(back, "return") for _, back in backs], min(backs))
    decide(script, seed, at, "stop", [(last, "aggregate")], reward={})
    script.settle()


def _live_peer(
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
    remaining = steps
    while remaining:
        w = script.dice.word()
        now = min(remaining, 3 + w % 6)
        remaining -= now
        at, last = work(script, who, at, last, kind, now)
        kind = "causal"
        if remaining and len(peers) > 1:
            other = (who.number + 1 + (w >> 8) % (len(peers) - 1)) % len(peers)
            over, message = say(script, who, peers[other], at, "message", [(last, "causal")])
            sent.append((over, message, other))
            at = over
    return give_back(script, who, seed, at, last)


# -- hierarchical ------------------------------------------------------------------------------------------------------


def tree(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Hierarchical: agents spawn agents, level under level; each wave is one tree under the lead.

    An agent returns after all of its children have, to the one that spawned it; where there are enough agents, at least two
    levels stand under the lead.
    """
    boss = lead()
    portions = shares(script.dice, steps, agents, is_heavy=True)
    at, last = decide(script, boss, 0, "delegate", [])
    for wave in waves:
        grove = _Grove(script, wave, portions)
        at, last = decide(script, boss, at, "spawn", [(last, "causal")])
        team, backs = grove.grow(boss, -1, at, last)
        at, last = close_wave(script, boss, team, last, grove.reads(boss, backs), min(backs))
    decide(script, boss, at, "stop", [(last, "aggregate")], reward={})
    script.settle()


class _Grove:
    """The tree of one wave, laid out as a heap: the children of place p are the places p * fan + 1 ... p * fan + fan."""

    def __init__(self, script: Script, wave: range, portions: list[int]) -> None:
        self.script, self.wave, self.portions = script, wave, portions
        self.fan = 2 if len(wave) < 8 else 3 if len(wave) < 41 else 4
        self.reports: dict[str, list[tuple[int, EdgeType]]] = {}
        """What was reported to each agent by the ones under it."""

    def reads(self, who: Actor, backs: list[tuple[int, int]]) -> list[tuple[int, EdgeType]]:
        """What `who` reads when everybody under it is back."""
        return [*self.reports.pop(who.name, ()), *((back, "return") for _, back in backs)]

    def children(self, place: int) -> range:
        """Places of the agents under the one at `place`; the lead is at -1 and has the first few under it."""
        if place < 0:
            return range(min(self.fan, len(self.wave)))
        first = (place + 1) * self.fan
        return range(min(first, len(self.wave)), min(first + self.fan, len(self.wave)))

    def grow(self, parent: Actor, place: int, at: int, decision: int) -> tuple[list[Actor], list[tuple[int, int]]]:
        """Spawn everybody under `place` and let them live: the team, and when each returned, with its return's handle."""
        team, backs = [], []
        for under in self.children(place):
            i = self.wave[under]
            role = "manager" if self.children(under) else "worker"
            child = Actor(f"{role}-{i + 1}", role, i, path=parent.path)
            at, born = spawn(self.script, parent, child, at, decision)
            team.append(child)
            backs.append(self._live(parent, child, under, at, born))
        return team, backs

    def _live(self, parent: Actor, who: Actor, place: int, at: int, born: int) -> tuple[int, int]:
        script, steps = self.script, self.portions[self.wave[place]]
        if not self.children(place):
            at, last = work(script, who, at, born, "spawn", steps)
            at = report(script, who, parent, at, last, self.reports.setdefault(parent.name, []))
            return give_back(script, who, parent, at, last)
        before = (steps + 1) // 2
        at, last = work(script, who, at, born, "spawn", before)
        at, chosen = decide(script, who, at, "spawn", [(last, "causal")])
        team, backs = self.grow(who, place, at, chosen)
        reads = self.reads(who, backs)
        at, merged = aggregate(script, who, max(over for over, _ in backs), [(chosen, "causal"), *reads])
        at = despawn(script, who, team, at, merged)
        at, last = work(script, who, at, merged, "aggregate", steps - before)
        return give_back(script, who, parent, at, last, "causal" if before < steps else "aggregate")


# -- harness -----------------------------------------------------------------------------------------------------------


_BESIDE = 2
_ASKED = 48
"""The model asks the person once in this many steps."""


def harness(script: Script, agents: int, steps: int, waves: list[range]) -> None:
    """Harness: one model with tools in a runtime, a person who asks and approves, and few sub-agents or none (no waves).

    The model works in one line from the person's question to its own stop; sub-agents run beside it, at most two at a time, and
    their results are read where the model next pauses.
    """
    model = lead("model", "agent")
    beside = 0 if not agents else max(agents, steps // 2 if steps // 2 >= agents else 0)
    portions, own = shares(script.dice, beside, agents, is_heavy=True), steps - beside
    at, last = _person(script, model, 0, -1)
    at, last = decide(script, model, at, "noop", [(last, "message")])
    pauses = max(-(-agents // _BESIDE), own // _ASKED, 1)
    kind: EdgeType = "causal"
    for k in range(pauses):
        wave = range(k * _BESIDE, min(agents, (k + 1) * _BESIDE))
        at, last, team, reads = _delegate(script, model, portions, wave, at, last, kind)
        now = own // pauses + (k < own % pauses)
        at, last = work(script, model, at, last, "causal", now)
        if team:
            at, last = aggregate(script, model, script.end, [(last, "causal"), *reads])
            at = despawn(script, model, team, at, last)
        kind = "causal"
        if k < pauses - 1 and script.dice.below(2):
            at, last = _person(script, model, at, last)
            kind = "message"
        script.settle()
    decide(script, model, at, "stop", [(last, kind)], reward={})
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
    at, last = decide(script, model, at, "spawn" if wave else "noop", [(last, kind)])
    team, reads = [], list[tuple[int, EdgeType]]()
    for i in wave:
        child = Actor(f"helper-{i + 1}", "helper", i, path=model.path)
        at, born = spawn(script, model, child, at, last)
        over, done = work(script, child, at, born, "spawn", portions[i])
        over = report(script, child, model, over, done, reads)
        _, back = give_back(script, child, model, over, done)
        team.append(child)
        reads.append((back, "return"))
    return at, last, team, reads
