"""`agreement` by hand: who said what the majority said, whose item has none, and what a first word is."""

from __future__ import annotations

import pytest

from counterpoint.credits.mechanisms.agreement import agreement
from counterpoint.errors import NotIdentified
from credits.published_made import said, team


def claim(agent: str, what: str, task: str = "q1") -> dict[str, object]:
    return said(agent, task=task, extra={"claim": what})


TEAM = team(
    "t",
    None,
    [claim("a", "x"), claim("b", "x"), claim("b", "y"), claim("c", "x"), claim("b", "x", "q2"), claim("c", "x", "q2"), claim("a", "x", "q3")],
)


def test_every_claim_is_held_against_the_majority_of_its_item() -> None:
    """x has three of four claims on q1 and both on q2; one claim on q3 is no majority."""
    found = agreement([TEAM, TEAM])
    for k in (0, 1):
        assert found.of(k) == {"e0": 1, "e1": 1, "e2": 0, "e3": 1, "e4": 1, "e5": 1}
    assert found.unidentified == dict.fromkeys(((0, "e6"), (1, "e6")), "its item has no majority")


def test_only_an_agents_first_word_on_an_item_counts_where_that_is_asked() -> None:
    """b's second word on q1 has no row, its first on q2 has; all of them are counted for the majority."""
    found = agreement([TEAM, TEAM], first=True)
    for k in (0, 1):
        assert found.of(k) == {"e0": 1, "e1": 1, "e3": 1, "e4": 1, "e5": 1}
    assert (0, "e2") not in found.unidentified
    assert (found.notes["first"], agreement(TEAM).notes["first"]) == (True, False)


def test_an_even_split_has_no_majority() -> None:
    split = team("t", None, [claim("a", "x"), claim("b", "y"), claim("a", "x", "q2"), claim("b", "x", "q2"), claim("c", "y", "q2")])
    found = agreement(split)
    assert found.of(0) == {"e2": 1, "e3": 1, "e4": 0}
    assert set(found.unidentified) == {(0, "e0"), (0, "e1")}
    with pytest.raises(NotIdentified, match="no message carries a claim"):
        agreement(team("t", None, [said("a")]))
