"""Keys of simulated events: what is written is read back, and what has another form is nobody's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import counterpoint as cpt
from counterpoint.trace.keys import EventKey, about_text, make_key, parse_key

_NAMES = st.text("abc.0123456789_", min_size=1)


@given(_NAMES, _NAMES, st.lists(st.integers(0, 10**9), max_size=3))
def test_what_is_written_is_read_back(who: str, what: str, about: list[int]) -> None:
    key = EventKey(who, what, tuple(about))
    assert parse_key(make_key(*key)) == key
    assert make_key(who, what, about_text(*about)) == make_key(*key)


@pytest.mark.parametrize("text", [None, "", "lead", "lead|step|s1|0", "a0|tool|-1|0", "a0|tool|1|", "a0|tool|½"])
def test_a_key_of_another_form_is_none(text: str | None) -> None:
    assert parse_key(text) is None


def test_every_key_of_a_simulated_team_has_this_form() -> None:
    runs = cpt.world("W1", vote_items=6).run("reference", range(2), log=True)
    for event in runs.trace(1).events:
        key = parse_key(event.key)
        assert key is not None
        assert make_key(*key) == event.key
        if event.type == "tool_call":
            assert (key.who, key.what, str(event.task).split()[1]) == (event.agent, "tool", str(key.about[0]))
