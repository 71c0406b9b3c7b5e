"""Numbers out of names: exactly the prefix and decimal digits, or nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.trace import edges
from counterpoint.trace.edges import numbers, numbers_at, prefix_of


@pytest.mark.parametrize(("name", "prefix"), [("e12", b"e"), ("12", b""), ("e", b"e"), ("a1b22", b"a1b"), ("é9", "é".encode()), ("\ud8007", b"\xed\xa0\x80"), ("", b"")])
def test_the_prefix_is_what_stands_before_the_last_digits(name: str, prefix: bytes) -> None:
    assert prefix_of(name) == prefix


def listed(names: list[str], prefix: bytes = b"e") -> list[int] | None:
    found = numbers(names, prefix)
    return None if found is None else found.tolist()


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["e0"], [0]),
        (["e0", "e10", "e7", "e305"], [0, 10, 7, 305]),
        (["e01"], None),
        (["e1", "e00"], None),
        (["e"], None),
        (["e1", "e"], None),
        (["f1"], None),
        (["e1", "f2"], None),
        (["e1", "\ud800"], None),
        (["e1", "e-2"], None),
        (["e1/"], None),
        (["e1:"], None),
        (["e12", "e1:3"], None),
        (["e1\n2"], None),
        (["e1", "\n"], None),
        (["e999999999", "e1000000000", "e2147483648"], [999_999_999, 1_000_000_000, 2_147_483_648]),
        (["e" + "9" * 17], [10**17 - 1]),
        (["e1" + "0" * 17], None),
    ],
)
def test_what_is_a_number_and_what_is_not(names: list[str], found: list[int] | None) -> None:
    assert listed(names) == found


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_names_are_taken_in_chunks_and_none_is_lost_between_them(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "_NAMES_AT_ONCE", chunk)
    values = [3, 10**12, 0, 44, 5, 678, 9]
    assert listed([f"e{v}" for v in values]) == values
    assert listed([*(f"e{v}" for v in values), "x"]) is None


@settings(max_examples=150)
@given(st.lists(st.integers(0, 10**17 - 1) | st.integers(0, 120), min_size=1, max_size=12), st.sampled_from(["e", "", "ev-", "é"]))
def test_every_number_comes_back(values: list[int], prefix: str) -> None:
    assert listed([f"{prefix}{v}" for v in values], prefix.encode()) == values


def test_short_names_take_nothing_from_their_neighbours() -> None:
    text = np.frombuffer(b"xxe7|e123|e45", np.uint8)
    found = numbers_at(text, np.array([2, 5, 10]), np.array([4, 9, 13]), b"e")
    assert found is not None
    assert found.tolist() == [7, 123, 45]
