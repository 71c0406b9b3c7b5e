"""`reproduce`: rows as they come, exit codes, names; with claims from outside that hold, miss and crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from counterpoint import registry
from counterpoint.app.cli import cli, main
from lab.bench import claims_made

HIT, MISS, CRASH, EMPTY, WRONG = (f"lab.bench.claims_made:{n}" for n in ("hit", "miss", "crash", "empty", "wrong"))
LACKING, IMPORTING, PARTLY, FREE = (f"lab.bench.claims_made:{n}" for n in ("lacking", "importing", "partly", "free"))
KEYS = ["name", "value", "low", "high", "target", "ok"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["reproduce", *arguments])


def ends(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code and what was printed, by the program's own way out."""
    with pytest.raises(SystemExit) as exit_:
        main(["reproduce", *arguments])
    out = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, out.out, out.err


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_claim_that_holds() -> None:
    result = run(HIT, "--json")
    assert result.exit_code == 0
    rows = lines(result.stdout)
    assert [list(row) for row in rows] == [KEYS, KEYS]
    assert all(row["ok"] is True and row["low"] < row["value"] < row["high"] for row in rows)
    assert rows[0]["target"] == "<= 1"


def test_the_seeds_are_passed_on_and_decide() -> None:
    claims_made.played.clear()
    first, again, other = run(HIT, "--json"), run(HIT, "--json"), run(HIT, "--seed", "7", "--seeds", "3", "--json")
    assert claims_made.played == [(0, 5), (0, 5), (7, 3)]
    assert first.stdout == again.stdout != other.stdout


def test_a_missed_target_ends_with_4(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ends(capsys, MISS)
    assert code == 4
    assert "MISSED" in out
    assert "= 2" in out
    assert "1 of 2 targets met" in err


def test_a_row_without_a_target_is_not_counted_as_met(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ends(capsys, PARTLY)
    assert code == 0
    assert "1 of 1 target met, 2 rows without a target" in err
    marks = {row.split()[0]: row.split()[4] for row in out.splitlines()[2:]}
    assert marks == {"held": "ok", "first": "-", "second": "-"}
    assert [row["ok"] for row in lines(ends(capsys, PARTLY, "--json")[1])] == [True, None, None]
    code, out, err = ends(capsys, FREE)
    assert (code, "ok" in out.split()) == (0, False)
    assert "no target: 2 rows as they are" in err
    assert "met" not in err
    code, _, err = ends(capsys, MISS, PARTLY)
    assert code == 4
    assert "2 of 3 targets met, 2 rows without a target" in err


def test_several_claims_say_whose_row_it_is() -> None:
    result = run(HIT, MISS, HIT, "--json")
    assert result.exit_code == 4
    assert [row["claim"] for row in lines(result.stdout)] == [HIT, HIT, MISS, MISS]
    assert list(lines(result.stdout)[0]) == ["claim", *KEYS]


def test_rows_before_a_crash_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ends(capsys, CRASH)
    assert code == 1
    assert "fine so far" in out
    assert CRASH in err
    assert "KeyError" in err
    assert "--debug" in err


def test_a_claim_without_rows_or_with_other_things_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(capsys, EMPTY)[0] == 1
    code, _, err = ends(capsys, WRONG)
    assert code == 2
    assert "half a row" not in err
    assert "keys" in err


@pytest.mark.parametrize("name", ["blame-who-when", "blame-zero-shot"])
def test_a_claim_without_its_logs_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHO_AND_WHEN", str(tmp_path))
    code, out, err = ends(capsys, name)
    assert code == 5
    assert "ok" not in out.split()
    assert "targets met" not in err
    assert "WHO_AND_WHEN=FOLDER" in err


def test_what_a_claim_lacks_ends_with_5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COUNTERPOINT_MODELS", str(tmp_path))
    code, _, err = ends(capsys, "small-model")
    assert code == 5
    assert "models install smollm2-135m" in err
    assert ends(capsys, LACKING)[0] == 5
    code, _, err = ends(capsys, IMPORTING)
    assert (code, "no_such_package_at_all" in err) == (5, True)


def test_the_other_claims_run_where_one_lacks_something(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ends(capsys, LACKING, HIT)
    assert code == 5
    assert "not run: tiny-1b is not installed" in out
    assert out.count("mean of a uniform") == 2
    assert f"not run, as this machine lacks what they need: {LACKING}" in err
    assert ends(capsys, LACKING, MISS)[0] == 4  # a miss is the graver finding
    rows = lines(ends(capsys, LACKING, HIT, "--json")[1])
    assert [row["claim"] for row in rows] == [LACKING, LACKING, HIT, HIT]
    assert rows[1]["error"]["exit"] == 5


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["no-such-claim"], 3),
        ([HIT, "no-such-claim"], 3),
        (["no_such_module:claim"], 3),
        (["lab.bench.claims_made:hitt"], 2),
        (["all", HIT], 2),
        ([HIT, "all"], 2),
        ([HIT, "--seeds", "0"], 2),
        ([HIT, "--seed", "-1"], 2),
        ([HIT, "--seed", "99999999999999999999999"], 2),
        ([HIT, "--seeds", "x"], 2),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int) -> None:
    claims_made.played.clear()
    assert ends(capsys, *arguments)[0] == code
    assert claims_made.played == []  # nothing runs before every name is known


def test_shipped_claims_by_either_spelling(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = {"always_true": claims_made.hit, "other": claims_made.hit}
    ids, get = registry.ids, registry.get
    monkeypatch.setattr(registry, "ids", lambda kind: list(shipped) if kind == "claim" else ids(kind))
    monkeypatch.setattr(registry, "get", lambda kind, name: shipped[name] if kind == "claim" else get(kind, name))
    monkeypatch.setattr(registry, "summary", lambda kind, name: f"What {name} shows.")
    for name in ("always-true", "always_true", "Always-True"):
        assert ends(capsys, name, "--json")[0] == 0
    assert lines(ends(capsys, "--json")[1])[0] == {"name": "always-true", "summary": "What always_true shows."}
    assert "always-true" in ends(capsys)[1]
    assert [row["claim"] for row in lines(ends(capsys, "all", "--json")[1])] == ["always-true"] * 2 + ["other"] * 2
    code, _, err = ends(capsys, "alway-true")
    assert code == 3
    assert "did you mean 'always-true'?" in err


def test_the_list_is_what_is_shipped() -> None:
    names = [row["name"] for row in lines(run("--json").stdout)]
    assert names == [name.replace("_", "-") for name in registry.ids("claim")]
