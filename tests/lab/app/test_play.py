"""`counterpoint play` as a user types it: tasks, topologies, an endpoint, errors, and what the other commands make of the trace."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from counterpoint import Store
from counterpoint.app.cli import main
from endpoint_help import FaultServer


def _run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in args])
    out = capsys.readouterr()
    return int(ended.value.code or 0), out.out, out.err


def test_a_team_of_fakes_needs_nothing_and_its_trace_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "play", "--task", "T1", "--cap", "width=8", "--store", tmp_path, "--id", "mine")
    assert code == 0
    assert re.search(r"^mine  stopped: C-\d+", out)
    assert "team reward" in out
    with Store(tmp_path, read_only=True) as store:
        trace = store.get("mine")
    assert trace.meta["team"]["limits"]["width"] == 8
    assert _run(capsys, "store", "check", "mine", "--store", tmp_path)[0] == 0
    assert _run(capsys, "show", "mine", "--store", tmp_path)[0] == 0
    assert _run(capsys, "audit", "mine", "--store", tmp_path, "--json")[0] in (0, 4)


def test_fork_credit_and_diff_of_a_recorded_team(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _run(capsys, "play", "--task", "T1", "--seed", 1, "--store", tmp_path, "--id", "a", "-q")[0] == 0
    with Store(tmp_path, read_only=True) as store:
        trace = store.get("a")
    at = [e.id for e in trace.events if e.type == "return"][1]
    code, out, _ = _run(capsys, "fork", "a", "--at", at, "--do", "delete", "-n", 4, "--store", tmp_path, "--json")
    told = json.loads(out)
    assert code == 0
    assert set(told["badges"]) == {"reused", "recorded", "re-run", "simulated", "gone"}
    assert told["effect"]["low"] <= told["effect"]["mean"] <= told["effect"]["high"]
    assert told["live"]["calls"]["re-run"] > 0
    assert _run(capsys, "compare", "traces", "a", told["fork"], "--store", tmp_path)[0] in (0, 4)

    monkeypatch.setenv("EDITOR", "sed -i s/C-/D-/")
    code, out, _ = _run(capsys, "fork", "a", "--at", at, "--do", "edit", "--store", tmp_path)
    assert code == 0
    assert "re-run" in out
    assert "one continuation is no effect" in out
    monkeypatch.setenv("EDITOR", "true")
    code, _, err = _run(capsys, "fork", "a", "--at", at, "--do", "edit", "--store", tmp_path)
    assert (code, "nothing was changed" in err) == (2, True)

    code, out, err = _run(capsys, "credit", "a", "--mechanism", "spawn", "--store", tmp_path)
    assert (code, err) == (0, "")
    assert "forks" in out


def test_an_endpoint_is_one_more_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def plays(messages: list[dict[str, str]]) -> str:
        legal = messages[-1]["content"].splitlines()
        lines = [line for line in legal if re.match(r"[A-Z]+\b", line)]
        best = [line for verb in ("DELEGATE", "AGGREGATE", "RETURN", "STOP") for line in lines if line.startswith(verb)] or lines
        spawns = [line for line in lines if line.startswith("SPAWN")]
        done = sum(m["role"] == "assistant" for m in messages)
        chosen = spawns[0] if spawns and done == 0 else best[0]
        return re.sub(r"<.*>", "C-1|Acme|5", chosen)

    monkeypatch.setenv("SOME_KEY", "sk-very-secret")
    with FaultServer(plays) as server:
        code, out, err = _run(
            capsys, "play", "--task", "T1", "--model", "openai:small", "--base-url", server.url, "--model-set", "key_env=SOME_KEY", "--store", tmp_path,
            "--id", "real", "--json", "-q", "--set", "parts=2",
        )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["model"] == "openai:small"
    with Store(tmp_path, read_only=True) as store:
        trace = store.get("real")
    assert any(e.type == "return" and e.tokens_out for e in trace.events)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"sk-very-secret" not in path.read_bytes()


def test_a_dead_endpoint_is_one_error_and_a_kept_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "http://127.0.0.1:9/v1"
    code, _, err = _run(
        capsys,
        "play",
        "--task",
        "T5",
        "--model",
        "openai:x",
        "--base-url",
        url,
        "--model-set",
        "retries=0",
        "--store",
        tmp_path,
        "--id",
        "dead",
    )
    assert code == 1
    assert "the model failed" in err
    assert "Traceback" not in err
    with Store(tmp_path, read_only=True) as store:
        assert store.get("dead").meta["ended"] == "failed"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--task", "T9"], 3, "T9"),
        ([], 2, "no task and no world is named"),
        (["--task", "T1", "--topology", "ring"], 3, "ring"),
        (["--task", "T1", "--model", "gpt"], 3, "no kind of model"),
        (["--task", "T1", "--model", "fake:2"], 2, "from 0 to 1"),
        (["--task", "T1", "--model", "fake:x"], 2, "is not a skill"),
        (["--task", "T1", "--model", "scripted:nowhere.txt"], 3, "no script"),
        (["--task", "T1", "--set", "rows=many"], 2, "rows is a whole number"),
        (["--task", "T1", "--set", "no_such=1"], 2, "no_such"),
        (["--task", "T1", "--cap", "turns=0"], 2, "turns is 0"),
        (["--task", "T1", "--cap", "wings=2"], 2, "wings"),
        (["--task", "T1", "--model-set", "harness=txt"], 3, "did you mean 'text'"),
        (["--task", "T1", "--model-set", "rpm=5"], 2, "rpm is for an endpoint"),
        (["--task", "T1", "--model-set", "device=cuda"], 2, "device is for a local model"),
        (["--task", "T1", "--cap", "tokens=0"], 2, "tokens is 0"),
        (["--task", "T1", "--model-set", "temperature=hot"], 2, "temperature is 'hot'"),
        (["--task", "T1", "--model-set", "pace=slow"], 2, "is not a pace"),
        (["--task", "T1", "--base-url", "http://127.0.0.1:9"], 2, "--base-url is for an endpoint"),
        (["--task", "T1", "--episodes", "3"], 2, "--episodes is for a world"),
        (["--task", "T1", "--model", "openai:x", "--model-set", "price=cheap"], 2, "'cheap' is not a price"),
        (["--resume", "nothing"], 3, "there is no store here"),
    ],
)
def test_bad_input_is_one_clear_error(
    args: list[str], code: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _, err = _run(capsys, "play", *args, "--store", tmp_path)
    assert found == code, err
    assert says in err
    assert err.count("error:") == 1


def test_lists_of_tasks_and_topologies(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _run(capsys, "play", "--task", "list", "--json")
    names = [json.loads(line)["task"] for line in out.splitlines()]
    assert {"ledger_hunt", "path_planning", "sokoban"} <= {name for name in names if ":" not in name}
    assert {"dpbench:NAME", "pettingzoo:NAME"} <= {*names}
    _, out, _ = _run(capsys, "play", "--topology", "list")
    assert "planner_executor_critic" in out


def test_a_scripted_team(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "acts.txt"
    script.write_text(
        "[lead]\nSPAWN worker\nDELEGATE lead.1: s1\nNOOP\nAGGREGATE union\nSTOP\n[*]\nTOOL search: contract\nRETURN: C-1234|Acme|5\n"
    )
    code, out, _ = _run(
        capsys, "play", "--task", "T1", "--model", f"scripted:{script}", "--store", tmp_path / "store", "--json", "-q"
    )
    assert code == 0
    assert json.loads(out)["answer"] == "C-1234|Acme|5"


def test_the_live_tree_draws_a_team(tmp_path: Path) -> None:
    from counterpoint.lab.app.cli._tree import Tree

    tree = Tree()

    class Who:
        def __init__(self, name: str) -> None:
            self.name, self.role, self.depth = name, "worker", name.count(".")

    for n in range(60):
        tree.take("thinks", Who(f"lead.{n}"), {"task": "s1\x1b[2J"})
    lines = tree.lines(10)
    assert len(lines) == 11
    assert "50 more agents" in lines[-1]
    assert "\x1b" not in "".join(lines)
    assert "60 thinking" in tree.line()


def test_what_a_run_was_cannot_be_changed_by_resuming_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, "play", "--task", "T1", "--store", tmp_path, "--id", "a", "-q")[0] == 0
    for words, says in (
        (["--cap", "width=3"], "width cannot change a run that is resumed"),
        (["--model", "fake:0.5"], "--model cannot change a run that is resumed"),
        (["--model-set", "harness=tools"], "harness cannot change a run that is resumed"),
        (["--model-set", "rpm=5"], "rpm is for an endpoint"),
        ([], "this run has ended"),
    ):
        code, _, err = _run(capsys, "play", "--resume", "a", *words, "--store", tmp_path)
        assert (code, says in err) == (2, True), err


def test_after_a_world_of_ones_own_comes_the_credit_of_its_moves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its moves are no messages, so that credit by messages would say nothing."""
    name = str(Path(__file__).parents[3] / "examples" / "shared_fare.py") + ":SharedFare"
    _, out, _ = _run(capsys, "play", "--task", name, "--store", tmp_path, "--id", "ride")
    (offered,) = re.findall(r"counterpoint (credit .*)", out)
    assert "message" not in offered
    code, out, _ = _run(capsys, *offered.split(), "--allow", name)
    assert code == 0
    assert "tool rows sum to" in out
