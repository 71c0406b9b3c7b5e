"""Why something failed: of the lines that a tool gave back, the one that says it."""

from __future__ import annotations

import json

import pytest

from audits.made import Story
from counterpoint.audits.failures import failures

HEAD = "Chunk ID: {}\nWall time: 0.0000 seconds\nProcess exited with code 1\nOriginal token count: 0\nOutput:\n"
CELL = "Script completed\nWall time 0.1 seconds\nOutput:\n\n"
SUITE = """============================= test session starts ==============================
platform linux -- Python 3.11.7
collected 2 items

=================================== FAILURES ===================================
>       assert add(1, 1) == 3
E       AssertionError: assert 2 == 3
E        +  where 2 = add(1, 1)
=========================== short test summary info ============================
FAILED tests/test_add.py::test_add - AssertionError: assert 2 == 3
========================= 1 failed, 1 passed in 0.12s ==========================
"""
WARNED = 'npm warn Unknown env config "verify-deps-before-run". This will stop working.\n'


def cell(code: int, output: str) -> str:
    """What a code cell shows of a command."""
    return CELL + json.dumps({"chunk_id": "98808a", "exit_code": code, "output": output}, separators=(",", ":"))


def reason(text: str, error: str | None = None) -> str | None:
    """Why a call failed that gave a text back; importers keep the beginning of it as the error."""
    story = Story()
    call = story.add("tool_call", "a", tool="Bash")
    story.add("tool_result", "a", reads=call, by="tool_dependency", tool="Bash", ok=False, text=text, error=error or text[:200])
    (found,) = failures(story.trace())
    return found.reason


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HEAD.format("8e34a0"), "Process exited with code 1"),
        (HEAD.format("04f15b") + 'zsh:1: unmatched "\n', 'zsh:1: unmatched "'),
        (HEAD.format("a0b9c2") + "total 56\n", "total 56"),
        (cell(128, "fatal: Unable to create '/r/.git/index.lock'\n"), "fatal: Unable to create '/r/.git/index.lock'"),
        (cell(1, "Scope: all\nsrc/a.ts(6,33): error TS2307: Cannot find module 'x'.\n"), "src/a.ts(6,33): error TS2307: Cannot find module 'x'."),
        ("Exit code 1\n" + SUITE, "AssertionError: assert 2 == 3"),
        (WARNED * 3 + "\n> shop@1.0.0 build\n> tsc\n\nbuild stopped\n", "build stopped"),
        (WARNED, WARNED.strip()),
        ("Exit code 1\n" + WARNED, "Exit code 1"),
        ("Exit code 1\n== a.sh ==\n== b.sh ==\n", "Exit code 1"),
        ("Exit code 1", "Exit code 1"),
        ("Exit code 128\nwarning: could not open directory 'x/': No such file\nfatal: pathspec 'y' did not match any files",
         "fatal: pathspec 'y' did not match any files"),
        ("Exit code 2\n/d/shop\nls: cannot access 'go.mod': No such file or directory", "ls: cannot access 'go.mod': No such file or directory"),
        ("Exit code 1\n# example.org/a [example.org/a.test]\na_test.go:75:79: not enough arguments\nFAIL\texample.org/a [build failed]",
         "a_test.go:75:79: not enough arguments"),
        ("Exit code 1\n[test] $ go test ./...\n?   \texample.org/a\t[no test files]\n--- FAIL: TestTill (0.13s)\nFAIL\n[test] ERROR task failed",
         "FAIL: TestTill (0.13s)"),
        ("Exit code 1\nSIM115 Use a context manager\n   --> a.py:1:2\n\nFound 1 error.", "SIM115 Use a context manager"),
        ("\x1b[31mError:\x1b[0m no till", "Error: no till"),
        ("Traceback (most recent call last):\n  File \"a\", line 1\n    x\nrequests.exceptions.ConnectTimeout: no answer\n",
         "requests.exceptions.ConnectTimeout: no answer"),
        ("Not allowed here.\nAsk first.", "Not allowed here."),
    ],
)  # fmt: skip
def test_the_telling_line(text: str, why: str) -> None:
    assert reason(text) == why


def test_a_line_that_the_error_was_cut_before_is_found_in_the_text() -> None:
    text = "Exit code 1\n" + "it is loading a part\n" * 100 + "KeyError: 'till'\n"
    assert reason(text, error=text[:200]) == "KeyError: 'till'"


def test_an_error_in_words_of_its_own_stands_as_it_is() -> None:
    assert reason("timeout after 43 s while reading the log", error="timeout") == "timeout"


def test_empty_outputs_of_one_command_are_one_kind() -> None:
    story = Story()
    for name in ("8e34a0", "08ad7e"):
        call = story.add("tool_call", "a", tool="exec")
        text = HEAD.format(name)
        story.add("tool_result", "a", reads=call, by="tool_dependency", tool="exec", ok=False, text=text, error=text)
    assert {f.kind for f in failures(story.trace())} == {"Process exited with code 1"}
