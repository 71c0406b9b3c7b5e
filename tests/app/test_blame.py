"""`inject` and `blame` as a user runs them: planted, ranked, found by forks, priced, and refused with what would help."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterpoint.app.load_save import load, save
from counterpoint.store import Store
from counterpoint.trace.mistake import mistake_of

Ends = Callable[..., tuple[int, str, str]]
LOGS = Path(__file__).parents[2] / "examples" / "logs" / "who_and_when"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one live team of fakes that succeeded, `hunt`."""
    from counterpoint.lab.bench.blame_cases import team_run
    from counterpoint.lab.team.session import Spec
    from counterpoint.lab.team.state import Limits

    folder = tmp_path_factory.mktemp("live") / "store"
    config = {"documents": 20, "rows": 3, "parts": 2}
    options = {"explore": 0.0}
    spec = Spec(
        task="ledger_hunt", config=config, seed=5, topology="centralized", model="fake:1", options=options, limits=Limits(width=2)
    )
    with Store(folder) as store:
        store.add(replace(team_run(spec), trace_id="hunt"))
    return folder


def lines(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_planted_mistake_is_stored_ranked_and_found(run: Ends, live: Path) -> None:
    code, out, _ = run("bench", "inject", "hunt", "--kind", "wrong_fact", "--seed", 1, "--store", live, "--json")
    assert code == 0
    (told,) = lines(out)
    assert (told["kind"], told["is_decisive"], told["reward_without"]) == ("wrong_fact", True, 1.0)
    name = str(told["trace_id"])
    code, out, _ = run("blame", name, "--store", live, "--json", "--rows", 3)
    rows = lines(out)
    assert [r["rank"] for r in rows] == [1, 2, 3]
    assert {"agent", "step", "score"} <= rows[0].keys()
    code, out, err = run("blame", name, "--replay", "--store", live, "--json")
    found = lines(out)[-1]["decisive"]
    assert (code, found["event"], found["agent"]) == (0, told["event"], told["agent"])  # type: ignore[index]
    code, out, err = run("blame", name, "--replay", "--store", live)
    assert f"by forks  step {told['step']} of {told['agent']}" in out
    assert err == ""  # a fake costs nothing
    code, _, err = run("blame", "hunt", "--store", live)
    assert code == 5
    assert "nobody is to blame" in err


def test_a_budget_and_an_endpoint_are_said_before_they_cost(run: Ends, live: Path) -> None:
    _, out, _ = run("bench", "inject", "hunt", "--kind", "early_stop", "--seed", 1, "--store", live, "--json")
    name = str(lines(out)[0]["trace_id"])
    url = ("--model", "openai:nobody", "--base-url", "http://127.0.0.1:9")
    code, _, err = run("blame", name, "--replay", *url, "--store", live)
    assert code == 5
    assert "--cap tokens=" in err
    code, _, err = run("blame", name, "--replay", "--cap", "tokens=0", "--store", live)
    assert code == 5
    assert "budget of 0" in err


def test_logs_as_they_come_and_many_at_once(run: Ends, tmp_path: Path) -> None:
    (path,) = sorted((LOGS / "Hand-Crafted").glob("*.json"))[:1]
    code, out, _ = run("blame", path, "--json", "--all")
    assert code == 0
    history = json.loads(path.read_text())["history"]
    for row in lines(out):
        speaker = history[int(str(row["step"]))]
        assert str(row["agent"]) in str(speaker.get("name") or speaker["role"])
    assert run("import", LOGS, "--store", tmp_path / "s")[0] == 0
    code, out, _ = run("blame", "--store", tmp_path / "s", "--all")
    assert code == 0
    assert "runs judged" in out
    assert out.startswith("cause")
    code, told, _ = run("blame", "--store", tmp_path / "s", "--all", "--summary", "--json")
    unclear = int(found[1]) if (found := re.search(r"([0-9]+) in which no step stands out", out)) else 0
    assert sum(int(str(r["runs"])) for r in lines(told)) == len(list(Store(tmp_path / "s", create=False).ids())) - unclear
    assert run("blame", "--replay", "--store", tmp_path / "s")[0] == 2
    assert run("blame", path, "--replay", "--all")[0] == 5


def test_inject_says_what_it_needs(run: Ends, live: Path, tmp_path: Path) -> None:
    assert run("bench", "inject", "hunt", "--kind", "wrong", "--store", live)[0] == 2
    file = save(load("hunt", store=live), tmp_path / "hunt.jsonl")
    assert "-o DIR" in run("bench", "inject", file)[2]
    code, out, _ = run("bench", "inject", file, "-o", tmp_path / "broken", "--seed", 3)
    assert code == 0
    (kept,) = (tmp_path / "broken").glob("*.jsonl")
    assert str(kept) in out
    assert mistake_of(load(kept)) is not None
    code, _, err = run("bench", "inject", next(LOGS.rglob("*.json")), "-o", tmp_path / "no")
    assert code == 5
    assert "counterpoint play" in err
    code, _, err = run("bench", "inject", "hunt", "--kind", "late_stop", "--store", live)
    assert code == 5
    assert "harmless=true" in err


def test_a_person_says_that_a_run_failed_and_forks_are_not_held_against_that(run: Ends, live: Path, tmp_path: Path) -> None:
    store = tmp_path / "scored"
    with Store(store) as opened:
        opened.add(load("hunt", store=live))
    assert run("blame", "hunt", "--store", store)[0] == 5, "the run says itself that it succeeded"
    assert run("notes", "score", "hunt", "down", "--author", "ann", "--store", store)[0] == 0
    code, out, _ = run("blame", "hunt", "--rows", 1, "--store", store)
    assert (code, "team reward 0;" in out) == (0, True)
    code, _, err = run("blame", "hunt", "--replay", "--store", store)
    assert code == 5
    assert "team 0 by ann is a person's score" in err
    code, out, _ = run("bench", "inject", "hunt", "--kind", "wrong_fact", "--seed", 1, "--store", store, "--json")
    assert code == 0
    (told,) = lines(out)
    assert (told["reward_without"], told["is_decisive"]) == (1.0, True)
    broken = str(told["trace_id"])
    assert run("notes", "score", broken, "up", "--author", "ann", "--store", store)[0] == 0
    assert run("blame", broken, "--store", store)[0] == 5, "whoever scores it decides"
    code, out, err = run("bench", "inject", broken, "--kind", "wrong_fact", "--set", "harmless=true", "--samples", 3, "--seed", 2, "--store", store, "--json")
    assert code == 0, err
    assert all(row["reward_without"] == told["reward"] for row in lines(out)), "both rewards are the run's own"


def test_a_repair_holds_the_named_step_against_its_controls_at_equal_calls(run: Ends, live: Path) -> None:
    _, out, _ = run("bench", "inject", "hunt", "--kind", "wrong_fact", "--seed", 1, "--store", live, "--json")
    (told,) = lines(out)
    name = str(told["trace_id"])
    code, out, err = run("blame", name, "--repair", "--samples", 1, "--store", live, "--json", "--rows", 1)
    made: dict[str, Any] = lines(out)[-1]["repair"]  # type: ignore[assignment]
    assert (code, err) == (0, "")
    arms = {arm["arm"]: arm for arm in made["arms"]}
    assert list(arms) == ["named step", "random step", "last step", "retry"]
    assert (arms["retry"]["successes"], arms["last step"]["successes"]) == (1, 0)
    assert arms["retry"]["calls"] == made["budget"] >= max(arm["calls"] + arm["cut"] for arm in made["arms"])
    assert arms["named step"]["each"][0]["event"] == lines(out)[0]["event"], "the first suspect"
    code, out, _ = run("blame", name, "--repair", "--replay", "--samples", 1, "--rows", 1, "--store", live)
    assert code == 0
    assert f"by forks  step {told['step']} of" in out
    assert re.search(rf"named step +{told['event']} {re.escape(str(told['agent']))} +12 of 12 ", out), "found by forks"
    assert "calls of 1 plain retry" in " ".join(out.split()), "on a screen of any width"


def test_a_repair_says_what_it_needs(run: Ends, live: Path) -> None:
    path = next((LOGS / "Hand-Crafted").glob("*.json"))
    code, _, err = run("blame", path, "--repair", "--all")
    assert code == 5
    assert re.search(r"counterpoint fork \S+ --at s\d+ --model NAME", err), "what plays a log on"
    assert run("blame", "--repair", "--store", live)[0] == 2, "one run at a time"
    _, out, _ = run("bench", "inject", "hunt", "--kind", "early_stop", "--seed", 1, "--store", live, "--json")
    name = str(lines(out)[0]["trace_id"])
    url = ("--model", "openai:nobody", "--base-url", "http://127.0.0.1:9")
    code, _, err = run("blame", name, "--repair", *url, "--store", live)
    assert code == 5
    assert "this may make 11 forks" in err, "two retries, as much for three arms, and three tries that end past the budget"
    code, _, err = run("blame", name, "--repair", "--cap", "tokens=0", "--store", live)
    assert code == 5
    assert "budget of 0" in err
