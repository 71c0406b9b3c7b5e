"""BibTeX that a parser accepts."""

from __future__ import annotations

import re

import msgspec
import pytest

from counterpoint.lab.papers import bib, load

ENTRY = re.compile(r"@(article|inproceedings|misc)\{([a-z0-9.-]+),\n((?:  [a-z]+ += \{.*\},\n)+)\}")


def _balanced(text: str) -> bool:
    depth = 0
    for char in re.sub(r"\\[{}\\]", "", text):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth < 0:
            return False
    return depth == 0


def test_all_entries_parse_with_unique_keys() -> None:
    text = bib.render(load.papers())
    entries = [ENTRY.fullmatch(e) for e in text.split("\n\n")]
    assert all(entries)
    assert [e[2] for e in entries if e] == [p.key for p in load.papers()]
    assert _balanced(text)
    assert text.isascii()
    assert text == bib.render(load.papers())


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("c3", "misc"),
        ("marft", "misc"),  # submitted is not accepted
        ("depart2026", "misc"),
        ("sage2026", "misc"),
        ("kimi-k2-6", "misc"),
        ("puppeteer", "inproceedings"),
        ("markov-games1994", "inproceedings"),
        ("tamas", "inproceedings"),
        ("injecagent2024", "inproceedings"),
        ("dec-pomdp2002", "article"),
        ("survey-agentic-rl", "article"),
        ("deepseek-r12025", "article"),
    ],
)
def test_entry_types(key: str, kind: str) -> None:
    assert bib.kind(next(p for p in load.papers() if p.key == key)) == kind


def test_journal_place_comes_from_the_note() -> None:
    found = bib.fields(next(p for p in load.papers() if p.key == "difference-rewards2001"))
    assert (found["volume"], found["number"], found["pages"]) == ("4", "2/3", "265--279")
    nature = bib.fields(next(p for p in load.papers() if p.key == "deepseek-r12025"))
    assert (nature["journal"], nature["volume"], nature["pages"]) == ("Nature", "645", "633")


def test_authors_people_groups_and_one_alone() -> None:
    by_key = {p.key: p for p in load.papers()}
    assert bib.fields(by_key["gaia2023"])["author"] == r"Mialon, Gr{\'{e}}goire and others"
    assert bib.fields(by_key["kimi-k2-5"])["author"] == "{Kimi Team}"
    assert bib.fields(by_key["agentspawn"], {"agentspawn"})["author"] == "Costa, Igor"


def test_eprint_and_second_address() -> None:
    by_key = {p.key: p for p in load.papers()}
    assert bib.fields(by_key["c3"])["eprint"] == "2603.06859"
    assert "eprint" not in bib.fields(by_key["rema2025"])
    assert bib.fields(by_key["openai-codex"])["note"].startswith(r"See also \url{https://openai.com/")


def test_nothing_in_a_record_can_break_out() -> None:
    nasty = msgspec.structs.replace(load.papers()[0], title=r"} 100% & $x_1$ #{\input{x} ~^", url="https://a.org/x}y{z\\w_1%20")
    text = bib.entry(nasty)
    assert _balanced(text)
    assert r"\} 100\% \& \$x\_1\$ \#\{\textbackslash{}input\{x\} \textasciitilde{}\textasciicircum{}" in text
    assert "https://a.org/x%7Dy%7Bz%5Cw_1%20" in text


@pytest.mark.parametrize(
    ("char", "tex"), [("ö", r"{\"{o}}"), ("ç", r"{\c{c}}"), ("Å", r"{\r{A}}"), ("中", "中"), ("e\u0301", r"{\'{e}}")]
)
def test_escape_letters(char: str, tex: str) -> None:
    assert bib.escape(char) == tex
