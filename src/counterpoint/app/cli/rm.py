"""Remove traces: by id, or all that match a query."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from counterpoint.app.cli._output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.cli._store import open_store, store_option
from counterpoint.app.search import is_narrow, matcher
from counterpoint.app.words import plain_text
from counterpoint.display import counted
from counterpoint.errors import InputError, NotFound, TryAgain
from counterpoint.store.handles import short_ids

if TYPE_CHECKING:
    from counterpoint.store import Store

_SHOWN = 10


@click.command(
    epilog="\b\nExamples:\n  counterpoint rm run-1 run-2\n  counterpoint rm 'task:demo reward<0.1' --yes --now\n\n"
    "Exit codes: 0 removed, 1 not confirmed, 2 not a query, 3 no such trace, 6 one is being recorded."
)
@click.argument("what", nargs=-1, required=True, metavar="ID...|QUERY")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--now", is_flag=True, help="Erase it from the store's files at once; without it, at the next compaction.")
@store_option
@json_option
def rm(what: tuple[str, ...], yes: bool, now: bool, store: Path | None, as_json: bool) -> None:
    """Remove traces from the store, by id or by a query of `counterpoint ls`; asks first.

    A word alone must be a whole id, or all of the short one that `ls` shows: only a query with a field or a flag, such as
    task:demo or open, may match several.
    """
    with open_store(store) as opened:
        names = _named(opened, what)
        if not yes:
            _ask(names)
        removed, busy = [], []
        for name in names:
            try:
                opened.remove(name)
                removed.append(name)
            except TryAgain:
                busy.append(name)
            except NotFound:
                pass  # somebody else was quicker
        erased = opened.purge().deleted if now and removed else 0
        aside = (opened.path / "set-aside").is_dir()
    if as_json:
        emit({"schema": SCHEMA_VERSION, "removed": removed, "busy": busy, "erased_files": erased, "is_erased": now})
    else:
        how = " and erased" if now else "; the next compaction erases it from the files, --now does so at once"
        click.echo(f"{len(removed):,} removed{how}")
    if aside:
        note(f"files that a repair set aside may still hold it: {opened.path / 'set-aside'}")
    if busy:
        raise TryAgain(f"being recorded: {', '.join(busy[:_SHOWN])}", where=str(opened.path), fix="wait for its writer to end")


def _named(opened: Store, what: tuple[str, ...]) -> list[str]:
    """The ids that are meant; all are ids, or all together are a query."""
    rows = opened.rows()
    short = {short: name for name, short in short_ids(row.id for row in rows).items()}
    what = tuple(short.get(name, name) for name in what)
    known = {row.id for row in rows} | {name for name in what if opened.version(name) is not None}
    if all(name in known for name in what):
        return list(dict.fromkeys(what))
    text = " ".join(what)
    matches = matcher(text, opened.datasets())  # an unknown field is an error
    if not is_narrow(text):
        missing = next(name for name in what if name not in known)
        opened.find(missing)  # the error that suggests one
        fix = "`counterpoint ls --ids` lists them; a query needs a field: task:demo"
        raise InputError(f"{missing!r} is not a whole id", fix=fix)
    found = [row.id for row in rows if matches(row)]
    if not found:
        raise NotFound("no trace matches", where=str(opened.path), fix="counterpoint ls shows what there is")
    return found


def _ask(names: list[str]) -> None:
    for name in names[:_SHOWN]:
        note(plain_text(f"  {name}"))
    if len(names) > _SHOWN:
        note(f"  and {len(names) - _SHOWN:,} more")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError("removing traces needs a confirmation", fix="--yes removes them without asking")
    click.confirm(f"Remove {counted(len(names), 'trace')}?", abort=True, err=True)
