"""Playing a suite: one row of results for every cell and seed, written as it comes, never computed twice.

Always true: a row is a function of (cell, seed, team) where the team is, and says what was measured, what was missing and how the
run ended. A run that crashes, hangs or floods is a row like any other: it scores what it did. A folder of results goes on where
it was left; results of another suite, team or version are not mixed in. A row says which code played it, and only rows of the
code that was played last are results: what was repaired is played again, and rows of other code stay in the file uncounted.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from counterpoint import __version__
from counterpoint.audits.measures import measures
from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.bench.scorecard.attack_rows import AttackRow, attack_row
from counterpoint.lab.bench.scorecard.cells import Cell, suite
from counterpoint.lab.bench.scorecard.contestants import Attempt, Caps, Contestant
from counterpoint.trace import Trace
from counterpoint.trace.lines import encode_lines

FORMAT = 1
ROWS, ABOUT = "rows.jsonl", "about.json"


class BenchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one cell."""

    cell: str
    seed: int
    status: str
    why: str
    value: float
    """What the team earned: points of a world, the score of a task."""
    share: float
    """Of the optimum."""
    success: float
    """E1 as the audit reads it; for a world the share of the optimum, between 0 and 1."""
    measures: dict[str, float | None]
    """E1 to E4, cost and scale, by their names in the audit; None where the trace does not say."""
    attack: AttackRow | None
    tool_calls: int | None
    """As the bench counted them; None where it did not."""
    told_tool_calls: int | None
    """As the team recorded them."""
    cpu_s: float
    digest: str
    """Of what the trace says was said and done: a second machine can compare."""
    code: str = ""
    """The sum of the team's code (`team_code`); empty where all of it came with the version."""
    at: float | None = None
    """When it was played, in seconds since 1970."""
    limit_s: float | None = None
    """What a run that hung was given."""


def result_folder(out: Path, suite_name: str, team: Contestant, seeds: Sequence[int]) -> dict[str, Any]:
    """What a folder of results says of itself: written now, or checked where it is there already."""
    digest = digest_of([c.as_dict() for c in suite(suite_name)])
    about = {
        **team.about(), "format": FORMAT, "suite": suite_name, "suite_digest": digest,
        "version": __version__, "python": platform.python_version(), "first_seed": seeds[0],
        "code": (made := team.code()).digest, "code_files": list(made.files),
    }  # fmt: skip
    path = out / ABOUT
    if path.is_file():
        there = json.loads(path.read_bytes())
        for key in ("format", "suite", "suite_digest", "version", "team", "model", "options", "gates", "first_seed"):
            if there.get(key) != about.get(key):
                what = f"the results here have another {key.replace('_', ' ')}: {there.get(key)}, not {about.get(key)}"
                raise InputError(what, where=str(out), fix="name another folder: -o DIR")
        if any(there.get(key) != about[key] for key in ("code", "code_files")):
            _put_about(path, {**there, "code": about["code"], "code_files": about["code_files"]})
        return about
    if out.exists() and any(out.iterdir()):
        raise InputError("the folder holds something else", where=str(out), fix="name an empty or new folder with -o")
    out.mkdir(parents=True, exist_ok=True)
    _put_about(path, about)
    return about


def _put_about(path: Path, about: Mapping[str, Any]) -> None:
    draft = path.with_name(f".{ABOUT}.tmp")
    draft.write_text(json.dumps(about, indent=1, sort_keys=True) + "\n")
    os.replace(draft, path)


def is_result(path: Path) -> bool:
    """Whether a folder holds results of `counterpoint bench run`."""
    return (path / ABOUT).is_file() and (path / ROWS).is_file()


def digest_of(value: Any) -> str:
    """Twelve hex digits of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


def read_rows(out: Path) -> list[BenchRow]:
    """The rows of a folder that count: of the code that its description names, and of a run that was played again the later."""
    rows = all_rows(out)
    about = out / ABOUT
    code = json.loads(about.read_bytes()).get("code", "") if about.is_file() else ""
    return list({(r.cell, r.seed): r for r in rows if r.code == code}.values())


def all_rows(out: Path) -> list[BenchRow]:
    """Every row of a folder; a torn last line is none."""
    path = out / ROWS
    if not path.is_file():
        return []
    rows: list[BenchRow] = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            rows += [msgspec.json.decode(line, type=BenchRow)] if line else []
        except msgspec.MsgspecError as error:
            raise InputError("is not a result row", where=f"{path}:{number}", why=str(error), fix="remove the line") from error
    return rows


def play_suite(
    out: Path, suite_name: str, team: Contestant, seeds: Sequence[int], *, caps: Caps,
    tell: Callable[[str, Mapping[str, Any]], None] | None = None, only: Sequence[str] = (), again: bool = False,
) -> tuple[list[Cell], list[Cell]]:  # fmt: skip
    """Play what is missing, or with `again` all of it; the cells that the team plays, and those that it cannot."""
    cells = [c for c in suite(suite_name) if not only or c.id in only or (c.clean and c.clean in only)]
    mine = [c for c in cells if team.plays(c)]
    code, wanted = team.code().digest, {(c.id, s) for c in mine for s in seeds}
    there = [r for r in all_rows(out) if (r.cell, r.seed) in wanted]
    kept = {(r.cell, r.seed): r for r in there if r.code == code and (r.status != "hung" or r.limit_s == caps.seconds)}
    done = {} if again else kept
    jobs = [(c, s) for c in mine for s in seeds if (c.id, s) not in done]
    if tell is not None and there:
        others = [r for r in there if r.code != code]
        tell("reused", {
            "rows": len(done), "since": min((r.at for r in done.values() if r.at is not None), default=None),
            "other_code": len({(r.cell, r.seed) for r in others} - set(kept)), "code": code,
        })  # fmt: skip
    _mend(out / ROWS)
    with (out / ROWS).open("ab") as file:
        for place, (cell, seed) in enumerate(jobs):
            if tell is not None:
                tell("playing", {"cell": cell.id, "seed": seed, "done": place, "of": len(jobs)})
            row = play_cell(cell, seed, team, caps)
            if team.code().digest != code:
                what = f"the code of {team.name} changed while {cell.id} was played: that run is not counted"
                raise InputError(what, where=str(out), fix="run it again: what the new code has not played is played")
            row = msgspec.structs.replace(
                row, code=code, at=round(time.time(), 3), limit_s=caps.seconds if row.status == "hung" else None
            )
            file.write(msgspec.json.encode(row) + b"\n")
            file.flush()
            os.fsync(file.fileno())
            if tell is not None:
                tell("played", {"cell": cell.id, "seed": seed, "status": row.status, "share": row.share, "why": row.why})
    return mine, [c for c in cells if c not in mine]


def _mend(path: Path) -> None:
    """Drop a line that was being written when a run was cut off."""
    if path.is_file() and not path.read_bytes().endswith(b"\n"):
        whole = path.read_bytes()
        path.write_bytes(whole[: whole.rfind(b"\n") + 1])


def play_cell(cell: Cell, seed: int, team: Contestant, caps: Caps) -> BenchRow:
    """One run, measured; a team that breaks is measured by what it left."""
    begin = time.process_time()
    try:
        attempt = team.play(cell, seed, caps)
    except (CounterpointError, MemoryError, RecursionError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        attempt = Attempt(None, "crashed", f"{type(error).__name__}: {str(error)[:200]}")
    return measured(cell, seed, attempt, time.process_time() - begin)


def measured(cell: Cell, seed: int, attempt: Attempt, cpu_s: float) -> BenchRow:
    """The row of a run."""
    trace, best = attempt.trace, cell.optimum().value
    if trace is None or not trace.events:
        return BenchRow(
            cell=cell.id, seed=seed, status=attempt.status, why=attempt.why, value=0.0, share=0.0, success=0.0, measures={},
            attack=None, tool_calls=attempt.tool_calls, told_tool_calls=None, cpu_s=cpu_s, digest="",
        )  # fmt: skip
    found = {m.name: None if m.value is None else float(m.value) for m in measures(trace)}
    value = float(trace.rewards.get("team", 0.0))
    share = value / best if best > 0 else 0.0
    success = min(1.0, max(0.0, share)) if cell.kind == "world" else float(found["task_success"] or 0.0)
    calls = sum(e.type == "tool_call" for e in trace.events)
    return BenchRow(
        cell=cell.id, seed=seed, status=attempt.status, why=attempt.why, value=value, share=share, success=success,
        measures=found, attack=attack_row(cell, seed, trace) if cell.attack else None, tool_calls=attempt.tool_calls,
        told_tool_calls=calls, cpu_s=cpu_s, digest=_digest(trace),
    )  # fmt: skip


def _digest(trace: Trace) -> str:
    """Of what was said and done; where events have keys, in their order: which of two workers' tools answers first is no part."""
    if all(e.key is not None for e in trace.events):
        said = sorted((str(e.key), e.type, e.agent, e.content_ref, e.tokens_in, e.tokens_out) for e in trace.events)
        return hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:16]
    return hashlib.sha256(encode_lines(trace)).hexdigest()[:16]
