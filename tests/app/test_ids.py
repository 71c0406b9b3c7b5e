"""An id that `ls` prints opens in every command, also one with a slash, and also where a folder or file has its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import counterpoint
from counterpoint.app.cli.view import _opened
from counterpoint.app.load_save import names_file
from counterpoint.errors import NotFound
from counterpoint.store.handles import handle
from counterpoint.testing import synthetic_trace

HAND, OTHER = "hand-crafted/7/a b.json", "algorithm-generated/7"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store of two such traces, and a folder that is called like one of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COUNTERPOINT_STORE", raising=False)
    with counterpoint.Store(tmp_path / "traces") as store:
        store.add_many([synthetic_trace(3, 19, "debate", 4, trace_id=name) for name in (HAND, OTHER)])
    (tmp_path / OTHER).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("id_", [HAND, OTHER, "algorithm-gen", "hand-crafted/7/a"])
@pytest.mark.parametrize(
    "command",
    ["show {}", "top {} --json", "audit {} --json", "credit {} --json", "compare traces {} {}", "store check {}", "export {} -o out.json",
     "export {} --to html -o out.html", "export {} --to perfetto -o out.perfetto.json"],
)  # fmt: skip
def test_an_id_with_a_slash_opens(command: str, id_: str, here: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run(*[word.replace("{}", id_) for word in command.split()])
    assert code == 0, out + err


def test_ls_sql_and_the_page_agree_on_the_id(here: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    assert [json.loads(row)["id"] for row in run("ls", "--json")[1].splitlines()] == [HAND, OTHER]
    query = f"select count(*) as n from events where trace_id = '{HAND}'"
    assert run("sql", query)[1].split() == ["n", str(len(synthetic_trace(3, 19, "debate", 4).events))]
    opened = _opened(HAND, None, here / "runs")
    assert (opened.trace, opened.path) == (HAND, "/t/hand-crafted%2F7%2Fa%20b.json")


def test_the_short_name_that_ls_shows_is_found_and_removed_by_it(here: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    alike = [f"wide_verify.0d9cf9-{n}-reference" for n in (1, 2)]
    with counterpoint.Store(here / "traces") as store:
        store.add_many([synthetic_trace(3, 19, "debate", 4, trace_id=name) for name in alike])
    short = handle(alike[0])
    assert short in run("ls")[1]
    assert [json.loads(row)["id"] for row in run("ls", short, "--json")[1].splitlines()] == [alike[0]]
    assert run("store", "rm", short[:5], "--yes")[0] != 0
    assert run("store", "rm", short, "--yes")[0] == 0
    assert [json.loads(row)["id"] for row in run("ls", "--json")[1].splitlines()] == [HAND, OTHER, alike[1]]


def test_which_of_a_file_and_a_trace_is_meant(here: Path) -> None:
    saved = counterpoint.save(synthetic_trace(3, 19, "debate", 4, trace_id="saved"), here / "mine.json")
    assert names_file(saved)
    assert names_file("mine.json")
    assert names_file("./mine.json")
    assert not names_file(OTHER)
    assert not names_file("never-heard-of")
    assert names_file("never/heard/of")
    (here / "algorithm-generated" / "8").write_bytes(saved.read_bytes())
    assert counterpoint.load("algorithm-generated/8").trace_id == "saved"
    with pytest.raises((NotFound, FileNotFoundError)):
        counterpoint.load("never/heard/of")


OWN = "624cbf11-6a41-4692-af9c-36b3e5ca3130"


@pytest.mark.parametrize("word", [OWN, OWN[:8], OWN[:13]])
@pytest.mark.parametrize("command", ["show {}", "top {} --json", "audit {} --json", "ls {} --json", "store check {}"])
def test_the_sources_own_id_opens(word: str, command: str, here: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    """Where a trace is called after its set or its importer too."""
    with counterpoint.Store(here / "traces") as store:
        store.add(synthetic_trace(3, 19, "debate", 4, trace_id=f"hand-crafted/{OWN}"))
    code, out, err = run(*[part.replace("{}", word) for part in command.split()])
    assert code == 0, out + err
    assert counterpoint.load(word, store=here / "traces").trace_id == f"hand-crafted/{OWN}"


def test_a_beginning_of_several_own_ids_names_them(here: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    names = [f"hand-crafted/{OWN}", f"algorithm-generated/{OWN}", f"codex-{OWN}"]
    with counterpoint.Store(here / "traces") as store:
        store.add_many([synthetic_trace(3, 19, "debate", 4, trace_id=name) for name in names])
    code, out, err = run("show", OWN[:8])
    assert code == 2
    assert all(name in out + err for name in names)
    with counterpoint.Store(here / "traces", create=False) as store, pytest.raises(NotFound):
        store.find("24cbf11")  # the middle of a word is nobody's id
