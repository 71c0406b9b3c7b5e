"""Receive what running programs send over OTLP/HTTP.

Always true: it listens on this machine only, unless asked otherwise; an acknowledged request is kept, whatever ends the
receiver; the first Ctrl-C or SIGTERM ends it in order, with everything stored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from counterpoint.app.terminal.options import host_option, port_option, read_token, token_option, values_of
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.errors import InputError, Refused, did_you_mean, install

HEADING = "Keep"

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


@dataclass(frozen=True)
class _Settings:
    """What `--set` overrides."""

    max_body: str = "64MB"
    """The largest request, as sent and unpacked."""
    timeout: float = 30.0
    """Seconds for a request to arrive."""
    idle: float = 300.0
    """Seconds without news after which a trace is sealed."""
    keep: float = 24.0
    """Hours in which a sealed trace can still grow."""


@click.command(
    epilog="\b\nExamples:\n  counterpoint serve --store traces\n"
    "  counterpoint serve --port 0 --set idle=30 --json\n\n"
    "\b\nThen, in another terminal: OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 python my_agents.py"
)
@port_option(4318)
@host_option
@click.option("--allow-remote", is_flag=True, help="Listen on an address that other machines reach. Nothing is encrypted.")
@token_option
@click.option(
    "--set", "pairs", multiple=True, metavar="NAME=VALUE",
    help="Override max_body (64MB), timeout (30 seconds), idle (300 seconds until a trace is sealed) or keep (24 hours in which "
    "a sealed trace can grow).",
)  # fmt: skip
@store_option
@json_option
def serve(
    port: int,
    host: str,
    allow_remote: bool,
    token_file: Path | None,
    pairs: tuple[str, ...],
    store: Path | None,
    as_json: bool,
) -> None:
    """Receive traces and logs over OTLP/HTTP, and whole traces from `counterpoint store push`, until Ctrl-C.

    Any program with OpenTelemetry, Claude Code and Codex can send here: /v1/traces and /v1/logs, JSON or protobuf, gzip or
    not. Traces appear in the store while they run, and are sealed when nothing more has come for `idle` seconds.
    """
    settings = _settings(pairs)
    try:
        from counterpoint.app import http_server
        from counterpoint.app.receiver import server as receiver
    except ImportError as error:
        raise InputError(f"the receiver needs starlette and uvicorn: {error}", fix=install("view")) from error
    if not allow_remote and not http_server.is_loopback(host):
        why = "anybody who reaches it could write to your store"
        raise Refused("is not an address of this machine alone", where=host, why=why, fix="add --allow-remote if you mean it")
    from counterpoint.app.receiver.collector import Collector
    from counterpoint.app.receiver.intake import Intake

    token = "" if token_file is None else read_token(token_file)

    # The port first: where it is taken, no store is made.
    with http_server.listening_socket(host, port) as sock, open_store(store, create=True) as opened:
        intake = Intake(opened, idle_s=settings.idle, keep_s=3600 * settings.keep, note=lambda text: note(plain_text(text)))
        collector = Collector(opened, intake.counts)
        try:
            _say(_url(sock.getsockname()), opened.path, as_json=as_json)
            body = _bytes_of(settings.max_body)
            limits = receiver.ReceiverLimits(body=body, held=4 * body, seconds=settings.timeout)
            served = receiver.server(intake, limits, is_remote=allow_remote, collector=collector, token=token)
            served.run(sockets=[sock])
        finally:
            collector.close()
            intake.close()
    _sum_up(intake.status(), as_json=as_json)


def _settings(pairs: tuple[str, ...]) -> _Settings:
    settings = _Settings(**dict(_overrides(pairs)))
    _bytes_of(settings.max_body)
    for name, least in (("timeout", 0.1), ("idle", 0.0), ("keep", 0.0)):
        if not getattr(settings, name) >= least:
            fix = f"as in --set {name}={getattr(_Settings, name):g}"
            raise InputError(f"{name} is at least {least:g}", where="--set", fix=fix)
    return settings


def _overrides(pairs: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    known = [field.name for field in fields(_Settings)]
    for name, value in values_of(pairs).items():
        if name not in known:
            raise InputError(f"no setting named {name!r}", where="--set", fix=did_you_mean(name, known))
        yield name, str(value) if name == "max_body" else _number(name, value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{name} is a number, not {value!r}", where="--set", fix=f"as in --set {name}=30")
    return float(value)


def _bytes_of(text: str) -> int:
    """A size such as 500KB or 64MB, or a number of bytes."""
    plain = text.strip().upper().replace(" ", "")
    digits = plain.rstrip("KMGB")
    if not digits.isdigit() or plain[len(digits) :] not in _UNITS or int(digits) == 0:
        raise InputError(f"{text!r} is not a size", where="--set", fix="max_body=500KB, max_body=64MB or a number of bytes")
    return int(digits) * _UNITS[plain[len(digits) :]]


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
