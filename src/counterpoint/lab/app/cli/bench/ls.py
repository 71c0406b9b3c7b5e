"""List the suites of the benchmark, or the cells of one.

Always true: nothing is played or written.
"""

from __future__ import annotations

import click

from counterpoint.app.terminal.output import emit, json_option, table
from counterpoint.lab.app.cli.bench._results import epilog


@click.command(epilog=epilog("ls", "ls core --json"))
@click.argument("suite_name", metavar="[SUITE]", required=False)
@json_option
def ls(suite_name: str | None, as_json: bool) -> None:
    """List the suites, or the cells of one."""
    from counterpoint.lab.bench.scorecard.cells import SUITES, package_suites, suite

    if suite_name is None:
        every = SUITES | dict.fromkeys(package_suites(), "worlds of a package, in its own protocol")
        rows = [{"suite": name, "cells": len(suite(name)), "summary": text} for name, text in every.items()]
        if as_json:
            for row in rows:
                emit(row)
        else:
            click.echo(table(("suite", "cells", "summary"), [tuple(r.values()) for r in rows], right=(1,)))
        return
    cells = suite(suite_name)
    if as_json:
        for cell in cells:
            emit(cell.as_dict())
    else:
        rows_ = [(c.id, c.kind, f"{c.band:,}", c.attack or "-", ", ".join(f"{k}={v}" for k, v in c.set.items())) for c in cells]
        click.echo(table(("cell", "kind", "steps", "attack", "parameters"), rows_, right=(2,)))
