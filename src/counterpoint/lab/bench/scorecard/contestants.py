"""Who is measured: a policy, a trained run, a topology with a model, or code of your own, named in one word.

    policy:reference      a hand-made policy of the worlds
    run:FOLDER            what `counterpoint train` left: a network plays worlds, a language model plays tasks
    topology:centralized  a team of models on tasks; --model says of which
    package.module:team   your own (also my/file.py:team): called with a `Job`, gives the answer; what it records counts

Always true: a contestant that cannot play a cell says so, and the cell is left out of its card; it never sees a seed, a truth or
a world's state. Code of your own runs in a process of its own, and asks for tools through a pipe: the answer key is not there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

import counterpoint.registry as registry
from counterpoint.errors import CounterpointError, InputError, NotFound, Refused, did_you_mean, install
from counterpoint.lab.bench.scorecard.cells import Cell
from counterpoint.lab.bench.scorecard.own_cases import OwnCase
from counterpoint.lab.bench.scorecard.own_code import OwnRun, own_team, play_own
from counterpoint.lab.bench.scorecard.scorer import ScorerError
from counterpoint.lab.bench.scorecard.team_code import TeamCode, code_of, weights_of
from counterpoint.lab.tasks.packages.world_task import score_of
from counterpoint.lab.tasks.task import Instance, Score, task
from counterpoint.lab.team.gates import gate_names
from counterpoint.lab.team.job import takes
from counterpoint.lab.team.session import TURNS, Spec, assemble, make_model, play_to_trace, played_in
from counterpoint.lab.team.state import Limits
from counterpoint.lab.worlds.packages import trusts
from counterpoint.lab.worlds.world import world
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder, WallClock
from counterpoint.trace import Trace

KINDS = ("policy", "run", "topology")
_PACKAGE_PLAYERS = {"by_hand": "fake:1", "random": "fake:0"}
"""Policies in worlds of packages, by the test doubles that play them."""


@dataclass(frozen=True)
class Caps:
    """What a team may use up in one run before it is stopped."""

    seconds: float = 3_600.0
    """Of the clock; for code of your own."""
    tool_calls: int = 100_000
    events: int = 200_000


@dataclass(frozen=True)
class Attempt:
    """What came of one run."""

    trace: Trace | None
    status: str = "played"
    """played, crashed, hung, flooded, or stopped by a limit."""
    why: str = ""
    tool_calls: int | None = None
    """As the bench counted them, where it did."""


class Contestant(Protocol):
    """A team that can be measured."""

    @property
    def name(self) -> str:
        """As cards call it."""

    def plays(self, cell: Cell) -> bool:
        """Whether it can."""

    def play(self, cell: Cell, seed: int, caps: Caps) -> Attempt:
        """One run."""

    def about(self) -> dict[str, Any]:
        """What it is, for the card."""

    def code(self) -> TeamCode:
        """What it is made of now, beside this version: rows of other code are not its results."""


@dataclass(frozen=True)
class PolicyTeam:
    """A policy in worlds: hand-made by name, or learned."""

    name: str
    policy: Any
    gates: tuple[str, ...] = ()
    told: Mapping[str, Any] = field(default_factory=dict)
    made: TeamCode = field(default_factory=TeamCode)

    def plays(self, cell: Cell) -> bool:
        """Worlds that know it; of those of packages, the player by hand and a random one play."""
        if cell.is_package:
            return not isinstance(self.policy, str) or self.policy in _PACKAGE_PLAYERS
        if cell.kind != "world":
            return False
        return not isinstance(self.policy, str) or self.policy in cell.make().policies()

    def play(self, cell: Cell, seed: int, caps: Caps) -> Attempt:
        """One episode, logged."""
        if cell.is_package and not isinstance(self.policy, str):
            return Attempt(_measured(world(cell.name).run(self.policy, [seed], log=True).trace(0), cell, seed))
        if cell.is_package:
            options = {"explore": 0.0}
            return ModelTeam(self.name, TURNS, _PACKAGE_PLAYERS[self.policy], options, self.gates).play(cell, seed, caps)
        place = cell.make()
        runs = (place.replace(gates=",".join(self.gates)) if self.gates else place).run(self.policy, [seed], log=True)
        return Attempt(runs.trace(0))

    def about(self) -> dict[str, Any]:
        """The policy."""
        return {"team": self.name, "kind": "policy", **({"gates": list(self.gates)} if self.gates else {}), **self.told}

    def code(self) -> TeamCode:
        """As it was loaded: it plays in this process."""
        return self.made


def _measured(trace: Trace, cell: Cell, seed: int) -> Trace:
    """The trace of a network in a package's world, with what the package says of the same actions."""
    acts = iter([trace.text(e) or "" for e in trace.events if e.options])
    episode = cell.make().episode(seed)
    while turn := episode.turn():
        episode.step({agent: next(acts) for agent in turn})
    score = score_of(episode)
    metrics = {"task_success": float(score.is_solved)} | {f"task_{k}": float(v) for k, v in score.parts.items()}
    return msgspec.structs.replace(trace, rewards={"team": score.value}, metrics=metrics)


@dataclass(frozen=True)
class ModelTeam:
    """A topology with a model, on text tasks."""

    name: str
    topology: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    gates: tuple[str, ...] = ()
    told: Mapping[str, Any] = field(default_factory=dict)
    harness: str = "text"
    made: TeamCode = field(default_factory=TeamCode)

    def plays(self, cell: Cell) -> bool:
        """Text tasks."""
        return cell.kind == "text"

    def play(self, cell: Cell, seed: int, caps: Caps) -> Attempt:
        """One team, recorded in memory."""
        task = cell.make()
        dials = {**cell.set, **cell.dials()}
        limits = Limits.of({**cell.limits})
        topology, style = played_in(task, self.topology, self.harness)
        spec = Spec(
            task=task.name, config=dials, seed=seed, topology=topology, model=self.model, options=self.options,
            limits=limits, gates=self.gates, harness=style,
        )  # fmt: skip
        sink, model = MemorySink(), make_model(self.model, task, **self.options)
        clock = LogicalClock() if getattr(model, "is_instant", False) else WallClock()
        team = assemble(spec, task, task.instance(seed), model, Recorder(sink, clock))
        trace = asyncio.run(_closing(play_to_trace(team, spec, sink, trace_id=f"{cell.id}-{seed}"), model))
        ended = str(trace.meta.get("ended", "stopped"))
        return Attempt(trace, "played" if ended == "stopped" else ended, str(trace.meta.get("why", "")))

    def about(self) -> dict[str, Any]:
        """Topology and model; options that may be an address are left out."""
        shown = {k: v for k, v in self.options.items() if k != "base_url"}
        told = {"topology": self.topology, "model": self.model, "options": shown, "gates": list(self.gates), **self.told}
        return {"team": self.name, "kind": "topology", **told}

    def code(self) -> TeamCode:
        """As it was loaded: it plays in this process."""
        return self.made


async def _closing(running: Any, model: Any) -> Trace:
    try:
        trace: Trace = await running
        return trace
    finally:
        await model.close()


@dataclass(frozen=True)
class OwnTeam:
    """A user's code, in a process of its own."""

    name: str

    def plays(self, cell: Cell) -> bool:
        """Text tasks, and cases of your own; a world of a package asks a model (`--model package.module:factory`)."""
        return cell.kind != "world" and not cell.is_package

    def play(self, cell: Cell, seed: int, caps: Caps) -> Attempt:
        """One run; whatever it does, the bench goes on."""
        task = cell.make()
        instance: Instance = task.instance(seed)
        got = play_own(
            self.name, instance, f"{cell.id}-{seed}", seconds=caps.seconds, calls=caps.tool_calls, events=caps.events,
            case=task.visible() if isinstance(task, OwnCase) else None,
        )  # fmt: skip
        if got.trace is None:
            return Attempt(None, got.status, got.why, got.tool_calls)
        if isinstance(task, OwnCase):
            score = _judged(task, instance, got, caps.seconds)
        else:
            score = task.check(instance, got.answer)
        metrics = {"task_success": float(score.is_solved)} | {f"task_{k}": float(v) for k, v in score.parts.items()}
        named = f"{task.name}/{cell.id}/{seed}"
        trace = msgspec.structs.replace(got.trace, rewards={"team": score.value}, metrics=metrics, task_id=named)
        return Attempt(trace, got.status, got.why, got.tool_calls)

    def about(self) -> dict[str, Any]:
        """Where the code is."""
        return {"team": self.name, "kind": "own code"}

    def code(self) -> TeamCode:
        """Its source as it is now, with what that imports: each run loads it anew."""
        return code_of(self.name)


def _judged(case: OwnCase, instance: Instance, got: OwnRun, seconds: float) -> Score:
    """What a run of a case of your own is worth; `got` says what went wrong. One without an answer is worth nothing."""
    score = Score(0.0, False)
    if got.status == "played":
        try:
            score = case.check(instance, got.answer, seconds=seconds)
            got.why = case.remark(got, score)
        except ScorerError as error:
            got.status, got.why = error.status, error.what
    return score


def contestant(
    team: str, *, model: str | None = None, options: Mapping[str, Any] | None = None, gates: Sequence[str] = ()
) -> Contestant:
    """A team by what the command line calls it; what cannot be found is one clear error before anything is played."""
    chosen = gate_names(gates)
    found = _contestant(team, model, options or {}, chosen)
    if chosen and not isinstance(found, ModelTeam | PolicyTeam):
        raise InputError(
            f"{team} has no gates", where="--gate", fix="policy:NAME, topology:NAME, or a run; your code has its own"
        )
    return found


def _contestant(team: str, model: str | None, options: Mapping[str, Any], gates: tuple[str, ...]) -> Contestant:
    kind, _, rest = team.partition(":")
    if kind == "policy" and rest:
        made = code_of(rest)
        return PolicyTeam(_gated(team, gates), _policy(rest), gates, made=made)
    if kind == "run" and rest:
        return _trained(Path(rest), team, options, gates)
    if kind == "topology" and rest:
        if ":" not in rest and rest not in registry.ids("topology"):
            raise NotFound(f"no topology named {rest!r}", where="--team", fix=did_you_mean(rest, registry.ids("topology")))
        made = code_of(rest, *([model] if model and model.partition(":")[0] not in registry.ids("model") else []))
        asyncio.run(make_model(model or "fake", task("T1"), **options).close())
        return ModelTeam(_gated(f"{rest} {model or 'fake'}", gates), rest, model or "fake", options, gates, made=made)
    if ":" in team:
        function = own_team(team)
        if not callable(function) or not takes(function, 1):
            what = "takes other arguments than a job" if callable(function) else "is not a function"
            raise InputError(f"{team} {what}", where="--team", fix="def team(job), or def team(question: str)")
        return OwnTeam(team)
    fix = "policy:NAME, run:FOLDER, topology:NAME with --model, package.module:function, or file.py:function"
    raise NotFound(f"no team named {team!r}", where="--team", fix=fix)


def _gated(name: str, gates: Sequence[str]) -> str:
    """A team's name with its gates."""
    return " ".join([name, *(f"+{gate}" for gate in gates)])


def _policy(name: str) -> Any:
    known = sorted({p for id_ in ("W1", "W2", "D", "P", "V", "A", "M") for p in world(id_).policies()})
    if name in known or name in _PACKAGE_PLAYERS:
        return name
    if ":" in name:
        return registry.get("policy", name)
    raise NotFound(f"no policy named {name!r}", where="--team", fix=did_you_mean(name, known))


def _trained(folder: Path, team: str, options: Mapping[str, Any], gates: tuple[str, ...]) -> Contestant:
    if not (folder / "about.json").is_file():
        raise NotFound("no run is here", where=str(folder), fix="the folder that `counterpoint train` names")
    about = json.loads((folder / "about.json").read_bytes())
    made = weights_of(folder)
    told = {"run": folder.name, "run_version": (about.get("versions") or {}).get("counterpoint")}
    if about.get("kind") == "language model":
        played: Mapping[str, Any] = next(iter((about.get("world_config") or {}).get("tasks") or ()), {})  # as it was trained
        topology, harness = str(played.get("topology", "centralized")), str(played.get("harness", "text"))
        registry.check_consent([topology], (), where=str(folder))
        return ModelTeam(_gated(team, gates), topology, f"local:{folder}", options, gates, told, harness, made)
    # its code would have to run, and what learned there plays no cell
    if ":" in str(about.get("world")) and not trusts(str(about["world"])):
        what = f"the run learned in {about['world']}, a world of your own, and the bench plays its own"
        raise Refused(what, where=str(folder), fix="its evals.jsonl has every held-out evaluation; counterpoint compare runs")
    try:
        from counterpoint.lab.train.evaluate import policy_of
        from counterpoint.lab.train.folder import RunFolder
    except ImportError as error:  # pragma: no cover
        raise CounterpointError("a trained network needs torch", fix=install("train")) from error
    return PolicyTeam(_gated(team, gates), policy_of(RunFolder.open(folder)), gates, told, made)
