"""A run's folder: what each row needs, what is counted and when, which checkpoint is named, what is refused."""

from __future__ import annotations

import math
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.lab.train.folder import FORMAT, STATUSES, TOTALS, RunFolder, check_format, format_of
from counterpoint.lab.train.training import checkpoint_bytes, read_checkpoint
from counterpoint.lab.worlds.teamworld.config import Config

ABOUT: dict[str, Any] = {"preset": "p", "world": "w", "world_version": "1", "world_config": {}, "seed": 3}


def run(path: Path) -> RunFolder:
    return RunFolder.create(path / "run", {"seed": 3}, ABOUT)


def row(update: int, **more: Any) -> dict[str, Any]:
    return {"update": update, "episodes": 10 * update, "forks": update, "calls": 100 * update, "decisions": 7, **more}


def test_a_new_run_has_spent_nothing_and_names_its_versions(tmp_path: Path) -> None:
    with run(tmp_path) as made:
        about = made.about
        assert (about["format"], about["run"], about["status"], about["updates"]) == (FORMAT, "run", "running", 0)
        assert about["spent"] == dict.fromkeys(TOTALS, 0) == made.spending()
        assert about["versions"]["python"] == platform.python_version()
        assert about["versions"]["numpy"] == np.__version__
        assert set(about["versions"]) == {"counterpoint", "python", "numpy", "torch"}
        assert about["started_at"].endswith("+00:00")
        assert made.store_path == tmp_path / "run" / "store"
        assert made.config() == {"seed": 3}
        about["seed"] = 99
        assert made.about["seed"] == 3
    assert format_of(tmp_path / "run") == FORMAT == 1
    assert (tmp_path / "run" / "checkpoints").is_dir()
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_folders_above_it_are_made_and_what_is_closed_takes_no_rows(tmp_path: Path) -> None:
    made = RunFolder.create(tmp_path / "some" / "where" / "run", {"seed": 3}, ABOUT)
    made.append_metrics(row(1))
    made.close()
    with pytest.raises(Refused, match="is open for reading only"):
        made.append_metrics(row(2))
    assert len(RunFolder.open(made.path).metrics()) == 1


@pytest.mark.parametrize("name", ["preset", "world", "world_version", "world_config", "seed"])
def test_what_a_run_must_state(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"about: a run needs {name}; state every one"):
        RunFolder.create(tmp_path / "run", {}, {k: v for k, v in ABOUT.items() if k != name})
    assert not (tmp_path / "run").exists()


def test_formats() -> None:
    check_format(FORMAT, "x")
    with pytest.raises(InputError, match="x: is of format 2; this version reads format 1"):
        check_format(2, "x")
    with pytest.raises(InputError, match="is of no stated format"):
        check_format(None, "x")
    with pytest.raises(NotFound, match="there is no run here"):
        format_of("/nowhere/at/all")


def test_totals_are_those_of_the_last_update_until_it_is_finished(tmp_path: Path) -> None:
    with run(tmp_path) as made:
        made.append_metrics(row(1))
        made.append_metrics(row(2, decisions=None))
        assert made.spending() == {"episodes": 20, "forks": 2, "calls": 200, "decisions": 0, "charged": 200}
        made.set_status("finished", spent={"episodes": 1, "calls": 5, "charged": 7})
        assert made.spending() == {"episodes": 1, "forks": 0, "calls": 5, "decisions": 0, "charged": 7}
        made.change(spent=None)
        assert made.spending() == dict.fromkeys(TOTALS, 0)


def test_statuses(tmp_path: Path) -> None:
    assert STATUSES == ("running", "finished", "interrupted", "failed")
    with run(tmp_path) as made:
        made.set_status("failed", why="it broke", updates=4)
        assert (made.about["status"], made.about["why"], made.about["updates"]) == ("failed", "it broke", 4)
        made.set_status("running")
        assert made.about["status"] == "running"
        assert "why" not in made.about
        with pytest.raises(InputError, match="no status 'done'; one of running, finished, interrupted, failed"):
            made.set_status("done")
    again = RunFolder.open(tmp_path / "run")
    assert again.about["status"] == "running"
    assert "why" not in again.about
    with pytest.raises(Refused, match="is open for reading only"):
        again.change(seed=4)


@pytest.mark.parametrize("name", [name for name in TOTALS if name != "charged"])
def test_a_row_of_metrics_has_every_total(tmp_path: Path, name: str) -> None:
    with run(tmp_path) as made, pytest.raises(InputError, match=f"a row of metrics needs {name}"):
        made.append_metrics({k: v for k, v in row(1).items() if k != name})


def test_updates_go_on(tmp_path: Path) -> None:
    with run(tmp_path) as made:
        made.append_metrics(row(0))
        made.append_metrics(row(1))
        for update in (1, 0):
            with pytest.raises(InputError, match=rf"metrics\.jsonl: update {update} comes after update 1; go back with resume"):
                made.append_metrics(row(update))
        for wrong in (-1, None, 1.5, "2"):
            with pytest.raises(InputError, match="a row needs its update, not"):
                made.append_metrics(row(2) | {"update": wrong})
        alert = {"code": "c", "what": "w"}
        made.append_alert({"update": 3, **alert})
        made.append_alert({"update": 3, **alert})  # one update may have several
        with pytest.raises(InputError, match="update 2 comes after update 3"):
            made.append_alert({"update": 2, **alert})
        for name in ("code", "what"):
            with pytest.raises(InputError, match=f"an alert needs {name}"):
                made.append_alert({"update": 4, **{k: v for k, v in alert.items() if k != name}})
        assert [a["update"] for a in made.alerts()] == [3, 3]


def test_an_evaluation_has_one_number_per_task(tmp_path: Path) -> None:
    with run(tmp_path) as made:
        full = {"update": 0, "first_seed": 5, "values": [1.0, 2.0], "agents": [1, 2], "rounds": [3, 4], "calls_made": [5, 6]}
        made.append_eval(full)
        made.append_eval(full)
        for name in ("agents", "rounds", "calls_made"):
            with pytest.raises(InputError, match=f"{name} has 1 numbers for 2 tasks; one per task"):
                made.append_eval(full | {name: [1]})
        for name in ("first_seed", "values"):
            with pytest.raises(InputError, match="an evaluation needs first_seed and values"):
                made.append_eval({k: v for k, v in full.items() if k != name})
        assert len(made.evals()) == 2


def test_columns_of_columns(tmp_path: Path) -> None:
    with run(tmp_path) as made:
        made.append_metrics(row(1, loss=2, entropy={"spawn": 0.5}, name="x"))
        made.append_metrics(row(2, entropy={"spawn": None}))
        found = made.columns("loss", "entropy.spawn", "name", "update")
        assert found["loss"][0] == 2
        assert found["entropy.spawn"][0] == 0.5
        assert all(math.isnan(found[n][1]) for n in ("loss", "entropy.spawn"))
        assert np.isnan(found["name"]).all()
        assert found["update"].tolist() == [1, 2]
        assert found["update"].dtype == np.float64


def test_going_back_drops_what_came_after_the_update(tmp_path: Path) -> None:
    with run(tmp_path) as made:
        for update in (1, 2, 3):
            made.append_metrics(row(update))
            made.append_eval({"update": update, "first_seed": 0, "values": []})
            made.add_checkpoint(update, b"x", is_best=update == 3)
        made.set_status("failed", why="x")
        made.resume(2)
        assert [r["update"] for r in made.metrics()] == [1, 2] == [r["update"] for r in made.evals()]
        assert (made.about["status"], made.about["updates"], made.about["spent"]["calls"]) == ("running", 2, 200)
        assert (made.latest_checkpoint() or Path()).name == "000002.pt"
        assert made.best_checkpoint() is None
        made.resume(0)
        assert made.metrics() == []
        assert made.about["spent"] == dict.fromkeys(TOTALS, 0)
        assert made.latest_checkpoint() is None


def test_which_checkpoints_stay_and_are_named(tmp_path: Path) -> None:
    with run(tmp_path) as made:
        assert made.latest_checkpoint() is made.best_checkpoint() is None
        for update in (5, 10, 15, 20, 25):
            path = made.add_checkpoint(update, b"%d" % update, **({"is_best": True} if update == 5 else {}))
            assert path.name == f"{update:06d}.pt"
        names = sorted(p.name for p in (made.path / "checkpoints").glob("*.pt"))
        assert names == ["000005.pt", "000015.pt", "000020.pt", "000025.pt"]
        assert (made.best_checkpoint() or Path()).name == "000005.pt"
        assert (made.latest_checkpoint() or Path()).name == "000025.pt"
        (made.path / "checkpoints" / "last").unlink()
        (made.path / "checkpoints" / "notes.pt").write_bytes(b"")
        assert (made.latest_checkpoint() or Path()).name == "000025.pt"
        (made.path / "checkpoints" / "last").write_text("000099.pt\n")
        assert (made.latest_checkpoint() or Path()).name == "000025.pt"


def test_settings_that_cannot_be_read(tmp_path: Path) -> None:
    with run(tmp_path) as made:
        (made.path / "run.toml").write_text("= broken")
        with pytest.raises(InputError, match=r"run\.toml: is not valid TOML"):
            made.config()
        (made.path / "run.toml").unlink()
        with pytest.raises(InputError, match=r"run\.toml: is missing; restore the file"):
            made.config()


# -- checkpoints


def test_what_is_held_comes_back() -> None:
    held = {"net": {"w": torch.arange(3.0)}, "array": np.arange(4.0), "n": 3, "text": "é", "flag": True, "scalar": np.float64(2.5)}
    found = read_checkpoint(checkpoint_bytes(held), "here")
    assert torch.equal(found["net"]["w"], held["net"]["w"])  # type: ignore[index]
    assert np.array_equal(found["array"], held["array"])  # type: ignore[arg-type]
    assert {k: found[k] for k in ("n", "text", "flag", "scalar")} == {"n": 3, "text": "é", "flag": True, "scalar": 2.5}
    for kind in ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u8", "?"):
        array = np.ones(2, kind)
        assert read_checkpoint(checkpoint_bytes({"a": array}), "here")["a"].dtype == array.dtype
    assert isinstance(read_checkpoint(checkpoint_bytes({"c": Config(vote_items=1)}), "here")["c"], Config)


class Evil:
    def __reduce__(self) -> Any:
        return print, ("carried out",)


def test_nothing_that_stands_in_a_checkpoint_is_carried_out(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="here: "):
        read_checkpoint(checkpoint_bytes({"x": Evil()}), "here")
    assert capsys.readouterr().out == ""
    with pytest.raises(InputError, match="here: "):
        read_checkpoint(b"nothing", "here")
