"""Slow or odd input: numbers without end, pipes and devices, TOML and JSON nested without end: one clear error, in linear work."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from counterpoint import InputError
from counterpoint.app.cli import main
from counterpoint.files import open_plain, read_plain, read_toml
from counterpoint.trace import schema_check, wire

TRACE = json.dumps({
    "trace_id": "t", "task_id": "k", "events": [{"id": "e1", "t": 0, "type": "message", "agent": "a"}], "edges": [],
    "rewards": {"team": 1}, "costs": {"tokens": 1, "wall_clock_s": 1},
})  # fmt: skip
PLACES = {"t": '"t": 0', "reward": '"team": 1', "cost": '"tokens": 1', "own": '"agent": "a"'}


def _with(place: str, number: str) -> bytes:
    old = PLACES[place]
    new = f'{old}, "dur": {number}' if place == "own" else old[: old.rindex(" ") + 1] + number
    return TRACE.replace(old, new).encode()


def _end(*args: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in args])
    assert isinstance(ended.value.code, int)
    return ended.value.code


# -- numbers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, "9" * 10_000, "9" * 1_000_000, "1e" + "9" * 10_000, "9" * 10_000 + "e1"])
def test_a_number_beyond_a_double_is_one_finding(place: str, number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A million digits, where 10,000 took half a minute: quadratic work would not end."""
    if place == "own" and len(number) < 4300:
        pytest.skip("a field of one's own that does not fit is kept as it is")
    (tmp_path / "x.json").write_bytes(_with(place, number))
    assert _end("store", "check", tmp_path / "x.json") in (2, 4)
    assert "beyond what a double holds" in capsys.readouterr().out


def test_the_place_of_a_number_is_found_and_a_text_is_no_number() -> None:
    text = _with("t", "1e999").replace(b'"task_id": "k"', b'"task_id": "1e999 \\"2e999"')
    found = schema_check.problems(text)
    assert [p.where for p in found.problems] == [f"byte {text.index(b'1e999, ')}"]


@pytest.mark.parametrize("number", ["1e-" + "9" * 10_000, "0." + "9" * 10_000, "1" * 309, str(2**70)])
def test_a_long_number_that_a_double_holds_is_fine(number: str) -> None:
    assert wire.decode(_with("t", number)).events[0].t >= 0


# -- what is no plain file -------------------------------------------------------------------------------------------------


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe.json"
    os.mkfifo(path)
    return path


COMMANDS = [
    ("store", "check", "FILE"), ("show", "FILE"), ("audit", "FILE"), ("credit", "FILE"), ("export", "FILE", "-o", "out.json"), ("top", "FILE"),
    ("compare", "traces", "FILE", "FILE"), ("fork", "FILE", "--at", "e1", "--do", "delete"), ("import", "FILE", "--store", "s"),
    ("papers", "ls", "--with", "FILE"), ("papers", "check", "FILE"), ("train", "net", "FILE"), ("import", "nothing", "--prices", "FILE", "--store", "s"),
    ("export", "FILE.html", "--to", "html", "-o", "out.html"),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(c[:2]))
@pytest.mark.parametrize("what", ["pipe", "device"])
def test_a_pipe_and_a_device_are_refused(
    command: tuple[str, ...], what: str, pipe: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody writes into the pipe, and the device never ends: a command that read them would not come back."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing").write_text("x")
    file = os.fspath(pipe) if what == "pipe" else "/dev/zero"
    if any("FILE." in word for word in command):
        os.mkfifo(tmp_path / "p.html")
        file = "p"
    assert _end(*(word.replace("FILE", file) for word in command)) == 2
    said = capsys.readouterr()
    assert "plain file" in said.err + said.out


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a plain file when it was looked at."""
    path = tmp_path / "file"
    path.write_text("x")
    stat = os.stat

    def swapped(at: str, **more: object) -> os.stat_result:
        found = stat(at)
        path.unlink()
        os.mkfifo(path)
        return found

    monkeypatch.setattr("counterpoint.files.os.path.isdir", lambda _: False)
    monkeypatch.setattr("counterpoint.files.os.stat", swapped)
    with pytest.raises(InputError, match="not a plain file"):
        open_plain(path)


def test_a_plain_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_plain(tmp_path / "link") == b"abc"
    with pytest.raises(InputError, match="is a directory"):
        read_plain(tmp_path)


# -- TOML and JSON without end ---------------------------------------------------------------------------------------------

DEEP = 20_000
TOML = {
    "lists": "x = " + "[" * DEEP + "]" * DEEP,
    "tables": "x = " + "{a=" * DEEP + "1" + "}" * DEEP,
    "dots": ".".join(["a"] * DEEP) + " = 1",
    "quoted dots": ".".join(['"a"'] * DEEP) + " = 1",
    "a header": "[" + " . ".join(["a"] * DEEP) + "]\nb = 1",
    "17 levels": "[" + ".".join(["a"] * 17) + "]\nb = 1",
    "digits": "seed = " + "9" * 100_000,
    "a text without end": 'a = """' + '"a' * 50_000,
    "backslashes": 'a = "' + "\\" * 100_000,
    "too much": "# x\n" * 100_000,
    "no text": "\x00",
}


@pytest.mark.parametrize("name", TOML)
def test_a_deep_or_huge_toml_is_one_clear_error(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text(TOML[name])
    with pytest.raises(InputError, match=r"nested too deeply|too large|is not valid TOML"):
        read_toml(tmp_path / "run.toml", fix="write less")
    assert _end("train", "net", tmp_path / "run.toml") == 2
    assert "defect of" not in capsys.readouterr().err


def test_an_ordinary_toml_is_read(tmp_path: Path) -> None:
    text = 'a.b.c = 1\nd = "' + "a." * 100 + '"  # ' + "b." * 100 + "\n[e]\nf = [[1, 2], [3]]\n"
    (tmp_path / "x.toml").write_text(text)
    assert read_toml(tmp_path / "x.toml", fix="") == {"a": {"b": {"c": 1}}, "d": "a." * 100, "e": {"f": [[1, 2], [3]]}}


JSON = {
    "lists": '{"trace_id":' + "[" * DEEP + "]" * DEEP + "}",
    "objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "an open list": "[" * DEEP,
    "a deep field": TRACE.replace('"agent": "a"', '"agent": "a", "extra": {"x": ' + "[" * 900 + "]" * 900 + "}"),
}


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] not in ("train",) and "--prices" not in c and "html" not in c], ids=" ".join)
def test_a_deep_json_is_no_defect(
    name: str, suffix: str, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"deep{suffix}"
    file.write_text(JSON[name] + "\n")
    assert _end(*(word.replace("FILE", os.fspath(file)) for word in command)) != 1
    assert "defect of" not in capsys.readouterr().err
