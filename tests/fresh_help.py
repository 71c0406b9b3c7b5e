"""Functions of a test module, run in a process of their own: not forked from pytest, whose threads a fork would leave half-way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CALL = "import importlib, sys; sys.path[:0] = sys.argv[1].split(':'); getattr(importlib.import_module(sys.argv[2]), sys.argv[3])(*sys.argv[4:])"


def in_fresh_process(work: Callable[..., None], *given: object) -> None:
    """Call a module-level function with words; its failure is ours."""
    file = Path(work.__code__.co_filename)
    command = [sys.executable, "-c", CALL, f"{file.parent}:{Path(__file__).parent}", file.stem, work.__name__, *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
