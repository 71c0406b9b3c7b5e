"""Watch agents at work: import their logs as they grow, judge them by rules, and tell.

Always true: logs are only read; an alert is on disk before anybody is told, and is told once to whoever takes it, over restarts
and kills; a kill between telling and noting tells it again under the same id.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.options import cap_option, caps_of, list_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.watch.settings import CAPS, EXAMPLE, WatchSettings, watch_settings
from counterpoint.app.words import plain_text
from counterpoint.display import counted
from counterpoint.errors import InputError, NotFound

if TYPE_CHECKING:
    from counterpoint.app.import_account import Outcome
    from counterpoint.app.watch.alert import Alert
    from counterpoint.store import Store

HEADING = "Look"

_FINDING = 4


@click.command(
    epilog="\b\nExamples:\n  counterpoint watch\n  counterpoint watch ~/.claude/projects --cap dollars=10 --alerts alerts.toml\n"
    "  counterpoint watch --list > alerts.toml\n\n"
    "Exit codes: 130 ended by Ctrl-C, 2 a wrong setting, 3 no such path, 5 another watch has this store;\n"
    "with --once: 0 nothing was told, 4 something was."
)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--alerts", type=click.Path(path_type=Path), metavar="FILE", help="TOML of the rules and of who is told.")
@cap_option(*CAPS)
@click.option("--newest", metavar="SPAN", default="1h", show_default=True, help="Tell also of runs that changed so long ago.")
@click.option("--project", metavar="NAME", help="Only sessions of this folder.")
@click.option("--format", "format_", metavar="NAME", help="The source, where the content does not show it.")
@click.option("--prices", metavar="FILE", help="TOML of prices per model (default: $COUNTERPOINT_PRICES, and the package's own).")
@click.option("--once", is_flag=True, help="Look once, tell, and end.")
@list_option("Print a file for --alerts, with every rule.")
@store_option
@json_option
def watch(paths: tuple[str, ...], once: bool, is_list: bool, store: Path | None, as_json: bool, **options: Any) -> None:
    """Import logs of agents as they grow, and tell what is wrong while they run: stuck, runaway, failing, looping, injected.

    Without a PATH: the sessions of agents in this user's home. Alerts go to the terminal, and to the desktop, addresses and
    webhooks of the file; each once, over restarts.
    """
    if is_list:
        click.echo(EXAMPLE, nl=False)
        return
    from counterpoint.app.import_logs import span
    from counterpoint.app.price_file import read_prices
    from counterpoint.app.watch.channels import channels

    settings = watch_settings(options["alerts"], caps_of(options["caps"], CAPS))
    try:
        back = span(options["newest"])
    except InputError as error:
        raise InputError(error.what, where="--newest", fix=error.fix) from None
    receivers = list(channels(settings.tell))
    prices = read_prices(options["prices"] or os.environ.get("COUNTERPOINT_PRICES"))
    places = _places(paths)
    with open_store(store, create=True) as opened:
        asked = {"prices": prices, "format": options["format_"], "project": options["project"], "back_s": back}
        told = _watch(places, opened, settings, receivers, once=once, as_json=as_json, **asked)
    if once and told:
        raise click.exceptions.Exit(_FINDING)


def _places(paths: tuple[str, ...]) -> list[str]:
    from counterpoint.app.import_logs import homes

    for path in paths:
        if not os.path.exists(path):
            raise NotFound("no such file or folder", where=path, fix="check the path; a folder may still be empty")
    found = list(paths) or [os.fspath(path) for _, path in homes()]
    if not found:
        raise NotFound("no sessions of an agent that we know in this user's home", fix="name a folder: counterpoint watch PATH")
    return found


def _watch(
    places: list[str], store: Store, settings: WatchSettings, receivers: list[Any], *, once: bool, as_json: bool, **asked: Any
) -> int:
    """Watch, until it is interrupted or all is told once; how many alerts were."""
    from counterpoint.app.watch.ledger import Ledger
    from counterpoint.app.watch.model_judge import ModelJudge
    from counterpoint.app.watch.outbox import Outbox
    from counterpoint.app.watch.watcher import Watcher

    one_at_a_time = threading.Lock()

    def remark(words: str) -> None:
        with one_at_a_time:
            note(plain_text(words))

    ledger = Ledger(store.path / "watch")
    outboxes = [Outbox(channel, ledger, remark) for channel in receivers]
    judge = None
    try:
        judge = ModelJudge(settings.judge, store.path, ledger, remark) if settings.judge.model else None
        note(f"watching {', '.join(places)}" + ("" if once else "; Ctrl-C ends it"), quiet=as_json)
        watcher = Watcher(
            places, store, ledger, settings.rules, _alert_line(as_json), _outcome_line(as_json), remark, outboxes, judge, **asked
        )
        watcher.once() if once else watcher.run()
    finally:
        if judge is not None:
            judge.stop()
        for outbox in outboxes:
            outbox.stop()
        ledger.close()
    return watcher.told


def _alert_line(as_json: bool) -> Any:
    def tell(alert: Alert) -> None:
        if as_json:
            emit({"schema": SCHEMA_VERSION, "kind": "alert", **alert.as_dict()})
        else:
            click.echo(plain_text(alert.line()))

    return tell


def _outcome_line(as_json: bool) -> Any:
    def tell(outcome: Outcome) -> None:
        if as_json:
            emit({"schema": SCHEMA_VERSION, "kind": "session", **outcome.as_dict()})
        elif outcome.status == "failed":
            note(f"failed   {outcome.session}: {plain_text(outcome.error or '')}")
        else:
            ids = " ".join(outcome.traces) or outcome.session
            note(f"{outcome.status:9} {ids}  {counted(outcome.agents, 'agent')}  {counted(outcome.events, 'event')}")

    return tell
