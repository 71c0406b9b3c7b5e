"""Credit from logs alone, doubly robust: intervals that cover what forks say, where either model is right.

Always true: the truth is by forks of the same world, with both arms on the same fresh noise, never by the estimator. Logs keep
nothing that the estimator may not see; what decided (the votes so far; the rounds since a draft last rose) is recorded in them.

Messages: four questions, two votes each, and then one more request per question, which is sent with chance 0.8 where the votes
are split and 0.25 where they agree. A request pays where votes are split and costs its price where they agree, and those who ask
stand worse before they ask: the plain difference of runs with and without the message has the wrong sign. Stops: one draft that
improves until it rots; the team stops with a chance that grows with the rounds since its last gain, so that those who go on
stand better. Each seed: ten logs of 160 runs with four messages each, and twenty logs of 100 runs with their stops. "Wrong" means
that a model does not see what decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from counterpoint.bench.claim import ClaimRow, at_least, at_most, equal_within, reported
from counterpoint.credit.logged_effects import draft_features, task_features
from counterpoint.credit.mechanisms.message_logged import message_logged
from counterpoint.credit.mechanisms.stop import checkpoints, stop
from counterpoint.envs.keyed import child_seed, purpose
from counterpoint.envs.teamworld.action import Action, Calls, Spawns, rule
from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.observation import Observation
from counterpoint.envs.teamworld.team_replay import TeamReplay
from counterpoint.envs.world import world
from counterpoint.errors import InputError
from counterpoint.trace import Event, Trace
from counterpoint.trace.replay import Delete, Do, Force, Fork

_SIZES = {"message": (10, 160), "stop": (20, 100)}
"""Logs of each seed, and runs of a log."""
_TRUTH = (150, 24)
"""Runs, and pairs of forks at each of their decisions."""
_Z = {95: 1.959964, 90: 1.644854}
_SKILL = (0.75, 0.65, 0.55)
_QUESTIONS: dict[str, Any] = {
    "vote_items": 4,
    "types": 1,
    "calls_per_round": 4,
    "max_agents": 3,
    "skill_a": _SKILL,
    "misconception_a": (0.0, 0.0, 0.0),
    "price": (0.03, 0.03),
    "spawn_price": 0.0,
    "round_price": 0.0,
    "brief_price": 0.0,
}
_DRAFT: dict[str, Any] = {"draft_items": 1, "price": (0.12, 0.12), "spawn_price": 0.0, "max_agents": 1, "max_rounds": 14}
_STOP = np.array([0.06, 0.2, 0.45, 0.6])


class Asks:
    """Two votes on everything, then one more request where the dice say so, then a stop."""

    name = "asks"

    def __init__(self, config: Config) -> None:
        self._n = config.vote_items

    def act(self, obs: Observation) -> Action:
        """Round by round; the third request by chance."""
        every, go_on = np.flatnonzero(obs.running), np.zeros(obs.episodes, np.bool_)
        how = np.full(obs.episodes, rule("majority"))
        if obs.round == 0:
            return Action(stop=go_on, spawns=Spawns.of(every, 3, 0, 0))
        if obs.round == 1:
            ep, item, agent = np.meshgrid(every, np.arange(self._n), [1, 2], indexing="ij")
            return Action(stop=go_on, calls=Calls.of(ep, item, agent), rule=how)
        if obs.round == 2:
            tally = obs.of("vote").tally.sum(axis=2)
            chance = np.where(tally[:, :, 0] == tally[:, :, 1], 0.8, 0.25)
            ep, item = np.nonzero((obs.uniform("delegate", np.arange(self._n)[None]) < chance) & obs.running[:, None])
            return Action(stop=go_on, calls=Calls.of(ep, item, 3), rule=how)
        return Action(stop=obs.running.copy())


class Stops:
    """One worker on one draft; stops by chance, the likelier the longer nothing was gained."""

    name = "stops"

    def act(self, obs: Observation) -> Action:
        """From the third round on the dice say whether to stop."""
        every, go_on = np.flatnonzero(obs.running), np.zeros(obs.episodes, np.bool_)
        if obs.round == 0:
            return Action(stop=go_on, spawns=Spawns.of(every, 1, 1, 0))
        chance = np.where(obs.round < 3, 0.0, _STOP[np.minimum(obs.of("draft").zeros[:, 0], len(_STOP) - 1)])
        halt = obs.running & (obs.uniform("stop") < chance)
        logp = np.zeros((obs.episodes, 5))
        logp[:, 0] = np.log(np.where(halt, chance, 1 - chance))
        calls = np.flatnonzero(obs.running & ~halt)
        return Action(stop=halt, calls=Calls.of(calls, 0, 1), logp=logp)


def dr_credit(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Truth once; then each seed's logs."""
    yield from rows(seed, seeds, _SIZES, _TRUTH)


def rows(seed: int, seeds: int, sizes: dict[str, tuple[int, int]], truth: tuple[int, int]) -> Iterator[ClaimRow]:
    """The claim at any size."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    for what, measured in (("message", _messages(truth)), ("stop", _stops(truth))):
        found = [measured(child_seed(s, purpose(f"dr credit {what}")) >> 16, *sizes[what]) for s in range(seed, seed + seeds)]
        told = {name: [f[name] for f in found] for name in found[0]}
        yield reported(f"{what}: effect by forks", told["truth"])
        for level in _Z:
            name = f"{what}: {level} % intervals that cover, both models right"
            yield equal_within(name, told[f"right {level}"], level / 100, 0.05)
        for name in ("outcome wrong", "propensity wrong"):
            yield at_least(f"{what}: 95 % intervals that cover, {name}", told[f"{name} 95"], 0.9)
        yield at_most(f"{what}: 95 % intervals that cover, both wrong", told["both wrong 95"], 0.8)
        yield reported(f"{what}: bias of the plain difference", told["plain"])
        for name in ("right", "outcome wrong", "propensity wrong", "both wrong"):
            yield reported(f"{what}: bias, {name}", told[f"{name} bias"])
        yield at_most(f"{what}: size of the bias over that of the plain difference", told["ratio"], 0.35)


def _blind(trace: Trace, event: Event, about: Event | None = None) -> list[float]:
    """Features that do not see what decided."""
    return [float(event.turn or 0)]


def _versions(sees: Any) -> dict[str, dict[str, Any]]:
    return {
        "right": {"features": sees},
        "outcome wrong": {"features": _blind, "propensity_features": sees},
        "propensity wrong": {"features": sees, "propensity_features": _blind},
        "both wrong": {"features": _blind},
    }


def _summary(z: dict[str, list[float]], gap: dict[str, list[float]], plain: list[float], truth: float) -> dict[str, float]:
    out = {"truth": truth, "plain": float(np.mean(plain))}
    for name, values in z.items():
        out |= {f"{name} {level}": float(np.mean(np.abs(values) <= width)) for level, width in _Z.items()}
        out[f"{name} bias"] = float(np.mean(gap[name]))
    return out | {"ratio": abs(out["right bias"]) / max(abs(out["plain"]), 1e-9)}


# -- messages --------------------------------------------------------------------------------------------------------------


def _messages(size: tuple[int, int]) -> Any:
    made = world("W1", **_QUESTIONS)
    policy = Asks(made.config)
    split, agree = _message_truth(made, policy, *size)
    q = np.array(_SKILL)
    chance = float(np.array(made.config.difficulty_shares) @ (2 * q * (1 - q)))  # of split votes
    truth = chance * split + (1 - chance) * agree

    def measured(seed: int, logs: int, runs: int) -> dict[str, float]:
        versions = _versions(task_features)
        z: dict[str, list[float]] = {name: [] for name in versions}
        gap: dict[str, list[float]] = {name: [] for name in versions}
        plain: list[float] = []
        for n in range(logs):
            played = made.run(policy, [child_seed(seed, n, i) >> 16 for i in range(runs)], log=True)
            traces = [played.trace(i) for i in range(runs)]
            for item in range(made.config.vote_items):
                sent = np.array([any(e.key == f"a2|brief|{item}|0" for e in t.events) for t in traces])
                reward = np.array([t.rewards["team"] for t in traces])
                plain.append(float(reward[sent].mean() - reward[~sent].mean()) - truth)
            for name, given in versions.items():
                found = message_logged(traces, types=("message",), key="batch", **given)
                slots = {traces[r.trace].events[traces[r.trace].index[r.unit_id]].key: r for r in found.rows}
                z[name] += [(r.value - truth) / float(r.se or np.nan) for r in slots.values()]
                gap[name] += [r.value - truth for r in slots.values()]
        return _summary(z, gap, plain, truth)

    return measured


def _message_truth(made: Any, policy: Asks, runs: int, forks: int) -> tuple[float, float]:
    """What a third request is worth where two votes are split, and where they agree."""
    replay, effects = TeamReplay(made, policy), {True: [], False: []}  # type: TeamReplay, dict[bool, list[float]]
    played = made.run(policy, range(2_000_000, 2_000_000 + runs), log=True)
    for i in range(runs):
        trace = played.trace(i)
        for event in trace.events:
            if event.key is not None and event.key.startswith("a2|brief|"):
                heard = [e for e in trace.events if e.task == event.task and e.turn == 1 and e.type == "return"]
                votes = [(e.extra or {})["claim"] for e in heard]
                effects[votes[0] != votes[1]].append(_effect(replay, trace, event.id, None, Delete(), forks))
    return float(np.mean(effects[True])), float(np.mean(effects[False]))


def _effect(replay: TeamReplay, trace: Trace, at: str, a: Do | None, b: Do | None, forks: int) -> float:
    values = replay.returns(trace, [Fork(at, do, 3_000_000 + k) for do in (a, b) for k in range(forks)])
    return float((values[:forks] - values[forks:]).mean())


# -- stops -----------------------------------------------------------------------------------------------------------------


def _stops(size: tuple[int, int]) -> Any:
    made, policy = world("A", **_DRAFT), Stops()
    replay = TeamReplay(made, policy)
    played = made.run(policy, range(4_000_000, 4_000_000 + size[0]), log=True)
    every = [played.trace(i) for i in range(size[0])]
    points = [(t, p.event.id) for t in every for p in checkpoints(t) if _is_open(p.event)]
    truth = float(np.mean([_effect(replay, t, at, Force({"stop": True}), Force({"stop": False}), size[1]) for t, at in points]))

    def measured(seed: int, logs: int, runs: int) -> dict[str, float]:
        versions = _versions(draft_features)
        z: dict[str, list[float]] = {name: [] for name in versions}
        gap: dict[str, list[float]] = {name: [] for name in versions}
        plain: list[float] = []
        for n in range(logs):
            played = made.run(policy, [child_seed(seed, n, i) >> 16 for i in range(runs)], log=True)
            traces = [_opened(played.trace(i)) for i in range(runs)]
            plain.append(_plain(traces) - truth)
            for name, given in versions.items():
                found = stop(traces, estimator="doubly_robust", propensity="estimate", leaf=lambda t, e: 0, **given)
                first = found.rows[0]
                delta = found.notes["delta"][first.trace, first.unit_id]
                z[name].append((delta - truth) / (float(first.se or np.nan) * abs(delta / first.value)))
                gap[name].append(delta - truth)
        return _summary(z, gap, plain, truth)

    return measured


def _is_open(event: Event) -> bool:
    """Whether the dice were asked."""
    return (event.turn or 0) >= 3


def _opened(trace: Trace) -> Trace:
    """The trace whose early decisions to go on, which no dice made, offer nothing."""
    closed = [(e.extra or {}).get("sub_decision") == "stop" and not _is_open(e) for e in trace.events]
    kept = [replace(e, options=["continue"]) if c else e for e, c in zip(trace.events, closed, strict=True)]
    return replace(trace, events=kept)


def _plain(traces: Sequence[Trace]) -> float:
    """The mean reward of decisions to stop less that of decisions to go on."""
    both: dict[bool, list[float]] = {True: [], False: []}
    for trace in traces:
        for p in checkpoints(trace):
            if _is_open(p.event):
                both[p.is_stop].append(float(trace.rewards["team"]))
    return float(np.mean(both[True]) - np.mean(both[False]))
