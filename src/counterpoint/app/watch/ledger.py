"""The ledger of a watch: what was noticed, who has been told, and what was there before it began. A file beside the store's.

Always true: an alert is on the medium before anybody is told of it, and who was told is written down after they took it; one
process at a time holds the ledger. A kill between the two leaves the alert to be told again under the same id. What a killed
writer left behind the last whole line is cut off.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

import counterpoint.store.disk as disk
from counterpoint.app.watch.alert import Alert
from counterpoint.errors import TryAgain
from counterpoint.store.append_file import AppendFile

_NAME = "ledger.jsonl"
_DAY_S = 86_400.0
_LARGE = 4 << 20
"""From this size on a ledger is written anew when it is opened, with what still counts."""


class _Line(msgspec.Struct, omit_defaults=True):
    """One line; one of the fields is set."""

    began: float | None = None
    baseline: dict[str, float] | None = None
    """With `began`: files that were old then, and when they had last changed."""
    alert: Alert | None = None
    to: tuple[str, ...] = ()
    told: tuple[str, str] | None = None
    """An alert's id and who took it."""
    lost: tuple[str, str, str] | None = None
    """The same, with why nobody tries any more."""
    known: tuple[str, ...] = ()
    """Ids of alerts that everybody has taken, of a ledger that was written anew."""
    judged: tuple[str, str] | None = None
    """A run and its version."""
    spent: tuple[float, int] | None = None
    """When, and how many tokens of the model that judges; what was kept back and not taken comes back as less than none."""


class Ledger:
    """One store's ledger, open and held."""

    def __init__(self, folder: Path) -> None:
        """Open it, or begin it; `TryAgain` where another process watches for this store."""
        self._folder, self._lock = folder, threading.Lock()
        with disk.translate_errors(folder):
            disk.make_folder(folder)
            self._writer = os.open(folder / "writer", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(self._writer)
                fix = "end it first, or name another store with --store DIR"
                raise TryAgain("another `counterpoint watch` has this store", where=str(folder.parent), fix=fix) from error
            self._began: float | None = None
            self.baseline: dict[str, float] = {}
            self.pending: dict[str, tuple[Alert, set[str]]] = {}
            """Alerts that somebody has not taken yet, with whom."""
            self._known: dict[str, None] = {}
            self._judged: dict[str, str] = {}
            self._spent: list[tuple[float, int]] = []
            self._file = self._opened()

    def _opened(self) -> AppendFile:
        path = self._folder / _NAME
        file = AppendFile.open(path, flags=os.O_CREAT, mode=0o600)
        data = file.read()
        end = 0
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            end += len(line)
            try:
                self._take(msgspec.json.decode(line, type=_Line))
            except msgspec.MsgspecError:
                continue  # a line that a disk broke: what it said is told again, under the same id
        file.cut(end)
        if end > _LARGE:
            file.close()
            disk.replace_file(path, b"".join(msgspec.json.encode(line) + b"\n" for line in self._whole()))
            os.chmod(path, 0o600)
            file = AppendFile.open(path)
            file.size = os.fstat(file.fd).st_size
        return file

    def _take(self, line: _Line) -> None:
        if line.began is not None:
            self._began, self.baseline = line.began, line.baseline or {}
        if line.alert is not None:
            self._known[line.alert.id] = None
            self.pending[line.alert.id] = line.alert, set(line.to)
        for name, who in (pair[:2] for pair in (line.told, line.lost) if pair is not None):
            self._settle(name, who)
        self._known.update(dict.fromkeys(line.known))
        if line.judged is not None:
            self._judged[line.judged[0]] = line.judged[1]
        if line.spent is not None:
            self._spent.append(line.spent)

    def _settle(self, name: str, who: str) -> None:
        if name in self.pending:
            self.pending[name][1].discard(who)
            if not self.pending[name][1]:
                del self.pending[name]

    def _whole(self) -> Iterable[_Line]:
        yield _Line(began=self._began, baseline=self.baseline)
        yield _Line(known=tuple(name for name in self._known if name not in self.pending))
        for alert, to in self.pending.values():
            yield _Line(alert=alert, to=tuple(sorted(to)))
        for name, version in self._judged.items():
            yield _Line(judged=(name, version))
        for spent in self._of_a_day():
            yield _Line(spent=spent)

    def _append(self, *lines: _Line, durably: bool = True) -> None:
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        with disk.translate_errors(self._folder):
            self._file.append(data, durably=durably)

    # -- when it began

    @property
    def began(self) -> float | None:
        """When a watch first looked; None before."""
        return self._began

    def begin(self, baseline: Mapping[str, float]) -> None:
        """The first look: these files are old, and nothing is told of what is in them already."""
        with self._lock:
            line = _Line(began=time.time(), baseline=dict(baseline))
            self._append(line)
            self._take(line)

    # -- alerts

    def note(self, alerts: Iterable[Alert], to: Iterable[str]) -> list[Alert]:
        """Keep those that are new, for these to be told; they are on the medium then."""
        with self._lock:
            new = [alert for alert in alerts if alert.id not in self._known]
            lines = [_Line(alert=alert, to=tuple(to)) for alert in new]
            if lines:
                self._append(*lines)
            for line in lines:
                self._take(line)
            return new

    def note_delivery(self, alert: Alert, who: str) -> None:
        """Somebody has taken an alert."""
        with self._lock:
            self._append(_Line(told=(alert.id, who)))
            self._settle(alert.id, who)

    def note_loss(self, alert: Alert, who: str, why: str) -> None:
        """Nobody tries any more."""
        with self._lock:
            self._append(_Line(lost=(alert.id, who, why)))
            self._settle(alert.id, who)

    def waiting(self, who: str) -> list[Alert]:
        """What somebody has not taken yet, the oldest first."""
        with self._lock:
            return [alert for alert, to in self.pending.values() if who in to]

    # -- runs

    def is_judged(self, trace_id: str, version: str | None) -> bool:
        """Whether this version of a run was judged; it only saves work."""
        return version is not None and self._judged.get(trace_id) == version

    def note_judgement(self, trace_id: str, version: str | None) -> None:
        """This version of a run was judged, and its alerts are kept."""
        if version is not None:
            with self._lock:
                self._append(_Line(judged=(trace_id, version)), durably=False)
                self._judged[trace_id] = version

    # -- what the model took

    def tokens_of_a_day(self) -> int:
        """Tokens of the last 24 hours; a clock that went back frees none."""
        with self._lock:
            self._spent = self._of_a_day()
            return sum(tokens for _, tokens in self._spent)

    def note_spend(self, tokens: int) -> None:
        """So many are taken, or kept back for a question."""
        with self._lock:
            line = _Line(spent=(time.time(), tokens))
            self._append(line)
            self._take(line)

    def _of_a_day(self) -> list[tuple[float, int]]:
        since = time.time() - _DAY_S
        return [one for one in self._spent if one[0] > since]

    def close(self) -> None:
        """Let go of it."""
        with self._lock:
            self._file.close()
            os.close(self._writer)


def who_of(kind: str, place: str = "") -> str:
    """The name of a receiver in the ledger: an address may hold a secret, and is not written down."""
    return f"{kind}:{hashlib.blake2b(place.encode(), digest_size=6).hexdigest()}" if place else kind
