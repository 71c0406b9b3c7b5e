"""Running a team: from a `Spec` (plain data that a trace carries) to a recorded, scored and sealed trace.

Always true: what a spec says is enough to run the same team again, except keys and money; the trace has it in `meta.team`. A
run that is killed leaves its journal; `resume` runs the same program again, is answered by the recording as far as that goes,
and writes on where it broke off. A run that ends badly (a stop, a spent budget, a model that is down) is still scored with what
it has, and says in `meta` how it ended.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import counterpoint.registry as registry
from counterpoint.errors import InputError, NotFound, Refused, did_you_mean
from counterpoint.guard.limits import GuardLimits
from counterpoint.lab.lm.budget import Budget, Meter, Metered, Spending
from counterpoint.lab.lm.endpoint.address import public_url
from counterpoint.lab.lm.model import BudgetExhausted, Model
from counterpoint.lab.tasks.packages.world_task import WorldTask
from counterpoint.lab.tasks.task import Instance, Score, TextTask
from counterpoint.lab.tasks.task import task as find_task
from counterpoint.lab.team.agent import Team
from counterpoint.lab.team.edits import Edits
from counterpoint.lab.team.gates import Gate, check_gates
from counterpoint.lab.team.harness import Harness, harness
from counterpoint.lab.team.memory import Memory
from counterpoint.lab.team.pace import Paced
from counterpoint.lab.team.state import AgentState, AgentStopped, Limits
from counterpoint.lab.team.toolbox import Toolbox
from counterpoint.lab.team.topology import Topology
from counterpoint.lab.worlds.packages import trusts
from counterpoint.recorder.control import Control, FileControl, NoControl
from counterpoint.recorder.live_guard import GuardedControl, LiveGuard
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder, WallClock
from counterpoint.trace import Trace, summed_costs
from counterpoint.trace.line_records import OPEN_EVENTS, UNFINISHED
from counterpoint.trace.vocabulary import TOPOLOGIES

if TYPE_CHECKING:  # a rollout of a team loads no store
    from counterpoint.store import Store

_SYSTEM = "counterpoint team"
TURNS = "turns"
"""The topology in which worlds of packages are played."""
DRAWS = "draws"
"""In a trace's meta: the seed of its draws, where that is not the spec's."""
Watch = Callable[[str, AgentState, Mapping[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One team and its task, as plain data."""

    task: str
    """The task's id."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Dials of the task that differ from its defaults."""
    seed: int = 0
    """Of the instance and of every draw."""
    topology: str = "centralized"
    model: str = "fake"
    """As on the command line: `fake:0.9`, `openai:NAME`, `local:NAME`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the model: base_url, concurrency, and the like; never a key."""
    harness: str = "text"
    limits: Limits = field(default_factory=Limits)
    tools: Mapping[str, Any] = field(default_factory=dict)
    """Tools beside the task's, each with its options; for every role that works."""
    gates: tuple[str, ...] = ()
    """What keeps orders in outside text from agents: names in `gates.GATES`."""

    def __post_init__(self) -> None:
        check_gates(self.gates)

    def as_meta(self) -> dict[str, Any]:
        """What a trace carries."""
        options = dict(self.options)
        if isinstance(options.get("base_url"), str):
            options["base_url"] = public_url(options["base_url"])  # without a password or a query, which may be one
        out = asdict(self) | {"limits": self.limits.as_dict(), "options": options}
        del out["gates"]
        out |= {"gates": list(self.gates)} if self.gates else {}  # without any, as traces had it before there were gates
        return {k: dict(v) if isinstance(v, Mapping) else v for k, v in out.items()}

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Spec:
        """A spec from a trace's meta, of the types that it should have; whose code it names is another question."""
        try:
            found = cls(**{**meta, "limits": Limits.of(dict(meta["limits"])), "gates": tuple(meta.get("gates", ()))})
        except (TypeError, KeyError, ValueError) as error:
            raise InputError(f"the trace's team cannot be read: {error}", fix="a trace of `counterpoint play`") from None
        texts = (found.task, found.topology, found.model, found.harness)
        tables = (found.config, found.options, found.tools, *(found.tools.values() if isinstance(found.tools, Mapping) else ()))
        if not all(isinstance(t, str) for t in texts) or not all(isinstance(t, Mapping) for t in tables):
            raise InputError("the trace's team cannot be read: a name is not text", fix="a trace of `counterpoint play`")
        return found

    def outside(self) -> list[str]:
        """What of this is code from outside the package: `"package.module:object"`."""
        is_ours = self.model.partition(":")[0] in registry.ids("model")
        task = [] if trusts(self.task) else [self.task]
        return [n for n in (*task, self.topology, *self.tools, *([] if is_ours else [self.model])) if ":" in n]

    def check_consent(self, allow: Collection[str], *, where: str, with_model: bool = True, is_fork: bool = False) -> None:
        """Raise `Refused` where this, read out of a file, would run what nobody has allowed: code from outside the package, or
        a tool with an option that takes away its protection or says where it writes (a fork holds what cannot be undone)."""
        named = self.outside()
        registry.check_consent([n for n in named if with_model or n != self.model], allow, where=where)
        for id_, options in self.tools.items():
            made = None if ":" in id_ else registry.get("tool", id_)
            is_held = is_fork and getattr(made, "effect", None) == "irreversible"
            for option in () if is_held else getattr(made, "guarded", ()):
                if option in options and id_ not in allow:
                    what = f"gives the tool {id_} the option {option}: {options[option]!r}"
                    raise Refused(what, where=where, why="a file cannot give permission", fix=f"if you trust it: --allow {id_}")

    def make_task(self) -> TextTask:
        """The task with its dials."""
        found = find_task(self.task)
        return found.replace(**self.config) if self.config else found

    def make_topology(self) -> Topology:
        """The topology's program."""
        found = registry.get("topology", self.topology)
        if not isinstance(found, Topology):
            raise InputError(f"{self.topology!r} is not a topology", fix=did_you_mean(self.topology, registry.ids("topology")))
        return found


def played_in(task: TextTask, topology: str = "centralized", style: str = "text") -> tuple[str, str]:
    """Topology and harness in which a task is played: in a world of a package agents take turns and write bare actions.

    A world with one agent is solved in any topology, as one question.
    """
    if not isinstance(task, WorldTask):
        return topology, style
    if topology not in ("centralized", TURNS) and not task.is_solo:
        what = f"{task.name} says itself whose turn it is, and is not played in topology {topology}"
        raise InputError(what, fix=f"topology {TURNS}, or leave it out")
    is_turns = topology == TURNS or not task.is_solo
    return (TURNS, "actions" if style == "text" else style) if is_turns else (topology, style)


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    answer: str
    score: Score
    ended: str
    """`stopped` by the team itself, or `steered`, `budget`, `failed`."""
    why: str = ""


def make_model(name: str, task: TextTask, **options: Any) -> Model:
    """A model by what the command line calls it: `fake:0.9`, `openai:NAME`, `local:FOLDER`, or `package.module:factory`."""
    kind, _, rest = name.partition(":")
    if kind in registry.ids("model"):
        more = {"task": task} if kind == "fake" else {}
        made = registry.get("model", kind)(rest, **more, **options)
    elif ":" in name:
        made = registry.get("model", name)(**options)
    else:
        known = [f"{k}:..." for k in registry.ids("model")]
        raise NotFound(f"no kind of model named {kind!r}", where="--model", fix=did_you_mean(kind, known))
    if not isinstance(made, Model):
        raise InputError(f"{name!r} is not a model", fix="an object with name, version, complete and close")
    return made


def assemble(
    spec: Spec,
    task: TextTask,
    instance: Instance,
    model: Model,
    recorder: Recorder,
    *,
    control: Control | None = None,
    edits: Edits | None = None,
    memory: Memory | None = None,
    consent: frozenset[str] | None = None,
    watch: Watch | None = None,
    topology: Topology | None = None,
) -> Team:
    """A team that is ready to run; `topology` where it is not the one that the spec names."""
    allowed = (topology or spec.make_topology()).allowed(instance, tuple(spec.tools))
    if "verifier" in spec.gates:
        allowed = {"critic": (*instance.tools, *spec.tools)} | allowed
    return Team(
        task=task,
        instance=instance,
        harness=harness(spec.harness),
        model=model,
        toolbox=Toolbox(instance, allowed, spec.tools),
        limits=spec.limits,
        recorder=recorder,
        control=control or NoControl(),
        edits=edits or Edits(spec.seed),
        memory=memory or Memory(),
        consent=consent,
        watch=watch,
        gate=Gate(spec.gates, instance.tools) if spec.gates else None,
    )


async def play(team: Team, topology: Topology) -> RunOutcome:
    """Run the program to its end and score the answer; tools and control are closed whatever happens."""
    ended, why = "stopped", ""
    try:
        answer = await topology.run(team)
    except AgentStopped:
        answer, ended, why = team.draft, "steered", "the operator stopped the team"
    except BudgetExhausted as spent:
        answer, ended, why = team.draft, "budget", spent.what
    finally:
        await team.toolbox.close()
        await team.control.close()
    broken = _broken(team)
    if ended == "stopped" and broken:
        ended, why = "failed", broken
    return RunOutcome(answer, team.task.check(team.instance, answer), ended, why)


def _broken(team: Team) -> str:
    """Why the root gave up, if its model failed and there is no answer."""
    return team.failure if team.failure and not team.draft else ""


def about(spec: Spec, task: TextTask, model: Model, used: Harness) -> dict[str, Any]:
    """The meta of a trace, but for how it ended."""
    return {
        "team": spec.as_meta(),
        "harness": used.as_meta(),
        "task": {"name": task.name, "short": task.short, "version": task.version},
        "model": {"name": model.name, "version": model.version},
        "seed": spec.seed,
        "edits": [],
    }


def end_of(team: Team, outcome: RunOutcome) -> tuple[dict[str, float], dict[str, float], dict[str, Any]]:
    """Rewards, metrics and meta of a run that has ended."""
    score = outcome.score
    metrics = {"task_success": 1.0 if score.is_solved else 0.0} | {f"task_{k}": float(v) for k, v in score.parts.items()}
    meta: dict[str, Any] = {"ended": outcome.ended, "answer": outcome.answer}
    meta |= {"why": outcome.why} if outcome.why else {}
    meta |= {"steered": True} if team.is_steered else {}
    return {"team": score.value}, metrics, meta


async def record_team(
    spec: Spec,
    store: Store,
    *,
    trace_id: str | None = None,
    model: Model | None = None,
    budget: Budget | None = None,
    watch: Watch | None = None,
    limits: GuardLimits | None = None,
) -> Trace:
    """Run a team and store its trace; a run that breaks off stays in the journal under its id.

    With `limits` a guard stands beside the operator: an agent past one of them is told so, and stopped if it goes on.
    """
    guard = None if limits is None else LiveGuard(limits)
    watch = _watches(watch, guard)
    task = spec.make_task()
    instance = task.instance(spec.seed)
    made = model or make_model(spec.model, task, **spec.options)
    name = trace_id or f"{task.short.lower()}-{spec.topology.rpartition(':')[2]}-{secrets.token_hex(3)}"
    meta = about(spec, task, made, harness(spec.harness))
    meta |= {"pace": made.pace} if isinstance(made, Paced) else {}
    meter = _meter(budget)
    # All that can be wrong with a budget or a tool is found before a run begins: an empty one helps nobody.
    team = assemble(spec, task, instance, _metered(made, meter), Recorder(MemorySink(), LogicalClock()), watch=watch)
    with store.record(name, task_id=_task_id(task, spec), system=_SYSTEM, topology=_label(spec), meta=meta) as run:
        team.recorder = Recorder(run, _clock(made))
        control: Control = FileControl(store.path, name, is_over=_out_of_time(meter))
        team.control = control if guard is None else GuardedControl(control, guard)
        return await _finish(team, spec, run, made)


def _watches(watch: Watch | None, guard: LiveGuard | None) -> Watch | None:
    if guard is None or watch is None:
        return watch if guard is None else guard.watch

    def both(what: str, agent: AgentState, fields: Mapping[str, Any]) -> None:
        guard.watch(what, agent, fields)
        watch(what, agent, fields)

    return both


async def resume_team(
    trace_id: str,
    store: Store,
    *,
    model: Model | None = None,
    budget: Budget | None = None,
    consent: frozenset[str] = frozenset(),
    options: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
) -> Trace:
    """Resume an interrupted run; recorded model calls are not repeated.

    `consent` names the code from outside the package, and the tools that cannot be undone, which may run: a journal is a file.
    `options` are the model's where they differ now, such as another limit on silence or an address with its password again.
    """
    so_far = store.get(trace_id)
    if not so_far.meta.get(UNFINISHED):
        raise InputError("this run has ended", where=trace_id, fix="`counterpoint show` it, or `counterpoint fork` it")
    spec = Spec.of(so_far.meta.get("team") or {})
    spec.check_consent(consent, where=trace_id, with_model=model is None)
    if model is None:
        _check_address(spec, options or {}, trace_id)
    task = spec.make_task()
    made = model or make_model(spec.model, task, **{**spec.options, **(options or {})})
    check_same(so_far, task, made, harness(spec.harness))
    unended, meter = frozenset(so_far.meta.get(OPEN_EVENTS, ())), _meter(budget, so_far)
    with store.resume(trace_id) as run:
        recorder = Recorder(run, _clock(made), so_far=so_far, open_ids=unended)
        team = assemble(
            spec,
            task,
            task.instance(spec.seed),
            _metered(made, meter),
            recorder,
            control=FileControl(store.path, trace_id, so_far=so_far, is_over=_out_of_time(meter)),
            memory=Memory.of(so_far, unended),
            consent=consent,
            watch=watch,
        )
        return await _finish(team, spec, run, made)


def _check_address(spec: Spec, options: Mapping[str, Any], trace_id: str) -> None:
    """A journal is a file: an address that would get a key, or the variable that holds it, must be given again on resuming."""
    for name in ("base_url", "key_env"):
        if name in spec.options and name not in options:
            what, flag = f"the run's journal names the model's {name}: {spec.options[name]}", f"--{name.replace('_', '-')}"
            why = "a key goes only to an address, and only from a variable, that you name yourself"
            raise Refused(what, where=trace_id, why=why, fix=f"{flag} {shlex.quote(str(spec.options[name]))}, if it is yours")


def check_same(trace: Trace, task: TextTask, model: Model, used: Harness) -> None:
    """Whether this team is the one that recorded the trace."""
    then = trace.meta
    pairs = [
        ("task", then.get("task", {}).get("version"), task.version),
        ("model", then.get("model", {}).get("version"), model.version),
        ("harness", then.get("harness", {}).get("hash"), used.digest),
    ]
    for what, was, now in pairs:
        if was != now:
            fix = f"use the {what} that recorded it: {was}"
            raise InputError(f"the {what} is not the one that recorded this: {now}", where=trace.trace_id, fix=fix)


async def _finish(team: Team, spec: Spec, run: Any, model: Model) -> Trace:
    try:
        outcome = await play(team, spec.make_topology())
    finally:
        await model.close()
    rewards, metrics, meta = end_of(team, outcome)
    trace: Trace = run.finish(rewards=rewards, metrics=metrics, meta=meta)
    return trace


def play_in_memory(topology: Topology, seed: int = 0) -> Trace:
    """A small team of fakes in a topology of one's own, recorded in memory: for trying one out."""
    spec = Spec(task="ledger_hunt", config={"documents": 20, "rows": 3, "parts": 2}, seed=seed, limits=Limits(width=2))
    task, sink = spec.make_task(), MemorySink()
    model = make_model("fake", task)
    team = assemble(spec, task, task.instance(seed), model, Recorder(sink, LogicalClock()), topology=topology)
    return asyncio.run(play_to_trace(team, spec, sink, trace_id=f"try-{seed}", topology=topology))


def play_fakes(name: str, seed: int = 0, model: str = "fake:1", **options: Any) -> Trace:
    """A world of a package played by fakes, recorded in memory."""
    topology, style = played_in(find_task(name), TURNS)
    spec = Spec(task=name, seed=seed, topology=topology, harness=style, model=model, options=options)
    task, sink = spec.make_task(), MemorySink()
    team = assemble(spec, task, task.instance(seed), make_model(model, task, **options), Recorder(sink, LogicalClock()))
    return asyncio.run(play_to_trace(team, spec, sink, trace_id=f"try-{seed}"))


async def play_to_trace(
    team: Team,
    spec: Spec,
    sink: MemorySink,
    *,
    trace_id: str,
    topology: Topology | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Trace:
    """Run a team that is recorded in memory; its trace is what `record_team` would have stored, with `meta` beside the rest."""
    outcome = await play(team, topology or spec.make_topology())
    rewards, metrics, ended = end_of(team, outcome)
    events = list(sink.events.values())
    return Trace(
        trace_id=trace_id,
        task_id=_task_id(team.task, spec),
        system=_SYSTEM,
        topology=_label(spec),
        events=events,
        edges=sink.edges,
        rewards=rewards,
        metrics=metrics,
        costs=dict(summed_costs(events)),
        meta={**about(spec, team.task, team.model, team.harness), **(meta or {}), **ended},
        contents=sink.contents,
    )


def drawing_seed(meta: Mapping[str, Any], spec: Spec) -> int:
    """The seed that keys every draw of a recorded team: the spec's, unless the trace is one of several samples of its task."""
    found = meta.get(DRAWS)
    return found if isinstance(found, int) else spec.seed


def _label(spec: Spec) -> Any:
    """A topology as a trace names it: one of the survey's shapes."""
    return spec.topology if spec.topology in TOPOLOGIES else "mixed"


def _task_id(task: TextTask, spec: Spec) -> str:
    dials = ",".join(f"{k}={v}" for k, v in sorted(spec.config.items()))
    return f"{task.name}/{dials + '/' if dials else ''}{spec.seed}"


def _clock(model: Model) -> LogicalClock | WallClock:
    return LogicalClock() if getattr(model, "is_instant", False) else WallClock()


def _meter(budget: Budget | None, so_far: Trace | None = None) -> Meter | None:
    """What may still be spent; what a run that is resumed has spent is spent."""
    if budget is None:
        return None
    costs = summed_costs(so_far.events) if so_far is not None else {}
    usd = sum(e.cost_usd or 0.0 for e in so_far.events) if so_far is not None else 0.0
    spent = Spending(tokens=int(costs.get("tokens", 0)), usd=usd, seconds=float(costs.get("wall_clock_s", 0.0)))
    return Meter(budget, before=spent)


def _metered(model: Model, meter: Meter | None) -> Model:
    return model if meter is None else Metered(model, meter)


def _out_of_time(meter: Meter | None) -> Callable[[], bool]:
    """Whether a team that is paused must go on, to be ended by its budget."""
    return lambda: meter is not None and meter.remaining_seconds() == 0.0
