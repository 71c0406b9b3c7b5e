"""Worlds of packages played by teams: prompts, actions, traces, forks by replay, what a package pays."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.app.cli import main
from counterpoint.errors import InputError, NotIdentified, Refused
from counterpoint.lab.lm.model import Call, Completion, Model, ModelFailed
from counterpoint.lab.tasks import grammar
from counterpoint.lab.tasks.packages.world_task import Moves
from counterpoint.lab.tasks.task import Act, Choice, task
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.removal import Removal
from counterpoint.lab.team.session import Spec, assemble, make_model, play_fakes, play_to_trace, played_in
from counterpoint.lab.team.state import Limits
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder
from counterpoint.trace import Trace, problems
from counterpoint.trace.replay import Delete, Substitute
from endpoint_help import FaultServer

pytest.importorskip("dpbench")
TABLE = "dpbench:sim_n5_nocomm"
LEGAL = [Choice("tool", grammar.ACT, text) for text in ("GRAB_LEFT", "GRAB_RIGHT", "RELEASE", "WAIT")]
TALK = [Choice("tool", text, None, "words") for text in ("GRAB_LEFT", "WAIT")]
FREE = [Choice("tool", grammar.ACT, None, "your action")]


class Speaker:
    """A model that says what a test says, and keeps what it was asked."""

    name, version = "speaker", "1"

    def __init__(self, say: str | ModelFailed = "GRAB_LEFT") -> None:
        self.say, self.calls = say, list[Call]()

    async def complete(self, call: Call) -> Completion:
        self.calls.append(call)
        if isinstance(self.say, ModelFailed):
            raise self.say
        return Completion(text=self.say)

    async def close(self) -> None: ...


def play(model: Model, name: str = TABLE, seed: int = 0) -> Trace:
    """A world played by one model."""
    topology, style = played_in(task(name))
    spec = Spec(task=name, seed=seed, topology=topology, harness=style, limits=Limits(repairs=0))
    made, sink = spec.make_task(), MemorySink()
    team = assemble(spec, made, made.instance(seed), model, Recorder(sink, LogicalClock()))
    return asyncio.run(play_to_trace(team, spec, sink, trace_id="t"))


@pytest.fixture(scope="module")
def even_odd() -> Trace:
    return play_fakes(TABLE, explore=0.0)


# -- prompts and actions -------------------------------------------------------------------------------------------------------


def test_a_prompt_is_the_rules_and_what_is_seen_now() -> None:
    model = Speaker("WAIT")
    trace = play(model)
    assert len(model.calls) == 150
    system, user = model.calls[-1].messages
    assert (system.role, system.text) == ("system", task(TABLE).instance(0).question)
    assert user.text.splitlines() == [
        "Answer with one of: GRAB_LEFT, GRAB_RIGHT, RELEASE, WAIT",
        "You are P4, one of 5 philosophers.",
        "State: hungry. Meals: 0. You hold: nothing.",
        "Left fork: AVAILABLE. Right fork: AVAILABLE.",
    ]
    assert model.calls[0].starts == ("GRAB_LEFT\n", "GRAB_RIGHT\n", "RELEASE\n", "WAIT\n")
    assert trace.rewards["team"] == 0


def test_all_at_once_deadlocks_and_one_by_one_does_not_see_the_future() -> None:
    trace = play(Speaker("GRAB_LEFT"))
    assert (trace.metrics["task_deadlock"], trace.metrics["task_steps"]) == (1, 1)
    by_turns = play(Speaker("WAIT"), "dpbench:seq_n3_nocomm_t6")
    acts = [e.agent for e in by_turns.events if e.type == "tool_call"]
    assert acts == ["lead.P0", "lead.P1", "lead.P2"] * 2


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("GRAB_LEFT", "GRAB_LEFT"),
        ("grab_right.", "GRAB_RIGHT"),
        ("I think about it.\nACTION: RELEASE", "RELEASE"),
        ("THINKING: grab_left or grab_right?\nACTION: wait", "WAIT"),
        ("I shall grab_left now", "GRAB_LEFT"),
        ("TOOL act: WAIT", "WAIT"),
    ],
)
def test_an_action_is_read(text: str, action: str) -> None:
    assert grammar.read_bare(text, LEGAL) == Act("tool", grammar.ACT, action)


@pytest.mark.parametrize("text", ["", "eat", "GRAB_LEFT or GRAB_RIGHT", "ACTION: sleep"])
def test_what_names_no_action_or_two_is_none(text: str) -> None:
    assert isinstance(grammar.read_bare(text, LEGAL), grammar.Malformed)
    assert isinstance(grammar.read_bare("", FREE), grammar.Malformed)


def test_words_go_along() -> None:
    assert grammar.read_bare("wait: you first: go", TALK) == Act("tool", "WAIT", "you first: go")
    assert grammar.read_bare("any: text", FREE) == Act("tool", grammar.ACT, "any: text")
    trace = play(Speaker("WAIT: you first"), "dpbench:sim_n3_comm_t2")
    said = [e for e in trace.events if e.key.startswith("lead.P0|says")]
    assert [trace.text(e) for e in said] == ["you first"] * 2
    seen = next(e for e in trace.events if e.key == "lead.P1|sees|2")
    assert "Left neighbor says: you first" in trace.text(seen)
    reads = {e.dst for e in trace.edges if e.src == said[0].id}
    assert {"lead.P1|acts|2", "lead.P2|acts|2"} <= {e.key for e in trace.events if e.id in reads}


@given(st.text(max_size=60), st.sampled_from([LEGAL, TALK, FREE]))
def test_reading_never_raises_and_gives_what_is_legal(text: str, choices: list[Choice]) -> None:
    act = grammar.read_bare(text, choices)
    if isinstance(act, Act):
        assert grammar.matching(act, choices) is not None
        line = grammar.line_of(act, choices, grammar.bare_starts(choices))
        again = grammar.read_bare(line, choices)
        assert isinstance(again, Act)
        assert (again.target, again.text.split()) == (act.target, act.text.split())


# -- traces --------------------------------------------------------------------------------------------------------------------


def test_a_trace_has_what_was_paid(even_odd: Trace) -> None:
    assert not problems(even_odd)
    assert even_odd.rewards == {"team": pytest.approx(25 / 30)}
    assert {"task_throughput", "task_deadlock", "task_fairness", "task_starvation", "task_illegal"} <= set(even_odd.metrics)
    paid = dict.fromkeys((f"lead.P{i}" for i in range(5)), 0.0)
    for event in even_odd.events:
        paid[event.agent] = paid.get(event.agent, 0.0) + (event.reward or {}).get("R2", 0.0)
    for i in range(5):
        assert paid[f"lead.P{i}"] == even_odd.metrics[f"task_reward_P{i}"]


def test_the_score_is_made_again_from_the_answer(even_odd: Trace) -> None:
    made = task(TABLE)
    score = made.check(made.instance(1), even_odd.meta["answer"])
    assert (score.value, score.parts["meals"]) == (even_odd.rewards["team"], 25)
    for odd in ("", "nothing", "[]", '{"steps": 3}', '{"steps": [[9]]}', '{"steps": [["?"]], "words": 1}'):
        assert made.check(made.instance(1), odd).value == 0


def test_moves_are_read_as_they_are_written() -> None:
    moves = Moves()
    moves.add({"a": "x", "b": "of its own"}, {"a": "words"})
    moves.add({"a": "y"}, {})
    assert Moves.read(moves.text(("x", "y")), ("x", "y")) == moves
    assert Moves.read(moves.text(None), None) == moves


def test_nobody_legal_is_counted_and_waits() -> None:
    trace = play(Speaker("sing"))
    assert (trace.metrics["task_illegal"], trace.metrics["task_meals"]) == (150, 0)


def test_a_model_that_is_down_ends_the_episode() -> None:
    model = Speaker(ModelFailed("down", "nobody answers"))
    trace = play(model)
    assert (trace.meta["ended"], len(model.calls)) == ("failed", 5)


# -- forks and credit ----------------------------------------------------------------------------------------------------------


def test_a_fork_is_a_replay_with_one_action_changed(even_odd: Trace) -> None:
    """P3's first grab is all that keeps the even/odd rule from a deadlock on the third step."""
    act = next(e for e in even_odd.events if e.key == "lead.P3|acts|1")
    forked = LiveReplay().fork(even_odd, act.id, Delete())
    assert forked.rewards["team"] < even_odd.rewards["team"]
    same = LiveReplay().fork(even_odd, act.id)
    assert same.rewards == even_odd.rewards
    assert [e.key for e in same.events] == [e.key for e in even_odd.events]
    seen = next(e for e in even_odd.events if e.key == "lead.P0|sees|2")
    blind = LiveReplay().fork(even_odd, seen.id, Substitute("State: eating."))
    wait = next(e for e in blind.events if e.key == "lead.P0|acts|2")
    assert blind.text(wait) == "WAIT"


def test_what_cannot_be_replayed_is_refused(even_odd: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpoint.lab.worlds.packages.dpbench import Dining

    monkeypatch.setattr(Dining, "forks", "it rolls dice of its own")
    with pytest.raises(NotIdentified, match="rolls dice"):
        LiveReplay().fork(even_odd, even_odd.events[9].id)


def test_without_an_agent_the_world_is_played_again(even_odd: Trace) -> None:
    removal = Removal(even_odd)
    assert removal.score(()) == even_odd.rewards["team"]
    assert removal.score(removal.members) == 0
    # by hand: P3 eats 10 times, from forks that only P2 and P4 would share, who never ask for both of theirs
    assert removal.score(["lead.P3"]) == pytest.approx(15 / 30)
    assert removal.score(set(removal.members) - {"lead.P3"}) == pytest.approx(10 / 30)


# -- what is refused -------------------------------------------------------------------------------------------------------------


def test_another_topology_is_refused() -> None:
    with pytest.raises(InputError, match="whose turn"):
        played_in(task(TABLE), "debate")
    assert played_in(task(TABLE)) == ("turns", "actions")
    assert played_in(task("T1"), "swarm") == ("swarm", "text")


def test_a_trace_may_name_what_is_adapted_and_no_other_module() -> None:
    assert Spec(task=TABLE).outside() == []
    assert Spec(task="pettingzoo:mpe2.simple_spread_v3").outside() == []
    with pytest.raises(Refused, match="third-party"):
        Spec(task="pettingzoo:my_module").check_consent((), where="trace")


def test_play_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "st")
    with pytest.raises(SystemExit) as end:
        main(["play", "--task", TABLE, "--model", "fake:1", "--model-set", "explore=0", "--id", "a", "--store", store, "--json"])
    assert end.value.code in (0, None)
    told = json.loads(capsys.readouterr().out)
    assert (told["rewards"]["team"], told["metrics"]["task_throughput"]) == (pytest.approx(25 / 30), pytest.approx(25 / 30))
    with pytest.raises(SystemExit) as end:
        main(["play", "--task", "dpbench:five", "--store", store])
    assert end.value.code == 2
    assert "sim_n5_nocomm" in capsys.readouterr().err


def test_a_local_model_plays(tmp_path: Path) -> None:
    """Real weights, drawn at random: every answer is one of the legal actions, with its log-probability."""
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    from tiny_help import make_tiny

    name = "dpbench:sim_n3_nocomm_t3"
    make_tiny(tmp_path / "tiny", context=1024)
    model = make_model(f"local:{tmp_path / 'tiny'}", task(name))
    topology, style = played_in(task(name))
    spec = Spec(task=name, topology=topology, harness=style, model="local:tiny", limits=Limits(max_tokens=8))
    made, sink = spec.make_task(), MemorySink()
    team = assemble(spec, made, made.instance(0), model, Recorder(sink, LogicalClock()))

    async def closing() -> Trace:
        try:
            return await play_to_trace(team, spec, sink, trace_id="t")
        finally:
            await model.close()

    trace = asyncio.run(closing())
    acts = [e for e in trace.events if e.type == "tool_call"]
    assert len(acts) == 3 * trace.metrics["task_steps"]
    assert trace.metrics["task_illegal"] == 0
    assert all(e.logp is not None and e.logp <= 0 for e in acts)


def test_an_endpoint_plays() -> None:
    """What is asked over HTTP is the rules, then what is seen; the package reads what comes back."""
    asked: list[list[dict[str, str]]] = []

    def answer(messages: list[dict[str, str]]) -> str:
        asked.append(messages)
        return "ACTION: GRAB_LEFT" if "You are P0" in messages[-1]["content"] else "WAIT"

    name = "dpbench:sim_n3_nocomm_t2"
    with FaultServer(answer) as server:
        model = make_model("openai:table", task(name), base_url=server.url)
        trace = play(model, name)
        asyncio.run(model.close())
    assert len(asked) == 6
    assert [m["role"] for m in asked[0]] == ["system", "user"]
    assert json.loads(trace.meta["answer"])["steps"] == [[0, 3, 3], [0, 3, 3]]
    assert (trace.metrics["task_illegal"], trace.metrics["task_meals"]) == (0, 0)


# -- on the bench ----------------------------------------------------------------------------------------------------------------


def _bench(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["bench", "run", *map(str, args)])
    told = capsys.readouterr()
    return int(end.value.code or 0), told.out, told.err


def test_the_bench_plays_a_packages_protocol(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _bench(capsys, "dpbench", "sim_n5_nocomm", "--team", "policy:by_hand", "--seeds", 2, "-o", tmp_path / "a")
    assert (code, err.count("error")) == (0, 0)
    assert "throughput" in out
    assert "0.8333" in out
    code, out, _ = _bench(capsys, "dpbench:sim_n3_nocomm_t4", "--team", "policy:random", "--json", "-o", tmp_path / "b")
    card = json.loads(out.splitlines()[-1])
    own = card["packages"]["sim_n3_nocomm_t4"]
    assert (code, card["runs"], own["throughput"]["runs"]) == (0, 30, 30), "the package's own number of episodes"
    assert {"deadlock", "throughput", "fairness", "starvation"} <= set(own)
    assert 0 <= own["deadlock"]["low"] <= own["deadlock"]["mean"] <= own["deadlock"]["high"] <= 1
    assert card["cells"]["sim_n3_nocomm_t4"]["events"]["mean"] > 0, "E1 to E4 stand beside them"


def test_ones_own_player_is_on_the_bench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
from counterpoint.lab.lm.model import Completion

class Patient:
    name, version = "patient", "1"

    async def complete(self, call):
        seen = call.messages[-1].text
        return Completion(text="ACTION: " + ("GRAB_LEFT" if "You are P0" in seen and "hold: nothing" in seen else
                                             "GRAB_RIGHT" if "hold: left." in seen else "WAIT"))

    async def close(self): ...

def player():
    return Patient()
"""
    (tmp_path / "patient_player.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    where = ("--team", "topology:turns", "--model", "patient_player:player", "--seeds", 1, "-o", tmp_path / "own", "--json")
    done, out, _ = _bench(capsys, "dpbench:sim_n3_nocomm_t6", *where)
    card = json.loads(out.splitlines()[-1])
    # P0 alone grabs, eats, puts down: a meal every three steps
    assert (done, card["packages"]["sim_n3_nocomm_t6"]["meals"]["mean"]) == (0, 2)


def test_the_bench_refuses_what_is_no_condition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _bench(capsys, "dpbench:sim_n3", "--team", "policy:random", "-o", tmp_path / "a")
    assert (code, not (tmp_path / "a").exists()) == (2, True)
    assert "sim_n5_nocomm" in err
