"""Remove traces: by id, or all that match a query."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from counterpoint.app.search import is_narrow, matcher
from counterpoint.app.terminal.options import purge_option, yes_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import counted
from counterpoint.errors import InputError, NotFound, TryAgain
from counterpoint.store.handles import short_ids

if TYPE_CHECKING:
    from counterpoint.store import Store

_MOST = 10


@click.command(
    epilog="\b\nExamples:\n  counterpoint store rm run-1 run-2\n  counterpoint store rm 'task:demo reward<0.1' --yes --purge\n"
    "  counterpoint store rm --restore run-1\n\n"
    "Exit codes: 0 removed or restored, 1 not confirmed, 2 not a query, 3 no such trace, 6 one is being recorded."
)
@click.argument("what", nargs=-1, metavar="ID...|QUERY")
@yes_option
@purge_option
@click.option("--restore", is_flag=True, help="Let imports bring removed traces back: these ids, or all.")
@store_option
@json_option
def rm(what: tuple[str, ...], yes: bool, purge: bool, restore: bool, store: Path | None, as_json: bool) -> None:
    """Remove traces from the store, by id or by a query of `counterpoint ls`; asks first.

    A word alone must be a whole id, or the whole short id that `ls` shows: only a query with a field or a flag, such as
    task:demo or open, may match several. Later imports skip removed traces until --restore: the store keeps hashes of their
    names, and nothing of their content.
    """
    with open_store(store) as opened:
        if restore:
            _restore(opened, what, yes=yes, purge=purge, as_json=as_json)
            return
        if not what:
            raise InputError("there is nothing to remove", fix="counterpoint store rm ID, or a query such as task:demo")
        names = _ids(opened, what, purge=purge)
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
                pass  # somebody else was quicker, or it was removed before and is now to be erased
        erased = opened.purge().deleted if purge else 0
        aside = (opened.path / "set-aside").is_dir()
    if as_json:
        emit({"schema": SCHEMA_VERSION, "removed": removed, "busy": busy, "erased_files": erased, "is_erased": purge})
    else:
        click.echo(f"{len(names) - len(busy):,} removed and erased" if purge else f"{len(removed):,} removed")
        if not purge:
            note("compactions ten minutes apart erase their bytes; `counterpoint store rm ID --purge` does so now")
        note("later imports skip them; `counterpoint store rm --restore ID` lets them back in")
    if aside:
        note(f"files that a repair set aside may still hold it: {opened.path / 'set-aside'}")
    if busy:
        raise TryAgain(f"being recorded: {', '.join(busy[:_MOST])}", where=str(opened.path), fix="wait for its writer to end")


def _restore(opened: Store, what: tuple[str, ...], *, yes: bool, purge: bool, as_json: bool) -> None:
    """Forget removals: of these ids, or of all."""
    if purge:
        raise InputError("--restore and --purge exclude each other", fix="what was erased comes back with the next import")
    if not what and not yes:
        _confirm(f"Let all {counted(len(opened.removals), 'removed trace')} in again?", "letting all removed traces in")
    count = opened.removals.restore(what or None)
    if as_json:
        emit({"schema": SCHEMA_VERSION, "restored": count})
    else:
        click.echo(f"{count:,} restored; the next import of their logs brings them back")


def _ids(opened: Store, what: tuple[str, ...], *, purge: bool) -> list[str]:
    """The ids that are meant; all are ids, or all together are a query. Who erases may name what was removed before."""
    rows = opened.rows()
    short = {short: name for name, short in short_ids(row.id for row in rows).items()}
    what = tuple(short.get(name, name) for name in what)
    known = {row.id for row in rows} | {name for name in what if opened.version(name) is not None}
    if purge:
        known |= {name for name in what if opened.removals.has_id(name)}
    if all(name in known for name in what):
        return list(dict.fromkeys(what))
    text = " ".join(what)
    matches = matcher(text, opened.datasets())  # an unknown field is an error
    if not is_narrow(text):
        missing = next(name for name in what if name not in known)
        opened.find(missing)  # the error that suggests one
        fix = "`counterpoint ls --ids` lists them; a query needs a field: task:demo"
        raise InputError(f"{missing!r} is not a whole id", fix=fix)
    ids = [row.id for row in rows if matches(row)]
    if not ids:
        raise NotFound("no trace matches", where=str(opened.path), fix="counterpoint ls shows what there is")
    return ids


def _ask(names: list[str]) -> None:
    for name in names[:_MOST]:
        note(plain_text(f"  {name}"))
    if len(names) > _MOST:
        note(f"  and {len(names) - _MOST:,} more")
    _confirm(f"Remove {counted(len(names), 'trace')}?", "removing traces")


def _confirm(question: str, what: str) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(f"{what} needs a confirmation", fix="--yes does it without asking")
    click.confirm(question, abort=True, err=True)
