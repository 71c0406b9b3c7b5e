"""What the pages say is run: every command of the README and docs, its output compared, every Python block executed.

In a fenced block a line that begins with `$ ` is a command and the lines below it are what it prints. `...` stands for
anything, in a line or as lines left out; a line `$ # exit 4`, or a remark `# exit 4: why` behind a command, states its exit code.
Commands of one page run in order in one folder that holds nothing but the project's `examples`; those of the README in an empty
one, for a user who has Claude Code sessions.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tomllib
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest

from tiny_help import make_tiny
from warm_help import programs

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(p for place in (".", "journeys", "sources", "lab", "lab/research", "lab/trainers") for p in sorted((ROOT / "docs" / place).glob("*.md")))]
# These set up a machine, or run this very test; what they install is held to pyproject.toml below.
NOT_RUN = ("make ", "pip ", "uv ", "counterpoint models install")
# What takes a GPU minutes, as the test does it on a CPU: the same command with a tiny model and less to do.
TINY = {
    "smollm2-135m": "tiny", "imitate.steps=120": "imitate.steps=2", "learn.updates=10": "learn.updates=1", "--set device=cuda": "--workers 2",
    "limits.max_tokens=32": "limits.max_tokens=6 --set learn.groups=2 --set learn.samples=2 --set learn.resample=0 --set eval_episodes=2",
}
# What the README takes minutes for, as the test does it: the same command with less to do, in a world of small tasks.
LESS = {"counterpoint demo": "counterpoint demo --world W2 --cap calls=12000 --seeds 1 --episodes 8"}
TRAINS = "torch torch._dynamo"  # what commands that train import


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
            remark = re.search(r"\s# exit (\d+)", line)
            out.append(Step(begin + k, "shell", re.sub(r"\s+# .*$", "", line[2:]), [], int(remark.group(1)) if remark else 0))
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


def run(step: Step, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """The exit code of a step, and all that it printed."""
    if step.kind == "shell" and step.text.startswith("counterpoint view"):
        return viewed(step.text, folder, environment)
    command = ["python", "-c", step.text] if step.kind == "python" else ["bash", "-c", step.text]
    command[0] = shutil.which(command[0], path=environment["PATH"]) or command[0]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    return done.returncode, done.stdout + done.stderr


def viewed(command: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """What the viewer answers, and how it ends with Ctrl-C. A terminal that offers help ends by itself."""
    words = [*command.split(), *([] if "--help" in command else ["--no-open", "--json"])]
    words[0] = shutil.which(words[0], path=environment["PATH"]) or words[0]
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as viewer:
        assert viewer.stdout is not None
        said = viewer.stdout.readline()
        if "--help" not in command:
            with urllib.request.urlopen(json.loads(said)["url"].split("#")[0]) as page:
                assert b"<html" in page.read()
            viewer.send_signal(signal.SIGINT)
        return viewer.wait(60), said + viewer.stdout.read()


def follow(page: Path, folder: Path, environment: dict[str, str]) -> None:
    """Run every step of a page, in order."""
    for step in steps(page):
        where = f"{page.name}:{step.line}"
        if step.kind == "shell" and step.text.startswith(NOT_RUN):
            continue
        step = step._replace(text=LESS.get(step.text, step.text))
        for much, little in TINY.items() if (folder / "tiny").is_dir() and step.text.startswith("counterpoint train lm") else ():
            step = step._replace(text=step.text.replace(much, little))
        if exported := re.fullmatch(r"export (\w+)=(\S+)", step.text):
            environment[exported.group(1)] = exported.group(2)
            continue
        code, printed = run(step, folder, environment)
        assert code == step.code, f"{where}: {step.text}\nexit {code}\n{printed}"
        lost = missing(step.expected, printed)
        assert lost is None, f"{where}: {step.text}\ndid not print: {lost}\nbut:\n{printed}"


def surroundings(found: Path, **more: str) -> dict[str, str]:
    """The environment of a user who has our commands on the path."""
    out = {**os.environ, "PATH": f"{found}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200", **more}
    out.pop("COUNTERPOINT_STORE", None)
    return out


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_block_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    """By forks of an interpreter that has imported the package."""
    imports = TRAINS if "$ counterpoint train" in page.read_text() else ""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    if page.name == "your-team.md":
        pytest.importorskip("langchain_openai")
        make_tiny(tmp_path / "tiny", context=2048)
    follow(page, tmp_path, surroundings(programs(), WARM_IMPORTS=imports))


def test_the_readme_runs_top_to_bottom(tmp_path: Path) -> None:
    """In one folder that was empty before: every line, in order, as it is written but for `LESS`."""
    home, folder = tmp_path / "home", tmp_path / "empty"
    shutil.copytree(ROOT / "examples" / "logs" / "claude_code", home / ".claude" / "projects")
    for session in home.rglob("*.jsonl"):
        session.touch()
    folder.mkdir()
    lines = [step.text for step in steps(ROOT / "README.md") if step.kind == "shell"]
    assert {*LESS} <= {*lines}
    assert not any("--ignore-mismatch" in line for line in lines)
    assert "$(BIN)/counterpoint demo\n" in (ROOT / "Makefile").read_text()
    follow(ROOT / "README.md", folder, surroundings(programs(), HOME=str(home), WARM_IMPORTS=TRAINS))


def installed(text: str) -> list[tuple[str, list[str]]]:
    """What a text tells people to install of ours, each with its extras; other packages by their names."""
    found = re.findall(r"pip install (?:-e )?('[^']+'|[\w.\[\],-]+)", text)
    parts = [re.fullmatch(r"'?([^\[' ]+)(?:\[([\w,-]+)\])?(?: @ [^']+)?'?", one) for one in found]
    return [(part[1], (part[2] or "").split(",") if part[2] else []) for part in parts if part]


def test_what_pages_and_errors_tell_to_install_can_be_installed() -> None:
    """From a clone or git, since no index has us; with extras that pyproject.toml has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, count = project["optional-dependencies"], 0
    places = [*PAGES, *(ROOT / "docs").rglob("*.ipynb"), *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    for page in places:
        text = page.read_text()
        for name, asked in installed(text):
            assert name != project["name"] or "counterpoint[view] @ git+URL" in text or page.name == "errors.py", page
            if name in {".", project["name"]}:
                assert {*asked} <= {*extras}, f"{page} installs {asked}"
                count += 1
    assert count > 10
    assert installed("pip install 'counterpoint[view]' or pip install '.[a,b]'") == [("counterpoint", ["view"]), (".", ["a", "b"])]


def test_the_readme_says_first_how_to_install_what_its_lines_need() -> None:
    lines = [step.text for step in steps(ROOT / "README.md") if step.kind == "shell"]
    assert lines[0].startswith("pip install")
    ready: set[str] = set()
    for line in lines:
        ready |= {extra for _, extras in installed(line) for extra in extras}
        words = line.split()
        needs = {"view": {"view"}, "train": {"train"}, "compare": {"train"}, "demo": {"train"}}.get(words[1], set())
        needs = needs | ({"plot"} if words[1:3] == ["compare", "plot"] else set())
        assert words[0] != "counterpoint" or "--quick" in words or needs <= ready, f"{line} needs {needs - ready}"


def test_the_readme_is_short_and_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(re.findall(r"[^\W\d]\w*", re.sub(r"```.*?```", "", text, flags=re.S))) < 500, "words; numbers are not counted"
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


def test_pages_that_the_code_names_exist() -> None:
    for folder in ("src", "tests", "tools", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text()):
                assert (ROOT / name).exists(), f"{path.relative_to(ROOT)} names {name}"


def test_the_documentation_stays_readable() -> None:
    """At most 60,000 words, README and decisions included."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert sum(len(page.read_text().split()) for page in pages) <= 60_000
