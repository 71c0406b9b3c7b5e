"""A whole trace as lines for people: what every event, edge and report says, so that a test can show all of it.

Always true: nothing that a trace holds is left out, except a field that is None; texts stand where their references are.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from counterpoint.trace import Trace
from logs import SAMPLES, files_of, imported

_FIRST = ("id", "t", "type", "agent")


def listing(trace: Trace) -> list[str]:
    """The trace's head, its events in order, its edges in order, and its reports."""
    lines = [f"trace {trace.trace_id} of {trace.task_id} ({trace.system}, {trace.topology})"]
    for e in trace.events:
        fields = {name: getattr(e, name) for name in e.__struct_fields__ if name not in _FIRST}
        shown = [f"{name.rstrip('_')}={_short(_text(trace, name, v))}" for name, v in fields.items() if _is_there(v)]
        lines.append(f"  {_short(e.t)} {e.id}: {e.type} by {e.agent}" + "".join(f" {part}" for part in shown))
    lines += [f"  {e.src} -> {e.dst} ({e.type})" for e in trace.edges]
    for name in ("rewards", "costs", "metrics", "meta"):
        if value := getattr(trace, name):
            lines.append(f"  {name} {_short(value)}")
    referred = {e.content_ref for e in trace.events}
    rest = sorted(text for ref, text in trace.contents.items() if ref not in referred)
    return lines + [f"  text {_short(text)}" for text in rest]


def _is_there(value: Any) -> bool:
    return value is not None and value is not msgspec.UNSET


def _text(trace: Trace, name: str, value: Any) -> Any:
    return trace.contents.get(value, value) if name == "content_ref" else value


def _short(value: Any) -> str:
    if isinstance(value, str) and value.isidentifier():
        return value
    return json.dumps(_rounded(value), ensure_ascii=False, sort_keys=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 9) if value % 1 else int(value)
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list | tuple) else value


def sample(name: str) -> str:
    """Every trace of an importer's samples."""
    traces = imported(name, files_of(SAMPLES / name))
    return "".join(f"{line}\n" for trace in sorted(traces, key=lambda t: t.trace_id) for line in listing(trace))


if __name__ == "__main__":  # from the repository's root: python tests/listing.py NAME > tests/formats/listings/NAME.txt
    sys.stdout.write(sample(sys.argv[1]))
