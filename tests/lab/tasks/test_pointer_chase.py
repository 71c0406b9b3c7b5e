"""T5 by hand: the chain is serial, a split in parts costs more and brings nothing, and only the final number counts."""

from __future__ import annotations

import pytest

from counterpoint.lab.tasks.leakage import truth
from counterpoint.lab.tasks.pointer_chase import _read, pointer_chase
from counterpoint.lab.tasks.task import ViewItem
from text_help import calls, play

INSTANCE = pointer_chase.instance(0)
RIGHT = truth(INSTANCE, pointer_chase)[1]


def test_what_cards_say_by_hand() -> None:
    assert _read("This card holds 500. Add 11 to get the number of the next card.") == ("more", 511, False)
    assert _read("The number here is 1,500; the next card's number is smaller by 11, which has to be looked for in the files.") == ("less", 1489, True)
    assert _read("This card holds 28 February 2032. The day 2 days later, as YYYYMMDD, is the number of the next card.") == ("later", 20320301, False)
    assert _read("The chain ends here, with 100000. Double it and add 11: that is the answer.") == ("last", 200011, False)
    assert _read("Nothing is written here.") is None


def test_only_the_final_number_counts() -> None:
    def value(text: str) -> float:
        return pointer_chase.check(INSTANCE, text).value

    hops = pointer_chase.config.hops
    assert value(RIGHT) == value(f" {RIGHT}\n") == value(f"The answer is {RIGHT}.") == value(f"{hops}|{RIGHT}") == 1
    assert value(f"{int(RIGHT):,}") == 1
    assert value(f"{hops - 1}|{RIGHT}") == value(f"{RIGHT}, or {int(RIGHT) + 1}") == value(f"{RIGHT}0") == value("") == 0


def test_rules_of_merging_by_hand() -> None:
    merge = pointer_chase.merge
    assert merge(INSTANCE, "last", ["2|11111", "6|222222", "4|33333"]) == "222222"
    assert merge(INSTANCE, "last", ["2|11111", "4|33333", "4|44444", "4|44444"]) == "4|44444"
    assert merge(INSTANCE, "vote", ["222222", "333333", "6|333333"]) == "333333"
    assert merge(INSTANCE, "first", ["words", "222222", "333333"]) == "222222"
    assert merge(INSTANCE, "last", ["words"]) == ""


def test_parts_cost_more_than_the_whole_and_help_only_in_turn() -> None:
    alone = calls(play(pointer_chase, INSTANCE)[1])
    parts = [play(pointer_chase, INSTANCE, part) for part in INSTANCE.subtasks]
    assert sum(calls(seen) for _, seen in parts) > 1.5 * alone
    told: list[ViewItem] = []
    in_turn = 0
    for part in INSTANCE.subtasks:  # each told what the one before found
        act, seen = play(pointer_chase, INSTANCE, part, before=told)
        in_turn += calls(seen)
        told = [ViewItem("message", "lead", act.text)]
    assert in_turn == alone
    assert pointer_chase.check(INSTANCE, act.text).is_solved


def test_a_wrong_number_from_a_peer_leads_nowhere_and_is_left() -> None:
    act, _ = play(pointer_chase, INSTANCE, INSTANCE.subtasks[1], before=[ViewItem("message", "lead.1", "2|99999999")])
    assert act.text == play(pointer_chase, INSTANCE, INSTANCE.subtasks[1])[0].text


@pytest.mark.parametrize("seed", range(8))
def test_the_answer_stands_in_no_document(seed: int) -> None:
    task = pointer_chase.replace(hops=20, distractors=300)
    instance = task.instance(seed)
    assert not any(truth(instance, task)[1] in d.title + d.text for d in instance.documents)
