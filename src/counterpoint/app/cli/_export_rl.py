"""`counterpoint export TRACE... --to rl`: a row per model call that a policy can learn from, for trainers.

Always true: every row has token ids, an advantage and as many of everything as its answer has tokens; calls that cannot have
that are counted with the reason; credit that no call carries is reported with its amount. Forks run where a mechanism needs them.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from counterpoint.app.cli._masked import many
from counterpoint.app.cli._output import SCHEMA_VERSION, emit, note
from counterpoint.errors import InputError
from counterpoint.files import put, refuse

if TYPE_CHECKING:
    from counterpoint.credit.call_rows import CallRows
    from counterpoint.trace import Trace
    from counterpoint.trace.rows import Credit

RL = "rl"
RL_SUFFIXES = (".jsonl", ".parquet")
RL_LOST = "texts, events and edges: rows hold token ids; not read back"
_SECRET = "that read or wrote a secret (--no-mask keeps them)"
_encode = msgspec.json.Encoder().encode


class _Kept(NamedTuple):
    """What goes into the file, and why the rest does not."""

    rows: list[dict[str, Any]]
    left_out: Counter[str]


def write_rl(
    refs: Sequence[str],
    output: str | None,
    *,
    credit: str,
    options: dict[str, Any],
    is_bare: bool,
    is_dry: bool,
    force: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Write the rows and say what is in them, and what is not."""
    kind = _kind(refs, output)
    if output != "-":
        refuse(Path(str(output)), overwrite=force)
    from counterpoint.app.api.credit import credit_of
    from counterpoint.app.api.inputs import many_traces
    from counterpoint.credit.call_rows import call_rows

    traces = many_traces(list(refs), store)
    given = credit_of(credit, traces, options)
    found = call_rows(traces, given)
    kept = _kept(found, set() if is_bare else _told(traces))
    if not kept.rows:
        raise InputError("no model call can be learnt from", where=credit, why=_left(kept.left_out) or "the traces have none",
                         fix=_fix(kept.left_out))  # fmt: skip
    data = b"".join(_encode(row) + b"\n" for row in kept.rows) if kind == ".jsonl" else _parquet(found, kept.rows)
    if output == "-":
        if not is_dry:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    elif not is_dry:
        put([(Path(str(output)), data)], overwrite=force)
    file = {"path": output, "rows": len(kept.rows), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if as_json and output != "-":
        emit({"schema": SCHEMA_VERSION, "to": RL, "traces": list(found.trace_ids), "dry_run": is_dry, "files": [file],
              "credit": _account(found, given), "left_out": dict(kept.left_out), "lost": RL_LOST})  # fmt: skip
        return
    (note if output == "-" else click.echo)(_report(file, found, given, kept, is_dry=is_dry))


def _kind(refs: Sequence[str], output: str | None) -> str:
    if not refs:
        raise InputError("no trace was named", fix="counterpoint export TRACE... --to rl -o rows.jsonl, or a query of `ls`")
    if output is None:
        raise InputError("there is no place to write to", fix="add -o rows.jsonl, -o rows.parquet, or -o - for stdout")
    suffix = ".jsonl" if output == "-" else Path(output).suffix
    if suffix not in RL_SUFFIXES:
        raise InputError(f"rows are no {suffix or 'folder'}", where=f"-o {output}", fix="name it .jsonl or .parquet")
    return suffix


def _told(traces: Sequence[Trace]) -> set[tuple[int, str]]:
    """Places of traces and events whose model calls read or wrote a secret."""
    from counterpoint.formats.masking import masked_all
    from counterpoint.trace.model_calls import model_call

    out = set()
    for i, (trace, bare) in enumerate(zip(traces, masked_all(traces).traces, strict=True)):
        for event, cut in zip(trace.events, bare.events, strict=True) if bare is not trace else ():
            if "token_ids" in (model_call(event) or {}) and "token_ids" not in (model_call(cut) or {}):
                out.add((i, event.id))
    return out


def _kept(found: CallRows, told: set[tuple[int, str]]) -> _Kept:
    rows, left_out = [], Counter[str]()
    for row, cells in zip(found.rows, found.table_rows(), strict=True):
        one = dict(zip(found.TABLE, cells, strict=True))
        where = f"{one['trace_id']} {row.event}"
        if one["completion_ids"] is None or one["prompt_ids"] is None:
            left_out["without token ids"] += 1
        elif (row.trace, row.event) in told:
            left_out[_SECRET] += 1
        elif not row.sampled:
            left_out["whose answer was put there"] += 1
        elif row.advantage is None:
            left_out["without an advantage"] += 1
        elif not one["completion_ids"]:
            left_out["that wrote nothing"] += 1
        else:
            _check(one, where)
            del one["sampled"]
            rows.append(one)
    return _Kept(rows, left_out)


def _check(one: dict[str, Any], where: str) -> None:
    """A trainer would cut, pad or zero what does not fit."""
    n = len(one["completion_ids"])
    for name in ("logps", "token_advantages", "completion_mask"):
        if one[name] is not None and len(one[name]) != n:
            raise InputError(f"{len(one[name])} {name} for {n} tokens", where=where, fix="record one for each token")


def _parquet(found: CallRows, rows: Sequence[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = found.to_arrow().schema
    table = pa.Table.from_pylist(list(rows), schema.remove(schema.get_field_index("sampled")))
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()


# -- what is said ----------------------------------------------------------------------------------------------------------


def _account(found: CallRows, given: Credit) -> dict[str, Any]:
    placed = found.placement
    sums = {
        part: {level: float(amounts.sum()) for level, amounts in getattr(placed, part).items()}
        for part in ("given", "carried", "replaced")
    }
    unplaced = [u._asdict() | {"trace": found.trace_ids[u.trace]} for u in placed.unplaced]
    refused = [{"trace": found.trace_ids[t], "unit_id": unit, "why": why} for (t, unit), why in given.unidentified.items()]
    return {"method": given.mechanism, "additive": given.additive, **sums, "unplaced": unplaced, "unidentified": refused}


def _report(file: dict[str, Any], found: CallRows, given: Credit, kept: _Kept, *, is_dry: bool) -> str:
    placed, lead = found.placement, "would write " if is_dry else ""
    lines = [f"{lead}{file['path']}  {many(file['rows'], 'row')}  {file['bytes']:,} bytes  sha256 {file['sha256']}"]
    lines.append(f"credit    {given.caption()}")
    for level, amounts in placed.given.items():
        carried, replaced = (float(part[level].sum()) for part in (placed.carried, placed.replaced))
        told = f"placed    {level}: {carried:.6g} of {float(amounts.sum()):.6g} carried by calls"
        lines.append(told + (f", {replaced:.6g} replaced by what is finer" if replaced else ""))
    why = Counter[str]()
    for one in placed.unplaced:
        why[one.why] += 1
    for reason, n in why.items():
        amount = sum(u.value for u in placed.unplaced if u.why == reason)
        lines.append(f"unplaced  {amount:.6g} in {many(n, 'amount')}: {reason}")
    bare = sum(row["logps"] is None for row in kept.rows)
    lines += [f"note      {many(bare, 'row')} without log-probabilities: the trainer computes them"] if bare else []
    return "\n".join([*lines, f"left out  {_left(kept.left_out) or 'nothing'}", f"lost      {RL_LOST}"])


def _left(left_out: Counter[str]) -> str:
    return ", ".join(f"{many(n, 'call')} {why}" for why, n in left_out.items())


def _fix(left_out: Counter[str]) -> str:
    most = left_out.most_common(1)[0][0] if left_out else ""
    if most == "without token ids":
        return "record with a model that tells them: local:NAME, or openai:NAME at vLLM or SGLang with --token-ids"
    if most == _SECRET:
        return "--no-mask, if the file stays with you"
    return "another --credit: docs/rows.md says what each reaches" if most else "traces of live teams: counterpoint record"
