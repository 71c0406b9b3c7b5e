"""Groups, headings and moved names of the command line; flags that mean one thing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import counterpoint.registry as registry
from counterpoint.app.cli import cli, main
from counterpoint.app.moved import COMMANDS, FLAGS
from counterpoint.app.terminal.groups import Group

COMMON = {"--json", "--help", "--store", "--version", "--debug"}
CPT = (sys.executable, "-c", "from counterpoint.app.cli import main; main()")


def _walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from _walk(below, (*path, name))


ALL = dict(_walk(cli))


def _options(command: click.Command) -> dict[str, click.Option]:
    return {flag: one for one in command.params if isinstance(one, click.Option) for flag in (*one.opts, *one.secondary_opts)}


def _ends(*args: str) -> int:
    with pytest.raises(SystemExit) as done:
        main(list(args))
    return int(done.value.code or 0)


# -- groups ----------------------------------------------------------------------------------------------------------------


def _stranger(folder: Path) -> dict[str, str]:
    """An installed package with a command of its own, a group, and a sub-command of one of ours; its environment."""
    info = folder / "strange-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(
        "[counterpoint.plugins]\ncommand = strange.commands\n[counterpoint.commands]\nlone = strange.lone:one\nls = strange.lone:one\ngone = strange.gone:gone\n"
    )
    one = "import click\n@click.command()\ndef {0}():\n    click.echo('{0} ran')\n"
    files = {
        "lone.py": "import click\n@click.command()\ndef one():\n    click.echo('one ran')\n",
        "commands/hello.py": '"""Say hello."""\n' + one.format("hello"),
        "commands/notes/praise.py": '"""Praise a trace."""\n' + one.format("praise"),
        "commands/notes/broken.py": '"""Never imported by help."""\nbroken = 1 / 0\n',
    }
    for name, text in files.items():
        path = folder / "strange" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for package in ("", "commands"):
        (folder / "strange" / package / "__init__.py").write_text("")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def test_an_installed_package_adds_commands_and_sub_commands_of_any_group(tmp_path: Path) -> None:
    environment = _stranger(tmp_path)

    def call(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*CPT, *args], env=environment, capture_output=True, text=True)

    assert call("notes", "praise").stdout == "praise ran\n"
    assert call("hello").stdout == "hello ran\n"
    assert call("lone").stdout == "one ran\n"
    told = call("notes", "--help").stdout
    assert "Praise a trace." in told  # read as text
    assert "Never imported by help." in told
    more = call("--help").stdout.partition("\nMore:\n")[2]
    assert [line.split() for line in more.splitlines() if "hello" in line] == [["hello", "Say", "hello."]]
    described = {c["name"]: c for c in json.loads(call("commands", "--json").stdout)["commands"]}
    inside = {c["name"]: c for c in described["notes"]["commands"]}
    assert "cannot be loaded: division by zero" in inside["broken"]["help"]
    assert {"praise", "add"} <= inside.keys()
    assert described["lone"]["from"] == "strange.lone:one"
    assert "from" not in described["ls"]  # ours stay ours
    assert "cannot be loaded" in described["gone"]["help"]
    completed = {**environment, "_COUNTERPOINT_COMPLETE": "bash_complete", "COMP_WORDS": "counterpoint notes pra", "COMP_CWORD": "2"}
    done = subprocess.run([*CPT], env=completed, capture_output=True, text=True)
    assert done.stdout.split() == ["plain,praise"]


def test_help_of_a_group_imports_no_sub_command() -> None:
    code = (
        "import sys; from counterpoint.app.cli import cli; cli.main(['store', '--help'], standalone_mode=False); "
        "assert not [m for m in sys.modules if m.startswith('counterpoint.app.cli.store.')]"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_group_knows_its_sub_commands_by_their_files() -> None:
    assert {"info", "verify", "repair", "compact", "rm", "push", "check", "schema"} == set(registry.ids("command/store"))
    for path, command in ALL.items():
        if isinstance(command, Group) and path:
            assert command.path == tuple(path.split(" "))


def test_list_and_ls_are_synonyms() -> None:
    assert isinstance(ALL["notes"], Group)
    with click.Context(ALL["notes"]) as context:
        assert ALL["notes"].get_command(context, "list") is ALL["notes"].get_command(context, "ls")


def test_every_command_of_ours_has_a_heading() -> None:
    for name in registry.ids("command"):
        heading = registry.constant("command", name, "HEADING")
        assert heading in (("",) if name in ("commands", "completion", "mcp", "new", "papers") else ("Look", "Judge", "Keep", "Learn")), name


# -- moved names -----------------------------------------------------------------------------------------------------------


def _is_there(line: str) -> bool:
    """Whether the words begin with a command, and it has the flags among them."""
    words = line.split(" ")
    command = next((ALL[" ".join(words[:k])] for k in (3, 2, 1) if " ".join(words[:k]) in ALL), None)
    return command is not None and all(word in _options(command) for word in words if word.startswith("-"))


@pytest.mark.parametrize("old", COMMANDS)
def test_an_old_command_answers_with_the_new_one(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert old not in ALL
    assert _is_there(COMMANDS[old])
    assert _ends(*old.split(" ")) == 2
    assert capsys.readouterr().err.startswith(f"error: {old!r} is now {COMMANDS[old]!r}\n")
    assert _ends(*old.split(" "), "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["what"] == f"{old!r} is now {COMMANDS[old]!r}"


@pytest.mark.parametrize(("command", "flag"), [(command, flag) for command, flags in FLAGS.items() for flag in flags])
def test_an_old_flag_answers_with_the_new_one(command: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    new = FLAGS[command][flag]
    assert flag not in _options(ALL[command])
    assert ":" in new or _is_there(f"{command} {new}" if new.startswith("-") else new)  # a word of a query needs no flag
    assert _ends(*command.split(" "), flag, "x") == 2
    assert capsys.readouterr().err.startswith(f"error: {flag!r} of {command} is now {new!r}\n")


# -- flags -----------------------------------------------------------------------------------------------------------------


def test_there_are_few_flags_and_no_help_begins_with_another_flag() -> None:
    flags = {flag for command in ALL.values() for flag in _options(command) if flag.startswith("--")} - COMMON
    assert len(flags) <= 120, sorted(flags)
    helps = [(path, flag, one.help or "") for path, command in ALL.items() for flag, one in _options(command).items()]
    assert [(path, flag) for path, flag, text in helps if text.startswith("With --") or not text] == []


def test_there_are_few_commands() -> None:
    assert len([name for name in registry.ids("command") if registry.constant("command", name, "HEADING")]) <= 28
