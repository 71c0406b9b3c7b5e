"""What people read, on a terminal or on the page: text of a trace, and system errors in our words.

Always true: what a trace says comes out without control characters. Numbers are written by `counterpoint.display`.
"""

from __future__ import annotations

import errno
import os

from counterpoint.display import plain_text as plain_text
from counterpoint.errors import CounterpointError, InputError, NotFound, TryAgain


def os_error(error: OSError) -> CounterpointError:
    """A system error in our words: what, where, what would work."""
    where = os.fspath(error.filename) if isinstance(error.filename, (str, os.PathLike)) else None
    match error.errno:
        case errno.ENOENT:
            return NotFound("no such file", where=where, fix="check the path; `counterpoint ls` lists what is stored")
        case errno.EISDIR:
            return InputError("is a directory, not a file", where=where, fix="name a file in it")
        case errno.EACCES | errno.EPERM:
            return InputError("permission denied", where=where, fix="check the file's owner and mode")
        case errno.ENOSPC | errno.EDQUOT:
            return CounterpointError("no space left on the device", where=where, fix="free some space and run it again")
        case errno.EROFS:
            return InputError("the file system is read-only", where=where, fix="write somewhere else with -o or --store")
        case errno.EAGAIN | errno.EBUSY:
            return TryAgain("busy", where=where, fix="run it again in a moment")
    return CounterpointError(error.strerror or str(error), where=where)
