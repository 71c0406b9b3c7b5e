"""The end of an import in words: sessions, agents, events, links, tokens, secrets, and what could not be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoint.app.cli._output import plain_text, table

if TYPE_CHECKING:
    from collections import Counter

    from counterpoint.app.importing import Account
    from counterpoint.app.logs import Found

_SHOWN = 3


def summary(account: Account, found: Found, *, is_dry: bool = False) -> str:
    """What was found, and what was not."""
    rows = []
    for name, counts in sorted(account.by_importer.items()):
        cells = [f"{counts['sessions']:,} sessions", f"{counts['agents']:,} agents", f"{counts['events']:,} events"]
        rows.append([name, *cells, f"{account.seconds[name]:.1f} s", _statuses(counts)])
    lines = [table([""] * 6, rows, right=(1, 2, 3, 4)).lstrip("\n")]
    report = account.report
    exact, inferred = report.exact.total(), report.inferred.total()
    by_rule = f" ({_listed(report.inferred)})" if inferred else ""
    lines.append(f"links    exact {exact:,} · inferred {inferred:,}{by_rule} · unlinked {report.unlinked_count:,}")
    lines += _first(report.unlinked, report.unlinked_count)
    unaccounted = f" · {account.without_usage:,} model calls without a usage record" if account.without_usage else ""
    lines.append(f"tokens   {account.tokens:,} accounted{unaccounted}")
    if account.secrets:
        lines.append(f"secrets  about {account.secrets.total():,} ({_listed(account.secrets)}): masked in every export")
    if report.broken_count:
        lines.append(f"broken   {report.broken_count:,} records left out")
        places = [f"{b['file']}:{b['line']}: {b['what']}" if b["line"] else f"{b['file']}: {b['what']}" for b in report.broken]
        lines += _first(places, report.broken_count)
    if report.unknown:
        lines.append(f"unknown  {report.unknown.total():,} records of kinds we do not know ({_listed(report.unknown)})")
    if report.mended:
        lines.append(f"mended   {_listed(report.mended)}")
    lacks = {what: n for what, n in report.lacks.items() if not what.startswith("the tokens")}
    lines += [f"lacking  {what} ({n:,})" for what, n in sorted(lacks.items(), key=lambda row: -row[1])[:5]]
    lines += _skipped(found)
    lines += [f"failed   {o.session}: {plain_text(o.error or '')}" for o in account.failed[:_SHOWN]]
    if is_dry:
        lines.append("nothing was stored (--dry-run)")
    return "\n".join(line.rstrip() for line in lines)


def _statuses(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[s]:,} {s}" for s in ("updated", "unchanged", "empty", "failed") if counts[s])


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{n:,} {plain_text(what)}" for what, n in counts.most_common(6))


def _first(lines: list[str], total: int) -> list[str]:
    shown = [f"         {plain_text(line)}" for line in lines[:_SHOWN]]
    return shown + ([f"         ... and {total - _SHOWN:,} more"] if total > _SHOWN else [])


def _skipped(found: Found) -> list[str]:
    if not found.skipped:
        return []
    lines = [f"skipped  {len(found.skipped):,} of {found.files:,} files"]
    return lines + _first([f"{s.name}: {s.why}" for s in found.skipped], len(found.skipped))
