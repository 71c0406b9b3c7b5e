"""The team while it runs: a live tree of agents on a terminal, else a line now and then.

Always true: it only shows what it is told; everything goes to stderr.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from counterpoint.app.terminal.output import note
from counterpoint.app.terminal.screen import Screen
from counterpoint.app.words import plain_text
from counterpoint.display import counted

_EVERY_S, _LINE_S, _SHOWN = 0.2, 10.0, 40
_MARKS = {"thinks": "…", "waits": "·", "returned": "✓", "failed": "✗", "tool": "⚙"}


@dataclass
class _Row:
    role: str
    depth: int
    doing: str = "waits"
    about: str = ""
    calls: int = 0
    tokens: int = 0


@dataclass
class Tree:
    """The agents of a team, and what each does."""

    rows: dict[str, _Row] = field(default_factory=dict)
    events: int = 0

    def take(self, what: str, agent: Any, fields: Mapping[str, Any]) -> None:
        """Count one event."""
        self.events += 1
        row = self.rows.setdefault(agent.name, _Row(agent.role, agent.depth))
        if what == "thinks":
            row.doing, row.about, row.calls = "thinks", fields.get("task") or "", row.calls + 1
        elif what == "acts":
            act = fields["act"]
            row.tokens += (fields.get("tokens_in") or 0) + (fields.get("tokens_out") or 0)
            row.doing = {"tool": "tool", "return": "returned", "stop": "returned"}.get(act.verb, "waits")
            row.about = act.target if act.verb == "tool" else act.verb
        elif what == "spawn" and fields.get("to"):
            self.rows.setdefault(fields["to"], _Row(fields.get("role") or "", agent.depth + 1))
        elif what == "return" and fields.get("ok") is False:
            row.doing, row.about = "failed", fields.get("error") or ""

    def lines(self, limit: int = _SHOWN) -> list[str]:
        """The tree as text; of very many agents those that do something come first."""
        names = sorted(self.rows, key=lambda n: [int(p) if p.isdigit() else 0 for p in n.split(".")])
        if len(names) > limit:
            busy = [n for n in names if self.rows[n].doing in ("thinks", "tool", "failed")]
            kept = set(list(dict.fromkeys([*names[:1], *busy, *names]))[:limit])
            names = [n for n in names if n in kept]
        out = []
        for name in names:
            r = self.rows[name]
            text = f"{'  ' * r.depth}{_MARKS[r.doing]} {name} {r.role}  {r.doing} {r.about}"
            out.append(f"{plain_text(text)[:70]:70} {r.calls:4} calls {r.tokens:8,} tokens")
        hidden = len(self.rows) - len(names)
        return out + ([f"  ... and {hidden:,} more agents"] if hidden else [])

    def line(self) -> str:
        """The same in one line."""
        doing = [r.doing for r in self.rows.values()]
        tokens = sum(r.tokens for r in self.rows.values())
        return f"{counted(len(doing), 'agent')}, {doing.count('thinks'):,} thinking, {self.events:,} steps, {tokens:,} tokens"


@contextmanager
def watching(*, quiet: bool) -> Iterator[Callable[[str, Any, Mapping[str, Any]], None] | None]:
    """A function that takes events of the team and shows them; None where nothing is to be shown."""
    if quiet:
        yield None
        return
    tree, last = Tree(), time.monotonic()
    if not sys.stderr.isatty():

        def tell(what: str, agent: Any, fields: Mapping[str, Any]) -> None:
            nonlocal last
            tree.take(what, agent, fields)
            if time.monotonic() - last > _LINE_S:
                last = time.monotonic()
                note(tree.line())

        yield tell
        return
    screen = Screen(sys.stderr)

    def draw(what: str, agent: Any, fields: Mapping[str, Any]) -> None:
        nonlocal last
        tree.take(what, agent, fields)
        if time.monotonic() - last > _EVERY_S:
            last = time.monotonic()
            screen.draw([*tree.lines(shutil.get_terminal_size().lines - 3), tree.line()])

    try:
        yield draw
    finally:
        screen.clear()
