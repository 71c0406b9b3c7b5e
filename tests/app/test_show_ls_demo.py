"""`demo`, `ls`, `show`, `schema`, `commands`: what they print, and that every number leads to its events."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import counterpoint
from counterpoint.app.cli import cli
from counterpoint.app.samples import command_name
from counterpoint.audits.authority import authority
from counterpoint.audits.injection import injections
from counterpoint.errors import InputError, NotFound
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.critical_path import critical_path
from counterpoint.trace.team import TraceTeam

SAMPLES = ["assistant", "build", "busy-team", "code-team", "crawl", "mailroom", "panel", "research-team"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("demo") / "here"
    run("demo", "--quick", "-o", str(folder), "--json")
    return str(folder)


def test_demo_writes_a_valid_trace_of_each_topology_a_hack_and_an_injection(tmp_path: Path) -> None:
    rows = lines(run("demo", "--quick", "-o", str(tmp_path / "d"), "--json"))
    assert sorted(r["trace"] for r in rows) == SAMPLES
    assert len({r["topology"] for r in rows}) == 6
    assert all(r["errors"] == 0 and r["warnings"] == 0 for r in rows)
    assert {r["trace"]: r["hacks"] for r in rows if r["hacks"]} == {"busy-team": ["pseudo_parallelism", "communication_padding"]}
    mail = counterpoint.load("mailroom", store=tmp_path / "d")
    assert [(one.tool, one.status) for one in injections(mail)] == [("mail.read", "obeyed")]
    assert [sink.what for sink in authority(mail) if sink.status == "violation"] == ["tool_call files.read path", "tool_call mail.send to"]
    quiet = [counterpoint.load(name, store=tmp_path / "d") for name in SAMPLES if name not in ("busy-team", "mailroom")]
    assert [s.event for trace in quiet for s in authority(trace) if s.status == "violation"] == []  # what a guard stopped is none
    assert {one.status for trace in quiet for one in injections(trace)} == {"blocked"}
    files = sorted((tmp_path / "d" / "samples").glob("*.json"))
    assert [f.name.removesuffix(".trace.json") for f in files] == SAMPLES
    assert all(counterpoint.problems(counterpoint.load(f)) == [] for f in files)


def test_demo_again_changes_nothing_and_another_seed_does(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    run("demo", "--quick", "-o", str(folder))
    before = {f: f.read_bytes() for f in (folder / "samples").iterdir()}
    run("demo", "--quick", "-o", str(folder))
    assert {f: f.read_bytes() for f in (folder / "samples").iterdir()} == before
    run("demo", "--quick", "-o", str(folder), "--seed", "1")
    assert {f: f.read_bytes() for f in (folder / "samples").iterdir()} != before
    assert len(lines(run("ls", "--store", str(folder), "--json"))) == len(SAMPLES)


def test_demo_can_be_tried_dry(tmp_path: Path) -> None:
    assert "Would write" in run("demo", "--quick", "-o", str(tmp_path / "d"), "--dry-run")
    assert not (tmp_path / "d").exists()


def test_demo_refuses_a_folder_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="not a store"):
        CliRunner().invoke(cli, ["demo", "--quick", "-o", str(tmp_path / "mine")], catch_exceptions=False)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_ls_lists_and_filters(store: str) -> None:
    names = lambda *query: sorted(r["id"] for r in lines(run("ls", *query, "--store", store, "--json")))  # noqa: E731
    assert names() == SAMPLES
    assert names("topology:swarm") == ["crawl"]
    assert names("agents>10", "events<500") == ["build", "research-team"]
    assert names("tokens>=0.1m") == ["build", "code-team", "crawl", "research-team"]
    assert names("team") == ["busy-team", "code-team", "research-team"]
    assert names("open") == []
    assert [r["id"] for r in lines(run("ls", "--sort", "events", "--newest", "1", "--store", store, "--json"))] == ["crawl"]
    assert "research-team" in run("ls", "--store", store)


@pytest.mark.parametrize("query", ["topologi:swarm", "agents>many", "'unclosed"])
def test_a_query_that_means_nothing_is_an_error(query: str, store: str) -> None:
    with pytest.raises(InputError):
        CliRunner().invoke(cli, ["ls", query, "--store", store], catch_exceptions=False)


def test_show_prints_the_team_and_the_path(store: str) -> None:
    card = json.loads(run("show", "research-team", "--store", store, "--json"))
    trace = counterpoint.load("research-team", store=store)
    path = critical_path(TraceTeam(trace))
    assert path is not None
    assert card["critical_path"]["length"] == path.length
    assert card["critical_path"]["events"] == [trace.events[i].id for i in path.events]
    assert sum(row["events"] for row in card["team"]) == len(trace.events)
    assert sum(row["tokens"] for row in card["team"]) == trace.costs["tokens"]
    text = run("show", "research-team", "--store", store, "--events")
    assert "orchestrator" in text
    assert re.search(r"events: orchestrator [\d.]+ \w+ > ", text)
    assert "e1 > " in run("show", "research-team", "--store", store, "--ids")


def test_show_takes_a_prefix_and_one_event(store: str) -> None:
    shown = json.loads(run("show", "resea", "e30", "--store", store, "--json"))
    trace = counterpoint.load("research-team", store=store)
    assert shown["event"]["id"] == "e30"
    assert shown["caused_by"] == [{"event": e.src, "edge": e.type} for e in trace.edges if e.dst == "e30"]
    assert shown["cone"] == int(trace.graph.descendants(trace.index["e30"]).sum()) - 1
    assert shown["text"] == trace.text(trace.events[trace.index["e30"]])
    assert "depend on it" in run("show", "resea", "e30", "--store", store)


def test_show_an_event_that_is_not_there(store: str) -> None:
    with pytest.raises(NotFound, match="did you mean 'e300'"):
        CliRunner().invoke(cli, ["show", "research-team", "e300000", "--store", store], catch_exceptions=False)


def test_what_a_trace_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J"
    events = [Event(id="a" + evil, t=0, type="message", agent="x" + evil, role=evil, content_ref="r"), Event(id="b", t=1, type="message", agent="y")]
    trace = Trace(trace_id=evil, task_id=evil, events=events, edges=[Edge("a" + evil, "b", "causal")], rewards={evil: 1}, contents={"r": evil})
    path = tmp_path / "evil.jsonl"
    counterpoint.save(trace, path)
    for arguments in (["show", str(path), "--events"], ["show", str(path), "a" + evil], ["top", str(path)], ["store", "check", str(path)]):
        assert "\x1b" not in CliRunner().invoke(cli, arguments).output
    assert "\x1b" not in CliRunner().invoke(cli, ["audit", str(path)]).output


@pytest.mark.parametrize("command", ["show", "top", "audit"])
def test_what_is_no_graph_is_named_with_its_file(command: str, tmp_path: Path) -> None:
    events = [Event(id=n, t=0, type="message", agent="x") for n in "ab"]
    trace = Trace(trace_id="t", task_id="q", events=events, edges=[Edge("a", "b", "causal"), Edge("b", "a", "causal")])
    path = counterpoint.save(trace, tmp_path / "loop.trace.json")
    with pytest.raises(InputError, match=r"loop\.trace\.json: edges: the edges form a cycle"):
        CliRunner().invoke(cli, [command, str(path)], catch_exceptions=False)


def test_schema_is_json() -> None:
    assert json.loads(run("store", "schema")) == json.loads(run("store", "schema", "--json"))


def test_commands_describe_themselves() -> None:
    described = {c["name"]: c for c in json.loads(run("commands", "--json"))["commands"]}
    assert {"ls", "show", "top", "audit", "sql", "export", "demo", "store", "commands", "completion"} <= described.keys()
    inside = {name: {c["name"]: c for c in described[name]["commands"]} for name in ("store", "notes")}
    assert any("--json" in p["flags"] for p in inside["store"]["check"]["parameters"])
    assert {"add", "score", "ls", "remove", "dataset"} <= inside["notes"].keys()
    assert {"save", "drop"} <= {c["name"] for c in inside["notes"]["dataset"]["commands"]}
    assert {"ls", "show", "check"} == {c["name"] for c in described["papers"]["commands"]}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_covers_both_names(shell: str) -> None:
    code = run("completion", shell)
    assert "_COUNTERPOINT_COMPLETE" in code
    assert "_CPT_COMPLETE" in code


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_words_with_a_colon_by_both_names(store: str) -> None:
    run("notes", "dataset", "save", "good", "id:team", "--store", store)
    asks = 'COMP_LINE="$1"; COMP_POINT=${#1}; read -ra COMP_WORDS <<< "$1"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
    for name, line, found in (("cpt", "show in:g", "good"), ("counterpoint", "show rese", "research-team")):
        command = Path(sys.executable).with_name(name)
        if not command.is_file():
            pytest.skip("the package is not installed here, only on the path")
        script = f'{run("completion", "bash")}\n{asks} _{name}_colons "$2"; echo "${{COMPREPLY[*]}}"'
        told = ["bash", "-c", script, "bash", f"{name} {line}", str(command)]
        done = subprocess.run(told, env={**os.environ, "COUNTERPOINT_STORE": store}, capture_output=True, text=True)
        assert done.stdout.split() == [found], done.stderr


def test_help_fits_a_screen_and_names_every_command() -> None:
    text = run("--help")
    assert len(text.splitlines()) <= 52
    for name in ("ls", "show", "top", "audit", "sql", "export", "demo", "store", "notes", "guard", "train"):
        assert f"\n  {name} " in text
    assert "\n  completion " not in text  # hidden, and there


@pytest.mark.parametrize(
    ("called", "python", "said"),
    [
        ("bin/counterpoint", None, "bin/counterpoint"),
        ("src/counterpoint/__main__.py", None, f"{sys.executable} -m counterpoint"),
        ("src/counterpoint/__main__.py", sys.executable, "python -m counterpoint"),
    ],
)
def test_the_next_commands_can_be_typed_as_they_stand(monkeypatch: pytest.MonkeyPatch, called: str, python: str | None, said: str) -> None:
    monkeypatch.setattr("shutil.which", {"python": python}.get)
    monkeypatch.setattr("sys.argv", [called])
    assert command_name() == said
