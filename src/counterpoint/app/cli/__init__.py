"""The command line: one file per command, none imported before it is called.

Always true: results go to stdout, notes and progress to stderr; a `CounterpointError` ends the command with its own
exit code and one message; every command takes `--json`.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import click

import counterpoint.registry as registry
from counterpoint.app.terminal.groups import COMPLETION_VARIABLES, Group
from counterpoint.errors import CounterpointError, InputError

HEADINGS = ("Look", "Judge", "Keep", "Learn", "More")
"""The order of `--help`. A command's file names its own, `HEADING = "Look"`; an empty one hides it, none at all means "More"."""


class _Commands(Group):
    """All commands: the files of kind `command`, then the entry points of installed packages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = "command"

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *registry.commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.commands or cmd_name in registry.ids("command"):
            return super().get_command(ctx, cmd_name)
        name = cmd_name if ":" in cmd_name else registry.commands().get(cmd_name)
        return None if name is None else self.prepared(registry.get("command", name), cmd_name)

    def summary(self, ctx: click.Context, name: str) -> str:
        return registry.commands()[name] if self._is_lone(name) else super().summary(ctx, name)

    def _is_lone(self, name: str) -> bool:
        """Whether a command is the entry point of an installed package, and no file."""
        return name not in self.commands and name not in registry.ids("command")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """In one line, so that the commands fit a screen."""
        formatter.write_paragraph()
        formatter.write_text("Options: --version; --debug shows the traceback of an error; -h or --help")
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands under their headings."""
        rows: dict[str, list[tuple[str, str]]] = {heading: [] for heading in HEADINGS}
        for name in self.list_commands(ctx):
            heading = registry.constant("command", name, "HEADING") if name in registry.ids("command") else None
            if heading != "":
                rows[heading if heading in rows else "More"].append((name, self.summary(ctx, name)))
        for heading, lines in rows.items():
            if lines:
                with formatter.section(heading):
                    formatter.write_dl(lines)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="\b\nExamples: counterpoint demo; counterpoint store check run.trace.json --json",
)
@click.version_option(package_name="counterpoint")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Counterpoint: a team's run as one trace; check it, keep it, question it."""
    ctx.obj = {"debug": debug}


def _print_error(error: CounterpointError, *, as_json: bool) -> None:
    if as_json:
        from counterpoint.app.terminal.output import emit

        emit(error.as_dict())
        return
    where = f"{error.where}: " if error.where else ""
    lines = [f"error: {where}{error.what}"]
    lines += [f"why    {error.why}"] if error.why else []
    lines += [f"fix    {error.fix}"] if error.fix else []
    click.echo("\n".join(lines), err=True)


def _print_usage(error: click.ClickException, *, as_json: bool) -> None:
    moved = _moved_flag(error)
    if moved is not None:
        _print_error(moved, as_json=as_json)
    elif as_json:
        _print_error(InputError(error.format_message(), fix="--help says what it takes"), as_json=True)
    else:
        error.show()


def _moved_flag(error: click.ClickException) -> InputError | None:
    """The error that names the new flag, where an option is unknown because it was renamed."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    from counterpoint.app.moved import new_flag

    return new_flag(error.ctx.command_path.partition(" ")[2], error.option_name)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as one line on stderr, without the place in the source that gave it."""
    click.echo(f"warning: {message}", err=True)


def main(argv: list[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    args = sys.argv[1:] if argv is None else argv
    debug = "--debug" in args
    if not debug:
        warnings.showwarning = _show_warning
    args = [a for a in args if a != "--debug"]
    from counterpoint.app.terminal.progress import command_bar

    try:
        with command_bar(args):
            asked = next((name for name in COMPLETION_VARIABLES if name in os.environ), None)  # a shell asks what may stand here
            code = cli.main(args, prog_name="counterpoint", complete_var=asked, standalone_mode=False)
    except CounterpointError as error:
        if debug:
            raise
        _print_error(error, as_json="--json" in args)
        code = error.exit_code
    except click.exceptions.Exit as exit_:
        code = exit_.exit_code
    except click.ClickException as error:
        _print_usage(error, as_json="--json" in args)
        code = 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        code = 130
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except OSError as error:
        if debug:
            raise
        from counterpoint.app.words import os_error

        mended = os_error(error)
        _print_error(mended, as_json="--json" in args)
        code = mended.exit_code
    except RecursionError:
        if debug:
            raise
        deep = InputError("what was read is nested too deeply", fix="flatten it; --debug shows where it was met")
        _print_error(deep, as_json="--json" in args)
        code = deep.exit_code
    except Exception as error:
        if debug:
            raise
        fix = "this is a bug in Counterpoint: run it again with --debug and report what it prints"
        _print_error(CounterpointError(f"{type(error).__name__}: {error}", fix=fix), as_json="--json" in args)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)
