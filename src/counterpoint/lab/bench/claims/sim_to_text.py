"""Do rankings in the simulator carry over to text? Topologies in TeamWorld and in matching tasks, with fakes.

Four pairs of a world and a task that ask for the same kind of work: W1 and T1 (wide search), V and T4 (votes and evidence), P and
T3 (a project of modules), D and T5 (a chain). In each, the six topologies are ranked by their mean share of the optimum: in the
world with the hand-made reference policy, in the task with teams of `fake:0.8`. The correlation is Spearman's over topologies;
the interval is over seeds, each of which plays tasks of its own.

Always true: no correlation is aimed at; what comes out is printed. Fakes are no language models: they err alike everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from counterpoint.display import tracked
from counterpoint.lab.bench.claim import ClaimRow, reported
from counterpoint.lab.bench.scorecard.cells import Cell
from counterpoint.lab.bench.scorecard.contestants import Caps, ModelTeam
from counterpoint.lab.worlds.teamworld.config import TOPOLOGIES
from counterpoint.lab.worlds.world import world
from counterpoint.trace import statistics

_RUNS = 6
_PAIRS = {
    "wide search (W1, T1)": ("W1", {"vote_items": 12}, "T1", {"documents": 24, "rows": 6, "parts": 4}),
    "votes (V, T4)": ("V", {"vote_items": 12}, "T4", {"claims": 6, "independents": 4, "clones": 2}),
    "project (P, T3)": ("P", {"node_modules": 2}, "T3", {"modules": 4}),
    "chain (D, T5)": ("D", {"chain_items": 2}, "T5", {"hops": 6, "parts": 3}),
}


def sim_to_text(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Six topologies ranked in four worlds and in the matching text tasks: rank correlation, whichever way it falls."""
    together: list[list[float]] = [[] for _ in range(seeds)]
    for name, (world_name, set_, task, dials) in _PAIRS.items():
        found = []
        for one in tracked(range(seeds), f"seeds of {name}"):
            first = (seed + one) * 1_000
            a = [_in_world(world_name, set_, topology, first) for topology in TOPOLOGIES]
            b = [_in_text(task, dials, topology, first) for topology in TOPOLOGIES]
            found.append(spearman(a, b))
            together[one].append(found[-1])
        yield reported(f"{name}: rank correlation over topologies", found)
    yield reported("all four: mean rank correlation", [float(np.mean(x)) for x in together])


def spearman(a: list[float], b: list[float]) -> float:
    """Spearman's rank correlation, ties with the mean of their ranks; 0 where one side is all ties."""
    return statistics.spearman(a, b) or 0.0


def _in_world(name: str, set_: dict[str, int], topology: str, first: int) -> float:
    made = world(name).replace(topology=topology, **set_)
    return float(made.run("reference", list(range(first, first + _RUNS))).values.mean())


def _in_text(task: str, dials: dict[str, int], topology: str, first: int) -> float:
    team = ModelTeam(topology, topology, "fake:0.8")
    cell = Cell(id=task, kind="text", band=100, name=task, set=dials)
    played = (team.play(cell, first + i, Caps()).trace for i in range(_RUNS))
    return float(np.mean([t.rewards["team"] for t in played if t is not None]))
