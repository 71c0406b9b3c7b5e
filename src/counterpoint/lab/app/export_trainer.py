"""`counterpoint export TRACE... --to trl|verl|tinker|rllm|verifiers|slime|dpo|kto|sft`: rows for somebody else's trainer.

Always true: a file holds the rows of one policy and was read back before it was put in place; what has no place in the target is
said; several policies make a folder, a file or a configuration for each.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import counterpoint.registry as registry
from counterpoint.app.terminal.masking import counts, many, report_lines, report_rows
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, note
from counterpoint.errors import InputError
from counterpoint.files import put, refuse
from counterpoint.lab.app.export_rl import (
    Leaving,
    account,
    id_lines,
    left_out_line,
    placed_lines,
    rows_that_leave,
    secret_calls,
    why_none,
)

if TYPE_CHECKING:
    from counterpoint.lab.trainers.trainer import Trainer
    from counterpoint.trace import Trace

_TABLES = (".parquet", ".jsonl")


class _Rows(NamedTuple):
    """What is to be written, policy by policy, and why the rest is not."""

    by_policy: dict[str, list[Any]]
    left_out: Counter[str]
    without_logps: int = 0


class _File(NamedTuple):
    path: Path
    data: bytes
    rows: int
    policy: str

    def as_dict(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.data).hexdigest()
        return {"path": str(self.path), "policy": self.policy, "rows": self.rows, "bytes": len(self.data), "sha256": digest}


def write_for_trainer(
    refs: Sequence[str],
    target: str,
    output: str | None,
    *,
    credit: str,
    options: dict[str, Any],
    policy: str | None,
    tokenizer: str | None,
    is_bare: bool,
    is_personal: bool,
    is_dry: bool,
    force: bool,
    store: str | None,
    is_report: bool,
    as_json: bool,
) -> None:
    """Write the rows and say what is in them, and what is not."""
    from counterpoint.app.api.credit import credit_of
    from counterpoint.app.api.inputs import many_traces
    from counterpoint.lab.trainers.token_ids import tokenized
    from counterpoint.lab.trainers.trainer import say_version

    trainer: Trainer = registry.get("trainer", target)
    place = _place(refs, target, output, trainer)
    if tokenizer is not None and trainer.write_texts is not None:
        raise InputError(f"rows of {target} are texts, which need no token ids", where="--tokenizer", fix="leave it out")
    with_ids = tokenized(many_traces(list(refs), store), tokenizer)
    traces = with_ids.traces
    leaving = rows_that_leave(traces, credit_of(credit, traces, options), is_bare=is_bare, is_personal=is_personal)
    found, given, secrets = leaving.found, leaving.credit, leaving.secrets
    rows = _chosen(trainer, traces, leaving)
    if not rows.by_policy:
        what = "no model call can be learned from" if sum(rows.left_out.values()) else "the traces have no model call"
        raise InputError(what, where=credit, why=left_out_line(rows.left_out) or None, fix=why_none(rows.left_out))
    some = _one_policy(rows.by_policy, policy, target, is_folder=place.is_folder)
    files = _files(trainer, target, some, place)
    _put(files, is_stdout=output == "-", is_dry=is_dry, force=force)
    versions = say_version(trainer.package, trainer.tested) if trainer.package else None
    if as_json and output != "-":
        emit({"schema": SCHEMA_VERSION, "to": target, "traces": list(found.trace_ids), "dry_run": is_dry,
              "files": [file.as_dict() for file in files], "credit": account(found, given), "left_out": dict(rows.left_out),
              "masked": counts(secrets), "lost": trainer.lost, "version": versions, **with_ids.as_dict(),
              **({"report": report_rows(secrets)} if is_report else {})})  # fmt: skip
        return
    said = [_report(files, leaving, rows, trainer.lost, versions, with_ids.line(), lead="would write " if is_dry else "")]
    (note if output == "-" else click.echo)("\n".join(said + (report_lines(secrets) if is_report else [])))


def _put(files: Sequence[_File], *, is_stdout: bool, is_dry: bool, force: bool) -> None:
    if is_stdout:
        if not is_dry:
            sys.stdout.buffer.write(files[0].data)
            sys.stdout.buffer.flush()
        return
    for file in files:
        refuse(file.path, overwrite=force)
    if not is_dry:
        put([(file.path, file.data) for file in files], overwrite=force)


class _Place(NamedTuple):
    path: Path
    suffix: str
    is_folder: bool


def _place(refs: Sequence[str], target: str, output: str | None, trainer: Trainer) -> _Place:
    usual = trainer.suffixes[0]
    if not refs:
        raise InputError("no trace was named", fix=f"counterpoint export TRACE... --to {target} -o rows{usual}")
    if output is None:
        raise InputError("no output was named", fix=f"add -o rows{usual}, or -o rows/ for a file per policy")
    if output == "-":
        suffix = next((s for s in trainer.suffixes if s == ".jsonl"), None)
        if suffix is None:
            raise InputError(f"{target} rows are not text, so stdout cannot take them", where="-o -", fix=f"-o rows{usual}")
        return _Place(Path("-"), suffix, is_folder=False)
    path = Path(output)
    if output.endswith("/") or path.is_dir():
        return _Place(path, usual, is_folder=True)
    if path.suffix not in trainer.suffixes:
        known = " or ".join(trainer.suffixes)
        raise InputError(
            f"{target} rows are not written as {path.suffix or 'such'} files", where=f"-o {output}", fix=f"{known}, or a folder/"
        )
    return _Place(path, path.suffix, is_folder=False)


def _chosen(trainer: Trainer, traces: Sequence[Trace], leaving: Leaving) -> _Rows:
    from counterpoint.lab.trainers.row import WITHOUT_LOGPS, by_policy, training_rows
    from counterpoint.lab.trainers.text_call import text_calls

    found, masked = leaving.found, traces if leaving.secrets is None else leaving.secrets.traces
    if trainer.write_texts is None:
        chosen = training_rows(found, secret_calls(traces, masked))
        bare = {id(row) for rows in by_policy(chosen.rows).values() for row in trainer.without_logps(rows)}
        rows = [row for row in chosen.rows if id(row) not in bare]
        chosen.left_out[WITHOUT_LOGPS] += len(bare)
        return _Rows(by_policy(rows), +chosen.left_out, sum(row.logps is None for row in rows))
    calls, left_out = text_calls(masked, found)
    grouped: dict[str, list[Any]] = {}
    for call in calls:
        grouped.setdefault(call.policy, []).append(call)
    records = {name: trainer.write_texts(some) for name, some in grouped.items()}
    if calls and not any(records.values()):
        left_out["that have nothing to be compared with, or earned nothing"] += len(calls)
    return _Rows({name: some for name, some in records.items() if some}, left_out)


def _one_policy(found: dict[str, list[Any]], policy: str | None, target: str, *, is_folder: bool) -> dict[str, list[Any]]:
    """The policies to write: all of them into a folder, one into a file."""
    if policy is not None:
        if policy not in found:
            from counterpoint.errors import did_you_mean

            raise InputError(f"no rows of the policy {policy!r}", where="--policy", fix=did_you_mean(policy, found))
        return {policy: found[policy]}
    if len(found) > 1 and not is_folder:
        counts = ", ".join(f"{name} ({len(some)})" for name, some in found.items())
        raise InputError(f"rows of {len(found)} policies in one file: {counts}", where=f"--to {target}",
                         why="one learner would learn from what another said",
                         fix="-o rows/ for a file each, or --policy NAME")  # fmt: skip
    return found


def _files(trainer: Trainer, target: str, some: Mapping[str, list[Any]], place: _Place) -> list[_File]:
    names = {name: _file_name(name) for name in some}
    if place.is_folder and set(trainer.suffixes) == set(_TABLES):
        return _dataset(trainer, target, some, names, place.path)
    files = []
    for name, rows in some.items():
        path = place.path / (names[name] + place.suffix) if place.is_folder else place.path
        files.append(_File(path, _bytes(trainer, rows, place.suffix), len(rows), name))
    return files


def _bytes(trainer: Trainer, rows: list[Any], suffix: str) -> bytes:
    if trainer.write_texts is None:
        return trainer.to_bytes(rows, suffix)
    from counterpoint.lab.trainers.tables import to_table

    return to_table(rows, trainer.columns, suffix)


def _dataset(trainer: Trainer, target: str, some: Mapping[str, list[Any]], names: dict[str, str], folder: Path) -> list[_File]:
    """A folder that `datasets.load_dataset` reads: a configuration for each policy, and a card."""
    from counterpoint.lab.trainers.tables import dataset

    if trainer.write_texts is None:
        from counterpoint.lab.trainers.row import as_record

        for rows in some.values():
            trainer.to_bytes(rows, ".parquet")  # refuses what would not come back the same
        records = {names[name]: [as_record(row) for row in rows] for name, rows in some.items()}
    else:
        records = {names[name]: rows for name, rows in some.items()}
    counted = ", ".join(f"{name}: {len(rows):,}" for name, rows in some.items())
    about = f"Rows: {counted}. {trainer.about}.\n\nWritten by `counterpoint export --to {target}`.\n\n"
    made = dataset(records, trainer.columns, f"Counterpoint rows for {target}", f"{about}Not in it: {trainer.lost}.")
    whose = {f"{names[name]}/train.parquet": name for name in some}
    return [_File(folder / p, data, len(some.get(whose.get(p, ""), ())), whose.get(p, "")) for p, data in made.items()]


def _file_name(policy: str) -> str:
    """The policy where it can be a file's name; otherwise what can, and a hash so that no two policies share a name."""
    plain = re.sub(r"\W", "_", policy, flags=re.ASCII).strip("_")[:80] or "policy"
    return plain if plain == policy else f"{plain}_{hashlib.sha256(policy.encode()).hexdigest()[:8]}"


def _report(
    files: Sequence[_File], leaving: Leaving, rows: _Rows, lost: str, versions: str | None, ids: str | None, *, lead: str
) -> str:
    lines = []
    for file in files:
        digest = hashlib.sha256(file.data).hexdigest()
        whose = f"  {many(file.rows, 'row')} of {file.policy}" if file.policy else ""
        lines.append(f"{lead}{file.path}{whose}  {len(file.data):,} bytes  sha256 {digest}")
    lines += placed_lines(leaving)
    lines += [f"note      {versions}"] if versions else []
    lines += id_lines(ids, rows.without_logps)
    return "\n".join([*lines, f"left out  {left_out_line(rows.left_out) or 'nothing'}", f"lost      {lost}"])
