"""Draw runs: learning curves, stop times, team sizes, differences.

Always true: runs are only read; the picture appears whole or not at all, nothing that exists is replaced without --overwrite,
and the same runs give the same bytes. What cannot be drawn is said, with the reason.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.options import dry_run_option, output_option, overwrite_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.lab.app.api.compare import groups_of

if TYPE_CHECKING:
    from counterpoint.lab.bench.comparison import Group

_PANELS = ("curves", "stops", "width", "compare")
_SUFFIXES = ("png", "svg")


@click.command(
    epilog="\b\nExamples:\n  counterpoint compare plot runs/a -o run.png\n"
    "  counterpoint compare plot grpo=runs/a* c3=runs/b* --kind compare -o compare.svg --json\n\n"
    "Exit codes: 0 drawn, 2 a wrong option or an unreadable run, 3 no such run or nothing to draw, 5 not comparable."
)
@click.argument("runs", nargs=-1, metavar="[LABEL=]RUN...")
@output_option("FILE.png or FILE.svg.", default=Path("plot.png"))
@click.option("--kind", type=click.Choice([*_PANELS, "all"]), default="all", show_default=True, help="Which picture.")
@dry_run_option
@overwrite_option
@json_option
def plot(runs: tuple[str, ...], output: Path, kind: str, is_dry: bool, overwrite: bool, as_json: bool) -> None:
    """Draw runs: learning curves, stop times, team sizes, differences.

    RUN is a folder of counterpoint train, a pattern, or a name in ./runs. Runs of one label (without one: of one preset) are its
    training seeds.
    """
    from counterpoint.files import put, refuse

    if not runs:
        raise InputError("no run is named", fix="counterpoint compare plot RUN, as in counterpoint compare plot runs/a")
    suffix = output.suffix.lower().lstrip(".")
    if suffix not in _SUFFIXES:
        raise InputError(
            f"cannot write {output.suffix or 'a file without a suffix'!r}", where=str(output), fix="name it .png or .svg"
        )
    refuse(output, overwrite=overwrite)
    groups = groups_of(runs)
    panels, left_out = _panels(groups, kind)
    data = _picture(panels, [group.label for group in groups], suffix)
    if not is_dry:
        put([(output, data)], overwrite=overwrite)
    if as_json:
        made = {"file": os.fspath(output), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "dry_run": is_dry}
        drawn = {"panels": list(panels), "left_out": left_out, "runs": {g.label: [str(r.path) for r in g.runs] for g in groups}}
        emit({"schema": SCHEMA_VERSION, **made, **drawn})
        return
    for name, why in left_out.items():
        note(f"left out {name}: {why}")
    click.echo(f"{'would write' if is_dry else 'wrote'} {output} ({len(data):,} bytes): {', '.join(panels)}")


def _panels(groups: list[Group], kind: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What can be drawn of what was asked for, and why the rest cannot."""
    from counterpoint.lab.app.plots import panels

    made: dict[str, Callable[[list[Group]], Any]] = {
        "curves": panels.curves,
        "stops": panels.stops,
        "width": panels.widths,
        "compare": panels.differences,
    }
    found = {name: made[name](groups) for name in (_PANELS if kind == "all" else (kind,))}
    absent = {name: one for name, one in found.items() if isinstance(one, panels.Absent)}
    if len(absent) == len(found):
        name, first = next(iter(absent.items()))
        fix = (
            "counterpoint compare runs --ignore-mismatch prints it with a warning"
            if first.is_refused
            else "counterpoint train evaluates as it goes"
        )
        raise (Refused if first.is_refused else NotFound)(f"cannot draw {name}: {first.why}", fix=fix)
    return {n: one for n, one in found.items() if n not in absent}, {n: one.why for n, one in absent.items()}


def _picture(panels: dict[str, Any], labels: list[str], suffix: str) -> bytes:
    from counterpoint.lab.app.plots.draw import picture, sheet

    with sheet():
        from counterpoint.lab.app.plots.draw import drawing

        return picture(drawing(list(panels.values()), labels), suffix)
