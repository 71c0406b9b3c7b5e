"""The decisive step by forks: planted mistakes of live teams and worlds, found by halving, against trying all.

The decisive step is the last one from which the team, going on as it would, still succeeds. A ranker that has seen planted
mistakes of other seeds says where to look first; the forks it takes are counted, and so are those of trying every step, with the
same draws. Teams of fakes of full skill fail by the planted mistake alone, so the step is known twice: by planting and by trying
all. Teams of less skill fail by themselves; there only trying all is the truth.

Always true: the search sees outcomes of forks and nothing else of what was planted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from counterpoint.audits.blame.ranker import shape_of, shipped, table
from counterpoint.audits.blame.search import Redo, find_decisive, try_all
from counterpoint.audits.blame.steps import Steps
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.blame_cases import SMALL_TEAMS, planted, team_run
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most, reported
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec
from counterpoint.lab.team.state import Limits
from counterpoint.lab.worlds.world import world
from counterpoint.trace import Trace
from counterpoint.trace.mistake import mistake_of

_SHARE = 0.2
_LONG = 20
"""Runs with fewer steps than this are reported apart: a fifth of them is fewer forks than any search needs."""


def blame_replay(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The decisive step by forks against trying all: the same step, with at most a fifth of the forks."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    rows: dict[str, list[list[tuple[float, float, float, int]]]] = {
        "live teams": [],
        "simulated worlds": [],
        "failures of their own": [],
    }
    even: list[float] = []
    for s in tracked(range(seed, seed + seeds), "seeds"):
        found: dict[str, list[tuple[float, float, float, int]]] = {name: [] for name in rows}
        for known in planted(s + 7_000, teams=1, worlds=1, of=SMALL_TEAMS):
            is_live = "team" in known.trace.meta
            bar = float(known.trace.meta["planted_mistake"]["reward_without"])
            told = _held(known.trace, LiveReplay() if is_live else world(known.world), bar, even)
            found["live teams" if is_live else "simulated worlds"].append(told)
        found["failures of their own"] = [_held(t, LiveReplay(), 1.0, even) for t in _own_failures(s)]
        for name, some in found.items():
            rows[name].append(some)
    for name, by_seed in rows.items():
        yield from _rows(name, by_seed)
    yield reported("forks without a ranker, as a share of trying all", even)


def _rows(name: str, by_seed: Sequence[Sequence[tuple[float, float, float, int]]]) -> Iterator[ClaimRow]:
    every = [[r for r in some if r[3] >= _LONG] for some in by_seed]
    able = [some for some in every if some]
    if not able:
        return
    count = sum(map(len, able))
    is_own = name == "failures of their own"
    judge = reported if is_own else lambda n, v: at_least(n, v, 1.0)
    yield judge(f"{name} ({count} runs): the step that trying all finds", [float(np.mean([r[0] for r in some])) for some in able])
    if not is_own:
        yield reported(f"{name}: the step where the mistake was planted", [float(np.mean([r[1] for r in some])) for some in able])
    shares = [float(np.mean([r[2] for r in some])) for some in able]
    yield at_most(f"{name}: forks, as a share of trying all", shares, _SHARE)
    short = [r[2] for some in by_seed for r in some if r[3] < _LONG]
    if short:
        yield reported(f"{name}: the same, runs of fewer than {_LONG} steps", short)


def _held(trace: Trace, replay: LiveReplay, bar: float, even: list[float]) -> tuple[float, float, float, int]:
    """Whether the search finds what trying all finds, whether that is where the mistake was planted, the share of forks, and the
    number of steps."""
    steps = Steps(trace)
    found = find_decisive(trace, Redo(trace, replay, bar=bar), _weights(steps), steps=steps)
    plain = Redo(trace, replay, bar=bar)
    find_decisive(trace, plain, np.ones(len(steps)), steps=steps)
    truth, forks = try_all(trace, Redo(trace, replay, bar=bar), steps=steps)
    mistake = mistake_of(trace)
    even.append(plain.forks / forks)
    return (
        float(found.event == truth),
        float(mistake is not None and found.event == mistake.event),
        found.forks / forks,
        len(steps),
    )


def _weights(steps: Steps) -> np.ndarray:
    ranker = shipped(shape_of(steps))
    return ranker.probabilities(table(steps, ranker.names))


def _own_failures(seed: int) -> Iterator[Trace]:
    """Runs of teams that are not perfect, of which some fail by themselves."""
    for task, topology, config in SMALL_TEAMS:
        spec = Spec(
            task=task,
            config=config,
            seed=seed + 31,
            topology=topology,
            model="fake:0.95",
            options={"explore": 0.0},
            limits=Limits(width=3),
        )
        trace = team_run(spec)
        if trace.rewards["team"] < 1:
            yield trace
