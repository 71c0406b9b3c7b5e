"""plugin_name keeps the contract of a command, and prints what was counted by hand."""

import json
from pathlib import Path

from click.testing import CliRunner

import counterpoint as cpt
from counterpoint.app.templates.command import plugin_name
from counterpoint.testing import check_command
from counterpoint.trace.example import rollouts


def test_it_keeps_the_contract() -> None:
    check_command(plugin_name)


def test_tokens_by_hand(tmp_path: Path) -> None:
    cpt.save(rollouts()[0], tmp_path / "run.trace.json")
    printed = CliRunner().invoke(plugin_name, [str(tmp_path / "run.trace.json"), "--json"])
    assert json.loads(printed.output) == {"lead": 18, "w1": 11, "w2": 8, "w3": 8}
