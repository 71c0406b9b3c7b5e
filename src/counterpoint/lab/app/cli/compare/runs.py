"""Compare training runs on the same tasks, seeds and budget.

Always true: what is not comparable ends with exit code 5 and every reason, unless --ignore-mismatch, which prints the reasons
above the table; runs are only read; the same call prints the same bytes.
"""

from __future__ import annotations

import click

from counterpoint.app.terminal.output import json_option
from counterpoint.errors import InputError
from counterpoint.lab.app.api.compare import compare_groups, groups_of
from counterpoint.lab.app.cli.compare._result import comparison_options, print_comparison


@click.command(
    epilog="\b\nExamples:\n  counterpoint compare runs grpo=runs/a* c3=runs/b* --metric agents\n"
    "  counterpoint compare runs runs/a* runs/b* --json\n\n"
    "Exit codes: 0 compared, 2 a wrong option or an unreadable run, 3 no such run, 5 not comparable."
)
@click.argument("names", nargs=-1, metavar="[LABEL=]RUN...")
@comparison_options
@json_option
def runs(names: tuple[str, ...], metric: str, baseline: str | None, ignore_mismatch: bool, as_json: bool) -> None:
    """Compare training runs: means over held-out tasks, paired differences, intervals.

    RUN is a folder of counterpoint train, a pattern, or a name in ./runs. Runs of one label are its training seeds; without a
    label it is the run's preset. The last evaluation on held-out tasks counts.
    """
    if not names:
        raise InputError("no run is named", fix="counterpoint compare runs runs/a* runs/b*")
    print_comparison(compare_groups(groups_of(names), metric, baseline, ignore_mismatch=ignore_mismatch), as_json=as_json)
