"""The survey's JSON Schema, checked over raw bytes, with every violation named.

Always true: `problems(data)` finds an error exactly when a Draft 2020-12 validator refuses the document or it is not JSON in
UTF-8 (NaN, infinities and numbers beyond a double are not JSON numbers). It is the slow road: valid files never take it.
"""

from __future__ import annotations

import re
import sys
from math import isinf
from typing import Any

import msgspec
from msgspec import Raw

from counterpoint.errors import did_you_mean
from counterpoint.trace.problem import Findings
from counterpoint.trace.records import Number
from counterpoint.trace.vocabulary import COST_FIELDS, EDGE_TYPES, EVENT_TYPES, TOPOLOGIES

_TOP = ("trace_id", "task_id", "system", "topology", "events", "edges", "rewards", "costs", "metrics")
_TOP_REQUIRED = ("trace_id", "task_id", "events", "edges", "rewards", "costs")
_STRINGS = ("role", "from", "to", "tool", "content_ref")
SURVEY_EVENT_FIELDS = frozenset(("id", "t", "type", "agent", "trusted", *_STRINGS))

# What would work, where nothing more exact can be said.
_SEE = "`counterpoint store schema` prints what is allowed"

_TOKEN = re.compile(rb'"(?>[^"\\]++|\\.)*+"?|(-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?)', re.DOTALL)
_LARGEST = sys.float_info.max
_TOO_LARGE = ("a number is beyond what a double holds", "write a finite number")

_any = msgspec.json.Decoder()
_object = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])


def costs_are_valid(costs: dict[str, Number]) -> bool:
    """The two required costs are there, and the four named ones are not negative."""
    return "tokens" in costs and "wall_clock_s" in costs and all(costs.get(k, 0) >= 0 for k in COST_FIELDS)


def problems(data: bytes | bytearray | memoryview, limit: int | None = 50) -> Findings:
    """Every way in which the bytes of a file break the survey's schema; the first `limit` of them in full."""
    problems = Findings(limit)
    text = bytes(data)
    if _unreadable(text, problems):
        return problems
    if not text.lstrip(b" \t\r\n").startswith(b"{"):
        _wrong_shape(_any.decode(text), problems)
        return problems
    top = _object.decode(text)
    for name in _TOP_REQUIRED:
        if name not in top:
            problems.error("required", "$", f"required field {name!r} is missing", _shape_hint(top))
    for name in top:
        if name not in _TOP:
            hint = "the survey's schema allows no other top-level field; put it in an event or in metrics"
            problems.error("unknown-field", f"$.{name}", f"unknown top-level field {name!r}", hint)
    _check_top(top, problems)
    if "events" in top:
        _check_list(top["events"], "events", _check_event, problems)
    if "edges" in top:
        _check_list(top["edges"], "edges", _check_edge, problems)
    return problems


def _unreadable(text: bytes, problems: Findings) -> bool:
    try:
        _any.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        not_json(text, error, problems)
        return True
    return False


def not_json(text: bytes, error: Exception, problems: Findings) -> None:
    """Say why bytes are not a JSON document: empty, another encoding, NaN, truncated, or malformed at a place."""
    if not text.strip():
        problems.error("empty", "byte 0", "the file is empty", "a trace is one JSON object; see `counterpoint store schema`")
        return
    if text[:2] in (b"\xff\xfe", b"\xfe\xff") or (len(text) > 3 and text[1] == 0 and text[3] == 0):
        problems.error("encoding", "byte 0", "the file is not UTF-8: it looks like UTF-16", "save it as UTF-8")
        return
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as wrong:
        place = _place(text, wrong.start)
        problems.error("encoding", place, f"byte 0x{text[wrong.start]:02x} is not UTF-8", "save the file as UTF-8")
        return
    message = str(error)
    at = int(m.group(1)) if (m := re.search(r"byte (\d+)", message)) else None
    if isinstance(error, RecursionError):
        problems.error("nesting", "$", "the JSON is nested too deeply", "flatten it: a trace needs four levels")
    elif at is not None and (word := _infinite(text, at)):
        hint = "JSON has no NaN or infinity; leave the field out where there is no value"
        problems.error("non-finite", _place(text, at), f"{word} is not a JSON number", hint)
    elif "out of range" in message:
        problems.error("non-finite", _too_large(text), *_TOO_LARGE)
    elif "trailing" in message and at is not None:
        hint = "one file holds one trace; for one record per line use the .jsonl form"
        problems.error("json", _place(text, at - 1), "there is more after the end of the JSON object", hint)
    elif "truncated" in message:
        hint = "the file was truncated while it was written or copied; fetch it again from its source"
        if re.search(rb"\\u[dD][89a-fA-F]", text):
            hint = "or a string holds half of a surrogate pair (\\ud800...), which is not Unicode"
        problems.error("truncated", _place(text, len(text)), "the JSON ends before it is complete", hint)
    else:
        what = "not JSON: " + re.sub(r"^JSON is malformed: |\s*\(byte \d+\)", "", message)
        hint = "is it a trace file? `counterpoint store schema` prints what one holds"
        problems.error("json", _place(text, at or 0), what, hint)


def _infinite(text: bytes, at: int) -> str:
    """`NaN`, `Infinity` or `-Infinity` where the decoder stopped, which may be one byte into it; else nothing."""
    match = re.search(rb"-?(?:NaN|Infinity)", text[max(0, at - 1) : at + 9])
    return match.group(0).decode() if match else ""


def _place(text: bytes, at: int) -> str:
    line, start = text.count(b"\n", 0, at) + 1, text.rfind(b"\n", 0, at) + 1
    return f"line {line}, column {at - start + 1}" if line > 1 else f"byte {at}"


def _too_large(text: bytes) -> str:
    # Atomic, so that every byte is looked at once however long a number or a text is; digits in texts are no numbers.
    for match in _TOKEN.finditer(text):
        if match.group(1) and isinf(float(match.group(1))):
            return _place(text, match.start())
    return "$"


def _wrong_shape(value: Any, problems: Findings) -> None:
    hint = "a trace is one JSON object with trace_id, task_id, events, edges, rewards, costs"
    problems.error("shape", "$", f"the document is {_name(value)}, not an object", hint)


def _shape_hint(top: dict[str, Raw]) -> str:
    if not set(top) & set(_TOP):
        return "this is JSON of another kind; `counterpoint store schema` prints what a trace holds"
    return _SEE


def _name(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def is_number(value: Any) -> bool:
    """A JSON number: in Python a boolean is an int, in JSON it is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_double(value: float | int) -> bool:
    """Whether a number is one that a double can hold; Python's whole numbers have no end."""
    return -_LARGEST <= value <= _LARGEST


def _string(value: Any, where: str, problems: Findings, *, empty_ok: bool) -> bool:
    if not isinstance(value, str):
        problems.error("type", where, f"must be a string, not {_name(value)}", _SEE)
        return False
    if not value and not empty_ok:
        problems.error("empty-string", where, "must not be empty", _SEE)
        return False
    return True


def _one_of(value: Any, known: tuple[str, ...], where: str, problems: Findings) -> None:
    if not isinstance(value, str):
        problems.error("type", where, f"must be a string, not {_name(value)}", _SEE)
    elif value not in known:
        problems.error("enum", where, f"unknown value {value!r}", did_you_mean(value, known))


def _number(value: Any, where: str, problems: Findings, *, at_least_zero: bool = False) -> None:
    if not is_number(value):
        problems.error("type", where, f"must be a number, not {_name(value)}", _SEE)
    elif not is_double(value):
        problems.error("non-finite", where, *_TOO_LARGE)
    elif at_least_zero and value < 0:
        problems.error("minimum", where, f"must not be negative, is {value}", _SEE)


def _check_top(top: dict[str, Raw], problems: Findings) -> None:
    for name in ("trace_id", "task_id", "system"):
        if name in top:
            _string(_any.decode(top[name]), f"$.{name}", problems, empty_ok=name == "system")
    if "topology" in top:
        _one_of(_any.decode(top["topology"]), TOPOLOGIES, "$.topology", problems)
    for name in ("rewards", "costs", "metrics"):
        if name in top:
            _check_numbers(name, _any.decode(top[name]), problems)


def _check_numbers(name: str, value: Any, problems: Findings) -> None:
    if not isinstance(value, dict):
        problems.error("type", f"$.{name}", f"must be an object of numbers, not {_name(value)}", _SEE)
        return
    for key, number in value.items():
        _number(number, f"$.{name}.{key}", problems, at_least_zero=name == "costs" and key in COST_FIELDS)
    for key in ("tokens", "wall_clock_s") if name == "costs" else ():
        if key not in value:
            problems.error("required", "$.costs", f"required cost {key!r} is missing", _SEE)


def _check_list(raw: Raw, name: str, check: Any, problems: Findings) -> None:
    try:
        items = _array.decode(raw)
    except msgspec.ValidationError:
        problems.error("type", f"$.{name}", f"must be an array, not {_name(_any.decode(raw))}", _SEE)
        return
    if name == "events" and not items:
        problems.error("no-events", "$.events", "a trace has at least one event", _SEE)
    for i, item in enumerate(items):
        value = _any.decode(item)
        if not isinstance(value, dict):
            problems.error("type", f"{name}[{i}]", f"must be an object, not {_name(value)}", _SEE)
        else:
            check(value, f"{name}[{i}]", problems)


def _check_event(event: dict[str, Any], where: str, problems: Findings) -> None:
    for name in ("id", "t", "type", "agent"):
        if name not in event:
            problems.error("required", where, f"required field {name!r} is missing", _SEE)
    for name in ("id", "agent"):
        if name in event:
            _string(event[name], f"{where}.{name}", problems, empty_ok=False)
    if "t" in event:
        _number(event["t"], f"{where}.t", problems, at_least_zero=True)
    if "type" in event:
        _one_of(event["type"], EVENT_TYPES, f"{where}.type", problems)
    for name in _STRINGS:
        if name in event:
            _string(event[name], f"{where}.{name}", problems, empty_ok=True)
    if "trusted" in event and not isinstance(event["trusted"], bool):
        problems.error("type", f"{where}.trusted", f"must be true or false, not {_name(event['trusted'])}", _SEE)


def _check_edge(edge: dict[str, Any], where: str, problems: Findings) -> None:
    for name in ("src", "dst", "type"):
        if name not in edge:
            problems.error("required", where, f"required field {name!r} is missing", _SEE)
    for name in ("src", "dst"):
        if name in edge:
            _string(edge[name], f"{where}.{name}", problems, empty_ok=False)
    if "type" in edge:
        _one_of(edge["type"], EDGE_TYPES, f"{where}.type", problems)
    for name in edge:
        if name not in ("src", "dst", "type"):
            problems.error("unknown-field", f"{where}.{name}", f"an edge has no field {name!r}", _SEE)
