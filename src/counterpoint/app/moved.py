"""Old names of commands and flags, and what replaces them.

Always true: an old name runs nothing; it ends with exit code 2 and one message that names the new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from counterpoint.errors import InputError

COMMANDS = {
    "annotate": "notes add",
    "check": "store check",
    "corpus": "papers",
    "corpus add": "papers check",
    "corpus bib": "papers show --to bib",
    "corpus claims": "papers show",
    "corpus errata": "papers show",
    "corpus problems": "papers show",
    "corpus stats": "papers ls",
    "dataset": "notes dataset",
    "diff": "compare traces",
    "failures": "audit --failures",
    "inject": "bench inject",
    "judge": "notes judge",
    "plot": "compare plot",
    "prompts": "train prompts",
    "push": "store push",
    "record": "play",
    "rm": "store rm",
    "schema": "store schema",
    "score": "notes score",
    "world": "train worlds",
    "world run": "play --world",
}
"""Old command to new command; of two words the longer entry wins."""

FLAGS: dict[str, dict[str, str]] = {
    "ls": {"--limit": "--newest"},
}
"""New command to its old flags, each with the new one."""


def new_command(words: Sequence[str]) -> InputError | None:
    """The error that names the new command for these words of the command line; None where they are no old command."""
    for count in (2, 1):
        old = " ".join(words[:count])
        if old in COMMANDS:
            return InputError(f"{old!r} is now {COMMANDS[old]!r}", fix=f"counterpoint {COMMANDS[old]}")
    return None


def new_flag(command: str, flag: str) -> InputError | None:
    """The error that names the new flag of a command; None where it is no old flag."""
    new = FLAGS.get(command, {}).get(flag)
    return None if new is None else InputError(f"{flag!r} of {command} is now {new!r}", fix=f"counterpoint {command} --help")
