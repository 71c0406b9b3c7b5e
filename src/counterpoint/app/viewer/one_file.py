"""The viewer and its data as one HTML file that opens from disk.

Always true: the same traces make the same bytes; the file fetches nothing and runs only the page's own script, which its content
security policy names by hash; data stands in one block, so that a newer page can be put around an old block.

The block is `<script type="application/octet-stream" id="counterpoint-data" data-version="2" data-encoding="gzip+base64">`, its
content base64 of gzip of JSON:

    version   of the shapes (`shapes.VERSION`)
    made_by   name and version of what wrote it
    masked    kind of secret to how many were masked, null where masking was off
    traces    id to {about, columns, bins?, texts, events, credit, work, methods, outcomes, panels}

`about` and `methods` are the shapes of that name, `panels` what each panel answers; `columns` and `events` (fields of events) are
as `dense.py` packs them, `bins` is base64 of the bytes that the server sends; `texts` (number of an event to its text) and
`events` may lack some or all; `credit` is by "method/unit". In files of version 1 `columns` is base64 of the server's bytes, and
`events` has the fields by the event's number.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from counterpoint import __version__, registry
from counterpoint.app.viewer import dense
from counterpoint.app.viewer.columns import arrays_of, bins
from counterpoint.app.viewer.credit_tab import credit, methods, work
from counterpoint.app.viewer.events import fields
from counterpoint.app.viewer.notes import annotation_list
from counterpoint.app.viewer.outcomes import outcomes
from counterpoint.app.viewer.overview import overview
from counterpoint.app.viewer.panel import panels
from counterpoint.app.viewer.policy import policy
from counterpoint.app.viewer.shapes import VERSION, About, Credit, MethodInfo
from counterpoint.app.viewer.trace_view import TraceView, view_of
from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.trace import Trace

PAGE = Path(__file__).parent / "page" / "viewer.html"
LIMIT = 50_000_000
"""A larger file is refused: nobody's mail or browser is glad of it."""
TEXTS = 32_000_000
"""Characters of text that go along; beyond, the longest are cut."""

# Up to this many events credit goes along at every unit; beyond it, and in a summary, only for agents and what is larger.
_FINE = 5_000
_COARSE = ("team", "orchestrator", "role", "agent")
_NO_FORK = "This page is a file: open the trace with counterpoint view to fork it."
_PLACE = "<!--counterpoint-data-->"
_BLOCK = re.compile(rb'<script[^>]*\bid="counterpoint-data"[^>]*>(?P<body>[A-Za-z0-9+/=\s]*)</script>')


class OneFile(NamedTuple):
    """A file to be written, and what is not in it."""

    data: bytes
    events: int
    texts_cut: int
    texts_left_out: int
    longest: int
    """To how many characters texts were cut."""


def one_file(
    traces: Sequence[Trace],
    *,
    masked: Counter[str] | None,
    is_summary: bool = False,
    notes: Sequence[str] = (),
) -> OneFile:
    """The page with these traces in it. They are taken as they are: mask them first, and say what was masked."""
    sizes = [len(text) for trace in traces for text in _texts(trace).values()]
    longest = _longest(sizes, TEXTS)
    told = {t.trace_id: packed(t, longest=None if is_summary else longest, notes=notes) for t in traces}
    if len(told) < len(traces):
        raise InputError("two of the traces have the same id", fix="write them into two files")
    counts = None if masked is None else dict(sorted(masked.items()))
    title = " · ".join(told)
    data = page_around(block({"masked": counts, "traces": told}), title)
    if len(data) > LIMIT:
        raise Refused(
            f"the file would have {len(data) / 1e6:,.0f} MB",
            why=f"more than {LIMIT / 1e6:.0f} MB is too much for a browser to open from disk",
            fix="--agent NAME for some agents, --window FROM-TO for a part of the time, or --summary for no texts and fields",
        )
    cut = 0 if is_summary else sum(size > longest for size in sizes)
    return OneFile(data, sum(len(t.events) for t in traces), cut, len(sizes) if is_summary else 0, longest)


def packed(trace: Trace, *, longest: int | None, notes: Sequence[str] = ()) -> dict[str, Any]:
    """One trace as the block has it; texts are cut to `longest`, None leaves texts and fields out."""
    view, about = view_of(trace), overview(trace)
    told, credits_ = _credits(trace, is_coarse=longest is None or view.n > _FINE)
    out: dict[str, Any] = {
        "about": replace(about, can_fork=False, fork_refusal=_NO_FORK, notes=[*about.notes, *notes]),
        "columns": {},
        "texts": {},
        "events": {},
        "credit": credits_,
        "work": work(trace),
        "methods": told,
        "outcomes": outcomes(trace),
        "annotations": annotation_list(trace),
        "panels": {name: (panel.offline or panel.answer)(trace) for name, panel in panels().items()},
    }
    if view.is_large:
        out["bins"] = base64.b64encode(bins(trace)).decode()
    rows = None
    if longest is not None:
        out["texts"] = {str(n): _cut(text, longest) for n, text in _texts(trace).items()}
        rows = [fields(trace.events[i]) for i in view.team.order_E.tolist()]
        out["events"] = dense.fields(rows, _known(view, about))
    out["columns"] = dense.columns(arrays_of(view), _ids(view), rows)
    return out


def _ids(view: TraceView) -> list[str]:
    return [view.trace.events[i].id for i in view.team.order_E.tolist()]


def _known(view: TraceView, about: About) -> dict[str, list[Any]]:
    """What the columns say of each event, under the names that its fields have."""
    arrays = arrays_of(view)
    agents = [about.agents[a] for a in arrays["agent"].tolist()]
    return {
        "id": _ids(view),
        "t": arrays["t"].tolist(),
        "turn": arrays["turn"].tolist(),
        "type": [about.types[k] for k in arrays["type"].tolist()],
        "agent": [agent.name for agent in agents],
        "role": [agent.role for agent in agents],
        "tool": [about.tools[k - 1] if k else None for k in arrays["tool"].tolist()],
    }


def _credits(trace: Trace, *, is_coarse: bool) -> tuple[list[MethodInfo], dict[str, Credit]]:
    """What every method says at every unit it has; one that is not in the file, or has no answer, says why."""
    told: list[MethodInfo] = []
    out: dict[str, Credit] = {}
    for method in methods(trace):
        # the one that is shown first was asked already
        why = method.refusal or (None if method.why else _unasked(trace, method, is_coarse=is_coarse))
        if why is None:
            first = credit(trace, method.id)
            why = first.refusal
            units = [unit for unit in first.units if not is_coarse or unit in _COARSE]
            out |= {f"{method.id}/{unit}": first if unit == first.unit else credit(trace, method.id, unit) for unit in units}
        told.append(replace(method, refusal=why))
    return told, out


def _unasked(trace: Trace, method: MethodInfo, *, is_coarse: bool) -> str | None:
    """Why a method is not asked when a file is written: forking may take long, and so may a row for every turn of many."""
    fix = f"counterpoint credit {trace.trace_id} --mechanism {method.id}"
    if "replay" in registry.get("mechanism", method.id).needs:
        return f"it forks the trace, which a file cannot: {fix}"
    if is_coarse and method.unit not in _COARSE:
        return f"its rows are not in this file: {fix}"
    return None


def _texts(trace: Trace) -> dict[int, str]:
    """The number of an event to its text, for those that have one."""
    order = view_of(trace).team.order_E.tolist()
    found = ((n, trace.text(trace.events[i])) for n, i in enumerate(order))
    return {n: text for n, text in found if text is not None}


def _longest(sizes: list[int], budget: int) -> int:
    """The length to which texts are cut so that all of them fit the budget; what they have where they fit as they are."""
    left, sizes = budget, sorted(sizes)
    for k, size in enumerate(sizes):
        share = left // (len(sizes) - k)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}\n[cut: {_size(longest)} of {_size(len(text))}]"


def _size(characters: int) -> str:
    return f"{characters / 1e6:.1f} MB" if characters >= 1_000_000 else f"{characters / 1000:.0f} kB"


def block(told: dict[str, Any]) -> str:
    """The data block, packed."""
    whole = {"version": VERSION, "made_by": f"counterpoint {__version__}", **told}
    packed_ = gzip.compress(_json(whole), 9, mtime=0)
    head = f'type="application/octet-stream" id="counterpoint-data" data-version="{VERSION}" data-encoding="gzip+base64"'
    return f"<script {head}>{base64.b64encode(packed_).decode()}</script>"


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair in a name or a text, which JSON can hold as an escape
        return json.dumps(msgspec.to_builtins(value, str_keys=True), ensure_ascii=True, separators=(",", ":")).encode()


def page_around(data: str, title: str) -> bytes:
    """The page with a block in it, a policy that lets nothing in or out, and a title."""
    if not PAGE.is_file():
        fix = "installed packages carry it; in a checkout run `make page`"
        raise NotFound("this copy has no viewer page", where=PAGE.name, fix=fix)
    text = PAGE.read_text(encoding="utf-8")
    if _PLACE not in text:
        raise InputError("has no place for the data", where=PAGE.name, fix="build the page again with `make page`")
    allowed = f'<meta http-equiv="Content-Security-Policy" content="{policy(text)}">'
    text = re.sub(r"<head[^>]*>", lambda found: found[0] + allowed, text, count=1, flags=re.I)
    named = escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in title[:200]))
    text = re.sub(r"<title>[^<]*</title>", lambda _: f"<title>{named} · Counterpoint</title>", text, count=1, flags=re.I)
    return text.replace(_PLACE, data, 1).encode("utf-8", "replace")


def reopened(data: bytes, where: str = "") -> tuple[str, dict[str, Any]]:
    """The block of a one-file page as it stands, and its content."""
    found = _BLOCK.search(data)
    if found is None:
        raise InputError("has no data block of ours", where=where, fix="name a file that `counterpoint export --to html` wrote")
    try:
        content = json.loads(gzip.decompress(base64.b64decode(found["body"], validate=False)))
    except (binascii.Error, ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"its data block cannot be unpacked: {error}", where=where, fix="export it again") from error
    if not isinstance(content, dict) or not isinstance(content.get("traces"), dict):
        raise InputError("its data block holds no traces", where=where, fix="export it again")
    if not isinstance(content.get("version"), int) or content["version"] > VERSION:
        newer = f"is of a newer kind ({content.get('version')}) than this one ({VERSION})"
        raise InputError(newer, where=where, fix="update counterpoint")
    return found[0].decode(), content
