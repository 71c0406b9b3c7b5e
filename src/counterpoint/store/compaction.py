"""Compaction: many small parts become few large ones, and dead rows and files go.

Always true: live traces move between parts in one commit, so a reader sees each once, before or after; a trace that was
updated or removed meanwhile stays so; parts that are replaced stay on disk for a grace period, for readers that still have
the old manifest, and are deleted by a later compaction. Parts are merged within their day.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

import counterpoint.store.disk as disk
from counterpoint.errors import CounterpointError
from counterpoint.store.lake import Lake, MissingFile
from counterpoint.store.log import Commit, Log, Part, State
from counterpoint.store.parts import SCHEMAS, PartWriter, is_whole, part_path

_LARGE_TRACES, _LARGE_EVENTS = 1024, 2_000_000
# While adding: this many parts of about one size are merged into one. Each trace is so rewritten a few times at most.
_TIERS = ((16, 32), (128, 16))
STRAY_AGE_S = 3600.0


class CompactionResult(Struct, frozen=True):
    """What a compaction did."""

    merged: int
    """Parts that were replaced."""
    written: int
    """Parts that took their place."""
    deleted: int
    """Files deleted: of parts that died a grace period ago, and strays of killed writers."""


def compact(log: Log, lake: Lake, *, grace_s: float) -> CompactionResult:
    """Merge all that is small or holds dead rows, then delete what died `grace_s` ago."""
    merged = written = 0
    state = log.refresh()
    by_day: dict[str, list[Part]] = defaultdict(list)
    for part in list(state.parts.values()):
        by_day[part.day].append(part)
    for parts in by_day.values():
        worth = [p for p in parts if state.live[p.name] < p.traces or not _is_large(p)]
        for group in _groups(worth):
            if (len(group) > 1 or state.live[group[0].name] < group[0].traces) and _merge(log, lake, group):
                merged, written = merged + len(group), written + 1
    return CompactionResult(merged, written, _delete_dead(log, lake, grace_s))


def purge(log: Log, lake: Lake) -> CompactionResult:
    """Rewrite the parts that hold removed or replaced traces, delete what is dead at once, and name it in the log no more."""
    merged = 0
    state = log.refresh()
    for part in [p for name, p in state.parts.items() if state.live[name] < p.traces]:
        merged += _merge(log, lake, [part])
    deleted = _delete_dead(log, lake, -math.inf)  # also what died, by a clock that was set back since, in the future
    log.checkpoint(sweep_all=True)
    return CompactionResult(merged, merged, deleted)


def tidy(log: Log, lake: Lake) -> None:
    """After adding: merge the smallest parts when there are many. Never fails the addition that called it."""
    if not any(_many(log.state)):
        return
    with suppress(CounterpointError, OSError):
        fd = os.open(lake.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if disk.lock(fd):  # else somebody is at it: of many who merge the same parts one would win, the others work in vain
                log.refresh()
                for group in [group for parts in _many(log.state) for group in _groups(parts)]:
                    _merge(log, lake, group)
        finally:
            os.close(fd)


def _many(state: State) -> Iterator[list[Part]]:
    """Parts of about one size and one day, where there are many of them."""
    for below, many in _TIERS:
        by_day: dict[str, list[Part]] = defaultdict(list)
        for part in list(state.parts.values()):
            if part.traces < below and not _is_large(part):
                by_day[part.day].append(part)
        yield from (parts for parts in by_day.values() if len(parts) >= many)


def _is_large(part: Part) -> bool:
    return part.traces >= _LARGE_TRACES or part.events >= _LARGE_EVENTS


def _groups(parts: list[Part]) -> list[list[Part]]:
    """Parts to be merged together, none of the results too large."""
    groups: list[list[Part]] = []
    traces = events = 0
    for part in sorted(parts, key=lambda p: (p.traces, p.name)):
        if not groups or traces + part.traces > _LARGE_TRACES or events + part.events > _LARGE_EVENTS:
            groups.append([])
            traces = events = 0
        groups[-1].append(part)
        traces, events = traces + part.traces, events + part.events
    return groups


def _merge(log: Log, lake: Lake, parts: list[Part]) -> bool:
    """Write the live traces of some parts into one; False when another process was quicker."""
    names = {p.name for p in parts}
    rows = [r for r in list(log.state.rows.values()) if r.part in names]
    rows.sort(key=lambda r: (r.part, r.head))
    with disk.translate_errors(lake.folder):
        writer = PartWriter(lake.folder, parts[0].day)
        done = False
        try:
            for row in rows:
                writer.add(lake.unit(row))
            part = writer.close()

            def change(state: State) -> Commit | None:
                if not names <= state.parts.keys() or not is_whole(lake.folder, part):
                    return None
                return Commit(at=time.time(), parts=[part], rows=writer.rows, replaces=sorted(names))

            done = log.commit(change) is not None
        except MissingFile:
            pass  # another compaction was quicker, and its grace period is over
        finally:
            if not done and not log.names(writer.name):
                writer.abandon()
    return done


def _delete_dead(log: Log, lake: Lake, grace_s: float) -> int:
    state, now = log.refresh(), time.time()
    deleted = 0
    for name in [n for n, died in state.dead.items() if now - died >= grace_s]:
        lake.forget(name)
        for kind in SCHEMAS:
            path = part_path(lake.folder, name, kind)
            deleted += path.exists()
            disk.remove(path)
        del state.dead[name]
    limit = max(grace_s, STRAY_AGE_S)
    old = [p for p in lake.folder.glob("day=*/shard=*/*.parquet") if _age(p, now) > limit]
    # Again under the lock, where a part is either named by the log or will never be: its writer looks before it commits.
    with log.alone() as state:
        known = state.parts.keys() | state.dead.keys()
        for path in old:
            if os.fspath(path.relative_to(lake.folder)).split(".")[0] not in known:
                disk.remove(path)
                deleted += 1
    return deleted


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
