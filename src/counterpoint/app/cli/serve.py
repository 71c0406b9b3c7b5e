"""Receive what running programs send over OTLP/HTTP.

Always true: it listens on this machine only, unless told otherwise; what a sender was told is kept, is kept, whatever ends
the receiver; the first Ctrl-C or SIGTERM ends it in order, with everything stored.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from counterpoint.app.cli.push import read_token
from counterpoint.app.terminal.options import NumberRange
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.errors import InputError, Refused, install

HEADING = "Keep"

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


class _Size(click.ParamType):
    """A number of bytes: 1000000, 64MB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes, or a usage error."""
        if isinstance(value, int):
            return value
        text = str(value).strip().upper().replace(" ", "")
        digits = text.rstrip("KMGB")
        if not digits.isdigit() or text[len(digits) :] not in _UNITS or int(digits) == 0:
            self.fail(f"{value!r} is no size: write 500KB, 64MB or a number of bytes", param, ctx)
        return int(digits) * _UNITS[text[len(digits) :]]


@click.command(
    epilog="\b\nExamples:\n  counterpoint serve --store traces\n"
    "  counterpoint serve --port 0 --idle 30 --json\n\n"
    "\b\nThen, in another terminal: OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 python my_agents.py"
)
@click.option("--port", default=4318, show_default=True, type=click.IntRange(0, 65535), help="0 takes any that is free.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--allow-remote", is_flag=True, help="Listen on an address that other machines reach. Nothing is encrypted; see --token-file."
)
@click.option("--max-body", default="64MB", show_default=True, type=_Size(), help="The largest request, as sent and unpacked.")
@click.option("--timeout", default=30.0, show_default=True, type=NumberRange(0.1), help="Seconds for a request to arrive.")
@click.option("--idle", default=300.0, show_default=True, type=NumberRange(0), help="Seconds before a trace is sealed.")
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE", help="Refuse requests without this file's token.")
@click.option("--keep", default=24.0, show_default=True, type=NumberRange(0), help="Hours in which a sealed trace can grow.")
@store_option
@json_option
def serve(
    port: int,
    host: str,
    allow_remote: bool,
    max_body: int,
    timeout: float,
    idle: float,
    keep: float,
    token_file: Path | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Receive traces and logs over OTLP/HTTP, and whole traces from `counterpoint push`, until Ctrl-C.

    Any program with OpenTelemetry, Claude Code and Codex can send here: /v1/traces and /v1/logs, JSON or protobuf, gzip or
    not. Traces appear in the store while they run, and are sealed when nothing more has come for --idle seconds.
    """
    try:
        from counterpoint.app import serving
        from counterpoint.app.receiver import server as receiver
    except ImportError as error:
        raise InputError(f"the receiver needs starlette and uvicorn: {error}", fix=install("view")) from error
    if not allow_remote and not serving.is_loopback(host):
        why = "anybody who reaches it could write to your store"
        raise Refused("is not an address of this machine alone", where=host, why=why, fix="add --allow-remote if you mean it")
    from counterpoint.app.receiver.collector import Collector
    from counterpoint.app.receiver.intake import Intake

    token = "" if token_file is None else read_token(token_file)

    # The port first: where it is taken, no store is made.
    with serving.bound(host, port) as sock, open_store(store, create=True) as opened:
        intake = Intake(opened, idle_s=idle, keep_s=3600 * keep, note=lambda text: note(plain_text(text)))
        collector = Collector(opened, intake.counts)
        try:
            _say(_url(sock.getsockname()), opened.path, as_json=as_json)
            limits = receiver.ReceiverLimits(body=max_body, held=4 * max_body, seconds=timeout)
            served = receiver.server(intake, limits, is_remote=allow_remote, collector=collector, token=token)
            served.run(sockets=[sock])
        finally:
            collector.close()
            intake.close()
    _sum_up(intake.status(), as_json=as_json)


def _url(address: tuple[Any, ...]) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{host}:{address[1]}"


def _say(url: str, store: Path, *, as_json: bool) -> None:
    if as_json:
        emit({"schema": SCHEMA_VERSION, "url": url, "store": os.fspath(store), "pid": os.getpid()})
        return
    click.echo(f"listening on {url}, storing in {os.fspath(store)}; Ctrl-C ends it")
    click.echo(f"  OTEL_EXPORTER_OTLP_ENDPOINT={url}")


def _sum_up(counts: dict[str, int], *, as_json: bool) -> None:
    if as_json:
        emit({"schema": SCHEMA_VERSION, "counts": counts})
        return
    shown = [f"{n:,} {name}" for name, n in counts.items() if n or name == "open"]
    click.echo("received: " + " · ".join(shown))
