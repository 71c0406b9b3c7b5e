"""A run: what it leaves, the same bytes again, and that it goes on to the same numbers after Ctrl-C, kill -9 and a full disk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.errors import InputError, NotFound, NotIdentified, Refused, TryAgain
from counterpoint.lab.train.checked_lines import file_with_sum
from counterpoint.lab.train.evaluate import HAND_MADE, policy_of, reference_rounds
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.train.jobs import world_of
from counterpoint.lab.train.learner import NotFinite
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.run import resolved, train_run
from counterpoint.lab.train.session import Interrupts
from counterpoint.lab.train.training import checkpoint_bytes
from counterpoint.lab.worlds.teamworld.team_replay import TeamReplay
from counterpoint.store import Store
from lab.train.quick import CONFIG, TINY, numbers, same, weights
from warm_help import programs

TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in one go."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train_run(folder, CONFIG)
    return folder


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that Ctrl-C ended in its second update; tests work on copies."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    interrupted_at(folder, CONFIG | {"checkpoint_every": 4}, 2)
    return folder


def copied(run: Path, folder: Path, status: str | None = None) -> Path:
    shutil.copytree(run, folder / "run")
    if status is not None:
        with RunFolder.open(folder / "run", write=True) as opened:
            opened.set_status(status)
    return folder / "run"


def interrupted_at(folder: Path, config: Mapping[str, Any], update: int) -> None:
    def tell(kind: str, row: Mapping[str, Any]) -> None:
        if kind == "update" and row["update"] == update:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train_run(folder, config, progress=tell)


# -- what it leaves


def test_a_run_leaves_a_whole_folder(whole: Path) -> None:
    run = RunFolder.open(whole)
    about, metrics, evals = run.about, run.metrics(), run.evals()
    assert about["status"] == "finished"
    assert (about["updates"], about["seed"], about["world"]) == (4, 0, "wide_verify")
    assert about["world_config"]["vote_items"] == 4
    assert about["spent"] == {k: metrics[-1][k] for k in ("episodes", "forks", "calls", "decisions", "charged")}
    assert set(about["hand_made"]) == set(HAND_MADE)
    assert about["optimum"]["value"] == pytest.approx(world_of("W1", TINY).optimum().value)
    assert [row["update"] for row in metrics] == [1, 2, 3, 4]
    assert all(row["seconds"] > 0 and row["signals"]["masked"] == 0 for row in metrics)
    assert metrics[0]["signals"]["mismatch"] < 1e-4
    assert [row["update"] for row in evals] == [0, 2, 4]
    assert all(row["first_seed"] == 0 and len(row["values"]) == 4 for row in evals)
    assert ["stops" in row for row in evals] == [False, False, True]
    assert {row["size"] for row in evals[-1]["width"]} == {1, 2, 4, 8, 16}
    assert run.latest_checkpoint() == whole / "checkpoints" / "000004.pt"


def test_the_reference_stops_are_those_of_the_reference(whole: Path) -> None:
    stops = RunFolder.open(whole).evals()[-1]["stops"]
    played = world_of("W1", TINY).run("reference", range(4))
    assert stops == {"reference": played.columns["rounds"].tolist(), "name": "reference"}


def test_traces_say_of_which_run_they_are_and_fork_with_its_policy(whole: Path) -> None:
    run = RunFolder.open(whole)
    with Store(run.store_path, create=False) as store:
        assert [store.get(i).meta["update"] for i in store.ids()] == [0, 2, 4]
        trace = store.get(store.ids()[-1])
    assert trace.meta["run"] == "run"
    assert trace.rewards["team"] == pytest.approx(run.evals()[-1]["values"][0])
    world, at = world_of("W1", TINY), trace.events[len(trace.events) // 2].id
    # the checkpoint knows how the learned team would have gone on; the trace alone does not
    again = TeamReplay(world, policy_of(run, allow=[CONFIG["preset"]])).fork(trace, at)
    assert [(e.key, e.content_ref) for e in again.events] == [(e.key, e.content_ref) for e in trace.events]
    with pytest.raises(NotIdentified, match="would have continued is unknown"):
        world.fork(trace, at)


def test_a_mix_of_variants_pairs_tasks_by_seed(tmp_path: Path) -> None:
    mix = [{"vote_items": 2}, {"vote_items": 6}]
    run = train_run(tmp_path / "run", CONFIG | {"mix": mix, "updates": 2})
    worlds = [world_of("W1", TINY | m) for m in mix]
    by_hand = np.concatenate([w.run("reference", range(v, 4, 2)).values for v, w in enumerate(worlds)])
    assert run.about["hand_made"]["reference"] == pytest.approx(by_hand.mean())
    assert run.about["optimum"]["value"] == pytest.approx(np.mean([w.optimum().value for w in worlds]))
    assert run.about["world_config"]["mix"] == mix
    played = [w.run("reference", [s]).columns["rounds"][0] for s in range(4) for w in [worlds[s % 2]]]
    assert reference_rounds(worlds, 4) == played
    learned = [w.run(policy_of(run, allow=[CONFIG["preset"]]), [s]).values[0] for s in range(4) for w in [worlds[s % 2]]]
    assert run.evals()[-1]["values"] == pytest.approx(learned)


# -- the same again


def test_the_same_settings_give_the_same_bytes_and_another_seed_others(whole: Path, tmp_path: Path) -> None:
    train_run(tmp_path / "run", CONFIG)
    same(whole, tmp_path / "run")
    train_run(tmp_path / "other", CONFIG | {"seed": 1, "updates": 1})
    assert numbers(tmp_path / "other")[0][0] != numbers(whole)[0][0]


def test_ctrl_c_writes_a_checkpoint_and_resume_gives_the_same_numbers(whole: Path, cut: Path, tmp_path: Path) -> None:
    folder = copied(cut, tmp_path)
    run = RunFolder.open(folder)
    assert run.about["status"] == "interrupted"
    assert run.latest_checkpoint() == folder / "checkpoints" / "000002.pt"
    assert train_run(folder, {}, resume=True, allow=[CONFIG["preset"]]).about["status"] == "finished"
    same(whole, folder)


def test_stale_rollouts_of_processes_give_the_same_numbers_also_resumed(tmp_path: Path) -> None:
    config = CONFIG | {"staleness": 1}
    train_run(tmp_path / "one", config)
    assert [row["stale"] for row in RunFolder.open(tmp_path / "one").metrics()] == [0, 1, 1, 1]
    processes = config | {"runner": "processes", "workers": 1}
    interrupted_at(tmp_path / "two", processes, 2)
    train_run(tmp_path / "two", processes, resume=True)
    same(tmp_path / "one", tmp_path / "two")


def test_an_interruption_at_any_moment_leaves_a_run_that_goes_on(whole: Path, tmp_path: Path) -> None:
    took = sum(row["seconds"] for row in RunFolder.open(whole).metrics())
    timer = threading.Timer(0.5 * took, signal.raise_signal, [signal.SIGINT])
    try:
        train_run(tmp_path / "run", CONFIG, progress=lambda kind, row: timer.start() if kind == "start" else None)
    except KeyboardInterrupt:
        assert RunFolder.open(tmp_path / "run").about["status"] in ("interrupted", "finished")
    timer.cancel()
    train_run(tmp_path / "run", {}, resume=True, allow=[CONFIG["preset"]])
    same(whole, tmp_path / "run")


SCRIPT = """
import sys
from counterpoint.lab.train.run import train_run
from lab.train.quick import CONFIG
if __name__ == "__main__":
    train_run(sys.argv[1], CONFIG)
"""


def script(folder: Path, before: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "WARM_IMPORTS": "torch torch._dynamo"}
    return subprocess.Popen([programs() / "python", "-c", before + SCRIPT, str(folder)], env=environment, stderr=subprocess.PIPE)


def test_kill_9_leaves_a_run_that_goes_on(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = script(folder)
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and not (folder / "checkpoints" / "last").exists():
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert RunFolder.open(folder).about["status"] in ("running", "finished")
    train_run(folder, {}, resume=True, allow=[CONFIG["preset"]])
    same(whole, folder)


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(whole: Path, cut: Path, tmp_path: Path) -> None:
    folder = copied(cut, tmp_path, "running")
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    train_run(folder, {}, resume=True, allow=[CONFIG["preset"]])
    same(whole, folder)


def test_a_full_disk_in_mid_run_is_one_line_and_the_run_goes_on_later(whole: Path, tmp_path: Path) -> None:
    small = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))\n"
    process = script(tmp_path / "run", small)
    error = process.communicate()[1].decode()
    assert process.returncode == 1
    assert "no space left to write" in error.strip().splitlines()[-1]
    run = RunFolder.open(tmp_path / "run")
    assert run.about["status"] == "failed"
    assert "no space left" in run.about["why"]
    assert len(run.metrics()) >= 1
    train_run(tmp_path / "run", {}, resume=True, allow=[CONFIG["preset"]])
    same(whole, tmp_path / "run")


def test_a_finished_run_is_left_as_it_is(whole: Path) -> None:
    before = (whole / "about.json").read_bytes(), (whole / "metrics.jsonl").read_bytes()
    assert train_run(whole, {}, resume=True, allow=[CONFIG["preset"]]).about["status"] == "finished"
    assert ((whole / "about.json").read_bytes(), (whole / "metrics.jsonl").read_bytes()) == before


def test_a_run_that_ended_before_it_could_say_so_is_finished(whole: Path, tmp_path: Path) -> None:
    folder = copied(whole, tmp_path, "running")
    assert train_run(folder, {}, resume=True, allow=[CONFIG["preset"]]).about["status"] == "finished"
    same(whole, folder)


# -- what goes wrong


@pytest.mark.parametrize("name", ["item_value.0.weight", "item_critic.4.bias"])
def test_a_loss_that_is_no_number_keeps_the_last_good_checkpoint_and_names_the_batch(
    name: str, cut: Path, tmp_path: Path
) -> None:
    folder = copied(cut, tmp_path)
    good = folder / "checkpoints" / "000002.pt"
    held = torch.load(good, weights_only=False)
    held["net"][name][:] = torch.nan
    good.write_bytes(file_with_sum(checkpoint_bytes(held)))
    with pytest.raises(NotFinite, match=r"update 3: .*; batch of training seeds 1002000 to 1002003.*000002\.pt"):
        train_run(folder, {}, resume=True, allow=[CONFIG["preset"]])
    run = RunFolder.open(folder)
    assert run.about["status"] == "failed"
    assert "seeds 1002000 to 1002003" in run.about["why"]
    assert run.latest_checkpoint() == good
    assert len(run.metrics()) == 2


def test_a_rate_that_is_too_high_fails_in_words(tmp_path: Path) -> None:
    with pytest.raises(NotFinite, match=r"update 1: the .*there was no checkpoint yet") as caught:
        train_run(tmp_path / "run", CONFIG | {"preset": "lab.train.quick:wild"})
    assert "checkpoint is kept" not in str(caught.value)
    assert RunFolder.open(tmp_path / "run").about["status"] == "failed"


def test_a_team_that_calls_nobody_spends_its_budget_and_is_marked(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Network.items

    def leaves(self: Network, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        purpose, brief, query = before(self, x)
        return purpose + torch.tensor([50.0, 0.0, 0.0, 0.0]), brief, query

    monkeypatch.setattr(Network, "items", leaves)
    idle = {"keeps": 0.0, "forks": 0.0}
    run = train_run(tmp_path / "run", CONFIG | {"updates": 0, "budget_calls": 40, "change": idle})
    assert (run.about["status"], run.about["collapsed"], run.spending()["calls"]) == ("finished", True, 0)
    assert run.spending()["charged"] >= 40
    assert all(m["charged"] >= m["episodes"] for m in run.metrics()), "every episode costs something"
    assert not RunFolder.open(whole).about["collapsed"]


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"preset": "grpoo"}, NotFound, "no preset named 'grpoo'.*did you mean 'grpo'"),
        ({"world": "W9"}, NotFound, "no world named 'W9'"),
        ({"world": "s1", "set": {}}, InputError, "s1 is a stopping world.*train stop --world s1"),
        ({"set": {"vote_itemz": 4}}, InputError, "no parameter named 'vote_itemz'.*vote_items"),
        ({"preset": "lab.train.quick:needy", "world": "D", "set": {}}, Refused, "needs votes, which the world does not have"),
        ({"episodes": 3}, InputError, "3 episodes do not make groups of 2"),
        ({"device": "cuda"}, Refused, "there is no GPU"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_written(
    changes: dict[str, Any], kind: type[Exception], words: str, tmp_path: Path
) -> None:
    if changes.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(kind, match=words):
        train_run(tmp_path / "run", CONFIG | changes)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_taken_is_refused(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"exists already and is not empty.*train resume"):
        train_run(whole, CONFIG)
    with pytest.raises(InputError, match="was started with other settings: seed"):
        train_run(whole, CONFIG | {"seed": 4}, resume=True)
    with pytest.raises(NotFound, match="there is no run here"):
        train_run(tmp_path / "none", {}, resume=True, allow=[CONFIG["preset"]])


def test_a_run_that_somebody_writes_is_left_alone(cut: Path, tmp_path: Path) -> None:
    folder = copied(cut, tmp_path)
    with RunFolder.open(folder, write=True), pytest.raises(TryAgain, match="another process"):
        train_run(folder, {}, resume=True, allow=[CONFIG["preset"]])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda held: {**held, "format": 99}, "is of format 99"),
        (
            lambda held: {**held, "net": {k: v for k, v in held["net"].items() if k != "stop.bias"}},
            "checkpoint of another version",
        ),
        (lambda held: {k: v for k, v in held.items() if k != "totals"}, "checkpoint of another version"),
        (lambda held: {**held, "settings": {**held["settings"], "seed": 7}}, "with other settings: seed"),
        (None, "not a checkpoint, or a broken one"),
    ],
)
def test_a_checkpoint_of_another_version_is_one_line(spoil: Any, words: str, cut: Path, tmp_path: Path) -> None:
    folder = copied(cut, tmp_path)
    path = folder / "checkpoints" / "000002.pt"
    if spoil is None:
        path.write_bytes(file_with_sum(path.read_bytes()[:500]))
    else:
        path.write_bytes(file_with_sum(checkpoint_bytes(spoil(torch.load(path, weights_only=False)))))
    with pytest.raises(InputError, match=words) as caught:
        train_run(folder, {}, resume=True, allow=[CONFIG["preset"]])
    assert len(str(caught.value).splitlines()) == 1
    assert RunFolder.open(folder).about["status"] == "interrupted"


# -- small parts


def test_names_are_resolved_so_that_runs_compare() -> None:
    assert resolved({"preset": "dr-mas", "world": "W1"}).world == "wide_verify"
    assert resolved({"preset": "dr-mas", "world": "W1"}).preset == "dr_mas"
    assert resolved(CONFIG).preset == "lab.train.quick:quick"


def test_an_interruption_waits_for_what_must_be_whole() -> None:
    done = []
    before = signal.getsignal(signal.SIGINT)
    interrupts = Interrupts()

    def work() -> None:
        with interrupts:
            with interrupts.whole():
                signal.raise_signal(signal.SIGINT)
                done.append("inside")
            done.append("after")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inside"]
    assert not interrupts.is_broken
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interruption_does_not_wait_and_one_outside_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.lab.train.session._ONE_SIGNAL_S", 0.0)  # these two are no single one told twice

    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts, interrupts.whole():
        twice()
    assert interrupts.is_broken
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
    assert not interrupts.is_broken


def test_weights_differ_between_checkpoints(whole: Path) -> None:
    """The comparison of `same` can fail."""
    last = weights(whole)
    first = torch.load(whole / "checkpoints" / "000003.pt", weights_only=False)
    assert any(not torch.equal(last[f"net.{k}"], v) for k, v in first["net"].items())
