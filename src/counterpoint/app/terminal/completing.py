"""What Tab offers: ids of traces, collections, mechanisms, targets, and what installed packages add (hook `completions`).

Always true: it is attached only while a shell asks, by what a parameter is called, so that a new command gets it by itself;
whatever goes wrong, nothing is offered and nothing is printed. Only names are read: no trace is opened and no plug-in imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import click
from click.shell_completion import CompletionItem

import counterpoint.registry as registry
from counterpoint.display import counted

Offered = Iterable[tuple[str, str]]
"""A word and what it is."""
_TRACES = 500


def attach(command: click.Command, name: str = "") -> None:
    """Let every parameter of a command, and of its parts, offer what it takes."""
    for part, inner in getattr(command, "commands", {}).items():
        attach(inner, f"{name} {part}".strip())
    for param in command.params:
        offer = _offer_of(param, name)
        if offer is not None:
            param._custom_shell_complete = _completer(offer)


def _completer(offer: Callable[[click.Context], Offered]) -> Callable[..., list[CompletionItem]]:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",") if "," in (param.metavar or "") else ("", "", incomplete)
        try:
            found = [(word, about) for word, about in offer(ctx) if word.startswith(last)]
        except Exception:
            return []
        return [CompletionItem(before + comma + word, help=about) for word, about in found]

    return complete


def _offer_of(param: click.Parameter, command: str) -> Callable[[click.Context], Offered] | None:
    """What a parameter takes, by its flag, or by its metavar where it is an argument."""
    flags = {flag.lstrip("-") for flag in param.opts}
    if isinstance(param, click.Option):
        return next((offer for name, offer in _offers()[0].items() if name in flags), None)
    metavar = (param.metavar or param.name or "").upper()
    if "TRACE" in metavar or "QUERY" in metavar or param.name == "query":
        return _traces
    return _offers()[1].get(command) if param.name in ("name", "names") else None


# -- what there is -------------------------------------------------------------------------------------------------------


def _plugins(*kinds: str) -> Callable[[click.Context], Offered]:
    return lambda ctx: [
        (name, registry.summary(kind, name)) for kind in kinds if kind in registry.kinds() for name in registry.ids(kind)
    ]


def _store(ctx: click.Context) -> str | None:
    found = next((one.params["store"] for one in (ctx, ctx.parent) if one is not None and one.params.get("store")), None)
    return None if found is None else str(found)


def _traces(ctx: click.Context) -> Offered:
    """Collections first, then the traces that were added last."""
    from counterpoint.app.terminal.store import list_store

    rows, _, datasets = list_store(_store(ctx))
    yield from ((f"in:{name}", found.query or counted(len(found.ids), "trace")) for name, found in datasets.items())
    yield from ((row.id, row.title or row.task_id) for row in reversed(rows[-_TRACES:]))


def _datasets(ctx: click.Context) -> Offered:
    from counterpoint.app.terminal.store import list_store

    return [(name, found.query or counted(len(found.ids), "trace")) for name, found in list_store(_store(ctx)).datasets.items()]


_BY_FLAG: dict[tuple[str, ...], Callable[[click.Context], Offered]] = {
    ("mechanism",): _plugins("mechanism"),
    ("to",): _plugins("format", "trainer"),
    ("format",): _plugins("format"),
    ("resume", "where"): _traces,
}
_BY_COMMAND: dict[str, Callable[[click.Context], Offered]] = {
    f"notes dataset {part}": _datasets for part in ("add", "remove", "drop", "show", "save")
}


@cache
def _offers() -> tuple[dict[str, Callable[[click.Context], Offered]], dict[str, Callable[[click.Context], Offered]]]:
    """What flags take, and what arguments of commands take: ours, then those of installed packages."""
    flags = {name: offer for names, offer in _BY_FLAG.items() for name in names}
    commands = dict(_BY_COMMAND)
    for hook in registry.hooks("completions"):
        more_flags, more_commands = hook()
        flags |= more_flags
        commands |= more_commands
    return flags, commands
