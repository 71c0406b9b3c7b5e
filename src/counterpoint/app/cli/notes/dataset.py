"""Collections of traces by name: a saved query, or a list.

Always true: a query is asked anew each time; a list holds ids, and two who add to it at once lose nothing.
"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from counterpoint.app.terminal.groups import Group
from counterpoint.app.terminal.options import author_option, note_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import moment
from counterpoint.errors import InputError


def _epilog(*lines: str) -> str:
    examples = "\n".join(f"  counterpoint notes dataset {line}" for line in lines)
    return f"\b\nExamples:\n{examples}\n\nExit codes: 0 fine, 2 no query or no name, 3 no such dataset or trace."


@click.group(cls=Group, epilog=_epilog("save hard 'task:T1 reward<0.5'", "show hard", "ls"))
def dataset() -> None:
    """Name collections of traces; `in:NAME` stands for one wherever a query does.

    As in `ls in:NAME`, `blame in:NAME`, `export in:NAME`, `compare traces in:A in:B`, `train net --from STORE --where in:NAME`.
    """


@dataset.command("save", epilog=_epilog("save hard 'task:T1 reward<0.5'", "save golden run-1 run-2"))
@click.argument("name")
@click.argument("words", nargs=-1, required=True, metavar="QUERY|TRACE...")
@note_option
@author_option
@store_option
@json_option
def save_(name: str, words: tuple[str, ...], remark: str | None, author: str | None, store: Path | None, as_json: bool) -> None:
    """Save a query, or a list of traces, under a name; it replaces a collection of that name.

    A query is evaluated on every use; `notes dataset add NAME QUERY` makes a list of what it selects now.
    """
    from counterpoint.app.api.annotate import dataset

    made = dataset(name, _source(words, store), note=remark, by=author, store=store)
    _print([made.name], store, as_json=as_json)


def _source(words: tuple[str, ...], store: Path | None) -> str | list[str]:
    """Traces where each word names one, else the words as one query."""
    from counterpoint.errors import NotFound

    if len(words) == 1:
        return words[0]
    with open_store(store, read_only=True) as opened:
        try:
            return [opened.find(word) for word in words]
        except NotFound:
            return " ".join(words)


@dataset.command("add", epilog=_epilog("add golden run-3", "add golden 'label:right'"))
@click.argument("name")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE|QUERY...")
@store_option
@json_option
def add_(name: str, traces: tuple[str, ...], store: Path | None, as_json: bool) -> None:
    """Add traces to a list, which is made where it is new."""
    _change(name, traces, store, add=True, as_json=as_json)


@dataset.command("remove", epilog=_epilog("remove golden run-3", "remove golden 'label:wrong' --json"))
@click.argument("name")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE|QUERY...")
@store_option
@json_option
def remove_(name: str, traces: tuple[str, ...], store: Path | None, as_json: bool) -> None:
    """Remove traces from a list."""
    _change(name, traces, store, add=False, as_json=as_json)


def _change(name: str, traces: tuple[str, ...], store: Path | None, *, add: bool, as_json: bool) -> None:
    from counterpoint.app.api.annotate import change_list, chosen_names

    with open_store(store) as opened:
        change_list(opened, name, chosen_names(opened, list(traces)), add=add)
    _print([name], store, as_json=as_json)


@dataset.command("drop", epilog=_epilog("drop golden", "drop golden --json"))
@click.argument("name")
@store_option
@json_option
def drop_(name: str, store: Path | None, as_json: bool) -> None:
    """Delete a collection; its traces stay."""
    from counterpoint.app.api.annotate import known_dataset
    from counterpoint.store.annotations import Change, Dataset

    def decide(known: dict[str, Dataset]) -> list[Change]:
        known_dataset(known, name)
        users = [d.name for d in known.values() if d.query is not None and f"in:{name}" in d.query.split()]
        if users:
            raise InputError(f"{name!r} is part of {', '.join(users)}", fix=f"drop {users[0]} first")
        return [Change(drop=name)]

    with open_store(store) as opened:
        opened.change_datasets(decide)
    if as_json:
        emit({"schema": SCHEMA_VERSION, "dropped": name})
    else:
        note(f"{name}: dropped")


@dataset.command("ls", epilog=_epilog("ls", "ls --json"))
@store_option
@json_option
def ls_(store: Path | None, as_json: bool) -> None:
    """List the collections: what each is, how many traces it has, who made it."""
    with open_store(store, read_only=True) as opened:
        names = sorted(opened.datasets())
    _print(names, store, as_json=as_json)
    if not names:
        note("no dataset yet: counterpoint notes dataset save NAME QUERY", quiet=as_json)


@dataset.command("show", epilog=_epilog("show golden", "show golden --json | jq -r .traces[]"))
@click.argument("name")
@store_option
@json_option
def show_(name: str, store: Path | None, as_json: bool) -> None:
    """List the ids of the traces in a collection, one per line."""
    from counterpoint.app.api.annotate import known_dataset, members

    with open_store(store, read_only=True) as opened:
        found = known_dataset(opened.datasets(), name)
        ids = members(opened, found)
    missing = [one for one in found.ids if one not in set(ids)]
    if as_json:
        emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(found), "traces": ids, "missing": missing})
        return
    for one in ids:
        click.echo(plain_text(one))
    if missing:
        note(f"{len(missing):,} of the list are not in the store: {', '.join(map(plain_text, missing[:5]))}")


def _print(names: list[str], store: Path | None, *, as_json: bool) -> None:
    """A line about each."""
    from counterpoint.app.api.annotate import members

    with open_store(store, read_only=True) as opened:
        known = opened.datasets()
        rows = [(known[name], len(members(opened, known[name]))) for name in names if name in known]
    if as_json:
        for found, count in rows:
            emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(found), "count": count})
    elif rows:
        cells = [
            (f"in:{d.name}", n, "list" if d.query is None else d.query, d.by, moment(d.at), plain_text(d.note or ""))
            for d, n in rows
        ]
        click.echo(table(("dataset", "traces", "query", "author", "when", "note"), cells, right=(1,)))
