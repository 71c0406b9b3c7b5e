"""`counterpoint papers ...` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterpoint import registry

Run = Callable[..., tuple[int, str, str]]


def test_help_line_is_short() -> None:
    assert 10 < len(registry.summary("command", "papers")) < 70


@pytest.mark.parametrize("name", ["ls", "show", "check"])
def test_each_help_has_json_and_two_examples(run: Run, name: str) -> None:
    code, out, _ = run(name, "--help")
    assert code == 0
    assert "--json" in out
    assert len([line for line in out.splitlines() if line.startswith("    counterpoint papers")]) >= 2


def test_ls_the_question_of_the_readme(run: Run) -> None:
    code, out, err = run("ls", "reward:R7", "credit:orchestrator")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        "puppeteer",
        "paramanager",
        "hera",
        "agentspawn",
        "kimi-k2-5",
        "wideseek-r1-2026",
    ]
    assert err == "6 papers\n"
    assert run("ls", "reward:orchestration credit:ORCHESTRATOR")[1] == out  # one word or several


def test_ls_json_has_all_fields(run: Run) -> None:
    _, out, _ = run("ls", "puppeteer", "--json")
    found = json.loads(out)
    assert (found["schema"], found["count"]) == (1, 1)
    assert found["papers"][0]["family"] == "R7"
    assert len(found["papers"][0]) == 19
    assert found["statistics"]["headline"]["retained"] == 1


def test_ls_nothing_found_is_an_answer(run: Run) -> None:
    assert run("ls", "reward:R5")[:2] == (0, "no paper fits\n")
    code, out, _ = run("ls", "reward:R5", "--json")
    assert (code, json.loads(out)["count"], json.loads(out)["papers"]) == (0, 0, [])


def test_ls_core_and_rl(run: Run) -> None:
    assert json.loads(run("ls", "core:yes", "--json")[1])["count"] == 54
    assert json.loads(run("ls", "core:case rl:yes", "--json")[1])["papers"][0]["key"] == "kimi-k2-5"
    both = json.loads(run("ls", "core:case,core", "--json")[1])["count"]
    assert both == json.loads(run("ls", "core:case core:core", "--json")[1])["count"] > 54  # alternatives


@pytest.mark.parametrize("field", ["reward", "credit", "category", "form", "scenario", "core", "rl", "year", "excluded", "nothing"])
def test_ls_unknown_value(run: Run, field: str) -> None:
    code, out, err = run("ls", f"{field}:zzz")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "fix" in err


def test_ls_excluded(run: Run) -> None:
    assert json.loads(run("ls", "excluded:yes", "--json")[1])["count"] == 32
    assert run("ls", "excluded:yes", "reward:R1")[0] == 2


def test_all_papers_come_with_the_counts_of_the_survey(run: Run) -> None:
    _, out, _ = run("ls")
    assert "hierarchical              0      2        0             3     5     3" in out
    numbers = json.loads(run("ls", "--json")[1])["statistics"]
    assert numbers["headline"] == {"retained": 84, "excluded": 32, "audited": 116}
    assert numbers["reward_type_x_credit_granularity"]["orchestration"]["orchestrator"] == 6


def test_ls_with_a_user_file(run: Run, user_file: Path) -> None:
    found = json.loads(run("ls", "--with", str(user_file), "--json")[1])
    assert found["statistics"]["headline"]["retained"] == found["count"] == 85
    assert found["statistics"]["credit_granularity"]["orchestrator"] == 9
    assert json.loads(run("ls", "--with", str(user_file), "novel team", "--json")[1])["count"] == 1


def test_show_a_paper_and_an_exclusion(run: Run) -> None:
    code, out, _ = run("show", "2505.19591")
    assert code == 0
    assert "ER02" in out
    assert "counterpoint train net --preset puppeteer" in out
    assert run("show", "E003", "--json")[0] == 0
    code, out, err = run("show", "pupeteer")
    assert (code, out) == (3, "")
    assert "puppeteer" in err
    code, out, _ = run("show", "pupeteer", "--json")
    assert (code, json.loads(out)["error"]["exit"]) == (3, 3)
    assert run("show")[0] == 2


def test_show_several_things_at_once(run: Run) -> None:
    code, out, _ = run("show", "c3", "p12", "ER04", "message-credit", "E003", "--json")
    assert code == 0
    first, problem, errata, claims, excluded = (json.loads(line) for line in out.splitlines())
    assert (first["paper"]["key"], problem["id"], errata["errata"][0]["id"]) == ("c3", "P12", "ER04")
    assert (claims["claims"][0]["id"], excluded["excluded"]["record_id"]) == ("message-credit", "E003")
    code, out, err = run("show", "c3", "P12", "nothing-like-it")
    assert (code, out) == (3, "")  # every name is looked up before the first one is shown
    assert "nothing is called" in err


def test_show_claims(run: Run, user_file: Path) -> None:
    code, out, err = run("show", "claims")
    assert code == 0
    assert "2026-05-04" in err
    assert "strictly or nearly: 5" in out
    found = json.loads(run("show", "message-credit", "--json")[1])["claims"]
    assert [(c["id"], c["rows"]["strict"]) for c in found] == [("message-credit", ["c3"])]
    assert "boundary" in run("show", "message-credit")[1]
    assert run("show", "mesage-credit")[0] == 3
    with_mine = json.loads(run("show", "orchestrator-credit", "--with", str(user_file), "--json")[1])["claims"][0]
    assert (with_mine["rows"]["unread"], with_mine["status"]) == (["novel2026"], "differs")


def test_show_errata(run: Run) -> None:
    every = json.loads(run("show", "errata", "--json")[1])
    assert every["count"] == len(every["errata"]) > 4
    assert "evidence" in run("show", "ER04")[1]
    assert [e["id"] for e in json.loads(run("show", "malt", "--json")[1])["errata"]] == ["ER04"]
    assert json.loads(run("show", "c3", "--json")[1])["errata"] == []


def test_bib(run: Run, tmp_path: Path, user_file: Path) -> None:
    code, out, _ = run("show", "c3", "c3", "2603.06859", "--to", "bib")
    assert code == 0
    assert out.count("@misc{c3,") == 1
    assert json.loads(run("show", "--to", "bib", "--json")[1])["count"] == 84
    assert run("show", "zzz", "--to", "bib")[0] == 3
    assert "@misc{novel2026," in run("show", "novel2026", "--to", "bib", "--with", str(user_file))[1]
    code, said, _ = run("show", "c3", "-o", str(tmp_path / "some.bib"))
    assert (code, said, (tmp_path / "some.bib").read_text()) == (0, "", out)


def test_a_bad_line_is_named_by_every_reader(run: Run, user_file: Path) -> None:
    user_file.write_text(user_file.read_text() + "{bad\n")
    for words in (("ls",), ("show", "claims"), ("show", "--to", "bib")):
        code, _, err = run(*words, "--with", str(user_file))
        assert code == 2
        assert f"{user_file}:2" in err


def test_check(run: Run, user_file: Path) -> None:
    assert run("check")[0] == 0
    assert json.loads(run("check", str(user_file), "--json")[1])["papers"] == 85
    user_file.write_text(user_file.read_text() * 2 + "{bad\n")
    code, out, _ = run("check", str(user_file), "--json")
    assert code == 4
    assert [p["where"] for p in json.loads(out)["problems"]] == [f"{user_file}:2", f"{user_file}:3"]


def test_check_names_a_paper_that_the_survey_excluded(run: Run, tmp_path: Path, record: dict[str, Any]) -> None:
    source = tmp_path / "mine.jsonl"
    source.write_text(json.dumps(record | {"arxiv_id": "2308.08155"}))
    code, _, err = run("check", str(source))
    assert code == 0
    assert "E003" in err


def test_missing_file(run: Run, tmp_path: Path) -> None:
    assert run("ls", "--with", str(tmp_path / "none"))[0] == 3
    assert run("ls", "--with", str(tmp_path))[0] == 2
    assert run("check", str(tmp_path / "none"))[0] == 3
