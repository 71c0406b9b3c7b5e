"""Playing a suite: one row of results for every cell and seed, written as it comes, never computed twice.

Always true: a row is a function of (cell, seed, team) where the team is, and says what was measured, what was missing and how the
run ended. A run that crashes, hangs or floods is a row like any other: it scores what it did. A folder of results goes on where
it was left. The traces of cases of your own are kept beside their rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from counterpoint.audits.measures import measures
from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.bench.results import appended_rows
from counterpoint.lab.bench.scorecard.attack_rows import attack_row
from counterpoint.lab.bench.scorecard.cells import Cell, suite
from counterpoint.lab.bench.scorecard.contestants import Attempt, Caps, Contestant
from counterpoint.lab.bench.scorecard.rows import BenchFolder, BenchRow
from counterpoint.store import Store
from counterpoint.trace import Trace
from counterpoint.trace.lines import encode_lines

_OWN = "task_"
"""What a package's own measures are called in a trace, and in a row."""
Tell = Callable[[str, Mapping[str, Any]], None]
"""Told ("reused" | "playing" | "played", fields) as a suite goes on."""


def play_suite(
    folder: BenchFolder, team: Contestant, seeds: Sequence[int], *, caps: Caps, tell: Tell = lambda kind, row: None,
    only: Sequence[str] = (), again: bool = False, cells: Sequence[Cell] = (),
) -> tuple[list[Cell], list[Cell]]:  # fmt: skip
    """Play what is missing, or with `again` all of it; the cells that the team plays, and those that it cannot.

    Without `cells` they are those of the folder's suite. What the cells started (a scorer) has ended afterwards.
    """
    chosen = [c for c in cells or suite(folder.head()["suite"]) if not only or c.id in only or (c.clean and c.clean in only)]
    mine = [c for c in chosen if team.plays(c)]
    code, keys = team.code().digest, {c.id: c.key for c in mine}
    there = [r for r in folder.every_row() if r.cell in keys and r.seed in seeds]
    same = [r for r in there if r.code == code and r.case == keys[r.cell]]
    valid = {(r.cell, r.seed): r for r in same if r.status != "hung" or r.limit_s == caps.seconds}
    done = {} if again else valid
    jobs = [(c, s) for c in mine for s in seeds if (c.id, s) not in done]
    if there:
        others = {(r.cell, r.seed) for r in there if r not in same} - set(valid)
        since = min((r.at for r in done.values() if r.at is not None), default=None)
        other = "other code, or of a case that has changed," if any(keys.values()) else "other code"
        tell("reused", {"rows": len(done), "since": since, "other_code": len(others), "other": other, "code": code})
    with appended_rows(folder.lines) as add, contextlib.ExitStack() as after:
        for cell in chosen:
            after.callback(cell.close)
        keep = after.enter_context(Store(folder.store)).add if any(keys.values()) else None
        for place, (cell, seed) in enumerate(jobs):
            tell("playing", {"cell": cell.id, "seed": seed, "done": place, "of": len(jobs)})
            row = play_cell(cell, seed, team, caps, keep)
            if team.code().digest != code:
                what = f"the code of {team.name} changed while {cell.id} was played: that run is not counted"
                raise InputError(what, where=str(folder.path), fix="run it again: what the new code has not played is played")
            limit = caps.seconds if row.status == "hung" else None
            add(msgspec.structs.replace(row, code=code, case=cell.key, at=round(time.time(), 3), limit_s=limit))
            tell("played", {"cell": cell.id, "seed": seed, "status": row.status, "share": row.share, "why": row.why})
    return mine, [c for c in chosen if c not in mine]


def play_cell(cell: Cell, seed: int, team: Contestant, caps: Caps, keep: Callable[[Trace], object] | None = None) -> BenchRow:
    """One run, measured; a team that breaks is measured by what it left. `keep` is given its trace."""
    begin = time.process_time()
    try:
        attempt = team.play(cell, seed, caps)
    except (CounterpointError, MemoryError, RecursionError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        attempt = Attempt(None, "crashed", f"{type(error).__name__}: {str(error)[:200]}")
    if keep is not None and attempt.trace is not None and attempt.trace.events:
        keep(attempt.trace)
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
    if cell.is_package:
        found |= {name: value for name, value in (trace.metrics or {}).items() if name.startswith(_OWN)}
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
