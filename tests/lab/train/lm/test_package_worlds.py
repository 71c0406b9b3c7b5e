"""A language model learns in a package's world: it imitates the player by hand, then is paid by the world; credit by agent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytest.importorskip("dpbench")

from counterpoint import Store
from counterpoint.lab.team.session import Spec, make_model, play_fakes
from counterpoint.lab.train.lm.advantages import advantages, merged_worth, without_returns
from counterpoint.lab.train.lm.run import train_language
from counterpoint.lab.train.lm.settings import Learn, language_settings
from counterpoint.trace import Trace
from counterpoint.trace.model_calls import model_call
from tiny_help import make_tiny

TABLE = "dpbench:sim_n3_nocomm_t6"
TEXTS = (
    "GRAB_LEFT GRAB_RIGHT RELEASE WAIT\nYou are P0, one of 3 philosophers. State: hungry. Meals: 0. You hold: nothing. fork:",
)


@pytest.fixture(scope="module")
def tables() -> list[Trace]:
    """Two plays of one task that earn differently."""
    made = [play_fakes(TABLE, seed=0, explore=0.0), play_fakes(TABLE, seed=0, model="fake:0", explore=0.0)]
    assert made[0].rewards != made[1].rewards
    return made


def test_every_call_has_an_advantage_and_agents_may_differ(tables: list[Trace]) -> None:
    team = advantages(tables, Learn(credit=("group_relative",), updates=1))
    calls = sum(model_call(e) is not None for trace in tables for e in trace.events)
    assert len(team.rows) == calls
    assert {row.advantage > 0 for row in team.rows if row.trace == 0} == {True}
    each = advantages(tables, Learn(credit=("agent_wise",), options={"agent_wise": {"channel": "R2"}}, updates=1))
    values = {(row.trace, tables[row.trace].events[tables[row.trace].index[row.event]].agent): row.advantage for row in each.rows}
    assert len({round(v, 6) for (trace, _), v in values.items() if trace == 0}) > 1
    less = advantages(tables, Learn(credit=("difference",), updates=1))
    assert any(abs(row.advantage or 0) > 0 for row in less.rows)


def test_what_a_world_pays_without_an_agent(tables: list[Trace]) -> None:
    """Difference and worth agree where nobody else acts: the grand total is the reward, nobody's is nothing."""
    trace = tables[0]
    members = frozenset(f"lead.P{i}" for i in range(3))
    assert merged_worth(trace, members) == trace.rewards["team"]
    assert merged_worth(trace, frozenset()) == 0
    for agent in members:
        rest = merged_worth(trace, members - {agent})
        assert without_returns(trace, agent) == pytest.approx(rest)
    assert without_returns(trace, "lead") == trace.rewards["team"]


def test_a_model_learns_in_a_packages_world(tmp_path: Path) -> None:
    make_tiny(tmp_path / "tiny", texts=TEXTS, context=768, words=400)
    config: dict[str, Any] = {
        "model": str(tmp_path / "tiny"), "task": [{"name": TABLE, "limits": {"max_tokens": 8, "repairs": 0}}],
        "workers": 1, "eval_episodes": 2, "eval_every": 50, "is_eval_first": False, "keep_traces": 1,
        "imitate": {"demos": "fake:1", "options": {"explore": 0.0}, "teams": 2, "steps": 12, "batch": 18, "lr": 5e-3},
        "learn": {"credit": ["group_relative"], "updates": 1, "groups": 1, "samples": 2, "resample": 0, "steps": 1},
    }  # fmt: skip
    assert language_settings(config).task[0].spec(3, "engine").harness == "actions"
    train_language(tmp_path / "run", config)
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert about["kind"] == "language model"
    with Store(tmp_path / "run" / "store", read_only=True) as store:
        traces = [store.get(trace_id) for trace_id in store.ids()]
    assert traces
    assert all(t.meta["harness"]["name"] == "actions" and "task_throughput" in t.metrics for t in traces)
    model = make_model(f"local:{tmp_path / 'run'}", Spec(task=TABLE).make_task())
    assert model.name.startswith("local:")
    asyncio.run(model.close())


def test_a_network_learns_and_is_on_the_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from counterpoint.app.cli import main

    run = str(tmp_path / "net")
    common = ("--world", TABLE, "--preset", "grpo", "--cap", "updates=1", "-o", run)
    for words in (
        ["train", "net", *common, "--set", "episodes=8", "--set", "eval_episodes=1", "--set", "keep_traces=0"],
        ["bench", "run", "dpbench:sim_n4_nocomm_t6", "--team", f"run:{run}", "--seeds", "2", "--json", "-o", str(tmp_path / "b")],
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code in (0, None), capsys.readouterr().err
    card = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (card["runs"], card["broken"]) == (2, {})
    assert card["packages"]["sim_n4_nocomm_t6"]["steps"]["runs"] == 2
