"""Keyed randomness: a draw is a function of (seed, key) alone, and looks like chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.trace.keyed import bits, child_seed, mixed, normal, purpose, uniform

KEYS = st.integers(-(2**62), 2**62)


def splitmix(word: int, part: int) -> int:
    """The same in plain integers."""
    z = ((part + 1) * 0x9E3779B97F4A7C15 + word) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


@given(KEYS, KEYS, KEYS)
def test_it_is_the_plain_formula(seed: int, a: int, b: int) -> None:
    word = splitmix(splitmix(splitmix(0, seed % 2**64), a % 2**64), b % 2**64)
    assert int(bits(seed, a, b)) == word
    assert float(uniform(seed, a, b)) == (word >> 11) / 2**53


@given(KEYS, st.lists(KEYS, min_size=1, max_size=6))
def test_alone_or_in_an_array_it_is_the_same(seed: int, keys: list[int]) -> None:
    many = uniform(seed, np.array(keys), 3)
    assert many.tolist() == [float(uniform(seed, k, 3)) for k in keys]
    assert ((many >= 0) & (many < 1)).all()


def test_parts_of_a_key_are_ordered_and_counted() -> None:
    assert len({int(bits(1, 2, 3)), int(bits(1, 3, 2)), int(bits(2, 1, 3)), int(bits(1, 2)), int(bits(1, 2, 3, 0))}) == 5


def test_draws_look_uniform_and_unrelated() -> None:
    u = uniform(np.arange(2000)[:, None], np.arange(500)[None], purpose("test"))
    assert abs(u.mean() - 0.5) < 5 / np.sqrt(12 * u.size)
    assert abs((u**2).mean() - 1 / 3) < 5 * np.sqrt(4 / 45 / u.size)
    counts = np.histogram(u, 64, (0, 1))[0]
    expected = u.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 63 + 6 * np.sqrt(2 * 63)
    for a, b in ((u[:, :-1], u[:, 1:]), (u[:-1], u[1:])):  # neighbours in the key, neighbours in the seed
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / np.sqrt(a.size)


def test_normal_numbers_are_normal() -> None:
    z = normal(np.arange(200_000), 1)
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert abs(z.std() - 1) < 0.01
    assert abs((z < -1.96).mean() - 0.025) < 0.002


def test_keys_are_integers() -> None:
    with pytest.raises(TypeError, match="integers"):
        uniform(1, 0.5)


def test_child_seeds_are_seeds() -> None:
    seeds = {child_seed(s, k) for s in range(30) for k in range(30)}
    assert len(seeds) == 900
    assert all(0 <= s < 2**63 for s in seeds)
    assert mixed(np.zeros((), np.uint64), 1).dtype == np.uint64
