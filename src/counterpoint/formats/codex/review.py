"""What Codex's own reviewers say, and what they are asked: verdicts, planned actions, refusals.

Always true: nothing here raises; words that are no verdict are None, and no words of a tool are followed or run.
"""

from __future__ import annotations

import re
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importing.values import as_dict, as_list, compact, decode, string

_PLANNED = re.compile(r"Planned action JSON:\s*(\{.*?\n\})", re.DOTALL)
# How Codex itself says no. Only at the very start: a file that a tool read may hold the same words.
_REFUSED = re.compile(r"(?:exec command |patch |command )?rejected by user|This action was rejected|rejected: blocked by policy")


def verdict_of(text: str) -> dict[str, Any] | None:
    """The fields of a safety event in a reviewer's answer, or None when it is no verdict."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        said = as_dict(decode(text))
    except InputError:
        return None
    outcome = string(said.get("outcome"))
    if outcome is None:
        return None
    kept = {name: said.get(name) for name in ("outcome", "risk_level", "user_authorization", "rationale")}
    ok = {"allow": True, "deny": False}.get(outcome)
    return {"ok": ok, "error": string(said.get("rationale")) if ok is False else None, "source": "system", "extra": kept}


def action_of(text: str) -> str:
    """The command in a reviewer's question or in a call's arguments; without one, the text itself."""
    planned = _PLANNED.search(text)
    try:
        said = as_dict(decode(planned[1] if planned else text)) if planned or text.startswith("{") else {}
    except InputError:
        said = {}
    command = said.get("command", said.get("cmd", said.get("patch")))
    last = string(as_list(command)[-1]) if as_list(command) else string(command)
    return last or (compact(said) if planned else text)


def is_refused(text: str) -> str | None:
    """Who refused a call, where a result is a refusal: `user` or `system`."""
    found = _REFUSED.match(text)
    return None if found is None else "user" if "by user" in found[0] else "system"
