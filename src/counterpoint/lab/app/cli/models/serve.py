"""Serve a model by OpenAI's protocol: any agent code, in any language, is a client.

Always true: it listens on this machine only, unless asked otherwise; it answers when the model is loaded; the first Ctrl-C or
SIGTERM ends it in order, with what was begun answered and recorded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.options import host_option, model_settings, port_option, read_token, token_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option
from counterpoint.errors import InputError, Refused, did_you_mean, install
from counterpoint.lab.app.cli.models._rows import epilog

if TYPE_CHECKING:
    from counterpoint.lab.app.model_ledger import LedgerProcess
    from counterpoint.lab.app.model_server import Backend
    from counterpoint.lab.lm.serving.ledger import Ledger


@click.command(
    epilog=epilog(
        "serve smollm2-135m", "serve runs/hunt --model-set device=cuda --model-set batch=256 --store traces",
        "serve openai:Qwen/Qwen3-8B --base-url http://127.0.0.1:8000/v1 --store traces",
    )
    + "\n\n\b\nThen, in another terminal: OPENAI_BASE_URL=http://127.0.0.1:8100/v1 OPENAI_API_KEY=none python my_agents.py"
)  # fmt: skip
@click.argument("model")
@port_option(8100)
@host_option
@click.option("--allow-remote", is_flag=True, help="Listen on an address that other machines reach. Nothing is encrypted.")
@token_option
@click.option("--base-url", metavar="URL", help="The endpoint of openai:NAME.")
@click.option(
    "--model-set", "model_pairs", multiple=True, metavar="NAME=VALUE",
    help="A setting of the model, such as device=cuda or batch=256; may be repeated.",
)  # fmt: skip
@click.option("--store", metavar="DIR", type=click.Path(path_type=Path), help="Record the calls in this store.")
@json_option
def serve(
    model: str, port: int, host: str, allow_remote: bool, token_file: Path | None, base_url: str | None,
    model_pairs: tuple[str, ...], store: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Serve MODEL by OpenAI's protocol, until Ctrl-C: chat completions and completions.

    MODEL is a name that `counterpoint models` lists, a folder, a .gguf file or the folder of a run, with local: before it or not;
    or openai:NAME, whose requests are passed on to --base-url. Callers are answered together.
    """
    try:
        from counterpoint.app import http_server
        from counterpoint.lab.app import model_fronts
    except ImportError as error:
        raise InputError(f"an endpoint needs starlette and uvicorn: {error}", fix=install("view")) from error
    if not allow_remote and not http_server.is_loopback(host):
        why = "anybody who reaches it could use your model"
        raise Refused("is not an address of this machine alone", where=host, why=why, fix="add --allow-remote if you mean it")
    settings = model_settings(base_url, model_pairs)
    backend, name = _backend(model, settings)
    front_ends = model_fronts.usual_front_ends(str(settings.get("device", "cpu")))
    token = read_token(token_file)
    with http_server.listening_socket(host, port) as sock, _ledger(store, name, is_apart=front_ends > 0) as ledger:
        url = f"http://{_host(sock.getsockname())}/v1"
        served = model_fronts.server(
            backend, ledger, front_ends=front_ends, is_remote=allow_remote, token=token,
            on_ready=lambda: _say(name, url, store, as_json=as_json),
        )  # fmt: skip
        served.run(sockets=[sock])
    if ledger is not None and ledger.problems:
        raise InputError(f"{len(ledger.problems)} calls were not recorded: {ledger.problems[0]}", where=str(store))


@contextmanager
def _ledger(store: Path | None, task: str, *, is_apart: bool) -> Iterator[Ledger | LedgerProcess | None]:
    """Where calls are recorded, if they are; in a process of its own where there are front ends."""
    from counterpoint.lab.app.model_ledger import LedgerProcess
    from counterpoint.lab.lm.serving.ledger import Ledger
    from counterpoint.store import Store

    if store is None:
        yield None
    elif is_apart:
        with closing(LedgerProcess(store, task=task)) as apart:
            yield apart
    else:
        with Store(store) as opened, closing(Ledger(opened, task=task)) as ledger:
            yield ledger


def _backend(model: str, settings: dict[str, Any]) -> tuple[Backend, str]:
    """What answers, and the name by which requests ask for it."""
    kind, colon, name = model.partition(":")
    if kind == "openai" and colon:
        from counterpoint.lab.lm.serving.pass_on import PassOn

        known = ("base_url", "key_env")
        for setting in settings:
            if setting not in known:
                raise InputError(f"no setting named {setting!r}", where="--model-set", fix=did_you_mean(setting, known))
        return PassOn(name, **settings), name
    if "base_url" in settings:
        raise InputError("--base-url is of openai:NAME", where=model, fix=f"openai:{model} --base-url URL")
    from counterpoint.lab.lm.models.local import local
    from counterpoint.lab.lm.serving.backend import EngineBackend

    made = local(name if kind == "local" and colon else model, **settings)
    called = made.name.removeprefix("local:")
    return EngineBackend(made.thread, called, version=made.version), called


def _host(address: tuple[Any, ...]) -> str:
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


def _say(name: str, url: str, store: Path | None, *, as_json: bool) -> None:
    if as_json:
        about = {"url": url, "model": name, "store": None if store is None else os.fspath(store), "pid": os.getpid()}
        emit({"schema": SCHEMA_VERSION, **about})
        return
    kept = "" if store is None else f", recording in {os.fspath(store)}"
    click.echo(f"{name} answers at {url}{kept}; Ctrl-C ends it")
    click.echo(f"  OPENAI_BASE_URL={url} OPENAI_API_KEY=none")
