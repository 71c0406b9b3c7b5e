"""T1 by hand: what a row is worth, and that the papers do need to be read as the rules say."""

from __future__ import annotations

import pytest

from counterpoint.errors import NotFound
from counterpoint.lab.tasks._words import number, phrase_fields
from counterpoint.lab.tasks.leakage import truth
from counterpoint.lab.tasks.ledger_hunt import AMENDED, KINDS, SIGNED, ledger, ledger_hunt
from text_help import play

INSTANCE = ledger_hunt.instance(0)
ROWS = truth(INSTANCE, ledger_hunt)[1].split("; ")


def value(rows: list[str]) -> float:
    return ledger_hunt.check(INSTANCE, "; ".join(rows)).value


def test_scores_by_hand() -> None:
    assert len(ROWS) == 8
    assert value(ROWS) == value(ROWS[::-1]) == value(ROWS + ROWS) == 1
    assert value([]) == 0
    assert value(ROWS[:4]) == pytest.approx(2 * 4 / (4 + 8))  # F1 of half the rows
    assert value([*ROWS, "C-0000|Nobody|1"]) == pytest.approx(2 * 8 / (9 + 8))
    id_, firm, amount = ROWS[0].split("|")
    assert value([f"{id_}|{firm}|{amount}9", *ROWS[1:]]) == pytest.approx(15 / 16)  # one cell of sixteen is wrong
    assert value([f"{id_}|{firm.upper()}|{int(amount):,}", *ROWS[1:]]) == 1
    assert value([f"{id_}|Nobody|1", *ROWS]) < 1  # a second guess for a row counts against it


def test_rules_of_merging_by_hand() -> None:
    a, b, c = "C-1000|Oak Mills|5", "C-1001|Oak Mills|6", "C-1000|Oak Mills|7"
    merge = ledger_hunt.merge
    assert merge(INSTANCE, "union", [b, a, a, "nothing"]) == f"{a}; {b}"
    assert merge(INSTANCE, "union", [c, a, a]) == a  # one row per contract, the one that most say
    assert merge(INSTANCE, "vote", [a, a, f"{a}; {b}"]) == a
    assert merge(INSTANCE, "first", ["x", b, a]) == b
    assert merge(INSTANCE, "union", []) == "none"
    with pytest.raises(NotFound, match="union"):
        merge(INSTANCE, "unoin", [])


def test_versions_aliases_and_rumours_matter() -> None:
    """Who takes first versions, or any sum that some paper names, or trading names as they stand, is wrong."""
    first_is_wrong = alias_is_wrong = rumour_is_wrong = 0
    for seed in range(6):
        world = ledger(ledger_hunt.config, seed)
        right = set(world.rows())
        first_is_wrong += {(c.id, c.firm, c.sums[0][1]) for c in world.contracts if c.kind == world.kind and c.sums[0][1] >= world.least} != right
        alias_is_wrong += {(c.id, c.alias or c.firm, c.sum) for c in world.contracts if c.kind == world.kind and c.sum >= world.least} != right
        rumour_is_wrong += any(r >= world.least > c.sum for c in world.contracts if c.kind == world.kind for r in c.rumours)
    assert first_is_wrong >= 3
    assert alias_is_wrong >= 3
    assert rumour_is_wrong >= 1


def test_the_papers_say_what_the_world_is() -> None:
    world = ledger(ledger_hunt.config, 5)
    papers = "\n".join(p.text for p in world.papers if p.title.startswith("Contract"))
    assert {c.kind for c in world.contracts} <= set(KINDS)
    for contract in world.contracts:
        mine = next(p for p in world.papers if p.title == f"Contract {contract.id}")
        found = phrase_fields(SIGNED, mine.text)
        assert found is not None
        assert (found["kind"], found["firm"], number(found["sum"])) == (contract.kind, contract.alias or contract.firm, contract.sums[0][1])
        assert not phrase_fields(AMENDED, mine.text)
        assert contract.id in papers
    assert sum(p.id.startswith("D-") for p in world.papers) == ledger_hunt.config.documents


def test_a_large_hunt_is_made_and_one_part_of_it_done() -> None:
    task = ledger_hunt.replace(documents=3_000, rows=1_000, parts=64, firms=200)
    instance = task.instance(1)
    assert len(truth(instance, task)[1].split("; ")) == 1_000
    found, seen = play(task, instance, instance.subtasks[0])
    mine = {f"{i}|{f}|{a}" for i, f, a in ledger(task.config, 1).rows(ledger(task.config, 1).books[0])}
    assert set(found.text.split("; ")) == mine
    assert any("page 2 of" in s.text for s in seen)
