"""Files that Counterpoint wrote itself, among those that `import` is given: exported traces, which come back as they were.

Always true: a packed file and a member of an archive are read like any other; the files of a store are never taken for exports;
and a file that holds less than the store has of its run (a form without texts, a masked one) does not take its place.
"""

from __future__ import annotations

from pathlib import Path, PurePath

from counterpoint import registry
from counterpoint.app.discover import LogFiles
from counterpoint.app.load_save import about
from counterpoint.formats.importing.files import MAX_UNPACKED, File, first_keys
from counterpoint.store import Store
from counterpoint.trace import Trace
from counterpoint.trace.annotation import annotations_of, with_annotations

# What makes a folder a store: its files are not exports.
_MARK = "counterpoint.json"
# The keys of a trace in the survey's form.
_SURVEY = {"trace_id", "task_id", "events"}
_BOM = b"\xef\xbb\xbf"


def own_files(found: LogFiles, since: float | None = None) -> list[File]:
    """The files that no importer knows and that Counterpoint wrote, taken out of those that were skipped."""
    stores = {PurePath(skipped.name).parent for skipped in found.skipped if PurePath(skipped.name).name == _MARK}
    own = []
    for skipped in found.skipped:
        file = skipped.file
        if file is None or (since is not None and file.changed < since) or _form(file.head()) is None:
            continue
        if stores.isdisjoint(PurePath(file.name).parents) and not _is_in_store(file.name):
            own.append(file)
    names = {file.name for file in own}
    found.skipped = [skipped for skipped in found.skipped if skipped.name not in names]
    return own


def newest(found: LogFiles, own: list[File], limit: int) -> list[File]:
    """Leave only the newest of all that is there, sessions and exports together; gives the exports among them."""
    sessions = [max((file.changed for file in session.files), default=0.0) for _, session in found.sessions]
    times = sorted([*sessions, *(file.changed for file in own)], reverse=True)
    if len(times) <= limit:
        return own
    order = sorted(own, key=lambda file: -file.changed)
    left = order[: sum(file.changed >= times[limit - 1] for file in order)][:limit]
    keep = sorted(range(len(sessions)), key=lambda k: -sessions[k])[: limit - len(left)]
    found.sessions = [found.sessions[k] for k in sorted(keep)]
    return left


def traces_of_own(file: File) -> list[Trace]:
    """The traces in a file of ours."""
    form = _form(file.head())
    with about(file.name):
        return list(registry.get("format", form or "jsonl").read(file.data(MAX_UNPACKED).removeprefix(_BOM)))


def put_own(traces: list[Trace], store: Store) -> str:
    """Store them; gives what became of them: added, updated, kept where the store has more of them, or unchanged.

    What people said about a trace that is kept comes in all the same. What was removed from the store stays out.
    """
    traces = [trace for trace in traces if not store.removals.has(trace)]
    less = [trace for trace in traces if trace.trace_id in store and _has_less(trace, store.get(trace.trace_id))]
    kept = {trace.trace_id for trace in less}
    whats = store.add_many(trace for trace in traces if trace.trace_id not in kept) + ["kept"] * len(less)
    store.annotate([said for trace in less for said in annotations_of(trace)], is_known=True)
    return next((what for what in ("added", "updated", "kept") if what in whats), "unchanged")


def _has_less(trace: Trace, stored: Trace) -> bool:
    """Whether a copy lacks texts, or what is known about the run, that the stored one has, and has no event that is new."""
    known, given = (with_annotations(one, ()) for one in (stored, trace))
    lacks = known.contents.keys() - given.contents.keys() or known.meta.keys() - given.meta.keys()
    return bool(lacks) and {event.id for event in given.events} <= {event.id for event in known.events}


def _form(head: bytes) -> str | None:
    """Which form of ours a file that begins so is in."""
    head = head.removeprefix(_BOM)
    for name in ("jsonl", "otlp"):
        if registry.get("format", name).sniff(head):
            return name
    return "survey" if head.lstrip()[:1] == b"{" and first_keys(head).keys() >= _SURVEY else None


def _is_in_store(name: str) -> bool:
    return any((up / _MARK).is_file() for up in Path(name).parents[:4])
