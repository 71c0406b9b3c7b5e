"""`counterpoint credit`: rows per unit, sums checked, refusals explained."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.app.cli import main
from team_help import record


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    folder = tmp_path_factory.mktemp("credit") / "store"
    world = cpt.world("W1", vote_items=8, max_agents=6)
    runs = world.run("reference", range(2), log=True)
    traces = [runs.trace(0), runs.trace(1), world.run("serial", [0], log=True).trace(0)]
    store = cpt.Store(folder)
    for trace in traces:
        store.add(trace)
    return str(folder), [t.trace_id for t in traces]


class Ended(NamedTuple):
    exit_code: int
    output: str


def run(*args: str) -> Ended:
    """The command as the shell would run it: exit code, and all that was printed."""
    out, code = io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(out):
        try:
            main(["credit", *args])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return Ended(code, out.getvalue())


def test_an_additive_method_shows_what_it_sums_to(stored: tuple[str, list[str]]) -> None:
    store, ids = stored
    out = run(ids[0], "--store", store, "--mechanism", "uniform")
    assert out.exit_code == 0, out.output
    assert "checked to 1e-9" in out.output
    row = json.loads(run(ids[0], "--store", store, "--mechanism", "uniform", "--json").output)
    assert sum(r["value"] for r in row["rows"]) == pytest.approx(row["declared"][ids[0]], abs=1e-9)


def test_a_world_is_the_replay_of_its_own_traces(stored: tuple[str, list[str]]) -> None:
    store, ids = stored
    out = run(ids[0], "--store", store, "--mechanism", "message_delete", "--rows", "3")
    assert out.exit_code == 0, out.output
    assert "forks" in out.output
    assert "smaller rows" in out.output


def test_two_methods_side_by_side_and_one_unit(stored: tuple[str, list[str]]) -> None:
    store, ids = stored
    out = run(ids[0], "--store", store, "--mechanism", "shapley,uniform", "--unit", "agent")
    assert out.exit_code == 0, out.output
    assert ["unit", "id", "agent", "shapley", "uniform"] in [line.split() for line in out.output.splitlines()]
    assert "rank correlation of agents, shapley and uniform: not defined" in out.output
    assert len(run(ids[0], "--store", store, "--mechanism", "best,shapley", "--json").output.splitlines()) == 2
    three = run(ids[0], "--store", store, "--mechanism", "shapley,ledger,group_relative", "--unit", "agent")
    assert three.exit_code == 0, three.output
    assert "rank correlation of agents, shapley and ledger: " in three.output
    assert "group_relative: not identified" in three.output  # one that has no answer does not hide the others
    spread = run(ids[0], "--store", store, "--mechanism", "token_spread", "--set", "credit=ledger", "--rows", "1")
    assert re.search(r"^of +ledger$", spread.output, re.MULTILINE)  # what is spread over tokens is named like any mechanism


def test_the_best_method_is_chosen_and_named_with_its_reason(stored: tuple[str, list[str]], tmp_path: Path) -> None:
    store, ids = stored
    out = run(ids[0], "--store", store).output
    assert f"{ids[0]}: by difference" in out
    assert "chosen  the run can be replayed without each agent" in out
    told = json.loads(run(ids[0], "--store", store, "--json").output)
    assert told["method"] == "difference"
    path = log_of(tmp_path)
    out = run(str(path))
    assert out.exit_code == 0, out.output
    assert "no mechanism can say who earned it: no outcome is recorded" in out.output
    assert "provenance" not in out.output.splitlines()[0]
    assert re.search(r"^difference +is not used: this run cannot be replayed", out.output, re.MULTILINE)
    assert re.search(r"ann .* 1 of 1 ", out.output)
    assert re.search(r"bob .* 0 of 1 ", out.output)
    told = json.loads(run(str(path), "--json").output)
    assert (told["method"], told["rows"]) == (None, [])
    became = {row["agent"]: row["became"] for row in told["work"]["log"]["agents"]}
    assert became["ann"].startswith("its return was used; ")
    assert became["bob"].startswith("no use of its return is seen; ")
    out = run(str(path), "--mechanism", "provenance")
    assert re.search(r"agent +ann +0\.6667 +the key is under the stone", out.output)
    assert "67% traced to the team" in out.output


def log_of(tmp_path: Path) -> Path:
    """A log of a lead with two helpers: texts, no reward."""
    said = [("ann", "return", "the key is under the stone"), ("bob", "return", "no"), ("lead", "aggregate", "key")]
    texts = {f"t{k}": text for k, (_, _, text) in enumerate(said)} | {"t2": "Ann knows it: the key is under the stone"}
    events = [cpt.Event(id=f"s{k}", t=0, type="spawn", agent="lead", to=name) for k, name in enumerate(("ann", "bob"))]
    events += [
        cpt.Event(id=f"e{k}", t=k + 1, type=kind, agent=who, to="lead", content_ref=f"t{k}", tokens_out=9)  # type: ignore[arg-type]
        for k, (who, kind, _) in enumerate(said)
    ]
    edges = [cpt.Edge("s0", "e0", "spawn"), cpt.Edge("s1", "e1", "spawn"), cpt.Edge("e0", "e2", "return"),
             cpt.Edge("e1", "e2", "return")]  # fmt: skip
    trace = cpt.Trace(trace_id="log", task_id="q", events=events, edges=edges, contents=texts)
    cpt.save(trace, tmp_path / "log.trace.jsonl")
    return tmp_path / "log.trace.jsonl"


def test_what_forks_cost_is_said_first(stored: tuple[str, list[str]]) -> None:
    store, ids = stored
    out = run(ids[0], "--store", store, "--mechanism", "message_delete", "--dry-run")
    assert re.search(r"message_delete: [\d,]+ forks of a simulated world, no model calls", out.output)
    assert run(ids[0], "--store", store, "--mechanism", "ledger", "--dry-run").output == "ledger: no forks, no model calls\n"
    assert json.loads(run(ids[0], "--store", store, "--mechanism", "difference", "--dry-run", "--json").output)["tokens"] == 0


def test_a_group_is_several_traces_of_a_task(stored: tuple[str, list[str]]) -> None:
    store, ids = stored
    out = run(ids[0], ids[2], "--store", store, "--mechanism", "group_relative", "--json")
    assert out.exit_code == 0, out.output
    values = [r["value"] for r in json.loads(out.output)["rows"] if r["unit"] == "team"]
    text = run(ids[0], ids[2], "--store", store, "--mechanism", "group_relative").output
    assert re.search(r"^ddof +1$", text, re.MULTILINE)  # the convention, and who was compared with whom, are printed
    assert ids[2] in text.split("\ncompared ")[1]
    assert sum(values) == pytest.approx(0, abs=1e-9)


def test_the_mechanisms_are_listed() -> None:
    out = run("--list")
    assert out.exit_code == 0
    assert "shapley" in out.output
    rows = [json.loads(line) for line in run("--list", "--json").output.splitlines()]
    assert all(row["estimand"] and row["source"] for row in rows)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ([], 2, "no trace was named"),
        (["{0}", "--mechanism", "shaply"], 3, "did you mean 'shapley'"),
        (["{0}", "--mechanism", "counterpoint.errors:did_you_mean"], 2, "not a mechanism"),
        (["{0}", "--set", "x"], 2, "not NAME=VALUE"),
        (["{0}", "--mechanism", "uniform", "--set", "by_tokns=1"], 2, "no option 'by_tokns'"),
        (["{0}", "--set", "by=1"], 2, "belongs to a mechanism"),
        (["{0}", "--mechanism", " , "], 2, "names no mechanism"),
        (["{0}", "--dry-run"], 2, "no forks are made"),
        (["{0}", "--unit", "token"], 5, "no mechanism can say which token earned it"),
        (["{0}", "--unit", "mesage"], 3, "did you mean 'message'"),
        (["{0}", "--unit", "token", "--mechanism", "uniform"], 3, "gives no token rows"),
        (["{0}", "--mechanism", "group_relative"], 5, "not identified"),
        (["nowhere"], 3, "nowhere"),
    ],
)
def test_what_does_not_work_says_so(stored: tuple[str, list[str]], args: list[str], code: int, words: str) -> None:
    store, ids = stored
    out = run(*[a.format(*ids) for a in args], "--store", store)
    assert out.exit_code == code, out.output
    assert words in out.output


def test_a_trace_without_rewards_and_one_without_a_world(tmp_path: Path) -> None:
    from counterpoint.testing import synthetic_trace

    path = tmp_path / "made.trace.json"
    cpt.save(synthetic_trace(3, 20, "swarm"), path)
    out = run(str(path), "--mechanism", "message_delete")
    assert out.exit_code == 5
    assert "not identified" in out.output


def test_forks_of_a_recorded_team_say_what_they_may_ask_of_a_model(tmp_path: Path) -> None:
    from msgspec.structs import replace

    from counterpoint.app.api.credit import asks_model, fork_price
    from counterpoint.errors import Refused

    trace = cpt.load(log_of(tmp_path))
    live = replace(trace, meta={"team": {"model": "openai:large"}}, rewards={"team": 1.0})
    assert asks_model(live)
    assert not asks_model(replace(live, meta={"team": {"model": "fake"}}))
    price = fork_price("message_delete", [live])
    assert price is not None
    assert (price.forks, price.tokens) == (2, 36)  # each return and the answer that read it, 9 tokens each
    with pytest.raises(Refused, match="up to 36 tokens"):
        cpt.credit(live, "message_delete", budget_tokens=20)


def test_a_trace_that_two_names_mean_counts_once(stored: tuple[str, list[str]]) -> None:
    store, ids = stored
    plain = cpt.credit([ids[0], ids[2]], "group_relative", store=store)
    twice = cpt.credit([ids[0], ids[2], f"id:{ids[0]}"], "group_relative", store=store)
    assert twice.rows == plain.rows
    asked = ("--store", store, "--mechanism", "group_relative", "--json")
    once = json.loads(run(ids[0], ids[2], *asked).output)
    assert json.loads(run(ids[0], ids[0], ids[2], *asked).output)["rows"] == once["rows"]
    assert len(cpt.audit([ids[0], ids[0]], store=store, only="scale").traces) == 1
    first, other = cpt.load(ids[0], store=store), cpt.load(ids[2], store=store)
    named_alike = replace(other, trace_id=first.trace_id)
    assert len(cpt.audit([first, named_alike], only="scale").traces) == 2, "two runs that share an id are two"


def test_each_trace_is_forked_by_the_world_or_team_that_made_it(stored: tuple[str, list[str]], tmp_path: Path) -> None:
    store, ids = stored
    one = cpt.load(ids[0], store=store)
    two = cpt.world("V", vote_items=4, max_agents=4).run("reference", [0], log=True).trace(0)
    record(tmp_path / "live", config={"documents": 8, "rows": 2, "parts": 2, "firms": 6}, model="fake:0.5", trace_id="hunt")
    three = cpt.load("hunt", store=tmp_path / "live")
    alone = {t.trace_id: dict(cpt.credit(t, "difference").of(0)) for t in (one, two, three)}
    for order in ([one, two, three], [three, two, one]):
        together = cpt.credit(order, "difference")
        assert {name: dict(together.of(i)) for i, name in enumerate(together.trace_ids)} == alone
        assert cpt.credit(order).mechanism == cpt.credit(order[::-1]).mechanism


def test_a_budget_of_tokens_holds_wherever_the_live_team_stands(stored: tuple[str, list[str]], tmp_path: Path) -> None:
    store, ids = stored
    simulated = cpt.load(ids[0], store=store)
    record(tmp_path / "live", config={"documents": 8, "rows": 2, "parts": 2, "firms": 6}, model="fake:0.5", trace_id="hunt")
    live = cpt.load("hunt", store=tmp_path / "live")
    live = replace(live, meta=live.meta | {"team": live.meta["team"] | {"model": "openai:paid"}})
    for order in ([live, simulated], [simulated, live]):
        with pytest.raises(cpt.Refused, match=r"would make .* ask a model for up to"):
            cpt.credit(order, "message_delete", budget_tokens=1)
    assert cpt.credit(simulated, "message_delete", budget_tokens=1, k=1).rows


def test_a_model_that_is_named_plays_the_task_of_each_trace(tmp_path: Path) -> None:
    dials = {"documents": 8, "rows": 2, "parts": 2, "firms": 6}
    record(tmp_path / "live", trace_id="hunt", model="fake:0.5", config=dials)
    record(tmp_path / "live", trace_id="chase", model="fake:0.5", task="pointer_chase")
    one, two = (cpt.load(name, store=tmp_path / "live") for name in ("hunt", "chase"))
    asked: dict[str, Any] = {"method": "message_substitute", "model": "fake:0.5", "k": 2}
    alone = {t.trace_id: [(r.unit_id, r.value) for r in cpt.credit(t, **asked).rows] for t in (one, two)}
    for order in ([one, two], [two, one]):
        together = cpt.credit(order, **asked)
        found = {name: [(r.unit_id, r.value) for r in together.rows if r.trace == i] for i, name in enumerate(together.trace_ids)}
        assert found == alone
