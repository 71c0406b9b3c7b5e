"""What Tab offers: ids of traces, collections, methods, worlds, presets, tasks, claims, models, targets.

Always true: it is attached only while a shell asks, by what a parameter is called, so that a new command gets it by itself;
whatever goes wrong, nothing is offered and nothing is printed. Only names are read: no trace is opened and no plug-in imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
        return next((offer for names, offer in _BY_FLAG.items() if flags & {*names}), None)
    metavar = (param.metavar or param.name or "").upper()
    if "TRACE" in metavar or "QUERY" in metavar or param.name == "query":
        return _traces
    return _BY_COMMAND.get(command) if param.name in ("name", "names") else None


# -- what there is -------------------------------------------------------------------------------------------------------


def _plugins(*kinds: str) -> Callable[[click.Context], Offered]:
    return lambda ctx: [(name, registry.summary(kind, name)) for kind in kinds for name in registry.ids(kind)]


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


def _worlds(ctx: click.Context) -> Offered:
    for name in registry.ids("world"):
        about = registry.summary("world", name)  # begins with the short name: "W1, wide verify: ..."
        yield from ((word, about) for word in dict.fromkeys((about.partition(",")[0], name)))


def _trained_worlds(ctx: click.Context) -> Offered:
    """Worlds to train in, and those of the suites."""
    from counterpoint.lab.worlds.teamworld.suites import suite_worlds

    yield from _worlds(ctx)
    yield from ((name, found.about) for name, found in suite_worlds().items())


def _models(ctx: click.Context) -> Offered:
    from counterpoint.lab.lm.weights import listed

    yield from (("fake", "a test double, needs nothing"), ("openai:", "an endpoint"), ("scripted:", "lines of a file"))
    yield from ((f"local:{found.name}", found.state) for found in listed())


def _weights(ctx: click.Context) -> Offered:
    from counterpoint.lab.lm.weights import listed

    return [(found.name, found.state) for found in listed()]


def _claims(ctx: click.Context) -> Offered:
    return [(name.replace("_", "-"), registry.summary("claim", name)) for name in registry.ids("claim")]


_BY_FLAG: dict[tuple[str, ...], Callable[[click.Context], Offered]] = {
    ("preset", "presets", "only"): _plugins("preset"),
    ("world", "worlds"): _trained_worlds,
    ("method", "methods", "compare", "credit"): _plugins("credit"),
    ("task",): _plugins("task"),
    ("topology",): _plugins("topology"),
    ("model",): _models,
    ("to",): _plugins("format", "trainer"),
    ("format",): _plugins("format"),
    ("resume", "where"): _traces,
    ("tool",): _plugins("tool"),
}
_BY_COMMAND: dict[str, Callable[[click.Context], Offered]] = {
    "reproduce": _claims,
    "world show": _worlds,
    "world run": _worlds,
    "models install": _weights,
    "models show": _weights,
    **{f"dataset {part}": _datasets for part in ("add", "remove", "drop", "show", "save")},
}
