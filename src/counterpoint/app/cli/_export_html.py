"""`counterpoint export TRACE --to html -o FILE`: the viewer with the trace in it, as one file.

Always true: the output says what is masked, cut and left out; the file appears whole or not at all. An older file of this kind
may stand in the place of a trace: its data moves into the present page unchanged.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from counterpoint.app.load_save import load
from counterpoint.app.terminal.masking import counts, mask_summary, report_lines, report_rows
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit
from counterpoint.app.viewer.one_file import OneFile, page_around, reopened
from counterpoint.app.viewer.share_file import share_file
from counterpoint.errors import InputError
from counterpoint.files import put, read_plain, refuse
from counterpoint.formats.masking import MaskedTraces

_WINDOW = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:-|\.\.)\s*(\d+(?:\.\d+)?)\s*")


def write_html(
    refs: Sequence[str],
    output: str,
    *,
    agents: str | None,
    window: str | None,
    is_summary: bool,
    is_bare: bool,
    is_personal: bool,
    is_report: bool,
    is_dry: bool,
    force: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Write the file and say what is in it."""
    path = Path(output)
    refuse(path, overwrite=force)
    secrets: MaskedTraces | Counter[str] | None
    old = [ref for ref in refs if ref.lower().endswith((".html", ".htm"))]
    if old:
        made, secrets, ids, notes = _moved(refs, agents or window or is_summary)
    else:
        named = [name.strip() for name in agents.split(",") if name.strip()] if agents else []
        between = _between(window) if window else None
        traces = [load(ref, store=store) for ref in refs]
        how = {"is_summary": is_summary, "is_bare": is_bare, "is_personal": is_personal}
        made, secrets, ids, notes = share_file(traces, agents=named, window=between, **how)
    if not is_dry:
        put([(path, made.data)], overwrite=force)
    digest = hashlib.sha256(made.data).hexdigest()
    if as_json:
        left = {"texts_cut": made.texts_cut, "texts": made.texts_left_out}
        file = {"path": os.fspath(path), "rows": made.events, "bytes": len(made.data), "sha256": digest}
        report = {"report": report_rows(_masked(secrets))} if is_report else {}
        emit({"schema": SCHEMA_VERSION, "to": "html", "traces": ids, "dry_run": is_dry, "files": [file], "left_out": left,
              "masked": counts(secrets), "notes": notes, **report})  # fmt: skip
        return
    lead = "would write " if is_dry else ""
    click.echo(f"{lead}{path}  {made.events:,} events  {len(made.data):,} bytes  sha256 {digest}")
    click.echo(f"left out  {_left_out(made)}\nmasked    {mask_summary(secrets)}")
    for note in notes:
        click.echo(f"note      {note}")
    if is_report:
        click.echo("\n".join(report_lines(_masked(secrets))))


def _masked(secrets: MaskedTraces | Counter[str] | None) -> MaskedTraces | None:
    """What was masked where; of an older file that is not known."""
    return secrets if isinstance(secrets, MaskedTraces) else None


def _moved(refs: Sequence[str], is_cut: object) -> tuple[OneFile, Counter[str] | None, list[str], list[str]]:
    """An older file's data in the present page."""
    if len(refs) > 1:
        raise InputError("one older file at a time", where=refs[0], fix="counterpoint export OLD.html --to html -o NEW.html")
    if is_cut:
        raise InputError("an older file is moved as it is", where=refs[0], fix="leave out --agent, --window and --summary")
    data, content = reopened(read_plain(refs[0]), refs[0])
    ids = list(content["traces"])
    events = sum(t["about"]["events"] for t in content["traces"].values())
    secrets = None if content.get("masked") is None else Counter(content["masked"])
    note = f"the data that {content.get('made_by')} wrote, in the present page"
    return OneFile(page_around(data, " · ".join(ids)), events, 0, 0, 0), secrets, ids, [note]


def _between(window: str) -> tuple[float, float]:
    found = _WINDOW.fullmatch(window)
    if found is None:
        raise InputError(f"{window!r} is not a window of time", where="--window", fix="seconds from the beginning, as in 12.5-40")
    return float(found[1]), float(found[2])


def _left_out(made: OneFile) -> str:
    if made.texts_left_out:
        return f"{made.texts_left_out:,} texts, and the fields of events: --summary"
    ends = f", the ends of {made.texts_cut:,} texts: cut to {made.longest:,} characters" if made.texts_cut else ""
    return f"hashes of texts{ends}"
