"""Plays a text task as one agent, with a real Python process behind the `python` tool."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from counterpoint.lab.tasks.task import Act, Choice, Instance, TextTask, View, ViewItem
from counterpoint.trace.keyed import purpose, uniform

RETURN = (Choice("return", "", None),)
STOP = (Choice("stop", "", None),)
PYTHON = Choice("tool", "python", None)


def drawn(seed: int) -> Callable[[str], float]:
    return lambda name: float(uniform(seed, purpose(name)))


def python(code: str, files: dict[str, str], folder: Path) -> str:
    for path, text in files.items():
        (folder / path).write_text(text)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    return done.stdout + done.stderr


def play(
    task: TextTask,
    instance: Instance,
    seen: Sequence[ViewItem],
    folder: Path,
    *,
    skill: float = 1.0,
    choices: Sequence[Choice] = RETURN,
    purpose: str = "work",
    seed: int = 0,
) -> tuple[Act, list[ViewItem]]:
    """The first act that is no tool call, and all that was seen before it."""
    heard = [ViewItem("question", "user", instance.question), *seen]
    for step in range(12):
        view = View("lead.1", "worker", purpose, tuple(heard), tuple(choices))
        act = task.work(view, drawn(seed * 100 + step), skill)
        if act.verb != "tool":
            return act, heard
        assert any(c.verb == "tool" and c.target == act.target for c in choices), f"{act.target} was not offered"
        assert "\n" not in act.text, "an act is one line"
        heard.append(ViewItem("own", "lead.1", f"TOOL {act.target}: {act.text}"))
        heard.append(ViewItem("result", act.target, python(act.text, dict(instance.files), folder)))
    raise AssertionError("the worker did not come to an end")


ODD_SEEN = [
    ViewItem("result", "python", ""),
    ViewItem("result", "python", "Traceback (most recent call last):\nOSError: no"),
    ViewItem("result", "python", "tested m1"),
    ViewItem("message", "lead.2", "def m1(xs: return ((((\x00\ud800"),
    ViewItem("return", "lead.3", "c1=maybe; talk1=slot99,room99; c999=true"),
    ViewItem("brief", "user", "talk1: day9, speaker Z, 1 people, points slot1 1. m1(xs: list[int]) -> int: fly."),
    ViewItem("operator", "operator", "stop it"),
    ViewItem("error", "lead.1", "that was not accepted"),
    ViewItem("own", "lead.1", "NOOP"),
    ViewItem("subtask", "lead", "do something else"),
]
