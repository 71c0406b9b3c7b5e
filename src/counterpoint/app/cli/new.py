"""Write a small plug-in of your own, with its test, to begin from.

Always true: what is written works as it is, and its test passes; a file that exists is never replaced, and where one of the
files cannot be written, none is.
"""

from __future__ import annotations

import keyword
import os
import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import click

import counterpoint.registry as registry
from counterpoint.app.terminal.options import output_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option
from counterpoint.app.viewer.panel import panels
from counterpoint.errors import InputError, NotFound, did_you_mean

HEADING = ""

_TEMPLATES = Path(__file__).parents[1] / "templates"
_NAME = "plugin_name"
# A template is the plug-in and, below this line, its test, which needs an import for what stands above it here. A panel has a
# file of the page instead of a test: the house tests all panels.
_CUT = re.compile(rf"\n+# -- test_{_NAME}\.py -+\n")
_IMPORT = "# from here import"
# Kind of the core to how its plug-in is used, once it is importable.
_USE = {
    "mechanism": "counterpoint credit TRACE --mechanism {at}",
    "reward": "python -c \"import counterpoint as cpt; print(cpt.reward('TRACE', '{at}').to_arrow().to_pylist())\"",
    "format": "counterpoint import FILE --format {at}",
    "command": "counterpoint {at} TRACE",
    "panel": "make page && counterpoint view TRACE",
}
# Words that people may know a kind by.
_OTHER_WORDS = {"credit": "mechanism", "env": "world", "environment": "world", "importer": "format"}
# Keys of the page that a panel may have; 1 to 4 are its own.
_PANEL_KEYS = "567890"


@cache
def templates() -> dict[str, tuple[Path, str]]:
    """Each kind that has a template: its file, and how such a plug-in is used; ours, and those of installed packages."""
    out = {kind: (_TEMPLATES / f"{kind}.py", use) for kind, use in _USE.items()}
    for hook in registry.hooks("templates"):
        folder, uses = hook()
        out |= {kind: (folder / f"{kind}.py", use) for kind, use in uses.items()}
    return out


@click.command(
    hidden=True,
    epilog="\b\nExamples:\n  counterpoint new mechanism by_tokens\n  counterpoint new world desk -o labs/review --json\n\n"
    "Exit codes: 0 written, 2 a bad name, a file that exists, or a folder that cannot be written, 3 no checkout for --ours."
)
@click.argument("kind", metavar="KIND")
@click.argument("name", metavar="NAME")
@output_option("The package to write into.", metavar="FOLDER", default=Path("my_lab"))
@click.option("--ours", is_flag=True, help="Write into the checkout of Counterpoint that the current folder is in.")
@json_option
def new(kind: str, name: str, output: Path, ours: bool, as_json: bool) -> None:
    """Write a plug-in of KIND named NAME, and its test.

    KIND is mechanism, reward, format, command or panel; world, task, model, tool, topology, preset, loss, claim or trainer.
    """
    if kind not in templates():
        raise _no_template(kind)
    _check_name(kind, name, ours=ours)
    if kind == "panel" and not ours:
        why = "it is built into the page"
        raise InputError("a panel belongs into a checkout of Counterpoint", why=why, fix=f"counterpoint new panel {name} --ours")
    files, module = _ours(kind, name) if ours else _outside(kind, name, output)
    _write(files)
    test = next((str(p) for p in files if p.name.startswith("test_")), f"tests/test_conformance.py -k {kind}-{name}")
    use = templates()[kind][1].format(at=name if ours else shlex.quote(f"{output / name}.py:{name}"))
    if as_json:
        emit(
            {
                "schema": SCHEMA_VERSION,
                "files": [str(p) for p in files],
                "name": f"{module}:{name}",
                "test": test,
                "use": use,
            }
        )
        return
    for file, text in files.items():
        lines = text.count("\n")
        click.echo(f"{file}  {lines} line{'s' if lines > 1 else ''}")
    click.echo(f"test it  pytest {test}")
    click.echo(f"use it   {use}")
    if kind == "command" and not ours:
        click.echo(f'a short name, once installed: [project.entry-points."counterpoint.commands"] {name} = "{module}:{name}"')


def _no_template(kind: str) -> InputError:
    """The error for a kind without a template: the word that was meant, or a plug-in to begin from."""
    if kind not in registry.kinds():
        fix = f"did you mean {_OTHER_WORDS[kind]!r}?" if kind in _OTHER_WORDS else did_you_mean(kind, templates())
        return InputError(f"no kind of plug-in named {kind!r}", fix=fix)
    known = f"{registry.packages(kind)[0]}.{registry.ids(kind)[0]}"
    return InputError(f"there is no template for a {kind}", fix=f"begin from an existing one, such as {known}")


def _folder(kind: str, package: Path) -> str:
    """Where our own plug-ins of a kind lie, from the package's folder: `credits/mechanisms`."""
    paths = [name.removeprefix("counterpoint.").replace(".", "/") for name in registry.packages(kind)]
    return next((path for path in paths if (package / path).is_dir()), paths[0])


def _check_name(kind: str, name: str, *, ours: bool) -> None:
    """A name is a module's name: small letters, digits and underscores."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or name.startswith("test_"):
        mended = re.sub(r"\W+", "_", name.strip()).strip("_").lower().lstrip("0123456789_").removeprefix("test_")
        good = mended if mended and not keyword.iskeyword(mended) else f"my_{mended or kind}"
        raise InputError(f"{name!r} cannot be the name of a module", fix=f"small letters, digits and underscores: {good}")
    if ours and name in registry.ids(kind):
        raise InputError(f"there is a {kind} named {name!r}", fix="choose another name")


def _outside(kind: str, name: str, output: Path) -> tuple[dict[Path, str], str]:
    """The files of a plug-in in a package of anybody's, and its module."""
    names, top = [output.resolve().name], output.resolve().parent
    while (top / "__init__.py").exists():
        names, top = [top.name, *names], top.parent
    for part in names:
        if not part.isidentifier() or keyword.iskeyword(part):
            raise InputError(
                f"{part!r} cannot be the name of a package",
                where=os.fspath(output),
                fix=f"-o {re.sub(r'[^a-zA-Z0-9_]', '_', part)}",
            )
    module = ".".join([*names, name])
    plugin, test = _texts(kind, name, module)
    files = {output / f"{name}.py": plugin, output / f"test_{name}.py": test}
    if not (output / "__init__.py").exists():
        files = {output / "__init__.py": f'"""Plug-ins of {names[-1]}."""\n', **files}
    return files, module


def _ours(kind: str, name: str) -> tuple[dict[Path, str], str]:
    """The same in our own tree: a file of the plural folder, and a test of the room."""
    here = Path.cwd()
    root = next((p for p in (here, *here.parents) if (p / "src" / "counterpoint" / "registry.py").is_file()), None)
    if root is None:
        raise NotFound(
            "the current folder is not inside a checkout of Counterpoint", fix="leave out --ours, or change to a checkout"
        )
    package = root / "src" / "counterpoint"
    place = _folder(kind, package)
    module = ".".join(["counterpoint", *place.split("/"), name])
    if kind == "panel":
        plugin, page = _panel(name)
        return {package / place / f"{name}.py": plugin, root / "web/src/panels" / f"{_camel(name)}.tsx": page}, module
    room = root.joinpath("tests", *place.split("/")[: 1 + place.startswith("lab/")])
    plugin, test = _texts(kind, name, module)
    return {package / place / f"{name}.py": plugin, room / f"test_{name}.py": test}, module


def _texts(kind: str, name: str, module: str) -> tuple[str, str]:
    """The plug-in, and its test."""
    plugin, test = _CUT.split(templates()[kind][0].read_text(encoding="utf-8"))
    return f"{plugin}\n".replace(_NAME, name), test.replace(_IMPORT, f"from {module} import").replace(_NAME, name)


def _panel(name: str) -> tuple[str, str]:
    """The panel, on a key that is free, and the file of the page that shows it."""
    taken = {panel.key for panel in panels().values()}
    key = next((key for key in _PANEL_KEYS if key not in taken), _PANEL_KEYS[-1])
    words = {_NAME: name, _camel(_NAME): _camel(name), "Plugin name": name.replace("_", " ").capitalize(), '"0"': f'"{key}"'}
    texts = [(_TEMPLATES / f"panel{ending}").read_text(encoding="utf-8") for ending in (".py", ".tsx")]
    for old, new_ in words.items():
        texts = [text.replace(old, new_) for text in texts]
    return texts[0], texts[1]


def _camel(name: str) -> str:
    """`two_words` as the page names its files: `TwoWords`."""
    return "".join(part.capitalize() for part in name.split("_"))


def _write(files: Mapping[Path, str]) -> None:
    """All of them, or none: a file that exists is refused before any is written, and what was written is taken back."""
    for path in files:
        if path.exists():
            raise InputError("exists already", where=os.fspath(path), fix="choose another name, or another folder with -o")
    written: list[Path] = []
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as file:
                written.append(path)
                file.write(text)
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            where, why = error.filename or os.fspath(path), error.strerror
            raise InputError("cannot be written", where=where, why=why, fix="choose another folder with -o") from error
        raise
