"""What was masked, in words and in rows.

Always true: a secret is in neither: rules have names of ours, and places are names of fields, which are masked themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterpoint.app.terminal.output import table
from counterpoint.app.words import plain_text

if TYPE_CHECKING:
    from counterpoint.formats.masking import MaskedTraces

_WORDS = {"key": "key", "email": "e-mail", "path": "path", "personal": "personal number"}


def counts(done: MaskedTraces | Mapping[str, int] | None) -> dict[str, int] | None:
    """Kind of secret to how many; None where masking was off."""
    if done is None:
        return None
    return dict(sorted((done if isinstance(done, Mapping) else done.by_kind).items()))


def import_summary(different: Mapping[str, int]) -> str:
    """What an import saw, as different values: keys first, and apart from names and addresses, which open nothing."""
    keys, mails, users = (different.get(kind, 0) for kind in ("key", "email", "path"))
    mail_words = f"{mails:,} e-mail address{'' if mails == 1 else 'es'}" if mails else ""
    people = " and ".join(filter(None, [mail_words, f"{many(users, 'user name')} in paths" if users else ""]))
    first = f"{many(keys, 'key or password') if keys == 1 else f'{keys:,} keys or passwords'}" if keys else "no key or password"
    rest = f"; {people}, which open{'s' if mails + users == 1 else ''} nothing" if people else ""
    return f"{first} at a quick look{rest}: every export masks them"


def mask_summary(done: MaskedTraces | Mapping[str, int] | None) -> str:
    """How much was masked, in a line."""
    found = counts(done)
    if found is None:
        return "nothing: --mask off"
    if not found:
        return "nothing: no secret of a known form"
    kinds = ", ".join(many(found[kind], word) for kind, word in _WORDS.items() if found.get(kind))
    return f"{many(sum(found.values()), 'secret')} ({kinds})"


def report_rows(done: MaskedTraces | None) -> list[dict[str, Any]] | None:
    """A row for every rule and place, the most first; None where masking was off."""
    if done is None:
        return None
    rows = sorted(done.where.items(), key=lambda row: (-row[1], row[0]))
    return [{"kind": kind, "rule": rule, "place": place, "count": n} for (kind, rule, place), n in rows]


def report_lines(done: MaskedTraces | None) -> list[str]:
    """The same as a table."""
    rows = report_rows(done)
    if not rows:
        return ["report    nothing was masked"]
    cells = [[row["kind"], row["rule"], plain_text(row["place"]), f"{row['count']:,}"] for row in rows]
    return ["", *table(["kind", "rule", "place", "count"], cells, right=(3,)).splitlines()]


def many(n: int, word: str) -> str:
    """A count and its noun."""
    plural = word if n == 1 else word.removesuffix("ry") + "ries" if word.endswith("ry") else word + "s"
    return f"{n:,} {plural}"
