"""`counterpoint mcp install` and `uninstall`: the settings of Claude Code and Codex keep every other byte, and get back what they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from counterpoint.app.mcp.clients import install, installed, place, server, uninstall
from counterpoint.errors import InputError

pytest.importorskip("mcp")
Ends = Callable[..., tuple[int, str, str]]
PLACES = [("claude_code", "project"), ("claude_code", "user"), ("codex", "project"), ("codex", "user")]
OURS = server()


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COUNTERPOINT_GUARD", str(tmp_path / "state"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and "state" not in p.parts}


JSON = [
    "", "\n", "{}", "{ }", "{\n}\n", '{"mcpServers": {}}', '{"mcpServers":{}}\n', '{\n  "mcpServers": {}\n}\n', '{\n  "mcpServers": {\n  }\n}',
    '{"mcpServers": {"other": {"command": "x", "args": []}}}', '{\n\t"mcpServers": {\n\t\t"other": {"command": "x"}\n\t},\n\t"numStartups": 12\n}\n',
    '{"a": [1, 2, {"mcpServers": {"counterpoint": 1}}], "b": "}\\"{"}', '{"projects": {"/home/ada/shop": {"mcpServers": {"x": {}}}}, "n": 1.50, "é": "\\u00e9"}',
    '\ufeff{\r\n  "mcpServers": {\r\n    "z": {"command": "z"}\r\n  }\r\n}\r\n', '{\n    "mcpServers": {\n        "other": {\n            "command": "x"\n        }\n    }\n}',
    '{"mcpServers"  :\n{ "a" : {} , "b" : {} } , "c" : null }',
]  # fmt: skip
TOML = [
    "", "\n", 'model = "o3"\n', 'model = "o3"', '# a remark\nnotify = ["say", "done"]  # kept\n\n[features]\njs = true\n\n[mcp_servers.node]\ncommand = "node"\n',
    'model = "o3"\r\n[mcp_servers.x]\r\ncommand = "x"\r\n', '[mcp_servers]\nx = { command = "x" }\n', 'mcp_servers.x.command = "x"\n', '[[profiles]]\nname = "a"',
]  # fmt: skip


@pytest.mark.parametrize(("client", "text"), [*(("claude_code", one) for one in JSON), *(("codex", one) for one in TOML)])
@pytest.mark.parametrize("is_remembered", [True, False])
def test_what_stands_there_stays_and_comes_back(client: str, text: str, is_remembered: bool, tmp_path: Path) -> None:
    where = place(client, "project", Path.cwd())
    where.settings.parent.mkdir(exist_ok=True)
    where.settings.write_bytes(text.encode())
    install(where, OURS)
    after = where.settings.read_bytes().decode()
    read = (lambda one: tomllib.loads(one)) if client == "codex" else (lambda one: json.loads(one.removeprefix("\ufeff") or "{}"))
    key = "mcp_servers" if client == "codex" else "mcpServers"
    before = read(text.strip("\n") if client != "codex" else text)
    assert read(after) == {**before, key: {**before.get(key, {}), "counterpoint": OURS}}
    added = after
    for kept in sorted(text.split("\n"), key=len):  # every line of it is still there, byte for byte
        assert all(part.strip("\r{ ") in added for part in kept.split("}"))
    assert installed(where) == OURS
    assert install(where, OURS) == []
    assert where.settings.read_bytes().decode() == after
    if not is_remembered:
        for record in (tmp_path / "state" / "installed").iterdir():
            record.unlink()
    assert uninstall(where)
    if is_remembered:
        assert where.settings.read_bytes().decode() == text
    elif text.strip():
        left = read(where.settings.read_bytes().decode())
        assert left in (before, {name: value for name, value in before.items() if value or name != key})
    assert installed(where) is None
    assert uninstall(where) == []


@pytest.mark.parametrize(("client", "scope"), PLACES)
def test_what_was_made_goes(run: Ends, client: str, scope: str, tmp_path: Path) -> None:
    before = files(tmp_path)
    words = ("--client", client, "--scope", scope)
    code, out, _ = run("mcp", "install", *words, "--store", "kept")
    assert code == 0
    where = place(client, scope, Path.cwd())
    assert out.splitlines()[:2] == [f"written: {where.settings}", f"written: {where.skill}"]
    assert where.skill.read_text().startswith("---\nname: counterpoint\ndescription: ")
    code, out, _ = run("mcp", "status", "--json")
    rows = [row for row in json.loads(out)["installed"] if row["server"]]
    assert [(row["client"], row["scope"], row["skill"]) for row in rows] == [(client, scope, True)]
    assert rows[0]["server"] == {"command": sys.executable, "args": ["-m", "counterpoint", "mcp", "--store", str(Path.cwd() / "kept")]}
    assert run("mcp", "install", *words)[0] == 0  # another store: one server, not two
    assert installed(where) == OURS
    assert run("mcp", "uninstall", *words)[0] == 0
    assert files(tmp_path) == before
    assert not where.settings.parent.name.startswith(".") or not where.settings.parent.exists()
    code, _, err = run("mcp", "uninstall", *words)
    assert (code, "nothing of ours is installed here" in err) == (3, True)


def test_where_each_client_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, home = Path.cwd(), tmp_path / "home"
    found = [tuple(str(p) for p in (w.settings, w.skill)) for w in (place(*one, here) for one in PLACES)]
    assert found == [
        (f"{here}/.mcp.json", f"{here}/.claude/skills/counterpoint/SKILL.md"),
        (f"{home}/.claude.json", f"{home}/.claude/skills/counterpoint/SKILL.md"),
        (f"{here}/.codex/config.toml", f"{here}/.agents/skills/counterpoint/SKILL.md"),
        (f"{home}/.codex/config.toml", f"{home}/.agents/skills/counterpoint/SKILL.md"),
    ]
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "x"))
    assert place("claude_code", "user", here).settings == tmp_path / "c" / ".claude.json"
    assert place("codex", "user", here).settings == tmp_path / "x" / "config.toml"


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("claude_code", "{"), ("claude_code", "[]"), ("claude_code", '{"mcpServers": []}'), ("claude_code", '{"mcpServers": null}'),
        ("claude_code", '{"a": 1, "a": 2}'), ("claude_code", '{"mcpServers": {"counterpoint": {"command": "mine"}}}'), ("claude_code", "// x\n{}"),
        ("claude_code", '{"mcpServers": {}, "mcpServers": {}}'), ("claude_code", "[" * 100_000),
        ("codex", "a = "), ("codex", "mcp_servers = 3"), ("codex", 'mcp_servers = { x = { command = "x" } }'), ("codex", '[mcp_servers.counterpoint]\ncommand = "mine"\n'),
        ("codex", "[[mcp_servers]]\nx = 1"), ("codex", "[mcp_servers]\ncounterpoint = 3"),
    ],
)  # fmt: skip
def test_settings_that_are_not_what_they_should_be_are_left_alone(client: str, text: str, tmp_path: Path) -> None:
    where = place(client, "project", Path.cwd())
    where.settings.parent.mkdir(exist_ok=True)
    where.settings.write_text(text)
    before = files(tmp_path)
    with pytest.raises(InputError, match="nothing was changed"):
        install(where, OURS)
    assert files(tmp_path) == before
    if "mine" not in text and "= 3" not in text and "{ x" not in text:
        with pytest.raises(InputError):
            uninstall(where)
    assert files(tmp_path) == before


def test_latin_1_settings_and_a_skill_of_somebody_else_are_refused(tmp_path: Path) -> None:
    where = place("claude_code", "project", Path.cwd())
    where.settings.write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(InputError, match="cannot be read"):
        install(where, OURS)
    where.settings.unlink()
    where.skill.parent.mkdir(parents=True)
    where.skill.write_text("mine")
    with pytest.raises(InputError, match="not ours"):
        install(where, OURS)
    assert not where.settings.exists()
    assert where.skill.read_text() == "mine"


def test_changes_of_others_after_the_installation_stay(tmp_path: Path) -> None:
    where = place("claude_code", "project", Path.cwd())
    where.settings.write_text('{\n  "mcpServers": {\n    "a": {}\n  }\n}\n')
    install(where, OURS)
    table = json.loads(where.settings.read_text())
    table["mcpServers"]["b"] = {"command": "b"}
    where.settings.write_text(json.dumps(table))
    where.skill.write_text(where.skill.read_text() + "\nmine too\n")
    assert uninstall(where) == [where.settings]  # a skill that somebody changed is theirs
    assert json.loads(where.settings.read_text()) == {"mcpServers": {"a": {}, "b": {"command": "b"}}}
    codex = place("codex", "project", Path.cwd())
    install(codex, OURS)
    codex.settings.write_text('model = "o3"\n' + codex.settings.read_text() + "\n[features]\njs = true\n")
    uninstall(codex)
    assert tomllib.loads(codex.settings.read_text()) == {"model": "o3", "features": {"js": True}}


def test_a_link_to_settings_stays_a_link(tmp_path: Path) -> None:
    where = place("claude_code", "project", Path.cwd())
    kept = tmp_path / "dotfiles.json"
    kept.write_text("{}")
    where.settings.symlink_to(kept)
    install(where, OURS)
    assert where.settings.is_symlink()
    assert "counterpoint" in kept.read_text()
    uninstall(where)
    assert (where.settings.is_symlink(), kept.read_text()) == (True, "{}")


def test_without_the_package_nothing_is_changed(tmp_path: Path) -> None:
    source = os.pathsep.join(p for p in sys.path if p)
    hide = "import sys; sys.modules['mcp.server.lowlevel'] = None; from counterpoint.app.cli import main; main(['mcp', *sys.argv[1:]])"
    for words in (["install"], []):
        done = subprocess.run([sys.executable, "-c", hide, *words], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": source}, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("error: the server needs the package mcp 2\n")
        assert "[mcp]" in done.stderr
        assert "Traceback" not in done.stderr
    assert not list(Path.cwd().iterdir())


def test_the_skill_answers_the_three_questions() -> None:
    text = (Path(__file__).parents[2] / "src" / "counterpoint" / "app" / "mcp" / "SKILL.md").read_text()
    for question in ("Why did my last session cost so much?", "What went wrong?", "What should I change in CLAUDE.md?"):
        assert f"\n## {question}\n" in text
    from counterpoint.app.mcp.tools import TOOLS

    assert [name for name in TOOLS if f"`{name}`" not in text] == []
