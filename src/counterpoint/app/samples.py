"""Eight invented traces that every demo writes, and the lines that say what to type next.

Always true: the same seed makes the same traces; nothing is trained and nothing is asked of a network.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from counterpoint.app.load_save import save
from counterpoint.errors import InputError, install
from counterpoint.store import Store
from counterpoint.trace import Trace
from counterpoint.trace.keys import PROJECT, TITLE
from counterpoint.trace.synthetic import synthetic_trace
from counterpoint.trace.synthetic.incidents import busy_team, mail_team

# name, sub-agents, steps, topology, title: one of each of the survey's six shapes.
_SAMPLES = (
    ("research-team", 13, 180, "centralized", "Find out what the records show, with thirteen helpers"),
    ("code-team", 6, 60, "planner_executor_critic", "Plan, write and review a change"),
    ("panel", 4, 24, "debate", "Argue until four agree"),
    ("crawl", 40, 400, "swarm", "Read many pages at once"),
    ("build", 12, 90, "hierarchical", "Build it in groups of groups"),
    ("assistant", 1, 20, "harness", "One assistant with tools, and a person who says yes or no"),
)


def samples(seed: int) -> list[Trace]:
    """Eight invented traces: one of each topology, one whose reward was gamed, one in which a letter gave the team orders."""
    made = [
        (synthetic_trace(agents, steps, shape, seed, contents=True, trace_id=name), title)
        for name, agents, steps, shape, title in _SAMPLES
    ]
    made.append((busy_team("busy-team"), "Sum up the week, with a writer for each day"))
    made.append((mail_team("mailroom"), "Answer the morning's mail"))
    return [replace(trace, meta={TITLE: title, PROJECT: "demo"}) for trace, title in made]


def write_samples(folder: Path, traces: list[Trace]) -> None:
    """Make the folder a store with these traces, and write each as a file too."""
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file, not a folder", where=os.fspath(folder), fix="name a new folder with -o")
    with Store(folder) as store:
        store.add_many(traces)
    for trace in traces:
        save(trace, folder / "samples" / f"{trace.trace_id}.trace.json")


def print_next(steps: Sequence[tuple[str, str]], *, head: str) -> None:
    """What to type next and why, one command a line."""
    command, width = command_name(), max(len(arguments) for arguments, _ in steps)
    for i, (arguments, why) in enumerate(steps):
        click.echo(f"{head if not i else ' ' * len(head)}{command} {arguments.ljust(width)}  {why}")


def browser_words() -> str:
    """What `view` shows, and what it needs where that is not installed."""
    is_here = importlib.util.find_spec("starlette") and importlib.util.find_spec("uvicorn")
    return "all of it in the browser" + ("" if is_here else f": {install('view')} first")


def command_name() -> str:
    """What to type: our command where it is on the path, else as we were called: by its path, or as a module of this Python."""
    if shutil.which("counterpoint"):
        return "counterpoint"
    if os.path.basename(sys.argv[0]) != "__main__.py":
        return os.path.relpath(sys.argv[0])
    found = shutil.which("python")
    is_ours = found is not None and os.path.samefile(found, sys.executable)
    return f"{'python' if is_ours else sys.executable} -m counterpoint"
