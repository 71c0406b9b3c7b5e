"""Claims about language models: refused at once where there is no GPU, and whole with a tiny model on a CPU."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from tests.lab.bench.claims_made import long_part  # noqa: E402
from tests.lm_help import TEXTS  # noqa: E402
from tests.tiny_help import make_tiny  # noqa: E402

from counterpoint.errors import Refused  # noqa: E402
from counterpoint.lab.bench.claim import at_least, reported  # noqa: E402
from counterpoint.lab.bench.claims import _language, _starts, lm_decide, lm_imitate, lm_learn, lm_methods, repair  # noqa: E402
from counterpoint.lab.bench.claims._starts import Starts, by_start, first_held_out, of_tasks  # noqa: E402
from counterpoint.lab.bench.claims._widths import at_widths, rewards_at  # noqa: E402
from counterpoint.lab.bench.claims.lm_credit import eight_workers  # noqa: E402
from counterpoint.lab.bench.comparison import estimate  # noqa: E402
from counterpoint.lab.lm.adding import add  # noqa: E402
from counterpoint.lab.train.folder import RunFolder  # noqa: E402


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_is_refused_before_anything_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("COUNTERPOINT_LM_SCALE", raising=False)
    with pytest.raises(Refused, match="needs a GPU"):
        next(lm_learn.lm_learn(seed=0, seeds=1))
    assert not (tmp_path / "runs").exists()


def finished(folder: Path, scores: list[float], values: Sequence[float], solved: Sequence[float], **more: Any) -> None:
    """A run as one is brought back from a machine with a GPU: its rows, without its weights."""
    about = {"preset": "lm", "world": "T1", "world_version": 1, "world_config": {}, "seed": 0}
    with RunFolder.create(folder, {}, about) as run:
        for update, one in enumerate(scores, start=1):
            row = {"update": update, "episodes": update, "forks": 0, "calls": update, "decisions": update}
            row |= {"phase": "learn", "score": one} | ({"kl_after": 0.001 * update} if update > 1 else {})
            run.append_metrics(row)
        lists = {"values": list(values), "successes": list(solved), "greedy_successes": list(solved)}
        run.append_eval({"update": len(scores), "first_seed": 0, "solved": float(np.mean(solved)), **lists, **more})
        run.set_status("finished")


def test_runs_are_dealt_to_starts_whatever_their_number() -> None:
    twelve, five = (Starts(Path("x"), 7, count) for count in (12, 5))
    assert [p.name for p in twelve.starts] == ["start-7-0", "start-7-1", "start-7-2"]
    assert [p.name for p in five.runs("learn")] == ["learn-7-0-0", "learn-7-1-0", "learn-7-2-0", "learn-7-0-1", "learn-7-1-1"]
    assert twelve.runs("learn")[:5] == five.runs("learn")
    told = five.orders("learn", {"task": []}, at_once=5)
    assert [how["seed"] for _, how in told] == [7, 8, 9, 10, 11]
    assert [Path(how["model"]).name[-1] for _, how in told] == ["0", "1", "2", "0", "1"]
    assert {how["eval_first"] for _, how in told} == {7000}
    assert [p.name for p in Starts(Path("x"), 7, 2).starts] == ["start-7-0", "start-7-1"]


def test_held_out_tasks_are_drawn_by_the_seed() -> None:
    firsts = [first_held_out(seed) for seed in range(1000)]
    assert min(np.diff(firsts)) >= 770  # the most that a claim asks for
    assert firsts[0] == 0
    assert firsts[-1] + 1000 <= 1_000_000
    assert lm_imitate.kinds_of(7000, 12).tolist() == [0, 0, 1, 2, 3, 4, 4, 4, 5, 5, 0, 0]
    assert lm_imitate.kinds_of(3, 4).tolist() == [2, 3, 4, 4]
    plan = Starts(Path("x"), 7, 1)  # 7000 is one more than a multiple of three
    assert {size: lm_decide._of_size(plan, 5, size).tolist() for size in lm_decide._SIZES} == {
        "small": [2], "medium": [0, 3], "large": [1, 4],
    }  # fmt: skip


def test_an_interval_says_what_it_varies_and_what_is_missing() -> None:
    y = np.random.default_rng(1).normal(size=(12, 40))
    plan = Starts(Path("x"), 0, 12)
    row = reported("x", plan.of_runs(y))
    crossed = estimate([(1, by_start(y))])
    assert (row.value, row.low, row.high) == (crossed.mean, crossed.low, crossed.high)
    assert row.value == pytest.approx(y.mean())
    assert by_start(y)[1] == pytest.approx(y[[1, 4, 7, 10]].mean(0))
    assert row.target == "none: as it is; over 3 starts by 4 runs, 40 tasks"
    assert not row.has_target
    few = at_least("x", plan.of_runs(y[:5]), -9.0, by="low")
    assert (few.target, few.ok) == (">= -9; over 3 starts by 1 to 2 runs, 40 tasks (it asks for 3 by 4)", True)
    assert plan.of_runs([1.0]).over == "over 1 start by 1 run (it asks for 3 by 4)"
    assert plan.of_runs([1.0]).low is None
    assert plan.of_starts(y[:2]).over == "over 2 starts, 40 tasks (it asks for 3)"
    alone = of_tasks(np.arange(10.0))
    assert alone.over == "over 10 tasks"
    assert alone.low is not None  # a baseline has an interval too
    assert alone.low < alone.value == 4.5


def test_finished_runs_are_joined_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path))
    home = tmp_path / "claims" / "lm-credit" / "8-workers"
    for s in (0, 1):
        finished(home / f"start-3-{s}", [], [0.7, 0.5], [0.0, 0.0])
        finished(home / f"team-3-{s}-0", [0.1, 0.5, 0.6 + s], [0.8, 0.8], [0.0, 1.0])
        finished(home / f"agent-3-{s}-0", [0.1, 0.7, 0.8 + s], [0.9, 0.9 + 0.1 * s], [s, 1.0])
        finished(home / f"ledger-3-{s}-0", [0.9, 0.5, 0.6 + s], [0.7, 0.7], [0.0, 1.0])
    found = {row.name: row for row in eight_workers(seed=3, seeds=2)}
    assert found["8 workers: imitation, score"].value == pytest.approx(0.6)
    assert found["8 workers: team credit, score while learning"].value == pytest.approx((0.55 + 1.05) / 2)
    assert found["8 workers: agent over team credit, score while learning"].value == pytest.approx(0.2)
    assert found["8 workers: ledger over team credit, score while learning"].value == pytest.approx(0.0)  # the first update is the start's
    assert found["8 workers: agent over team credit, solved"].value == pytest.approx(0.25)
    assert found["8 workers: agent over team credit, score"].value == pytest.approx(0.125)
    assert found["8 workers: ledger over team credit, score"].value == pytest.approx(-0.1)
    assert found["8 workers: agent credit, nats per token that an update moves"].value == pytest.approx((0 + 0.002 + 0.003) / 3)
    assert found["8 workers: agent over team credit, score"].target.endswith("over 2 starts by 1 run, 2 tasks (it asks for 3 by 4)")


def test_skill_and_hiring_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of tasks 0, 1, 2 are small, medium, large. The demonstrator alone earns 0.5 each, at every other width 0.2."""
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path))
    fake = np.array([[0.5, 0.5, 0.5]] * 2)
    monkeypatch.setattr(lm_decide, "by_hand", lambda _, __, options, *___, **____: fake - 0.3 * (options["hires"] == 1))
    home = tmp_path / "claims" / "lm-decide"
    made = dict.fromkeys(("spawned", "delegated", "told", "merged", "stopped_after", "tool_calls"), 1.0)
    more = {"agents": [0, 1, 4], "greedy": [1.0, 1.0, 1.0], "decisions_made": made, "score": 0.5}
    for s in (0, 1):
        finished(home / f"start-0-{s}", [], [0.1, 0.2, 0.3], [0, 1, 1], **more)
        finished(home / f"learn-0-{s}-0", [], [0.7, 0.8, 0.9 + 0.2 * s], [1, 1, 1], **more)
        for name, best in (("start", 0.3), ("learn", 0.6)):
            folder = home / (f"{name}-0-{s}-widths" if name == "start" else f"{name}-0-{s}-0-widths")
            with RunFolder.create(folder, {}, {"preset": "lm", "world": "T1", "world_version": 1, "world_config": {}, "seed": 0}) as run:
                for i, width in enumerate((0, 1, 2, 4)):
                    run.append_eval({"update": i, "first_seed": 0, "width": width, "values": [best - 0.1 * (width != 2)] * 3})
                run.set_status("finished")
    found = {row.name: row for row in lm_decide.lm_decide(seed=0, seeds=2)}
    value = {name: row.value for name, row in found.items()}
    assert value["demonstrator that knows the size, reward"] == pytest.approx(0.5)
    assert value["imitation always 2 workers, reward"] == pytest.approx(0.3)
    assert value["reinforcement over the demonstrator's best fixed width"] == pytest.approx((2.4 + 2.6) / 6 - 0.5)
    assert value["reinforcement over imitation's best fixed width"] == pytest.approx((2.4 + 2.6) / 6 - 0.3)
    assert value["hiring: reinforcement over itself at its best fixed width"] == pytest.approx((2.4 + 2.6) / 6 - 0.6)
    assert value["skill: reinforcement over imitation, both always 2 workers"] == pytest.approx(0.3)
    assert value["after: workers on large tasks"] == 4.0
    spare = found["workers on small tasks, where one agent is enough"]
    assert (spare.value, spare.ok) == (0.0, True)


def test_methods_are_ranked_run_by_run_and_six_tasks_weigh_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path))
    home = tmp_path / "claims" / "lm-methods"
    arms = [arm.split()[0] for arm in lm_methods._arms()]
    for s in (0, 1):
        finished(home / f"start-5-{s}", [], [0, 0], [0, 0])
        for k, arm in enumerate(arms):
            finished(home / f"{arm}-5-{s}-0", [0.1], [0, 0], [k / 10, 1.0])
        for limit in (0.02, 0.1):
            finished(home / f"ledger-limit-{limit}-5-{s}-0", [0.1], [0, 0], [0.5, 1.0])
    found = {row.name: row.value for row in lm_methods.lm_methods(seed=5, seeds=2)}
    assert found["sirius: rank among 10"] == 1.0
    assert found["ledger (ours): rank among 10"] == 10.0
    assert found["sirius over grpo, solved, sampled"] == pytest.approx((0.9 - 0.1) / 2)
    assert found["ledger, updates of at most 0.02 KL, over those without a limit, solved, sampled"] == pytest.approx(0.25)
    for k in (0, 1):  # tasks 0 to 9 are of the kinds 0 0 1 2 3 4 4 4 5 5
        solved = [1, 0, 1, 1, 1, 0, 0, 0, 1, 1 - k]
        finished(tmp_path / "claims" / "lm-imitate" / f"all-0-{k}", [], [0] * 10, solved, malformed=0.0)
    found = {row.name: row.value for row in lm_imitate.lm_imitate(seed=0, seeds=2)}
    assert found["T1 centralized: after, solved, sampled"] == 0.5
    assert found["T6 planner_executor_critic: after, solved, greedy"] == 0.75
    assert found["all six: after, solved, sampled"] == pytest.approx((0.5 + 1 + 1 + 1 + 0 + 0.75) / 6)


# -- whole, with a tiny model ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny(tmp_path_factory.mktemp("tiny"), texts=TEXTS, words=512, spread=0.15, context=2048, family="qwen2")


@pytest.fixture
def small(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trial: a tiny model of another family, by its name; the least counts; two starts by two runs, in turn in this process."""
    monkeypatch.setenv("COUNTERPOINT_MODELS", str(tmp_path / "models"))
    assert add(tiny, "coder") == ("coder", True)
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path))
    monkeypatch.setenv("COUNTERPOINT_LM", "coder")
    monkeypatch.setenv("COUNTERPOINT_LM_SCALE", "0.006")
    monkeypatch.setattr(_starts, "STARTS", 2)
    monkeypatch.setattr(_starts, "RUNS", 2)

    def in_turn(part: Callable[..., Any], given: Sequence[tuple[Any, ...]], *, at_once: int = 1) -> None:
        for args in given:
            if not _language.is_made(args[0]):
                part(*args)

    for module in (_starts, lm_learn):
        monkeypatch.setattr(module, "side_by_side", in_turn)
    return tmp_path


LIMITS = {"turns": 10, "steps": 1, "max_tokens": 6, "context": 1500, "repairs": 0}


def test_a_claim_whole_with_two_starts_by_two_runs_and_read_with_fewer(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = {"name": "tests.lm_help:colours", "topology": "harness", "limits": {**LIMITS, "width": 1}}
    monkeypatch.setattr(lm_learn, "T1", toy)
    rows = {row.name: row for row in lm_learn.lm_learn(seed=7, seeds=4)}
    home = small / "claims" / "lm-learn-coder"
    assert next(iter(rows)) == "parameters of coder, which learns here"
    assert sorted(p.name for p in home.glob("*-7-?-?")) == sorted(
        f"{arm}-7-{s}-{r}" for arm in ("learn", "more", "passed") for s in (0, 1) for r in (0, 1)
    )
    runs = [RunFolder.open(p) for p in home.glob("*-7-*") if p.is_dir()]
    assert {run.evals()[-1]["first_seed"] for run in runs} == {7000}  # one set of tasks, drawn by the seed
    shown = [RunFolder.open(home / f"start-7-{s}").config()["seed"] for s in (0, 1)]
    assert shown == [7, 8]  # every start has its own demonstrations
    assert {RunFolder.open(home / f"passed-7-0-{r}").config()["imitate"]["keep"] for r in (0, 1)} == {"solved"}
    more, passed = (RunFolder.open(home / f"{arm}-7-1-1").config()["imitate"]["steps"] for arm in ("more", "passed"))
    assert more == passed > 0
    over = rows["reinforcement over as long imitation of what the verifier passed, sampled"]
    assert over.target == ">= 0; over 2 starts by 2 runs, 3 tasks"
    assert rows["demonstrator fake:0.7, solved"].target.endswith("over 3 tasks")
    solved = {s: [RunFolder.open(home / f"learn-7-{s}-{r}").evals()[-1]["solved"] for r in (0, 1)] for s in (0, 1)}
    assert rows["then reinforcement, solved, sampled"].value == pytest.approx(np.mean([*solved.values()]))

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a run was made again")

    monkeypatch.setattr(_language, "finished_run", never)
    fewer = {row.name: row for row in lm_learn.lm_learn(seed=7, seeds=2)}  # as after a claim that was cut off
    first = fewer["then reinforcement, solved, sampled"]
    assert first.value == pytest.approx(np.mean([solved[0][0], solved[1][0]]))
    assert first.target.endswith("over 2 starts by 1 run, 3 tasks (it asks for 2 by 2)")


def test_a_model_plays_at_fixed_widths_and_begins_anew_where_it_was_cut_off(small: Path, tiny: Path) -> None:
    sizes = [(4, 1), (8, 2)]
    tasks = [_language.ledger_hunt(*size, width=4, topology="harness") for size in sizes]
    tasks = [task | {"limits": {**LIMITS, "width": 4}} for task in tasks]
    prices = {"agent": 0.5, "second": 0.0}
    about = {"preset": "lm", "world": "T1", "world_version": 1, "world_config": {}, "seed": 0}
    RunFolder.create(small / "widths", {}, about).close()  # what was cut off
    at_widths(small / "widths", tiny, tasks, prices, (0, 1, 4), 1001, 1)
    rows = RunFolder.open(small / "widths").evals()
    assert [row["agents"] for row in rows] == [[0, 0, 0], [1, 1, 1], [2, 1, 2]]  # never more workers than parts; 1001 is of two parts
    assert rows[2]["values"][1] == rows[1]["values"][1]
    assert rewards_at([small / "widths"], 4) == pytest.approx(np.array([[-1.0, -0.5, -1.0]]))  # random words find nothing
    assert _language.is_made(small / "widths")


def test_a_model_repairs_its_failed_teams_with_and_without_the_advice(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = {**_language.T1, "limits": {**LIMITS, "width": 1}}
    monkeypatch.setattr(repair, "T1", toy)
    monkeypatch.setattr(repair, "has_gpu", lambda: False)
    one, two = repair.cases_of_model(3, 1)
    more = ["random steps", "back from the last", "named step, no advice"]
    assert list(one.mended) == ["named step", "random step", "last step", "retry", *more]
    assert max(one.calls.values()) == one.calls["retry"] > 0
    rows = [row.name for row in repair.rows_of("coder", [one, two], has_target=False)]
    assert "coder: named step over named step, no advice" in rows


def test_a_claim_that_is_cut_off_waits_for_what_must_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout 450 counterpoint reproduce ...`, and the same command again, which finds no run that is still being written."""
    monkeypatch.setenv("COUNTERPOINT_LM_SCALE", "0.01")
    before = signal.getsignal(signal.SIGTERM)

    def cut() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # `timeout` signals its command, and then the command's group

    threading.Thread(target=cut, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        _language.side_by_side(long_part, [(tmp_path,)])
    assert {path.name for path in tmp_path.iterdir()} == {"begun", "whole", "checkpoint"}
    assert signal.getsignal(signal.SIGTERM) == before
