"""Checking files: one report per file, whatever is wrong with it.

Always true: `check_file` never raises for what a file holds, only for what the machine will not give (no such file, no
permission); a report is `ok` exactly when there is no error in it.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import Struct

from counterpoint import registry
from counterpoint.app.load_save import opened
from counterpoint.errors import InputError, InvalidTrace
from counterpoint.formats.format import detect
from counterpoint.formats.importing.files import HEAD
from counterpoint.trace import Findings, Trace, check, lines, wire

# Codes that say the bytes are no JSON text at all, so that nothing could be examined.
UNREADABLE = frozenset({"empty", "encoding", "json", "truncated", "nesting", "non-finite"})


class FileReport(Struct, frozen=True, kw_only=True):
    """What was found in one file or trace."""

    file: str
    format: str | None
    events: int = 0
    edges: int = 0
    agents: int = 0
    findings: Findings

    @property
    def ok(self) -> bool:
        """No errors; warnings do not count."""
        return not self.findings.error_count

    @property
    def exit_code(self) -> int:
        """0 fine, 2 unreadable, 4 examined and found wrong."""
        if self.ok:
            return 0
        return 2 if any(code in UNREADABLE for code in self.findings.by_code("error")) else 4

    def as_dict(self) -> dict[str, Any]:
        """The object that `check --json` prints."""
        named = {"file": self.file, "ok": self.ok, "format": self.format}
        counted = {"events": self.events, "edges": self.edges, "agents": self.agents}
        listed = {
            f"{severity}s": [
                {"code": p.code, "where": p.where, "what": p.what, "hint": p.hint}
                for p in self.findings.problems
                if p.severity == severity
            ]
            for severity in ("error", "warning")
        }
        totals = {"error_count": self.findings.error_count, "warning_count": self.findings.warning_count}
        by_code = {f"{s}s_by_code": self.findings.by_code(s) for s in ("error", "warning")}
        return named | counted | listed | totals | by_code


def check_trace(trace: Trace, *, name: str | None = None, format_: str | None = None, limit: int | None = 50) -> FileReport:
    """A report on a trace in memory or from the store."""
    return _report(name or trace.trace_id, format_, trace, check.findings(trace, limit))


def _report(name: str, format_: str | None, trace: Trace, found: Findings) -> FileReport:
    shape = {"events": len(trace.events), "edges": len(trace.edges), "agents": len(trace.members)}
    return FileReport(file=name, format=format_, findings=found, **shape)


def check_file(path: str | os.PathLike[str], limit: int | None = 50) -> FileReport:
    """A report on a file: a trace in the survey's format, in lines, or what an importer makes of a log."""
    name = os.fspath(path)
    with opened(path) as data:
        try:
            form = detect(bytes(data[:HEAD]), name)
            if form != "survey":
                trace = lines.decode_lines(bytes(data)) if form == "jsonl" else _only(form, data)
                return _report(name, form, trace, check.findings(trace, limit))
            strict = wire.decode_strictly(data)
            if strict is not None:
                return _report(name, "survey", strict, check.findings(strict, limit, known="fields"))
            loose = wire.decode_loosely(data, limit=limit)
            return _report(name, "survey", loose, check.findings(loose, limit, known="schema"))
        except InvalidTrace as error:
            return FileReport(file=name, format=None, findings=_of_error(error, limit), **_sizes(data))


def _only(form: str, data: bytes | memoryview) -> Trace:
    """The trace in a file of another form, ours or foreign."""
    try:
        first, *more = registry.get("format", form).read(data)
    except InvalidTrace:
        raise
    except InputError as error:
        fix = error.fix or "`counterpoint import --dry-run FILE` says what is read of it"
        raise InvalidTrace(error.what, where=error.where, why=error.why, fix=fix) from error
    if more:
        raise InvalidTrace(f"holds {1 + len(more):,} traces", fix="import it, and check them with --store")
    return first


def _of_error(error: InvalidTrace, limit: int | None) -> Findings:
    if isinstance(error.findings, Findings):
        return error.findings
    found = Findings(limit)
    found.error("invalid", error.where or "$", error.what, error.fix or "")
    return found


class _Counted(Struct):
    events: list[msgspec.Raw] = []
    edges: list[msgspec.Raw] = []


def _sizes(data: bytes | memoryview) -> dict[str, int]:
    """How many events and edges an invalid file holds, as far as they can be counted."""
    try:
        counted = msgspec.json.decode(data, type=_Counted)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return {"events": len(counted.events), "edges": len(counted.edges)}
