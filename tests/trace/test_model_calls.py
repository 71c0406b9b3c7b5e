"""Prompts that are kept once: written by runs of earlier calls, read back whole, and no trace can make reading go wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.trace import Event, Trace
from counterpoint.trace.model_calls import PromptIds, ids_of, prompt_ids_of


def _trace(*calls: dict[str, Any]) -> Trace:
    events = [Event(id=f"e{i}", t=i, type="message", agent="a", extra={"call": call}) for i, call in enumerate(calls, 1)]
    return Trace(trace_id="t", task_id="t", events=events, edges=[], rewards={})


def _read(*calls: dict[str, Any]) -> dict[str, list[int]]:
    return {name: ids.tolist() for name, ids in prompt_ids_of(_trace(*calls)).items()}


TOKENS = st.lists(st.integers(0, 3), max_size=40)


@given(st.lists(st.tuples(st.sampled_from("abc"), TOKENS, TOKENS, st.integers(0, 60)), max_size=12))
def test_what_is_written_by_runs_is_read_back_whole(calls: list[tuple[str, list[int], list[int], int]]) -> None:
    kept, notes, prompts, so_far = PromptIds(), [], {}, list[int]()
    for i, (agent, new, said, again) in enumerate(calls, 1):
        prompt = so_far[-again:] + new  # much of it was read or written before, by this agent or another
        notes.append({"prompt_ids": kept.note(agent, prompt), "token_ids": said})
        kept.add(agent, f"e{i}", notes[-1]["prompt_ids"], prompt, said)
        prompts[f"e{i}"] = prompt
        so_far += prompt + said
    assert _read(*notes) == prompts


def test_a_prompt_names_what_it_has_in_common_with_earlier_calls() -> None:
    kept = PromptIds()
    first = list(range(100, 120))
    assert kept.note("a", first) == first
    kept.add("a", "e1", first, first, [1, 2])
    longer = [*first, 1, 2, 9]
    assert kept.note("a", longer) == [["e1", 0, 22], 9]
    assert kept.note("b", [7, *first[4:16], 8]) == [7, ["e1", 4, 12], 8]  # another agent's prompt, in the middle
    assert kept.note("b", first[:7]) == first[:7]  # a short run is cheaper as it is


def test_whole_prompts_of_older_recordings_are_read_as_they_are() -> None:
    assert _read({"prompt_ids": [5, 6]}, {"prompt_ids": []}, {"seed": 1}, {"prompt_ids": [5], "failed": "down"}) == {"e1": [5, 6], "e2": []}


def test_a_run_may_name_an_event_that_stands_later_in_the_file() -> None:
    assert _read({"prompt_ids": [["e2", 1, 2], 9]}, {"prompt_ids": [4, 5], "token_ids": [6]})["e1"] == [5, 6, 9]


@pytest.mark.parametrize(
    "ids",
    [
        [["e9", 0, 1]],
        [["e1", 0, 1]],
        [["e2", 0, 1]],
        [["e3", 0, 3]],
        [["e3", -1, 1]],
        [["e3", "0", 1]],
        [["e3", 0]],
        [None],
        7,
        [{"of": "e3"}],
    ],
)
def test_a_run_that_leads_nowhere_leaves_the_prompt_out(ids: Any) -> None:
    assert _read({"prompt_ids": ids}, {"prompt_ids": [["e1", 0, 1]]}, {"prompt_ids": [1, 2]}) == {"e3": [1, 2]}


def test_runs_of_runs_cannot_grow_without_end() -> None:
    doubling: list[dict[str, Any]] = [{"prompt_ids": [1] * 1024}, *({"prompt_ids": [[f"e{i}", 0, 512 << i], [f"e{i}", 0, 512 << i]]} for i in range(1, 40))]
    found = _read(*doubling)
    assert 10 < len(found) < 30


def test_a_chain_of_many_calls_is_followed_without_recursion() -> None:
    chain: list[dict[str, Any]] = [{"prompt_ids": [1]}, *({"prompt_ids": [[f"e{i}", 0, 1]]} for i in range(1, 3000))]
    assert len(_read(*reversed(chain))) == 1  # a chain that leads nowhere; the last names itself
    assert len(_read(*chain)) == 3000


def test_what_is_no_list_of_ids_is_none() -> None:
    assert ids_of([1, "a"]) is None
    assert ids_of(None) is None
