"""A planner and a tool user learn on grids, end to end: one policy or one per role, groups of teams or of agents and turns."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from tests.lm_help import TEXTS  # noqa: E402
from tests.tiny_help import make_tiny  # noqa: E402

from counterpoint import Trace  # noqa: E402
from counterpoint.lab.lm.weights import find as find_model  # noqa: E402
from counterpoint.lab.tasks.task import task  # noqa: E402
from counterpoint.lab.team.harness import harness  # noqa: E402
from counterpoint.lab.train.lm.advantages import advantages  # noqa: E402
from counterpoint.lab.train.lm.driver import Driver  # noqa: E402
from counterpoint.lab.train.lm.rollout_worker import Rollout  # noqa: E402
from counterpoint.lab.train.lm.run import train_language  # noqa: E402
from counterpoint.lab.train.lm.settings import Learn, TaskMix  # noqa: E402

LIMITS = {"width": 1, "turns": 3, "steps": 2, "max_tokens": 24, "repairs": 0}
MIX = {"name": "T7", "topology": "planner_tool_user", "set": {"size": 4, "walls": 0}, "limits": LIMITS}
TURNS = {
    "credit": ["agent_wise"],
    "options": {"agent_wise": {"by": "turn", "state": True, "convention": "grpo", "singleton": "zero"}},
}
SAID = "walk a1 b2 c3 d4 right down left up: solved not there yet, at MESSAGE lead.1: RETURN: TOOL simulate: STOP:"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    instance = task("T7", size=4, walls=0).instance(1)
    texts = [*TEXTS, instance.question, instance.answer_format, instance.subtasks[0].text, harness("text").system, SAID]
    return make_tiny(tmp_path_factory.mktemp("tiny"), texts=texts, words=620, spread=0.15, context=2048)


def config(model: Path, **more: Any) -> dict[str, Any]:
    usual = {"eval_episodes": 2, "workers": 1, "is_eval_first": False, "eval_every": 1000, "checkpoint_every": 1000}
    return {"model": str(model), "task": [MIX], "imitate": {"steps": 0}, **usual, **more}


@pytest.fixture(scope="module")
def start(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model after it has imitated teams that err."""
    imitate = {"demos": "fake:0.8", "options": {"explore": 0.0}, "teams": 24, "steps": 40, "batch": 6, "lr": 1e-2, "warmup": 4}
    run = train_language(tmp_path_factory.mktemp("start") / "run", config(tiny, imitate=imitate, learn={"updates": 0}))
    rows = run.metrics()
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"]
    assert run.evals()[-1]["malformed"] < 0.9  # it speaks the grammar by now
    return run.path


@pytest.mark.parametrize("adapters", ["", "role"])
@pytest.mark.parametrize("groups", [{"credit": ["group_relative"]}, {**TURNS, "tree": [2, 4]}], ids=["teams", "turns"])
def test_reinforcement_runs_from_what_was_imitated(start: Path, tmp_path: Path, adapters: str, groups: dict[str, Any]) -> None:
    learn = {"updates": 1, "groups": 2, "samples": 8, "steps": 1, "resample": 1, "lr": 1e-3, "cap": 0.0, **groups}
    run = train_language(tmp_path / "run", config(start, adapters=adapters, learn=learn))
    (row,) = run.metrics()
    assert run.about["status"] == "finished"
    assert set(row["roles"]) <= {"planner", "executor"}
    assert row["episodes"] in (16, 32)  # with fresh groups for those that teach nothing
    assert np.isfinite(row["score"])
    source = find_model(str(run.path))
    assert source.policies == (("executor", "planner") if adapters else source.policies)
    assert (row["sequences"] == 0) == (row["flat_groups"] == 1.0)


@pytest.fixture(scope="module")
def teams(tiny: Path) -> list[Trace]:
    """Teams of fakes that play one grid: what they say differs by their slips alone."""
    spec = TaskMix(**MIX).spec(7, "fake:0.5", {"explore": 0.0})  # type: ignore[arg-type]
    with Driver(tiny, workers=1) as driver:
        return driver.play([Rollout(spec=spec, seed=100 + k, trace_id=f"u0-7-{k}") for k in range(24)], None)


def test_a_call_is_compared_with_what_its_agent_said_otherwise_in_the_same_turn(teams: list[Trace]) -> None:
    rows = advantages(teams, Learn(**TURNS)).rows  # type: ignore[arg-type]
    first = {r.trace: r.advantage for r in rows if r.role == "planner" and r.event == _first_call(teams[r.trace])}
    by_words: dict[str, list[int]] = defaultdict(list)
    for i, trace in enumerate(teams):
        by_words[trace.text(trace.events[trace.index[_first_call(trace)]]) or ""].append(i)
    assert len(by_words) > 2
    means = {words: np.mean([teams[i].rewards["team"] for i in some]) for words, some in by_words.items()}
    values = np.array(list(means.values()))
    for words, some in by_words.items():
        expected = (means[words] - values.mean()) / (values.std(ddof=1) + 1e-6)
        assert [first[i] for i in some] == pytest.approx([expected] * len(some))
    team = {r.trace: r.advantage for r in advantages(teams, Learn()).rows}
    assert len({round(team[i] or 0.0, 9) for i in range(len(teams))}) == len({t.rewards["team"] for t in teams})


def _first_call(trace: Trace) -> str:
    return next(e.id for e in trace.events if e.role == "planner" and "call" in (e.extra or {}))
