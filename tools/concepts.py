"""How much there is to learn here: `python tools/concepts.py [--json]`. Exit code 1 where a concept is over its goal.

Always true: everything is counted on the real thing (commands as click has them, settings as the objects that hold them, imports
and lengths as Python parses them), never from a list that somebody keeps. A setting is counted once for each owner (a world, a
mechanism, a reward, a loss). An option that several mechanisms or rewards share is counted once where it is one declaration,
marked `Shared` (`counterpoint.options`); so is a dial of several tasks, or stopping worlds, that one function declares.
What has no goal is for information.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "counterpoint"
FREE_FLAGS = {"--json", "--help", "--store"}
"""Flags that every command has, or nearly: learned once."""
PARTICIPLES = {
    "asked", "brought", "built", "chosen", "drawn", "fed", "felt", "found", "given", "gone", "heard", "held",
    "hidden", "kept", "known", "laid", "led", "left", "lost", "made", "meant", "met", "paid", "played", "said",
    "seen", "sent", "shown", "spoken", "spent", "taken", "thought", "told", "won", "written",
}  # fmt: skip
"""Irregular participles that say nothing of what a thing is. (`read`, `put`, `set`, `cut` are verbs as well.)"""
FOREIGN = {"connection_lost", "connection_made"}
"""Methods that another library names: asyncio calls these."""
_ASKS = ("is", "are", "was", "has", "have", "can", "may", "as", "not")
_LONGEST_FILE, _LONGEST_FUNCTION = 500, 50


@dataclass(frozen=True)
class Concept:
    """One thing that is counted."""

    name: str
    count: int
    goal: int | None = None
    """The most there may be; None: for information."""
    parts: dict[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.goal is not None and self.count > self.goal


# -- commands --------------------------------------------------------------------------------------------------------------


@cache
def commands() -> dict[str, click.Command]:
    """Every command and sub-command by its words (`train net`); a hidden one and what is under it is left out."""
    from counterpoint.app.cli import cli

    return dict(_walk(cli, click.Context(cli), ()))


def _walk(group: click.Group, ctx: click.Context, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is None or command.hidden:
            continue
        yield " ".join((*words, name)), command
        if isinstance(command, click.Group):
            yield from _walk(command, click.Context(command, parent=ctx), (*words, name))


def _options() -> Iterator[tuple[str, click.Option]]:
    for words, command in commands().items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                yield words, option


def top_level() -> Concept:
    names = [name for name in commands() if " " not in name]
    return Concept("commands", len(names), 28, {"with sub-commands": len(commands())})


def flags() -> Concept:
    """Different words; the short form of a long one (`-o`), and the way back of a switch (`--no-x`), are the same flag."""
    words = {max(option.opts, key=len) for _, option in _options()} - FREE_FLAGS
    return Concept("flags", len(words), 120, {"places": sum(1 for _ in _options())})


def conditional_help() -> Concept:
    found = [f"{words} {max(o.opts, key=len)}" for words, o in _options() if (o.help or "").startswith("With --")]
    return Concept('help texts that begin "With --"', len(found), 0, examples=tuple(found))


# -- settings --------------------------------------------------------------------------------------------------------------


def _fields(*kinds: Any) -> int:
    return sum(len(dataclasses.fields(kind)) for kind in kinds)


def _dials(*configs: Any) -> int:
    """Dials of kindred worlds or tasks; one with the same name, unit and sentence in several is one declaration."""
    return len({(f.name, f.metadata["unit"], f.metadata["doc"]) for config in configs for f in dataclasses.fields(config)})


def option_names(functions: Iterable[Callable[..., Any]]) -> tuple[set[str], int, int]:
    """Of functions that take (data, **options): the shared options, how many are an owner's own, and the places of all."""
    from counterpoint.options import shared

    common: set[str] = set()
    own = places = 0
    for function in functions:
        names = list(inspect.signature(function).parameters)[1:]
        common |= shared(function).keys()
        places += len(names)
        own += len(names) - len(shared(function))
    return common, own, places


def _world_settings() -> dict[str, int]:
    from counterpoint import registry
    from counterpoint.lab.worlds.stopping.config import PoissonSearch, Saturation, Votes, WideSearch
    from counterpoint.lab.worlds.teamworld.config import Config

    tasks = [registry.get("task", name) for name in registry.ids("task")]
    return {
        "TeamWorld": _fields(Config),
        "stopping worlds": _dials(PoissonSearch, WideSearch, Votes, Saturation),
        "text tasks": _dials(*(task.config for task in tasks if hasattr(task, "config"))),
    }


def _run_settings() -> dict[str, int]:
    from counterpoint.guard.limits import SCOPES, GuardLimits
    from counterpoint.lab.train.lm.settings import Imitate, LanguageSettings, Learn, Prices, TaskMix
    from counterpoint.lab.train.preset import Preset
    from counterpoint.lab.train.settings import Settings

    guard = sum(map(len, SCOPES.values())) + len(GuardLimits.__slots__) - len(SCOPES)
    return {
        "language runs": _fields(LanguageSettings, Imitate, Learn, Prices, TaskMix),
        "training settings": _fields(Settings),
        "preset fields": _fields(Preset),
        "guard limits": guard,
    }


def settings() -> Concept:
    from counterpoint import registry

    mechanisms = [registry.get("mechanism", name).run for name in registry.ids("mechanism")]
    rewards = [registry.get("reward", name).score for name in registry.ids("reward")]
    losses = [registry.get("loss", name) for name in registry.ids("loss")]
    of_mechanisms, own_mechanism, _ = option_names(mechanisms)
    of_rewards, own_reward, _ = option_names(rewards)
    parts = {
        **_world_settings(),
        **_run_settings(),
        "mechanism options": own_mechanism,
        "reward options": own_reward,
        "options shared by mechanisms and rewards": len(of_mechanisms | of_rewards),
        "loss options": sum(len(loss.options) for loss in losses),
    }
    return Concept("settings", sum(parts.values()), 500, parts)


# -- docs, code, names -----------------------------------------------------------------------------------------------------


def words_of_docs() -> Concept:
    texts = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
    by_page = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").split()) for path in texts}
    longest = sorted(by_page, key=lambda page: -by_page[page])[:5]
    return Concept("words of docs", sum(by_page.values()), 60_000, {page: by_page[page] for page in longest})


@cache
def _sources() -> dict[str, tuple[str, ast.Module]]:
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    return {path: (text, ast.parse(text)) for path, text in texts.items()}


def lines() -> list[Concept]:
    core = sum(text.count("\n") for path, (text, _) in _sources().items() if not path.startswith("lab/"))
    lab = sum(text.count("\n") for path, (text, _) in _sources().items() if path.startswith("lab/"))
    return [Concept("lines of core (aim 64,000)", core), Concept("lines of lab (aim 62,000)", lab)]


def core_to_lab() -> Concept:
    """Imports anywhere in a file, and strings that name a module."""
    found: set[str] = set()
    for path, (_, tree) in _sources().items():
        if path.startswith("lab/"):
            continue
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.:]+", node.value):
                names = [node.value.replace(":", ".")]
            found |= {f"{path} -> {name}" for name in names if f"{name}.".startswith("counterpoint.lab.")}
    return Concept("core-to-lab imports", len(found), 0, examples=tuple(sorted(found)))


def plugins() -> Concept:
    from counterpoint import registry

    parts = {kind: len(registry.ids(kind)) for kind in registry.kinds()}
    return Concept(f"plug-ins of {len(parts)} kinds", sum(parts.values()), None, parts)


def lengths() -> list[Concept]:
    long_files = [path for path, (text, _) in _sources().items() if text.count("\n") > _LONGEST_FILE]
    long_functions = [
        f"{path}:{node.lineno} {node.name}"
        for path, (_, tree) in _sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= _LONGEST_FUNCTION
    ]
    return [
        Concept(f"files over {_LONGEST_FILE} lines", len(long_files), 0, examples=tuple(long_files)),
        Concept(f"functions over {_LONGEST_FUNCTION} lines", len(long_functions), 0, examples=tuple(long_functions)),
    ]


def is_participle(name: str) -> bool:
    """Whether a name ends in a participle and asks nothing (`is_found`, `as_given` do): `found`, `PlanChosen`, `_told`."""
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)
    return name not in FOREIGN and bool(words) and words[-1].lower() in PARTICIPLES and words[0].lower() not in _ASKS


def participles() -> Concept:
    """Modules, classes and functions without an underscore in front; public, so in tracebacks and in other people's code."""
    found = [path for path in _sources() if is_participle(Path(path).stem)]
    for path, (_, tree) in _sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                found += [f"{path}:{node.lineno} {node.name}"] if is_participle(node.name) else []
    return Concept("participles as public names", len(found), 0, examples=tuple(found))


# -- all of it -------------------------------------------------------------------------------------------------------------


@cache
def concepts() -> list[Concept]:
    """Everything that is counted."""
    return [
        top_level(), flags(), conditional_help(), settings(), words_of_docs(), *lines(), core_to_lab(), plugins(), *lengths(),
        participles(),
    ]  # fmt: skip


def _line(concept: Concept) -> str:
    goal = "" if concept.goal is None else f"  goal {concept.goal:,}{'  OVER' if concept.is_over else ''}"
    lines = [f"{concept.count:>8,}  {concept.name}{goal}"]
    lines += [f"          {count:>8,}  {name}" for name, count in concept.parts.items()]
    lines += [f"                    {example}" for example in concept.examples[:8]]
    lines += [f"                    and {len(concept.examples) - 8} more"] if len(concept.examples) > 8 else []
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Print what is counted; 1 where something is over its goal."""
    parser = argparse.ArgumentParser(description="Count the concepts of the house.")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    found = concepts()
    if args.json:
        print(json.dumps([dataclasses.asdict(c) | {"is_over": c.is_over} for c in found], indent=1))
    else:
        print("\n".join(map(_line, found)))
    return int(any(c.is_over for c in found))


if __name__ == "__main__":
    sys.exit(main())
