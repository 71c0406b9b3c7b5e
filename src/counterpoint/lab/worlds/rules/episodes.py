"""Episodes of a world that asks decisions, played side by side, and the trace of each.

Always true: an episode is a function of (world, choices, seed): who is played beside it changes nothing. Of every decision the
trace has agent, kind, options, the one that was taken, its log-probability where it was drawn, and what it paid.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.worlds.rules.decision import LEAD, Arrays, Place, Sizes, asks_decisions, checked, finite_reward
from counterpoint.trace import Edge, Event, Trace, content_ref, summed_costs
from counterpoint.trace.keys import make_key

_NOT_OF_IDS = re.compile(r"[^\w.-]")
MOST = 10_000
"""Decisions after which an episode counts as endless."""


@dataclass(frozen=True)
class Step:
    """One decision, and what came of it."""

    arrays: Arrays
    choice: int
    logp: float | None
    """Of the choice, where it was drawn."""
    reward: float


Steps = list[Step]


@dataclass(frozen=True)
class Due:
    """The decisions that are due in several episodes at once."""

    seeds: np.ndarray
    rows: Sequence[Arrays]
    at: np.ndarray
    """Which of the episodes each is of."""
    now: int
    """Decisions made before, in each of them."""


Choose = Callable[[Due], tuple[np.ndarray, np.ndarray | None]]
"""(the number of an option for each row, its log-probability or None)."""


def play_episodes(world: Any, seeds: Sequence[int] | np.ndarray, choose: Choose, sizes: Sizes | None = None) -> list[Steps]:
    """Play one episode per seed to its end."""
    numbers = _seeds(seeds)
    envs = [world.env() for _ in numbers]
    out: list[Steps] = [[] for _ in numbers]
    running: list[int] = []
    for i, (env, seed) in enumerate(zip(envs, numbers.tolist(), strict=True)):
        place = Place(world.name, seed, 0)
        if not asks_decisions(env):
            raise place.error(f"env() gives a {type(env).__name__} that asks no decision", fix="an Env with decision()")
        ask(place, env.reset, seed)
        running.append(i)
    for now in itertools.count():
        places = {i: Place(world.name, int(numbers[i]), now) for i in running}
        asked = {i: ask(places[i], envs[i].decision) for i in running}
        rows: dict[int, Arrays] = {}
        for i in [i for i in running if asked[i] is not None]:
            rows[i] = checked(asked[i], places[i], sizes)
            sizes = sizes or rows[i].sizes
        if not rows:
            break
        if now >= MOST:
            raise next(iter(places.values())).error(f"the episode does not end within {MOST:,} decisions", fix="a limit")
        at = np.array([*rows])
        choices, logps = choose(Due(numbers[at], [*rows.values()], at, now))
        running = []
        for k, i in enumerate(rows):
            choice = _choice(choices[k], rows[i], places[i])
            _, reward, *ends, _ = _stepped(ask(places[i], envs[i].step, choice), places[i])
            logp = None if logps is None else float(logps[k])
            out[i].append(Step(rows[i], choice, logp, finite_reward(reward, places[i])))
            if not any(ends):
                running.append(i)
    for i, seed in enumerate(numbers.tolist()):
        if not out[i]:
            raise Place(world.name, seed, 0).error("the episode ends before its first decision", fix="one decision at least")
    return out


def value_of(steps: Steps) -> float:
    """The return of an episode."""
    return math.fsum(step.reward for step in steps)


def columns_of(episodes: Sequence[Steps]) -> dict[str, np.ndarray]:
    """Per episode: agents, rounds (decisions of the orchestrator) and calls (those of others)."""
    names = [[step.arrays.decision.agent for step in steps] for steps in episodes]
    rounds = np.array([sum(name == LEAD for name in some) for some in names], np.int64)
    return {
        "agents": np.array([len({*some} - {LEAD}) for some in names], np.int64),
        "rounds": rounds,
        "calls": np.array([len(some) for some in names], np.int64) - rounds,
    }


def ask(place: Place, function: Callable[..., Any], *args: Any) -> Any:
    """What the world's own code says; an error of it names the place."""
    try:
        return function(*args)
    except CounterpointError:
        raise
    except Exception as error:
        said = f"the world's code raises {type(error).__name__}: {error}"
        raise place.error(said, fix="mend it; counterpoint.lab.testing.check_world(WORLD) plays it by hand") from error


def _stepped(given: Any, place: Place) -> tuple[Any, ...]:
    if not isinstance(given, tuple) or len(given) != 5:
        raise place.error(f"step() gives {given!r:.80}", fix="observation, reward, terminated, truncated, info")
    return given


def _choice(given: Any, row: Arrays, place: Place) -> int:
    """The number of an option that there is."""
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or not 0 <= given < len(row.options):
        raise place.error(f"the policy chooses {given!r}", fix=f"the number of an option, 0 to {len(row.options) - 1}")
    return int(given)


def _seeds(seeds: Sequence[int] | np.ndarray) -> np.ndarray:
    out = np.asarray(seeds)
    if out.ndim != 1 or (out.size and out.dtype.kind not in "iu") or (out.dtype == np.uint64 and (out >> 63).any()):
        raise InputError("seeds are whole numbers below 2^63", fix="range(1000), for one")
    return out.astype(np.int64)


# -- the trace -----------------------------------------------------------------------------------------------------------


def plain_config(config: Any) -> dict[str, Any]:
    """The parameters as JSON knows them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(config).items()}


def trace_of(world: Any, seed: int, policy: str, steps: Steps) -> Trace:
    """The trace of an episode, or of as much of it as was played."""
    meta = {"world": world.name, "version": world.version, "config": plain_config(world.config), "seed": seed, "policy": policy}
    digest = content_ref(repr(sorted(meta["config"].items())))[7:15]
    events: list[Event] = []
    contents: dict[str, str] = {}
    known = {LEAD}
    for now, step in enumerate(steps):
        asked = step.arrays.decision
        if asked.agent not in known:
            known.add(asked.agent)
            key = make_key(asked.agent, "spawn")
            role = asked.role or asked.agent
            events.append(Event(id=f"s{now}", t=now, type="spawn", agent=LEAD, to=asked.agent, role=role, turn=now, key=key))
        events.append(_event(step, now, policy, contents))
    return Trace(
        trace_id=f"{_NOT_OF_IDS.sub('-', world.name)}-{seed}-{policy.replace(' ', '-')}-{digest}",
        task_id=f"{world.name}-{seed}",
        system="counterpoint world with rules of its own",
        topology="centralized",
        events=events,
        edges=[Edge(a.id, b.id, "causal") for a, b in itertools.pairwise(events)],
        rewards={"team": value_of(steps)},
        costs=dict(summed_costs(events, float(len(steps)))),
        meta=meta,
        contents=contents,
    )


def _event(step: Step, now: int, policy: str, contents: dict[str, str]) -> Event:
    """A decision of the orchestrator; of anybody else, what it does."""
    asked = step.arrays.decision
    text = asked.names[step.choice]
    ref = content_ref(text)
    contents[ref] = text
    is_lead = asked.agent == LEAD
    fields: dict[str, Any] = {"decision": asked.kind} if is_lead else {"tool": asked.kind}
    if step.logp is not None:
        fields["logp"] = step.logp
    return Event(
        id=f"d{now}", t=now, dur=1, type="orchestrator_decision" if is_lead else "tool_call", agent=asked.agent,
        role=asked.role or asked.agent, turn=now, key=make_key(asked.agent, asked.kind, (now,)), options=list(asked.names),
        policy=policy, content_ref=ref, reward={"step": step.reward}, **fields,
    )  # fmt: skip
