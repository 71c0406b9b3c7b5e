"""Traces of a store sent to a collector on another machine (`counterpoint serve`), until it has acknowledged them.

Always true: the store on this machine is the spool: what is recorded is durable here first, and is sent as often as it takes.
Only what the collector has acknowledged counts as sent; that is written down in `push/` beside the traces, and losing it only
means that everything is sent once more, which changes nothing there.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from counterpoint.app.receiver.collector import PARCEL, PATH, Parcel, ParcelTrace, Receipt
from counterpoint.display import counted
from counterpoint.errors import CounterpointError, InputError, Refused, TryAgain
from counterpoint.store import Store, disk
from counterpoint.store.opening import MARK
from counterpoint.trace.lines import encode_lines

_TRACES, _BYTES = 256, 8 << 20
"""The most traces, and bytes of traces, of one request."""
_FIRST_S, _LONGEST_S = 0.2, 30.0
"""Pauses between tries, which double."""
_TIMEOUT_S = 120.0


class _Later(Exception):
    """The collector cannot take it now."""


@dataclass
class PushResult:
    """What became of the traces that were sent."""

    counts: Counter[str] = field(default_factory=Counter)
    """added, unchanged, updated, removed there, refused, and renamed (stored there under another id)."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Id and reason of what the collector will not take."""


class Push:
    """The way from one store to one collector."""

    def __init__(self, store: Store, url: str, *, token: str = "", note: Callable[[str], None] = lambda text: None) -> None:
        parts = urlsplit(check_url(url))
        self._url, self._token, self._store, self._note = parts, token, store, note
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._conn: http.client.HTTPConnection | None = None
        folder = store.path / "push"
        with disk.translate_errors(folder):
            disk.make_folder(folder)
            self._writer = _writer(folder / "writer")
            name = hashlib.blake2b(self.address.encode(), digest_size=8).hexdigest()
            self._acknowledged_path = folder / f"{name}.acknowledged"
            self._acknowledged = _acknowledged(self._acknowledged_path)
        self._refused: dict[str, str] = {}
        """Id to the digest that the collector will not take."""

    def close(self) -> None:
        """Let go of the connection."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    # -- what to send

    def backlog(self, ids: Iterable[str] | None = None) -> list[tuple[str, str]]:
        """Id and digest of the finished traces that are not acknowledged yet, oldest first."""
        wanted = None if ids is None else set(ids)
        rows = [r.id for r in self._store.rows() if not r.is_open and (wanted is None or r.id in wanted)]
        found = [(name, version) for name in rows if (version := self._store.version(name)) is not None]
        return [(n, d) for n, d in found if self._acknowledged.get(n) != d and self._refused.get(n) != d]

    def send(self, ids: Iterable[str] | None = None, *, patience_s: float, stop: threading.Event | None = None) -> PushResult:
        """Send what is left; `TryAgain` where the collector has taken nothing for `patience_s`."""
        done, stop = PushResult(), stop or threading.Event()
        waiting, size = self.backlog(ids), _TRACES
        sources = {row.id: row.source for row in self._store.rows()}
        since, pause = time.monotonic(), _FIRST_S
        while waiting and not stop.is_set():
            batch = self._parcel(waiting[:size], sources)
            try:
                kept = self._post(batch)
            except _Later as error:
                if len(batch) > 1 and str(error).startswith("413"):
                    size = max(1, len(batch) // 2)
                    continue
                if time.monotonic() - since > patience_s:
                    what = f"{counted(len(waiting), 'trace')} not at the collector yet: {error}"
                    again = f"counterpoint store push --store {self._store.path} --to {self.address}"
                    fix = f"they are safe in {self._store.path}; {again}"
                    raise TryAgain(what, where=self.address, fix=fix) from error
                stop.wait(pause)
                pause = min(2 * pause, _LONGEST_S)
                continue
            self._acknowledge(batch, kept, done)
            waiting, since, pause = waiting[len(batch) :], time.monotonic(), _FIRST_S
        return done

    def _parcel(self, some: list[tuple[str, str]], sources: dict[str, str | None]) -> list[tuple[str, ParcelTrace]]:
        """As many of them as fit, at least one."""
        out: list[tuple[str, ParcelTrace]] = []
        size = 0
        for name, digest in some:
            lines = encode_lines(self._store.get(name))
            size += len(lines)
            if out and size > _BYTES:
                break
            out.append((name, ParcelTrace(digest, sources.get(name), lines)))
        return out

    def _acknowledge(self, batch: list[tuple[str, ParcelTrace]], kept: list[Receipt], done: PushResult) -> None:
        fresh = []
        for (name, sent), one in zip(batch, kept, strict=True):
            done.counts[one.what] += 1
            if one.what == "refused":
                self._refused[name] = sent.digest
                done.refused.append((name, one.why))
                self._note(f"{name}: the collector does not take it: {one.why}")
                continue
            done.counts["renamed"] += one.id != name
            self._acknowledged[name] = sent.digest
            fresh.append(f"{sent.digest} {name}\n")
        with suppress(OSError), self._acknowledged_path.open("a", encoding="utf-8") as file:  # else it is sent once more
            file.write("".join(fresh))

    # -- one request

    def _post(self, batch: list[tuple[str, ParcelTrace]]) -> list[Receipt]:
        body = gzip.compress(msgspec.msgpack.encode(Parcel(self._writer, [sent for _, sent in batch])), 1)
        headers = {"Content-Type": PARCEL, "Content-Encoding": "gzip"}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            self._conn = self._conn or self._connection()
            self._conn.request("POST", self._url.path.rstrip("/") + PATH, body, headers)
            answer = self._conn.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _Later(f"it does not answer ({type(error).__name__}: {error})") from error
        if answer.status != 200:
            self.close()
            self._refuse(answer.status, said)
        try:
            kept = msgspec.json.decode(said, type=list[Receipt])
        except msgspec.MsgspecError as error:
            raise Refused(
                "the server at this address is not a collector", where=self.address, fix="start one there: counterpoint serve"
            ) from error
        if len(kept) != len(batch):
            raise Refused("the collector answered for another number of traces", where=self.address)
        return kept

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        return kind(self._url.hostname or "", self._url.port, timeout=_TIMEOUT_S)

    def _refuse(self, status: int, said: bytes) -> None:
        text = said[:300].decode("utf-8", "replace")
        if status == 401:
            fix = "--token-file FILE, with the token of the collector"
            raise Refused("the collector asks for its token", where=self.address, fix=fix)
        if status in (408, 413, 429) or status >= 500:
            raise _Later(f"{status} {text}")
        raise Refused(
            f"the collector answers {status}: {text}",
            where=self.address,
            fix="run the same version of Counterpoint on both machines",
        )


def check_url(url: str) -> str:
    """An address that can be a collector's; `InputError` for others."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r} is not an address of a collector", fix="http://HOST:4318, as `counterpoint serve` prints it")
    return url


def _writer(path: Path) -> str:
    """The name by which collectors know this store: made once."""
    with suppress(FileNotFoundError):
        return path.read_text().strip()
    made = secrets.token_hex(4)
    try:
        with path.open("x") as file:
            file.write(made)
    except FileExistsError:  # another process was quicker
        return path.read_text().strip() or made
    return made


def _acknowledged(path: Path) -> dict[str, str]:
    """Id to digest of what was acknowledged; a torn last line is not one."""
    if not path.exists():
        return {}
    lines = path.read_text("utf-8", "replace").splitlines(keepends=True)
    pairs = [line[:-1].partition(" ") for line in lines if line.endswith("\n")]
    return {name: digest for digest, _, name in pairs}


@contextmanager
def push_while(folder: Path, url: str, *, token: str = "", note: Callable[[str], None], every_s: float = 2.0) -> Iterator[None]:
    """Send the traces of a store while something else writes it, and all that is left at the end."""
    stop = threading.Event()

    def follow() -> None:
        while not stop.wait(every_s):
            if not (folder / MARK).exists():  # whoever writes it has not made it yet
                continue
            with suppress(TryAgain):
                _sent(folder, url, token, note, patience_s=0.0, stop=stop)

    def loop() -> None:
        try:
            follow()
        except CounterpointError as error:
            note(f"traces are no longer sent: {error.one_line()}")

    thread = threading.Thread(target=loop, daemon=True, name="counterpoint-push")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        try:
            _sent(folder, url, token, note, patience_s=30.0)
        except CounterpointError as error:  # the run is whole; what it takes to send the rest is said
            note(error.one_line())


def _sent(
    folder: Path, url: str, token: str, note: Callable[[str], None], *, patience_s: float, stop: threading.Event | None = None
) -> None:
    if not folder.exists():
        return
    with Store(folder, create=False) as store:
        push = Push(store, url, token=token, note=note)
        try:
            push.send(patience_s=patience_s, stop=stop)
        finally:
            push.close()
