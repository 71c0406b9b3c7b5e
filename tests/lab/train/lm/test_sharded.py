"""Two processes learn what one learns: losses, norms, log-probabilities, weights and checkpoints, over gloo on CPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from counterpoint.lab.train.lm.learner import with_old  # noqa: E402
from counterpoint.lab.train.lm.objective import Objective  # noqa: E402
from lab.train.lm import sharded_work  # noqa: E402
from lab.train.lm.sharded_work import KINDS, calls, found, learned, learner_of  # noqa: E402

ROOT = Path(__file__).parents[4]
PATIENCE_S = 900


def start(processes: int, *command: str, cwd: Path) -> subprocess.Popen[str]:
    """So many processes by torchrun."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    env |= {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}  # whatever the machine is called
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), *command]
    pipe, out = subprocess.PIPE, subprocess.STDOUT
    return subprocess.Popen(line, cwd=cwd, env=env, start_new_session=True, text=True, stdout=pipe, stderr=out)


def end(running: subprocess.Popen[str]) -> None:
    """Torchrun ends what it has started; where it does not, all of them are killed, which have sessions of their own."""
    if running.poll() is not None:
        return
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    started = [int(pid) for pid in children.read_text().split()] if children.is_file() else []
    running.terminate()
    try:
        running.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        for pid in (*started, running.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.wait()


def torchrun(processes: int, *command: str, cwd: Path) -> str:
    """What they print, when they are done."""
    running = start(processes, *command, cwd=cwd)
    try:
        out, _ = running.communicate(timeout=PATIENCE_S)
    finally:
        end(running)
    assert running.returncode == 0, out
    return out


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    """What one process finds."""
    torch.set_num_threads(1)
    out = {}
    for kind in KINDS:
        learner = learner_of(kind)
        out[kind] = {"told": learned(learner), **found(learner), "learner": learner}
    return out


@pytest.fixture(scope="module")
def ranks(here: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two processes find."""
    folder = tmp_path_factory.mktemp("ranks")
    for kind in KINDS:
        torch.save(here[kind]["state"], folder / f"{kind}.pt")
    torchrun(2, str(Path(sharded_work.__file__)), str(folder), cwd=folder)
    out: dict[str, Any] = torch.load(folder / "ranks.pt", weights_only=False)
    return out | {"told": torch.load(folder / "told.pt", weights_only=False)}


def same(one: Any, two: Any) -> None:
    """Equal but for rounding, number by number."""
    assert len(one) == len(two)
    for key in one if isinstance(one, dict) else range(len(one)):
        torch.testing.assert_close(torch.as_tensor(one[key]), torch.as_tensor(two[key]), atol=1e-5, rtol=1e-4, msg=str(key))


def close(one: list[dict[str, float]], two: list[dict[str, float]]) -> None:
    """The same numbers in the same places; the size of micro-batches is of each run its own."""
    for mine, yours in zip(one, two, strict=True):
        assert {k: pytest.approx(v, abs=1e-5, rel=1e-4) for k, v in mine.items()} == yours


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_learn_what_one_learns(here: dict[str, Any], ranks: dict[str, Any], kind: str) -> None:
    close(here[kind]["told"], ranks[kind]["told"])
    assert here[kind]["told"][0]["step_kept"] < 1  # the limit in KL was met, and all agreed on it
    same(here[kind]["logps"], ranks[kind]["logps"])
    same(here[kind]["weights"], ranks[kind]["weights"])
    same(here[kind]["mean"], ranks[kind]["mean"])
    begin = learner_of(kind).now()
    assert not torch.allclose(begin["0.qkv"], here[kind]["weights"]["0.qkv"], atol=1e-3)
    assert ranks["told"][0] == ranks["told"][1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_goes_from_one_process_to_two_and_back(here: dict[str, Any], ranks: dict[str, Any], kind: str) -> None:
    back = learner_of(kind)
    back.restore(ranks[kind]["state"])
    same(back.now(), here[kind]["weights"])
    same(back.learned, here[kind]["learner"].learned)
    same(back.mean, here[kind]["learner"].mean)
    own = learner_of(kind)
    own.restore(here[kind]["state"])
    expected = own.improve(with_old(own, calls()), Objective())
    close([expected], [back.improve(with_old(back, calls()), Objective())])
    close([expected], [ranks[kind]["again"]])
    same(found(back)["weights"], ranks[kind]["again found"]["weights"])


def test_recomputing_layers_changes_no_number(here: dict[str, Any]) -> None:
    for kind in ("all", "adapter"):
        assert here[kind]["told"] == here[f"{kind} recomputed"]["told"]
        for name, weight in here[kind]["weights"].items():
            assert torch.equal(weight, here[f"{kind} recomputed"]["weights"][name])


def test_a_process_without_rows_joins_in(ranks: dict[str, Any]) -> None:
    close([learner_of("all").imitate(calls()[:1]), learner_of("all", tokens=10_000).imitate(calls())], ranks["few"])


@pytest.mark.parametrize("kind", ["all narrow", "adapter narrow"])
def test_in_bfloat16_they_differ_by_its_rounding_alone(ranks: dict[str, Any], kind: str) -> None:
    learner = learner_of(kind, steps=1)
    told, (mine, logps) = learner.improve(calls(), Objective()), ranks[kind]
    assert {k: pytest.approx(v, rel=0.05, abs=0.02) for k, v in told.items()} == mine
    off = [abs(one - two).mean() for one, two in zip(learner.logps(calls()), logps, strict=True)]
    assert max(off) < 0.05


def test_rows_are_dealt_out_by_tokens(ranks: dict[str, Any]) -> None:
    one, two = ([batch for batch in own[0] if batch[0] > 2] for own in ranks["dealt"])  # without those that teach nothing
    assert sorted(i for _, numbers in one + two for i in numbers) == list(range(len(calls())))  # each call once
    sizes = [sum(tokens for tokens, _ in own) for own in (one, two)]
    assert abs(sizes[0] - sizes[1]) <= min(tokens for tokens, _ in one + two)


def test_preferences_too(ranks: dict[str, Any]) -> None:
    learner = learner_of("all")
    close([learner.prefer(list(zip(calls()[:4], calls()[4:8], strict=True)), learner.snapshot(), 0.3)], [ranks["prefer"]])


def test_a_loss_that_is_no_number_is_one_error_on_all(ranks: dict[str, Any]) -> None:
    assert "the loss is nan" in ranks["refused"]
    assert "|" not in ranks["refused"]


def test_where_one_has_no_memory_all_make_smaller_micro_batches(ranks: dict[str, Any]) -> None:
    told, tokens = ranks["short"]
    assert tokens[0] == tokens[1] < 100
    expected = learner_of("all", tokens=200).improve(calls(), Objective())
    close([expected], [told | {"micro_batch": 200.0}])
