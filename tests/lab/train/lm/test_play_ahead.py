"""Teams that are played while the update before is learned: the same run whatever the speed, one update old, kept by checkpoints."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from tests.lab.train.lm.test_run import SHORT, config, timeless  # noqa: E402
from tests.lm_help import TEXTS  # noqa: E402
from tests.tiny_help import make_tiny  # noqa: E402

from counterpoint.lab.lm.network import read  # noqa: E402
from counterpoint.lab.train.folder import RunFolder  # noqa: E402
from counterpoint.lab.train.lm.play_ahead import PlayAhead, PlayedGroups  # noqa: E402
from counterpoint.lab.train.lm.run import train_language  # noqa: E402
from counterpoint.lab.train.lm.stopwatch import Stopwatch  # noqa: E402
from counterpoint.lab.train.lm.team_batch import TeamBatch  # noqa: E402
from counterpoint.store import Store  # noqa: E402
from counterpoint.trace import Event, Trace  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny(tmp_path_factory.mktemp("tiny"), texts=TEXTS, words=512, spread=0.15, context=2048)


def ahead(model: Path, **learn: Any) -> dict[str, Any]:
    told = config(model, **SHORT, keep_episodes=1)
    told["learn"] |= {"updates": 4, "ahead": True, "lr": 0.05, **learn}
    return told


def weights(run: Path) -> dict[str, Any]:
    return read(run / "model")[1]


def test_a_run_that_plays_ahead_is_the_same_twice_and_when_it_is_cut_off(model: Path, tmp_path: Path) -> None:
    whole = train_language(tmp_path / "whole", ahead(model))
    again = train_language(tmp_path / "again", ahead(model))
    assert timeless(again.metrics()) == timeless(whole.metrics())
    for cut in (3, 4):

        def stop(kind: str, row: Any, cut: int = cut) -> None:
            if kind == "update" and row["update"] == cut:
                raise KeyboardInterrupt

        folder = tmp_path / f"cut{cut}"
        with pytest.raises(KeyboardInterrupt):
            train_language(folder, ahead(model), progress=stop)
        assert RunFolder.open(folder).about["status"] == "interrupted"
        back = train_language(folder, {}, resume=True, allow=["tests.lm_help:colours"])
        assert timeless(back.metrics()) == timeless(whole.metrics())
        assert all(torch.equal(weights(folder)[n], w) for n, w in weights(tmp_path / "whole").items())


def test_teams_are_one_update_old_and_say_so(model: Path, tmp_path: Path) -> None:
    """The first update is what it is without; the second is of teams that the weights before the first one played."""
    rows, versions = {}, {}
    for is_ahead in (True, False):
        told = config(model, learn={"updates": 3, "ahead": is_ahead}, keep_episodes=1, eval_episodes=2)
        run = train_language(tmp_path / str(is_ahead), told)
        rows[is_ahead] = [row for row in timeless(run.metrics()) if row["phase"] == "learn"]
        with Store(run.store_path, read_only=True) as store:
            played = [store.get(name) for name in store.ids() if name.startswith("u")]
        versions[is_ahead] = [t.meta["model"]["version"] for t in played]
    first = rows[True][0]["update"] - 1
    assert versions == {
        True: [f"update {first}", f"update {first}", f"update {first + 1}"],
        False: [f"update {first}", f"update {first + 1}", f"update {first + 2}"],
    }
    assert rows[True][0] == rows[False][0]
    assert rows[True][0]["gradient"] > 0
    assert rows[True][1] != rows[False][1]


def test_what_was_played_is_packed_and_unpacked() -> None:
    traces = [Trace(trace_id=name, task_id="q", events=[Event(id="e", t=0, type="message", agent="a")], rewards={"team": x})
              for name, x in (("a", 1.0), ("b", 0.0), ("c", 0.5))]  # fmt: skip
    played = PlayedGroups(TeamBatch(traces), [traces[0], traces[2]], 0.5, 0.25, {"play": 1.0}, {"lost": 1})
    back = PlayedGroups.unpacked(played.packed())
    assert [t.trace_id for t in back.batch.traces] == ["a", "b", "c"]
    assert back.kept == [back.batch.traces[0], back.batch.traces[2]]
    assert (back.flat, back.reused, back.seconds, back.lost) == (0.5, 0.25, {"play": 1.0}, {"lost": 1})


def test_what_goes_wrong_while_teams_are_played_is_raised_where_they_are_taken() -> None:
    one, there = PlayAhead(is_gpu=False), threading.Event()

    def wrong() -> PlayedGroups:
        there.wait()
        raise ValueError("a bug")

    assert one.take() is None
    one.begin(wrong)
    there.set()
    with pytest.raises(ValueError, match="a bug"):
        one.take()
    assert one.take() is None
    one.begin(wrong)
    one.close()  # however that ends


def test_a_stopwatch_adds_the_parts_up_and_begins_anew() -> None:
    watch = Stopwatch()
    watch.add("play", 1.5)
    watch.add("play", 0.5)
    with watch.part("credit"), watch.device_part("forward"):
        pass
    assert list(watch.each("layout", [1, 2, 3])) == [1, 2, 3]
    told = watch.take()
    assert told["play"] == 2.0
    assert set(told) == {"play", "credit", "forward", "layout"}
    assert all(seconds >= 0 for seconds in told.values())
    assert watch.take() == {}
