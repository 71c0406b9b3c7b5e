"""Words: what is said is heard again, and draws depend on nothing but their key."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lab.tasks._words import (
    ALIASES,
    BOOKS,
    FIRMS,
    PEOPLE,
    KeyedDice,
    Phrase,
    alias,
    day,
    firm,
    money,
    number,
    person,
    phrase_fields,
    phrases,
    the_day,
)
from counterpoint.trace.keyed import purpose, uniform


@given(st.integers(0, 2**63 - 1), st.integers(0, 2_000), st.text(max_size=8))
def test_a_draw_is_the_keyed_number_of_its_name_and_place(seed: int, i: int, name: str) -> None:
    dice = KeyedDice(seed, "a test")
    assert dice.u(name, i) == float(uniform(dice.seed, purpose(name), i))
    other = KeyedDice(seed, "a test")
    other.u("something else", 3)
    assert other.u(name, i) == dice.u(name, i)


def test_orders_and_ranks() -> None:
    dice = KeyedDice(5)
    order = dice.order(50, "x")
    assert sorted(order) == list(range(50))
    assert [order[dice.rank(50, "x", i)] for i in range(50)] == list(range(50))
    assert order != dice.order(50, "y")
    assert {dice.between(3, 5, "b", i) for i in range(100)} == {3, 4, 5}


def test_names_are_different() -> None:
    assert len({firm(i) for i in range(FIRMS)}) == FIRMS
    assert len({alias(i) for i in range(ALIASES)}) == ALIASES
    assert len({person(i) for i in range(PEOPLE)}) == PEOPLE
    assert len(set(BOOKS)) == len(BOOKS) == 64
    assert not any(" " in alias(i) for i in range(ALIASES))  # how a reader tells a trading name from a registered one


@given(st.integers(0, 10_000), st.integers(0, 5), st.integers(0, 10**9))
def test_days_and_amounts_come_back(n: int, way: int, amount: int) -> None:
    assert the_day(day(n, way)) == n
    assert number(money(amount, way)) == amount


def test_days_by_hand() -> None:
    assert [day(59, way) for way in range(3)] == ["2031-03-01", "1 March 2031", "March 1, 2031"]
    assert the_day("31 February 2031") == the_day("yesterday") == the_day("") == the_day("2031-13-01") == -1


@settings(max_examples=60)
@given(st.integers(0, FIRMS - 1), st.integers(0, 10**8), st.integers(0, 900), st.integers(0, 5), st.sampled_from(["", "Before. ", "x\n"]))
def test_what_is_said_is_heard_whatever_stands_around_it(i: int, amount: int, n: int, way: int, before: str) -> None:
    ways = phrases("On {when:date} {who:name} paid {sum:amount} for {what:word}.", "{who:name} paid {sum:amount}, on {when:date}, for {what:word}.")
    fields = {"who": firm(i), "sum": money(amount, way), "when": day(n, way), "what": "freight"}
    for phrase in ways:
        assert phrase_fields(ways, f"{before}{phrase.fill(**fields)} After.\nMore.") == fields
    assert phrase_fields(ways, "Nobody paid.") is None


def test_signs_in_a_phrase_are_themselves() -> None:
    phrase = Phrase("Is it (really) {n:number}? [yes|no] a.c")
    assert phrase.find_all("Is it (really) -5? [yes|no] a.c") == [{"n": "-5"}]
    assert phrase.find_all("Is it (really) 5? [yes|no] abc") == []
