"""T4: facts decide, clones do not, and a panel that exchanges facts comes to the truth."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.tasks.split_evidence import (
    Claim,
    Fact,
    SplitEvidence,
    claims,
    facts,
    follows,
    split_evidence,
    statement,
    verdicts,
)
from counterpoint.lab.tasks.task import Choice, Instance, TextTask, View, ViewItem
from play_help import ODD_SEEN, RETURN, STOP, drawn, play

SEEDS = st.integers(0, 2**62)
DIALS = st.fixed_dictionaries(
    {
        "claims": st.integers(1, 8),
        "facts": st.integers(1, 4),
        "independents": st.integers(1, 4),
        "clones": st.integers(0, 4),
        "flawed": st.floats(0, 1),
        "overlap": st.floats(0, 1),
    }
)


def _truth(task: SplitEvidence, instance: Instance) -> str:
    return task.truth_file(instance).splitlines()[1]


def _briefed(instance: Instance, seat: int) -> list[ViewItem]:
    brief = ViewItem("brief", "user", "\n".join(instance.shards[seat]))
    return [brief, ViewItem("subtask", "lead", instance.subtasks[seat].text, f"s{seat + 1}")]


def _returns(task: SplitEvidence, instance: Instance, folder: Path, skill: float = 1.0) -> list[str]:
    return [play(task, instance, _briefed(instance, k), folder, skill=skill, seed=k)[0].text for k in range(len(instance.shards))]


def test_is_a_task() -> None:
    assert isinstance(split_evidence, TextTask)
    assert (split_evidence.name, split_evidence.short) == ("split_evidence", "T4")


def test_the_later_date_holds_by_hand() -> None:
    claim = Claim("c1", ("owner", "banker"), "Ann Ash", "Oak Glass")
    old = Fact("2020-01-02", "banker", "Elm Mills", "Fir Paper")
    new = Fact("2024-01-02", "banker", "Elm Mills", "Oak Glass")
    first = Fact("2021-01-01", "owner", "Ann Ash", "Elm Mills")
    assert str(claim) == "c1: the banker of the owner of Ann Ash is Oak Glass."
    assert claims(str(claim)) == [claim]
    assert facts(f"x {old} {new}y") == [old, new]
    assert follows([claim], [first]) == {"c1": "unknown"}
    assert follows([claim], [first, old]) == {"c1": "false"}
    assert follows([claim], [new, first, old, old, old]) == {"c1": "true"}


@given(SEEDS, DIALS)
@settings(max_examples=40, deadline=None)
def test_all_facts_together_decide_and_no_clone_is_ever_right(seed: int, dials: dict[str, float]) -> None:
    task = split_evidence.replace(**dials)
    instance = task.instance(seed)
    assert repr(instance) == repr(SplitEvidence(task.config).instance(seed))
    asked = claims(instance.question)
    assert len(asked) == dials["claims"]
    assert len(instance.shards) == dials["independents"] + dials["clones"] == len(instance.subtasks)
    every = follows(asked, facts("\n".join(itertools.chain(*instance.shards))))
    truth = verdicts(_truth(task, instance))
    assert every == truth
    assert set(truth.values()) <= {"true", "false"}
    worn = round(dials["flawed"] * dials["claims"])
    flawed = [shard for shard in instance.shards if any(fact.day < "2023" for fact in facts("\n".join(shard)))]
    assert len(flawed) == (dials["clones"] if worn else 0)
    assert len(set(flawed)) <= 1
    for shard in flawed:
        alone = [(id_, word) for id_, word in follows(asked, facts("\n".join(shard))).items() if word != "unknown"]
        assert len(alone) == worn
        assert all(word != truth[id_] for id_, word in alone)


def test_without_overlap_no_agent_decides_a_claim_rightly_alone() -> None:
    for seed in range(30):
        instance = split_evidence.instance(seed)
        truth = verdicts(_truth(split_evidence, instance))
        for shard in instance.shards:
            alone = follows(claims(instance.question), facts("\n".join(shard)))
            assert all(word != truth[id_] for id_, word in alone.items())


def test_the_first_seats_hold_all_facts_and_the_others_are_clones() -> None:
    task = split_evidence.replace(independents=3, clones=5)
    for seed in range(20):
        shards = task.instance(seed).shards
        assert set(shards[4:]) <= set(shards[:4])
        assert len(set(shards[:4])) == 4


@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_the_truth_solves_it_and_each_claim_counts_alike(seed: int) -> None:
    instance = split_evidence.instance(seed)
    truth = verdicts(_truth(split_evidence, instance))
    assert split_evidence.check(instance, statement(truth)).is_solved
    turned = truth | {"c2": "false" if truth["c2"] == "true" else "true"}
    score = split_evidence.check(instance, statement(turned))
    assert (score.value, score.is_solved, score.parts["c2"]) == (0.75, False, 0.0)
    assert split_evidence.check(instance, "c1=unknown").value == 0.0


@given(st.text(max_size=80) | st.text(alphabet="c12=:;truefalsnkow |[]-.", max_size=80))
def test_any_text_has_a_score_and_merges(text: str) -> None:
    instance = split_evidence.instance(2)
    score = split_evidence.check(instance, text)
    assert 0.0 <= score.value <= 1.0
    assert score.is_solved == (score.value == 1.0)
    for rule in split_evidence.rules:
        assert isinstance(split_evidence.merge(instance, rule, [text, text]), str)


def test_merging_by_evidence_by_vote_and_by_the_first(tmp_path: Path) -> None:
    for seed in range(8):
        instance = split_evidence.instance(seed)
        texts = _returns(split_evidence, instance, tmp_path)
        assert split_evidence.check(instance, split_evidence.merge(instance, "evidence", texts)).is_solved
        assert split_evidence.check(instance, split_evidence.merge(instance, "vote", texts)).value == 0.0
    instance = split_evidence.instance(0)
    texts = ["c1=unknown; c2=true", "c1=false", "c1=true", "c1=true"]
    assert verdicts(split_evidence.merge(instance, "vote", texts)) == {
        "c1": "true",
        "c2": "true",
        "c3": "unknown",
        "c4": "unknown",
    }
    assert verdicts(split_evidence.merge(instance, "first", texts))["c1"] == "false"
    assert verdicts(split_evidence.merge(instance, "evidence", texts))["c1"] == "true"
    with pytest.raises(NotFound):
        split_evidence.merge(instance, "majority", texts)


def test_one_agent_with_all_facts_solves_it(tmp_path: Path) -> None:
    for seed in range(8):
        instance = split_evidence.instance(seed)
        briefs = [ViewItem("brief", "user", "\n".join(shard)) for shard in instance.shards]
        act, _ = play(split_evidence, instance, briefs, tmp_path, choices=STOP)
        assert split_evidence.check(instance, act.text).is_solved


def test_an_agent_without_facts_guesses_in_the_end_only(tmp_path: Path) -> None:
    instance = split_evidence.instance(1)
    assert set(verdicts(play(split_evidence, instance, [], tmp_path)[0].text).values()) == {"unknown"}
    assert "unknown" not in verdicts(play(split_evidence, instance, [], tmp_path, choices=STOP)[0].text).values()


def test_a_debate_with_facts_convinces_clones_and_a_resolver_decides(tmp_path: Path) -> None:
    instance = split_evidence.instance(3)
    speak = (Choice("message", "", None),)
    seats = range(len(instance.shards))
    own = [[ViewItem("brief", "user", "\n".join(instance.shards[k]))] for k in seats]
    said = [play(split_evidence, instance, own[k], tmp_path, choices=speak, purpose="debate")[0] for k in seats]
    assert {act.verb for act in said} == {"message"}
    last = []
    for k in seats:
        heard = own[k] + [ViewItem("message", f"lead.{j + 1}", said[j].text) for j in seats if j != k]
        last.append(play(split_evidence, instance, heard, tmp_path, purpose="debate")[0].text)
    assert all(split_evidence.check(instance, text).is_solved for text in last)
    heard = [ViewItem("return", f"lead.{k + 1}", said[k].text) for k in seats]
    assert split_evidence.check(
        instance, play(split_evidence, instance, heard, tmp_path, choices=STOP, purpose="resolve")[0].text
    ).is_solved


def test_without_facts_agreement_is_followed(tmp_path: Path) -> None:
    instance = split_evidence.instance(3)
    heard = [ViewItem("message", f"lead.{k}", "c1=false; c2=true; c3=unknown; c4=true") for k in (2, 3)]
    found = verdicts(play(split_evidence, instance, heard, tmp_path, purpose="debate")[0].text)
    assert found == {"c1": "false", "c2": "true", "c3": "unknown", "c4": "true"}


def test_who_lacks_skill_gives_in_to_a_majority_against_the_facts(tmp_path: Path) -> None:
    instance = split_evidence.replace(claims=1).instance(0)
    truth = verdicts(_truth(split_evidence.replace(claims=1), instance))["c1"]
    wrong = {"true": "false", "false": "true"}[truth]
    heard = [ViewItem("brief", "user", "\n".join(itertools.chain(*instance.shards)))]
    heard += [ViewItem("message", f"lead.{k}", f"c1={wrong}") for k in range(2, 6)]

    def share(skill: float) -> float:
        words = [
            verdicts(play(split_evidence, instance, heard, tmp_path, purpose="debate", skill=skill, seed=s)[0].text)["c1"]
            for s in range(60)
        ]
        return words.count(truth) / len(words)

    assert share(1.0) == 1.0
    assert share(0.3) < 0.8


def test_facts_go_to_the_notes_once_and_come_from_there(tmp_path: Path) -> None:
    instance = split_evidence.instance(5)
    board = (Choice("tool", "note", None), Choice("tool", "notes", None), *RETURN)
    start = (ViewItem("question", "user", instance.question), *_briefed(instance, 0))
    first = split_evidence.work(View("lead.1", "worker", "work", start, board), drawn(0), 1.0)
    assert (first.verb, first.target) == ("tool", "note")
    assert [str(fact) for fact in facts(first.text)] == list(instance.shards[0])
    seen = (*start, ViewItem("own", "lead.1", f"TOOL note: {first.text}"), ViewItem("result", "note", "noted"))
    second = split_evidence.work(View("lead.1", "worker", "work", seen, board), drawn(0), 1.0)
    assert (second.verb, second.target) == ("tool", "notes")
    others = "\n".join(itertools.chain(*instance.shards))
    seen = (*seen, ViewItem("own", "lead.1", "TOOL notes"), ViewItem("result", "notes", others))
    third = split_evidence.work(View("lead.1", "worker", "work", seen, board), drawn(0), 1.0)
    assert third.verb == "return"
    assert split_evidence.check(instance, third.text).is_solved


def test_a_critic_holds_facts_against_verdicts(tmp_path: Path) -> None:
    instance = split_evidence.instance(6)
    known = facts("\n".join(itertools.chain(*instance.shards)))
    truth = verdicts(_truth(split_evidence, instance))
    turned = truth | {"c3": "false" if truth["c3"] == "true" else "true"}
    for given_, word in (
        (truth, "ACCEPT"),
        (turned, f"REJECT c3 is {truth['c3']}"),
        ({"c1": truth["c1"]}, "REJECT c2 has no verdict"),
    ):
        act, _ = play(split_evidence, instance, [ViewItem("return", "lead.1", statement(given_, known))], tmp_path, purpose="judge")
        assert act.text.startswith(word)
    assert play(split_evidence, instance, [], tmp_path, purpose="judge")[0].text.startswith("REJECT")
    assert (
        play(split_evidence, instance, [ViewItem("return", "a", statement(truth, known))], tmp_path, purpose="judge", skill=0.0)[
            0
        ].text
        != "ACCEPT"
    )


@given(
    st.lists(st.sampled_from(ODD_SEEN), max_size=6),
    st.sampled_from(["turn", "work", "judge", "debate", "resolve", "?"]),
    st.booleans(),
)
@settings(max_examples=60)
def test_odd_views_never_raise(seen: list[ViewItem], purpose: str, has_question: bool) -> None:
    start = [ViewItem("question", "user", split_evidence.instance(0).question)] if has_question else []
    for choices in ((), RETURN, STOP):
        act = split_evidence.work(View("lead", "agent", purpose, tuple(start + seen), choices), drawn(1), 0.5)
        assert act.verb in {"noop", *(c.verb for c in choices)}


@pytest.mark.parametrize("attack", ["AV2", "AV3", "AV4", "benign"])
def test_an_attack_is_planted_and_leaves_the_truth_alone(attack: str) -> None:
    task = split_evidence.replace(attack=attack)
    for seed in range(6):
        instance, plain = task.instance(seed), split_evidence.instance(seed)
        assert instance.planted
        assert all(one.vector == attack for one in instance.planted)
        assert task.truth_file(instance) == split_evidence.truth_file(plain)
        in_shards = any(one.text in text for one in instance.planted for shard in instance.shards for text in shard)
        assert in_shards == (attack in ("AV2", "benign"))
        assert [facts("\n".join(s)) for s in instance.shards] == [facts("\n".join(s)) for s in plain.shards]


def test_impossible_dials_are_refused() -> None:
    for wrong in (
        {"claims": 0},
        {"facts": 9},
        {"independents": 0},
        {"clones": -1},
        {"flawed": 2},
        {"overlap": "x"},
        {"attack": "AV9"},
        {"no": 1},
    ):
        with pytest.raises(InputError):
            split_evidence.replace(**wrong)
