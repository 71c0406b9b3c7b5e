"""The sparsity claims, counted from rows and marks."""

from __future__ import annotations

import msgspec
import pytest

from counterpoint.lab.papers import load
from counterpoint.lab.papers.query import Claim, claim, claims
from counterpoint.lab.papers.records import PAPER_VOCABULARY, ClaimSpec, Mark


def _all() -> dict[str, Claim]:
    return {c.id: c for c in claims(load.claim_specs(), load.papers(), load.marks())}


def test_message_credit_two_tags_one_strict() -> None:
    found = _all()["message-credit"]
    assert found.rows["tags"] == ["c3", "debate-as-reward"]
    assert found.rows["strict"] == ["c3"]


def test_orchestrator_credit_eight_tags_five_strict_or_nearly() -> None:
    found = _all()["orchestrator-credit"]
    assert found.counts["tags"] == 8
    assert found.rows["strict"] == ["puppeteer", "kimi-k2-5"]
    assert found.rows["near"] == ["paramanager", "owl2025", "wideseek-r1-2026"]
    assert {"hera", "agentspawn", "mas-zero2025"} == set(found.rows["tags"]) - set(found.rows["strict_or_near"])
    assert "ER12" in found.errata


def test_nobody_trains_stopping_and_the_near_exception_is_named() -> None:
    found = _all()["stop-training"]
    assert (found.counts["strict"], found.rows["near"]) == (0, ["puppeteer"])
    assert found.status == "moved"
    assert found.since is not None
    assert "2609.38661" in found.since_refs


def test_dynamic_team_as_stated_and_as_read() -> None:
    found = _all()["dynamic-team"]
    assert (found.counts["tags"], found.counts["stated_strict"], found.counts["stated_near"]) == (21, 5, 3)
    assert set(found.rows["stated_strict"]) - set(found.rows["strict"]) == {"agent-qmix2026"}
    assert found.status == "corrected"


def test_no_benchmark_reports_all_four_and_each_was_read() -> None:
    found = _all()["all-four-measures"]
    assert (found.counts["tags"], found.counts["strict"], found.counts["near"], found.counts["unread"]) == (18, 0, 0, 0)


def test_counterfactual_and_shapley_rows() -> None:
    found = _all()
    assert found["counterfactual-credit"].rows["strict"] == ["c3"]
    assert found["counterfactual-credit"].counts["near"] == 4
    assert set(found["shapley-open-team"].rows["near"]) == {"sharp", "shapley-q2020"}
    assert found["orchestration-reward"].counts["tags"] == 7
    assert found["focal-entries"].counts["tags"] == 38


def test_the_shipped_pool_reproduces_every_stated_number() -> None:
    assert [c.id for c in _all().values() if c.status == "differs"] == []
    assert sum(bool(c.stated) for c in _all().values()) >= 10


@pytest.mark.parametrize("name", [s.id for s in load.claim_specs()])
def test_every_number_is_a_length_and_is_in_the_statement(name: str) -> None:
    found = _all()[name]
    assert found.counts == {label: len(keys) for label, keys in found.rows.items()}
    assert "{" not in found.statement
    assert found.counts["unread"] == 0
    assert found.boundary


def test_specs_hold_no_number_of_their_own_and_select_known_words() -> None:
    used = {m.mark for m in load.marks()} - {"authors"}
    for spec in load.claim_specs():
        outside = spec.statement.replace("(O5)", "").replace("E1 to E4", "")
        for family in ("R5", "R7", "R8"):
            outside = outside.replace(family, "")
        assert not any(char.isdigit() for char in outside), spec.id
        for selector in (spec.select or {}, spec.strict_select or {}):
            for field, words in selector.items():
                assert {w.removeprefix("!") for w in words} <= set(PAPER_VOCABULARY[field])
        used.discard(spec.mark or "")
    assert used == set(), "a mark that no claim counts"


def test_a_row_more_changes_the_count_and_shows_as_unread() -> None:
    spec = next(s for s in load.claim_specs() if s.id == "message-credit")
    more = msgspec.structs.replace(load.papers()[0], key="new", credit_granularity="message")
    found = claim(spec, [*load.papers(), more], load.marks())
    assert (found.counts["tags"], found.rows["unread"], found.status) == (3, ["new"], "differs")


def test_a_row_less_changes_the_count() -> None:
    spec = next(s for s in load.claim_specs() if s.id == "orchestrator-credit")
    found = claim(spec, [p for p in load.papers() if p.key != "owl2025"], load.marks())
    assert (found.counts["tags"], found.counts["strict_or_near"], found.status) == (7, 4, "differs")


def test_counting_by_hand() -> None:
    """Three centralized papers a, b, c; a strict, b near but stated strict, d strict outside the selection."""
    base = load.papers()[0]
    papers = [msgspec.structs.replace(base, key=k) for k in "abc"]
    papers.append(msgspec.structs.replace(base, key="d", orchestration_form="swarm"))
    marks = [
        Mark(key="a", mark="m", value="yes", reason="r", label="l"),
        Mark(key="b", mark="m", value="half", reason="r", label="l", stated="yes", erratum="ER99"),
        Mark(key="d", mark="m", value="yes", reason="r", label="l"),
        Mark(key="c", mark="other", value="yes", reason="r", label="l"),
    ]
    spec = ClaimSpec(
        id="x",
        statement="{strict} of {tags}",
        boundary="b",
        select={"orchestration_form": ("!swarm",)},
        mark="m",
        strict=("yes",),
        near=("half",),
        complete=True,
        stated={"stated_strict": 2},
    )
    found = claim(spec, papers, marks)
    assert found.statement == "1 of 3"
    assert found.rows["near"] == ["b"]
    assert found.rows["stated_strict"] == ["a", "b"]
    assert found.rows["outside"] == ["d"]
    assert found.rows["unread"] == ["c"]
    assert (found.status, found.errata) == ("corrected", ["ER99"])
