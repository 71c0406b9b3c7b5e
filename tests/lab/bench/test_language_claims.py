"""Claims about language models: refused at once where there is no GPU, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from counterpoint.errors import Refused  # noqa: E402
from counterpoint.lab.bench.claims.lm_credit import eight_workers, eight_workers_control  # noqa: E402
from counterpoint.lab.bench.claims.lm_learn import lm_learn  # noqa: E402
from counterpoint.lab.train.folder import RunFolder  # noqa: E402


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_is_refused_before_anything_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("COUNTERPOINT_LM_SCALE", raising=False)
    with pytest.raises(Refused, match="needs a GPU"):
        next(lm_learn(seed=0, seeds=1))
    assert not (tmp_path / "runs").exists()


def finished(folder: Path, scores: list[float], *, solved: float, score: float) -> None:
    """A run as one is brought back from a machine with a GPU: its rows, without its weights."""
    about = {"preset": "lm", "world": "T1", "world_version": 1, "world_config": {}, "seed": 0}
    with RunFolder.create(folder, {}, about) as run:
        for update, one in enumerate(scores, start=1):
            row = {"update": update, "episodes": update, "forks": 0, "calls": update, "decisions": update}
            row |= {"phase": "learn", "score": one, "kl_old": 0.001 * update}
            run.append_metrics(row)
        run.append_eval({"update": len(scores), "first_seed": 0, "values": [score], "solved": solved, "greedy_solved": solved, "score": score})
        run.set_status("finished")


def test_finished_runs_are_joined_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path))
    home = tmp_path / "claims" / "lm-credit" / "8-workers"
    finished(home / "start-3", [], solved=0.01, score=0.7)
    for i, seed in enumerate((3, 4)):
        finished(home / f"team-3-{seed}", [0.1, 0.5, 0.6 + i], solved=0.1, score=0.8)
        finished(home / f"agent-3-{seed}", [0.1, 0.7, 0.8 + i], solved=0.2 + 0.1 * i, score=0.9)
        finished(home / f"ledger-3-{seed}", [0.9, 0.5, 0.6 + i], solved=0.05, score=0.7)
    found = {row.name: row for row in eight_workers(seed=3, seeds=2)}
    assert found["8 workers: team credit, score while learning"].value == pytest.approx((0.55 + 1.05) / 2)
    assert found["8 workers: agent over team credit, score while learning"].value == pytest.approx(0.2)
    assert found["8 workers: ledger over team credit, score while learning"].value == pytest.approx(0.0)  # the first update is the start's
    assert found["8 workers: agent over team credit, solved"].value == pytest.approx((0.1 + 0.2) / 2)
    assert found["8 workers: ledger over team credit, score"].value == pytest.approx(-0.1)
    assert found["8 workers: agent credit, nats per token that an update moves"].value == pytest.approx(0.002)


def test_controls_are_held_against_agent_credit_and_ask_for_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path))
    home = tmp_path / "claims" / "lm-credit" / "8-workers"
    finished(home / "start-0", [], solved=0.01, score=0.7)
    finished(home / "agent-0-0", [0.1, 0.7], solved=0.2, score=0.9)
    finished(home / "matched-0-0", [0.1, 0.8], solved=0.25, score=0.8)
    finished(home / "control-0-0", [0.1, 0.6], solved=0.15, score=0.8)
    found = {row.name: row.value for row in eight_workers_control(seed=0, seeds=1)}
    assert found["8 workers: team credit at twice the rate, score"] == pytest.approx(0.8)
    assert found["8 workers: agent over team credit at twice the rate, solved"] == pytest.approx(0.05)
    assert found["8 workers: agent over team credit at twice the rate, score while learning"] == pytest.approx(0.1)
    assert found["8 workers: agent over team credit at 1.4 times the rate, solved"] == pytest.approx(-0.05)
