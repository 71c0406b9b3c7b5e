"""What was imported when: which files gave which traces, so that what has not changed is not read again.

Always true: it only saves work, and keeps the id of a run whose source has none while its file grows. Without it everything is
read again, and the store stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec

from counterpoint.app.import_account import Outcome
from counterpoint.files import put
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.store import Store
from counterpoint.trace import Trace


def fingerprint(session: Session) -> str:
    """What tells the files of a session from what they were before: their names, sizes and times."""
    parts = [f"{f.name}\0{f.size}\0{f.changed!r}" for f in session.files]
    return blake2b("\n".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _beginning(file: File, size: int) -> str:
    """A digest of the first bytes of a file."""
    digest, left = blake2b(digest_size=16), size
    with file.open() as stream:
        while left > 0 and (data := stream.read(min(left, 1 << 20))):
            digest.update(data)
            left -= len(data)
    return digest.hexdigest()


class SessionRecord(msgspec.Struct):
    """What is remembered about a session: the fingerprint of its files, and the traces they gave."""

    fingerprint: str
    traces: list[str]
    run: str | None = None
    """Of a file that holds one run without an id: what tells it from others, and how the file began."""
    size: int = 0
    began: str = ""


class ImportMemory:
    """What was imported when."""

    def __init__(self, store: Store | None, known: Mapping[str, SessionRecord] | None = None) -> None:
        """What the store remembers; or `known`, what a process that shares out the work says of the sessions it gave."""
        self._store = store
        self._path = None if store is None or known is not None else store.path / "imports" / "sessions.json"
        self._known: dict[str, SessionRecord] = dict(known or {})
        self._files: dict[str, SessionRecord] = {}
        self.learned: dict[str, SessionRecord] = {}
        """What was noted here."""
        if self._path is not None and self._path.exists():
            try:
                self._known = msgspec.json.decode(self._path.read_bytes(), type=dict[str, SessionRecord])
            except (msgspec.MsgspecError, UnicodeDecodeError, OSError):
                self._known = {}  # then everything is imported once more, which changes nothing

    def knows(self, key: str, fingerprint: str) -> bool:
        """Whether these very files were imported, and what they gave is still there."""
        known = self._known.get(key)
        if not known or known.fingerprint != fingerprint or self._store is None:
            return False
        return all(name in self._store or self._store.removals.has_id(name) for name in known.traces)

    def traces(self, key: str) -> list[str]:
        """The traces that a session gave."""
        return list(self._known[key].traces)

    def keep_identity(self, key: str, session: Session, outcome: Outcome, traces: list[Trace]) -> None:
        """A file of one run without an id that only grew since it was imported keeps the id it got then."""
        if len(traces) != 1 or len(session.files) != 1 or (run := traces[0].meta["import"].get("run")) is None:
            return
        file, before = session.files[0], self._known.get(key)
        self._files[key] = now = SessionRecord("", [], run, file.size, _beginning(file, file.size))
        if not before or not before.run or len(before.traces) != 1 or not 0 < before.size <= file.size:
            return
        if _beginning(file, before.size) == before.began:
            now.run = before.run
            meta = {**traces[0].meta, "import": {**traces[0].meta["import"], "run": before.run}}
            traces[0] = msgspec.structs.replace(traces[0], trace_id=before.traces[0], meta=meta)
            outcome.traces = list(before.traces)

    def note(self, key: str, fingerprint: str, outcome: Outcome) -> None:
        """Remember what became of a session."""
        if outcome.status not in ("failed", "kept"):  # kept: the files are not those of what is stored
            known = self._files.pop(key, None) or SessionRecord("", [])
            known.fingerprint, known.traces = fingerprint, outcome.traces
            self._known[key] = self.learned[key] = known

    def about(self, keys: Iterable[str]) -> dict[str, SessionRecord]:
        """What is remembered of some sessions, for a process that imports them."""
        return {key: self._known[key] for key in keys if key in self._known}

    def learn(self, learned: Mapping[str, SessionRecord]) -> None:
        """Take over what such a process noted."""
        self._known.update(learned)
        self.learned.update(learned)

    def save(self) -> None:
        """Keep it with the store."""
        if self._path is not None and self.learned:
            self._path.parent.mkdir(exist_ok=True)
            put([(self._path, msgspec.json.encode(self._known))])
