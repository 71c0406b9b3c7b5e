"""Several sessions of Claude Code in one file: whose record each line is, and which are copies.

Always true: a record is of the session that it states; sessions stay together where a record of one hangs on a record of
another, as those of a resumed or forked session do. What states no session (summaries, snapshots, torn lines) goes with the
record that it names, else with the next that states one; a message, with the one before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from counterpoint.errors import InputError
from counterpoint.formats.importing.files import File, Line, lines_of, part_of
from counterpoint.formats.importing.values import as_dict, as_list, compact, decode, string


def kind_of_another(record: dict[str, Any]) -> str | None:
    """What a record is that has Claude Code's names around the message of another client: Qwen Code's has parts."""
    message = record.get("message")
    is_another = isinstance(message, dict) and "parts" in message and "content" not in message
    return f"{record.get('type')} with parts" if is_another else None


def leave_signatures(record: dict[str, Any]) -> None:
    """Take away what vouches for a thought, which is as long as the thought."""
    if record.get("type") == "assistant":
        for block in as_list(as_dict(record.get("message")).get("content")):
            if isinstance(block, dict):
                block.pop("signature", None)


class _Record(NamedTuple):
    """What a line says about whose it is."""

    line: Line
    session: str | None
    uuid: str | None
    above: tuple[str, ...]
    """The records that it hangs on."""
    about: str | None
    """The record that a summary or a snapshot is about."""
    is_message: bool


def parts_of(file: File) -> list[File]:
    """The sessions in a transcript, each as a file; the file itself where it is one session."""
    records = [_read(line, data) for line, data in lines_of(file)]
    # Who only leaves notes (titles, modes, queues) in a file has no conversation there.
    own: dict[str, set[str]] = {}
    for record in records:
        if record.session is not None and record.uuid is not None:
            own.setdefault(record.session, set()).add(record.uuid)
    home = _together(records, own)
    if len(set(home.values())) < 2:
        return [file]
    names = {first: file.stem if home.get(file.stem) == first else first for first in home.values()}
    parts: dict[str, list[Line]] = {}
    for line, session in zip((r.line for r in records), _owners(records, own), strict=True):
        parts.setdefault(names[home[session]], []).append(line)
    return [part_of(file, name, lines) for name, lines in parts.items()]


def _read(line: Line, data: bytes) -> _Record:
    try:
        got: dict[str, Any] = as_dict(decode(data))
    except InputError:
        got = {}
    above = tuple(name for key in ("parentUuid", "logicalParentUuid") if (name := string(got.get(key))))
    about = string(got.get("messageId")) or string(got.get("leafUuid"))
    is_message = isinstance(got.get("message"), dict)
    uuid = string(got.get("uuid")) or (f"line {line.start}" if is_message else None)
    is_message = is_message or got.get("type") == "progress"
    return _Record(line, string(got.get("sessionId")), uuid, above, about, is_message)


def _together(records: list[_Record], own: dict[str, set[str]]) -> dict[str, str]:
    """Session to the first of those that it stays together with."""
    of = {uuid: session for session, uuids in own.items() for uuid in uuids}
    home = {session: session for session in own}
    for record in records:
        if record.session not in own:
            continue
        for name in record.above:
            other = of.get(name)
            if other is not None and name not in own[record.session] and home[other] != home[record.session]:
                first, second = sorted((home[other], home[record.session]), key=list(own).index)
                home = {session: first if folder == second else folder for session, folder in home.items()}
    return home


def _owners(records: list[_Record], own: dict[str, set[str]]) -> list[str]:
    """The session of each record."""
    of = {uuid: session for session, uuids in own.items() for uuid in uuids}
    after = next(reversed([r.session for r in records if r.session in own]))
    owners: list[str] = []
    for record in reversed(records):
        if record.session in own:
            after = record.session
        owners.append(str(after if record.session in own else of.get(record.about or "", after)))
    owners.reverse()
    for k, record in enumerate(records[1:], 1):
        if record.session is None and record.is_message:
            owners[k] = owners[k - 1]
    return owners


def original_of(record: dict[str, Any]) -> object:
    """The uuid that a record has, or that it had where a fork with uuids of its own copied it from."""
    return string(as_dict(record.get("forkedFrom")).get("messageUuid")) or record.get("uuid")


_in_order = msgspec.json.Encoder(order="sorted").encode


class SeenRecords:
    """The records of some files by uuid: which are copies, and what those are called that share a uuid and differ."""

    def __init__(self) -> None:
        self._says: dict[str, list[Any]] = {}
        """What the first record of a uuid says, until another of that uuid comes: most never meet one."""
        self._names: dict[str, dict[int, str]] = {}
        """The names of all records of a uuid, by a digest of what each says."""

    def name_of(self, uuid: str, record: dict[str, Any]) -> str | None:
        """What a record is called here: by its uuid, or by another where one that differs has that; None for a copy."""
        names = self._names.get(uuid)
        if names is None:
            if uuid not in self._says:
                self._says[uuid] = _said_by(record)
                return uuid
            names = self._names[uuid] = {_digest_of(self._says.pop(uuid)): uuid}
        digest = _digest_of(_said_by(record))
        if digest in names:
            return None
        names[digest] = name = f"{uuid}~{len(names) + 1}"
        return name

    def let_go(self, *, more_come: bool) -> None:
        """Let go of the records themselves; where more come, digests of them stay."""
        while more_come and self._says:
            uuid, says = self._says.popitem()
            self._names[uuid] = {_digest_of(says): uuid}
        self._says.clear()


def _said_by(record: dict[str, Any]) -> list[Any]:
    """What a record says, whichever session it stands in: a copy has another session, time and place."""
    get, of_message = record.get, as_dict(record.get("message")).get
    own = [get("type"), get("subtype"), get("content"), get("attachment")]
    return [*own, of_message("role"), of_message("id"), of_message("content")]


def _digest_of(says: list[Any]) -> int:
    try:
        return hash(_in_order(says))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return hash(compact(says))
