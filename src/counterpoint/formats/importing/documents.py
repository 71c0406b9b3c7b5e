"""A file as JSON documents, where it may be one document, on one line or many, or one document per line.

Always true: a broken line or document is counted in the session's report; what follows a broken line is still read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import HEAD, File
from counterpoint.formats.importing.values import decode


def documents(session: Session, file: File) -> Iterator[Any]:
    """Each document of a file."""
    if _is_one(file.head(HEAD)):
        found = session.document(file)
        if found is not None:
            yield found
        return
    for _, record in session.records(file):
        yield record


def _is_one(head: bytes) -> bool:
    """Whether a file that begins so is one document: a list, or an object over several lines."""
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not begins.startswith(b"{"):
        return True
    first, end, rest = begins.partition(b"\n")
    if not end or rest.startswith(b"{"):
        return False
    try:
        decode(first)
    except InputError:
        return True
    return False
