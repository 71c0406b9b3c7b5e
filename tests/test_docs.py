"""What the pages say is run: every command of the README and docs, its output compared, every Python block executed.

In a fenced block a line that begins with `$ ` is a command and the lines below it are what it prints. `...` stands for
anything, in a line or as lines left out; a line `$ # exit 4` states the exit code of the command before it. Commands of one
page run in order in one folder that holds nothing but the project's `examples`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from warm_help import programs

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(p for place in (".", "sources", "research", "trainers") for p in sorted((ROOT / "docs" / place).glob("*.md")))]
# These set up a machine, or run this very test.
NOT_RUN = ("make ", "pip ", "uv ")
# The page that everybody follows first is run by fresh interpreters, the others by forks of one that has imported the package.
FRESH = {"README.md"}


class Step(NamedTuple):
    line: int
    kind: str
    text: str
    expected: list[str]
    code: int


def steps(page: Path) -> list[Step]:
    """The commands and Python blocks of a page, in order."""
    out: list[Step] = []
    lines = page.read_text().splitlines()
    i = 0
    while i < len(lines):
        opening = re.fullmatch(r"```(\w*)", lines[i])
        i += 1
        if not opening:
            continue
        begin = i
        while lines[i] != "```":
            i += 1
        block = lines[begin:i]
        if opening.group(1) == "python":
            out.append(Step(begin + 1, "python", "\n".join(block), [], 0))
        elif any(line.startswith("$ ") for line in block):
            out += commands(block, begin + 1)
        i += 1
    return out


def commands(block: list[str], begin: int) -> list[Step]:
    out: list[Step] = []
    for k, line in enumerate(block):
        if exit_code := re.fullmatch(r"\$ # exit (\d+)", line):
            out[-1] = out[-1]._replace(code=int(exit_code.group(1)))
        elif line.startswith("$ "):
            out.append(Step(begin + k, "shell", re.sub(r"\s+# .*$", "", line[2:]), [], 0))
        elif out and line.strip():
            out[-1].expected.append(line)
    return out


def pattern(line: str) -> re.Pattern[str]:
    """A line of the page as a pattern: runs of blanks are alike, `...` and `[...]` and `…` are anything."""
    parts = re.split(r"\[\.\.\.\]|\.\.\.|…", line)
    return re.compile(r".*".join(r"\s+".join(map(re.escape, part.split())) if part.split() else "" for part in parts))


def missing(expected: list[str], printed: str) -> str | None:
    """The first expected line that does not come, in order, in what was printed."""
    rest = printed.splitlines()
    for line in expected:
        if line.strip() in {"...", "…"}:
            continue
        wanted = pattern(line)
        at = next((k for k, have in enumerate(rest) if wanted.search(" ".join(have.split()))), None)
        if at is None:
            return line
        rest = rest[at + 1 :]
    return None


def test_the_comparison_can_fail() -> None:
    assert missing(["a  b", "c ... d"], "x\na b\nc 1 2 d\n") is None
    assert missing(["a", "b"], "b\na\n") == "b"
    assert missing(["n 3"], "n 4") == "n 3"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_block_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    found = Path(sys.executable).parent if page.name in FRESH else programs()
    environment = {**os.environ, "PATH": f"{found}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
    environment["WARM_IMPORTS"] = "torch torch._dynamo" if "counterpoint train --preset" in page.read_text() else ""
    environment.pop("COUNTERPOINT_STORE", None)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for step in steps(page):
        where = f"{page.name}:{step.line}"
        if step.kind == "shell" and step.text.startswith(NOT_RUN):
            continue
        if exported := re.fullmatch(r"export (\w+)=(\S+)", step.text):
            environment[exported.group(1)] = exported.group(2)
            continue
        command = [f"{found}/python", "-c", step.text] if step.kind == "python" else ["bash", "-c", step.text]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
        printed = done.stdout + done.stderr
        assert done.returncode == step.code, f"{where}: {step.text}\nexit {done.returncode}\n{printed}"
        lost = missing(step.expected, printed)
        assert lost is None, f"{where}: {step.text}\ndid not print: {lost}\nbut:\n{printed}"


def test_the_readme_is_short_and_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(re.findall(r"\w+", re.sub(r"```.*?```", "", text, flags=re.S))) < 500
    assert "make demo" in text
    assert "make test" in text


def test_every_command_has_a_page_that_names_it() -> None:
    from counterpoint import registry

    pages = "\n".join(page.read_text() for page in PAGES)
    assert [name for name in registry.ids("command") if f"counterpoint {name}" not in pages] == []


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
