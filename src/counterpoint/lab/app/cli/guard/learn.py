"""Learn a stop rule from old sessions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import click

from counterpoint.app.terminal.options import output_option, overrides, seed_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option
from counterpoint.errors import InputError, did_you_mean
from counterpoint.guard.sessions import sessions_in


@dataclass(frozen=True)
class _Settings:
    """What `--set` overrides."""

    round_minutes: float = 5.0
    """The length of a round."""
    cost: float = 0.02
    """The cost of a round, as a share of the work."""


@click.command(
    epilog="\b\nExamples:\n  counterpoint guard learn ~/.claude/projects -o stop.npz\n"
    "  counterpoint guard learn LOGS --set round_minutes=10 --set cost=0.05 -o stop.npz"
)
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@output_option("The file for the rule.", required=True)
@click.option(
    "--set", "pairs", multiple=True, metavar="NAME=VALUE",
    help="Override round_minutes (5, the length of a round) or cost (0.02, the cost of a round as a share of the work).",
)  # fmt: skip
@seed_option("Seed of the cross-fitting.")
@json_option
def learn(logs: tuple[Path, ...], output: Path, pairs: tuple[str, ...], seed: int, as_json: bool) -> None:
    """Learn from old sessions when more work stopped paying off; the rule advises, and refuses nothing."""
    from counterpoint.lab.train.stopping.sessions import rule_of_sessions

    settings = _settings(pairs)
    if output.exists():
        raise InputError("exists already", where=str(output), fix="choose another file with -o")
    sessions = sessions_in(logs)
    rule = rule_of_sessions(sessions, minutes=settings.round_minutes, cost=settings.cost, seed=seed)
    output.parent.mkdir(parents=True, exist_ok=True)
    rule.save(output)
    about = {"sessions": len(sessions), "stretches": rule.about["traces"], "kind": rule.kind, "trainer": rule.about["trainer"]}
    if as_json:
        emit({"schema": SCHEMA_VERSION, "rule": str(output), **about})
        return
    source = f"{about['stretches']:,} stretches of work in {len(sessions):,} sessions"
    click.echo(f"{output}: learned from {source} ({about['trainer']})")
    click.echo(f'to use it: [advice] with rule = "{output}" and round_minutes = {settings.round_minutes:g} in a limits file')


def _settings(pairs: tuple[str, ...]) -> _Settings:
    changes = overrides(_Settings(), pairs)
    for name in changes:
        if not hasattr(_Settings, name):
            raise InputError(f"no setting named {name!r}", where="--set", fix=did_you_mean(name, ("round_minutes", "cost")))
    settings = replace(_Settings(), **changes)
    if not settings.round_minutes > 0 or not 0 <= settings.cost <= 1:
        fix = "--set round_minutes=5 --set cost=0.02"
        raise InputError("round_minutes is above 0, and cost from 0 to 1", where="--set", fix=fix)
    return settings
