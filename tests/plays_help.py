"""How an endpoint plays T1 to T6 badly but legally: `plays`, for `FaultServer`."""

from __future__ import annotations

import re

_VERBS = ("DELEGATE", "AGGREGATE", "RETURN", "STOP")


def plays(messages: list[dict[str, str]]) -> str:
    """Two workers, a part for each, merge, stop; a worker searches once and returns a row."""
    lines = [line for line in messages[-1]["content"].splitlines() if re.match(r"[A-Z]+\b", line)]
    done = [m["content"] for m in messages if m["role"] == "assistant"]
    spawns = [line for line in lines if line.startswith("SPAWN")]
    searches = [line for line in lines if line.startswith("TOOL search")]
    if spawns and sum(line.startswith("SPAWN") for line in done) < 2:
        return spawns[0]
    if searches and not done:
        return "TOOL search: contract"
    best = [
        line
        for verb in _VERBS
        for line in lines
        if line.startswith(verb) and not (verb == "AGGREGATE" and "AGGREGATE union" in done)
    ]
    return re.sub(r"<.*>", "C-1234|Acme Mills|50000", (best or lines)[0])
