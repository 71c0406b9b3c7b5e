"""Turn logs into traces: Claude Code, Codex, OpenTelemetry, more.

Always true: logs are only read; what could not be read is counted and named; running it twice changes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.masking import import_summary
from counterpoint.app.terminal.options import dry_run_option, workers_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.progress import track
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import counted
from counterpoint.errors import InputError, NotFound
from counterpoint.trace.quantities import NO_TRANSCRIPT, PLACEHOLDER

if TYPE_CHECKING:
    from collections import Counter

    from counterpoint.app.discover import LogFiles
    from counterpoint.app.import_account import Account, Outcome
    from counterpoint.formats.importing.files import File
    from counterpoint.formats.importing.usage import Prices

HEADING = "Look"

# Each process costs its start and its memory once more: below this one does all, and asking for more is `--workers`.
_LARGE = 1 << 30


@click.command(
    "import",
    epilog="\b\nExamples:\n  counterpoint import --newest 7d\n  counterpoint import spans.json ~/logs --store traces --json\n\n"
    "Exit codes: 0 traces were stored or were there already (broken records are counted), 1 a session failed,\n"
    "2 nothing could be read, 3 no such path or no session matches.",
)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--newest", multiple=True, metavar="N|SPAN", help="Only the N newest sessions, or those changed within a span: 20, 7d, 12h."
)
@click.option("--project", metavar="NAME", help="Only sessions of this folder.")
@click.option("--format", "format_", metavar="NAME", help="The source, where the content does not show it; `list` shows all.")
@click.option("--prices", metavar="FILE", help="TOML of prices per model (default: $COUNTERPOINT_PRICES, and the package's own).")
@dry_run_option
@click.option("--strict", "is_strict", is_flag=True, help="Stop at the first record that cannot be read.")
@click.option("--reread", "is_again", is_flag=True, help="Also read sessions that have not changed.")
@workers_option("Processes that read (default: all cores for a large tree, else 1).")
@store_option
@json_option
def import_(paths: tuple[str, ...], format_: str | None, as_json: bool, **options: Any) -> None:
    """Import recorded team runs. Without a PATH: the sessions of agents in this user's home.

    The source is found by content; traces that `counterpoint export` wrote come back as they were. Sessions that
    grew since the last import are updated, the others are left as they are.
    """
    if format_ == "list":
        _list(as_json=as_json)
        return
    places = list(paths) or _homes()
    from counterpoint.app.price_file import read_prices

    table = read_prices(options["prices"] or os.environ.get("COUNTERPOINT_PRICES"))
    options |= _newest(options["newest"])
    from counterpoint.app.import_account import Account
    from counterpoint.app.import_logs import sessions_under, span
    from counterpoint.app.reimport import newest, own_files

    since = time.time() - span(options["last"]) if options["last"] else None
    found = sessions_under(places, format=format_, since=since, project=options["project"], limit=options["limit"])
    own = [] if options["project"] or format_ else own_files(found, since)
    if options["limit"]:
        own = newest(found, own, options["limit"])
    if not found.sessions and not own:
        raise _nothing(found, places, options)
    account = Account()
    for outcome in _own(own, options, quiet=as_json):
        account.add(outcome)
    for outcome in _outcomes(found, table, options, quiet=as_json) if found.sessions else ():
        account.add(outcome)
    _say(account, found, is_dry=options["is_dry"], as_json=as_json)
    if account.failed:
        raise click.exceptions.Exit(1)
    if not account.traces and not account.removed:
        what = f"{sum(c['sessions'] for c in account.by_importer.values()):,} sessions were read, and no trace is in them"
        raise InputError(what, where=", ".join(places), fix="`counterpoint import --json` says what was broken or unknown")


def _newest(words: tuple[str, ...]) -> dict[str, Any]:
    """`limit`, how many sessions, and `last`, a span: what the words of `--newest` say."""
    counts, spans = ([word for word in words if word.isdecimal() is is_count] for is_count in (True, False))
    if len(counts) > 1 or len(spans) > 1:
        raise InputError("names two numbers, or two spans", where="--newest", fix="--newest 20, --newest 7d, or one of each")
    if counts and int(counts[0]) < 1:
        raise InputError("takes at least one session", where="--newest", fix="as in --newest 20")
    return {"limit": int(counts[0]) if counts else None, "last": spans[0] if spans else None}


def _outcomes(found: LogFiles, table: Prices, options: dict[str, Any], *, quiet: bool) -> Iterator[Outcome]:
    """What becomes of each session, one by one; a large tree is shared out over the machine's cores."""
    from counterpoint.app.import_logs import import_in_parallel, import_sessions, save_memory

    is_dry, is_strict, is_again = options["is_dry"], options["is_strict"], options["is_again"]
    size = sum(file.size for _, session in found.sessions for file in session.files)
    workers = options["workers"] or (min(os.cpu_count() or 1, 8) if size >= _LARGE else 1)
    store = None if is_dry else open_store(options["store"], create=True)
    save_memory()
    try:
        if store is not None and workers > 1 and not is_strict:
            done = import_in_parallel(found.sessions, store.path, workers, prices=table, is_again=is_again)
            yield from track(done, "sessions", total=len(found.sessions), quiet=quiet)
        else:
            rows = track(found.sessions, "sessions", quiet=quiet)
            yield from import_sessions(rows, store, prices=table, is_strict=is_strict, is_again=is_again or is_dry)
    finally:
        if store is not None:
            store.close()


def _own(files: list[File], options: dict[str, Any], *, quiet: bool) -> Iterator[Outcome]:
    """Traces that Counterpoint exported; of a run of which the store has more, that stays as it is."""
    from counterpoint.app.import_account import Outcome
    from counterpoint.app.import_removed import left_out
    from counterpoint.app.reimport import put_own, traces_of_own

    if not files:
        return
    store = None if options["is_dry"] else open_store(options["store"], create=True)
    try:
        for file in track(files, "files", quiet=quiet):
            done, begin, gone = Outcome("counterpoint", file.name, "added"), time.perf_counter(), 0
            try:
                traces = traces_of_own(file)
                gone = 0 if store is None else sum(map(store.removals.has, traces))
                done.status = "added" if store is None else put_own(traces, store)
            except InputError as error:
                if options["is_strict"]:
                    raise
                done.status, done.error, traces = "failed", error.one_line(), []
            done.traces = [trace.trace_id for trace in traces]
            left_out(done, gone)
            done.agents, done.events = sum(len(t.members) for t in traces), sum(len(t.events) for t in traces)
            done.tokens = sum(int(t.costs.get("tokens", 0)) for t in traces)
            done.seconds = time.perf_counter() - begin
            yield done
    finally:
        if store is not None:
            store.close()


def _homes() -> list[str]:
    from counterpoint.app.import_logs import homes

    found = homes()
    if not found:
        fix = "name a file or folder: counterpoint import PATH"
        raise NotFound("no sessions of an agent that we know in this user's home", fix=fix)
    note("reading " + ", ".join(f"{path} ({name})" for name, path in found))
    return [os.fspath(path) for _, path in found]


def _nothing(found: LogFiles, places: list[str], options: dict[str, Any]) -> Exception:
    filters = [f"--newest {word}" for word in options["newest"]]
    filters += [f"--project {options['project']}"] if options["project"] else []
    if filters:
        return NotFound(f"no session matches {' '.join(filters)}", fix="leave the option out to see all")
    here = os.path.join(os.getcwd(), "")
    why = "; ".join(f"{s.name.removeprefix(here)}: {s.why}" for s in found.skipped[:3]) or "there is no file"
    fix = "`counterpoint import --format list` shows the sources we know; --format NAME forces one"
    return InputError("holds no log of a known format", where=", ".join(places), why=why, fix=fix)


def _say(account: Account, found: LogFiles, *, is_dry: bool, as_json: bool) -> None:
    if as_json:
        skipped = [{"file": s.name, "why": s.why} for s in found.skipped[:50]]
        counts = {"files": found.files, "bytes": found.bytes, "skipped": len(found.skipped), "skipped_first": skipped}
        emit({"schema": SCHEMA_VERSION, "dry_run": is_dry, **counts, **account.as_dict()})
        return
    click.echo(summary(account, found, is_dry=is_dry))


def _list(*, as_json: bool) -> None:
    import counterpoint.registry as registry
    from counterpoint.app.discover import importers

    for name, one in sorted(importers().items()):
        line = registry.summary("format", name)
        if as_json:
            about = {"system": one.system, "versions": one.versions, "exact": one.exact, "lost": one.lost}
            emit({"schema": SCHEMA_VERSION, "format": name, "about": line, **about, "becomes": one.becomes})
        else:
            click.echo(f"{name:16} {line}\n{'':16} versions {one.versions} · exact: {one.exact} · lost: {one.lost}")


# -- the summary -----------------------------------------------------------------------------------------------------------


_SHOWN = 3


def summary(account: Account, found: LogFiles, *, is_dry: bool = False) -> str:
    """What was found, and what was not."""
    rows = []
    for name, counts in sorted(account.by_importer.items()):
        sessions = counted(counts["sessions"], "session")
        if counts["traces"] != counts["sessions"]:  # a session may hold several runs, or none
            sessions += f", {counted(counts['traces'], 'trace')}"
        cells = [sessions, counted(counts["agents"], "agent"), counted(counts["events"], "event")]
        rows.append([name, *cells, f"{account.seconds[name]:.1f} s", _statuses(counts)])
    lines = [table([""] * 6, rows, right=(1, 2, 3, 4)).lstrip("\n")]
    report = account.report
    exact, inferred = report.exact.total(), report.inferred.total()
    by_rule = f" ({_listed(report.inferred)})" if inferred else ""
    lines.append(f"links    exact {exact:,} · inferred {inferred:,}{by_rule} · unlinked {report.unlinked_count:,}")
    lines += _first(report.unlinked, report.unlinked_count)
    unaccounted = f" · {counted(account.without_usage, 'model call')} without a usage record" if account.without_usage else ""
    if account.without_transcript:
        unaccounted += f" · {counted(account.without_transcript, 'agent')} without a transcript"
        unaccounted += f", whose parents state {account.stated:,}" if account.stated else ""
    if account.placeholders:
        unaccounted += f" · {counted(account.placeholders, 'model call')} with a placeholder for the output"
    if account.odd_counts:
        unaccounted += f" · {counted(account.odd_counts, 'count')} left out: no whole number of tokens"
    least = "at least " if account.placeholders else ""
    lines.append(f"tokens   {least}{account.tokens:,} accounted{unaccounted}")
    if account.secrets:
        lines.append(f"secrets  {import_summary(account.different())}")
    if report.broken_count:
        lines.append(f"broken   {counted(report.broken_count, 'record')} left out")
        places = [f"{b['file']}:{b['line']}: {b['what']}" if b["line"] else f"{b['file']}: {b['what']}" for b in report.broken]
        lines += _first(places, report.broken_count)
    if report.unknown:
        lines.append(f"unknown  {counted(report.unknown.total(), 'record')} of kinds we do not know ({_listed(report.unknown)})")
    if report.mended:
        lines.append(f"repaired {_listed(report.mended)}")
    if kept := sum(counts["kept"] for counts in account.by_importer.values()):
        more = "the stored copy is longer; remove it first to replace it (`store rm`, then `store rm --restore`)"
        lines.append(f"kept     {counted(kept, 'session')}: {more}")
    if account.removed:
        left_out = counted(account.removed, "trace")
        lines.append(f"removed  {left_out} skipped that `store rm` removed (`store rm --restore [ID]` lets them back in)")
    said = ("the tokens", "token counts", NO_TRANSCRIPT, PLACEHOLDER)
    lacks = {what: n for what, n in report.lacks.items() if not what.startswith(said)}
    lines += [f"missing  {what} ({n:,})" for what, n in sorted(lacks.items(), key=lambda row: -row[1])[:5]]
    lines += _skipped(found)
    lines += [f"failed   {o.session}: {plain_text(o.error or '')}" for o in account.failed[:_SHOWN]]
    if is_dry:
        lines.append("nothing was stored (--dry-run)")
    return "\n".join(line.rstrip() for line in lines)


def _statuses(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[s]:,} {s}" for s in ("updated", "unchanged", "kept", "removed", "empty", "failed") if counts[s])


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{n:,} {plain_text(what)}" for what, n in counts.most_common(6))


def _first(lines: list[str], total: int) -> list[str]:
    here = os.path.join(os.getcwd(), "")
    shown = [f"         {plain_text(line.removeprefix(here))}" for line in lines[:_SHOWN]]
    return shown + ([f"         ... and {total - _SHOWN:,} more"] if total > _SHOWN else [])


def _skipped(found: LogFiles) -> list[str]:
    if not found.skipped:
        return []
    lines = [f"skipped  {len(found.skipped):,} of {found.files:,} files"]
    return lines + _first([f"{s.name}: {s.why}" for s in found.skipped], len(found.skipped))
