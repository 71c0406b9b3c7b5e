"""Sessions of Claude Code and Codex on disk: by file or by id, read into a guard's counts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from counterpoint.errors import InputError, NotFound
from counterpoint.guard.hook import reader_of
from counterpoint.guard.reader import SessionReader
from counterpoint.guard.state import GuardState


def transcript_of(session: str) -> str:
    """The file of a session: a path, or an id that a client keeps in its own folder."""
    if os.path.isfile(session):
        return session
    if os.sep not in session and not session.endswith(".jsonl"):
        claude = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
        codex = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "sessions"
        literal = "".join(f"[{c}]" if c in "*?[" else c for c in session)
        for folder, pattern in ((claude, f"*/{literal}.jsonl"), (codex, f"*/*/*/rollout-*-{literal}.jsonl")):
            for path in sorted(folder.glob(pattern)):
                return str(path)
    raise NotFound("no such session", where=session, fix="name its .jsonl file, or the id of a session of this user")


def read_session(session: str) -> SessionReader:
    """A session read to its end."""
    path = transcript_of(session)
    reader = reader_of(GuardState(), path, path, to_end=True)
    if reader.state.is_empty:
        fix = "name the .jsonl file of a session of Claude Code or Codex"
        raise InputError("this file holds no session", where=path, fix=fix)
    return reader


def fresh_reader(session: str) -> SessionReader:
    """A reader of the session's format that has read nothing yet."""
    return type(read_session(session))(GuardState())


def sessions_in(logs: Iterable[Path]) -> list[tuple[SessionReader, str]]:
    """Every whole session in files and folders: a fresh reader, and its file; logs of sub-agents and other files are left out."""
    sessions = []
    for path in (file for log in logs for file in ([log] if log.is_file() else sorted(log.rglob("*.jsonl")))):
        try:
            reader = read_session(str(path))
        except InputError:
            continue
        if reader.root(str(path)) == str(path) and not path.name.startswith("agent-"):
            sessions.append((type(reader)(GuardState()), str(path)))
    return sessions
