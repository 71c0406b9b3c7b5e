"""Print the standings of a race that was run before.

Always true: nothing is run; the numbers are those of the rows.
"""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.terminal.options import output_option
from counterpoint.app.terminal.output import json_option, note
from counterpoint.display import counted
from counterpoint.errors import InputError
from counterpoint.lab.app.cli._options import names_of
from counterpoint.lab.app.cli.compare._race import HOME, print_race


@click.command(
    epilog="\b\nExamples:\n  counterpoint compare standings released --world wide_verify\n"
    "  counterpoint compare standings runs/methods grpo c3 -o standings.md\n\n"
    "Exit codes: 0 printed or written, 2 a wrong option or unreadable rows, 3 no such race."
)
@click.argument("race", required=False, metavar="[RACE]")
@click.argument("names", nargs=-1, metavar="[METHOD]...")
@click.option("--world", metavar="NAME[,NAME]", help="These worlds only.")
@output_option("Write the tables as FILE.md, or the rows as FILE.jsonl.")
@json_option
def standings(race: str | None, names: tuple[str, ...], world: str | None, output: Path | None, as_json: bool) -> None:
    """Print the ranks of methods from the rows of `counterpoint compare methods`.

    RACE is its folder (default runs/methods), a file of rows, or `released`: the rows that come with Counterpoint.
    """
    from counterpoint.files import put
    from counterpoint.lab.app.race_page import markdown
    from counterpoint.lab.bench.race.result import result_of
    from counterpoint.lab.bench.race.rows import race_path, write_rows

    result = result_of(race_path(race) if race else HOME)
    if output is None:
        return print_race(result.only(names, names_of(world)), as_json=as_json)
    if output.suffix not in (".md", ".jsonl"):
        what = f"cannot write {output.suffix or 'a file without a suffix'!r}"
        raise InputError(what, where=str(output), fix="name it FILE.md or FILE.jsonl")
    if output.suffix == ".md":
        put([(output, markdown(result).encode())])
    else:
        write_rows(output, result.head, result.rows)
    return note(f"wrote {output}: {counted(len(result.rows), 'row')}")
