"""A simulation of one run on 1 to 1,000 nodes, on costs that were measured on this machine: where it stops to grow, and why.

A discrete-event simulation of what the Ray runner does. One driver gives out jobs and takes answers, one after another, each for
`job_ms` of its time. Every node fetches a version of the weights once; nodes that have it pass it on, so that the time grows with
log2 of their number. A job is played for as long as its episodes take, times a factor drawn from a lognormal distribution of
`spread`. An update needs one job of every worker and takes `learn_ms` of the driver's machine for every episode (0: nothing is
learned, data is made). With a staleness of 1 the next jobs are played meanwhile. A node fails once in `mtbf_days`; its jobs are
played again elsewhere, and it is back after `replace_s`. What the simulation does not have: a network that is shared with others,
an object store that is full, a scheduler that is slow at 1,000 nodes, and the start.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import random
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Costs:
    """What was measured (`ray_runner.py`, docs/lab/scale.md), and what is assumed."""

    episode_ms: float = 10.5
    """CPU of one episode: preset grpo, W1 with 8 items."""
    learn_ms: float = 10.5
    """CPU of learning from one episode."""
    job_ms: float = 1.6
    """Of the driver, for each job that it gives out and takes back."""
    version_ms: float = 22.0
    """Of the driver, for putting a version of the weights into the object store."""
    weights_mb: float = 0.2
    replace_s: float = 10.0
    """From the loss of a node to a job that runs again on another; Ray's own word for it came after 6 to 7 s."""
    # assumed
    workers_per_node: int = 8
    episodes_per_job: int = 24
    """Set by the kind of run."""
    spread: float = 0.3
    link_mb_s: float = 1250.0
    """10 Gbit/s."""
    hop_ms: float = 5.0
    mtbf_days: float = 30.0


@dataclass
class Found:
    """What came of a simulated run."""

    nodes: int
    episodes_per_s: float = 0.0
    played: float = 0.0
    """Share of the workers' time in which they played."""
    driver: float = 0.0
    """Share of the time in which the driver gave out, took back or learned."""
    lost: int = 0
    """Jobs that were played again."""


class Run:
    """One run on so many nodes."""

    def __init__(self, nodes: int, costs: Costs, *, staleness: int, learns: bool, seed: int = 0) -> None:
        self.c, self.rng = costs, random.Random(seed)
        self.nodes, self.workers = nodes, nodes * costs.workers_per_node
        self.staleness, self.learns = staleness, learns
        self.free = list(range(self.workers))
        """Workers without a job; the driver gives out in this order."""
        self.driver_at = self.driver_s = self.busy_s = 0.0
        self.lost = 0
        self.events: list[tuple[float, int, int, int]] = []
        """(time, order, worker, update of the job)."""
        self._order = itertools.count()

    def _driver(self, now: float, seconds: float) -> float:
        """The driver does something, when it has time for it; when that is done."""
        self.driver_at = max(self.driver_at, now) + seconds
        self.driver_s += seconds
        return self.driver_at

    def _weights_s(self) -> float:
        hops = math.ceil(math.log2(self.nodes + 1))
        return hops * (self.c.hop_ms / 1e3 + self.c.weights_mb / self.c.link_mb_s)

    def _play(self, worker: int, update: int, now: float) -> None:
        """A worker plays from now on; where its node fails meanwhile, the job is played again from the start."""
        c = self.c
        mean_s = c.episodes_per_job * c.episode_ms / 1e3
        took = mean_s * self.rng.lognormvariate(-(c.spread**2) / 2, c.spread)
        end = now + took
        while self.rng.random() < 1 - math.exp(-took / (c.mtbf_days * 86400)):
            self.lost += 1
            end += c.replace_s + took * self.rng.random()
        self.busy_s += took
        heapq.heappush(self.events, (end, next(self._order), worker, update))

    def go(self, updates: int) -> Found:
        """Play and learn so many updates, each of one job for every worker."""
        c, now = self.c, 0.0
        launched = done = 0
        here = [0] * (updates + self.staleness + 1)
        ready = [0.0] * (updates + self.staleness + 1)
        """When the weights that an update is played with are everywhere."""
        limit = self.staleness + 1
        while done < updates:
            while self.free and launched < min(updates, done + limit) * self.workers:
                update = launched // self.workers
                given = self._driver(max(now, ready[update]), c.job_ms / 2e3)
                self._play(self.free.pop(), update, given)
                launched += 1
            now, _, worker, update = heapq.heappop(self.events)
            now = self._driver(now, c.job_ms / 2e3)
            self.free.append(worker)
            here[update] += 1
            while done < updates and here[done] == self.workers:
                episodes = self.workers * c.episodes_per_job
                now = self._driver(now, (c.learn_ms / 1e3 * episodes + c.version_ms / 1e3) if self.learns else 0.0)
                done += 1
                ready[min(done + self.staleness, updates)] = now + (self._weights_s() if self.learns else 0.0)
        total = max(now, self.driver_at)
        made = updates * self.workers * c.episodes_per_job
        return Found(self.nodes, made / total, self.busy_s / (self.workers * total), self.driver_s / total, self.lost)


@dataclass(frozen=True)
class Kind:
    """A kind of run: what its episodes cost, and whether anything is learned from them."""

    name: str
    episode_ms: float
    """0: as measured."""
    episodes_per_job: int
    staleness: int
    learns: bool


KINDS = (
    Kind("simulator, data is made", 0.0, 480, 1, False),
    Kind("simulator, learning", 0.0, 24, 1, True),
    Kind("episodes of 10 s, data", 10_000.0, 4, 1, False),
    Kind("episodes of 10 s, learning, staleness 0", 10_000.0, 4, 0, True),
    Kind("episodes of 10 s, learning, staleness 1", 10_000.0, 4, 1, True),
)


def table(costs: Costs, nodes: list[int], updates: int) -> list[dict[str, Any]]:
    """A row for every kind of run and number of nodes."""
    out = []
    for kind in KINDS:
        own = replace(costs, episode_ms=kind.episode_ms or costs.episode_ms, episodes_per_job=kind.episodes_per_job)
        for n in nodes:
            found = Run(n, own, staleness=kind.staleness, learns=kind.learns).go(updates)
            limit = "driver" if found.driver > 0.9 else "workers" if found.played > 0.9 else "the last jobs of an update"
            out.append({"run": kind.name, **vars(found), "limit": limit})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer nodes and updates")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    for name, value in vars(Costs()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, metavar=f"{value:g}")
    given = parser.parse_args()
    costs = replace(Costs(), **{name: getattr(given, name) for name in vars(Costs())})
    rows = table(costs, [1, 10, 100] if given.quick else [1, 3, 10, 30, 100, 300, 1000], 4 if given.quick else 10)
    if given.json:
        print(json.dumps(rows))
        return
    print(f"{costs.workers_per_node} workers on each node; a node fails once in {costs.mtbf_days:g} days")
    for r in rows:
        print(
            f"{r['run']:<42}{r['nodes']:>6} nodes {r['episodes_per_s']:>12,.0f} episodes/s   played {r['played']:>5.0%}"
            f"   driver {r['driver']:>5.0%}   again {r['lost']:>4}   limit: {r['limit']}"
        )


if __name__ == "__main__":
    main()
