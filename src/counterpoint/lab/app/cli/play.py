"""Run a team of models, or of test doubles, and keep its trace.

Always true: every event is in the journal as it happens; a run that is interrupted or killed is there up to its last acknowledged
event, and `--resume` goes on from it. A key is read from the environment and is written nowhere.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import counterpoint.registry as registry
from counterpoint.app.terminal.options import NumberRange, impossible, overrides, set_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import counted, number
from counterpoint.errors import CounterpointError, InputError

if TYPE_CHECKING:
    from counterpoint.lab.lm.budget import Budget
    from counterpoint.lab.lm.model import Model
    from counterpoint.lab.team.session import Spec
    from counterpoint.trace import Trace

HEADING = "Learn"

_LIMITS = ("width", "agents", "depth", "turns", "steps", "rounds", "repairs", "max_tokens", "temperature", "context")
_MODEL_OPTIONS = ("base_url", "key_env", "concurrency", "rpm", "tpm", "timeout_s", "retries", "token_ids")
_LOCAL_OPTIONS = ("device", "propensities")
_RESUMABLE = {*_MODEL_OPTIONS, *_LOCAL_OPTIONS, "price", "resume", "allow", "quiet", "store", "as_json", "pace"}
_RESUMABLE |= {"budget_tokens", "budget_usd", "budget_seconds"}


@click.command(
    epilog="\b\nExamples:\n  counterpoint record --task T1 --topology centralized --model fake --width 8\n"
    "  counterpoint record --task T1 --topology swarm --model fake --pace real --id hunt\n"
    "  counterpoint record --task T5 --model openai:NAME --base-url http://127.0.0.1:8000/v1 --budget-tokens 50000\n\n"
    "Exit codes: 0 recorded, 1 the model failed (the trace is kept), 2 a wrong option, 3 no such task, model or run,\n"
    "5 refused, 130 interrupted (the run can be resumed)."
)
@click.option("--task", "task_name", metavar="NAME", help="T1 to T6, or a task's id; `--task list` shows all.")
@click.option("--topology", default="centralized", show_default=True, help="How the team works together; `list` shows all.")
@click.option(
    "--model", "model_name", default="fake", show_default=True, help="openai:NAME, local:NAME, scripted:FILE, a test double."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the task instance and of every random draw."
)
@set_option
@click.option("--harness", default="text", show_default=True, help="text: acts are lines; tools: acts are function calls.")
@click.option("--width", type=click.IntRange(min=1), help="Sub-agents of one agent at once (default 4).")
@click.option("--limit", "limits", multiple=True, metavar="NAME=N", help=f"Another limit: {', '.join(_LIMITS)}.")
@click.option(
    "--tool", "tools", multiple=True, metavar="ID", help="A tool beside the task's, such as outbox or my_lab.tools:mail."
)
@click.option("--device", metavar="NAME", help="Where a local model runs: cpu (default) or cuda.")
@click.option(
    "--propensities", is_flag=True, default=None, help="Record how likely a local model found every legal action (slower)."
)
@click.option(
    "--pace", metavar="PACE", help="For test doubles: real, or how many times as fast (4x): calls last as long as a model's."
)
@click.option("--base-url", metavar="URL", help="The endpoint, for --model openai:NAME.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the endpoint's key (default OPENAI_API_KEY).")
@click.option("--concurrency", type=click.IntRange(min=1), help="Calls to the endpoint at once.")
@click.option("--rpm", type=NumberRange(min=0, min_open=True), help="Requests per minute, at most.")
@click.option("--tpm", type=NumberRange(min=0, min_open=True), help="Tokens per minute, at most.")
@click.option("--timeout", "timeout_s", type=NumberRange(min=0, min_open=True), help="Seconds that an endpoint may be silent.")
@click.option("--retries", type=click.IntRange(min=0), help="How often a failed call is tried again.")
@click.option(
    "--token-ids", is_flag=True, default=None, help="Ask the endpoint for token ids, for training (vLLM and SGLang give them)."
)
@click.option("--price", metavar="IN,OUT", help="Dollars per million tokens read and written, for a budget in dollars.")
@click.option("--budget-tokens", type=click.IntRange(min=1), help="Tokens that the run may spend.")
@click.option("--budget-usd", type=NumberRange(min=0, min_open=True), help="Dollars that the run may spend.")
@click.option("--budget-seconds", type=NumberRange(min=0, min_open=True), help="Seconds that the run may take.")
@click.option("--gate", "gates", multiple=True, metavar="NAME[,NAME]", help="taint, quarantine, quorum, verifier, allow_list.")
@click.option("--guard", metavar="FILE", help="Limits, as `counterpoint guard limits` prints them; agents past one are stopped.")
@click.option("--id", "trace_id", metavar="ID", help="The trace's id (default: made from task and topology).")
@click.option("--resume", metavar="ID", help="Continue a run that broke off, with its own task and team.")
@click.option(
    "--allow", multiple=True, metavar="NAME",
    help="With --resume: code that the run names (module:object), or an irreversible tool, that may run.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not show the live tree of agents.")
@store_option
@json_option
def record(task_name: str | None, topology: str, resume: str | None, store: Path | None, as_json: bool, **options: Any) -> None:
    """Run a team on a task and keep its trace: real models, an endpoint, or test doubles (fake) that need nothing.

    On a terminal a tree of the agents shows who does what. `counterpoint steer`, in another terminal, pauses, messages or stops
    them.
    """
    if task_name == "list" or topology == "list":
        _list("task" if task_name == "list" else "topology", as_json=as_json)
        return
    if resume is not None:
        _alone(click.get_current_context())
    if resume is None and task_name is None:
        raise InputError("no task is named", where="--task", fix="counterpoint record --task T1 --model fake")
    spec = None if resume is not None else _spec(str(task_name), topology, options)
    with open_store(store, create=resume is None) as opened:
        name = resume if resume is not None else options["trace_id"] or _new_id(str(task_name), topology)
        try:
            trace = _run(spec, opened, name, _budget(options), options)
        except (KeyboardInterrupt, asyncio.CancelledError):
            named = registry.allowing([*([] if spec is None else spec.outside()), *options["allow"]])
            named += "".join(f" --{o.replace('_', '-')} {shlex.quote(options[o])}" for o in ("base_url", "key_env") if options[o])
            note(f"interrupted; go on with: counterpoint record --resume {name}" + named + _at(store))
            raise KeyboardInterrupt from None
    _print(trace, store, as_json=as_json)
    if trace.meta.get("ended") == "failed":
        raise CounterpointError(
            f"the model failed: {trace.meta.get('why')}",
            where=trace.trace_id,
            fix=f"the trace is kept: counterpoint show {trace.trace_id}" + _at(store),
        )


def _at(store: Path | None) -> str:
    """The store as the next command would name it."""
    return f" --store {shlex.quote(str(store))}" if store else ""


def _new_id(task_name: str, topology: str) -> str:
    import secrets

    return f"{task_name.lower()}-{topology}-{secrets.token_hex(3)}".replace(":", "-").replace("/", "-")


def _list(kind: str, *, as_json: bool) -> None:
    for name in registry.ids(kind):
        if as_json:
            emit({kind: name, "summary": registry.summary(kind, name)})
        else:
            click.echo(f"{name:24} {registry.summary(kind, name)}")


def _spec(task_name: str, topology: str, options: dict[str, Any]) -> Spec:
    from counterpoint.lab.tasks.task import task
    from counterpoint.lab.team.gates import gate_names
    from counterpoint.lab.team.harness import harness
    from counterpoint.lab.team.session import Spec
    from counterpoint.lab.team.state import Limits

    found = task(task_name)
    with impossible(f"counterpoint record --task list; {found.name} has {', '.join(vars(found.config))}"):
        config = overrides(found.config, options["pairs"])
        if config:
            found.replace(**config)
    limits = overrides(Limits(), options["limits"])
    if options["width"] is not None:
        limits["width"] = options["width"]
    harness(options["harness"])
    chosen = _model_options(options["model_name"], options)
    spec = Spec(
        task=found.name if ":" not in task_name else task_name,
        config=config,
        seed=options["seed"],
        topology=topology,
        model=options["model_name"],
        options=chosen,
        harness=options["harness"],
        limits=Limits.of(limits),
        tools={id_: {} for id_ in options["tools"]},
        gates=gate_names(options["gates"]),
    )
    spec.make_topology()
    return spec


def _model_options(model_name: str, options: dict[str, Any]) -> dict[str, Any]:
    """What was said about the model."""
    chosen = {name: options[name] for name in _MODEL_OPTIONS if options[name] is not None}
    if options["price"] is not None:
        chosen["prices"] = {model_name.partition(":")[2]: _price(options["price"])}
    if chosen and not model_name.startswith("openai:"):
        flag = next(iter(chosen)).removesuffix("_s").replace("_", "-")
        raise InputError(f"--{flag} is for an endpoint", where="--model", fix="with --model openai:NAME")
    here = {name: options[name] for name in _LOCAL_OPTIONS if options[name] is not None}
    if here and not model_name.startswith("local:"):
        raise InputError(f"--{next(iter(here))} is for a local model", where="--model", fix="with --model local:NAME")
    return chosen | here


def _alone(ctx: click.Context) -> None:
    """A run that is resumed is the run that it was: what would make it another one is an error, not ignored."""
    given = [p for p in ctx.params if p not in _RESUMABLE and ctx.get_parameter_source(p) == ParameterSource.COMMANDLINE]
    if given:
        flag = next(o.opts[0] for o in ctx.command.params if o.name == given[0])
        raise InputError(
            f"{flag} cannot change a run that is resumed", where="--resume", fix=f"leave out {flag}: the run keeps its own"
        )


def _price(text: str) -> dict[str, float]:
    try:
        read, written = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{text!r} is not a price", where="--price", fix="two numbers, as in --price 0.5,1.5") from None
    return {"input": read, "output": written}


def _budget(options: dict[str, Any]) -> Budget | None:
    from counterpoint.lab.lm.budget import Budget

    tokens, usd, seconds = (options[f"budget_{name}"] for name in ("tokens", "usd", "seconds"))
    return None if tokens is usd is seconds is None else Budget(tokens, usd, seconds)


def _run(spec: Spec | None, opened: Any, name: str, budget: Budget | None, options: dict[str, Any]) -> Trace:
    from counterpoint.lab.team.session import Spec, record_team, resume_team
    from counterpoint.recorder.live_guard import given_limits

    with watching(quiet=options["quiet"]) as watch:
        if spec is None:
            found, consent = opened.find(name), frozenset(options["allow"])
            team = opened.get(found).meta.get("team") or {}
            more = _model_options(str(team.get("model")), options)
            model = _paced(Spec.of(team), options["pace"]) if options["pace"] is not None else None
            resumed = resume_team(found, opened, budget=budget, consent=consent, options=more, watch=watch, model=model)
            return asyncio.run(resumed)
        limits, model = given_limits(options["guard"]), _paced(spec, options["pace"])
        return asyncio.run(record_team(spec, opened, trace_id=name, budget=budget, watch=watch, limits=limits, model=model))


def _paced(spec: Spec, pace: str | None) -> Model | None:
    """The spec's fake at the pace of a real model; None where no pace was asked for."""
    if pace is None:
        return None
    from counterpoint.lab.team.pace import Paced, speed_of
    from counterpoint.lab.team.session import make_model

    speed = speed_of(pace)
    if spec.model.partition(":")[0] not in ("fake", "scripted"):
        raise InputError(f"{spec.model} has a pace of its own", where="--pace", fix="with --model fake or scripted:FILE")
    return Paced(make_model(spec.model, spec.make_task(), **spec.options), speed)


def _print(trace: Trace, store: Path | None, *, as_json: bool) -> None:
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
    lines = [
        f"{trace.trace_id}  {about['ended']}: {answer[:300]}",
        f"team reward {number(trace.rewards['team'])}  ·  {counted(len(trace.events), 'event')}  ·  "
        f"{counted(len(trace.members), 'agent')}  ·  {number(trace.tokens)} tokens  ·  {number(trace.duration_s)} s",
        f"next: counterpoint show {trace.trace_id}{at}  ·  counterpoint credit {trace.trace_id} --method message_delete{at}",
    ]
    if trace.meta.get("why") and trace.meta["ended"] != "failed":  # a failure is an error, and says so itself
        lines.insert(1, f"because {plain_text(str(trace.meta['why']))}")
    click.echo("\n".join(lines))


# -- the team while it runs ------------------------------------------------------------------------------------------------


_EVERY_S, _LINE_S, _SHOWN = 0.2, 10.0, 40
_MARKS = {"thinks": "…", "waits": "·", "returned": "✓", "failed": "✗", "tool": "⚙"}


@dataclass
class _Row:
    role: str
    depth: int
    doing: str = "waits"
    about: str = ""
    calls: int = 0
    tokens: int = 0


@dataclass
class Tree:
    """Who is there and what they do."""

    rows: dict[str, _Row] = field(default_factory=dict)
    events: int = 0

    def take(self, what: str, agent: Any, fields: Mapping[str, Any]) -> None:
        """One thing that happened."""
        self.events += 1
        row = self.rows.setdefault(agent.name, _Row(agent.role, agent.depth))
        if what == "thinks":
            row.doing, row.about, row.calls = "thinks", fields.get("task") or "", row.calls + 1
        elif what == "acts":
            act = fields["act"]
            row.tokens += (fields.get("tokens_in") or 0) + (fields.get("tokens_out") or 0)
            row.doing = {"tool": "tool", "return": "returned", "stop": "returned"}.get(act.verb, "waits")
            row.about = act.target if act.verb == "tool" else act.verb
        elif what == "spawn" and fields.get("to"):
            self.rows.setdefault(fields["to"], _Row(fields.get("role") or "", agent.depth + 1))
        elif what == "return" and fields.get("ok") is False:
            row.doing, row.about = "failed", fields.get("error") or ""

    def lines(self, limit: int = _SHOWN) -> list[str]:
        """The tree as text; of very many agents those that do something come first."""
        names = sorted(self.rows, key=lambda n: [int(p) if p.isdigit() else 0 for p in n.split(".")])
        if len(names) > limit:
            busy = [n for n in names if self.rows[n].doing in ("thinks", "tool", "failed")]
            kept = set(list(dict.fromkeys([*names[:1], *busy, *names]))[:limit])
            names = [n for n in names if n in kept]
        out = []
        for name in names:
            r = self.rows[name]
            text = f"{'  ' * r.depth}{_MARKS[r.doing]} {name} {r.role}  {r.doing} {r.about}"
            out.append(f"{plain_text(text)[:70]:70} {r.calls:4} calls {r.tokens:8,} tokens")
        hidden = len(self.rows) - len(names)
        return out + ([f"  ... and {hidden:,} more agents"] if hidden else [])

    def line(self) -> str:
        """The same in one line."""
        doing = [r.doing for r in self.rows.values()]
        tokens = sum(r.tokens for r in self.rows.values())
        return f"{counted(len(doing), 'agent')}, {doing.count('thinks'):,} thinking, {self.events:,} steps, {tokens:,} tokens"


@contextmanager
def watching(*, quiet: bool) -> Iterator[Callable[[str, Any, Mapping[str, Any]], None] | None]:
    """Something to tell, that shows what it is told."""
    if quiet:
        yield None
        return
    tree, last = Tree(), time.monotonic()
    if not sys.stderr.isatty():

        def tell(what: str, agent: Any, fields: Mapping[str, Any]) -> None:
            nonlocal last
            tree.take(what, agent, fields)
            if time.monotonic() - last > _LINE_S:
                last = time.monotonic()
                note(tree.line())

        yield tell
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(Text(""), console=Console(stderr=True), auto_refresh=False, transient=True) as live:

        def draw(what: str, agent: Any, fields: Mapping[str, Any]) -> None:
            nonlocal last
            tree.take(what, agent, fields)
            if time.monotonic() - last > _EVERY_S:
                last = time.monotonic()
                live.update(Text("\n".join([*tree.lines(live.console.height - 3), tree.line()])), refresh=True)

        yield draw
