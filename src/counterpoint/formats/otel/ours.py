"""Spans that our own exporter wrote, as the traces they were, whatever collector or backend they came through.

Always true: a trace whose spans are all there comes back equal, number for number; where some are missing it is what the rest
says, with an edge for each pair that is there, and unfinished without its root span.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from counterpoint.errors import InputError
from counterpoint.formats.importing.values import as_dict, as_list, count
from counterpoint.formats.spans.genai import parsed
from counterpoint.formats.spans.raw_records import RawSpan
from counterpoint.trace import Trace, lines

TRACE = "counterpoint.trace"
"""On the resource: the trace's header."""
EVENT = "counterpoint.event"
"""On an event's span: the event, field for field."""
ORDER = "counterpoint.order"
"""On an event's span: its place in the trace."""
EDGES = "counterpoint.edges"
"""On an event's span: the edges into it, each as its place, source and type."""
TEXT = "counterpoint.text"
"""On an event's span: its text, where no attribute of the conventions holds it."""
FINISH = "counterpoint.finish"
"""On the root span: rewards, costs and metrics."""
REST = "counterpoint.rest"
"""On the root span: texts that no event refers to and edges to events that are not there."""
_TEXTS = (TEXT, "gen_ai.tool.call.arguments", "gen_ai.tool.call.result")

_encode = msgspec.json.Encoder().encode


def is_ours(raw: RawSpan) -> bool:
    """Whether our exporter wrote the span."""
    return TRACE in raw.resource


def restored(raws: list[RawSpan]) -> Iterator[Trace]:
    """The traces that some spans of ours hold; raises `InputError` where one of them was changed beyond reading."""
    groups: dict[str, list[RawSpan]] = {}
    for raw in raws:
        groups.setdefault(str(raw.resource[TRACE]), []).append(raw)
    for header, group in groups.items():
        yield lines.decode_lines(b"\n".join([header.encode("utf-8", "replace"), *_records(group)]), where="its spans")


def _records(group: list[RawSpan]) -> list[bytes]:
    spans = {str(raw.attrs[EVENT]): raw for raw in group if EVENT in raw.attrs}
    ordered = sorted(spans.items(), key=lambda row: (count(row[1].attrs.get(ORDER)) or 0, row[1].order))
    events, contents, edges = [], {}, []
    for line, raw in ordered:
        event = as_dict(as_dict(parsed(line)).get("event"))
        events.append(line.encode("utf-8", "replace"))
        text = _text(raw.attrs)
        if text is not None and isinstance(event.get("content_ref"), str):
            contents[event["content_ref"]] = text
        edges += [(*e, event.get("id")) for e in map(as_list, as_list(parsed(raw.attrs.get(EDGES)))) if len(e) == 3]
    root = next((raw for raw in group if FINISH in raw.attrs), None)
    rest = as_dict(parsed(root.attrs.get(REST))) if root else {}
    contents |= {k: v for k, v in as_dict(rest.get("contents")).items() if isinstance(v, str)}
    edges += [tuple(e) for e in map(as_list, as_list(rest.get("edges"))) if len(e) == 4]
    edges.sort(key=lambda e: count(e[0]) or 0)
    found = [_encode({"edge": {"src": src, "dst": dst, "type": kind}}) for _, src, kind, dst in edges]
    texts = [_encode({"content": ref, "text": text}) for ref, text in contents.items()]
    finish = [str(root.attrs[FINISH]).encode("utf-8", "replace")] if root else []
    return [*events, *found, *texts, *finish]


def _text(attrs: dict[str, Any]) -> str | None:
    for name in _TEXTS:
        if isinstance(attrs.get(name), str):
            return str(attrs[name])
    messages = as_list(parsed(attrs.get("gen_ai.output.messages")))
    part = as_dict((as_list(as_dict(messages[0]).get("parts")) or [None])[0]) if messages else {}
    found = part.get("content")
    return found if isinstance(found, str) else None


def refuse(what: str) -> InputError:
    """The error for bytes that hold no trace of ours."""
    return InputError("holds no trace that this exporter wrote", why=what, fix="read other OpenTelemetry files as `otel`")
