"""`counterpoint export TRACE... --to rl`: a row per model call that a policy can learn from, for trainers.

Always true: every row has token ids, an advantage and as many of everything as its answer has tokens; calls that cannot have
that are counted with the reason; credit that no call carries is reported with its amount. Forks run where a mechanism needs them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from counterpoint.app.terminal.masking import counts, many, mask_summary, report_lines, report_rows
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, note
from counterpoint.errors import InputError
from counterpoint.files import put, refuse

if TYPE_CHECKING:
    import numpy as np

    from counterpoint.credits.call_rows import CallRows
    from counterpoint.formats.masking import MaskedTraces
    from counterpoint.lab.trainers.row import LearnableRows, TrainingRow
    from counterpoint.trace import Trace
    from counterpoint.trace.rows import Credit

RL = "rl"
RL_SUFFIXES = (".jsonl", ".parquet")
RL_LOST = "texts, events and edges: rows hold token ids; not read back"
RL_COLUMNS = {
    "trace_id": "string", "event_id": "string", "agent": "string", "role": "string", "model": "string", "policy": "string",
    "version": "string", "group": "string", "level": "string", "advantage": "double", "share": "double",
    "prompt_ids": "list:int64", "completion_ids": "list:int64", "completion_mask": "list:int64", "logps": "list:double",
    "token_advantages": "list:double",
}  # fmt: skip


def write_rl(
    refs: Sequence[str],
    output: str | None,
    *,
    credit: str,
    options: dict[str, Any],
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
    kind = _kind(refs, output)
    if output != "-":
        refuse(Path(str(output)), overwrite=force)
    from counterpoint.app.api.credit import credit_of
    from counterpoint.app.api.inputs import many_traces
    from counterpoint.lab.trainers.row import training_rows
    from counterpoint.lab.trainers.tables import to_table
    from counterpoint.lab.trainers.token_ids import tokenized

    with_ids = tokenized(many_traces(list(refs), store), tokenizer)
    traces = with_ids.traces
    leaving = rows_that_leave(traces, credit_of(credit, traces, options), is_bare=is_bare, is_personal=is_personal)
    found, given, secrets = leaving.found, leaving.credit, leaving.secrets
    kept = training_rows(found, () if secrets is None else secret_calls(traces, secrets.traces))
    if not kept.rows:
        why = left_out_line(kept.left_out) or "the traces have none"
        raise InputError("no model call can be learned from", where=credit, why=why, fix=why_none(kept.left_out))
    data = to_table([_record(row) for row in kept.rows], RL_COLUMNS, kind)
    if output == "-":
        if not is_dry:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    elif not is_dry:
        put([(Path(str(output)), data)], overwrite=force)
    file = {"path": output, "rows": len(kept.rows), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if as_json and output != "-":
        emit({"schema": SCHEMA_VERSION, "to": RL, "traces": list(found.trace_ids), "dry_run": is_dry, "files": [file],
              "credit": account(found, given), "left_out": dict(kept.left_out), "masked": counts(secrets), "lost": RL_LOST,
              **with_ids.as_dict(),
              **({"report": report_rows(secrets)} if is_report else {})})  # fmt: skip
        return
    said = [_report(file, leaving, kept, with_ids.line(), is_dry=is_dry), *(report_lines(secrets) if is_report else [])]
    (note if output == "-" else click.echo)("\n".join(said))


def _kind(refs: Sequence[str], output: str | None) -> str:
    if not refs:
        raise InputError("no trace was named", fix="counterpoint export TRACE... --to rl -o rows.jsonl, or a query of `ls`")
    if output is None:
        raise InputError("no output was named", fix="add -o rows.jsonl, -o rows.parquet, or -o - for stdout")
    suffix = ".jsonl" if output == "-" else Path(output).suffix
    if suffix not in RL_SUFFIXES:
        raise InputError(
            f"rows are not written as {suffix or 'a folder'}", where=f"-o {output}", fix="name it .jsonl or .parquet"
        )
    return suffix


class Leaving(NamedTuple):
    """Rows and credit by the names that may leave, and what was masked in them; None where masking is off."""

    found: CallRows
    credit: Credit
    secrets: MaskedTraces | None


def rows_that_leave(traces: Sequence[Trace], credit: Credit, *, is_bare: bool, is_personal: bool) -> Leaving:
    """One row per model call, in which ids, agents, roles, models and tasks have labels in the place of secrets."""
    from counterpoint.credits.call_rows import call_rows, in_words, named_as, names_in
    from counterpoint.formats.masking import masked_all

    if len(set(credit.trace_ids)) < len(credit.trace_ids):
        what = "two different traces have the same id"
        raise InputError(what, why="trainers would take them for one run", fix="give one of them another trace_id")
    found = call_rows(traces, credit)
    if is_bare:
        return Leaving(found, credit, None)
    secrets = masked_all(list(traces), is_personal=is_personal)
    words = names_in(traces, secrets.traces)
    refused = {(t, in_words(words[t], unit)): why for (t, unit), why in credit.unidentified.items()}
    return Leaving(named_as(found, traces, secrets.traces), dataclasses.replace(credit, unidentified=refused), secrets)


def secret_calls(traces: Sequence[Trace], masked: Sequence[Trace]) -> set[tuple[int, str]]:
    """Places of traces, and masked names of events, whose model calls read or wrote a secret."""
    from counterpoint.trace.model_calls import model_call

    out = set()
    for i, (trace, bare) in enumerate(zip(traces, masked, strict=True)):
        for event, cut in zip(trace.events, bare.events, strict=True) if bare is not trace else ():
            if "token_ids" in (model_call(event) or {}) and "token_ids" not in (model_call(cut) or {}):
                out.add((i, cut.id))
    return out


def _record(row: TrainingRow) -> dict[str, Any]:
    """A row by the names of our own table."""
    arrays = {"prompt_ids": row.prompt_ids, "completion_ids": row.completion_ids, "completion_mask": row.mask, "logps": row.logps,
              "token_advantages": row.advantages}  # fmt: skip
    values = row.about() | {name: None if array is None else array.tolist() for name, array in arrays.items()}
    return {name: values[name] for name in RL_COLUMNS}


# -- what is said ----------------------------------------------------------------------------------------------------------


def account(found: CallRows, given: Credit) -> dict[str, Any]:
    """Where the credit went, for --json."""
    placed = found.placement
    sums = {
        part: {level: float(amounts.sum()) for level, amounts in getattr(placed, part).items()}
        for part in ("given", "carried", "replaced")
    }
    unplaced = [u._asdict() | {"trace": found.trace_ids[u.trace]} for u in placed.unplaced]
    refused = [{"trace": found.trace_ids[t], "unit_id": unit, "why": why} for (t, unit), why in given.unidentified.items()]
    return {"method": given.mechanism, "additive": given.additive, **sums, "unplaced": unplaced, "unidentified": refused}


def placed_lines(leaving: Leaving) -> list[str]:
    """Where the credit went, level by level, and what was masked, if anything."""
    placed, lines = leaving.found.placement, [f"credit    {leaving.credit.caption()}"]
    for level, amounts in placed.given.items():
        replaced = float(placed.replaced[level].sum())
        told = f"placed    {level}: {_gains_and_losses(placed.carried[level])} of {_gains_and_losses(amounts)} carried by calls"
        lines.append(told + (f", {replaced:.6g} replaced by what is finer" if replaced else ""))
    why = Counter(one.why for one in placed.unplaced)
    for reason, n in why.items():
        amount = sum(u.value for u in placed.unplaced if u.why == reason)
        lines.append(f"unplaced  {amount:.6g} in {many(n, 'amount')}: {reason}")
    return [*lines, f"masked    {mask_summary(leaving.secrets)}"] if counts(leaving.secrets) else lines


def id_lines(ids: str | None, bare: int) -> list[str]:
    """Which ids were made again (`TokenizedTraces.line`), and how many rows have no log-probabilities."""
    lines = [] if ids is None else [f"note      {ids}"]
    return [*lines, *([f"note      {many(bare, 'row')} without log-probabilities: the trainer computes them"] if bare else [])]


def _gains_and_losses(amounts: np.ndarray) -> str:
    """The sum of what is above 0 and of what is below: advantages of a group add up to nothing."""
    parts = [float(amounts[side].sum()) for side in (amounts > 0, amounts < 0)]
    return " and ".join(f"{part:+.6g}" for part in parts if part) or "0"


def _report(file: dict[str, Any], leaving: Leaving, kept: LearnableRows, ids: str | None, *, is_dry: bool) -> str:
    lead = "would write " if is_dry else ""
    lines = [f"{lead}{file['path']}  {many(file['rows'], 'row')}  {file['bytes']:,} bytes  sha256 {file['sha256']}"]
    lines += placed_lines(leaving)
    lines += id_lines(ids, sum(row.logps is None for row in kept.rows))
    return "\n".join([*lines, f"left out  {left_out_line(kept.left_out) or 'nothing'}", f"lost      {RL_LOST}"])


def left_out_line(left_out: Counter[str]) -> str:
    """How many calls are left out for which reason."""
    return ", ".join(f"{many(n, 'call')} {why}" for why, n in left_out.items())


def why_none(left_out: Counter[str]) -> str:
    """What would help, by the reason that left out most calls."""
    from counterpoint.lab.trainers.row import SECRET, WITHOUT_LOGPS

    most = left_out.most_common(1)[0][0] if left_out else ""
    if most == "without token ids":
        return (
            "--tokenizer makes them again from the recorded messages; or record a model that returns them:"
            " local:NAME, or openai:NAME at vLLM or SGLang with --model-set token_ids=true"
        )
    if most == WITHOUT_LOGPS:
        return "a target that computes them (--to trl, --to verl), or a model asked for them: logprobs=True of OpenAI's protocol"
    if most == "without texts":
        return "traces that hold the texts of their calls: those of `counterpoint play`, or .jsonl files of them"
    if most == SECRET:
        return "--mask off, if the file stays with you"
    return "another --mechanism: docs/lab/rows.md says what each reaches" if most else "traces of live teams: counterpoint play"
