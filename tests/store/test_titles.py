"""Titles in lists: each trace of a project has one of its own, and one that comes in renames no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterpoint.store import Store
from counterpoint.store.titles import told_apart
from counterpoint.trace import Event, Trace
from counterpoint.trace.naming import TITLE_LENGTH, further_of, title_of
from counterpoint.trace.trace import content_ref

BRIEF = "You are given a statement. Is it something that you would say?\nAnswer with yes or no: "


def asked(name: str, *texts: str, model: str | None = None, began: float | None = None) -> Trace:
    refs = {content_ref(text): text for text in texts}
    events = [
        Event(id=f"e{k}", t=k, type="human_intervention", agent="user", role="user", content_ref=ref)
        for k, ref in enumerate(refs)
    ]
    events.append(Event(id="a", t=len(events), type="message", agent="main", model=model))
    meta = {"project": "shop"} | ({} if began is None else {"began": began})
    return Trace(trace_id=name, task_id=name, events=events, contents=refs, meta=meta)


def titles(folder: Path, *traces: Trace) -> list[str | None]:
    """What the list calls them after each was added by itself; names given once stay."""
    before: dict[str, str | None] = {}
    with Store(folder / "store") as store:
        for trace in traces:
            store.add(trace)
            now = {row.id: row.title for row in store.rows()}
            assert before.items() <= now.items(), "a trace that came in renamed another"
            before = now
    return list(before.values())


def test_the_part_that_differs_is_shown_and_names_stay(tmp_path: Path) -> None:
    runs = [
        asked(f"r{k}", BRIEF + said) for k, said in enumerate(["I like cats.", "I fear dogs.", "I like birds.", "I fear dogs."])
    ]
    assert titles(tmp_path, *runs) == [
        "You are given a statement. Is it something that you would say?",
        "You are given a statement. Is it something that you would say? … fear dogs.",
        "You are given a statement. Is it something that you would say? … birds.",
        "You are given a sta… … fear dogs. · r3",
    ]


def test_runs_of_one_task_are_told_apart_by_id_model_and_moment(tmp_path: Path) -> None:
    ask = "Mend the door."
    paths = [asked(f"gpt/{case}", ask) for case in ("task_1/none", "task_1/attack_2", "task_2/none")]
    assert titles(tmp_path / "a", *paths) == [ask, f"{ask} · attack_2", f"{ask} · task_2"]
    models = [asked(f"r{k}", ask, model=model) for k, model in enumerate(["gpt-5", "claude-opus-4-5-20251101"])]
    assert titles(tmp_path / "b", *models) == [ask, f"{ask} · claude-opus-4-5"]
    days = [asked(f"r{k}", ask, began=1_794_700_800.0 + 86_400 * k) for k in range(3)]
    said = titles(tmp_path / "c", *days)
    assert len(set(said)) == 3
    assert all(str(title).startswith("Mend the door. · 2026-11-1") for title in said[1:])
    assert len(set(titles(tmp_path / "d", *[asked(f"r{k}", "hi") for k in range(30)]))) == 30


def test_projects_do_not_share_names_and_long_ones_have_room() -> None:
    from counterpoint.store.summary import Summary

    long = "word " * 60
    lines = [Summary.of_trace(asked(f"r{k}", f"{long} {k} {long}")) for k in range(9)]
    told = told_apart(lines)
    assert len({line.title for line in told}) == 9
    assert all(len(str(line.title)) <= TITLE_LENGTH for line in told)
    apart = told_apart([Summary.of_trace(asked("a", "hi")), Summary.of_trace(asked("b", "hi"))])
    assert [line.title for line in apart] == ["hi", "hi · b"]


@pytest.mark.parametrize(
    ("texts", "title"),
    [
        (["/clear", "Mend it."], "Mend it."), (["/review the door of the shop"], "the door of the shop"), (["/model opus", "{}", "go"], "go"),
        (['{"args"', "Mend it."], "Mend it."), (['{"args": {"n": 1}}', "Mend it."], "Mend it."), (['{"prompt": "Mend it."}'], "Mend it."),
        (["<command-message>init is running…</command-message>\n<command-name>/init</command-name>", "Mend it."], "Mend it."),
        (["<command-name>/fix</command-name>\n<command-args>the door of the shop</command-args>"], "the door of the shop"),
        (["\u2500\u2500\u2500\u2500\nMend it.\n\u2500\u2500\u2500"], "Mend it."),
        (["/home/ada/shop does not build"], "/home/ada/shop does not build"),
        (["We solve this issue. Here's the issue text:\nISSUE:\nThe door is stuck\nIt squeaks."], "The door is stuck"),
        (["You get code and an issue.\n<issue>\n[2.0] The door\n</issue>\n<code>x</code>"], "[2.0] The door"),
    ],
)  # fmt: skip
def test_what_says_the_task_is_the_title(texts: list[str], title: str) -> None:
    assert title_of(asked("0a7b1c2d-0000-4000-8000-000000000001", *texts)) == title


def test_commands_and_data_alone_are_no_titles() -> None:
    for text in ("/clear", "{}", '{"args"', '[{"a": 1}]'):
        assert title_of(asked("0a7b1c2d-0000-4000-8000-000000000001", text)) is None, text


def test_further_words_are_those_behind_the_title() -> None:
    assert further_of(asked("r", "One.\n\n# Two\nthree")) == "Two three"
    assert further_of(asked("r", "One.")) is None
    assert str(further_of(asked("r", "word " * 400))).startswith("word word")
