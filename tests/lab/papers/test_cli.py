"""`counterpoint corpus ...` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterpoint import registry

Run = Callable[..., tuple[int, str, str]]


def test_help_line_is_short() -> None:
    assert 10 < len(registry.summary("command", "corpus")) < 70


@pytest.mark.parametrize("name", ["ls", "show", "stats", "claims", "errata", "add", "bib", "check"])
def test_each_help_has_json_and_two_examples(run: Run, name: str) -> None:
    code, out, _ = run(name, "--help")
    assert code == 0
    assert "--json" in out
    assert len([line for line in out.splitlines() if line.startswith("    counterpoint corpus")]) == 2


def test_ls_the_question_of_the_readme(run: Run) -> None:
    code, out, err = run("ls", "--reward", "R7", "--credit", "orchestrator")
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
    assert run("ls", "--reward", "orchestration", "--credit", "ORCHESTRATOR")[1] == out


def test_ls_json_has_all_fields(run: Run) -> None:
    _, out, _ = run("ls", "--text", "puppeteer", "--json")
    found = json.loads(out)
    assert (found["schema"], found["count"]) == (1, 1)
    assert found["papers"][0]["family"] == "R7"
    assert len(found["papers"][0]) == 19


def test_ls_nothing_found_is_an_answer(run: Run) -> None:
    assert run("ls", "--reward", "R5")[:2] == (0, "no paper fits\n")
    code, out, _ = run("ls", "--reward", "R5", "--json")
    assert (code, json.loads(out)) == (0, {"schema": 1, "count": 0, "papers": []})


def test_ls_bare_core_and_rl(run: Run) -> None:
    core = json.loads(run("ls", "--core", "--json")[1])
    assert core["count"] == 54
    assert json.loads(run("ls", "--core", "case", "--rl", "--json")[1])["papers"][0]["key"] == "kimi-k2-5"


@pytest.mark.parametrize("option", ["--reward", "--credit", "--category", "--form", "--scenario", "--core", "--rl", "--year"])
def test_ls_unknown_value(run: Run, option: str) -> None:
    code, out, err = run("ls", option, "zzz")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "fix" in err


def test_ls_excluded(run: Run) -> None:
    assert json.loads(run("ls", "--excluded", "--json")[1])["count"] == 32
    assert run("ls", "--excluded", "--reward", "R1")[0] == 2


def test_show(run: Run) -> None:
    code, out, _ = run("show", "2505.19591")
    assert code == 0
    assert "ER02" in out
    assert run("show", "E003", "--json")[0] == 0
    code, out, err = run("show", "pupeteer")
    assert (code, out) == (3, "")
    assert "puppeteer" in err
    code, out, _ = run("show", "pupeteer", "--json")
    assert (code, json.loads(out)["error"]["exit"]) == (3, 3)


def test_stats_text_and_json(run: Run) -> None:
    _, out, _ = run("stats")
    assert "hierarchical              0      2        0             3     5     3" in out
    numbers = json.loads(run("stats", "--json")[1])
    assert numbers["headline"] == {"retained": 84, "excluded": 32, "audited": 116}
    assert numbers["reward_type_x_credit_granularity"]["orchestration"]["orchestrator"] == 6


def test_stats_with_a_user_file(run: Run, user_file: Path) -> None:
    numbers = json.loads(run("stats", "--with", str(user_file), "--json")[1])
    assert numbers["headline"]["retained"] == 85
    assert numbers["credit_granularity"]["orchestrator"] == 9


def test_claims(run: Run, user_file: Path) -> None:
    code, out, err = run("claims")
    assert code == 0
    assert "2026-05-04" in err
    assert "strictly or nearly: 5" in out
    found = json.loads(run("claims", "message-credit", "--json")[1])["claims"]
    assert [(c["id"], c["rows"]["strict"]) for c in found] == [("message-credit", ["c3"])]
    assert run("claims", "mesage-credit")[0] == 3
    with_mine = json.loads(run("claims", "orchestrator-credit", "--with", str(user_file), "--json")[1])["claims"][0]
    assert (with_mine["rows"]["unread"], with_mine["status"]) == (["novel2026"], "differs")


def test_errata(run: Run) -> None:
    assert json.loads(run("errata", "malt", "--json")[1])["errata"][0]["id"] == "ER04"
    code, out, _ = run("errata", "c3")
    assert (code, out) == (0, "no erratum touches these\n")
    assert run("errata", "zzz")[0] == 3


def test_bib(run: Run) -> None:
    code, out, _ = run("bib", "c3", "c3", "2603.06859")
    assert code == 0
    assert out.count("@misc{c3,") == 1
    assert json.loads(run("bib", "--json")[1])["count"] == 84
    assert run("bib", "zzz")[0] == 3


def test_add_then_find(run: Run, tmp_path: Path, record: dict[str, Any]) -> None:
    source, target = tmp_path / "r.json", tmp_path / "mine.jsonl"
    source.write_text(json.dumps(record))
    assert run("add", "--file", str(source), "--to", str(target), "--dry-run")[0] == 0
    assert not target.exists()
    code, out, _ = run("add", "--file", str(source), "--to", str(target), "--set", "scenario=coding")
    assert code == 0
    assert out.startswith("added novel2026")
    assert run("add", "--file", str(source), "--to", str(target))[0] == 2
    found = json.loads(run("ls", "--with", str(target), "--text", "novel team", "--json")[1])
    assert found["papers"][0]["scenario"] == "coding"
    assert "@misc{novel2026," in run("bib", "novel2026", "--with", str(target))[1]


def test_add_from_options_alone(run: Run, tmp_path: Path, record: dict[str, Any]) -> None:
    pairs = [part for name, value in record.items() for part in ("--set", f"{name}={value}")]
    code, out, _ = run("add", *pairs, "--to", str(tmp_path / "m.jsonl"), "--json")
    assert (code, json.loads(out)["paper"]["year"]) == (0, 2026)


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--set", "nonsense"),
        ("--set", "year=soon"),
        ("--set", "key=a", "--set", "key=b"),
        ("--set", "key=a"),
    ],
)
def test_add_wrong(run: Run, tmp_path: Path, args: tuple[str, ...]) -> None:
    code, out, err = run("add", *args, "--to", str(tmp_path / "m.jsonl"))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def test_add_says_when_the_survey_left_it_out(run: Run, tmp_path: Path, record: dict[str, Any]) -> None:
    source = tmp_path / "r.json"
    source.write_text(json.dumps(record | {"arxiv_id": "2308.08155"}))
    code, _, err = run("add", "--file", str(source), "--to", str(tmp_path / "m.jsonl"))
    assert code == 0
    assert "E003" in err


def test_a_bad_line_is_named_by_every_reader(run: Run, user_file: Path) -> None:
    user_file.write_text(user_file.read_text() + "{bad\n")
    for name in ("ls", "stats", "claims", "bib"):
        code, _, err = run(name, "--with", str(user_file))
        assert code == 2
        assert f"{user_file}:2" in err


def test_check(run: Run, user_file: Path) -> None:
    assert run("check")[0] == 0
    assert json.loads(run("check", str(user_file), "--json")[1])["papers"] == 85
    user_file.write_text(user_file.read_text() * 2 + "{bad\n")
    code, out, _ = run("check", str(user_file), "--json")
    assert code == 4
    assert [p["where"] for p in json.loads(out)["problems"]] == [f"{user_file}:2", f"{user_file}:3"]


def test_missing_file(run: Run, tmp_path: Path) -> None:
    assert run("ls", "--with", str(tmp_path / "none"))[0] == 3
    assert run("ls", "--with", str(tmp_path))[0] == 2
    assert run("add", "--file", str(tmp_path / "none"))[0] == 3
