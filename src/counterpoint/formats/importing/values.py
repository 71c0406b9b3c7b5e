"""Foreign values as ours: JSON written with any care, times in any unit, counts, and the text in a content of any shape.

Always true: nothing here raises on a strange value; what cannot be understood is None (or, for `decode`, an `InputError`).
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from counterpoint.errors import InputError

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_DURATION = re.compile(r"^P(?:(\d+(?:\.\d+)?)D)?T?(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?$")
# Epochs by size: no agent ran before 2001 or will after 2286, so a number's magnitude gives its unit away.
_UNITS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))


def decode(data: bytes | memoryview | str) -> Any:
    """The JSON value in the bytes: fast for clean JSON, and tolerant of NaN, lone surrogates, a BOM and NULs."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeError):
        pass
    except RecursionError as error:
        raise InputError("is nested too deeply") from error
    text = data if isinstance(data, str) else bytes(data).decode("utf-8", "replace")
    try:
        return json.loads(text.lstrip("\ufeff").strip("\x00 \t\r\n"))
    except RecursionError as error:
        raise InputError("is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise InputError("is not JSON", why=str(_same_everywhere(error))[:200]) from error
    except ValueError as error:  # such as a number of too many digits
        raise InputError("is not JSON", why=str(error)[:200]) from error


def json_field(value: Any) -> Any:
    """A field that some files hold as a value and others as the text of JSON; None where the text is none."""
    if not isinstance(value, str):
        return value
    try:
        return decode(value)
    except InputError:
        return None


def clean_object(data: bytes) -> dict[str, Any] | None:
    """The object that some bytes are, where they are JSON in UTF-8 and nothing else; the fast way of most records."""
    try:
        value = _decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if type(value) is dict else None


def is_utf8(data: bytes) -> bool:
    """Whether some bytes are text in UTF-8."""
    if data.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(data), _PIECE):
            decoder.decode(data[at : at + _PIECE], at + _PIECE >= len(data))
    except UnicodeDecodeError:
        return False
    return True


_PIECE = 1 << 20


def apart(line: bytes) -> list[bytes]:
    """The objects in a line that holds several, as where files without a last newline were put together; else the line itself."""
    if _GLUED not in line or not is_broken(line):
        return [line]
    parts, begin, at = [], 0, line.find(_GLUED)
    for _ in range(_TRIED):
        if at < 0:
            break
        if not is_broken(line[begin : at + 1]):
            parts.append(line[begin : at + 1])
            begin = at + 1
        at = line.find(_GLUED, at + 1)
    return [*parts, line[begin:]]


def is_broken(data: bytes) -> bool:
    """Whether some bytes are not JSON."""
    try:
        decode(data)
    except InputError:
        return True
    return False


_GLUED, _TRIED = b"}{", 64


def _same_everywhere(error: json.JSONDecodeError) -> json.JSONDecodeError:
    """The error as Python 3.11 and 3.12 word it: 3.13 has other words for a comma before a closing bracket, and a trace keeps
    the words."""
    if not error.msg.startswith("Illegal trailing comma"):
        return error
    rest = error.doc[error.pos + 1 :]
    what = "Expecting value" if rest.lstrip().startswith("]") else "Expecting property name enclosed in double quotes"
    return json.JSONDecodeError(what, error.doc, error.pos + 1 + len(rest) - len(rest.lstrip()))


def compact(value: Any) -> str:
    """A value as JSON text without spaces; a string stays itself."""
    if isinstance(value, str):
        return value
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError, UnicodeError):
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=str)


def as_dict(value: Any) -> dict[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def string(value: Any) -> str | None:
    """The value where it is a string that is not empty."""
    return value if isinstance(value, str) and value else None


def number(value: Any) -> float | None:
    """A finite number: from a number, or from a string that holds one."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def count(value: Any) -> int | None:
    """A whole number that is not negative, as JSON numbers and OTLP's decimal strings write it."""
    if type(value) is int:
        return value if 0 <= value < 2**63 else None
    whole = number(value)
    return int(whole) if whole is not None and 0 <= whole < 2**63 and whole.is_integer() else None


def seconds(value: Any) -> float | None:
    """A moment as seconds since the epoch: ISO 8601 text (UTC where no zone is given), or a number of s, ms, us or ns."""
    if isinstance(value, str):
        if len(value) > 8 and value.isdecimal():  # "1704101960743156144" would pass for a day in 1704
            return _epoch(number(value))
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return _epoch(number(value)) if value[:1].isdigit() else _loose(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return _epoch(number(value))


def _loose(value: str) -> float | None:
    match = re.match(r"\s*(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)", value)
    return seconds(f"{match[1]}T{match[2]}") if match else None


def _epoch(value: float | None) -> float | None:
    if value is None or value < 0:
        return None
    return next((value * scale for least, scale in _UNITS if value >= least), value)


def duration(value: Any) -> float | None:
    """A length of time in seconds: a number, or ISO 8601 such as PT1M48.75S."""
    if isinstance(value, str) and (match := _DURATION.match(value)):
        days, hours, minutes, rest = (float(part or 0) for part in match.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + rest
    got = number(value)
    return got if got is not None and got >= 0 else None


def text_of(content: Any) -> str:
    """The text of a message's content: a string, a list of parts ({"text"}, {"content"}, strings), or an object with either."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        for name in ("text", "content", "value", "output"):
            if name in content:
                return text_of(content[name])
        return compact(content) if content else ""
    if isinstance(content, Iterable):
        return "\n".join(part for part in map(text_of, content) if part)
    return "" if content is None else str(content)


def folder_name(path: Any) -> str | None:
    """The last part of a folder's path or address, whichever way its slashes lean."""
    parts = path.replace("\\", "/").rstrip("/").rsplit("/", 1) if isinstance(path, str) else [""]
    return parts[-1] or None


def writable(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates become question marks."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
