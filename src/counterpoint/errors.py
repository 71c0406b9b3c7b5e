"""Every failure a user can meet, each with the exit code it ends a command with.

    CounterpointError            1  failed
    ├── InputError               2  usage or unreadable input   (also ValueError)
    │   └── InvalidTrace         2  a trace that breaks the schema; carries its problems
    ├── NotFound                 3  no such trace, event, plug-in, paper   (also LookupError)
    ├── Refused                  5  not comparable, not identified, unsafe   (also PermissionError)
    │   └── NotIdentified        5  a counterfactual that this trace cannot answer
    └── TryAgain                 6  somebody else holds it; the same call may work later   (also OSError)

Exit code 4 (a finding of `check`, `audit` or a gate) is a result, not an error, so it has no class here.
A message says what was wrong, where, why, and one thing that would work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any


class CounterpointError(Exception):
    """The base of all: `what` happened, `where`, `why`, and a `fix` that would work."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, why: str | None = None, fix: str | None = None) -> None:
        self.what, self.where, self.why, self.fix = what, where, why, fix
        super().__init__(self.one_line())

    def one_line(self) -> str:
        """The message as one sentence: where, what, why, fix."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.why:
            text += f" ({self.why})"
        if self.fix:
            text += f"; {self.fix}"
        return text

    def as_dict(self) -> dict[str, Any]:
        """The same as a JSON object, for `--json`."""
        fields = {"what": self.what, "where": self.where, "why": self.why, "fix": self.fix}
        return {"error": {**{k: v for k, v in fields.items() if v is not None}, "exit": self.exit_code}}


class InputError(CounterpointError, ValueError):
    """Unreadable or wrongly shaped input, or a wrong option."""

    exit_code = 2


class InvalidTrace(InputError):
    """A trace that breaks the schema or cannot be a graph; `problems` holds the first findings, `findings` all counts."""

    def __init__(
        self,
        what: str,
        *,
        problems: Sequence[Any] = (),
        findings: Any = None,
        where: str | None = None,
        why: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.problems = list(problems) if findings is None else findings.problems
        self.findings = findings
        super().__init__(what, where=where, why=why, fix=fix)


class NotFound(CounterpointError, LookupError):
    """Something named that isn't there."""

    exit_code = 3


class Refused(CounterpointError, PermissionError):
    """We could print a number, but it would be wrong or unsafe."""

    exit_code = 5


class NotIdentified(Refused):
    """A counterfactual that the trace cannot answer; `fix` says what would."""

    def __init__(self, reason: str, what_would_fix_it: str, *, where: str | None = None) -> None:
        super().__init__(f"not identified: {reason}", where=where, fix=what_would_fix_it)


class TryAgain(CounterpointError, OSError):
    """Busy or contended; nothing was changed."""

    exit_code = 6


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The fix line for an unknown name: the nearest known one, or all of them when few."""
    names = sorted(set(known))
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return "known: " + ", ".join(names[:20]) + (" ..." if len(names) > 20 else "") if names else "none is known"


def install(extra: str = "") -> str:
    """The command that installs us again with an extra, from where this installation came: a clone, git, a file, or an index."""
    wanted = f"[{extra}]" if extra else ""
    clone = Path(__file__).parents[2]
    if (clone / "pyproject.toml").is_file():
        here = os.path.relpath(clone)
        return f"pip install -e '{here if not here.startswith('..') else clone}{wanted}'"
    from importlib import metadata  # with a reader of mail

    try:
        origin = json.loads(metadata.distribution("counterpoint").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {}
    url = str(origin.get("url") or "")
    if vcs := origin.get("vcs_info"):
        at = f"@{vcs['requested_revision']}" if vcs.get("requested_revision") else ""
        return f"pip install 'counterpoint{wanted} @ {vcs['vcs']}+{url}{at}'"
    return f"pip install 'counterpoint{wanted}{f' @ {url}' if url else ''}'"
