"""List the presets: published methods, and how faithful each is.

Always true: every preset states its source; a method without a preset is listed with the reason.
"""

from __future__ import annotations

import click

import counterpoint.registry as registry
from counterpoint.app.terminal.output import emit, json_option, note, table


@click.command(epilog="\b\nExamples:\n  counterpoint train presets\n  counterpoint train presets --json")
@json_option
def presets(as_json: bool) -> None:
    """List the presets of `train net`, `train log` and `train lm`, and the methods that have none."""
    from counterpoint.lab.train.not_presets import NOT_PRESETS
    from counterpoint.lab.train.preset import GRADES, LEARNERS, REGIMES, TRAINS, named_preset

    rows = [(name, named_preset(name)) for name in registry.ids("preset")]
    if as_json:
        for name, p in rows:
            emit({"preset": name, "source": p.source, "grade": p.grade, "trains": list(p.trains), "unit": p.unit,
                  "regime": p.regime, "learns": list(p.learns), "reward": list(p.reward), "credit": p.credit_name,
                  "loss": p.loss_name, "needs": list(p.needs), "departures": p.all_departures, "guessed": list(p.guessed),
                  "renames": p.renames, "as_released": dict(p.as_released), "knob": dict(p.knob)})  # fmt: skip
        for method in NOT_PRESETS:
            emit({"no_preset": method.name, **{k: v for k, v in method._asdict().items() if k != "name"}})
        return
    cells = [(name, ",".join(p.trains) if len(p.trains) < 5 else "O1-O5", p.unit, p.regime, "+".join(p.learns), p.credit_name,
              p.loss_name, p.grade, p.full_source) for name, p in rows]  # fmt: skip
    click.echo(table(("preset", "trains", "unit", "regime", "learns", "credit", "loss", "grade", "source"), cells))
    click.echo()
    click.echo(table(("no preset", "because", "source"), [(m.name, m.why, m.source) for m in NOT_PRESETS]))
    for what, words in (("trains", TRAINS), ("regime", REGIMES), ("learns", LEARNERS), ("grade", GRADES)):
        note(f"{what}: " + ", ".join(f"{name} {meaning}" for name, meaning in words.items()))
