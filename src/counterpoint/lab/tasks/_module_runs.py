"""Functions of an answer: found in any text, run in a locked process, and what they gave for each input.

Always true: nothing of an answer is compiled or run in this process; a call that fails, takes too long, needs too much or may
not run gives None, and the others are not touched by it; the process has its own empty folder, and is gone when this returns.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterpoint.errors import TryAgain
from counterpoint.lab.tasks import _module_process

_LONGEST = 400_000  # characters of an answer; no honest one comes near
_MOST_BLOCKS = 2_048
_WALL_S = 60.0  # the processor limit ends a process long before, unless the machine stands still
_MOST_KILLS = 2
_DEF = re.compile(r"def\s+([A-Za-z_]\w*)\s*\(")


@dataclass(frozen=True)
class CallGroup:
    """Calls of one kind: of one module, or of the whole composition."""

    name: str
    steps: tuple[tuple[str, tuple[str, ...], str], ...]
    """Function, the names of what it takes (`a0`, `a1` are the inputs), and the name of what it gives."""
    calls: tuple[tuple[Any, ...], ...]
    """The inputs of each call."""


def blocks(text: str) -> dict[str, str]:
    """The functions defined in a text, by name, each with its source; of two with one name the first. Other lines are left out.

    Where the text is one line, `\\\\n` in it stands for a line break.
    """
    if len(text) > _LONGEST:
        return {}
    if "\n" not in text.strip():
        text = text.replace("\\n", "\n").replace("\\t", "    ")
    sources: dict[str, str] = {}
    name, lines = "", []
    for line in [*text.expandtabs(4).splitlines(), "end"]:
        if name and (not line.strip() or line.startswith((" ", ")"))):
            lines.append(line)
            continue
        if name:
            sources.setdefault(name, "\n".join(lines).rstrip("` \n"))
        begin = _DEF.search(line)
        name, lines = (begin[1], [line[begin.start() :]]) if begin else ("", [])
    return dict(list(sources.items())[:_MOST_BLOCKS])


def one_line(sources: Mapping[str, str]) -> str:
    """Functions as one line, as the action grammar wants; `blocks` reads it."""
    return "\n".join(sources.values()).replace("\n", "\\n")


def outputs(sources: Mapping[str, str], groups: Sequence[CallGroup]) -> dict[str, list[Any]]:
    """What the functions gave, tagged, for each call of each group; None for a call that failed."""
    by_group: dict[str, list[Any]] = {group.name: [] for group in groups}
    waiting, kills = list(groups), 0
    while waiting and kills < _MOST_KILLS:
        for name, value in _process(sources, waiting):
            if name in by_group:
                by_group[name].append(value)
        # The call that was running when the process ended has failed; those after it run in a new one.
        waiting = [group for group in waiting if len(by_group[group.name]) < len(group.calls)][1:]
        kills += 1
    return {group.name: (by_group[group.name] + [None] * len(group.calls))[: len(group.calls)] for group in groups}


def _process(sources: Mapping[str, str], groups: Sequence[CallGroup]) -> list[tuple[str, Any]]:
    """One locked process: the outputs that it wrote before it ended."""
    asked = {
        "blocks": list(sources.values()),
        "cpu_s": _module_process.CPU_S + len(sources) // 100,
        "groups": [
            {"name": g.name, "steps": g.steps, "calls": [[_module_process.tagged(a) for a in c] for c in g.calls]} for g in groups
        ],
    }
    command = [sys.executable, "-I", "-S", "-B", _module_process.__file__]
    with tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
        try:
            done = subprocess.run(
                command,
                input=json.dumps(asked).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={},
                timeout=_WALL_S,
                start_new_session=True,
                check=False,
            )
            wrote = done.stdout
        except subprocess.TimeoutExpired as late:
            wrote = late.stdout or b""
        except OSError as error:
            raise TryAgain("the answer's functions could not be run", why=str(error), fix="free processes or memory") from error
    lines = wrote.split(b"\n")[:-1]
    return [(name, value) for name, value in map(json.loads, lines)]
