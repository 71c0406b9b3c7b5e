"""Claude Code's records as a JSON document: a list of them, or an object that has it under `entries`, as exports write.

Always true: a file of lines is left as it is; a document that cannot be read is left to whoever reads it as lines.
"""

from __future__ import annotations

import io
from functools import partial
from typing import BinaryIO

import msgspec

from counterpoint.errors import InputError
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.values import as_dict, decode

_KINDS = (b'"user"', b'"assistant"', b'"system"', b'"summary"', b'"file-history-snapshot"')
_SIGNS = (b'"parentUuid"', b'"sessionId"', b'"uuid"')


def is_export(head: bytes) -> bool:
    """Whether a file is such a document."""
    begins = head[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if begins not in (b"[", b"{") or not all(sign in head for sign in _SIGNS):
        return False
    keys = first_keys(head)
    if begins == b"{":
        return keys.keys() >= {"session_id", "entries"} and keys["entries"].lstrip().startswith(b"[")
    is_record = keys.keys() & {"uuid", "leafUuid", "messageId"} and keys.get("type", b"").strip() in _KINDS
    return bool(is_record) and not (b'"parts"' in head and b'"content"' not in head)


def as_lines(file: File) -> File:
    """A file of lines with the same records; a file that has lines already is that."""
    return File(file.name, file.size, partial(_open, file), file.changed) if is_export(file.head()) else file


def _open(file: File) -> BinaryIO:
    try:
        value = decode(file.data())
    except InputError:
        return file.unpacked()
    records = value if isinstance(value, list) else as_dict(value).get("entries")
    return io.BytesIO(b"".join(msgspec.json.encode(record) + b"\n" for record in (records if isinstance(records, list) else [])))
