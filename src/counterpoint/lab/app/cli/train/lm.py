"""Train a language model that plays tasks as a team.

Always true: everything named is looked up before anything is played or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from counterpoint.app.terminal.options import cap_option, mechanism_option
from counterpoint.errors import InputError
from counterpoint.lab.app.cli._options import counts_of, names_of, preset_option, split_runner
from counterpoint.lab.app.cli.train._runs import EXIT_CODES, by_torchrun, run_options, train_planned


@click.command(
    epilog="\b\nExamples:\n  counterpoint train lm --model smollm2-135m --task T1 --demos fake:0.7 --set device=cuda\n"
    "  counterpoint train lm --model smollm2-135m --task T1,T5 --mechanism group_relative --set adapters=shared\n"
    "  counterpoint train lm --model smollm2-135m --team my.py:team --tasks cases.jsonl --reward my.py:score\n"
    "  counterpoint train lm run.toml --seeds 3 -o runs/hunt\n\n" + EXIT_CODES
)
@click.argument("source", required=False, metavar="[RUN.toml]", type=click.Path(path_type=Path))
@click.option("--model", metavar="MODEL", help="A name of `counterpoint models`, a folder, a .gguf file, or a trained run.")
@click.option("--task", "tasks", metavar="T1[,T2...]", help="The tasks that the team plays.")
@click.option("--team", metavar="FILE:FUNCTION", help="A team of your own, as it is: a function that answers one question.")
@click.option("--tasks", "cases", metavar="FILE", help='Its cases: {"question": ..., "answer": ...}, one in each line.')
@click.option("--reward", metavar="FILE:FUNCTION", help="Who scores its answers: score(answer, case).  [default: an exact match]")
@click.option("--topology", metavar="NAME", help="How the team works together.  [default: centralized]")
@click.option("--demos", metavar="WHO", help="Whom the model imitates first: fake:0.7 (a test double) or a store.")
@mechanism_option
@preset_option
@cap_option("updates")
@run_options
def lm(source: Path | None, **options: Any) -> None:
    """Train a language model: it imitates --demos, then plays, is paid and learns.

    --set takes dials of the tasks (documents=8), limits of the team (limits.width=2), prices (prices.agent=0.02) and settings
    (imitate.steps=300, imitate.where='reward>0.5', adapters=shared or role, device=cuda). A preset that `train presets` marks for
    `lm` sets rewards, credit and loss as a published method does. The default mechanism is
    group_relative. The model of a finished run is local:RUN. --dry-run tells what 1, 8 and 64 cards need of memory and time, from
    the model's config.json alone. With several cards: torchrun --nproc-per-node N -m counterpoint
    train lm ...
    """
    by_torchrun(lambda: _train(source, options), options["runner"], is_dry=options["is_dry"])


def _train(source: Path | None, options: Mapping[str, Any]) -> None:
    from counterpoint.lab.app.api.estimate import estimate
    from counterpoint.lab.app.api.language import language_config, language_planned

    runner, _ = split_runner(options["runner"])
    if runner == "here":
        raise InputError("language models play in processes of their own", where="--runner here", fix="processes, or ray")
    caps = counts_of(options["caps"], "updates")
    pairs = [*options["pairs"], *(f"learn.{name}={value}" for name, value in caps.items())]
    config = language_config(
        source, model=options["model"], tasks=names_of(options["tasks"]), own=_own(options),
        topology=options["topology"], demos=options["demos"], credit=names_of(options["mechanism"]), preset=options["preset"],
        allow=options["allow"], pairs=pairs,
        seed=options["seed"], workers=options["workers"], runner=runner,
    )  # fmt: skip
    is_dry = options["is_dry"]
    planned = language_planned(config, out=options["output"], seeds=options["seeds"], source=source, is_dry=is_dry)
    train_planned(planned, options, estimate(planned[0][1]) if is_dry else None)


def _own(options: Mapping[str, Any]) -> dict[str, str] | None:
    """A team of one's own, where one is named."""
    team, cases, reward = options["team"], options["cases"], options["reward"]
    if team is None:
        for flag, given in (("--tasks", cases), ("--reward", reward)):
            if given is not None:
                raise InputError(f"{flag} is of a team of your own", fix=f"--team my.py:team {flag} {given}")
        return None
    if options["tasks"] is not None:
        raise InputError("--team brings its own tasks", where="--task", fix="--team my.py:team --tasks FILE")
    if cases is None:
        fix = '--tasks cases.jsonl: {"question": "...", "answer": "..."}'
        raise InputError("no tasks for the team", where="--tasks", fix=fix)
    return {"name": team, "cases": cases} | ({} if reward is None else {"reward": reward})
