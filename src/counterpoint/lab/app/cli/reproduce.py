"""Run the experiments behind our numbers again.

Always true: nothing is read from a stored result; rows are printed as they come, and one missed target ends with exit code 4.
Where one of several claims cannot run on this machine, the others do; a claim that did not run is never counted as met.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

import counterpoint.registry as registry
from counterpoint.app.terminal.options import seed_option
from counterpoint.app.terminal.output import emit, json_option, note, table
from counterpoint.app.terminal.progress import progress
from counterpoint.app.words import plain_text
from counterpoint.display import counted, number
from counterpoint.errors import CounterpointError, InputError, NotFound, Refused, did_you_mean

if TYPE_CHECKING:
    from counterpoint.lab.bench.claim import ClaimRow

HEADING = "Learn"
_WIDTHS = (52, 10, 10, 10, 6, 0)
_SEEDS = 5


@click.command(
    epilog="\b\nExamples:\n  counterpoint reproduce\n  counterpoint reproduce all --seed 7 --json\n"
    "  counterpoint reproduce fork-exact stopping --seeds 3\n\n"
    "Exit codes: 0 every target is met, 1 a claim crashed, 2 a wrong option, 3 no such claim, 4 a target is missed,\n"
    "5 the machine lacks what a claim needs."
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@seed_option("The first seed; another seed means fresh data.")
@click.option("--seeds", default=_SEEDS, show_default=True, type=click.IntRange(min=1), help="How many seeds.")
@json_option
def reproduce(names: tuple[str, ...], seed: int, seeds: int, as_json: bool) -> None:
    """Run the experiments behind our numbers again; without a NAME, list them.

    NAME is a claim of that list, `all`, or one of yours as package.module:function. A row prints a value, its 95 % interval over
    the seeds, and its target; rows without a target are counted apart.
    """
    if not names:
        return _list(as_json=as_json)
    if "all" in names and len(names) > 1:
        raise InputError("`all` names every claim", fix="counterpoint reproduce all")
    claims = registry.ids("claim") if names == ("all",) else list(dict.fromkeys(_id(name) for name in names))
    printer = _Printer(len(claims), as_json)
    with progress("claims" if len(claims) > 1 else "claim", len(claims) if len(claims) > 1 else None, quiet=as_json) as bar:
        for k, name in enumerate(claims):
            bar.at(k, about=_dashed(name))
            printer.begin(name)
            try:
                for i, row in enumerate(_rows(name, seed, seeds), start=1):
                    bar.at(k, about=f"{_dashed(name)}, {counted(i, 'row')}")
                    printer.row(name, row)
            except Refused as error:
                if len(claims) == 1:
                    raise
                printer.lacking(name, error)
    if not as_json:
        printer.end(seeds)
    raise SystemExit(4 if printer.missed else Refused.exit_code if printer.lacks else 0)


class _Printer:
    """Prints rows, and counts the targets that they meet and miss."""

    def __init__(self, claims: int, as_json: bool) -> None:
        self.is_one, self.as_json = claims == 1, as_json
        self.held = self.missed = self.free = 0  # rows with a target, those of them that miss it, rows without one
        self.lacks: list[str] = []
        self._begun = 0

    def begin(self, name: str) -> None:
        """Head the table of a claim."""
        if not self.as_json:
            head = ("\n" if self._begun else "") + _dashed(name)
            click.echo(head + "\n" + _line(("name", "value", "95 % low", "high", "", "target")))
        self._begun += 1

    def row(self, name: str, row: ClaimRow) -> None:
        """Print a row and count it."""
        is_missed = row.has_target and not row.ok
        self.held, self.free, self.missed = self.held + row.has_target, self.free + (not row.has_target), self.missed + is_missed
        if self.as_json:
            emit(({} if self.is_one else {"claim": _dashed(name)}) | row.as_dict())
        else:
            numbers = (number(row.value), number(row.low), number(row.high))
            mark = "MISSED" if is_missed else "ok" if row.has_target else "-"
            click.echo(_line((row.name, *numbers, mark, row.target)))

    def lacking(self, name: str, error: Refused) -> None:
        """One of several claims cannot run here: print why, and continue."""
        self.lacks.append(_dashed(name))
        if self.as_json:
            emit({"claim": _dashed(name)} | error.as_dict())
        else:
            click.echo(plain_text(f"not run: {error.what}" + (f"; {error.fix}" if error.fix else "")))

    def end(self, seeds: int) -> None:
        """The last line."""
        is_few = self.missed and seeds < _SEEDS
        few = f"; targets are for the mean of {_SEEDS} seeds, and {seeds} may miss by chance" if is_few else ""
        lacks = f"; not run, as this machine lacks what they need: {', '.join(self.lacks)}" if self.lacks else ""
        if self.held:
            free = f", {counted(self.free, 'row')} without a target" if self.free else ""
            note(f"{self.held - self.missed} of {counted(self.held, 'target')} met{free}{few}{lacks}")
        else:
            note(f"no target: {counted(self.free, 'row')} as {'they are' if self.free != 1 else 'it is'}{lacks}")


def _dashed(name: str) -> str:
    """A claim as people write it: with dashes."""
    return name if ":" in name else name.replace("_", "-")


def _id(name: str) -> str:
    """The claim's id; all names are looked up before the first one runs."""
    if ":" in name:
        return name
    id_ = name.lower().replace("-", "_")
    if id_ not in registry.ids("claim"):
        raise NotFound(f"no claim named {name!r}", fix=did_you_mean(_dashed(name), map(_dashed, registry.ids("claim"))))
    return id_


def _list(*, as_json: bool) -> None:
    rows = [(_dashed(name), registry.summary("claim", name)) for name in registry.ids("claim")]
    if as_json:
        for name, summary in rows:
            emit({"name": name, "summary": summary})
    elif rows:
        click.echo(table(("claim", "what it shows"), rows))
    else:
        note("No claims are shipped yet.")


def _rows(name: str, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The rows of one claim as they come; whatever goes wrong in it says which claim it was."""
    from counterpoint.lab.bench.claim import as_row

    claim = registry.get("claim", name)
    count = 0
    try:
        for row in claim(seed=seed, seeds=seeds):
            yield as_row(row)
            count += 1
    except NotFound as error:  # the claim itself was found, so this is something that it needs
        raise Refused(error.what, where=error.where or _dashed(name), why=error.why, fix=error.fix) from error
    except CounterpointError as error:
        error.where = error.where or _dashed(name)
        raise
    except ModuleNotFoundError as error:
        raise Refused(f"this claim needs {error.name}, which is not installed", where=_dashed(name)) from error
    except Exception as error:
        what = f"the claim crashed: {type(error).__name__}: {error}"
        fix = "run it again with --debug for the traceback"
        raise CounterpointError(what, where=_dashed(name), fix=fix) from error
    if not count:
        raise CounterpointError("the claim yields no row, so it shows nothing", where=_dashed(name))


def _line(cells: tuple[str, ...]) -> str:
    """A line of a table whose later rows are not known yet: fixed widths, numbers to the right."""
    padded = [c.rjust(w) if 0 < i < 4 else c.ljust(w) for i, (c, w) in enumerate(zip(cells, _WIDTHS, strict=True))]
    return plain_text("  ".join(padded)).rstrip()
