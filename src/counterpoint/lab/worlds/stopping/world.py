"""`StoppingWorld`: one of the stopping worlds as an environment plug-in, with paths to learn from, traces and forks.

Always true: an episode is a function of (world, policy, seed, edits). `run` and `trace` decide with the same keyed coins, so a
logged episode is the episode that was counted. A fork is the same episode written again with one more edit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from counterpoint.errors import InputError, NotFound, NotIdentified, Refused, did_you_mean
from counterpoint.guard.stop_paths import FEATURES
from counterpoint.lab.worlds.stopping import optimum as next_round
from counterpoint.lab.worlds.stopping.config import Config
from counterpoint.lab.worlds.stopping.optimum import Solution, solve
from counterpoint.lab.worlds.stopping.policies import BY_HAND, NAMES, chances, label, rule, stops
from counterpoint.lab.worlds.stopping.sample import Paths, increments, paths_of
from counterpoint.lab.worlds.stopping.traces import LEAD, Episode, StoppingScript, edit_of, worker_of, write
from counterpoint.lab.worlds.world import Optimum, Runs, changed
from counterpoint.trace import Trace, content_ref
from counterpoint.trace.replay import Do

_SILENT = MappingProxyType(
    {
        "spawn": "One worker is always there, and none can be added.",
        "delegate": "There is one task and one worker to give it to.",
        "communicate": "Every result is reported, at no price.",
        "aggregate": "The draft is put together by a fixed rule from all that was delivered.",
    }
)


@dataclass(frozen=True)
class StoppingWorld:
    """A team that works in rounds, and one decision: when to stop."""

    name: str
    short: str
    config: Config
    version: str = "1"

    @property
    def silent(self) -> Mapping[str, str]:
        """Everything but the stop."""
        return _SILENT

    def replace(self, **changes: Any) -> StoppingWorld:
        """The same world with other parameters."""
        return dataclasses.replace(self, config=changed(self.config, changes))

    def policies(self) -> list[str]:
        """The rules that can be named; `cap:7` and `patience:3` can, too."""
        return list(NAMES)

    def solution(self) -> Solution:
        """The world solved: optimal rule as a table, best cap, prophet."""
        return solve(self.config)

    def optimum(self) -> Optimum:
        """J* and the prophet, both exact."""
        solved = self.solution()
        return Optimum(
            value=solved.value,
            kind="exact",
            over="every rule that sees only what was delivered so far",
            how="backward induction over the sufficient state; prophet over the running maximum",
            prophet=solved.prophet,
        )

    def paths(self, seeds: Sequence[int] | np.ndarray) -> Paths:
        """Payoffs and features at every checkpoint, as forced continuation would show them: what stop learners train on."""
        numbers = _seeds(seeds)
        return paths_of(self.config, numbers, increments(self.config, [(0, numbers)]))

    def ahead(self, t: int, features: np.ndarray, draws: int, seed: int) -> np.ndarray:
        """(E, draws, d) what checkpoint t + 1 may show, given features (E, d) at t and nothing hidden; drawn by the seed."""
        rng = np.random.default_rng([int(_seeds([seed])[0]), t])
        return next_round.ahead(self.config, t, features, draws, rng)

    def observed_scores(self, features: np.ndarray) -> np.ndarray:
        """E[Y_t | what was observed] for features (..., d)."""
        return next_round.observed_scores(self.config, features)

    def regret(self, features: np.ndarray, times: np.ndarray) -> np.ndarray:
        """(E,) expected points that stopping features (E, H+1, d) at these checkpoints loses to the optimal rule, exactly."""
        return next_round.regret(self.config, features, times)

    def run(self, policy: Any, seeds: Sequence[int] | np.ndarray, *, log: bool = False) -> Runs:
        """Play one episode per seed; a policy is a name or a function (round, features (E, d)) to (E,) booleans or chances."""
        decide, paths = rule(self.config, policy), self.paths(seeds)
        at = np.argmax(stops(paths.seeds[:, None], chances(decide, paths)), axis=1)
        each = np.arange(len(at))
        return Runs(
            seeds=paths.seeds,
            values=paths.payoffs[each, at],
            columns={"rounds": at, "evidence": paths.features[each, at, 1]},
            make_trace=(lambda i: self.trace(int(paths.seeds[i]), policy, forced=False)) if log else None,
        )

    def env(self) -> StoppingEnv:
        """A single environment to step by hand."""
        return StoppingEnv(self)

    def trace(
        self,
        seed: int,
        policy: Any = "optimum",
        *,
        forced: bool = True,
        edits: Sequence[Mapping[str, Any]] = (),
        open_at: int | None = None,
    ) -> Trace:
        """The trace of an episode; with `forced`, stop intentions are logged and the rounds go on to the horizon.

        `edits` are what forks did (`traces.edit_of`); `open_at` is the checkpoint where an unfinished episode stands.
        """
        _seeds([seed])
        script = StoppingScript(self.config, seed, list(edits))
        paths = script.paths()
        chance = chances(rule(self.config, policy), paths)
        stop = stops(script.coin_seeds[None, :], chance)[0]
        for t, is_stop in script.forced.items():
            stop[t] = is_stop
        meta = {
            "world": self.name,
            "version": self.version,
            "config": _plain(self.config),
            "seed": seed,
            "policy": label(policy),
            "forced": forced,
            "edits": [dict(edit) for edit in edits],
        }
        if open_at is not None:
            meta["open_at"] = open_at
        digest = content_ref(repr(sorted(meta.items())))[7:15]
        named = label(policy).replace(" ", "-").replace(":", "-")
        episode = Episode(
            script=script,
            paths=paths,
            chance=chance[0],
            stop=stop,
            policy=label(policy),
            is_forced=forced,
            open_at=open_at,
            trace_id=f"{self.name}-{named}-{seed}-{digest}",
            task_id=f"{self.name}-{seed}",
            system="counterpoint stopping world",
            meta=meta,
        )
        return write(episode)

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None, *, policy: Any = None) -> Trace:
        """The trace that would have come about, had `do` been done at event `at`; `traces.edit_of` says what can be done where.

        A trace of a policy that has no name can be forked when the policy is given again.
        """
        meta = self._own(trace)
        if at not in trace.index:
            raise NotFound(f"no event {at!r} in trace {trace.trace_id}", fix=did_you_mean(at, trace.index))
        policy = policy if meta["policy"] == "given" else meta["policy"]
        if policy is None:
            raise NotIdentified(
                "the trace does not hold its policy, a function", "fork(..., policy=...) gives it again", where=at
            )
        edits = list(meta["edits"])
        again = self.trace(meta["seed"], policy, forced=meta["forced"], edits=edits)
        if [(e.id, e.content_ref) for e in again.events] != [(e.id, e.content_ref) for e in trace.events]:
            raise Refused(f"trace {trace.trace_id} is not what this world and policy give", fix="fork an unchanged trace")
        if do is not None or seed is not None:
            edits.append(edit_of(self.config, at, do, None if seed is None else int(_seeds([seed])[0])))
        return self.trace(meta["seed"], policy, forced=meta["forced"], edits=edits)

    def _own(self, trace: Trace) -> Mapping[str, Any]:
        """The trace's account of how it came about, if this world wrote it."""
        meta = trace.meta
        if meta.get("world") != self.name:
            raise InputError(f"trace {trace.trace_id} is of {meta.get('world', 'no world')}, not of {self.name}")
        if meta.get("version") != self.version:
            raise Refused(
                f"trace {trace.trace_id} is of version {meta.get('version')} of {self.name}, and this is {self.version}"
            )
        if meta.get("config") != _plain(self.config):
            raise Refused(
                f"trace {trace.trace_id} was played with other parameters",
                fix=f"{self.name}.replace(**trace.meta['config']) can fork it",
            )
        if "open_at" in meta:
            raise NotIdentified("the episode is unfinished", "play it to its end")
        return meta


def _plain(config: Config) -> dict[str, Any]:
    """The parameters as JSON knows them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(config).items()}


def _seeds(seeds: Sequence[int] | np.ndarray) -> np.ndarray:
    out = np.asarray(seeds)
    if out.ndim != 1 or (out.size and out.dtype.kind not in "iu") or (out.dtype == np.uint64 and (out >> 63).any()):
        raise InputError("seeds are whole numbers below 2^63", fix="range(1000), for one")
    return out.astype(np.int64)


# -- one episode by hand -----------------------------------------------------------------------------------------------


_STOP_CHANCE = 0.1  # of a sampled action


@dataclass(frozen=True)
class _Snapshot:
    world: StoppingWorld
    seed: int
    t: int
    is_over: bool


class StoppingEnv:
    """One episode by hand, after Gymnasium's habits: at every checkpoint, stop or go on.

    Rewards are differences of payoffs, so they sum to Y at the stop (Y_0 = 0); an observation is the row of features at this
    checkpoint, and nothing later. The episode ends by stopping or by reaching the horizon.
    """

    def __init__(self, world: StoppingWorld) -> None:
        self._world = world
        self._path: Paths | None = None
        self._seed, self._t, self._is_over = 0, 0, False

    @property
    def agents(self) -> list[str]:
        """The orchestrator, and its worker until the stop."""
        return [LEAD] if self._is_over else [LEAD, worker_of(self._world.config)[0]]

    def reset(self, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin the episode of this seed."""
        self._path, self._seed, self._t, self._is_over = self._world.paths([seed]), seed, 0, False
        return self.observe(), {"features": FEATURES}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Stop (True) or play one more round (False); `{"stop": ...}` says the same."""
        path, stop = self._playing(), self._read(action)
        if self._is_over:
            raise InputError("the episode is over", fix="reset(seed) begins another")
        before = path.payoffs[0, self._t]
        self._t += not stop
        self._is_over = stop or self._t == self._world.config.horizon
        return self.observe(), float(path.payoffs[0, self._t] - before), self._is_over, False, {"round": self._t}

    def observe(self) -> np.ndarray:
        """(d,) the features at this checkpoint."""
        return self._playing().features[0, self._t].copy()

    def sample(self, rng: np.random.Generator) -> bool:
        """Stop now and then."""
        return bool(rng.random() < _STOP_CHANCE)

    def snapshot(self) -> _Snapshot:
        """The whole state: the seed decides the rest."""
        self._playing()
        return _Snapshot(self._world, self._seed, self._t, self._is_over)

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot of this world."""
        if not isinstance(snapshot, _Snapshot):
            raise InputError(f"a {type(snapshot).__name__} is not a snapshot of a stopping world")
        if snapshot.world != self._world:
            raise Refused("the snapshot is of another world or of other parameters", fix="restore it where it was taken")
        self.reset(snapshot.seed)
        self._t, self._is_over = snapshot.t, snapshot.is_over

    def trace(self) -> Trace:
        """What has happened since `reset`; an unfinished episode has no decision yet at its last checkpoint."""
        self._playing()
        return self._world.trace(self._seed, f"{BY_HAND}:{self._t}", forced=False, open_at=None if self._is_over else self._t)

    def _playing(self) -> Paths:
        if self._path is None:
            raise InputError("no episode has begun", fix="reset(seed) begins one")
        return self._path

    @staticmethod
    def _read(action: Any) -> bool:
        if isinstance(action, Mapping) and set(action) == {"stop"}:
            action = action["stop"]
        if isinstance(action, bool | np.bool_):
            return bool(action)
        raise InputError(f"no action {action!r}", fix="True stops, False continues")
