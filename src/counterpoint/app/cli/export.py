"""Write traces for other tools: JSON, Parquet, Perfetto, HTML, rows.

Always true: every file is made before the first is put in place, and each appears whole or not at all; nothing that exists is
replaced without --overwrite; what a target leaves out is printed; secrets are masked in every target unless masking is off,
in every string of a trace, and the report of it never says them.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

import counterpoint.registry as registry
from counterpoint.app.load_save import load
from counterpoint.app.terminal.masking import counts, many, mask_summary, report_lines, report_rows
from counterpoint.app.terminal.options import (
    agent_option,
    dry_run_option,
    full_option,
    list_option,
    mask_option,
    mechanism_option,
    overwrite_option,
    set_option,
    summary_option,
    values_of,
)
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.progress import track
from counterpoint.app.terminal.store import store_option
from counterpoint.errors import InputError, did_you_mean
from counterpoint.files import put, refuse
from counterpoint.formats.format import Format
from counterpoint.formats.masking import MaskedTraces, masked_all
from counterpoint.trace import Trace

HEADING = "Keep"

_CREDIT = "group_relative"
HTML = "html"
"""The target that is the viewer with the trace in it, as one file that opens from disk."""


class _File(NamedTuple):
    """One file to be written."""

    path: Path
    data: bytes
    rows: int

    def as_dict(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.data).hexdigest()
        return {"path": os.fspath(self.path), "rows": self.rows, "bytes": len(self.data), "sha256": digest}


@click.command(
    epilog="\b\nExamples:\n  counterpoint export run.trace.json --to perfetto -o run.perfetto.json\n"
    "  counterpoint export t1 t2 --to parquet -o tables/ --store traces\n"
    "  counterpoint export t1 --to html -o t1.html\n"
    "  counterpoint export 'task:T1 finished' --to rl --mechanism ledger -o rows.parquet\n"
    "  counterpoint export finished --to trl --mechanism ledger -o rows/"
)
@click.argument("traces", nargs=-1, metavar="TRACE|QUERY...")
@click.option("--to", "target", default="survey", show_default=True, metavar="TARGET", help="A target of --list.")
@click.option("-o", "--output", metavar="FILE|DIR|-", help="Where to; a folder for tables or several traces; - is stdout.")
@mechanism_option
@set_option
@click.option("--policy", metavar="NAME", help="Write the rows of this policy alone.")
@click.option("--tokenizer", metavar="DIR|NAME", help="Make missing token ids again with the tokenizer of this local model.")
@agent_option("Keep only these agents, separated by commas, and all below them; for html.")
@click.option("--window", metavar="FROM-TO", help="Keep only these seconds of the trace; for html.")
@summary_option("Leave out texts and fields of events; for html.")
@list_option("List every target, what it holds and what it loses.")
@mask_option
@full_option("Report each masked rule, place and count; never the secret.")
@dry_run_option
@overwrite_option
@store_option
@json_option
def export(
    traces: tuple[str, ...],
    target: str,
    output: str | None,
    is_list: bool,
    is_full: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Write traces in a format that other programs read.

    TRACE is a file, or the id (or its unique prefix) of a trace in the store; QUERY is what `ls` takes, such as in:NAME.
    Parquet and CSV make a folder of tables; rl and the trainers (trl, verl, tinker, skyrl, rllm, verifiers, slime, dpo, kto, and
    sft with --mechanism) one file with the model calls of all traces, or a folder with a file per policy; html one file for all;
    others one file per trace (sft one for all, where -o names a file).
    Texts are included in jsonl, otlp, sft, dpo, kto and html. Secrets become labels like [masked:key:0001].
    """
    if is_list:
        _list(as_json=as_json)
        return
    part = {"agents": how.pop("agent"), "window": how.pop("window"), "is_summary": how.pop("is_summary")}
    rows = {"credit": how.pop("mechanism"), "options": how.pop("pairs"), "policy": how.pop("policy"),
            "tokenizer": how.pop("tokenizer")}  # fmt: skip
    mask, how["force"] = how.pop("mask"), how.pop("overwrite")
    how |= {"is_bare": mask == "off", "is_personal": mask == "personal"}
    exporter = None if target == HTML else _row_exporter(target, rows["credit"])
    is_rows = exporter is not None
    _refuse_mixture(traces, target, output, is_part=any(part.values()), has_credit=any(rows.values()), is_rows=is_rows)
    if exporter is None:
        from counterpoint.app.api.inputs import expanded

        traces = tuple(expanded(traces, how["store"]))
    if target == HTML:
        from counterpoint.app.cli._export_html import write_html

        write_html(traces, str(output), is_report=is_full, as_json=as_json, **part, **how)
    elif exporter is not None:
        about = {"credit": rows["credit"] or _CREDIT, "options": values_of(rows["options"]), "policy": rows["policy"],
                 "tokenizer": rows["tokenizer"], **how}  # fmt: skip
        exporter.write(traces, target, output, is_report=is_full, as_json=as_json, **about)
    else:
        _write_format(traces, target, output, is_report=is_full, as_json=as_json, **how)


def _write_format(
    traces: tuple[str, ...], target: str, output: str | None, *, is_report: bool, as_json: bool, **how: Any
) -> None:
    """Traces in one of the formats, and what that leaves out."""
    format_ = _target(target)
    output = _refuse_usage(traces, target, output, format_)
    is_dry = how["is_dry"]
    loaded, secrets = _loaded(traces, is_quiet=as_json, **{name: how[name] for name in ("store", "is_bare", "is_personal")})
    files = _files(loaded, format_, output, folder_wanted=len(traces) > 1)
    left_out = _left_out(loaded, format_)
    said = "\n".join([_summary(files, left_out, secrets, format_, is_dry=is_dry), *(report_lines(secrets) if is_report else [])])
    if output == "-":
        if not is_dry:
            sys.stdout.buffer.write(files[0].data)
            sys.stdout.buffer.flush()
        note(said)
        return
    _place(files, is_dry=is_dry, force=how["force"])
    if as_json:
        asked = {"to": target, "traces": [t.trace_id for t in loaded], "dry_run": is_dry}
        written = {"files": [f.as_dict() for f in files], "left_out": left_out, "masked": counts(secrets), "lost": format_.lost}
        emit({"schema": SCHEMA_VERSION, **asked, **written, **({"report": report_rows(secrets)} if is_report else {})})
    else:
        click.echo(said)


def _exporters() -> list[Any]:
    """Those who write a row per model call (hook `exporters`): each names its targets, describes them, and writes."""
    return [exporter() for exporter in registry.hooks("exporters")]


def _row_exporter(target: str, credit: str | None) -> Any:
    """Who writes the rows that are asked for; None where a format is. sft is a format of whole conversations too, and means rows
    where a credit is named."""
    is_format = target in registry.ids("format") and _can_write(registry.get("format", target))
    if is_format and credit is None:
        return None
    return next((exporter for exporter in _exporters() if target in exporter.targets()), None)


def _place(files: Sequence[_File], *, is_dry: bool, force: bool) -> None:
    if is_dry:
        for file in files:
            refuse(file.path, overwrite=force)
    else:
        put([(file.path, file.data) for file in files], overwrite=force)


def _loaded(
    refs: Sequence[str], *, store: str | None, is_bare: bool, is_personal: bool, is_quiet: bool
) -> tuple[list[Trace], MaskedTraces | None]:
    """The traces without secrets, and what was masked; the same secret has the same label in all of them."""
    traces = [load(ref, store=store) for ref in track(refs, "traces", quiet=is_quiet)]
    if is_bare:
        return traces, None
    done = masked_all(traces, is_personal=is_personal)
    return done.traces, done


def _target(name: str) -> Format:
    id_, _, version = name.partition("-")
    if version and id_ in registry.ids("format") and version in registry.get("format", id_).writes_too:
        return replace(registry.get("format", id_), write=registry.get("format", id_).writes_too[version])
    writers = [n for n in registry.ids("format") if _can_write(registry.get("format", n))]
    writers += [f"{n}-{version}" for n in writers for version in registry.get("format", n).writes_too]
    if ":" not in name and name not in writers:
        others = [target for exporter in _exporters() for target in exporter.targets()]
        what = "is read, not written" if name in registry.ids("format") else "is not a target we know"
        raise InputError(f"{name!r} {what}", where="--to", fix=did_you_mean(name, [*writers, *others, HTML]))
    format_: Format = registry.get("format", name)
    return format_


def _can_write(format_: Format) -> bool:
    return format_.write is not None or format_.write_tables is not None


def _refuse_mixture(
    traces: tuple[str, ...], target: str, output: str | None, *, is_part: bool, has_credit: bool, is_rows: bool
) -> None:
    if has_credit and not is_rows:
        what = "--mechanism, --set, --policy and --tokenizer are for the rows of a trainer"
        raise InputError(what, fix="add --to rl, trl, verl, ...")
    if target != HTML and is_part:
        raise InputError("--agent, --window and --summary are for the viewer's file", fix="add --to html")
    if target == HTML and not traces:
        raise InputError("no trace is named", fix="counterpoint export TRACE --to html -o FILE; `counterpoint ls` lists traces")
    if target == HTML and output in (None, "-"):
        raise InputError("no output is named", where="-o", fix="add -o run.html")


def _refuse_usage(traces: tuple[str, ...], target: str, output: str | None, format_: Format) -> str:
    if not traces:
        raise InputError("no trace is named", fix="counterpoint export TRACE -o FILE; `counterpoint ls` lists traces")
    if output is None:
        example = f"-o {target}/" if format_.write is None else f"-o run{format_.suffixes[0]}"
        raise InputError("no output is named", fix=f"add {example}, or -o - for stdout")
    if output == "-" and format_.write is None:
        raise InputError(f"{target} makes several files, which stdout cannot hold", where="-o -", fix=f"use -o {target}/")
    if output == "-" and len(traces) > 1:
        raise InputError("stdout holds one trace, not several", where="-o -", fix="name a folder, or export them one by one")
    return output


def _files(traces: Sequence[Trace], format_: Format, output: str, *, folder_wanted: bool) -> list[_File]:
    """What is to be written where."""
    place = Path(output)
    if format_.write_tables is not None:
        if place.exists() and not place.is_dir():
            raise InputError("is a file, and tables need a folder", where=output, fix="name a folder, new or not")
        return [_File(place / name, table.data, table.rows) for name, table in format_.write_tables(traces).items()]
    write = format_.write
    assert write is not None
    if folder_wanted and _names_file(place, output, format_):
        if not format_.joins:
            fix = f"-o {place.with_suffix('')}/, or export them one by one"
            raise InputError("a file of this target holds one trace, not several", where=f"-o {output}", fix=fix)
        return [_File(place, b"".join(map(write, traces)), sum(len(t.events) for t in traces))]
    if folder_wanted or place.is_dir() or output.endswith(("/", os.sep)):
        if place.exists() and not place.is_dir():
            raise InputError("is a file, and several traces need a folder", where=output, fix="name a folder, new or not")
        files = [_File(place / (_file_name(t.trace_id) + format_.suffixes[0]), write(t), len(t.events)) for t in traces]
        if len({f.path for f in files}) < len(files):
            raise InputError("two of the traces have the same id", fix="export them into two folders")
        return files
    return [_File(place, write(traces[0]), len(traces[0].events))]


def _names_file(place: Path, output: str, format_: Format) -> bool:
    """Whether an output is a file by its name: it ends as files of the target do, and no folder is there."""
    ends = {"." + suffix.rpartition(".")[2] for suffix in format_.suffixes}
    return not place.is_dir() and not output.endswith(("/", os.sep)) and place.suffix in ends


def _file_name(trace_id: str) -> str:
    """The id where it can be a file's name; otherwise what can, and a hash so that no two ids share a name."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", trace_id).lstrip(".")[:120]
    return plain if plain == trace_id else f"{plain}-{hashlib.sha256(trace_id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _left_out(traces: Sequence[Trace], format_: Format) -> dict[str, int]:
    """How many texts and meta entries the traces have that the target does not carry."""
    counts = {name: sum(len(getattr(t, name)) for t in traces) for name in ("contents", "meta")}
    return {name: n for name, n in counts.items() if n and name not in format_.keeps}


def _summary(
    files: Sequence[_File], left_out: dict[str, int], secrets: MaskedTraces | None, format_: Format, *, is_dry: bool
) -> str:
    unit, lead = "row" if format_.write is None else "event", "would write " if is_dry else ""
    lines = []
    for file in files:
        digest = hashlib.sha256(file.data).hexdigest()
        lines.append(f"{lead}{file.path}  {many(file.rows, unit)}  {len(file.data):,} bytes  sha256 {digest}")
    words = {"contents": "content text", "meta": "meta entry"}
    missing = " · ".join(many(n, words[name]) for name, n in left_out.items())
    rest = [f"left out  {missing or 'nothing'}", f"masked    {mask_summary(secrets)}", f"lost      {format_.lost}"]
    return "\n".join([*lines, *rest])


def _list(*, as_json: bool) -> None:
    lost = "nothing that the viewer shows; long texts are cut"
    if as_json:
        shape = {"suffixes": [".html"], "folder": False, "reads_back": False}
        emit({"schema": SCHEMA_VERSION, "target": HTML, **shape, "columns": {}, "lost": lost})
    else:
        click.echo(f"{HTML}: one .html file, the viewer with the traces in it\n  lost: {lost}\n")
    for row, lines in (described for exporter in _exporters() for described in exporter.described()):
        emit({"schema": SCHEMA_VERSION, **row}) if as_json else click.echo(lines)
    for name in registry.ids("format"):
        format_: Format = registry.get("format", name)
        if not _can_write(format_):
            continue
        can_read = format_.read is not None or format_.read_tables is not None
        if as_json:
            columns = {part: list(names) for part, names in format_.fields.items()}
            shape = {"suffixes": list(format_.suffixes), "folder": format_.write is None, "reads_back": can_read}
            shape |= {"versions": list(format_.writes_too)} if format_.writes_too else {}
            emit({"schema": SCHEMA_VERSION, "target": name, **shape, "columns": columns, "lost": format_.lost})
            continue
        versions = f"; {', '.join(f'{name}-{v}' for v in format_.writes_too)} name a version" if format_.writes_too else ""
        kind = "a folder of tables" if format_.write is None else f"one {format_.suffixes[0]} file per trace"
        click.echo(f"{name}: {kind}{'' if can_read else ', not read back'}{versions}")
        for part, names in format_.fields.items():
            click.echo(f"  {part}: {', '.join(names)}")
        click.echo(f"  lost: {format_.lost}\n")
