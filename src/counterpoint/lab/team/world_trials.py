"""Changes of a simulated team, and their trials: forks of TeamWorld traces in batches.

Always true: with and without a change at an event the episode is the recorded one up to that event; from there on both draw the
same fresh noise. A habit is a policy (`envs.teamworld.policies.standing`), tried on fresh episodes of the world; `held_out` plays
it on any.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from counterpoint.credits.advice import Change
from counterpoint.credits.forks import fork_seeds
from counterpoint.errors import NotIdentified
from counterpoint.lab.worlds.teamworld.config import RULES, Config
from counterpoint.lab.worlds.teamworld.policies import NAMES, Policy, named
from counterpoint.lab.worlds.teamworld.policies.standing import ALWAYS, Standing
from counterpoint.lab.worlds.teamworld.team_replay import TeamReplay
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace import Event, Trace
from counterpoint.trace.replay import Delete, Fork, Substitute

_MESSAGES, _STOPS = 4, 4
"""How many messages, and how many earlier stops, are tried."""
_LATER = 2
"""Rounds by which a later stop is later."""


class WorldTrials:
    """Trials on one trace of a TeamWorld."""

    def __init__(self, trace: Trace, world: TeamWorld, *, kinds: Collection[str] = (), seed: int = 0, most: int = 512) -> None:
        self.trace, self._most = trace, most
        self.world: Any = world.replace(**Config.dials(trace.meta["config"]))
        name = trace.meta.get("policy")
        if name not in NAMES:
            who = f"the policy {name!r}" if name else "the person who stepped it by hand"
            what = f"how {who} would have continued is unknown"
            raise NotIdentified(what, "advise a run of a named policy", where=trace.trace_id)
        self.policy: Policy = named(str(name), self.world.config)
        self.changes: Sequence[Change] = [c for c in _changes(trace, self.world.config) if not kinds or c.kind in kinds]
        self._seeds = fork_seeds(seed, trace, most)
        self._without: dict[tuple[str, int], float] = {}

    def gains(self, change: Change, start: int, count: int) -> list[float]:
        """Pairs of forks on the same fresh noise."""
        trials = [k % self._most for k in range(start, start + count)]
        seeds = [self._seeds[k] for k in trials]
        if change.is_habit:
            return (self.held_out(change, seeds) - self.held_out(None, seeds)).tolist()
        done = TeamReplay(self.world).returns(self.trace, [Fork(change.at, change.do, s) for s in seeds])
        missing = [k for k in dict.fromkeys(trials) if (change.at, k) not in self._without]
        if missing:
            plain = TeamReplay(self.world).returns(self.trace, [Fork(change.at, None, self._seeds[k]) for k in missing])
            self._without |= {(change.at, k): float(v) for k, v in zip(missing, plain, strict=True)}
        return [float(v) - self._without[change.at, k] for v, k in zip(done, trials, strict=True)]

    def tokens(self, change: Change) -> int:
        """The tokens of the recorded events after the change."""
        after = self.trace.events[self.trace.index[change.at] :]
        return sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in after)

    def apply(self, change: Change) -> Trace:
        """The recorded episode with the change, all noise shared."""
        if change.is_habit:
            return TeamReplay(self.world, self._follower(change)).fork(self.trace, change.at)
        return TeamReplay(self.world).fork(self.trace, change.at, change.do)

    def held_out(self, change: Change | None, seeds: Sequence[int]) -> np.ndarray:
        """The returns of other episodes that follow a habit; None: as the policy is."""
        return np.asarray(self.world.run(self._follower(change), seeds).values)

    def _follower(self, change: Change | None) -> Policy:
        return self.policy if change is None else Standing(self.policy, change.habit, change.first, change.last)


# -- candidates --------------------------------------------------------------------------------------------------------------


def _changes(trace: Trace, config: Any) -> list[Change]:
    decisions: dict[str, list[Event]] = {}
    for event in trace.events:
        name = (event.extra or {}).get("sub_decision")
        if event.type == "orchestrator_decision" and name is not None:
            decisions.setdefault(name, []).append(event)
    out = [*_widths(decisions.get("spawn", ())), *_briefs(decisions.get("communicate", ()))]
    out += [*_rules(decisions.get("aggregate", ())), *_stops(decisions.get("stop", ()))]
    return out + _messages(trace)


def _widths(points: Sequence[Event]) -> list[Change]:
    did = [e for e in points if e.decision == "spawn"]
    if not did:
        return []
    at, turn = did[0].id, did[0].turn or 0
    number = (did[0].extra or {}).get("number")
    told = f" (it spawned {number} at {at})"
    return [
        Change("width", f"spawn half as many{told}", at, habit={"width": 0.5}, first=turn),
        Change("width", f"spawn twice as many{told}", at, habit={"width": 2.0}, first=turn),
        Change("model", f"spawn workers of the other model family{told}", at, habit={"family": "other"}, first=turn),
        *(Change("spawn", f"do not spawn at {e.id} (turn {e.turn})", e.id, do=Delete()) for e in did[1:3]),
    ]


def _briefs(points: Sequence[Event]) -> list[Change]:
    did = [e for e in points if (e.extra or {}).get("brief") is not None]
    if not did:
        return []
    at, used = did[0], (did[0].extra or {})["brief"]
    return [
        Change("brief", f"brief workers with size {b} rather than {used}", at.id, habit={"brief": b}, first=at.turn or 0)
        for b in range(4)
        if b != used
    ]


def _rules(points: Sequence[Event]) -> list[Change]:
    did = [e for e in points if (e.extra or {}).get("chosen") != "noop"]
    if not did:
        return []
    at, used = did[0], (did[0].extra or {}).get("rule")
    return [
        Change("merge", f"merge by {rule} rather than {used}", at.id, habit={"rule": rule}, first=at.turn or 0)
        for rule in RULES
        if rule != used
    ]


def _stops(points: Sequence[Event]) -> list[Change]:
    ends = [e for e in points if e.decision == "stop"]
    earlier = [e for e in points if e.decision != "stop" and (e.turn or 0) > 1]
    picked = [earlier[i] for i in _spaced(len(earlier), _STOPS)]
    out = [
        Change("stop", f"stop at round {e.turn} ({e.id})", e.id, habit={"stop": True}, first=e.turn or 0, last=ALWAYS)
        for e in picked
    ]
    for e in ends[:1]:
        turn = e.turn or 0
        says = f"go on for {_LATER} rounds more than round {turn} ({e.id})"
        out.append(Change("stop", says, e.id, habit={"stop": False}, first=turn, last=turn + _LATER - 1))
    return out


def _messages(trace: Trace) -> list[Change]:
    """Some orders are not sent; some returns are not sent, or are drawn anew."""
    out = []
    for kind in ("message", "return"):
        said = [e for e in trace.events if e.type == kind and (kind == "return" or e.role == "orchestrator")]
        for e in (said[i] for i in _spaced(len(said), _MESSAGES)):
            out.append(Change("message", f"drop {e.id} ({e.agent} to {e.to}, {e.task})", e.id, do=Delete()))
            if kind == "return":
                out.append(Change("message", f"have {e.agent} say {e.id} again ({e.task})", e.id, do=Substitute()))
    return out


def _spaced(count: int, most: int) -> list[int]:
    """Up to `most` places among `count`, evenly spread."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)}) if most > 1 else [0]
