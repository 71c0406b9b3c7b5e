"""Look after a store: its size, damage, repair, compaction.

Always true: `info` and `verify` write nothing; `repair` deletes nothing; each works while others use the store.
"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from counterpoint.app.load_save import store_path
from counterpoint.app.terminal.groups import Group
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import number

HEADING = "Keep"

_SHOWN = 20


def _epilog(*lines: str) -> str:
    examples = "\n".join(f"  counterpoint store {line}" for line in lines)
    codes = "Exit codes: 0 fine, 1 no space, 2 damaged or no store, 3 nothing there, 4 verify or repair found a loss."
    return f"\b\nExamples:\n{examples}\n\n{codes}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


@click.group(cls=Group, epilog=_epilog("info", "verify --json", "repair", "compact"))
def store() -> None:
    """Look after a store: its size, whether it is undamaged, and how to repair it."""


@store.command("info", epilog=_epilog("info", "info --store runs/traces --json"))
@click.option("--days", default=7, show_default=True, type=click.IntRange(min=0), help="Show the last N days that added traces.")
@store_option
@json_option
def info_(days: int, store: Path | None, as_json: bool) -> None:
    """How large the store is, what it holds, and how it grew."""
    with open_store(store, read_only=True) as opened:
        found = opened.info()
    if as_json:
        emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(found)})
        return
    total = sum(found.bytes.values())
    rows = [
        ("traces", f"{found.traces:,} finished, {found.open:,} open, {found.dead_traces:,} removed or replaced, not yet erased"),
        ("events", f"{found.events:,}" + (f", {found.bytes.get('lake', 0) / found.events:.0f} bytes each" * bool(found.events))),
        ("bytes", f"{total:,}: " + (", ".join(f"{place} {size:,}" for place, size in found.bytes.items()) or "nothing yet")),
        ("format", f"{found.form}, {found.parts:,} parts, commit {found.commit:,}"),
    ]
    click.echo(plain_text(found.path))
    for name, text in rows:
        click.echo(f"  {name:7} {text}")
    if found.days and days:
        click.echo()
        click.echo(table(("day", "traces", "events"), [(d.day, d.traces, d.events) for d in found.days[-days:]], right=(1, 2)))


@store.command("verify", epilog=_epilog("verify", "verify --json"))
@store_option
@json_option
def verify_(store: Path | None, as_json: bool) -> None:
    """Read every byte and compare every checksum; exit 4 with a list of what is not as it was written."""
    from counterpoint.store.verify import verify

    found = verify(store_path(store))
    if as_json:
        emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(found)})
    else:
        for fault in found.faults:
            concerns = f"; concerns {_listed(fault.traces)}" if fault.traces else ""
            click.echo(plain_text(f"{fault.file}: {fault.what}{concerns}"))
        if found.untallied:
            note(f"{found.untallied:,} open runs are an older version's: whether their end is missing cannot be told")
        stray = f"; {found.strays:,} files of the lake are in nobody's use" if found.strays else ""
        note(f"{found.files:,} files, {found.bytes:,} bytes, {found.traces:,} traces: {len(found.faults):,} faults{stray}")
        if found.faults:
            note("counterpoint store repair keeps what can be read, and deletes nothing")
    if found.faults:
        raise click.exceptions.Exit(4)


@store.command("repair", epilog=_epilog("repair", "repair --store runs/traces --json"))
@store_option
@json_option
def repair_(store: Path | None, as_json: bool) -> None:
    """Repair a damaged store from its data files and journals; broken files are set aside, nothing is deleted.

    Exit 4 when traces were lost for good. A trace that was removed may come back, where the log no longer says so.
    """
    from counterpoint.store.repair import repair

    done = repair(store_path(store))
    if as_json:
        emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(done)})
    else:
        for line in done.done:
            click.echo(plain_text(line))
        for what, names in (("restored", done.restored), ("lost", done.lost)):
            if names:
                click.echo(plain_text(f"{what}: {_listed(names)}"))
        note("nothing to repair" if not done.done else f"what was broken is in {done.aside}" if done.aside else "done")
    if done.lost:
        raise click.exceptions.Exit(4)


@store.command("compact", epilog=_epilog("compact", "compact --now"))
@click.option("--now", is_flag=True, help="Erase what was removed or replaced at once, though others may be reading it.")
@store_option
@json_option
def compact_(now: bool, store: Path | None, as_json: bool) -> None:
    """Merge small files, and delete files that were replaced more than ten minutes ago.

    What was removed is in such a file only after a compaction has replaced it: --now does both at once.
    """
    with open_store(store) as opened:
        done = opened.compact(**({"grace_s": 0.0} if now else {}))
        if now:
            done = msgspec.structs.replace(done, deleted=done.deleted + opened.purge().deleted)
    if as_json:
        emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(done)})
        return
    click.echo(f"{number(done.merged)} parts merged into {number(done.written)}, {number(done.deleted)} files deleted")
