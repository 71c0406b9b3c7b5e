"""plugin_name: in a world where guessing is free, an episode is worth half of its questions.

Always true: the seeds are those that were asked for, and no parameter of the optimum is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.worlds.world import world

_QUESTIONS = 4


def plugin_name(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The optimum of a small world whose calls cost more than an answer is worth, once per seed."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    small = world("W1", vote_items=_QUESTIONS, price=(5.0, 5.0))
    values = [small.optimum().value for _ in range(seed, seed + seeds)]
    yield at_least("value of guessing, of four questions", values, _QUESTIONS / 2)
    yield reported("questions", float(_QUESTIONS))


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a claim, and its first row is what was computed by hand."""

# from here import plugin_name
from counterpoint.lab.testing import check_claim


def test_it_keeps_the_contract() -> None:
    check_claim(plugin_name)


def test_a_row_by_hand() -> None:
    first, _ = plugin_name(seed=0, seeds=2)
    assert (first.value, first.ok) == (2.0, True)  # of four questions, two are right by guessing
