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

_ROWS = {"--limit": "--rows"}
_AUTHOR = {"--by": "--author"}
_SET = {"--option": "--set"}
_MODEL = {"--budget-tokens": "--cap tokens=N", "--key-env": "--model-set key_env=NAME"}
_CAPS = {"--limit": "--cap"}
_CLIENTS = {
    "--claude-code": "--client claude_code", "--codex": "--client codex", "--project": "--scope project",
    "--local": "--scope local", "--user": "--scope user",
}  # fmt: skip

FLAGS: dict[str, dict[str, str]] = {
    "advise": {
        **_ROWS, **_MODEL, "--budget": "--cap trials=N", "--kinds": "--kind", "--say": "--message", "--rank": "--sort",
        "--sure": "--confidence",
    },
    "audit": {
        "--by": "--group", "--price-token": "--set price_token=USD", "--price-tool": "--set price_tool=USD",
        "--alike": "--similarity",
    },
    "blame": {**_ROWS, **_MODEL, "--anyway": "--all", "--causes": "--summary", "--draws": "--samples"},
    "compare": {"--traces": "compare traces", "--all": "compare methods", "--presets": "compare runs --presets"},
    "credit": {
        **_ROWS, **_MODEL, **_SET, "--method": "--mechanism", "--methods": "--mechanism", "--compare": "--mechanism M1,M2",
    },
    "demo": {"--to": "--output", "--tasks": "--episodes"},
    "export": {
        **_SET, "--credit": "--mechanism", "--html": "--to html -o FILE", "--agents": "--agent", "--no-mask": "--mask off",
        "--report": "--full", "--force": "--overwrite",
    },
    "fork": {"--key-env": _MODEL["--key-env"], "--delete": "--do delete", "--edit": "--do edit", "--force": "--decide"},
    "guard check": _CAPS,
    "guard hook": _CAPS,
    "guard install": {**_CAPS, **_CLIENTS},
    "guard learn": {"--out": "--output", "--round-minutes": "--set round_minutes=M", "--cost": "--set cost=SHARE"},
    "guard replay": _CAPS,
    "guard status": _ROWS,
    "guard uninstall": _CLIENTS,
    "import": {"--limit": "--newest", "--last": "--newest", "--again": "--reread", "--jobs": "--workers"},
    "ls": {"--limit": "--newest", "--facets": "--group all"},
    "new": {"--into": "--output"},
    "notes add": {**_AUTHOR, "--remove": "notes remove"},
    "notes dataset save": {**_AUTHOR, "--frozen": "notes dataset add"},
    "notes score": {**_AUTHOR, "--proposal": "--accept"},
    "report": {"--html": "--output", "--no-mask": "--mask off"},
    "serve": {
        "--max-body": "--set max_body=SIZE", "--timeout": "--set timeout=S", "--idle": "--set idle=S",
        "--keep": "--set keep=HOURS",
    },
    "show": {"--all": "--full"},
    "sql": {**_ROWS, "--csv": "--to csv"},
    "steer": {
        **_MODEL, "--text": "--message", "--budget": "--cap trials=N", "--timeout": "--wait", "--no-wait": "--wait 0",
        "--no-tree": "--tree no",
    },
    "store check": _ROWS,
    "store compact": {"--now": "--purge"},
    "store info": {"--days": "--rows"},
    "store rm": {"--now": "--purge"},
    "top": {**_ROWS, "--by": "--sort", "--unfold": "--full", "--of": "--events-of"},
    "view": {"--token": "--token-file"},
}  # fmt: skip
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
