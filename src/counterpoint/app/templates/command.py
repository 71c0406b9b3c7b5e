"""Say how many tokens each agent of a trace wrote.

Always true: one line per agent, the largest number first; what a trace does not say counts as nothing.
"""

from __future__ import annotations

import json
from collections import Counter

import click

import counterpoint as cpt


@click.command(epilog="\b\nExamples:\n  counterpoint plugin_name run.trace.json\n  counterpoint plugin_name run-1 --json")
@click.argument("trace")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def plugin_name(trace: str, as_json: bool) -> None:
    """Say how many tokens each agent of TRACE wrote."""
    written: Counter[str] = Counter()
    for event in cpt.load(trace).events:
        written[event.agent] += event.tokens_out or 0
    if as_json:
        click.echo(json.dumps(dict(written.most_common())))
        return
    for agent, tokens in written.most_common():
        click.echo(f"{tokens:8,}  {agent}")


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a command, and prints what was counted by hand."""

import json
from pathlib import Path

from click.testing import CliRunner

import counterpoint as cpt

# from here import plugin_name
from counterpoint.testing import check_command
from counterpoint.trace.example import rollouts


def test_it_keeps_the_contract() -> None:
    check_command(plugin_name)


def test_tokens_by_hand(tmp_path: Path) -> None:
    cpt.save(rollouts()[0], tmp_path / "run.trace.json")
    printed = CliRunner().invoke(plugin_name, [str(tmp_path / "run.trace.json"), "--json"])
    assert json.loads(printed.output) == {"lead": 18, "w1": 11, "w2": 8, "w3": 8}
