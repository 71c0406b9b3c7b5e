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
