"""Play a task with a team of models, or policies in a world.

Always true: every event of a team is in the journal as it happens; a run that is interrupted or killed is there up to its last
acknowledged event, and `--resume` continues it. A key is read from the environment and is written nowhere.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import counterpoint.registry as registry
from counterpoint.app.terminal.options import (
    allow_option,
    cap_option,
    caps_of,
    impossible,
    limits_option,
    overrides,
    seed_option,
    set_option,
    values_of,
)
from counterpoint.app.terminal.options import model_options as model_flags
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.store import open_store
from counterpoint.app.words import plain_text
from counterpoint.display import counted, number
from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.app.cli._options import gate_option, model_options
from counterpoint.lab.app.cli._play_world import play_world
from counterpoint.lab.app.cli._tree import watching

if TYPE_CHECKING:
    from counterpoint.lab.lm.budget import Budget
    from counterpoint.lab.lm.model import Model
    from counterpoint.lab.team.session import Spec
    from counterpoint.trace import Trace

HEADING = "Learn"
_BUDGETS = {"tokens": int, "usd": float, "seconds": float}
_LIMITS = ("width", "agents", "depth", "turns", "steps", "rounds", "repairs", "max_tokens", "context")
_TEAM_SETTINGS = ("harness", "temperature")
"""Names of --model-set that say how the team asks its model; they are no options of the model itself."""
_RESUMABLE = {"model_pairs", "base_url", "caps", "resume", "allow", "quiet", "store", "as_json"}
_OF_WORLDS = {"policies", "episodes"}
_OF_BOTH = {"world", "seed", "pairs", "store", "as_json", "quiet"}


@click.command(
    epilog="\b\nExamples:\n  counterpoint play --task T1 --topology centralized --model fake --cap width=8\n"
    "  counterpoint play --task T1 --topology swarm --model fake --model-set pace=real --id hunt\n"
    "  counterpoint play --task T5 --model openai:NAME --base-url http://127.0.0.1:8000/v1 --cap tokens=50000\n"
    "  counterpoint play --world W1 --policy reference --policy serial --episodes 1000\n\n"
    "Exit codes: 0 played, 1 the model failed (the trace is kept), 2 a wrong option, 3 no such task, world, model or run,\n"
    "5 refused, 130 interrupted (a team can be resumed)."
)
@click.option("--task", "task_name", metavar="NAME", help="T1 to T8, a task's id, or a package's world; `list` lists tasks.")
@click.option("--topology", default="centralized", show_default=True, help="How the team works together; `list` lists them.")
@model_flags("openai:NAME, local:NAME, scripted:FILE, or a test double.", default="fake")
@click.option("--world", metavar="NAME", help="Play policies in a world of `counterpoint train worlds` instead.")
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME", help="A policy of the world; may be repeated.  [default: all of them]"
)
@click.option("--episodes", type=click.IntRange(min=1), metavar="N", help="Episodes of each policy in a world.  [default: 100]")
@seed_option("Seed of the task, or of the first episode.")
@set_option
@cap_option(*_LIMITS, *_BUDGETS)
@limits_option
@click.option(
    "--tool", "tools", multiple=True, metavar="ID", help="A tool beside the task's, such as outbox or my_lab.tools:mail."
)
@gate_option
@click.option("--id", "trace_id", metavar="ID", help="The trace's id.  [default: made from task and topology]")
@click.option("--resume", metavar="ID", help="Continue an interrupted run, with its own task and team.")
@allow_option
@click.option("-q", "--quiet", is_flag=True, help="Do not show the live tree of agents.")
@click.option(
    "--store", is_flag=False, flag_value="", metavar="[DIR]",
    help="The store of the traces; episodes in a world are kept only where this is given.",
)  # fmt: skip
@json_option
def play(
    task_name: str | None, topology: str, world: str | None, resume: str | None, store: str | None, as_json: bool, **options: Any
) -> None:
    """Play a task with a team and keep its trace: real models, an endpoint, or test doubles (fake) that need nothing.

    On a terminal a tree of the agents shows who does what. `counterpoint steer`, in another terminal, pauses, messages or stops
    them; --limits stops agents that pass one. --set takes dials of the task or parameters of the world. --model-set takes options
    of the model (key_env, rpm, tpm, retries, timeout_s, concurrency, token_ids and price=IN,OUT of an endpoint; device and
    propensities of local weights), harness=tools (acts are function calls, not lines of text), temperature, and pace=real or 4x
    (a test double takes the time of a real model).

    In a world all policies play the same seeds; the mean return comes with its 95 % interval and its share of the optimum. A
    policy of yours is named package.module:object.
    """
    context = click.get_current_context()
    if task_name == "list" or topology == "list":
        _list("task" if task_name == "list" else "topology", as_json=as_json)
        return
    if world is not None:
        _refuse(context, lambda name: name not in _OF_BOTH | _OF_WORLDS, "is for a team, not for a world", "--world")
        episodes = options["episodes"] or 100
        play_world(world, options["policies"], episodes, options["seed"], options["pairs"], store, as_json=as_json)
        return
    _refuse(context, lambda name: name in _OF_WORLDS, "is for a world", "--task")
    if resume is not None:
        _refuse(context, lambda name: name not in _RESUMABLE, "cannot change a run that is resumed", "--resume")
    elif task_name is None:
        raise InputError("no task and no world is named", where="--task", fix="counterpoint play --task T1 --model fake")
    trace = _play_team(task_name, topology, resume, store or None, options)
    _print(trace, store or None, as_json=as_json)
    if trace.meta.get("ended") == "failed":
        raise CounterpointError(
            f"the model failed: {trace.meta.get('why')}",
            where=trace.trace_id,
            fix=f"the trace is kept: counterpoint show {trace.trace_id}" + _at(store or None),
        )


def _refuse(context: click.Context, is_wrong: Any, why: str, where: str) -> None:
    """Raise for an option that was typed and would be ignored."""
    for name in context.params:
        if is_wrong(name) and context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            flag = next(option.opts[-1] for option in context.command.params if option.name == name)
            raise InputError(f"{flag} {why}", where=where, fix=f"leave {flag} out")


def _play_team(task_name: str | None, topology: str, resume: str | None, store: str | None, options: dict[str, Any]) -> Trace:
    """A new run of a team, or one that is resumed."""
    caps = caps_of(options["caps"], dict.fromkeys(_LIMITS, int) | _BUDGETS)
    if resume is not None:
        for name in (*_LIMITS, *_TEAM_SETTINGS):
            if name in caps or name in values_of(options["model_pairs"], "--model-set"):
                raise InputError(f"{name} cannot change a run that is resumed", where="--resume", fix=f"leave {name} out")
    spec = None if resume is not None else _spec(str(task_name), topology, caps, options)
    with open_store(store, create=resume is None) as opened:
        name = resume or options["trace_id"] or _new_id(str(task_name), spec.topology if spec else topology)
        try:
            return _run(spec, opened, name, _budget(caps), options)
        except (KeyboardInterrupt, asyncio.CancelledError):
            more = registry.allowing([*([] if spec is None else spec.outside()), *options["allow"]])
            more += f" --base-url {shlex.quote(options['base_url'])}" if options["base_url"] else ""
            more += "".join(f" --model-set {shlex.quote(p)}" for p in options["model_pairs"] if p.startswith("key_env="))
            note(f"interrupted; resume it with: counterpoint play --resume {name}" + more + _at(store))
            raise KeyboardInterrupt from None


def _at(store: str | None) -> str:
    """The store as the next command would name it."""
    return f" --store {shlex.quote(store)}" if store else ""


def _new_id(task_name: str, topology: str) -> str:
    import secrets

    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in f"{task_name.lower()}-{topology}")
    return f"{plain}-{secrets.token_hex(3)}"


def _list(kind: str, *, as_json: bool) -> None:
    from counterpoint.lab.worlds.packages import KIND as WORLDS

    rows = {name: registry.summary(kind, name) for name in registry.ids(kind)}
    if kind == "task":
        rows |= {f"{name}:NAME": registry.summary(WORLDS, name) for name in registry.ids(WORLDS)}
    for name, summary in rows.items():
        if as_json:
            emit({kind: name, "summary": summary})
        else:
            click.echo(f"{name:24} {summary}")


def _spec(task_name: str, topology: str, caps: Mapping[str, Any], options: dict[str, Any]) -> Spec:
    from counterpoint.lab.tasks.task import task
    from counterpoint.lab.team.gates import gate_names
    from counterpoint.lab.team.harness import harness
    from counterpoint.lab.team.session import Spec, played_in
    from counterpoint.lab.team.state import Limits

    found = task(task_name)
    with impossible(f"counterpoint play --task list; {found.name} has {', '.join(vars(found.config))}"):
        config = overrides(found.config, options["pairs"])
        if config:
            found.replace(**config)
    of_team, of_model, _ = _split_model_pairs(options["model_pairs"])
    team_settings = values_of(of_team, "--model-set")
    limits: dict[str, Any] = {name: value for name, value in caps.items() if name in _LIMITS}
    if "temperature" in team_settings:
        limits["temperature"] = team_settings["temperature"]
    topology, style = played_in(found, topology, str(team_settings.get("harness", "text")))
    harness(style)
    spec = Spec(
        task=found.name if ":" not in task_name else task_name,
        config=config,
        seed=options["seed"],
        topology=topology,
        model=options["model_name"],
        options=model_options(options["model_name"], options["base_url"], of_model),
        harness=style,
        limits=Limits.of(limits),
        tools={id_: {} for id_ in options["tools"]},
        gates=gate_names(options["gates"]),
    )
    spec.make_topology()
    return spec


def _split_model_pairs(pairs: tuple[str, ...]) -> tuple[list[str], list[str], str | None]:
    """What --model-set says of the team, of the model, and of the pace of a test double."""
    of_team = [pair for pair in pairs if pair.partition("=")[0] in _TEAM_SETTINGS]
    paces = [pair.partition("=")[2] for pair in pairs if pair.startswith("pace=")]
    of_model = [pair for pair in pairs if pair not in of_team and not pair.startswith("pace=")]
    return of_team, of_model, paces[-1] if paces else None


def _budget(caps: Mapping[str, Any]) -> Budget | None:
    from counterpoint.lab.lm.budget import Budget

    some = {name: caps[name] for name in _BUDGETS if name in caps}
    for name, value in some.items():
        if value <= 0:
            raise InputError(f"{name} is {value}", where="--cap", fix="a number above 0")
    return Budget(**some) if some else None


def _run(spec: Spec | None, opened: Any, name: str, budget: Budget | None, options: dict[str, Any]) -> Trace:
    from counterpoint.lab.team.session import Spec, record_team, resume_team
    from counterpoint.recorder.live_guard import given_limits

    _, of_model, pace = _split_model_pairs(options["model_pairs"])
    with watching(quiet=options["quiet"]) as watch:
        if spec is None:
            found, consent = opened.find(name), frozenset(options["allow"])
            team = opened.get(found).meta.get("team") or {}
            more = model_options(str(team.get("model")), options["base_url"], of_model)
            model = _paced(Spec.of(team), pace)
            resumed = resume_team(found, opened, budget=budget, consent=consent, options=more, watch=watch, model=model)
            return asyncio.run(resumed)
        limits, model = given_limits(options["limits_file"]), _paced(spec, pace)
        return asyncio.run(record_team(spec, opened, trace_id=name, budget=budget, watch=watch, limits=limits, model=model))


def _paced(spec: Spec, pace: str | None) -> Model | None:
    """The spec's fake at the pace of a real model; None where no pace was asked for."""
    if pace is None:
        return None
    from counterpoint.lab.team.pace import Paced, speed_of
    from counterpoint.lab.team.session import make_model

    speed = speed_of(pace)
    if spec.model.partition(":")[0] not in ("fake", "scripted"):
        raise InputError(f"{spec.model} has a pace of its own", where="--model-set pace", fix="--model fake or scripted:FILE")
    return Paced(make_model(spec.model, spec.make_task(), **spec.options), speed)


def _print(trace: Trace, store: str | None, *, as_json: bool) -> None:
    from counterpoint.lab.team.session import TURNS

    about = {
        "schema": SCHEMA_VERSION,
        "trace_id": trace.trace_id,
        "task_id": trace.task_id,
        "topology": trace.topology,
        "model": trace.meta["model"]["name"],
        "ended": trace.meta.get("ended"),
        "why": trace.meta.get("why"),
        "steered": bool(trace.meta.get("steered")),
        "answer": trace.meta.get("answer"),
        "rewards": trace.rewards,
        "metrics": trace.metrics,
        "costs": trace.costs,
        "events": len(trace.events),
        "agents": len(trace.members),
    }
    if as_json:
        emit(about)
        return
    at = _at(store)
    answer = plain_text(str(about["answer"] or "(none)"))
    measures = {k.removeprefix("task_"): v for k, v in (trace.metrics or {}).items() if k.startswith("task_")}
    credit = "message_delete"
    if trace.meta["team"]["topology"] == TURNS and ":" in trace.meta["task"]["name"]:  # the measures say more than the moves
        credit = "difference --set unit=tool"  # a move is no message
        answer = "  ·  ".join(f"{name} {number(value)}" for name, value in measures.items() if name != "success")
    lines = [
        f"{trace.trace_id}  {about['ended']}: {answer[:300]}",
        f"team reward {number(trace.rewards['team'])}  ·  {counted(len(trace.events), 'event')}  ·  "
        f"{counted(len(trace.members), 'agent')}  ·  {number(trace.tokens)} tokens  ·  {number(trace.duration_s)} s",
        f"next: counterpoint show {trace.trace_id}{at}  ·  counterpoint credit {trace.trace_id} --mechanism {credit}{at}",
    ]
    if trace.meta.get("why") and trace.meta["ended"] != "failed":  # a failure is an error, and says so itself
        lines.insert(1, f"because {plain_text(str(trace.meta['why']))}")
    click.echo("\n".join(lines))
