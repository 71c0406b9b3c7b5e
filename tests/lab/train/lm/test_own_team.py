"""A person's own team is run as it is: its calls, its agents, its faults; and a tiny model learns in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not all(map(find_spec, ("torch", "tokenizers", "openai", "starlette", "uvicorn"))):
    pytest.skip("needs the llm, live and view extras", allow_module_level=True)

import torch
from click.testing import CliRunner

import counterpoint
from counterpoint.app.cli import cli
from counterpoint.credits.call_rows import call_rows
from counterpoint.errors import CounterpointError, InputError, NotFound, NotIdentified
from counterpoint.lab.lm.engine import Engines
from counterpoint.lab.train.lm.advantages import advantages, less_prices
from counterpoint.lab.train.lm.own_driver import OwnDriver, settings_of
from counterpoint.lab.train.lm.own_endpoint import OwnEndpoint
from counterpoint.lab.train.lm.own_rollout import OwnRollout
from counterpoint.lab.train.lm.own_tasks import OwnTasks
from counterpoint.lab.train.lm.own_worker import serve_teams
from counterpoint.lab.train.lm.policies import engine_of, read_model
from counterpoint.lab.train.lm.run import train_language
from counterpoint.lab.train.lm.settings import HELD_OUT_END, Learn, Prices, TaskMix, language_settings
from counterpoint.lab.train.lm.team_batch import TeamBatch
from counterpoint.lab.train.lm.worker_link import LocalHost
from counterpoint.trace import Trace
from counterpoint.trace.rows import Credit
from lm_help import TEXTS
from tiny_help import make_tiny

TEAMS = Path(__file__).parent / "own_teams"
CASES = [{"id": f"c{k}", "question": f"What is {k}?", "answer": str(k)} for k in range(20)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny(tmp_path_factory.mktemp("tiny"), texts=[*TEXTS, "What is a scout critic merge banana"], words=400, spread=0.15, context=2048)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cases") / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in CASES))
    return path


def mix(name: str, cases: Path, **more: Any) -> TaskMix:
    return TaskMix(name=f"{TEAMS}/{name}", cases=str(cases), **more)


@pytest.fixture(scope="module")
def endpoint(model: Path, cases: Path) -> Iterator[OwnEndpoint]:
    files = read_model(str(model), torch.device("cpu"))
    settings = language_settings({"model": str(model), "task": [{"name": f"{TEAMS}/plain.py:team", "cases": str(cases)}], "learn": {"updates": 1}})
    engines = Engines({"shared": engine_of(settings, files)})

    def load() -> Any:
        torch.set_num_threads(1)
        return files.chat, engines

    made = OwnEndpoint(load, slots=16, most=8)
    made.start()
    yield made
    made.close()


@contextmanager
def driver(endpoint: OwnEndpoint, task: TaskMix, workers: int = 1) -> Iterator[OwnDriver]:
    with OwnDriver(endpoint, task, LocalHost(settings_of(task), serve_teams), workers=workers) as made:
        yield made


def rollouts(count: int = 1, *, questions: Sequence[str] = (), seed: int = 5, **more: Any) -> list[OwnRollout]:
    lines = [{"question": text, "answer": "x"} for text in questions] or CASES[:count]
    made = [OwnRollout(f"c{k}", line, seed + k, 1.0, f"r{k}", "update 3") for k, line in enumerate(lines)]
    return [replace(one, **more) for one in made]


def calls_of(trace: Trace) -> list[Any]:
    return list(call_rows([trace], Credit("none", "", False, (trace.trace_id,), ())).rows)


def roles(trace: Trace) -> list[str]:
    return sorted(str(row.role) for row in calls_of(trace))


# -- every framework -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "needs", "expected"),
    [
        ("plain.py:team", "openai", ["you-are-a-critic", "you-are-a-scout", "you-merge"]),
        ("graph.py:team", "langchain_openai", ["critic", "critic", "scout", "writer"]),
        ("sdk.py:team", "agents", ["scout", "writer"]),
        ("pydantic_team.py:team", "pydantic_ai", ["you-are-a-scout", "you-merge"]),
        ("node.py:team", "openai", ["you-are-a-critic", "you-are-a-scout", "you-merge"]),
    ],
)
def test_each_call_is_one_row_of_the_agent_that_made_it(endpoint: OwnEndpoint, cases: Path, name: str, needs: str, expected: list[str]) -> None:
    if find_spec(needs) is None or (name.startswith("node") and shutil.which("node") is None):
        pytest.skip(f"{needs} is not installed" if find_spec(needs) is None else "Node is not here")
    with driver(endpoint, mix(name, cases)) as made:
        traces = made.play(rollouts(2))
    for trace in traces:
        assert counterpoint.problems(trace) == []
        assert roles(trace) == expected
        for row in calls_of(trace):
            assert row.token_ids is not None
            assert row.logps is not None
            assert len(row.token_ids) == len(row.logps) > 0
            assert row.prompt_rest is not None
        assert "failed" not in trace.meta["rollout"]
        assert trace.rewards["team"] in (0.0, 1.0)  # no scorer: an exact match
    assert [t.trace_id for t in traces] == ["r0", "r1"]
    assert made.stats.calls == 2 * len(expected)


def test_langgraph_nodes_are_spawned_and_return_and_each_step_holds_its_own_tokens(endpoint: OwnEndpoint, cases: Path) -> None:
    pytest.importorskip("langchain_openai")
    with driver(endpoint, mix("graph.py:team", cases)) as made:
        (trace,) = made.play(rollouts(1))
    assert sorted(e.to for e in trace.events if e.type == "spawn") == ["critic", "scout", "writer"]
    said = {trace.contents[e.content_ref] for e in trace.events if (e.extra or {}).get("call") and e.content_ref}
    critics = [e for e in trace.events if e.role == "critic" and (e.extra or {}).get("call")]
    asked = [trace.contents[e.extra["call"]["prompt"]["more"][-1]] for e in critics]  # type: ignore[index]
    assert sorted(asked) == ["What is 0? 0", "What is 0? 1"]  # two at once in one node: told apart by what was asked
    writer = next(e for e in trace.events if e.role == "writer" and (e.extra or {}).get("call"))
    assert trace.meta["rollout"]["answer"] == trace.contents[writer.content_ref]
    assert len(said) >= 3


def test_a_team_that_records_itself_stays_out_of_its_store(endpoint: OwnEndpoint, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_STORE", str(tmp_path / "store"))
    with driver(endpoint, mix("recorded.py:team", cases)) as made:
        (trace,) = made.play(rollouts(1))
    assert not (tmp_path / "store").exists()
    assert roles(trace) == ["lead", "reader", "reader"]  # an answer that did not suit is a call of its own
    reader = [e for e in trace.events if e.role == "reader" and (e.extra or {}).get("call")]
    asked = [trace.contents[e.extra["call"]["prompt"]["more"][-1]] for e in reader]  # type: ignore[index]
    assert sorted(asked) == ["What is 0? once", "What is 0? twice"]  # what the model read, and not what `ask` was given
    assert counterpoint.problems(trace) == []


def test_the_page_says_which_credit_reaches_which_calls(endpoint: OwnEndpoint, cases: Path) -> None:
    """The table of docs/identified.md, on two cases by three samples."""
    pytest.importorskip("langchain_openai")
    page = (Path(__file__).parents[4] / "docs" / "identified.md").read_text().partition("## In training")[2]
    everywhere, turns = (re.findall(r"`(\w+)`", line) for line in page.splitlines() if line.startswith(("| `group", "| `agent_l")))
    reached: dict[str, dict[str, float]] = {}
    for name in ("plain.py:team", "graph.py:team"):
        with driver(endpoint, mix(name, cases)) as made:
            played = made.play([replace(one, case=f"c{k % 2}", trace_id=f"r{k}") for k, one in enumerate(rollouts(6))])
        traces = [less_prices(trace, Prices()) for trace in played]
        for credit in (*everywhere, *turns, "critical_steps", "puppeteer", "marsrl"):
            try:
                rows = advantages(traces, Learn(credit=(credit,))).rows
                reached.setdefault(name, {})[credit] = sum(row.advantage is not None for row in rows) / len(rows)
            except NotIdentified:
                reached.setdefault(name, {})[credit] = -1.0
    plain, graph = reached["plain.py:team"], reached["graph.py:team"]
    assert {credit: (plain[credit], graph[credit]) for credit in everywhere} == dict.fromkeys(everywhere, (1.0, 1.0))
    assert {credit: (plain[credit], graph[credit]) for credit in turns} == dict.fromkeys(turns, (-1.0, 1.0))
    assert 0 < plain["marsrl"] < 1
    assert 0 < graph["marsrl"] < 1
    assert (0 < plain["critical_steps"] < 1, graph["critical_steps"]) == (True, 0.0)
    assert plain["puppeteer"] == graph["puppeteer"] == 0.0


# -- what is drawn -----------------------------------------------------------------------------------------------------------------


def test_a_rollout_is_drawn_by_its_seed_and_in_training_at_the_runs_temperature(endpoint: OwnEndpoint, cases: Path) -> None:
    def answers(**more: Any) -> list[str]:
        return [t.meta["rollout"]["answer"] for t in made.play(rollouts(4, **more))]

    with driver(endpoint, mix("plain.py:team", cases)) as made:
        first = answers()
        assert answers() == first  # the code asks for temperature 0 and no seed: the run decides
        assert answers(seed=900) != first
        own = answers(temperature=None)
        assert answers(seed=900, temperature=None) == own  # left to the code: greedy
        (trace,) = made.play(rollouts(1))
    note = next(e.extra["call"] for e in trace.events if (e.extra or {}).get("call"))  # type: ignore[index]
    assert (note["temperature"], note["version"]) == (1.0, "update 3")


# -- faults ------------------------------------------------------------------------------------------------------------------------


def test_a_fault_costs_its_rollout_and_is_named(endpoint: OwnEndpoint, cases: Path) -> None:
    task = mix("faults.py:team", cases, reward=f"{TEAMS}/faults.py:score", limits={"seconds": 45.0})
    with driver(endpoint, task, workers=2) as made, pytest.warns(RuntimeWarning, match="is lost"):
        traces = made.play(rollouts(questions=["fine", "raise", "die", "hang", "nan", "well"]))
    assert [t.trace_id for t in traces] == ["r0", "r1", "r4", "r5"]
    worth = {t.trace_id: t.rewards["team"] for t in traces}
    assert worth == {"r0": 1.0, "r1": 0.0, "r4": 0.0, "r5": 1.0}
    failed = {t.trace_id: t.meta["rollout"].get("failed", "") for t in traces}
    assert failed["r1"] == "ValueError: this answer does not suit at faults.py:19"
    assert "no number" in failed["r4"]
    assert calls_of(traces[1])[0].token_ids is not None  # what the model said before the team failed can be learned from
    assert sorted(made.stats.lost) == ["it did not come to an end in 45 s", "its process ended (exit code 3)"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("faults.py:silent", "no call of the team reaches the endpoint"),
        ("faults.py:broken", "every team fails before it asks the model: KeyError.*no such thing"),
        ("faults.py:nobody", "the team cannot be loaded: .* has no 'nobody'"),
        ("faults.py:NOT_A_FUNCTION", "not a function"),
    ],
)
def test_code_that_cannot_be_trained_is_one_error(endpoint: OwnEndpoint, cases: Path, name: str, message: str) -> None:
    with pytest.raises((InputError, NotFound), match=message), driver(endpoint, mix(name, cases)) as made:
        made.play(rollouts(6))


def test_a_case_that_is_judged_counts_as_nothing_where_it_is_lost(endpoint: OwnEndpoint, cases: Path) -> None:
    """Runs are compared case by case: none may be missing."""
    with driver(endpoint, mix("faults.py:team", cases, reward=f"{TEAMS}/faults.py:score")) as made:
        with pytest.warns(RuntimeWarning, match="is lost"):
            traces = made.play(rollouts(questions=["fine", "die", "well"], is_held_out=True))
        assert made.losses() == {"its process ended (exit code 3)": 1}
        assert made.losses() == {}
    assert [(t.trace_id, t.rewards["team"]) for t in traces] == [("r0", 1.0), ("r1", 0.0), ("r2", 1.0)]
    assert TeamBatch([less_prices(trace, Prices()) for trace in traces]).row()["score"] == pytest.approx(2 / 3)


def test_a_worker_loads_no_model() -> None:
    code = "import sys, counterpoint.lab.train.lm.own_worker as w; print([m for m in ('torch', 'transformers', 'duckdb') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- tasks -------------------------------------------------------------------------------------------------------------------------


def test_a_fifth_is_held_out_by_the_ids_alone_and_the_rest_comes_round(cases: Path, tmp_path: Path) -> None:
    tasks = OwnTasks.read(mix("plain.py:team", cases))
    assert len(tasks.held_out) == 4
    assert not set(tasks.held_out) & set(tasks.learned)
    assert {tasks.case(seed) for seed in range(40)} == set(tasks.held_out)
    turns = [[tasks.case(HELD_OUT_END + 16 * turn + k) for k in range(16)] for turn in range(3)]
    assert all(sorted(turn) == sorted(tasks.learned) for turn in turns)
    assert turns[0] != turns[1]
    other = tmp_path / "turned.jsonl"
    other.write_text("".join(json.dumps(case) + "\n" for case in CASES[::-1]))
    assert OwnTasks.read(mix("plain.py:team", other)).held_out == tasks.held_out


def test_one_case_is_too_few(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"question": "?", "answer": "a"}\n')
    with pytest.raises(InputError, match="holds one case"):
        OwnTasks.read(mix("plain.py:team", tmp_path / "one.jsonl"))


# -- learning ----------------------------------------------------------------------------------------------------------------------


def config(model: Path, cases: Path, **more: Any) -> dict[str, Any]:
    task = {"name": f"{TEAMS}/plain.py:team", "cases": str(cases), "reward": f"{TEAMS}/plain.py:score", "limits": {"max_tokens": 6}}
    learn = {"updates": 8, "groups": 4, "samples": 8, "lr": 8e-3, "steps": 4, "resample": 0, **more.pop("learn", {})}
    return {"model": str(model), "task": [task], "learn": learn, "eval_episodes": 4, "workers": 2, "eval_every": 100, "checkpoint_every": 100, **more}


def test_a_tiny_model_learns_in_a_team_that_was_not_written_for_it(model: Path, cases: Path, tmp_path: Path) -> None:
    run = train_language(tmp_path / "run", config(model, cases))
    rows = [row for row in run.metrics() if row["phase"] == "learn"]
    assert rows[-1]["reward"] > rows[0]["reward"] + 0.12
    assert max(row["mismatch"] for row in rows) < 1e-3  # the endpoint's log-probabilities are the learner's
    assert len(run.evals()) == 2
    assert run.about["status"] == "finished"
    assert (run.path / "model").is_dir()
    assert run.about["world"] == "plain.team"


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_run_that_was_cut_off_resumes(model: Path, cases: Path, tmp_path: Path, is_ahead: bool) -> None:
    learn = {"updates": 3, "groups": 2, "samples": 2, "ahead": is_ahead}
    told = config(model, cases, learn=learn, checkpoint_every=1, workers=1)
    whole = train_language(tmp_path / "whole", told)
    part = tmp_path / "part"

    class Cut(Exception):
        pass

    def cut(kind: str, row: Any) -> None:
        if kind == "checkpoint" and row["update"] == 1:
            raise Cut

    with pytest.raises(Cut):
        train_language(part, told, progress=cut)
    resumed = train_language(part, {}, resume=True, allow=[told["task"][0]["name"], told["task"][0]["reward"]])
    assert resumed.about["status"] == "finished"
    assert [row["update"] for row in resumed.metrics()] == [row["update"] for row in whole.metrics()]


# -- the command -------------------------------------------------------------------------------------------------------------------


def test_the_command_plans_a_run_of_a_team(model: Path, cases: Path, tmp_path: Path) -> None:
    asked = ["train", "lm", "--model", str(model), "--team", f"{TEAMS}/plain.py:team", "--tasks", str(cases), "--dry-run", "-o", str(tmp_path / "run")]
    got = CliRunner().invoke(cli, asked)
    assert got.exit_code == 0, got.output
    assert "would train" in got.output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--team", "nowhere.py:team", "--tasks", "CASES"], "no file nowhere.py"),
        (["--team", "TEAM"], "no tasks for the team"),
        (["--team", "TEAM", "--tasks", "nowhere.jsonl"], "no such file"),
        (["--team", "TEAM", "--tasks", "CASES", "--task", "T1"], "--team brings its own tasks"),
        (["--tasks", "CASES"], "is of a team of your own"),
        (["--team", "TEAM", "--tasks", "CASES", "--mechanism", "difference"], "asks the task's own checker"),
        (["--team", "TEAM", "--tasks", "CASES", "--demos", "fake:1"], "a fake cannot show"),
        (["--team", "TEAM", "--tasks", "CASES", "--set", "adapters=role"], "roles of a team of your own"),
        (["--team", "TEAM", "--tasks", "CASES", "--set", "limits.width=2"], "no limit named"),
        (["--team", "TEAM", "--tasks", "CASES", "--set", "limits.max_tokens=0"], "max_tokens is 0"),
        (["--team", "TEAM", "--tasks", "CASES", "--set", "documents=2"], "no setting or dial"),
        (["--team", "team", "--tasks", "CASES"], "names no function"),
    ],
)
def test_what_cannot_be_trained_is_one_error_before_anything_runs(model: Path, cases: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    words = {"CASES": str(cases), "TEAM": f"{TEAMS}/plain.py:team"}
    run = ["train", "lm", "--model", str(model), *(words.get(word, word) for word in arguments), "-o", str(tmp_path / "run")]
    got = CliRunner().invoke(cli, run)
    assert isinstance(got.exception, CounterpointError), got.output
    assert message in str(got.exception)
    assert not (tmp_path / "run").exists()


def test_a_team_is_run_by_actors_of_a_cluster(model: Path, cases: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    told = config(model, cases, learn={"updates": 1, "groups": 1, "samples": 2}, eval_episodes=1, workers=1, runner="ray")
    run = train_language(tmp_path / "run", told)
    assert run.about["status"] == "finished"
    assert run.metrics()[-1]["calls_per_episode"] == 3
