"""Train an orchestrator network in a world whose optimum is known.

Always true: everything named is looked up before anything is played or written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from counterpoint.app.terminal.options import cap_option
from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.app.cli._options import counts_of, preset_option, split_runner
from counterpoint.lab.app.cli._worlds import changed_world, trainable_world
from counterpoint.lab.app.cli.train._runs import EXIT_CODES, Planned, run_options, set_value, train_planned

CAPS = {"calls": "budget_calls", "updates": "updates"}


@click.command(
    epilog="\b\nExamples:\n  counterpoint train net --preset grpo --world W1 --set vote_items=64 --cap calls=100000 --watch\n"
    "  counterpoint train net run.toml --seeds 5 -o runs/mine --json\n"
    "  counterpoint train net --world W1 --runner ray:10.0.0.1:6379 --workers 64\n\n" + EXIT_CODES
)
@click.argument("source", required=False, metavar="[RUN.toml]", type=click.Path(path_type=Path))
@preset_option
@click.option("--world", metavar="NAME", help="A name of `train worlds`, a world of a suite (width, ...), or module:object.")
@cap_option(*CAPS)
@run_options
def net(source: Path | None, **options: Any) -> None:
    """Train an orchestrator network in a world whose optimum is known.

    Settings come from RUN.toml or from --preset and --world; options override the file. The default preset is counterpoint, in
    a world with rules of its own grpo.
    Without -o a run goes to runs/PRESET-WORLD-seedS, or runs/NAME-seedS for NAME.toml. --set takes parameters of the world
    (vote_items=64), settings of the run (eval_every=10, staleness=1, device=cuda) and changes to the preset (change.group=8,
    change.loss.lam=0.8). --cap takes calls (worker calls and rounds to spend, forks included) and updates. --json prints one
    object per line.
    """
    train_planned(net_plan(source, options), options)


def net_plan(source: Path | None, options: Mapping[str, Any], *, store: str | None = None, where: str | None = None) -> Planned:
    """The runs that the options ask for; with `store`, from the recorded traces there that `where` selects."""
    from counterpoint.lab.app.api.language import is_language_file
    from counterpoint.lab.app.api.train import planned, settings_named

    if is_language_file(source):
        raise InputError("this file trains a language model", where=str(source), fix=f"counterpoint train lm {source}")
    if options["world"] is not None:
        _refuse_stopping(trainable_world(options["world"]))
    runner, _ = split_runner(options["runner"])
    caps = {CAPS[name]: value for name, value in counts_of(options["caps"], *CAPS).items()}
    settings = {"seed": options["seed"], "workers": options["workers"], "runner": runner, **caps}
    config = settings_named(source, options["preset"], options["world"], options["allow"], store=store, where=where, **settings)
    return planned(_with_pairs(config, options["pairs"]), out=options["output"], seeds=options["seeds"], source=source)


def _refuse_stopping(world: Any) -> None:
    if hasattr(world, "paths"):
        fix = f"counterpoint train stop --world {world.name}"
        raise InputError(f"{world.name} is a stopping world, where a stop rule is learned", where="--world", fix=fix)


def _with_pairs(config: dict[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    """--set: a setting of the run where there is one of that name, else a parameter of the world."""
    from counterpoint.lab.train.jobs import world_of
    from counterpoint.lab.train.settings import Settings

    names = {f.name for f in dataclasses.fields(Settings)} - {"preset", "world", "set", "change"}
    own = [p for p in pairs if "=" in p and (p.partition("=")[0] in names or p.startswith("change."))]
    for pair in own:
        set_value(config, pair)
    before = world_of(config["world"], config.get("set") or {})
    _refuse_stopping(before)
    try:
        after = changed_world(before, [pair for pair in pairs if pair not in own])
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
