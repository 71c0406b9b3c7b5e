"""Show one model: size, licence, version, and whether its files are undamaged.

Always true: nothing is fetched or changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from counterpoint.app.terminal.output import emit, json_option, note, table
from counterpoint.display import number
from counterpoint.lab.app.cli.models._rows import epilog, find_model, model_row, size_text

if TYPE_CHECKING:
    from counterpoint.lab.lm.weights import FoundWeights


@click.command(epilog=epilog("show smollm2-135m", "show smollm2-135m --json"))
@click.argument("name")
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show one model: size, number format, licence, version, and whether its files are undamaged.

    NAME is one that `counterpoint models` lists, a folder, a .gguf file, or the folder of a run.
    """
    from counterpoint.lab.lm.weights import INSTALLABLE, damaged

    found = find_model(name)
    wrong = damaged(found.path) if found.path is not None and found.path.is_dir() else None
    about = model_row(found) | {"version": _version(found), "damaged": wrong, "path": str(found.path) if found.path else None}
    if as_json:
        emit(about)
    else:
        digests = "not written down" if wrong is None else f"damaged: {', '.join(wrong)}" if wrong else "whole"
        rows = [
            ("state", found.state),
            ("size", size_text(found.size_bytes)),
            ("parameters", number(found.parameters)),
            ("numbers", found.dtype or "-"),
            ("from", found.source or "-"),
            ("licence", found.licence or "-"),
            ("version", about["version"] or "-"),
            ("digests", digests),
            ("path", about["path"] or "-"),
        ]
        click.echo(table((found.name, ""), rows))
    if wrong or found.state == "cannot be read":
        if not as_json:
            own = "copy the files again"
            note(f"fix    {f'counterpoint models install {found.name}' if found.name in INSTALLABLE else own}")
        ctx.exit(4)


def _version(found: FoundWeights) -> str | None:
    from counterpoint.lab.lm.weights import find

    return find(str(found.path)).digest() if found.path is not None and found.state == "ready" else None
