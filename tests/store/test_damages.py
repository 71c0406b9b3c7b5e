"""Every damage to a file of a store is said, or changes no answer. More of them: `python tests/damages.py 2000`."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

import damages
from counterpoint.errors import InputError
from counterpoint.store import Store
from counterpoint.store.journal import take_stock
from counterpoint.store.listing import list_folder
from counterpoint.store.repair import repair
from counterpoint.store.verify import verify

COUNT = int(os.environ.get("COUNTERPOINT_DAMAGES", "24"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("damages") / "store"
    damages.make(folder)
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def test_no_damage_is_silent(made: Path) -> None:
    seed = random.randrange(1 << 32)  # other damages in every run
    found = damages.trials(made, COUNT, seed)
    assert [trial for trial in found if trial.verdict == "silent"] == [], seed
    kinds = {trial.kind for trial in found}
    assert len(kinds) == 12, "every kind of file was damaged"
    assert sum(trial.verdict == "said" for trial in found) > COUNT // 3


def test_the_judge_knows_the_three_verdicts(made: Path) -> None:
    """A damage that nobody could notice is called silent: the last commit of a run, taken out of the journal and of its tally."""
    before = damages.answers_of_copy(made, lambda copy: None)
    assert damages.judged(before, damages.answers_of_copy(made, lambda copy: None)) == ("harmless", [])
    assert damages.judged(before, damages.answers_of_copy(made, lambda copy: (copy / "head").unlink()))[0] == "said"

    def younger(copy: Path) -> None:
        (path,) = copy.glob("journal/short-*.jsonl")
        data = path.read_bytes()
        path.write_bytes(data[: data.rindex(b'{"event":')])
        take_stock(path, path.read_bytes())

    verdict, misled = damages.judged(before, damages.answers_of_copy(made, younger))
    assert verdict == "silent"
    assert {"ls", "reading short", "writing short", "ls after"} <= set(misled)


def test_a_list_that_met_a_broken_checkpoint_says_so(copy: Path) -> None:
    """An older checkpoint and the commits since give the same rows."""
    want = list_folder(copy)
    newest = max(copy.glob("log/*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-9])
    found = list_folder(copy)
    assert found.rows == want.rows
    assert (list(found.damaged), want.damaged) == ([newest], {})
    assert damages._ls(copy).is_said


def test_a_list_that_met_a_broken_commit_is_refused(copy: Path) -> None:
    newest = max(copy.glob("log/*.json"))
    newest.write_bytes(newest.read_bytes()[:-9])
    with pytest.raises(InputError, match="the store's log is damaged"):
        list_folder(copy)
    assert damages._ls(copy).is_said


def test_annotations_that_are_gone_are_missed(copy: Path) -> None:
    (copy / "annotations.jsonl").unlink()
    with Store(copy) as store:
        for ask in (store.annotations, store.rows, store.datasets, lambda: store.get("t2"), lambda: store.withdraw("a2")):
            with pytest.raises(InputError, match="the file of annotations is damaged"):
                ask()
    assert [Path(fault.file).name for fault in verify(copy).faults] == ["annotations.jsonl"]
    assert repair(copy).done == ["the file of annotations was missing: what it said is lost"]
    assert verify(copy).faults == []
    with Store(copy) as store:
        assert store.annotations() == []
