"""Decisions per second in training, rollouts and updates together, beside a PettingZoo loop of equal size.

A decision is one choice of the orchestrator: a stop, a role to spawn, an item to call or leave, a brief, a pointer, a talk, a
rule (`Rollout.decisions`); in the peer, one agent's move. Ours is the preset `counterpoint` on W1 with 64 questions, without log,
after a warm-up: as it is shipped (24 episodes an update, eight batches kept for the critics), and wide (192 episodes an update,
one batch kept: as many gradient steps serve eight times the decisions). The peer is mpe2's simple_spread with as many agents as
our team has, 24 copies of it stepped side by side, one forward pass for all of them, a network of the same width, and clipped
steps on as many rows: 4 epochs of 3 parts. Two kinds of clock: rates of one process by CPU time, which a busy machine hardly
changes; with two worker processes, and rollouts that lag by one update, by wall time, which needs the machine for itself (the
load is printed). Every process has one thread.

A whole run is `train_run` from start to end: levels of the hand-made policies, rollouts with the traces that a mechanism reads,
updates, evaluations, alerts, checkpoints, stored traces. Its peer is the plain loop of the same settings, rollouts and updates
alone: the ratio is what a run keeps of the loop's speed.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import arguments, report, row
from mpe2 import simple_spread_v3
from torch import nn

from counterpoint.lab.train import alerts, evaluate, rollouts
from counterpoint.lab.train.feed import Ordered
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.policies.acting import TeamPolicy
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.presets.counterpoint import counterpoint
from counterpoint.lab.train.run import train_run
from counterpoint.lab.train.runners.here import Here
from counterpoint.lab.train.runners.processes import Processes
from counterpoint.lab.train.session import RunSession
from counterpoint.lab.train.settings import Settings, settings_of
from counterpoint.lab.train.training import Training
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.traces import Episodes

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
WIDTH, COPIES, TARGET, WHOLE = 48, 24, 50_000, 30_000
wide = replace(counterpoint, loss={"soft": {"keep": 192}})
"""The shipped preset, keeping one batch where it keeps eight: as many episodes, where a batch is eight times as large."""


def training(episodes: int, preset: str, runner: str) -> Training:
    """A run that does not end while it is measured."""
    return Training(
        Settings(
            preset=preset, world="W1", set={"vote_items": 64}, seed=7, episodes=episodes, budget_calls=10_000_000, runner=runner
        )
    )


class Ours:
    """A training run, some updates at a time."""

    def __init__(self, episodes: int, preset: str, runner: str, *, staleness: int = 0) -> None:
        self.run = training(episodes, preset, runner)
        self.engine = Here() if runner == "here" else Processes(2)
        self.feed = Ordered(self.engine, batch=self.run.jobs_per_update(), staleness=staleness)
        self.agents, self.played_s, self.learned_s = 0.0, 0.0, 0.0

    def updates(self, count: int) -> int:
        """That many updates; the decisions in them."""
        before, weights = self.run.totals["decisions"], self.run.weights
        for _ in range(count):
            now, given = self.run.update, weights()
            self.feed.fill(lambda i, now=now, given=given: self.run.job(i, now, given))
            begin = time.process_time()
            done = self.feed.take(now).done
            then = time.process_time()
            line = self.run.learn([d.result for d in done], stale=now - min(d.version for d in done))
            self.agents = line["agents"]
            self.played_s, self.learned_s = self.played_s + then - begin, self.learned_s + time.process_time() - then
        return self.run.totals["decisions"] - before


class Peer:
    """simple_spread, side by side, with a small policy and value, and clipped steps."""

    def __init__(self, agents: int, rows: int) -> None:
        self.envs = [simple_spread_v3.parallel_env(N=agents, max_cycles=25) for _ in range(COPIES)]
        self.seen = [env.reset(seed=i)[0] for i, env in enumerate(self.envs)]
        self.steps = max(1, round(rows / (COPIES * agents)))
        size = len(next(iter(self.seen[0].values())))
        torch.manual_seed(0)
        body = [nn.Linear(size, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()]
        self.policy = nn.Sequential(*body, nn.Linear(WIDTH, 5))
        self.value = nn.Sequential(nn.Linear(size, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))
        self.optimizer = torch.optim.Adam([*self.policy.parameters(), *self.value.parameters()], lr=3e-3, fused=True)
        self.rng = np.random.default_rng(0)

    def _rollout(self) -> tuple[torch.Tensor, ...]:
        seen, moves, logps, rewards = [], [], [], []
        for _ in range(self.steps):
            x = torch.from_numpy(np.stack([v for obs in self.seen for v in obs.values()]).astype(np.float32))
            with torch.no_grad():
                chance = self.policy(x).log_softmax(-1)
            move = np.minimum((chance.exp().numpy().cumsum(1) < self.rng.random((len(x), 1))).sum(1), 4)
            place, paid = 0, []
            for i, env in enumerate(self.envs):
                names = list(env.agents)
                chosen = dict(zip(names, move[place : place + len(names)].tolist(), strict=True))
                place += len(names)
                self.seen[i], reward, *_ = env.step(chosen)
                paid += [reward[name] for name in names]
                if not env.agents:
                    self.seen[i] = env.reset(seed=int(self.rng.integers(1 << 30)))[0]
            seen.append(x)
            moves.append(torch.from_numpy(move))
            logps.append(chance[torch.arange(len(x)), moves[-1]])
            rewards.append(torch.tensor(paid, dtype=torch.float32))
        to_go = torch.stack(rewards).flip(0).cumsum(0).flip(0).reshape(-1)
        return torch.cat(seen), torch.cat(moves), torch.cat(logps), to_go

    def updates(self, count: int) -> int:
        """That many updates; the moves in them."""
        made = 0
        for _ in range(count):
            x, move, old, to_go = self._rollout()
            made += len(x)
            to_go = (to_go - to_go.mean()) / (to_go.std() + 1e-6)
            for _ in range(4):
                for part in np.array_split(self.rng.permutation(len(x)), 3):
                    at = torch.from_numpy(part)
                    chance, v = self.policy(x[at]).log_softmax(-1), self.value(x[at])[:, 0]
                    ratio = (chance.gather(1, move[at][:, None])[:, 0] - old[at]).exp()
                    adv = to_go[at] - v.detach()
                    loss = torch.maximum(-adv * ratio, -adv * ratio.clamp(0.8, 1.2)).mean() + (v - to_go[at]).square().mean()
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
        return made


def _settings(preset: str, budget: int) -> dict[str, Any]:
    return {"preset": preset, "world": "W1", "set": {"vote_items": 64}, "seed": 1, "budget_calls": budget}


PARTS = (
    ("hand-made levels and bound", evaluate, "hand_made_returns", "optimum"),
    ("policy", TeamPolicy, "decide"),
    ("world", Batch, "step", "observe", "values"),
    ("network", Network, "items", "teams", "keys", "roles", "workers", "judge_items", "judge_scored", "judge_teams"),
    ("network", torch.Tensor, "backward"),
    ("rows of rollouts", rollouts, "play_out"),
    ("traces", Episodes, "__init__", "trace"),
    ("critics", Training, "fit_critics"),
    ("credit", Training, "advantages"),
    ("updates", Training, "learn"),
    ("evaluations", evaluate, "held_out", "team_sizes", "reference_rounds"),
    ("store and checkpoints", RunSession, "keep", "save"),
    ("alerts", alerts, "signals", "mismatch", "raised_alerts"),
)  # fmt: skip
"""Parts of a whole run, and the functions that they are; what one part calls of another is the other's."""


class Shares:
    """CPU seconds by part, while it is entered: each part's own, without those inside it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys((*(name for name, *_ in PARTS), "rest"), 0.0)
        self._open, self._since = ["rest"], 0.0
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Shares:
        for name, owner, *functions in PARTS:
            for function in functions:
                self._before.append((owner, function, getattr(owner, function)))
                setattr(owner, function, self._timed(name, getattr(owner, function)))
        self._since = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self._turn()
        for owner, function, before in self._before:
            setattr(owner, function, before)

    def _turn(self) -> None:
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **how: Any) -> Any:
            self._turn()
            self._open.append(name)
            try:
                return call(*args, **how)
            finally:
                self._turn()
                self._open.pop()

        return timed

    def text(self) -> str:
        """The shares, the largest first."""
        whole = sum(self.seconds.values())
        each = sorted(self.seconds.items(), key=lambda pair: -pair[1])
        return ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in each if seconds >= 0.005 * whole)


def whole_run(preset: str, budget: int) -> tuple[int, float]:
    """(decisions, CPU seconds) of a run with its folder."""
    with tempfile.TemporaryDirectory() as place:
        begin = time.process_time()
        made = train_run(os.path.join(place, "run"), _settings(preset, budget)).spending()["decisions"]
        return made, time.process_time() - begin


def shares(preset: str, budget: int) -> str:
    """Where the time of such a run goes, in a run of its own: being asked costs time too."""
    with Shares() as found:
        whole_run(preset, budget)
    return found.text()


def plain_loop(preset: str, budget: int) -> tuple[int, float]:
    """(decisions, CPU seconds) of the rollouts and updates alone."""
    run, begin = Training(settings_of(_settings(preset, budget))), time.process_time()
    while not run.is_done:
        job = run.job(run.update, run.update, run.weights())
        run.learn([play(job.payload, job.weights)])
    return run.totals["decisions"], time.process_time() - begin


def whole_runs(*, quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A row per preset."""
    rows = []
    for preset in ("counterpoint",) if quick else ("grpo", "c3", "qmix", "sharp", "counterpoint"):
        whole, loop = whole_run(preset, 5_000 if quick else 40_000), plain_loop(preset, 5_000 if quick else 40_000)
        say(f"whole run of {preset}: {whole[1]:.1f} CPU s for {whole[0]:,} decisions; the loop alone {loop[1]:.1f} CPU s")
        say(f"  of it {shares(preset, 5_000 if quick else 40_000)}")
        name = f"whole run, {preset} (CPU time; peer: its loop alone)"
        made = row(name, whole[0] / whole[1], loop[0] / loop[1], "decisions/s", is_rate=True)
        rows.append(made | {"target": f">= {WHOLE:,} decisions/s", "ok": made["ours"] >= WHOLE})
    return rows


def rate(work: Callable[[int], int], count: int, clock: Callable[[], float]) -> float:
    """Decisions per second."""
    begin = clock()
    made = work(count)
    return made / (clock() - begin)


def measure(*, quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Candidates take turns after a warm-up; medians are compared."""
    warm, turns, some = (7, 2, 2) if quick else (12, 5, 4)
    here = {"shipped": Ours(24, "counterpoint", "here"), "wide": Ours(192, "training:wide", "here")}
    for run in here.values():
        run.updates(warm)
        run.played_s = run.learned_s = 0.0
    since = {name: run.run.totals["decisions"] for name, run in here.items()}
    agents = max(1, round(here["shipped"].agents))
    per_update = here["shipped"].run.totals["decisions"] // warm
    peer = Peer(agents, per_update)
    say(f"{agents} agents, about {per_update:,} decisions an update ({peer.steps} steps of {COPIES} copies)")
    say(f"load {os.getloadavg()[0]:.1f} at the start, on {os.cpu_count()} cores")
    work = {name: run.updates for name, run in here.items()} | {"peer": peer.updates}
    peer.updates(1)
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(turns):
        for name, call in work.items():
            found[name].append(rate(call, some if name != "wide" else max(1, some // 2), time.process_time))
    cpu = {name: statistics.median(rates) for name, rates in found.items()}
    wall = {}
    for name, (episodes, preset) in {"shipped": (24, "counterpoint"), "wide": (192, "training:wide")}.items():
        run = Ours(episodes, preset, "processes", staleness=1)
        try:
            run.updates(warm)
            wall[name] = statistics.median(rate(run.updates, some, time.perf_counter) for _ in range(turns))
        finally:
            run.engine.close()
    say(f"load {os.getloadavg()[0]:.1f} at the end")
    unit = "decisions/s"
    made = {name: run.run.totals["decisions"] - since[name] for name, run in here.items()}
    # two cores share rollouts and updates, and the updates themselves are one process
    two = {n: made[n] / max(r.learned_s, (r.learned_s + r.played_s) / 2) for n, r in here.items()}
    return [
        row("one process, 24 episodes an update (CPU time)", cpu["shipped"], cpu["peer"], unit, is_rate=True),
        row("one process, 192 episodes an update (CPU time)", cpu["wide"], cpu["peer"], unit, is_rate=True),
        row("two cores, if nothing waits, 24 episodes an update (from CPU time)", two["shipped"], None, unit),
        row("two cores, if nothing waits, 192 episodes an update (from CPU time)", two["wide"], None, unit),
        _goal("two worker processes, 24 episodes an update (wall)", wall["shipped"], unit),
        _goal("two worker processes, 192 episodes an update (wall)", wall["wide"], unit),
        *whole_runs(quick=quick, say=say),
    ]


def _goal(name: str, ours: float, unit: str) -> dict[str, Any]:
    """A row with a least rate instead of a peer."""
    return row(name, ours, None, unit) | {"target": f">= {TARGET:,} {unit}", "ok": ours >= TARGET}


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    if any(os.environ.get(name) != "1" for name in THREADS):  # these are read when numpy is loaded
        os.environ.update(dict.fromkeys(THREADS, "1"))
        os.execv(sys.executable, [sys.executable, *sys.argv])
    rows = measure(quick=asked.quick, say=(lambda text: None) if asked.json else print)
    report("Training on W1, 64 questions (median of turns)", rows, as_json=asked.json)


if __name__ == "__main__":
    main()
