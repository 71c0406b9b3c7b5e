"""The files of the package, and a user's."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.papers import load

SURVEY = Path(__file__).parents[4] / "shared" / "data" / "survey"
needs_survey = pytest.mark.skipif(not SURVEY.is_dir(), reason="the survey's reference files are not on this machine")

SENTENCES = {"one_liner", "notes", "exclusion_reason"}


def test_sizes_and_order() -> None:
    papers = load.papers()
    assert (len(papers), len(load.excluded())) == (84, 32)
    assert (papers[0].key, papers[-1].key) == ("magrpo", "sage2026")
    assert [x.record_id for x in load.excluded()] == [f"E{n:03}" for n in range(1, 33)]


def test_a_record_keeps_its_facts() -> None:
    gaia = next(p for p in load.papers() if p.key == "gaia2023")
    assert (gaia.first_author, gaia.year, gaia.arxiv_id) == ("Mialon, Grégoire", 2023, "2311.12983")
    codex = next(p for p in load.papers() if p.key == "openai-codex")
    assert codex.arxiv_id is None
    assert codex.url.count("https://") == 2


def test_every_sentence_is_there() -> None:
    assert all(p.one_liner.endswith(".") for p in load.papers())
    assert all(x.exclusion_reason.endswith(".") for x in load.excluded())
    assert [p.key for p in load.papers() if not p.notes] == ["codecriticbench2025", "criticlean2025", "mtu-bench2025"]


def test_marks_and_errata_name_papers_and_errata_that_exist() -> None:
    keys = {p.key for p in load.papers()}
    ids = [e.id for e in load.errata()]
    assert len(ids) == len(set(ids))
    assert all(set(e.keys) <= keys and e.keys for e in load.errata())
    assert {m.key for m in load.marks()} <= keys
    assert {m.erratum for m in load.marks()} - {None} <= set(ids)
    assert {e for s in load.claim_specs() for e in s.errata} <= set(ids)
    assert len({(m.key, m.mark) for m in load.marks()}) == len(load.marks())


def test_errata_hold_the_eight_rows_set_against_the_survey() -> None:
    stated = [e for e in load.errata() if e.kind == "stated"]
    assert {k for e in stated for k in e.keys} == {
        "m-grpo",
        "marsrl",
        "puppeteer",
        "dr-mas",
        "malt",
        "maporl",
        "agent-qmix2026",
        "kimi-k2-5",
        "context-folding",
    }
    assert len(stated) == 8
    labels = {"VERIFIED-paper", "VERIFIED-code", "SECONDARY", "RECONSTRUCTED", "TEXTBOOK", "DATA"}
    assert all(e.evidence and e.found and e.survey and e.label in labels for e in load.errata())


def test_user_file_joins_the_pool(user_file: Path) -> None:
    assert [p.key for p in load.pool([user_file]).papers][-2:] == ["sage2026", "novel2026"]


def test_user_file_with_bom_blank_lines_and_crlf(tmp_path: Path, record: dict[str, Any]) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\r\n" + json.dumps(record).encode() + b"\r\n\r\n")
    assert [p.key for p in load.read_papers(path)] == ["novel2026"]


@pytest.mark.parametrize(
    "line",
    [b"{bad", b"[1]", b"7", b"\xff\xfe", b'{"key": "x"}', b"[" * 100_000, b'{"title": "\\ud800"}', b"\x00"],
)
def test_bad_line_names_file_and_line(user_file: Path, line: bytes) -> None:
    user_file.write_bytes(user_file.read_bytes() + line + b"\n")
    with pytest.raises(InputError) as error:
        load.pool([user_file])
    assert error.value.where == f"{user_file}:2"


@pytest.mark.parametrize("change", [{}, {"key": "other"}, {"key": "other", "arxiv_id": None}])
def test_the_same_paper_twice_in_a_file(user_file: Path, record: dict[str, Any], change: dict[str, Any]) -> None:
    user_file.write_text(user_file.read_text() + json.dumps(record | change) + "\n")
    with pytest.raises(InputError, match=r":2: .*(taken|already there)"):
        load.read_papers(user_file)


def test_a_paper_of_the_pool_in_a_file(tmp_path: Path, record: dict[str, Any]) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(record | {"arxiv_id": "2603.06859"}))
    with pytest.raises(InputError, match="'c3'"):
        load.pool([path])


def test_missing_user_file_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises((FileNotFoundError, NotFound)):
        load.pool([tmp_path / "none.jsonl"])


def _words(text: str) -> list[str]:
    # digits are facts: volume and page numbers have one spelling
    return [w for w in re.findall(r"[\w'+]+", text.lower()) if not w.isdigit()]


def _runs(text: str, length: int = 5) -> set[tuple[str, ...]]:
    words = _words(text)
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


@needs_survey
@pytest.mark.shared
def test_facts_are_the_surveys_and_sentences_are_ours() -> None:
    checked = 0
    for name, key, ours in (("papers", "key", load.papers()), ("excluded", "record_id", load.excluded())):
        with (SURVEY / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            theirs = list(csv.DictReader(file))
        assert [getattr(o, key) for o in ours] == [t[key] for t in theirs]
        for our, their in zip(ours, theirs, strict=True):
            old = " | ".join(their[f] for f in SENTENCES & their.keys())
            for field, value in their.items():
                mine = getattr(our, field)
                if field in SENTENCES:
                    assert not _runs(mine) & _runs(old), (getattr(our, key), field)
                    assert not mine or _words(mine) != _words(value), (getattr(our, key), field)
                else:
                    assert str("" if mine is None else mine) == value.replace(r"\'{e}", "é"), (getattr(our, key), field)
            checked += 1
    assert checked == 116
