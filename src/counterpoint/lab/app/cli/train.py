"""Train an orchestrator until its budget is spent.

Always true: everything named is looked up before anything is played or written; a run is left whole however it ends, and what
it takes to go on with it is printed. Rows go to stdout, how far it is to stderr.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import counterpoint.registry as registry
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.words import plain_text
from counterpoint.display import counted
from counterpoint.errors import InputError, NotFound, did_you_mean

if TYPE_CHECKING:
    from counterpoint.lab.train.folder import RunFolder

HEADING = "Learn"

_FLAGS = {
    "source": "RUN.toml", "preset": "--preset", "world": "--world", "pairs": "--set", "seed": "--seed", "seeds": "--seeds",
    "budget": "--budget", "updates": "--updates", "out": "--out", "workers": "--workers", "staleness": "--staleness",
    "runner": "--runner", "is_dry": "--dry-run", "store": "--from", "where": "--where", "lm": "--lm", "tasks": "--task",
    "topology": "--topology", "demos": "--demos", "credit": "--credit", "adapters": "--adapters", "device": "--device",
}  # fmt: skip
_SETTINGS = {
    "seed": "seed",
    "budget": "budget_calls",
    "updates": "updates",
    "workers": "workers",
    "staleness": "staleness",
    "runner": "runner",
}


@click.command(
    epilog="\b\nExamples:\n  counterpoint train --preset counterpoint --world W1 --set vote_items=64 --budget 100000 --watch\n"
    "  counterpoint train run.toml --seeds 5 --out runs/mine --json\n"
    "  counterpoint train --from traces --where 'reward>10' --preset clone\n"
    "  counterpoint train --lm smollm2-135m --task T1 --demos fake:0.7 --device cuda --set learn.updates=40\n"
    "  counterpoint train --world W1 --runner ray --address 10.0.0.1:6379 --workers 64\n"
    "  counterpoint train --resume runs/mine-seed3\n\n"
    "Exit codes: 0 finished, 1 failed (a loss that is no number, a full disk), 2 a wrong option or setting,\n"
    "3 no such file, run, preset or world, 5 the world or machine lacks what is asked for,\n"
    "6 another process writes the run, 130 interrupted, or ended by SIGTERM (a checkpoint is kept)."
)
@click.argument("source", required=False, metavar="[RUN.toml]", type=click.Path(path_type=Path))
@click.option("--preset", metavar="NAME", help="A preset of --list, or package.module:object.  [default: counterpoint]")
@click.option("--world", metavar="NAME", help="W1, W2, D, P, V, A, M, width, ..., package.module:object; S0 to S3: a stop rule.")
@click.option(
    "--set", "pairs", multiple=True, metavar="NAME=VALUE",
    help="A parameter of the world (vote_items=64), a setting of the run (eval_every=10), or what differs from the preset "
    "(change.group=8, change.loss.lam=0.8); may be repeated.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), help="Seed of everything random.  [default: 0]")
@click.option("--seeds", type=click.IntRange(min=1), metavar="N", help="Train N runs, of seed, seed + 1, ...")
@click.option("--budget", type=click.IntRange(min=1), metavar="N", help="Worker calls and rounds to spend, forks included.")
@click.option("--updates", type=click.IntRange(min=1), metavar="N", help="Updates after which it ends at the latest.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="The run's folder; with --seeds, DIR-seedS each.")
@click.option("--runner", type=click.Choice(["here", "processes", "ray"]), help="Where episodes, or teams, are played.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Workers of the runner (implies --runner processes).")
@click.option("--address", metavar="HOST:PORT", help="Of a Ray cluster (implies --runner ray); else $RAY_ADDRESS, else none.")
@click.option("--staleness", type=click.IntRange(min=0), metavar="K", help="Updates by which episodes may lag.")
@click.option("--from", "store", metavar="STORE", help="Learn from the traces of a store, and play nothing but evaluations.")
@click.option("--where", metavar="QUERY", help="Which of them, in the words of counterpoint ls: 'reward>0.5 agents>2'.")
@click.option("--lm", metavar="MODEL", help="Train a language model: a name of `counterpoint models`, a folder, a .gguf file.")
@click.option("--task", "tasks", metavar="T1[,T2...]", help="With --lm: what the team plays.")
@click.option("--topology", metavar="NAME", help="With --lm: how the team works together.  [default: centralized]")
@click.option("--demos", metavar="WHO", help="With --lm: who is imitated first: fake:0.7 (a test double) or a store.")
@click.option("--credit", metavar="NAME[,NAME]", help="With --lm: credit mechanisms.  [default: group_relative]")
@click.option("--adapters", type=click.Choice(["none", "shared", "role"]), help="With --lm: learn adapters, not all weights.")
@click.option("--device", metavar="cpu|cuda", help="With --lm: where the model lives.  [default: cpu]")
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR", help="Go on with a run that was cut off.")
@click.option("--allow", multiple=True, metavar="NAME", help="Code (module:object) that RUN.toml or a run names, and may run.")
@click.option("--log", multiple=True, type=click.Choice(["tensorboard", "wandb", "mlflow"]), help="Also log to a tracker.")
@click.option("--push", metavar="URL", help="Send the traces that the run keeps to a collector: counterpoint serve.")
@click.option("--watch", is_flag=True, help="A live table, where there is a terminal.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Print the settings and train nothing.")
@click.option("--list", "listing", is_flag=True, help="List the presets.")
@json_option
def train(resume: Path | None, watch: bool, listing: bool, as_json: bool, **given: Any) -> None:
    """Train an orchestrator in a world whose optimum is known, or a language model that plays tasks as a team (--lm).

    Settings come from RUN.toml or from --preset and --world; options override the file. Without --out a run goes to
    runs/PRESET-WORLD-seedS, or runs/NAME-seedS for NAME.toml. --json prints one object per line.

    With --from, the world is that of the traces unless --world says another. What was recorded is cloned (--preset clone), or
    learned from off-policy, after --set clone=N updates of cloning; what the log does not cover is refused, with what would help.

    In a stopping world (S0 to S3) a stop rule is learned, at once: --preset is a stop trainer (stacked, longstaff_schwartz,
    all_stops, ...), --set traces=N says from how many, --from takes recorded ones, and --out is the rule's file.

    With --lm, a language model imitates --demos, then plays, is paid and learns; --set takes dials of the tasks (documents=8),
    limits (limits.width=2), prices (prices.agent=0.02) and settings (imitate.steps=300, learn.updates=40). --preset takes its
    rewards, credit and loss from a published method that --list marks for `lm`. The model of a finished run is local:RUN.
    """
    if listing:
        return _list(as_json)
    from counterpoint.lab.app.api.train import is_run, run_folder

    if resume is not None:
        unused = [flag for name, flag in _FLAGS.items() if not any(given[name] is x for x in (None, (), False))]
        if unused:
            raise InputError(f"{unused[0]} is for a new run", where="--resume", fix="a run goes on with its own run.toml")
        _go(run_folder(resume), {}, given, is_resumed=True, watch=watch, as_json=as_json)
        return None
    if given["address"] is not None:
        if given["runner"] not in (None, "ray"):
            raise InputError(f"the runner {given['runner']} has no address", where="--address", fix="--runner ray")
        given["runner"] = "ray"
    planned = _language(given)
    if planned is None:
        if _stops(given, as_json=as_json):
            return None
        planned = _plan(given)
    if given["is_dry"]:
        return _show_plan(planned, as_json)
    for folder, config in planned:
        _go(folder, config, given, is_resumed=len(planned) > 1 and is_run(folder), watch=watch, as_json=as_json)
    if len(planned) > 1 and not as_json:
        first = planned[0][0].name.rsplit("-seed", 1)[0]
        click.echo(plain_text(f"{counted(len(planned), 'run')}: counterpoint plot {first}={planned[0][0].parent / first}-seed*"))
    return None


_FOR_LANGUAGE = ("tasks", "topology", "demos", "credit", "adapters", "device")
_FOR_WORLDS = ("world", "budget", "staleness", "store")


def _language(given: Mapping[str, Any]) -> list[tuple[Path, dict[str, Any]]] | None:
    """The runs of a language model; None where none is asked for."""
    from counterpoint.lab.app.api.language import is_language_file, language_config, language_planned

    source: Path | None = given["source"]
    if given["lm"] is None and not is_language_file(source):
        lone = [name for name in _FOR_LANGUAGE if given[name] is not None]
        if lone:
            raise InputError(f"{_FLAGS[lone[0]]} is for language models", fix="--lm MODEL")
        return None
    wrong = [name for name in _FOR_WORLDS if given[name] is not None]
    if wrong:
        raise InputError(f"{_FLAGS[wrong[0]]} is not for language models", where="--lm", fix="leave it out; see --help")
    if given["runner"] == "here":
        raise InputError("language models play in processes of their own", where="--runner here", fix="processes, or ray")
    adapters, updates = given["adapters"], given["updates"]
    config = language_config(
        source, model=given["lm"], tasks=_names(given["tasks"]), topology=given["topology"], demos=given["demos"],
        where=given["where"], credit=_names(given["credit"]), preset=given["preset"], allow=given["allow"],
        pairs=[*given["pairs"], *([] if updates is None else [f"learn.updates={updates}"])], seed=given["seed"],
        device=given["device"], workers=given["workers"], runner=given["runner"], adapters="" if adapters == "none" else adapters,
    )  # fmt: skip
    return language_planned(config, out=given["out"], seeds=given["seeds"], source=source)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _stops(given: Mapping[str, Any], *, as_json: bool) -> bool:
    """Learn a stop rule where --world is a stopping world, or the traces of --from are of one; whether it was one."""
    if given["world"] is None and (given["store"] is None or given["source"] is not None):
        return False
    from counterpoint.app.api.inputs import chosen_ids
    from counterpoint.lab.app.cli._train_stop import recorded_world, train_stop
    from counterpoint.lab.worlds.teamworld.suites import suite_worlds
    from counterpoint.lab.worlds.world import world

    if given["world"] in (of_suites := suite_worlds()):
        return False
    ids = [] if given["store"] is None else chosen_ids(given["store"], given["where"] or "")
    try:
        found = recorded_world(given["store"], ids[0]) if given["world"] is None else world(given["world"])
    except NotFound as error:
        known = {*of_suites, *registry.ids("world")}
        raise NotFound(error.what, fix=did_you_mean(given["world"], known)) if ":" not in given["world"] else error from None
    if not hasattr(found, "paths"):
        return False
    train_stop(found, given, ids, as_json=as_json)
    return True


# -- presets -------------------------------------------------------------------------------------------------------------


def _list(as_json: bool) -> None:
    from counterpoint.lab.train.not_presets import NOT_PRESETS
    from counterpoint.lab.train.preset import GRADES, LEARNERS, REGIMES, TRAINS, named_preset

    rows = [(name, named_preset(name)) for name in registry.ids("preset")]
    if as_json:
        for name, p in rows:
            emit({"preset": name, "source": p.source, "grade": p.grade, "trains": list(p.trains), "unit": p.unit,
                  "regime": p.regime, "learns": list(p.learns), "reward": list(p.reward), "credit": p.credit_name,
                  "loss": p.loss_name, "needs": list(p.needs), "departures": p.all_departures, "guessed": list(p.guessed),
                  "as_released": dict(p.as_released), "knob": dict(p.knob)})  # fmt: skip
        for method in NOT_PRESETS:
            emit({"no_preset": method.name, **{k: v for k, v in method._asdict().items() if k != "name"}})
        return
    cells = [(name, ",".join(p.trains) if len(p.trains) < 5 else "O1-O5", p.unit, p.regime, "+".join(p.learns), p.credit_name,
              p.loss_name, p.grade, p.source) for name, p in rows]  # fmt: skip
    click.echo(table(("preset", "trains", "unit", "regime", "learns", "credit", "loss", "grade", "source"), cells))
    click.echo()
    click.echo(table(("no preset", "because", "source"), [(m.name, m.why, m.source) for m in NOT_PRESETS]))
    for what, words in (("trains", TRAINS), ("regime", REGIMES), ("learns", LEARNERS), ("grade", GRADES)):
        note(f"{what}: " + ", ".join(f"{name} {meaning}" for name, meaning in words.items()))


# -- which runs ----------------------------------------------------------------------------------------------------------


def _plan(given: Mapping[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Every run to be trained: its folder and its settings, all looked up."""
    from counterpoint.lab.app.api.train import planned, settings_named

    source: Path | None = given["source"]
    options = {name: given[flag] for flag, name in _SETTINGS.items()}
    recorded = {"store": given["store"], "where": given["where"]}
    config = settings_named(source, given["preset"], given["world"], given["allow"], **recorded, **options)
    return planned(_with_pairs(config, given["pairs"]), out=given["out"], seeds=given["seeds"], source=source)


def _with_pairs(config: dict[str, Any], pairs: tuple[str, ...]) -> dict[str, Any]:
    """--set: a setting of the run where there is one of that name, else a parameter of the world."""
    from counterpoint.lab.app.cli.world import _changed
    from counterpoint.lab.train.jobs import world_of
    from counterpoint.lab.train.settings import Settings

    names = {f.name for f in dataclasses.fields(Settings)} - {"preset", "world", "set", "change"}
    own = [p for p in pairs if "=" in p and (p.partition("=")[0] in names or p.startswith("change."))]
    for pair in own:
        name, _, text = pair.partition("=")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        *path, last = name.split(".")
        table = config
        for part in path:
            table[part] = dict(table.get(part) or {})
            table = table[part]
        table[last] = value
    before = world_of(config["world"], config.get("set") or {})
    try:
        after = _changed(before, [pair for pair in pairs if pair not in own])
    except InputError as error:
        if error.what.startswith("no parameter named"):
            asked = error.what.split("'")[1]
            every = names | {f.name for f in dataclasses.fields(before.config)}
            raise InputError(
                f"no parameter of the world or setting {asked!r}", where="--set", fix=did_you_mean(asked, every)
            ) from error
        raise
    fields = [f.name for f in dataclasses.fields(after.config)]
    changes = {n: getattr(after.config, n) for n in fields if getattr(after.config, n) != getattr(before.config, n)}
    return config | {"set": {**(config.get("set") or {}), **changes}}


def _show_plan(planned: list[tuple[Path, dict[str, Any]]], as_json: bool) -> None:
    if as_json:
        return emit({"schema": SCHEMA_VERSION, "would_train": [{"folder": str(folder), **config} for folder, config in planned]})
    for folder, config in planned:
        rows = [(k, json.dumps(v, default=str)) for k, v in config.items()]
        click.echo(f"would train {plain_text(str(folder))}\n" + table(("setting", "value"), rows))
    return None


# -- training ------------------------------------------------------------------------------------------------------------


def _go(
    folder: Path, config: dict[str, Any], given: Mapping[str, Any], *, is_resumed: bool, watch: bool, as_json: bool
) -> RunFolder:
    from counterpoint.lab.app.api.train import is_run, train_one
    from counterpoint.lab.app.cli._train_table import ending, printer
    from counterpoint.lab.train.folder import RunFolder

    if is_resumed:
        opened = RunFolder.open(folder)
        for line in [f"{folder} is finished already"] if opened.about["status"] == "finished" else opened.notes():
            note(plain_text(line))
    told = printer(as_json=as_json, watch=watch)
    try:
        where = {name: given[name] for name in ("allow", "address", "log", "push")}
        run = train_one(folder, config, progress=told, resume=is_resumed, **where)
    except KeyboardInterrupt:
        told.close()
        if is_run(folder) and (about := RunFolder.open(folder).about)["status"] != "finished":
            note(f"go on with: counterpoint train --resume {folder}" + registry.allowing([about["preset"], about["world"]]))
        raise
    finally:
        told.close()
    if not as_json:
        click.echo("\n".join(ending(run)))
    return run
