"""No changed bit in a run's folder goes unnoticed: an error that names the file, a note, or the same numbers as before."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from counterpoint.app.cli import main
from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.lab.train.evaluate import policy_of
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.train.run import train_run
from lab.train.quick import CONFIG, numbers, same

FLIPS = 60
"""In each file; with another seed each time the test is changed, not each time it runs."""
ALLOW = [CONFIG["preset"]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train_run(folder, CONFIG | {"updates": 2, "eval_every": 1, "keep_traces": 0})
    with RunFolder.open(folder, write=True) as run:  # as if it had been cut off
        run.append_alert({"update": 2, "code": "odd", "what": "something", "traces": [], "fix": "look"})
        run.set_status("interrupted")
    return folder


def told(folder: Path) -> Any:
    """All that is trusted of a run: what it says, its rows, its settings, its notes, and its checkpoints."""
    run = RunFolder.open(folder)
    found = [run.latest_checkpoint(), run.best_checkpoint()]
    sums = [(path.name, hash(run.read_checkpoint(path))) for path in found if path is not None]
    return repr([run.about, run.metrics(), run.evals(), run.alerts(), run.config(), run.notes(), run.spending(), sums])


def _outcome(folder: Path) -> Any:
    try:
        return told(folder)
    except CounterpointError as error:
        return error


FILES = ["about.json", "run.toml", "metrics.jsonl", "evals.jsonl", "alerts.jsonl", "checkpoints/last", "checkpoints/best", "LAST"]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_never_silent(name: str, whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    last = RunFolder.open(folder).latest_checkpoint()
    assert last is not None
    path = last if name == "LAST" else folder / name
    good, before, rng = path.read_bytes(), told(folder), random.Random(name)
    bits = range(8 * len(good)) if len(good) < 40 else [*range(8 * (len(good) - 4), 8 * len(good)), *rng.sample(range(8 * len(good)), FLIPS)]
    noticed = 0
    for bit in bits:
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        after = _outcome(folder)
        if isinstance(after, CounterpointError):
            assert path.name in str(after) or name == "run.toml"
            noticed += 1
        elif after != before:  # run.toml is open to a change by hand, and that is told
            assert name == "run.toml", (bit, data[max(0, bit // 8 - 20) : bit // 8 + 20])
            assert any("run.toml was changed" in line for line in RunFolder.open(folder).notes())
            noticed += 1
    assert noticed
    path.write_bytes(good)
    assert told(folder) == before


@pytest.mark.parametrize("name", ["metrics", "evals", "alerts"])
@pytest.mark.parametrize("how", ["the last", "the first", "exchanged", "all", "the file"])
def test_rows_that_are_gone_or_exchanged_are_noticed(name: str, how: str, whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    path = folder / f"{name}.jsonl"
    rows = path.read_bytes().splitlines(keepends=True)
    left = {"the last": rows[:-1], "the first": rows[1:], "exchanged": rows[::-1], "all": [], "the file": []}[how]
    if left == rows:
        pytest.skip("one row, exchanged with itself")
    path.write_bytes(b"".join(left))
    if how == "the file":
        path.unlink()
    for write in (False, True):
        with pytest.raises(InputError, match=path.name):
            getattr(RunFolder.open(folder, write=write), name)()


def _broken_last(folder: Path) -> Path:
    last = RunFolder.open(folder).latest_checkpoint()
    assert last is not None
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 4
    last.write_bytes(data)
    return last


def test_a_damaged_checkpoint_says_how_to_go_on_and_that_gives_the_same_numbers(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    last = _broken_last(folder)
    with pytest.raises(InputError, match=r"000002.pt: is damaged"):
        policy_of(RunFolder.open(folder), allow=ALLOW)
    with pytest.raises(InputError, match=r"000002.pt: is damaged.*000002.pt.broken.*goes on from 000001.pt"):
        train_run(folder, {}, resume=True, allow=ALLOW)
    last.rename(f"{last}.broken")
    with pytest.raises(SystemExit) as ended:
        main(["train", "resume", str(folder), "--allow", *ALLOW])
    assert ended.value.code == 0
    assert "checkpoint 000002.pt is gone: it goes on from 000001.pt" in capsys.readouterr().err
    clean = Path(shutil.copytree(whole, tmp_path / "clean"))
    train_run(clean, {}, resume=True, allow=ALLOW)
    assert numbers(folder)[:2] == numbers(clean)[:2]


def test_what_was_changed_by_hand_is_told_and_done(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    file = folder / "run.toml"
    file.write_text(file.read_text().replace("updates = 2", "updates = 3"))
    with pytest.raises(SystemExit) as ended:
        main(["train", "resume", str(folder), "--allow", *ALLOW])
    assert ended.value.code == 0
    assert "run.toml was changed since the run began: updates is 3, was 2" in capsys.readouterr().err
    assert RunFolder.open(folder).about["updates"] == 3


def test_a_run_of_an_older_version_opens_and_says_that_it_has_no_sums(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    about = json.loads((folder / "about.json").read_text())
    (folder / "about.json").write_text(json.dumps({k: v for k, v in about.items() if k not in ("sum", "sums", "rows", "settings")}))
    for name in ("metrics", "evals", "alerts"):
        path = folder / f"{name}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({k: v for k, v in row.items() if k != "sum"}) + "\n" for row in rows))
    for path in (folder / "checkpoints").iterdir():
        data = path.read_bytes()
        path.write_bytes(data[: data.rindex(b"\ncounterpoint-sum ")] if path.suffix else data.split()[0] + b"\n")
    assert "has no sums" in RunFolder.open(folder).notes()[0]
    train_run(folder, {}, resume=True, allow=ALLOW)
    clean = Path(shutil.copytree(whole, tmp_path / "clean"))
    train_run(clean, {}, resume=True, allow=ALLOW)
    same(folder, clean)
    assert "sum" not in json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])


def test_without_any_checkpoint_a_run_says_that_it_begins_again(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    for path in (folder / "checkpoints").glob("*.pt"):
        path.unlink()
    assert "it begins again" in RunFolder.open(folder).notes()[0]
    with pytest.raises(NotFound):
        policy_of(RunFolder.open(folder), allow=ALLOW)
