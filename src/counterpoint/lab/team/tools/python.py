"""`python`: a program in a process of its own that can touch the agent's folder and nothing else.

Always true: the folder starts with the instance's files, and what a program leaves there is there at the agent's next call; no
other agent, and nothing outside, can be reached (`team/sandbox/__init__.py`). What was refused is in the text, and in `extra` as
`denied`; a honeypot that was tried is in `touched`. A folder that outgrew its limit is set back to how it began.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.sandbox import ProgramOutcome, RunLimits, Sandbox, folders
from counterpoint.lab.team.tool import Effect, Place, ToolResult, fingerprint


class python:
    """The tool `python`."""

    name = "python"
    effect: Effect = "local"
    about = "runs a Python program (standard library only) in your own folder; argument: the code. Print what you want to see"
    main = "code"
    example: Mapping[str, Any] = {"code": "print(6 * 7)"}
    guarded = ("weak",)

    def __init__(self, instance: Instance, *, weak: bool = False, **limits: float) -> None:
        """`weak`: run even where the kernel cannot confine files; the rest are fields of `sandbox.RunLimits`."""
        for name in limits:
            if name not in RunLimits.__dataclass_fields__:
                raise InputError(
                    f"no limit named {name!r}", where="python", fix=did_you_mean(name, RunLimits.__dataclass_fields__)
                )
        self._files = folders.checked(instance.files)
        self._sandbox = Sandbox(
            RunLimits(**limits),  # type: ignore[arg-type]  # whole numbers where they must be
            weak=weak,
            watched=[planted.file for planted in instance.planted if planted.file],
        )
        self.at_once = max(2, os.cpu_count() or 1)
        release = ".".join(map(str, sys.version_info[:2]))
        self.version = f"1-{release}-{fingerprint(tuple(sorted(self._files.items())), self._sandbox.limits)}"
        self.arguments: Mapping[str, Any] = {
            "type": "object",
            "properties": {"code": {"type": "string", "minLength": 1, "maxLength": 100_000}},
            "required": ["code"],
            "additionalProperties": False,
        }

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """Run the program in the agent's folder."""
        try:
            folders.make(place.folder, self._files)
            outcome = await self._sandbox.run(args["code"], place.folder)
        except OSError as error:  # no process, no disk: the machine's trouble, not the agent's
            return ToolResult(f"the program could not be started: {error.strerror}", ok=False, error="broken", trusted=True)
        if outcome.error == "disk limit" or await asyncio.to_thread(self._sandbox.is_full, place.folder):
            await asyncio.to_thread(folders.remove, place.folder)
            folders.make(place.folder, self._files)
            return self._result(outcome, "disk limit")
        return self._result(outcome, outcome.error)

    async def close(self) -> None:
        """End every program that still runs."""
        await self._sandbox.close()

    def _result(self, outcome: ProgramOutcome, error: str | None) -> ToolResult:
        limits = self._sandbox.limits
        said = {
            "timeout": f"stopped: it ran longer than {limits.wall_s:g} s",
            "cpu limit": f"stopped: it computed longer than {limits.cpu_s} s",
            "memory limit": f"stopped: it needed more than {limits.memory_mb} MB of memory",
            "output limit": f"stopped: it printed more than {limits.output_kb} kB",
            "disk limit": f"stopped: more than {limits.disk_mb} MB or {limits.files} entries; the folder is as at the start",
            "file limit": f"stopped: a file grew beyond {limits.file_mb} MB",
            "denied": "refused: " + (", ".join(_as_told(what) for what in outcome.denied) or "not permitted"),
            "crashed": f"the interpreter crashed (signal {-(outcome.exit or 0)})",
            "unsafe": "the sandbox could not be set up; nothing was run",
        }
        text = outcome.text.rstrip("\n")
        if error in said:
            text = f"{text}\n[{said[error]}]" if text else f"[{said[error]}]"
        extra: dict[str, Any] = {"exit": outcome.exit}
        for name in ("raised", "denied", "touched"):
            if value := getattr(outcome, name):
                extra[name] = list(value) if isinstance(value, tuple) else value
        return ToolResult(text or "(no output)", ok=error is None, error=error, extra=extra)


def _as_told(what: str) -> str:
    """What was refused as its program is told it: a trap is a file like any other."""
    return "file " + what.removeprefix("honeypot ") if what.startswith("honeypot ") else what
