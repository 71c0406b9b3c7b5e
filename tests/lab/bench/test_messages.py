"""Labelled messages: small teams for real, rows that come back, the leaderboard by hand, and what a file must not hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.bench.messages import labels
from counterpoint.lab.bench.messages import plan as plans
from counterpoint.lab.bench.messages.board import board_row, ceiling, stepped_up
from counterpoint.lab.bench.messages.estimators import ESTIMATORS, Batch, Estimates, own_estimator
from counterpoint.lab.bench.messages.labels import Maker, OneAnswer, held_out_rows, make
from counterpoint.lab.bench.messages.plan import SAMPLES, Plan
from counterpoint.lab.bench.messages.rows import MessageRow, Messages, read_messages
from counterpoint.lab.lm.model import Call, Completion, Message
from counterpoint.trace import Trace

Ends = Callable[..., tuple[int, str, str]]
SMALL = ("T6 swarm", "T6 planner_executor_critic")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight runs of small teams of test doubles, one instance of two held out."""
    place = tmp_path_factory.mktemp("labels")
    make(place, _plan(), 8)
    return place


def _plan() -> Plan:
    seed = next(s for s in range(50) if [Plan(seed=s, teams=SMALL).run(4 * g).is_held_out for g in range(2)] == [False, True])
    return Plan(seed=seed, k=2, teams=SMALL, changes=("delete", "neutral", "other", "delay"))


def _row(run: str, event: str, value: float, **more: Any) -> MessageRow:
    usual: dict[str, Any] = {
        "run": run, "group": run, "team": "t", "task": "T1", "topology": "swarm", "model": "fake", "seed": 0, "split": "public",
        "event": event, "kind": "return", "sender": "a", "receiver": "b", "text": "x", "place": 0, "of": 3, "length": 1,
        "readers": 1, "reward": 1.0, "change": "delete", "value": value, "se": 0.0, "here": value, "pairs": [value] * 4, "forks": 9,
        "calls": 18, "calls_here": 2,
    }  # fmt: skip
    return MessageRow(**(usual | more))


def test_the_same_plan_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    make(tmp_path, _plan(), 8)
    for name in ("rows-00000.parquet", "runs-00000.zip", "about.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_a_cut_folder_goes_on(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(seed=1, k=2, teams=("T6 debate",))
    monkeypatch.setattr(labels, "PART", SAMPLES)
    make(tmp_path, plan, SAMPLES)
    before = (tmp_path / "rows-00000.parquet").stat().st_mtime_ns
    make(tmp_path, plan, 2 * SAMPLES)
    assert (tmp_path / "rows-00000.parquet").stat().st_mtime_ns == before
    assert len({r.run for r in read_messages(tmp_path).rows}) == 2 * SAMPLES
    with pytest.raises(InputError, match="another plan"):
        make(folder, plan, SAMPLES)


def test_a_label_is_the_mean_of_forks_that_somebody_makes_by_hand(folder: Path) -> None:
    from counterpoint.credits.forks import fork_seeds
    from counterpoint.lab.team.live_replay import LiveReplay
    from counterpoint.trace.replay import Delete, Fork

    plan, found = _plan(), read_messages(folder)
    row = next(r for r in found.rows if r.is_label and r.change == "delete" and not r.is_zero)
    run = next(plan.run(n) for n in range(8) if plan.run(n).name == row.run)
    trace = found.runs()[row.run]
    seeds = fork_seeds(run.forks, trace, plan.k)
    kept, gone = (LiveReplay().returns(trace, [Fork(row.event, do, s) for s in seeds]) for do in (None, Delete()))
    assert row.pairs == pytest.approx((kept - gone).tolist())
    assert row.value == pytest.approx(float(np.mean(kept - gone)))
    assert row.se == pytest.approx(float(np.std(kept - gone, ddof=1) / 2**0.5))
    assert row.here == pytest.approx(row.reward - LiveReplay().returns(trace, [Fork(row.event, Delete())])[0])


def test_unread_messages_are_worth_exactly_nothing(folder: Path) -> None:
    unread = [r for r in read_messages(folder).rows if r.is_label and r.readers == 0 and r.change == "delete"]
    assert [r for r in unread if not r.is_zero or r.se != 0] == []


def test_held_out_labels_are_in_no_file_and_are_made_on_demand(folder: Path) -> None:
    found = read_messages(folder)
    hidden = [r for r in found.rows if r.split == "held out"]
    assert hidden
    assert all(r.value is r.se is r.here is r.pairs is r.calls is None for r in hidden)
    made = held_out_rows(found)
    assert {(r.run, r.event, r.change) for r in made} <= {(r.run, r.event, r.change) for r in hidden}
    assert all(r.is_label for r in made)
    plan = _plan()
    own = [run for n in range(8) if (run := plan.run(n)).is_held_out]
    assert asyncio.run(Maker(plan).labels(own, is_shown=True))[0] == list(made)  # played anew
    shown = next(r for r in made if r.change == "delete")
    again = next(r for r in hidden if (r.run, r.event, r.change) == (shown.run, shown.event, shown.change))
    none = dict.fromkeys(("value", "se", "here", "pairs", "forks", "calls", "calls_here"))
    assert replace(shown, **none) == again


def test_the_table_has_the_same_columns_whatever_is_in_it(folder: Path) -> None:
    assert Messages(()).to_arrow().schema == read_messages(folder).to_arrow().schema
    assert read_messages(folder / "rows-00000.parquet").rows == read_messages(folder).rows
    with pytest.raises(NotFound, match="runs beside"):
        read_messages(folder / "rows-00000.parquet").runs()
    with pytest.raises(NotFound, match="no labelled messages"):
        read_messages(folder / "nowhere")


def test_every_estimator_answers_or_says_why(folder: Path) -> None:
    found = read_messages(folder)
    rows = tuple(r for r in found.rows if r.is_label and r.change == "delete")
    for name, make_ in ESTIMATORS.items():
        row = board_row(name, rows, make_(Batch(rows, found.runs())))
        assert row.why_not or row.covers > 0, name
        assert row.within.mean is None or -1 <= row.within.mean <= 1
    assert "local:NAME" in ESTIMATORS["judge"](Batch(rows, found.runs())).why_not


# -- the leaderboard by hand -------------------------------------------------------------------------------------------------


def test_spearman_slope_and_intervals_by_hand() -> None:
    rows = [_row("r1", f"e{i}", v) for i, v in enumerate((0.0, 0.2, 0.4))] + [
        _row("r2", f"e{i}", v) for i, v in enumerate((0.0, 0.0, 0.0))
    ]
    values = {("r1", "e0"): 0.0, ("r1", "e1"): 0.1, ("r1", "e2"): 0.2, ("r2", "e0"): 0.0}
    se = {("r1", "e0"): 0.01, ("r1", "e2"): 0.01}
    row = board_row("mine", rows, Estimates(values, se, 2.0))
    assert (row.within.mean, row.within.runs) == (1.0, 1)  # r2 has no order
    assert row.covers == pytest.approx(4 / 6)
    assert row.slope == pytest.approx(2.0)
    assert row.holds == pytest.approx(0.5)  # 0 is in 0 +- 0.02, 0.4 is not in 0.2 +- 0.02
    backwards = board_row("mine", rows, Estimates({at: -v for at, v in values.items()}))
    assert backwards.within.mean == -1.0


def test_the_ceiling_by_hand() -> None:
    assert stepped_up(0.5) == pytest.approx(2 / 3)  # Spearman and Brown
    assert stepped_up(-0.5) == 0.0
    sure = [_row("r", f"e{i}", float(i)) for i in range(5)]
    top = ceiling(sure)
    assert (top.halves.mean, top.single.mean, top.ceiling) == (1.0, 1.0, 1.0)
    assert top.zeros == pytest.approx(0.2)
    torn = [_row("r", f"e{i}", 0.0, pairs=[i, i, -i, -i]) for i in range(5)]
    assert (ceiling(torn).halves.mean or 0.0) < 0.0
    assert ceiling(torn).ceiling == 0.0


@given(st.lists(st.integers(-3, 3), min_size=3, max_size=12), st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_an_order_is_all_that_spearman_sees(labels: list[int], factor: int) -> None:
    rows = [_row("r", f"e{i}", v / 10) for i, v in enumerate(labels)]
    values = {("r", f"e{i}"): float(v**3 * factor) for i, v in enumerate(labels)}
    row = board_row("mine", rows, Estimates(values))
    assert row.within.mean is None if len(set(labels)) == 1 else row.within.mean == pytest.approx(1.0)


# -- others' estimators, and the command ---------------------------------------------------------------------------------------


def ends(trace: Trace) -> dict[str, float]:
    """A later event is worth more."""
    return {e.id: float(i) for i, e in enumerate(trace.events)}


def nonsense(trace: Trace) -> Any:
    return 3


def test_an_estimator_of_your_own(folder: Path) -> None:
    found = read_messages(folder)
    rows = tuple(r for r in found.rows if r.is_label and r.change == "delete")
    batch = Batch(rows, found.runs())
    mine, late = own_estimator("lab.bench.test_messages:ends")(batch), ESTIMATORS["late"](batch)
    assert board_row("a", rows, mine).within == board_row("b", rows, late).within
    assert own_estimator("provenance")(batch).values
    with pytest.raises(InputError, match="no number for each message"):
        own_estimator("lab.bench.test_messages:nonsense")(batch)


def test_the_command(folder: Path, run: Ends) -> None:
    code, out, err = run("bench", "messages", folder)
    assert (code, "leave-one-out" in out, "judge: left out" in err) == (0, True, True)
    _, told, _ = run("bench", "messages", folder, "--json", "--set", "change=neutral")
    lines = [json.loads(line) for line in told.splitlines()]
    assert lines[0]["labels"]["messages"] > 0
    assert {line["estimator"] for line in lines[1:]} == set(ESTIMATORS)
    assert run("bench", "messages", folder, "--set", "chang=neutral")[0] == 2
    assert run("bench", "messages", folder, "--set", "change=gone")[0] == 2
    assert run("bench", "messages", folder / "nowhere")[0] == 3
    assert run("bench", "messages", folder, "--model", "fake:1")[0] == 2


def test_a_message_that_cannot_be_forked_is_a_row_without_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any) -> tuple[float, int]:
        raise InputError("no fork here")

    monkeypatch.setattr(Maker, "_fork", refused)
    plan = Plan(seed=5, k=2, teams=("T6 swarm",))
    public = next(run for run in map(plan.run, range(5 * SAMPLES)) if not run.is_held_out)
    rows, traces = asyncio.run(Maker(plan).labels([public]))
    assert [r.event for r in rows] == [e.id for e in labels.messages_of_team(traces[0])] != []
    assert not any(r.is_label for r in rows)
    assert {(r.change, r.split) for r in rows} == {("delete", "public")}


def test_a_plan_says_what_is_wrong() -> None:
    for wrong in ({"k": 1}, {"changes": ("deleet",)}, {"teams": ("T1 nobody",)}):
        with pytest.raises(InputError):
            Plan(**wrong)
    plan = Plan(seed=3, teams=SMALL)
    assert Plan.of(json.loads(json.dumps(plan.as_dict()))).digest == plan.digest
    assert [plan.run(n).group for n in range(8)] == [plan.run(0).group] * 4 + [plan.run(4).group] * 4
    assert len({plan.run(n).draws for n in range(4)}) == 4


class _Counting:
    name, version, asked = "counting", "1", 0

    async def complete(self, call: Call) -> Completion:
        self.asked += 1
        text = str(self.asked)
        await asyncio.sleep(0)
        return Completion(text=text)

    async def close(self) -> None: ...


def test_one_question_has_one_answer() -> None:
    model = _Counting()

    async def ask() -> list[str]:
        once = OneAnswer(model)
        calls = [Call(messages=(Message("user", text),), seed=seed) for text, seed in (("a", 0), ("a", 0), ("b", 0), ("a", 1))]
        return [done.text for done in await asyncio.gather(*(once.complete(c) for c in calls))]

    first, again, *others = asyncio.run(ask())
    assert first == again
    assert len({first, *others}) == 3
    assert model.asked == 3


def test_the_maker_labels_a_table_where_dpbench_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dpbench")
    monkeypatch.setattr(plans, "_TABLE", plans._team("dpbench:sim_n3_comm_t3", "turns", {}, turns=40))
    plan = Plan(seed=0, k=2, teams=("dpbench sim_n5_comm",))
    rows, runs = asyncio.run(Maker(plan).labels([plan.run(0)], is_shown=True))
    assert {r.kind for r in rows} == {"peer"}
    assert len(runs) == 1
    assert all(r.is_zero for r in rows)  # the player by hand does not listen


def test_the_claim_whole_with_a_tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    from tests.lm_help import TEXTS
    from tests.tiny_help import make_tiny

    from counterpoint.lab.bench.claims.messages import messages
    from counterpoint.lab.lm.adding import add

    tiny = make_tiny(tmp_path / "tiny", texts=TEXTS, words=512, spread=0.15, context=4096, family="qwen2")
    monkeypatch.setenv("COUNTERPOINT_MODELS", str(tmp_path / "models"))
    add(tiny, "tiny")
    for name, value in (("LM", "tiny"), ("RUNS", str(tmp_path)), ("MESSAGES", "4")):
        monkeypatch.setenv(f"COUNTERPOINT_{name}", value)
    monkeypatch.setattr(plans, "MODEL_TEAMS", {"T6 swarm": plans.MODEL_TEAMS["T6 swarm"]})
    seed = next(s for s in range(20) if not Plan(seed=s, model="local:tiny").run(0).is_held_out)
    rows = {row.name: row for row in messages(seed=seed, seeds=1)}
    assert rows["labelled messages"].value > 0
    assert rows["judge: calls a message"].value == 1.0
    assert all(row.ok for row in rows.values())
    assert (tmp_path / "claims" / "messages-tiny" / str(seed) / "rows-00000.parquet").is_file()


def test_the_claim_on_labels_that_are_there(folder: Path) -> None:
    from counterpoint.lab.bench.claims.messages import rows

    found = {row.name: row for row in rows([folder])}
    assert found["labels of these other than exactly 0"].ok
    assert found["labelled messages"].value == sum(r.is_label and r.change == "delete" for r in read_messages(folder).rows)
    assert "judge: calls a message" not in found
