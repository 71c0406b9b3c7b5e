"""The settings of Claude Code and Codex: a guard's hook is put in, and exactly that is taken out again.

Always true: everything else in the file stays as it was, in its order; a file that is not what it should be is refused and not
touched; installing twice leaves one hook; a file that nobody else changed in between is afterwards what it was, to the byte.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from counterpoint.errors import InputError
from counterpoint.files import put, read_plain
from counterpoint.guard.state import home

_MODULE = "counterpoint.guard"
_PROGRAM = Path(__file__).with_name("__main__.py")
# The second row: hooks that earlier versions have installed.
_OURS = (
    f"-m {_MODULE}", "counterpoint/guard/__main__.py", "counterpoint guard hook",
    "-m counterpoint.app.guard", "counterpoint/app/guard/__main__.py",
)  # fmt: skip
_EVENT = "PreToolUse"
_TIMEOUT_S = 30


@dataclass(frozen=True)
class Client:
    """A program with hooks."""

    name: str
    user: str
    """Its file for all projects of a person, below the home folder."""
    project: str
    """Its file in a project."""
    local: str | None
    """Its file in a project for this machine alone, where it has one."""
    home_variable: str
    """The environment variable that moves the first."""

    def path(self, where: str, folder: Path) -> Path:
        """The file to change: of this `project`, of the project on this machine (`local`), or of the `user`."""
        moved = os.environ.get(self.home_variable)
        if where == "local" and self.local is None:
            raise InputError(
                f"{self.name} has no project settings for one machine alone", where="--scope", fix="use project or user"
            )
        if where != "user":
            return folder / str(self.local if where == "local" else self.project)
        return Path(moved) / Path(self.user).name if moved else Path.home() / self.user


CLIENTS = {
    "claude_code": Client(
        "Claude Code", ".claude/settings.json", ".claude/settings.json", ".claude/settings.local.json", "CLAUDE_CONFIG_DIR"
    ),
    "codex": Client("Codex", ".codex/hooks.json", ".codex/hooks.json", None, "CODEX_HOME"),
}


def places(folder: Path) -> list[Path]:
    """Every file that may hold a hook for work in a folder."""
    asked = [(client, where) for client in CLIENTS.values() for where in ("project", "local", "user")]
    return [client.path(where, folder) for client, where in asked if where != "local" or client.local]


def hook_command(options: list[str]) -> str:
    """What the client is to run: this Python, and the hook without the command line around it."""
    return shlex.join([sys.executable, "-S", str(_PROGRAM), *options])


def installed(path: Path) -> list[str]:
    """The commands of guards in a file."""
    table = _read(path)[0] if path.exists() else {}
    return [hook["command"] for group in _groups(table, path) for hook in _hooks(group) if _is_ours(hook)]


def install(path: Path, command: str) -> bool:
    """Put the hook into a file; whether that changed anything."""
    table, before = _read(path) if path.exists() else ({}, None)
    ours = {"type": "command", "command": command, "timeout": _TIMEOUT_S}
    if [hook for group in _groups(table, path) for hook in _hooks(group) if _is_ours(hook)] == [ours]:
        return False
    backup = backup_of(path) if _remove(table, path) else None
    is_made = not path.parent.exists()
    if backup is not None:  # another guard: what was there before it is known already
        before, is_made = backup["before"], backup["folder"]
    table.setdefault("hooks", {}).setdefault(_EVENT, []).append({"hooks": [ours]})
    after = _text(table, before or "")
    put([(path.resolve(), after.encode())])
    keep_backup(path, before, after, is_made)
    return True


def uninstall(path: Path) -> bool:
    """Take the hook out of a file; whether there was one. A file that nobody else changed is what it was, to the byte."""
    if not path.exists():
        return False
    table, text = _read(path)
    if not _remove(table, path):
        return False
    backup = backup_of(path)
    before = backup["before"] if backup is not None and backup["after"] == text else _text(table, text) if table else None
    if before is not None:
        put([(path.resolve(), before.encode())])
    else:
        path.unlink()
        if backup is not None and backup["folder"] and not any(path.parent.iterdir()):
            path.parent.rmdir()
    record_path(path).unlink(missing_ok=True)
    return True


def keep_backup(path: Path, before: str | None, after: str, is_made: bool) -> None:
    """Keep what a file was before it was changed, and what it is now; `is_made` says whether its folder was made for it."""
    about = {"path": str(path.resolve()), "before": before, "after": after, "folder": is_made}
    put([(record_path(path), json.dumps(about).encode())])


def record_path(path: Path) -> Path:
    """Where it is kept what a file was before."""
    return Path(home()) / "installed" / f"{crc32(str(path.resolve()).encode()):08x}.json"


def backup_of(path: Path) -> dict[str, Any] | None:
    """What a file was `before` and `after` it was changed, and whether its `folder` was made; None where nothing is kept."""
    try:
        record = json.loads(record_path(path).read_text())
        return record if record["path"] == str(path.resolve()) and {"before", "after", "folder"} <= record.keys() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remove(table: dict[str, Any], path: Path) -> bool:
    """Take our hooks out, and what held nothing but them."""
    groups = _groups(table, path)
    rest = []
    for group in groups:
        others = [hook for hook in _hooks(group) if not _is_ours(hook)]
        if len(others) == len(_hooks(group)):
            rest.append(group)
        elif others:
            rest.append({**group, "hooks": others})
    if rest == groups:
        return False
    table["hooks"][_EVENT] = rest
    if not rest:
        del table["hooks"][_EVENT]
    if not table["hooks"]:
        del table["hooks"]
    return True


def _groups(table: dict[str, Any], path: Path) -> list[Any]:
    hooks = table.get("hooks", {})
    groups = hooks.get(_EVENT, []) if isinstance(hooks, dict) else None
    if not isinstance(groups, list):
        fix = "see the client's documentation of hooks; nothing was changed"
        raise InputError(f"hooks.{_EVENT} is not a list of hooks", where=str(path), fix=fix)
    return groups


def _hooks(group: Any) -> list[Any]:
    hooks = group.get("hooks", []) if isinstance(group, dict) else []
    return hooks if isinstance(hooks, list) else []


def _is_ours(hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and any(mark in command.replace("\\", "/") for mark in _OURS)


def _read(path: Path) -> tuple[dict[str, Any], str]:
    try:
        text = read_plain(path).decode()
        table = json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_once) if text.strip("\ufeff \r\n\t") else {}
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), fix="correct the file first; nothing was changed") from None
    if not isinstance(table, dict):
        raise InputError("is not an object", where=str(path), fix="correct the file first; nothing was changed")
    return table, text


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; one that says a name twice would lose something when it is written again."""
    out = dict(pairs)
    if len(out) < len(pairs):
        raise ValueError(f"an object has {next(name for name, _ in pairs if [n for n, _ in pairs].count(name) > 1)!r} twice")
    return out


def _text(table: dict[str, Any], before: str) -> str:
    """With the indentation that the file had."""
    second = before.splitlines()[1] if before.count("\n") > 1 else ""
    blank = second[: len(second) - len(second.lstrip())]
    return json.dumps(table, indent=blank or 2, ensure_ascii=False) + "\n"
