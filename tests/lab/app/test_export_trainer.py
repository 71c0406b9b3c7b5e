"""`counterpoint export --to trl` and its kin: files for trainers, one policy each, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from counterpoint import registry
from counterpoint.lab.lm.model import Call, Completion
from counterpoint.lab.tasks.task import task
from counterpoint.lab.team.session import make_model
from team_help import WithIds, record

Ends = Callable[..., tuple[int, str, str]]
DIALS = {"documents": 8, "rows": 2, "parts": 2, "firms": 6}


class ByRole(WithIds):
    """Each role speaks with an adapter of its own."""

    async def complete(self, call: Call) -> Completion:
        done = await super().complete(call)
        assert call.view is not None
        return dataclasses.replace(done, policy=f"adapter {call.view.role}")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs of a task by one model, and two by an adapter for each role."""
    folder = tmp_path_factory.mktemp("trainers") / "live"
    for skill in ("0.5", "1"):
        model = make_model(f"fake:{skill}", task("ledger_hunt").replace(**DIALS))
        for name, wrapped in (("hunt", WithIds(model)), ("roles", ByRole(model))):
            wrapped.name = "fake"  # one model, at two stages
            record(folder, using=wrapped, config=DIALS, model=f"fake:{skill}", trace_id=f"{name}-{skill}")
    return folder


@pytest.fixture
def export(ends_of: Callable[[str], Ends], live: Path) -> Ends:
    run = ends_of("export")
    return lambda *arguments: run(*arguments, "--store", live)


@pytest.mark.parametrize("target", [name for name in registry.ids("trainer") if name != "verl"])
def test_every_target_is_written_by_the_command_and_read_back(export: Ends, tmp_path: Path, target: str) -> None:
    trainer = registry.get("trainer", target)
    suffix = trainer.suffixes[0]
    if "torch" in trainer.write_needs:
        pytest.importorskip("torch")
    named = ("--mechanism", "group_relative") if target == "sft" else ()  # without a credit it is a format of conversations
    code, out, err = export("hunt-0.5", "hunt-1", "--to", target, *named, "-o", f"rows{suffix}")
    assert (code, err) == (0, "")
    assert f"lost      {trainer.lost}" in out
    data = (tmp_path / f"rows{suffix}").read_bytes()
    code, out, _ = export("hunt-0.5", "hunt-1", "--to", target, "--mechanism", "group_relative", "-o", "again/", "--json")
    assert code == 0
    assert {f["policy"] for f in json.loads(out)["files"]} - {""} == {"fake"}
    if trainer.read is not None:
        found = trainer.read(data, suffix)
        assert {r.version for r in found} == {found[0].version}
        better = [r.advantages for r in found if r.trace_id == "hunt-1"]
        assert all((a > 0).all() for a in better)


def test_rows_of_two_policies_are_not_mixed(export: Ends, tmp_path: Path) -> None:
    given = ("roles-0.5", "roles-1", "--to", "rllm", "-o")
    code, _, err = export(*given, "rows.jsonl")
    assert code == 2
    assert "rows of 2 policies in one file: adapter orchestrator" in err
    assert "--policy NAME" in err
    assert export(*given, "rows/")[0] == 0
    files = sorted((tmp_path / "rows").iterdir())
    names = [{t["name"] for line in f.read_text().splitlines() for t in json.loads(line)["trajectories"]} for f in files]
    assert names == [{"adapter orchestrator"}, {"adapter worker"}]
    code, out, _ = export(*given, "one.jsonl", "--policy", "adapter worker")
    assert code == 0
    assert "of adapter worker" in out
    code, _, err = export(*given, "none.jsonl", "--policy", "adapter woker")
    assert (code, "did you mean 'adapter worker'?" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("hunt-1", "--to", "trl"), "-o rows.parquet"),
        (("hunt-1", "--to", "trl", "-o", "rows.txt"), ".parquet or .jsonl"),
        (("hunt-1", "--to", "slime", "-o", "-"), "-o rows.pt"),
        (("--to", "trl", "-o", "x.jsonl"), "no trace was named"),
        (("hunt-1", "--to", "csv", "--policy", "p", "-o", "x/"), "add --to rl, trl"),
        (("hunt-1", "--to", "rl", "--policy", "p", "-o", "x.jsonl"), "filter by the column"),
        (("hunt-1", "--to", "dpo", "--mechanism", "uniform", "-o", "x.jsonl"), "nothing to be compared with"),
        (("hunt-1", "--to", "tinkr", "-o", "x.jsonl"), "did you mean 'tinker'?"),
    ],
)
def test_bad_use_says_what_would_work(export: Ends, arguments: tuple[str, ...], says: str) -> None:
    code, _, err = export(*arguments)
    assert code == 2
    assert says in err
