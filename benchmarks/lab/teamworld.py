"""TeamWorld on one core: events, traces, snapshots and memory; steps beside PettingZoo's simple_spread and Gymnasium's CartPole.

An agent-step is one agent acting once: here one call of one worker (its brief, tool call, result and return), in simple_spread
one agent's move. An env-step is one decision of one episode: here a whole round, in CartPole one push. Peers get actions that
were sampled before the clock runs; ours are timed both ways, choosing them by the reference policy and with them given. All of it
is single-threaded and rates are of CPU time, so that a busy machine does not count.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import arguments, interleaved, report, row
from mpe2 import simple_spread_v3

from counterpoint.lab.worlds.teamworld.edits import Edit
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.lab.worlds.wide_verify import wide_verify
from counterpoint.trace.replay import Force

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
WIDE = {"vote_items": 2_300, "max_agents": 1_000}
"""A thousand agents, and more than ten thousand events in one episode."""
_MEMORY = f"""
import json, sys
from counterpoint.lab.worlds.wide_verify import wide_verify
def peak():  # not getrusage: on Linux its peak may be the parent's
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
before = peak()
log = sys.argv[1] == "log"
runs = wide_verify.replace(**{WIDE!r}).run("spawn_all", [1], log=log)
trace = runs.trace(0) if log else None
print(json.dumps({{"before": before, "growth": peak() - before, "events": int(runs.columns["events"][0]),
                  "agents": int(runs.columns["agents"][0])}}))
"""


def _memory(how: str) -> dict[str, float]:
    """Peak memory of one wide episode in a process of its own, MB above what the imports take."""
    done = subprocess.run([sys.executable, "-c", _MEMORY, how], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _to_traces(world: TeamWorld, policy: Any, seeds: range) -> int:
    """Play, and make every trace; each is let go before the next."""
    runs = world.run(policy, seeds, log=True)
    return sum(len(runs.trace(i).events) for i in range(len(seeds)))


def _actions(world: TeamWorld, policy: Any, seeds: range) -> list[Any]:
    """What the policy does, round by round."""
    batch, actions = world.batch(seeds), []
    while not batch.state.done.all():
        actions.append(policy.act(batch.observe()))
        batch.step(actions[-1])
    return actions


def _replayed(world: TeamWorld, actions: list[Any], seeds: range) -> Batch:
    """The same episodes with the actions given; observations are made as for a policy."""
    batch = world.batch(seeds)
    for action in actions:
        batch.observe()
        batch.step(action)
    return batch


def _spread(agents: int, steps: int) -> Callable[[], Any]:
    """simple_spread with so many agents: that many parallel steps with random moves, reset where it ends."""
    env = simple_spread_v3.parallel_env(N=agents, max_cycles=25)
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    moves = [{name: int(m) for name, m in zip(env.agents, rng.integers(0, 5, agents), strict=True)} for _ in range(steps)]

    def go() -> None:
        env.reset(seed=0)
        for move in moves:
            env.step(move)
            if not env.agents:
                env.reset(seed=0)

    return go


def _cart_poles(count: int, steps: int, mode: str) -> Callable[[], Any]:
    """So many CartPoles, stepped together with random pushes."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=count, vectorization_mode=mode)
    pushes = np.random.default_rng(0).integers(0, 2, (steps, count))

    def go() -> None:
        env.reset(seed=0)
        for push in pushes:
            env.step(push)

    return go


def _rates(*, quick: bool) -> list[dict[str, Any]]:
    episodes, logged, repeats = (256, 32, 2) if quick else (256, 32, 7)
    world, many, few, one = wide_verify, range(episodes), range(logged), range(1)
    policy = world.policy("reference")
    runs, alone = world.run(policy, many), world.run(policy, one)
    agents, rounds = int(alone.columns["agents"][0]), float(runs.columns["rounds"].mean())
    given, given_one = _actions(world, policy, many), _actions(world, policy, one)
    small = world.replace(vote_items=64, max_agents=3)
    trio = small.policy("spawn_all")
    alone_3, given_3 = small.run(trio, one), _actions(small, trio, one)
    spread_steps, pole_steps = (5, 50) if quick else (25, 200)
    taken = interleaved(
        {
            "many": lambda: world.run(policy, many),
            "one": lambda: world.run(policy, one),
            "traces": lambda: _to_traces(world, policy, few),
            "given": lambda: _replayed(world, given, many),
            "given one": lambda: _replayed(world, given_one, one),
            "given trio": lambda: _replayed(small, given_3, one),
            "spread": _spread(agents, spread_steps),
            "spread trio": _spread(3, 10 * spread_steps),
            "poles": _cart_poles(episodes, pole_steps, "sync"),
            "poles numpy": _cart_poles(episodes, pole_steps, "vector_entry_point"),
        },
        repeats,
        clock="cpu",
    )
    rate = lambda count, name: float(count) / taken[name]  # noqa: E731
    calls, calls_one = runs.columns["calls"].sum(), alone.columns["calls"].sum()
    spread, poles = rate(agents * spread_steps, "spread"), rate(episodes * pole_steps, "poles")
    calls_3, spread_3 = alone_3.columns["calls"].sum(), rate(30 * spread_steps, "spread trio")
    poles_numpy = rate(episodes * pole_steps, "poles numpy")
    steps = float(episodes * rounds)
    events, logged_events = runs.columns["events"].sum(), runs.columns["events"][:logged].sum()
    return [
        _goal(f"events/s, {episodes} episodes at once, no log", rate(events, "many"), "events/s", least=1e6),
        _goal("events/s, a single episode, no log", rate(alone.columns["events"].sum(), "one"), "events/s"),
        _goal(f"events/s to complete traces, {logged} episodes at once", rate(logged_events, "traces"), "events/s", least=1e5),
        row(f"{agents} agents, one team, beside simple_spread", rate(calls_one, "one"), spread, "agent-steps/s", is_rate=True),
        row("the same, actions given", rate(calls_one, "given one"), spread, "agent-steps/s", is_rate=True),
        row("3 agents, one team, actions given", rate(calls_3, "given trio"), spread_3, "agent-steps/s", is_rate=True),
        row(f"{agents} agents in each of {episodes} teams", rate(calls, "many"), spread, "agent-steps/s", is_rate=True),
        row(f"{episodes} episodes, beside CartPole, sync", rate(steps, "many"), poles, "env-steps/s", is_rate=True),
        row("the same, actions given", rate(steps, "given"), poles, "env-steps/s", is_rate=True),
        row("the same, an agent-step against a push", rate(calls, "given"), poles, "steps/s", is_rate=True),
        row("the same, beside CartPole in numpy", rate(calls, "given"), poles_numpy, "steps/s", is_rate=True),
    ]


def _goal(name: str, ours: float, unit: str, *, least: float | None = None) -> dict[str, Any]:
    """A row with a least rate instead of a peer."""
    out = row(name, ours, None, unit)
    return out if least is None else out | {"target": f">= {least:,.0f} {unit}", "ok": ours >= least}


def _median_ms(work: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats + 1):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return statistics.median(times[1:]) * 1e3


def _snapshots(*, quick: bool) -> list[dict[str, Any]]:
    """Snapshot and restore into a fork, with the log, after ten thousand events of one wide episode."""
    world, repeats = wide_verify.replace(**WIDE), 20 if quick else 100
    policy = world.policy("spawn_all")
    batch, fork = world.batch([1], log=True), world.batch([1], log=True)
    while batch.state.counts[0, 2] < 10_000:
        batch.step(policy.act(batch.observe()))
    env, other = world.env(), world.env()
    env.reset(1)
    other.reset(1)
    while env.batch.state.counts[0, 2] < 10_000:
        env.step(policy.act(env.observe()))
    edit = Edit(ep=0, round=batch.round, stage="stop", do=Force({"stop": True}))

    def forked() -> None:
        fork.restore(batch.snapshot())
        fork.branch([edit])

    events = int(batch.state.counts[0, 2])
    return [
        row(f"Batch: snapshot, restore, branch at {events:,} events", _median_ms(forked, repeats), None, "ms", limit=5),
        row("TeamEnv: snapshot, restore", _median_ms(lambda: other.restore(env.snapshot()), repeats), None, "ms", limit=5),
    ]


def measure(*, quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    plain, logged = _memory("plain"), _memory("log")
    what = f"peak memory, {logged['agents']:,} agents, {logged['events']:,} events, above imports"
    say(f"imports take {logged['before']:.0f} MB")
    return [
        *_rates(quick=quick),
        *_snapshots(quick=quick),
        row(what, plain["growth"], None, "MB", limit=200),
        row("the same, with log and trace", logged["growth"], None, "MB", limit=200),
    ]


def main() -> None:
    options = arguments(__doc__)
    if any(os.environ.get(name) != "1" for name in THREADS):  # these are read when numpy is loaded
        os.environ.update(dict.fromkeys(THREADS, "1"))
        os.execv(sys.executable, [sys.executable, *sys.argv])
    rows = measure(quick=options.quick, say=(lambda text: None) if options.json else print)
    report("TeamWorld (CPU, one core, median of runs)", rows, as_json=options.json)


if __name__ == "__main__":
    main()
