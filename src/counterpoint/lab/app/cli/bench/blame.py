"""How often `counterpoint blame` is right on labelled runs in a folder.

Always true: nothing is stored, learned or changed; runs without a label of a step or an agent are counted and left out.
"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.display import counted, tracked
from counterpoint.errors import NotIdentified


@click.command(
    epilog="\b\nExamples:\n  counterpoint bench blame examples/logs/who_and_when\n  counterpoint bench blame labelled --json\n\n"
    "Exit codes: 0 judged, 2 nothing could be read, 3 no such folder, 5 no run has a label."
)
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def blame(folder: Path, as_json: bool) -> None:
    """Rank the steps of labelled failed runs, and show how often the first, one of three, a neighbour and the agent are right.

    FOLDER has files of Who&When (Pro), AgentRx, TraceElephant, TRAIL, or others whose reader keeps labels of steps. Where a set
    labels several steps of a run, any of them counts. The ranker never reads the labels; the right answer is not given to it.
    """
    from counterpoint.app.discover import read_logs
    from counterpoint.lab.bench.blame_sets import run_hits, scores

    traces = list(read_logs(folder))
    found = [hits for trace in tracked(traces, "runs") if (hits := run_hits(trace)) is not None]
    if not found:
        what = f"none of {counted(len(traces), 'run')} has a label of a step or an agent"
        raise NotIdentified(what, "files of Who&When, AgentRx, TraceElephant or TRAIL with their annotations", where=str(folder))
    rows = scores(found)
    if as_json:
        for row in rows:
            emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(row)})
    else:
        cells = [
            (r.source, r.measure, r.runs, f"{r.share:.1%}", "" if r.low is None else f"{r.low:.1%} to {r.high:.1%}") for r in rows
        ]
        click.echo(table(("labels of", "right", "runs", "share", "95 %"), cells, right=(2, 3)))
    left = len(traces) - len(found)
    note(f"{counted(left, 'run')} without a label of a step or an agent left out" if left else "", quiet=as_json or not left)
