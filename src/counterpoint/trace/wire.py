"""Records to and from JSON in the survey's shape, without losing a field.

Always true: `encode(decode(data))` says the same as `data`, field for field and number for number; what `encode` writes
passes the survey's JSON Schema whenever the trace was valid. Three routes in: typed decoding when a file has only declared
fields (the usual case, and the fast one); event by event when some events carry other fields; and, when the file breaks the
schema, `schema_check` to say how.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

import counterpoint.trace.schema_check as schema_check
from counterpoint.errors import InputError, InvalidTrace
from counterpoint.trace.problem import DEFAULT_LIMIT
from counterpoint.trace.records import AMOUNTS, FIELDS, Edge, Event, Name, Number, wire_name
from counterpoint.trace.trace import Trace
from counterpoint.trace.vocabulary import Topology

Data = bytes | bytearray | memoryview

# From here on edges are scanned into arrays: no slower than records then, and the memory counts.
_LARGE = 4 << 20
_SHOWN = "_shown_by_decoding"


class _Rest(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a survey-format file holds beside events and edges: exactly the fields that its schema allows."""

    trace_id: Name
    task_id: Name
    system: str = None  # type: ignore[assignment]  # absent, never null: see records.py
    topology: Topology = None  # type: ignore[assignment]
    rewards: dict[str, Number]
    costs: dict[str, Number]
    metrics: dict[str, Number] = None  # type: ignore[assignment]


class SurveyFile(_Rest, kw_only=True):
    """A survey-format file."""

    events: Annotated[list[Event], Meta(min_length=1)]
    edges: list[Edge]


class _LargeFile(_Rest, kw_only=True):
    """The same with edges left as bytes, to be scanned as a pattern."""

    events: Annotated[list[Event], Meta(min_length=1)]
    edges: Raw


class _LooseFile(_Rest, kw_only=True):
    """The same with events left as bytes, to be taken one by one."""

    events: Annotated[list[Raw], Meta(min_length=1)]
    edges: list[Edge]


_file = msgspec.json.Decoder(SurveyFile)
_large_file = msgspec.json.Decoder(_LargeFile)
_edges = msgspec.json.Decoder(list[Edge])
_loose_file = msgspec.json.Decoder(_LooseFile)
_event = msgspec.json.Decoder(Event)
_any = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode

_DECLARED = {wire_name(f): f for f in FIELDS}
_REQUIRED = ("id", "t", "type", "agent")


def decode(data: Data, *, where: str | None = None) -> Trace:
    """A trace from the bytes of a survey-format file; `InvalidTrace`, with every problem, when it breaks the schema."""
    return decode_strictly(data) or decode_loosely(data, where=where)


def decode_strictly(data: Data) -> Trace | None:
    """The fast route: a trace whose every field is declared, well typed and in range; None for anything else."""
    file: SurveyFile | _LargeFile
    edges: Sequence[Edge]
    try:
        if len(data) < _LARGE:
            file = _file.decode(data)
            edges = file.edges
        else:
            file = _large_file.decode(data)
            from counterpoint.trace.edges import scan

            edges = scan(file.edges, file.events) or _edges.decode(file.edges)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    is_valid = schema_check.costs_are_valid(file.costs) and _are_doubles(file, file.events)
    return _trace(file, file.events, edges, "fields") if is_valid else None


def _are_doubles(file: _Rest, events: list[Event]) -> bool:
    """Whether whole numbers are not beyond a double, which the decoder lets through where a field may be an int."""
    stated = (*file.rewards.values(), *file.costs.values(), *(file.metrics or {}).values())
    return schema_check.is_double(max(e.t for e in events)) and all(map(schema_check.is_double, stated))


def _trace(file: _Rest, events: list[Event], edges: Sequence[Edge], shown: Literal["fields", "schema"]) -> Trace:
    trace = Trace(
        trace_id=file.trace_id,
        task_id=file.task_id,
        system=file.system,
        topology=file.topology,
        events=events,
        edges=edges,
        rewards=file.rewards,
        costs=file.costs,
        metrics=file.metrics,
    )
    vars(trace)[_SHOWN] = shown, _lists(trace)
    return trace


def _lists(trace: Trace) -> tuple[Any, ...]:
    """Copies of what can be changed in a trace although it is frozen."""
    edges = list(trace.edges) if isinstance(trace.edges, list) else trace.edges
    return list(trace.events), edges, dict(trace.rewards), dict(trace.costs), trace.metrics and dict(trace.metrics)


def shown_by_decoding(trace: Trace) -> Literal["nothing", "schema", "fields"]:
    """What decoding has shown of a trace that is still what was decoded: its schema, or every field; nothing of any other."""
    shown, lists = vars(trace).get(_SHOWN, ("nothing", ()))
    if shown == "nothing" or (trace.events, trace.edges, trace.rewards, trace.costs, trace.metrics) != lists:
        return "nothing"
    return "fields" if shown == "fields" else "schema"


def decode_loosely(data: Data, *, where: str | None = None, limit: int | None = DEFAULT_LIMIT) -> Trace:
    """The route for files with fields of their own; ends in `InvalidTrace` with the first `limit` problems, all counted."""
    data = data[3:] if bytes(data[:3]) == b"\xef\xbb\xbf" else data  # a byte order mark says nothing in UTF-8
    try:
        file = _loose_file.decode(data)
        if schema_check.costs_are_valid(file.costs):
            events = [decode_event(raw) for raw in file.events]
            if _are_doubles(file, events):
                return _trace(file, events, file.edges, "schema")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    problems = schema_check.problems(data, limit)
    if not problems.error_count:
        # Typed decoding refused what the schema allows: that is our defect, and must not pass as the user's.
        raise AssertionError("the decoder and the schema disagree")  # pragma: no cover
    raise InvalidTrace(
        problems.headline(), findings=problems, where=where, fix="see `counterpoint store check` for the whole list"
    )


def decode_event(raw: bytes | Raw | memoryview) -> Event:
    """One event from its JSON object; fields that are not declared, or not of their type, are kept in `extra`."""
    try:
        return _event.decode(raw)
    except msgspec.ValidationError:
        return event_from_dict(_any.decode(raw))


def event_from_dict(obj: dict[str, Any]) -> Event:
    """The same from a decoded object. Raises `msgspec.ValidationError` when a survey field is missing or wrong."""
    declared = {k: v for k, v in obj.items() if k in _DECLARED}
    extra = {k: v for k, v in obj.items() if k not in _DECLARED}
    out_of_range: dict[str, Any] = {}
    try:
        event = msgspec.convert(declared, Event)
    except msgspec.ValidationError:
        for name in [n for n in declared if n not in schema_check.SURVEY_EVENT_FIELDS]:
            if not _fits(name, declared[name]):
                value = declared.pop(name)
                # A negative count is of the right type: it stays in its field, where `check` will name it.
                is_negative = name in AMOUNTS and schema_check.is_number(value) and _fits(name, -value)
                (out_of_range if is_negative else extra)[name] = value
        event = msgspec.convert(declared, Event)
    return msgspec.structs.replace(event, extra=extra or None, **out_of_range) if extra or out_of_range else event


def _fits(name: str, value: Any) -> bool:
    try:
        msgspec.convert({"id": "-", "t": 0, "type": "message", "agent": "-", name: value}, Event)
    except msgspec.ValidationError:
        return False
    return True


def event_dict(event: Event) -> dict[str, Any]:
    """The event as the JSON object that a survey-format file holds: `extra` spread back among the fields."""
    fields: dict[str, Any] = msgspec.to_builtins(event)
    extra = fields.pop("extra", None)
    if extra:
        for name, value in extra.items():
            fields.setdefault(name, value)
    return fields


def encode_event(event: Event) -> bytes:
    """One event as a JSON object on one line."""
    return _to_json(event if event.extra is None else event_dict(event))


def encode(trace: Trace) -> bytes:
    """The trace in the survey's format; `meta` and `contents` stay behind."""
    events: list[Any] = trace.events
    if any(e.extra is not None for e in events):
        events = [e if e.extra is None else event_dict(e) for e in events]
    file: dict[str, Any] = {"trace_id": trace.trace_id, "task_id": trace.task_id}
    if trace.system is not None:
        file["system"] = trace.system
    if trace.topology is not None:
        file["topology"] = trace.topology
    file |= {"events": events, "edges": list(trace.edges), "rewards": trace.rewards}
    if not trace.costs.keys() >= {"tokens", "wall_clock_s"}:
        # The survey's schema asks for both: counted from the events, and 0 where nobody knows.
        file["costs"] = {"tokens": trace.tokens or 0, "wall_clock_s": trace.duration_s or 0} | trace.costs
    else:
        file["costs"] = trace.costs
    if trace.metrics is not None:
        file["metrics"] = trace.metrics
    return _finite(_to_json(file), trace)


def is_finite(value: Any) -> bool:
    """Whether a value can be written as JSON without a null, which is how the encoder writes NaN too."""
    return b"null" not in _to_json(value)


def _to_json(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError as error:
        raise InputError("a text holds half of a surrogate pair, which no JSON file can carry", why=str(error)) from error


def _finite(data: bytes, trace: Trace) -> bytes:
    """The encoder writes NaN as null without a word; where there is a null, make sure that it was one."""
    if b"null" in data:
        for where, value in _numbers(trace):
            if isinstance(value, float) and not isfinite(value):
                raise InvalidTrace(f"{value} is not a JSON number", where=where, fix="leave out what has no value")
    return data


def _numbers(trace: Trace) -> Iterator[tuple[str, Any]]:
    for name in ("rewards", "costs", "metrics"):
        yield from ((f"$.{name}.{k}", v) for k, v in (getattr(trace, name) or {}).items())
    for i, event in enumerate(trace.events):
        for name in ("t", "dur", "cost_usd", "logp", "at"):
            yield f"events[{i}].{name}", getattr(event, name)
        for nested in (event.reward, event.extra):
            yield from _leaves(f"events[{i}]", nested)


def _leaves(where: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{where}.{key}", inner)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _leaves(f"{where}[{i}]", inner)
    else:
        yield where, value
