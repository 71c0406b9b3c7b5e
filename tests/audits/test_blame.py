"""Blame: what it reads and does not read, what it says of odd runs, planted mistakes and their truth, the search by forks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.audits.blame.injecting import altered, inject
from counterpoint.audits.blame.judge import blame, causes
from counterpoint.audits.blame.learning import Case, Recipe, averaged, fitted, folds, log_loss
from counterpoint.audits.blame.ledgers import LEDGER_SIGNALS
from counterpoint.audits.blame.ranker import HASHED, SHAPES, Ranker, shipped, softmax, table
from counterpoint.audits.blame.reasons import FAMILIES, signal_words
from counterpoint.audits.blame.search import Redo, find_decisive, try_all
from counterpoint.audits.blame.signals import signals, surprising, unlike_others
from counterpoint.audits.blame.steps import Steps
from counterpoint.errors import InputError, NotIdentified, Refused
from counterpoint.lab.bench.blame_cases import team_run
from counterpoint.lab.bench.expert_chat import broken_chats, expert_chat, spots
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec
from counterpoint.lab.team.state import Limits
from counterpoint.lab.worlds.world import world
from counterpoint.trace import Event, Trace, content_ref
from counterpoint.trace.mistake import MISTAKES, Mistake, mistake_of

LOGS = Path(__file__).parents[1] / ".." / "examples" / "logs" / "who_and_when"


def said_trace(*said: tuple[str, str], reward: float | None = 0.0) -> Trace:
    """A conversation of named speakers; `tool` answers whoever spoke before."""
    events, contents, before = [], {}, ""
    for i, (who, text) in enumerate(said):
        contents[content_ref(text)] = text
        kind = "tool_result" if who == "tool" else "message"
        before = before if who == "tool" else who
        events.append(Event(id=f"s{i}", t=i, type=kind, agent=before, role=before, content_ref=content_ref(text)))  # type: ignore[arg-type]
    rewards = {} if reward is None else {"team": reward}
    return Trace(trace_id="said", task_id="said", events=events, contents=contents, rewards=rewards)


@pytest.fixture(scope="module")
def team() -> Trace:
    """A live team of fakes that succeeds."""
    config = {"documents": 20, "rows": 3, "parts": 2}
    spec = Spec(
        task="ledger_hunt", config=config, seed=5, topology="centralized", model="fake:1", options={"explore": 0.0},
        limits=Limits(width=2),
    )  # fmt: skip
    trace = team_run(spec)
    assert trace.rewards["team"] == 1
    return trace


# -- what is read ----------------------------------------------------------------------------------------------------------


def test_the_truth_of_a_planted_mistake_cannot_be_read(team: Trace) -> None:
    (broken,) = inject(team, LiveReplay(), kinds=["wrong_fact"], seed=1)
    bare = [
        replace(e, extra=None, key=None, policy=None, logp=None, reward=None, options=None, model=None) for e in broken.events
    ]
    stripped = replace(broken, meta={}, metrics=None, events=bare)
    kept, left = signals(Steps(broken)), signals(Steps(stripped))
    assert kept.keys() == left.keys()
    assert all(np.array_equal(kept[name], left[name]) for name in kept)


def test_labels_of_who_and_when_are_not_read() -> None:
    for trace in cpt.read_logs(LOGS):
        bare = replace(trace, meta={}, metrics=None, events=[replace(e, extra=None) for e in trace.events])
        told = blame(bare, anyway=True)
        assert told.suspects == blame(trace, anyway=True).suspects
        assert {s.step for s in told.suspects} <= {int(e.id[1:]) for e in trace.events if e.id[1:].isdigit()}


def test_steps_count_as_the_source_counts_and_signals_say_what_they_mean() -> None:
    trace = said_trace(
        ("Planner", "First we find the length of the river Aru, then we stop."),
        ("Coder", "```python\nprint(length('Aru'))\n```"),
        ("tool", "exitcode: 1 (execution failed)\nKeyError: 'Aru'"),
        ("Coder", "Let's assume that the length is 4711 km."),
        ("Checker", "I confirm the result: 4711 km is correct."),
    )
    steps = Steps(trace)
    assert steps.numbers == [0, 1, 3, 4]
    found = {name: column.tolist() for name, column in signals(steps).items()}
    assert found["tool_failed"] == [0, 1, 0, 0]
    assert found["first_error"] == [0, 1, 0, 0]
    assert found["after_failure"] == [0, 0, 1, 1]
    assert found["assumes"][2] > 0 == found["assumes"][1]
    assert found["first_number_of_result"] == [0, 0, 1, 0]
    assert found["is_checker"] == [0, 0, 0, 1]
    assert found["is_confirmed"][2] > 0
    assert found["plans"][0] > 0
    assert all(abs(v) <= 1 for column in found.values() for v in column)


def test_every_signal_has_its_words_and_the_shipped_weights_know_no_other() -> None:
    names = set(signals(Steps(said_trace(("a", "x"), ("b", "y")))))
    assert {signal_words(name)[0] for name in names} <= FAMILIES.keys()
    assert signal_words("late", is_low=True)[1] == "early in the run"
    assert {signal_words(name)[0] for name in LEDGER_SIGNALS} <= FAMILIES.keys()
    for ranker in map(shipped, SHAPES):
        assert set(ranker.names) <= names | set(HASHED) | set(LEDGER_SIGNALS)
        assert len(ranker.names) == len(ranker.weight) == len(ranker.mean)


def test_other_runs_and_a_local_model_move_the_odds() -> None:
    trace = said_trace(("a", "It is about 1234 now."), ("b", "It is about 5678 now."), ("a", "We end with 9999 now."))
    other = replace(said_trace(("a", "It is about 1234 now."), ("b", "We end with 9999 now.")), trace_id="other")
    assert unlike_others(Steps(trace), []).tolist() == [0, 0, 0]
    alone, beside = blame(trace), blame(trace, others=[other])
    score = {s.event: s.score for s in alone.suspects}
    assert {s.event: s.score > score[s.event] for s in beside.suspects} == {"s0": False, "s1": True, "s2": False}
    assert surprising(Steps(trace), lambda texts: [1.0, 9.0, 1.0]).argmax() == 1
    assert surprising(Steps(trace), lambda texts: [1.0] * 3).tolist() == [0, 0, 0]


# -- odd runs --------------------------------------------------------------------------------------------------------------


def test_a_success_is_refused_and_ranked_only_where_asked() -> None:
    trace = said_trace(("a", "one"), ("b", "two"), reward=1.0)
    with pytest.raises(Refused, match="the run succeeded"):
        blame(trace)
    assert sum(s.score for s in blame(trace, anyway=True).suspects) == pytest.approx(1, abs=1e-4)
    assert blame(trace, bar=2.0).outcome == 1.0


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(NotIdentified, match="nothing says that this run failed"):
        blame(said_trace(("a", "one"), ("b", "two"), reward=None))
    assert "no outcome" in " ".join(blame(said_trace(("a", "one"), ("b", "two"), reward=None), anyway=True).notes)
    one = blame(said_trace(("a", "one")))
    assert (one.suspects[0].score, one.sure) == (1, "no step stands out")
    assert "one step" in one.notes[0]
    masked = replace(said_trace(("a", "one"), ("b", "two")), contents={})
    assert "no step has a text" in " ".join(blame(masked).notes)
    empty = Trace(
        trace_id="e", task_id="e", events=[Event(id="u", t=0, type="human_intervention", agent="user")], rewards={"team": 0}
    )
    with pytest.raises(NotIdentified, match="no member of the team"):
        blame(empty)


def test_a_long_run_is_ranked_whole() -> None:
    said = [("abc"[i % 3], f"We now have item {i * 7919 % 100_000} of the list.") for i in range(3_000)]
    told = blame(said_trace(*said), most=5)
    assert not any("late" in r.words for s in told.suspects for r in s.reasons if s.step < 1_000)
    assert (told.steps, len(told.suspects)) == (3_000, 5)
    assert sum(told.agents.values()) == pytest.approx(1, abs=1e-4)


def test_causes_are_grouped_by_family_and_role() -> None:
    runs = list(broken_chats(range(12)))
    judged = [(t, blame(t, most=3)) for t in runs]
    found = causes(judged)
    assert 0 < sum(c.runs for c in found) == sum(one.stands_out for _, one in judged) < len(runs)
    assert [c.runs for c in found] == sorted((c.runs for c in found), reverse=True)
    first = next(t for t in runs if t.trace_id == found[0].trace_id)
    assert found[0].event in first.index


# -- planted mistakes ------------------------------------------------------------------------------------------------------


def test_a_planted_mistake_is_one_fork_of_the_run_and_says_the_truth(team: Trace) -> None:
    kinds = set()
    for kind in MISTAKES:
        for broken in inject(team, LiveReplay(), kinds=[kind], seed=2, tries=4, is_decisive=False, subtlety=0.2):
            told = mistake_of(broken)
            assert isinstance(told, Mistake)
            assert (told.kind, told.reward_without, told.parent) == (kind, 1.0, team.trace_id)
            assert told.reward == broken.rewards["team"]
            assert told.is_decisive == (told.reward < 1)
            event = broken.events[broken.index[told.event]]
            assert event.agent == told.agent
            assert Steps(broken).numbers[Steps(broken).places.index(broken.index[told.event])] == told.step
            kinds.add(kind)
    assert kinds >= {"wrong_fact", "dropped_message", "wrong_argument", "early_stop", "lost_constraint", "bad_plan", "late_stop"}
    again = [mistake_of(t) for _ in range(2) for t in inject(team, LiveReplay(), kinds=["early_stop"], seed=2)]
    assert again[0] == again[1]


def test_what_cannot_be_injected_is_one_error(team: Trace) -> None:
    with pytest.raises(InputError, match="no mistake named"):
        list(inject(team, LiveReplay(), kinds=["wrong_facts"]))
    with pytest.raises(InputError, match="subtlety"):
        list(inject(team, LiveReplay(), subtlety=2))
    with pytest.raises(NotIdentified, match="no outcome"):
        list(inject(replace(team, rewards={}), LiveReplay()))


def test_subtlety_changes_less() -> None:
    rng = np.random.default_rng(0)
    text = "values 1234 5678 9012 3456"
    loud = [sum(a != b for a, b in zip(text, altered(text, rng, 0.0) or "", strict=False)) for _ in range(20)]
    fine = [sum(a != b for a, b in zip(text, altered(text, rng, 1.0) or "", strict=False)) for _ in range(20)]
    assert max(fine) == 1 < np.mean(loud)
    assert altered("nothing here", rng, 0.5) is None


def test_a_conversation_with_a_mistake_differs_from_that_without_it_only_after_it() -> None:
    for seed in range(8):
        for shape in ("panel", "led"):
            turn, spot = spots(seed, shape)[seed % len(spots(seed, shape))]
            clean, broken = expert_chat(seed, shape), expert_chat(seed, shape, spot)
            told = mistake_of(broken)
            assert told is not None
            assert (told.step, told.kind) == (turn, spot.kind)
            before = [clean.text(e) for e in clean.events[: turn + 1]]
            assert [broken.text(e) for e in broken.events[: turn + 1]] == before  # the question stands first
            assert told.reward_without == clean.rewards["team"]


# -- learning --------------------------------------------------------------------------------------------------------------


def cases(n: int, seed: int = 0) -> list[Case]:
    """Runs whose decisive step has the largest first signal; the second is noise."""
    rng = np.random.default_rng(seed)
    tables = [rng.normal(size=(rng.integers(3, 9), 2)) for _ in range(n)]
    return [Case(x, int(x[:, 0].argmax()), f"g{i % 4}") for i, x in enumerate(tables)]


def test_a_ranker_learns_what_decides() -> None:
    ranker, loss = averaged(cases(60), ["good", "noise"], recipes=[Recipe(0.01), Recipe(0.1)])
    fresh = cases(40, seed=1)
    assert np.mean([ranker.probabilities(c.x).argmax() == c.truth for c in fresh]) > 0.9
    assert abs(ranker.weight[1]) < 0.2 * ranker.weight[0]
    assert loss < log_loss(fresh, [np.zeros(len(c.x)) for c in fresh])
    few, many = ([Recipe(0.01), Recipe(1000.0)], [Recipe(0.01)])
    weighed = averaged(cases(60), ["good", "noise"], recipes=few, is_weighed=True)[0]
    assert weighed.weight == pytest.approx(averaged(cases(60), ["good", "noise"], recipes=many)[0].weight, rel=1e-3)


def test_the_ridge_draws_to_the_prior() -> None:
    prior = Ranker(names=["good", "noise"], mean=[0, 0], weight=[-2.0, 3.0])
    drawn = fitted(cases(10), ["good", "noise"], Recipe(1e9, prior=0.5), prior)
    assert drawn.weight == pytest.approx([-1.0, 1.5], abs=1e-3)


def test_a_group_stays_in_one_fold_and_softmax_is_a_distribution() -> None:
    some = cases(20)
    parts = folds(some, 3, 0)
    assert sorted(i for part in parts for i in part.tolist()) == list(range(20))
    assert all(len({some[i].group for i in a} & {some[i].group for i in b}) == 0 for a in parts for b in parts if a is not b)
    assert softmax(np.array([1000.0, 0.0])).tolist() == [1.0, 0.0]
    assert softmax(np.zeros(0)).tolist() == []


# -- by forks --------------------------------------------------------------------------------------------------------------


def test_forks_find_the_planted_step_of_a_live_team(team: Trace) -> None:
    (broken,) = inject(team, LiveReplay(), kinds=["wrong_fact"], seed=1)
    told, steps = mistake_of(broken), Steps(broken)
    assert told is not None
    ranked = shipped("led").probabilities(table(steps, shipped("led").names))
    found = find_decisive(broken, Redo(broken, LiveReplay(), bar=1.0), ranked)
    truth, forks = try_all(broken, Redo(broken, LiveReplay(), bar=1.0))
    assert found.event == truth == told.event
    assert found.agent == told.agent
    assert found.forks < forks / 2
    cut = find_decisive(broken, Redo(broken, LiveReplay(), bar=1.0), ranked, most=1)
    assert not cut.is_complete


def test_forks_find_the_planted_step_of_a_world() -> None:
    small = world("W2")
    trace = small.run("reference", [3], log=True).trace(0)
    (broken,) = inject(trace, small, kinds=["early_stop"], seed=1)
    told, steps = mistake_of(broken), Steps(broken)
    assert told is not None
    found = find_decisive(broken, Redo(broken, small, bar=told.reward_without), np.ones(len(steps)))
    assert found.event == told.event
    assert found.forks <= 2 + np.log2(len(steps))
    never = find_decisive(broken, Redo(broken, small, bar=1e9), np.ones(len(steps)))
    assert never.event is None
    assert "no single step" in never.words


def test_a_local_model_judges_each_text_by_itself(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from counterpoint.lab.lm.surprise import surprise_of
    from tiny_help import WORDS, make_tiny

    surprise = surprise_of(str(make_tiny(tmp_path / "tiny")))
    texts = [WORDS, "", "the answer is 42", "zzzz qqqq", WORDS * 40]
    together = surprise(texts)
    assert together == pytest.approx([surprise([text])[0] for text in texts], abs=1e-5)
    assert together[1] == 0 < min(together[0], together[3])
