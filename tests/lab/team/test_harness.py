"""The harness: frozen, hashed, in every trace; a prompt holds all that was seen, or says where it was cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import NotFound
from counterpoint.lab.tasks.task import Choice, View, ViewItem
from counterpoint.lab.team.harness import HARNESSES, harness
from team_help import record

KINDS = ["question", "subtask", "brief", "message", "return", "result", "note", "own", "error", "operator"]


def _view(*seen: ViewItem) -> View:
    return View("lead.1", "worker", "work", seen, (Choice("tool", "search", None, "query"), Choice("return", "", None, "rows")))


def test_one_letter_is_another_harness() -> None:
    text = harness("text")
    assert text.digest == harness("text").digest
    assert replace(text, ask=text.ask + ".").digest != text.digest
    assert len({h.digest for h in HARNESSES.values()}) == len(HARNESSES)


def test_the_shipped_harness_is_the_one_that_traces_were_recorded_with() -> None:
    """A change of prompt or grammar is another policy: raise the version, and this hash with it."""
    assert harness("text").version == 1
    assert harness("text").digest == "sha256:bb5282053aa10c2b54f514d913837f7352ffc6a9faa9e0595263099332453df2"


def test_its_hash_is_in_each_trace(tmp_path: Path) -> None:
    trace = record(tmp_path)
    assert trace.meta["harness"] == {"name": "text", "version": 1, "hash": harness("text").digest}


def test_an_unknown_harness_is_one_error() -> None:
    with pytest.raises(NotFound, match="did you mean 'text'"):
        harness("txt")


@given(st.lists(st.builds(ViewItem, st.sampled_from(KINDS), st.just("lead"), st.text(max_size=300)), max_size=8))
@settings(max_examples=60)
def test_a_prompt_holds_everything_seen(seen: list[ViewItem]) -> None:
    messages = harness("text").render(_view(*seen), context=10**6)
    assert len(messages) == len(seen) + 2
    assert all(s.text in m.text for s, m in zip(seen, messages[1:], strict=False))
    assert "TOOL search: <query>" in messages[-1].text


def test_a_prompt_that_is_too_long_is_cut_and_says_so() -> None:
    seen = [ViewItem("result", "search", "x" * 9000), ViewItem("message", "lead", "short and kept")]
    messages = harness("text").render(_view(*seen), context=4000)
    assert sum(len(m.text) for m in messages) <= 4000 + 200
    assert "cut: the text is longer than the context" in messages[1].text
    assert "short and kept" in messages[2].text


def test_what_does_not_fit_is_cut_or_left_out_in_steps_so_that_prompts_go_on_as_they_began() -> None:
    used, choices = harness("text"), (Choice("noop"),)
    seen = [ViewItem("question", "user", "What? " * 600)]
    before: list[str] = []
    versions, fresh, count = set(), 0, 400
    for k in range(count):
        seen.append(ViewItem("own", "lead", f"DELEGATE lead.{k}: s{k}"))
        seen.append(ViewItem("return", f"lead.{k}", f"found {k}"))
        asked = [m.text for m in used.render(View("lead", "orchestrator", "turn", tuple(seen), choices), context=3000)]
        assert sum(map(len, asked)) <= 3000
        assert f"found {k}" in asked[-2], "the latest is always there"
        assert asked[1].startswith("Question from user:"), "and so is the question"
        versions.add(asked[1])
        fresh += len(asked) - next((i for i, (a, b) in enumerate(zip(asked, before, strict=False)) if a != b), len(before))
        before = asked
    assert len(versions) <= 9
    assert fresh < 12 * count, "what is new in a prompt does not grow with the prompt"
