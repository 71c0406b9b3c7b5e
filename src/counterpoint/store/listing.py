"""The list of a store: a line per trace, from the manifest and the journals alone.

Always true: nothing is written, and nothing of the lake is opened or loaded: a list costs what reading the manifest costs.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

import counterpoint.store.disk as disk
from counterpoint.errors import CounterpointError, InputError
from counterpoint.store.annotations import AnnotationFile, AnnotationState, Dataset
from counterpoint.store.journal import journals, peek
from counterpoint.store.log import Log
from counterpoint.store.opening import open_folder, open_log
from counterpoint.store.summary import Summary
from counterpoint.store.tally import lost_runs
from counterpoint.store.titles import told_apart
from counterpoint.trace.annotation import Annotation, labels_of

Damaged = dict[Path, CounterpointError]
"""Files that cannot be read, each with the reason: journals, and files of the log that older ones stood in for."""


class Listing(NamedTuple):
    """A line per trace by the time it was added, what cannot be read, and the collections."""

    rows: list[Summary]
    damaged: Damaged
    datasets: dict[str, Dataset]


def list_folder(path: Path) -> Listing:
    """The list of the store in a folder."""
    with disk.translate_errors(path):
        log = open_log(path, open_folder(path, create=False), read_only=True)
    try:
        annotations = AnnotationFile(path).refresh()
        return Listing(*listing(path / "journal", log, annotations), annotations.datasets)
    finally:
        log.close()


def listing(journal_folder: Path, log: Log, state: AnnotationState) -> tuple[list[Summary], Damaged]:
    """A line per trace, finished and open, by the time it was added."""
    sealed = log.refresh().rows
    done = [Summary.of_row(row) for row in list(sealed.values())]
    unfinished, damaged = open_summaries(journal_folder, sealed)
    by_trace = state.by_trace
    rows = [_annotated(row, by_trace[row.id].values()) if row.id in by_trace else row for row in done + unfinished]
    return told_apart(sorted(rows, key=lambda summary: summary.added)), damaged | log.damaged


def _annotated(row: Summary, annotations: Collection[Annotation]) -> Summary:
    remarks = tuple(one.text for one in annotations if one.text)
    scores = tuple((one.name, float(one.score)) for one in annotations if one.score is not None)
    return replace(row, annotations=len(annotations), labels=labels_of(annotations), remarks=remarks, scores=scores)


def open_summaries(journal_folder: Path, sealed: Container[str]) -> tuple[list[Summary], Damaged]:
    """The traces that are running, or were cut off: in the journal and not yet in the lake."""
    summaries: list[Summary] = []
    damaged: Damaged = {}
    for path in journals(journal_folder):
        try:
            reader = peek(path)
        except InputError as error:
            damaged[path] = error
            continue
        if reader is not None and reader.header is not None and reader.header.trace_id not in sealed:
            try:
                at = path.stat().st_mtime
            except FileNotFoundError:
                continue  # sealed while we looked
            summaries.append(Summary.of_lines(reader, at))
    return summaries, damaged | dict(lost_runs(journal_folder, sealed))
