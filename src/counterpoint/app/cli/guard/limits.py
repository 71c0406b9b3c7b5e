"""Print a limits file with every setting, to be edited."""

from __future__ import annotations

import click

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option


@click.command(epilog="\b\nExamples:\n  counterpoint guard limits > guard.toml\n  counterpoint guard limits --json")
@json_option
def limits(as_json: bool) -> None:
    """Print a limits file with every setting, to be edited."""
    from counterpoint.guard.limits import ALLOWED, COUNTED, DEFAULTS, SCOPES

    if as_json:
        emit({"schema": SCHEMA_VERSION, **DEFAULTS, "allow": list(ALLOWED), "warn_at": 0.8, "counted": COUNTED})
        return
    lines = ["# Limits of counterpoint guard. A line without a # holds.", "", "warn_at = 0.8    # warn at this share of a limit"]
    lines += [f"allow = {list(ALLOWED)}".replace("'", '"'), '# prices = "prices.toml"', ""]
    about = {"session": "# over the whole session", "prompt": "# since a person last said something"}
    examples = {"calls": 2000, "tokens": 50_000_000, "dollars": 25.0, "minutes": 240}
    for scope, names in SCOPES.items():
        lines += [f"[{scope}]    {about[scope]}"]
        for name in names:
            has = DEFAULTS[scope].get(name)
            text = f"{name} = {examples.get(name, 20) if has is None else has}"
            lines += [f"{'# ' if has is None else ''}{text:24}# {COUNTED[name]}"]
        lines += [""]
    lines += ["# [advice]    # a warning, never a refusal"]
    lines += ["# quiet_minutes = 40      # nothing was changed or completed for so long"]
    lines += ['# rule = "stop.npz"       # a stop rule: counterpoint guard learn LOGS -o stop.npz']
    click.echo("\n".join(lines))
