"""The core without the laboratory: its folder and its entry points are not there, and every command of the core works."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "counterpoint"
CORE = [path for path in sorted(PACKAGE.rglob("*.py")) if "lab" not in path.relative_to(PACKAGE).parts[:1]]

# Runs command lines one after the other, and prints how each ended; with no command line, the help of every command there is.
SCRIPT = """
import contextlib, io, json, sys
import click
import counterpoint as cpt
from counterpoint.app.cli import cli, main

def helped(command, words, parent=None):
    ctx = click.Context(command, info_name=words[-1], parent=parent)
    out = {" ".join(words[1:]): command.get_help(ctx)}
    for name in command.list_commands(ctx) if isinstance(command, click.Group) else ():
        out |= helped(command.get_command(ctx, name), [*words, name], ctx)
    return out

ended = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as end:
            ended.append([end.code, out.getvalue(), err.getvalue()])
if not ended:
    ended = helped(cli, ["counterpoint"])
print(json.dumps({"ended": ended, "names": dir(cpt), "file": cpt.__file__, "modules": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the core as an installed package of its own, which hangs nothing in."""
    place = tmp_path_factory.mktemp("alone")
    lab = PACKAGE / "lab"
    shutil.copytree(PACKAGE, place / "counterpoint", ignore=lambda at, names: {n for n in names if n == "__pycache__" or Path(at, n) == lab})
    info = place / "counterpoint-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: counterpoint\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[console_scripts]\ncounterpoint = counterpoint.app.cli:main\n")
    return place


def run(alone: Path, folder: Path, *lines: str) -> dict[str, Any]:
    """What became of these command lines, in one process."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERPOINT_STORE")}
    env = {**known, "PYTHONPATH": str(alone), "COUNTERPOINT_STORE": str(folder / "counterpoint_demo")}
    words = json.dumps([line.split() for line in lines])
    done = subprocess.run([sys.executable, "-c", SCRIPT, words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told["file"] == str(alone / "counterpoint" / "__init__.py")
    assert [name for name in told["modules"] if name.startswith("counterpoint.lab")] == []
    return told


def test_every_command_of_the_core_can_be_asked_for_help(alone: Path, tmp_path: Path) -> None:
    told = run(alone, tmp_path)
    assert {"demo", "import", "ls", "show", "top", "report", "view", "sql", "audit", "blame", "credit", "advise", "fork"} <= told["ended"].keys()
    assert not {"train", "bench", "models", "play", "papers", "reproduce"} & told["ended"].keys()
    assert all(text.startswith("Usage: ") for text in told["ended"].values())
    assert not {"train", "world", "compare", "judge"} & set(told["names"])


WORKS = [
    "demo --quick", "demo", "ls", "ls topology:debate --json", "show research-team", "top research-team", "report", "audit busy-team",
    "audit mailroom --taint", "credit research-team", "credit research-team --list", "blame assistant --json", "export research-team --to perfetto -o run.json",
    "export research-team --list", "export research-team --to html -o run.html", f"import {PACKAGE.parents[1] / 'examples' / 'logs'}", "guard limits", "new reward mine", "completion bash",
]  # fmt: skip
REFUSED = {
    "fork research-team --at e1 --do delete": "nothing says how this team would have continued",
    "advise research-team": "cannot be replayed",
    "export research-team --to trl -o rows/": "'trl' is not a target we know",
    "demo --lm": "a language model plays a team: no installed package does this",
    "train": "No such command 'train'",
    "new world mine": "no kind of plug-in named 'world'",
}


def test_commands_of_the_core_work_and_say_what_they_lack(alone: Path, tmp_path: Path) -> None:
    told = run(alone, tmp_path, *WORKS, *REFUSED)["ended"]
    ended = dict(zip([*WORKS, *REFUSED], told, strict=True))
    assert {line: end for line, end in ended.items() if line in WORKS and end[0] not in (0, 1, 4)} == {}
    assert "no installed package trains teams" in ended["demo"][2]
    for line, says in REFUSED.items():
        code, _, err = ended[line]
        assert (code in (2, 3, 5), says in err) == (True, True), (line, code, err)
        assert "Traceback" not in err


def test_no_module_of_the_core_names_the_laboratory() -> None:
    """But for docstrings, which may say what it is; their examples import nothing of it."""
    named = []
    for path in CORE:
        tree, lines = ast.parse(path.read_text(encoding="utf-8")), path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            for text in body if isinstance(body, list) else ():
                if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
                    for i in range(text.lineno - 1, text.end_lineno or text.lineno):
                        lines[i] = lines[i] if lines[i].lstrip().startswith((">>> ", "... ")) else ""
        named += [f"{path.relative_to(PACKAGE)}: {line.strip()}" for line in lines if "counterpoint.lab" in line or "counterpoint/lab" in line]
    assert named == []
