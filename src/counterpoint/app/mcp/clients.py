"""The server and the skill in the settings of Claude Code and Codex: put in, and exactly that taken out again.

Always true: everything else in a file stays as it is, byte for byte; a file that is not what it should be, or that has a server
of this name which is not ours, is refused and not touched; what is to be written is read again before it takes the file's place.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from counterpoint.errors import InputError
from counterpoint.files import put, read_plain
from counterpoint.guard.settings import backup_of, keep_backup, record_path

NAME = "counterpoint"
_MODULE = ["-m", "counterpoint", "mcp"]
_SKILL = Path(__file__).with_name("SKILL.md")
_BLANKS = re.compile(r"[ \t\r\n]*")
_REMARK = "# counterpoint mcp install"
_BLOCK = re.compile(rf"(?:\r?\n)?{_REMARK}: begin\r?\n.*?{_REMARK}: end(?:\r?\n|$)", re.DOTALL)
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Place:
    """Where one client has its servers and skills, for one scope."""

    settings: Path
    skill: Path


def place(client: str, scope: str, folder: Path) -> Place:
    """The files of a client: of this folder's project, or of the user."""
    home = Path.home()
    if client == "codex":
        moved = os.environ.get("CODEX_HOME")
        settings = folder / ".codex" if scope == "project" else Path(moved) if moved else home / ".codex"
        skills = (folder if scope == "project" else home) / ".agents" / "skills"
        return Place(settings / "config.toml", skills / NAME / "SKILL.md")
    moved = os.environ.get("CLAUDE_CONFIG_DIR")
    if scope == "project":
        return Place(folder / ".mcp.json", folder / ".claude" / "skills" / NAME / "SKILL.md")
    settings, skills = (Path(moved), Path(moved)) if moved else (home, home / ".claude")
    return Place(settings / ".claude.json", skills / "skills" / NAME / "SKILL.md")


def server(store: Path | None = None) -> dict[str, Any]:
    """What a client starts: this Python, with a store where one is named."""
    chosen = [] if store is None else ["--store", str(store.absolute())]
    return {"command": sys.executable, "args": [*_MODULE, *chosen]}


def install(where: Place, started: dict[str, Any]) -> list[Path]:
    """Put the server and the skill in; the files that changed."""
    changes = [(where.settings, _with_server(where.settings, started)), (where.skill, _with_skill(where.skill))]
    done = [(path, after) for path, after in changes if after is not None]
    before = {path: (read_plain(path).decode("utf-8") if path.exists() else None, not path.parent.exists()) for path, _ in done}
    for path, _ in done:  # another version of ours: what was there before it is known already
        if path.exists() and (backup := backup_of(path)) is not None and backup["after"].encode() == read_plain(path):
            before[path] = backup["before"], backup["folder"]
    put([(path.resolve(), after) for path, after in done])
    for path, after in done:
        keep_backup(path, before[path][0], after.decode("utf-8"), before[path][1])
    return [path for path, _ in done]


def uninstall(where: Place) -> list[Path]:
    """Take them out; the files that changed. A file that nobody else changed is what it was, to the byte; one that was made for
    us goes, with folders of ours that are empty then."""
    settings, has_skill, out = _without_server(where.settings), _skill_is_ours(where.skill), []
    if settings is not None:
        backup = backup_of(where.settings)
        if backup is not None and backup["after"].encode() == read_plain(where.settings):
            settings = (backup["before"] or "").encode()
        if settings.strip() or (backup is not None and backup["before"] is not None):
            put([(where.settings.resolve(), settings)])
        else:
            where.settings.unlink()
            _remove_empty(where.settings.parent, ".codex")
        record_path(where.settings).unlink(missing_ok=True)
        out.append(where.settings)
    if has_skill:
        where.skill.unlink()
        record_path(where.skill).unlink(missing_ok=True)
        _remove_empty(where.skill.parent, NAME, "skills", ".claude", ".agents")
        out.append(where.skill)
    return out


def installed(where: Place) -> dict[str, Any] | None:
    """Our server in a client's settings; None where there is none."""
    if not where.settings.exists():
        return None
    text = _text(where.settings)
    servers = _servers(where.settings, text)
    return servers.get(NAME) if NAME in servers and _is_ours(servers[NAME]) else None


# -- the server ----------------------------------------------------------------------------------------------------------


def _with_server(path: Path, started: dict[str, Any]) -> bytes | None:
    """The settings with the server; None where they have it already."""
    before = _text(path) if path.exists() else ""
    servers = _servers(path, before)
    if servers.get(NAME) == started:
        return None
    if NAME in servers and not _is_ours(servers[NAME]):
        raise _refused(path, f"has another server named {NAME!r}", "rename it first")
    bare = _cut(path, before) if NAME in servers else before
    after = _joined_toml(bare, started) if path.suffix == ".toml" else _joined_json(bare, started)
    wanted = _servers(path, bare) | {NAME: started}
    if _parsed(path, after) != _parsed(path, bare) | {_key(path): wanted}:
        raise _refused(path, "has servers in a form that cannot be added to safely", f"add {json.dumps(started)} by hand")
    return after.encode("utf-8", "surrogateescape")


def _without_server(path: Path) -> bytes | None:
    """The settings without our server; None where they have none."""
    if not path.exists():
        return None
    before = _text(path)
    servers = _servers(path, before)
    if NAME not in servers or not _is_ours(servers[NAME]):
        return None
    after = _cut(path, before)
    return after.encode("utf-8", "surrogateescape")


def _cut(path: Path, before: str) -> str:
    after = _cut_toml(before) if path.suffix == ".toml" else _cut_json(before)
    wanted = _parsed(path, before)
    rest = {name: one for name, one in wanted[_key(path)].items() if name != NAME}
    left = {**wanted, _key(path): rest}
    found = _parsed(path, after) if after.strip() else {}
    if found != left and found != {name: value for name, value in left.items() if name != _key(path) or value}:
        raise _refused(path, "has our server in a form that was changed", f"take the server {NAME!r} out by hand")
    return after


def _key(path: Path) -> str:
    return "mcp_servers" if path.suffix == ".toml" else "mcpServers"


def _servers(path: Path, text: str) -> dict[str, Any]:
    servers = _parsed(path, text).get(_key(path), {})
    if not isinstance(servers, dict):
        raise _refused(path, f"{_key(path)} is no table of servers", "correct the file first")
    return servers


def _is_ours(one: Any) -> bool:
    args = one.get("args") if isinstance(one, dict) else None
    return isinstance(args, list) and args[: len(_MODULE)] == _MODULE


def _text(path: Path) -> str:
    try:
        return read_plain(path).decode("utf-8")
    except (OSError, ValueError) as error:
        raise _refused(path, f"cannot be read: {error}", "correct the file first") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        if path.suffix == ".toml":
            return tomllib.loads(text)
        plain = text.removeprefix("\ufeff")
        table = json.loads(plain, object_pairs_hook=_once) if plain.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"cannot be read: {error}", "correct the file first") from None
    if not isinstance(table, dict):
        raise _refused(path, "is not an object", "correct the file first")
    return table


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        raise ValueError("an object has a name twice")
    return out


def _refused(path: Path, what: str, fix: str) -> InputError:
    return InputError(what, where=str(path), fix=f"{fix}; nothing was changed")


# -- the text of a file --------------------------------------------------------------------------------------------------


def _joined_toml(before: str, started: dict[str, Any]) -> str:
    """A table of its own at the end, between two remarks."""
    end = "\r\n" if "\r\n" in before else "\n"
    lead = end * (bool(before) and not before.endswith("\n")) + end * bool(before.strip())
    lines = [f"[mcp_servers.{NAME}]", f"command = {json.dumps(started['command'])}", f"args = {json.dumps(started['args'])}"]
    return before + lead + end.join([f"{_REMARK}: begin", *lines, f"{_REMARK}: end", ""])


def _cut_toml(before: str) -> str:
    found = _BLOCK.search(before)
    return before if found is None else before[: found.start()] + before[found.end() :]


class _Member(NamedTuple):
    """One member of an object, by its places in the text."""

    name: str
    start: int
    value: int
    end: int


def _members(text: str, at: int) -> tuple[list[_Member], int]:
    """The members of the object that begins at a place, and where its closing brace is; the text was parsed before."""
    out: list[_Member] = []
    at = _past_blanks(text, at + 1)
    while text[at] != "}":
        start = at
        name, at = _DECODER.raw_decode(text, at)
        value = _past_blanks(text, _past_blanks(text, at) + 1)
        _, end = _DECODER.raw_decode(text, value)
        out.append(_Member(name, start, value, end))
        at = _past_blanks(text, end)
        at = _past_blanks(text, at + 1) if text[at] == "," else at
    return out, at


def _past_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def _joined_json(before: str, started: dict[str, Any]) -> str:
    """A member more in the object of servers, which is made at the end where it is missing."""
    if not before.strip("\ufeff \t\r\n"):
        return before + json.dumps({"mcpServers": {NAME: started}}, indent=2, ensure_ascii=False) + "\n"
    unit, top = _unit(before), before.index("{")
    members, close = _members(before, top)
    servers = next((one for one in members if one.name == "mcpServers"), None)
    if servers is None:
        return _inserted(before, members, top, close, unit, "mcpServers", {NAME: started}, 1)
    inner, inner_close = _members(before, servers.value)
    return _inserted(before, inner, servers.value, inner_close, unit, NAME, started, 2)


def _inserted(
    text: str, members: list[_Member], top: int, close: int, unit: str, name: str, value: dict[str, Any], depth: int
) -> str:
    end = "\r\n" if "\r\n" in text else "\n"
    shown = json.dumps(value, indent=unit or None, ensure_ascii=False).replace("\n", end + unit * depth)
    lead = end + unit * depth if unit else " " * bool(members)
    member = f"{lead}{json.dumps(name)}: {shown}"
    if members:
        at = members[-1].end
        return text[:at] + "," + member + text[at:]
    tail = end + unit * (depth - 1) if unit else ""
    return text[: top + 1] + member + tail + text[close:]


def _unit(text: str) -> str:
    """What a file is indented by; nothing where it is one line."""
    second = text.splitlines()[1] if text.count("\n") > 1 else ""
    return second[: len(second) - len(second.lstrip())] or ("  " if text.count("\n") > 1 else "")


def _cut_json(before: str) -> str:
    """Without our member, and without the object of servers where that was all it held."""
    top = before.index("{")
    members, close = _members(before, top)
    servers = next(one for one in members if one.name == "mcpServers")
    inner, inner_close = _members(before, servers.value)
    if len(inner) == 1:
        return _without(before, members, servers, top, close)
    return _without(before, inner, next(one for one in inner if one.name == NAME), servers.value, inner_close)


def _without(text: str, members: list[_Member], gone: _Member, top: int, close: int) -> str:
    at = members.index(gone)
    if at:
        return text[: members[at - 1].end] + text[gone.end :]
    if len(members) > 1:
        return text[: gone.start] + text[members[1].start :]
    return text[: top + 1] + text[close:]


# -- the skill -----------------------------------------------------------------------------------------------------------


def _with_skill(path: Path) -> bytes | None:
    """The skill; None where it is there already."""
    wanted = _SKILL.read_bytes()
    if path.exists():
        if not _skill_is_ours(path):
            raise _refused(path, "is a skill of this name that is not ours", "move it away first")
        return None if read_plain(path) == wanted else wanted
    return wanted


def _skill_is_ours(path: Path) -> bool:
    """Whether the skill is ours, as we wrote it or of another version of ours; a skill that was changed stays."""
    if not path.is_file():
        return False
    backup = backup_of(path)
    data = read_plain(path)
    return data == _SKILL.read_bytes() or (backup is not None and data == backup["after"].encode())


def _remove_empty(folder: Path, *names: str) -> None:
    """A folder and those above it, as long as they are empty and are called so."""
    for one in (folder, *folder.parents):
        if one.name not in names or not one.is_dir() or any(one.iterdir()):
            return
        one.rmdir()
