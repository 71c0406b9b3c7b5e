"""Commands run as a user would, in an empty folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from counterpoint.app.cli import main

Ends = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ends_of(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Ends]:
    """For a command: a function of its arguments that gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def of(command: str) -> Ends:
        def run(*arguments: str | Path) -> tuple[int, str, str]:
            with pytest.raises(SystemExit) as exit_:
                main([command, *map(os.fspath, arguments)])
            out = capsys.readouterr()
            assert isinstance(exit_.value.code, int)
            return exit_.value.code, out.out, out.err

        return run

    return of


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Ends:
    """A function of the words of a command line that gives exit code, stdout and stderr."""

    def call(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in args])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call
