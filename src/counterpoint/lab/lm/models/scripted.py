"""A scripted model: gives the lines of a file, one per turn of each agent, to try a harness by hand.

Always true: the n-th turn of an agent gets the n-th line of its script (`[lead]` and `[lead.1]` begin the script of an agent,
`[*]` that of all others); after the last line the last one is given again. Nothing is drawn.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from counterpoint.errors import InputError, NotFound
from counterpoint.files import read_plain
from counterpoint.lab.lm.model import Call, Completion


class Scripted:
    """Lines by agent."""

    is_instant = True

    def __init__(self, text: str) -> None:
        self.name = "scripted"
        self.version = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        self._lines: dict[str, list[str]] = {}
        who = "*"
        for line in text.splitlines():
            if line.startswith("[") and line.rstrip().endswith("]"):
                who = line.strip()[1:-1]
            elif line.strip():
                self._lines.setdefault(who, []).append(line)
        if not self._lines:
            raise InputError("the script has no lines", where="--model scripted:FILE", fix="[lead], then one act per line")

    async def complete(self, call: Call) -> Completion:
        """The agent's next line."""
        agent = call.view.agent if call.view else "*"
        lines = self._lines.get(agent) or self._lines.get("*") or ["NOOP"]
        turn = sum(item.kind == "own" for item in call.view.seen) if call.view else 0
        text = lines[min(turn, len(lines) - 1)]
        asked = sum(len(m.text.split()) for m in call.messages)
        return Completion(text=text, tokens_in=asked, tokens_out=len(text.split()), extra={"seconds": 0.1})

    async def close(self) -> None:
        """Nothing to let go of."""


def scripted(spec: str, **options: Any) -> Scripted:
    """A model that reads its lines from a file."""
    path = Path(spec)
    if not spec or not path.is_file():
        raise NotFound(f"no script {spec!r}", where="--model scripted:FILE", fix="a text file: [lead], then one act per line")
    return Scripted(read_plain(path).decode("utf-8", "replace"))
