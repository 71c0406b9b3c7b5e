"""`counterpoint compare runs` and `compare presets`: tables, JSON, every reason to refuse, and what would be trained."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.lab.train.folder import RunFolder, _about_bytes
from counterpoint.store import Store
from counterpoint.testing import synthetic_trace
from lab.app.runs_made import FIRST, TASKS, made


@pytest.fixture
def ends(ends_of: Any) -> Any:
    """Run `compare runs`, or another part, in an empty folder: exit code, stdout, stderr."""
    runs, every = ends_of("compare runs"), ends_of("compare")
    return lambda *arguments: (every if arguments[:1] == ("presets",) else runs)(*arguments)


def two_sides(folder: Path, **second: Any) -> None:
    for seed in range(3):
        made(folder / f"a{seed}", "grpo", seed, mean=5.0)
        made(folder / f"b{seed}", "c3", seed, **{"mean": 6.0, **second})


def test_two_sides_with_labels_and_patterns(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path)
    code, out, err = ends("old=a*", "new=b*")
    assert code == 0, err
    assert "3 training seeds each · paired on 40 tasks of s1 and on training seeds · 10,000 bootstrap draws" in " ".join(out.split())
    assert "budgets within 0.0% in calls and rounds" in " ".join(out.split())
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line[:3] in ("old", "new")}
    assert rows["new"][-3:] == ["40", "0", "0"]  # better, worse, same
    assert ends("old=a*", "new=b*")[1] == out


def test_the_same_as_json_by_preset_with_another_baseline(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path)
    code, out, _ = ends("a*", "b*", "--baseline", "c3", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["comparable"], found["baseline"], found["draws"]) == (True, "c3", 10_000)
    assert found["tasks"] == {"first": FIRST, "last": FIRST + TASKS - 1, "count": TASKS, "left_out": 0}
    assert [side["label"] for side in found["sides"]] == ["grpo", "c3"]
    for side in found["sides"]:
        assert side["low"] < side["mean"] < side["high"]
        assert side["share_of_optimum"] == pytest.approx(side["mean"] / 10)
        assert 10 <= side["calls_per_episode"] < 20
        assert side["spent_per_run"]["calls"] == 1000
    (diff,) = found["differences"]
    means = {side["label"]: side["mean"] for side in found["sides"]}
    assert diff["diff"] == pytest.approx(means["grpo"] - means["c3"])
    assert diff["low"] < diff["diff"] < diff["high"] < 0
    assert diff["p"] == diff["p_holm"] < 0.05
    assert diff["paired_seeds"] == [0, 1, 2]
    assert [loss["task"] for loss in diff["losses"]] == sorted(
        (loss["task"] for loss in diff["losses"]), key=lambda t: next(x["diff"] for x in diff["losses"] if x["task"] == t)
    )
    assert len(diff["losses"]) == 3


def test_training_seeds_without_a_partner_are_named(ends: Any, tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        made(tmp_path / f"a{seed}", "grpo", seed, mean=5.0)
    for seed in (1, 2, 5):
        made(tmp_path / f"b{seed}", "c3", seed, mean=6.0)
    code, out, err = ends("a*", "b*")
    assert code == 0, err
    told = " ".join(out.split())
    assert "3 training seeds each · paired on 40 tasks of s1 and on training seeds 1, 2 only" in told
    assert "c3 minus grpo is over training seeds 1, 2, which both have; left out of it, not of the means: 5 of c3 and 0 of grpo" in told
    (diff,) = json.loads(ends("a*", "b*", "--json")[1])["differences"]
    assert (diff["paired_seeds"], diff["left_out_seeds"]) == ([1, 2], {"c3": [5], "grpo": [0]})
    made(tmp_path / "b0", "c3", 0, mean=6.0)  # 1 more on this side, the other three are paired
    told = " ".join(ends("a*", "b*")[1].split())
    assert "paired on 40 tasks of s1 and on training seeds 0, 1, 2 only" in told
    assert "left out of it, not of the means: 5 of c3" in told


def test_another_metric_says_higher_and_lower(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path)
    code, out, _ = ends("a*", "b*", "--metric", "agents")
    assert code == 0
    assert "higher" in out
    assert "better" not in out
    assert json.loads(ends("a*", "b*", "--metric", "calls", "--json")[1])["sides"][0]["share_of_optimum"] is None
    code, _, err = ends("a*", "b*", "--metric", "agentz")
    assert code == 2
    assert "did you mean 'agents'?" in err


def test_one_seed_prints_and_says_what_it_cannot(ends: Any, tmp_path: Path) -> None:
    made(tmp_path / "a", "grpo")
    made(tmp_path / "b", "c3", mean=6.0)
    code, out, _ = ends("a", "b")
    assert code == 0
    assert "intervals are over" in out
    assert json.loads(ends("a", "b", "--json")[1])["differences"][0]["over_seeds"] is False


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"calls": 1200}, "spent 1,200 calls and rounds a run, grpo 1,000: more than 5% apart"),
        ({"world": "s2"}, "has world s2"),
        ({"world_version": "2"}, "has world version 2"),
        ({"world_config": {"horizon": 30}}, "differ in horizon 30 against 20"),
        ({"first": 20_000}, "held-out seeds 20000 to 20039"),
        ({"status": "running"}, "is running, not finished"),
        ({"status": "failed"}, "is failed, not finished (NaN loss)"),
        ({"steered": True}, "was steered"),
    ],
)
def test_what_is_not_comparable_is_refused_with_the_reason(ends: Any, tmp_path: Path, second: dict[str, Any], words: str) -> None:
    two_sides(tmp_path, **second)
    code, out, err = ends("a*", "b*")
    assert (code, out) == (5, "")
    assert words in err
    assert "--ignore-mismatch" in err
    code, out, err = ends("a*", "b*", "--ignore-mismatch")
    if "first" in second:  # with no task in common there is nothing to print
        assert code == 5
        assert "no held-out task in common" in err
        return
    assert code == 0
    assert out.startswith("warning: not comparable")
    assert words in " ".join(out.split())
    found = json.loads(ends("a*", "b*", "--ignore-mismatch", "--json")[1])
    assert not found["comparable"]
    assert any(words in reason for reason in found["reasons"])


def test_a_run_that_kept_a_steered_trace_is_not_comparable(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path)
    with Store(tmp_path / "b1" / "store") as store:
        store.add(replace(synthetic_trace(2, 5, trace_id="kept"), meta={"steered": True}))
    code, _, err = ends("a*", "b*")
    assert code == 5
    assert "b1 kept 1 trace that was steered by hand" in err


def test_five_percent_is_near_enough(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path, calls=1050)
    code, out, _ = ends("a*", "b*")
    assert code == 0
    assert "budgets within 5.0% in calls and rounds" in " ".join(out.split())


def test_another_format_is_refused_and_alone_is_bad_input(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path)
    about = tmp_path / "b1" / "about.json"
    said = {k: v for k, v in json.loads(about.read_text()).items() if k != "sum"}
    about.write_bytes(_about_bytes(said | {"format": 2}))
    code, _, err = ends("a*", "b*")
    assert code == 5
    assert "format 2" in err
    code, _, err = ends("b1", "b1")
    assert code == 2
    assert "this version reads format 1" in err


def test_tasks_without_a_number_are_left_out(ends: Any, tmp_path: Path) -> None:
    holes = [None if t in (3, 5) else 1.0 + t for t in range(TASKS)]
    for name, preset in (("a", "grpo"), ("b", "c3")):
        for seed in range(2):
            made(
                tmp_path / f"{name}{seed}",
                preset,
                seed,
                extra={"odd": holes if name == "b" else [float(t) for t in range(TASKS)]},
            )
    code, out, _ = ends("a*", "b*", "--metric", "odd")
    assert code == 0
    assert "2 tasks are left out" in out
    assert "paired on 38 tasks" in out
    assert json.loads(ends("a*", "b*", "--metric", "odd", "--json")[1])["differences"][0]["diff"] == pytest.approx(1.0)


def test_other_bad_calls(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path)
    made(tmp_path / "empty", "c3", 9, updates=0)
    made(tmp_path / "twin", "c3", 1)
    (tmp_path / "plain").mkdir()
    for arguments, code, words in [
        ([], 2, "no run is named"),
        (["a*"], 2, "nothing to compare"),
        (["a*", "nowhere*"], 3, "no run here"),
        (["a*", "x=nowhere"], 3, "no run here"),
        (["a*", "plain"], 2, "is not a run"),
        (["a*", "b*", "--baseline", "c33"], 3, "did you mean 'c3'?"),
        (["a*", "b*", "twin"], 2, "several runs of c3 have training seed 1"),
        (["x=a0", "y=a0"], 2, "is on two sides"),
        (["a*", "b*", "empty"], 5, "has no evaluation"),
        (["a*", "b*", "--seeds", "3"], 2, "No such option '--seeds'"),
        (["presets", "no_such", "neither", "--world", "s1"], 3, "no preset named"),
    ]:
        got = ends(*arguments)
        assert got[0] == code, (arguments, got)
        assert words in got[2], (arguments, got)


def test_runs_of_one_preset_with_other_settings_are_not_taken_for_seeds_of_it(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path)
    toml = tmp_path / "b1" / "run.toml"
    before = toml.read_text()
    toml.write_text("eval_every = 77\n" + before)
    assert ends("a*", "b*")[0] == 0  # how often it is looked at is no other way
    toml.write_text("staleness = 3\n" + before)
    code, _, err = ends("a*", "b*")
    assert (code, "is c3 like b0, with another staleness" in err) == (2, True)
    toml.write_text(before + "\n[learn]\nlr = 0.5\n")
    code, _, err = ends("a*", "b*")
    assert (code, "is c3 like b0, with another learn.lr" in err, "LABEL=" in err) == (2, True, True)
    assert ends("a*", "new=b*")[0] == 0  # somebody says so


def test_a_run_by_its_name_in_runs_and_named_twice(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path / "runs")
    code, out, _ = ends("a0", "a1", "a1", "runs/a2", "b0", "b1", "b2", "--json")
    assert code == 0
    assert [side["seeds"] for side in json.loads(out)["sides"]] == [[0, 1, 2], [0, 1, 2]]


@pytest.fixture
def presets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two presets that need not be shipped yet: nothing here trains."""
    from counterpoint import registry

    ids = registry.ids
    monkeypatch.setattr(registry, "ids", lambda kind: ["c3", "dr_mas", "grpo"] if kind == "preset" else ids(kind))


@pytest.mark.usefixtures("presets")
def test_what_would_be_trained(ends: Any, tmp_path: Path) -> None:
    asked = ["presets", "grpo", "dr-mas", "--world", "S1", "--seeds", "2", "--seed", "4", "--cap", "calls=500", "--set", "horizon=9"]
    code, out, err = ends(*asked, "--dry-run", "--json")
    assert code == 0, err
    found = json.loads(out)["would_train"]
    assert [(one["preset"], one["seed"]) for one in found] == [("grpo", 4), ("dr_mas", 4), ("grpo", 5), ("dr_mas", 5)]
    assert found[0] == {
        "folder": "runs/grpo-s1-4", "preset": "grpo", "world": "s1", "seed": 4, "set": {"horizon": 9}, "budget_calls": 500,
    }  # fmt: skip
    assert "runs/dr_mas-s1-5" in ends(*asked, "--dry-run")[1]
    suite = json.loads(ends("presets", "grpo", "c3", "--world", "width", "--dry-run", "--json")[1])["would_train"][0]
    assert (suite["folder"], len(suite["mix"])) == ("runs/grpo-width-0", 3)
    assert list(tmp_path.iterdir()) == []
    for arguments, code, words in [
        (["presets", "grpo", "--world", "s1"], 2, "two presets"),
        (["presets", "grpo", "grpo", "--world", "s1"], 2, "two presets"),
        (["presets", "grpo", "c3"], 2, "presets need a world"),
        (["presets", "grpo", "c3", "--world", "no_world"], 3, "no world named"),
        (["presets", "grpo", "c3", "--world", "widht"], 3, "did you mean 'width'?"),
        (["presets", "grpo", "gpro", "--world", "s1"], 3, "did you mean 'grpo'?"),
    ]:
        got = ends(*arguments)
        assert got[0] == code, (arguments, got)
        assert words in got[2], (arguments, got)


@pytest.mark.usefixtures("presets")
def test_finished_runs_of_the_same_settings_are_not_trained_again(ends: Any, tmp_path: Path) -> None:
    for seed in range(2):
        for preset, mean in (("grpo", 5.0), ("c3", 6.0)):
            made(tmp_path / "out" / f"{preset}-s1-{seed}", preset, seed, mean=mean)
    asked = ["presets", "grpo", "c3", "--world", "s1", "--seeds", "2", "-o", "out"]
    code, out, err = ends(*asked, "--json")
    assert code == 0, err
    assert err.count("is finished already") == 4
    assert json.loads(out)["differences"][0]["diff"] > 0.5
    code, _, err = ends(*asked, "--set", "horizon=9")
    assert code == 2
    assert "other settings" in err
    with RunFolder.open(tmp_path / "out" / "c3-s1-1", write=True) as run:
        run.set_status("interrupted")
    code, _, err = ends(*asked)
    assert code == 2
    assert "train resume out/c3-s1-1" in err


@pytest.mark.usefixtures("presets")
def test_presets_are_trained_and_then_compared(ends: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def train_run(folder: Path, config: dict[str, Any], **how: Any) -> RunFolder:
        """Stands for the training, which takes minutes: it writes the run that was asked for."""
        asked.append(config)
        if len(asked) == 3:
            raise KeyboardInterrupt
        made(folder, config["preset"], config["seed"], mean={"grpo": 5.0, "c3": 6.0}[config["preset"]])
        return RunFolder.open(folder)

    monkeypatch.setitem(sys.modules, "counterpoint.lab.train.run", SimpleNamespace(train_run=train_run))
    arguments = ["presets", "grpo", "c3", "--world", "s1", "--seeds", "2", "--cap", "calls=1000"]
    code, _, err = ends(*arguments)
    assert code == 130
    assert "counterpoint train resume runs/grpo-s1-1" in err
    code, out, err = ends(*arguments)  # what is finished is not trained again
    assert code == 0, err
    assert asked[0] == {"preset": "grpo", "world": "s1", "seed": 0, "set": {}, "budget_calls": 1000}
    assert [(c["preset"], c["seed"]) for c in asked] == [("grpo", 0), ("c3", 0), ("grpo", 1), ("grpo", 1), ("c3", 1)]
    assert "2 training seeds each" in out
    assert "training c3, seed 1 (4 of 4)" in err
    told = json.loads(ends(*arguments, "--json")[1])
    found = cpt.compare(presets=["grpo", "c3"], world="s1", seeds=2, budget=1000)
    assert told == {"schema": told["schema"], **json.loads(json.dumps(found.as_dict()))}
    for wrong, words in [({}, "one of the two"), ({"world": "s1"}, "one of the two"), ({"presets": ["c3"]}, "two presets")]:
        with pytest.raises(cpt.InputError, match=words):
            cpt.compare(**wrong)
    with pytest.raises(cpt.InputError, match="seeds goes with presets"):
        cpt.compare("grpo-*", seeds=2)


def test_a_preset_that_ends_early_does_not_make_its_own_comparison_unfair(ends: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours ends with trials that leave some of the budget: the other side is given what ours was charged, in the mean."""
    asked: list[tuple[str, int, int]] = []

    def train_run(folder: Path, config: dict[str, Any], **how: Any) -> RunFolder:
        """Stands for the training: `counterpoint` leaves a tenth, or a fifth, of what it may spend."""
        preset, seed, budget = config["preset"], config["seed"], config["budget_calls"]
        asked.append((preset, seed, budget))
        made(folder, preset, seed, calls=round(budget * (0.9 - 0.1 * seed)) if preset == "counterpoint" else budget)
        return RunFolder.open(folder)

    monkeypatch.setitem(sys.modules, "counterpoint.lab.train.run", SimpleNamespace(train_run=train_run))
    arguments = ["presets", "grpo", "counterpoint", "--world", "s1", "--seeds", "2", "--cap", "calls=1000", "--json"]
    code, out, err = ends(*arguments)
    assert code == 0, err
    assert asked == [("counterpoint", 0, 1000), ("counterpoint", 1, 1000), ("grpo", 0, 850), ("grpo", 1, 850)]
    found = json.loads(out)
    assert [side["label"] for side in found["sides"]] == ["grpo", "counterpoint"]  # as they were named
    assert (found["comparable"], found["budget_gap"]) == (True, 0.0)
    assert ends(*arguments)[0] == 0  # and again, from the runs that are there
    assert len(asked) == 4


def test_a_mean_above_its_bound_says_that_the_bound_is_of_all_tasks(ends: Any, tmp_path: Path) -> None:
    made(tmp_path / "a", "grpo", 0, mean=12.0)  # of an optimum of 10
    made(tmp_path / "b", "c3", 0, mean=5.0)
    code, out, err = ends("a", "b")
    assert code == 0, err
    assert "above its bound, which is of the mean over all tasks, on these 40: grpo" in " ".join(out.split())
    made(tmp_path / "c", "grpo", 0, mean=6.0)
    assert "above its bound" not in ends("c", "b")[1]
