"""Every damage to a file of a store is said, or changes no answer. More of them: `python tests/damages.py 2000`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import damages
from counterpoint.errors import InputError
from counterpoint.store import Store
from counterpoint.store.journal import take_stock
from counterpoint.store.listing import list_folder
from counterpoint.store.repair import repair
from counterpoint.store.verify import verify

COUNT = int(os.environ.get("COUNTERPOINT_DAMAGES", "72"))


def test_no_damage_is_silent(tmp_path: Path) -> None:
    damages.make(tmp_path / "store")
    found = damages.trials(tmp_path / "store", COUNT, seed=40)
    assert [trial for trial in found if trial.verdict == "silent"] == []
    kinds = {trial.kind for trial in found}
    assert len(kinds) == 12, "every kind of file was damaged"
    assert sum(trial.verdict == "said" for trial in found) > COUNT // 3


def test_the_judge_knows_the_three_verdicts(tmp_path: Path) -> None:
    """A damage that nobody could notice is called silent: the last commit of a run, taken out of the journal and of its tally."""
    whole = tmp_path / "store"
    damages.make(whole)
    before = damages.answers_of_copy(whole, lambda copy: None)
    assert damages.judged(before, damages.answers_of_copy(whole, lambda copy: None)) == ("harmless", [])
    assert damages.judged(before, damages.answers_of_copy(whole, lambda copy: (copy / "head").unlink()))[0] == "said"

    def younger(copy: Path) -> None:
        (path,) = copy.glob("journal/short-*.jsonl")
        data = path.read_bytes()
        path.write_bytes(data[: data.rindex(b'{"event":')])
        take_stock(path, path.read_bytes())

    verdict, misled = damages.judged(before, damages.answers_of_copy(whole, younger))
    assert verdict == "silent"
    assert {"ls", "reading short", "writing short", "ls after"} <= set(misled)


def test_a_list_that_met_a_broken_checkpoint_says_so(tmp_path: Path) -> None:
    """An older checkpoint and the commits since give the same rows."""
    damages.make(tmp_path)
    want = list_folder(tmp_path)
    newest = max(tmp_path.glob("log/*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-9])
    found = list_folder(tmp_path)
    assert found.rows == want.rows
    assert (list(found.damaged), want.damaged) == ([newest], {})
    assert damages._ls(tmp_path).is_said


def test_a_list_that_met_a_broken_commit_is_refused(tmp_path: Path) -> None:
    damages.make(tmp_path)
    newest = max(tmp_path.glob("log/*.json"))
    newest.write_bytes(newest.read_bytes()[:-9])
    with pytest.raises(InputError, match="the store's log is damaged"):
        list_folder(tmp_path)
    assert damages._ls(tmp_path).is_said


def test_annotations_that_are_gone_are_missed(tmp_path: Path) -> None:
    damages.make(tmp_path)
    (tmp_path / "annotations.jsonl").unlink()
    with Store(tmp_path) as store:
        for ask in (store.annotations, store.rows, store.datasets, lambda: store.get("t2"), lambda: store.withdraw("a2")):
            with pytest.raises(InputError, match="the file of annotations is damaged"):
                ask()
    assert [Path(fault.file).name for fault in verify(tmp_path).faults] == ["annotations.jsonl"]
    assert repair(tmp_path).done == ["the file of annotations was missing: what it said is lost"]
    assert verify(tmp_path).faults == []
    with Store(tmp_path) as store:
        assert store.annotations() == []
