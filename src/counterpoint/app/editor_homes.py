"""Where Cline, Roo Code, Kilo Code, Goose, Continue, Cursor and Antigravity keep their sessions on this machine.

Always true: nothing is read; a folder that is not there is not given.
"""

from __future__ import annotations

import os
from pathlib import Path

_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_EXTENSIONS = {
    "saoudrizwan.claude-dev": "Cline",
    "rooveterinaryinc.roo-cline": "Roo Code",
    "kilocode.kilo-code": "Kilo Code",
}
_ANTIGRAVITY = ("antigravity", "antigravity-ide", "antigravity-cli")
_SERVERS = (".vscode-server", ".cursor-server")


def editor_homes(home: Path) -> list[tuple[str, Path]]:
    """The folders that are there, each with whose it is."""
    env = os.environ.get
    config = Path(env("XDG_CONFIG_HOME") or home / ".config")
    users = [base / editor / "User" for base in _bases(home, config) for editor in _EDITORS]
    users += [home / server / "data" / "User" for server in _SERVERS]
    cline = Path(env("CLINE_DATA_DIR") or Path(env("CLINE_DIR") or home / ".cline") / "data")
    data = Path(env("XDG_DATA_HOME") or home / ".local" / "share")
    goose = Path(env("GOOSE_PATH_ROOT") or data / "goose")
    known = [(name, user / "globalStorage" / id_ / "tasks") for user in users for id_, name in _EXTENSIONS.items()]
    known += [("Cline", cline / "tasks"), ("Cline", Path(env("CLINE_SESSION_DATA_DIR") or cline / "sessions"))]
    known += [("Kilo Code", home / ".kilocode" / "cli" / "global" / "tasks")]
    known += [("Goose", place) for place in (goose / "sessions", goose / "data" / "sessions")]
    known += [("Goose", home / "Library" / "Application Support" / "Block" / "goose" / "sessions")]
    known += [("Continue", Path(env("CONTINUE_GLOBAL_DIR") or home / ".continue") / "sessions")]
    known += [("Cursor", place) for place in sorted((home / ".cursor" / "projects").glob("*/agent-transcripts"))]
    known += [("Antigravity", home / ".gemini" / name / "brain") for name in _ANTIGRAVITY]
    return [(name, path) for name, path in known if path.is_dir()]


def _bases(home: Path, config: Path) -> list[Path]:
    """Where editors keep what is a user's own, on each system."""
    return [config, home / "Library" / "Application Support", home / "AppData" / "Roaming"]
