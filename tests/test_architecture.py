"""The house rules that a machine can hold: arrows, circles, private modules, names, heavy imports, length of files and functions.

Each file is read and parsed once. What still breaks a rule is listed beside it, and a list only shrinks: an offender that is gone has
to leave it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

import pytest

from counterpoint import registry

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "counterpoint"
FILES = sorted(PACKAGE.rglob("*.py"))

# Bottom to top; rooms in one row never import each other. `testing.py` may import anything, and nothing imports it. The wall between
# the wings is a rule of its own: the core imports nothing of the laboratory (`test_the_core_never_imports_the_laboratory`).
LAYERS = [
    {"registry", "errors", "files", "display", "options", "answer"},
    {"trace"},
    {"formats", "store", "rewards", "credits", "audits"},
    {"guard"},
    {"recorder"},
    {"lab/worlds", "lab/papers"},
    {"lab/tasks"},
    {"lab/lm"},
    {"lab/team"},
    {"lab/train"},
    {"lab/bench", "lab/trainers"},
    {"app"},
    {"lab/app"},
]
HEIGHT = {room: height for height, row in enumerate(LAYERS) for room in row}
# The arrows inside a row: everything may say what went wrong, and an answer writes numbers.
ALLOWED = {("registry", "errors"), ("files", "errors"), ("options", "errors"), ("answer", "display")}

# Who may import what is slow to import, optional, or reaches out.
HEAVY = {
    "torch": ("lab/train/", "lab/team/", "lab/lm/", "lab/trainers/", "lab/bench/claims/lm_engine.py", "lab/bench/dining/learn.py", "lab/bench/particles/learn.py"),
    "transformers": ("lab/trainers/trl/", "lab/train/", "lab/team/", "lab/lm/", "lab/bench/claims/lm_engine.py"),
    "trl": ("lab/trainers/trl/",),
    "verl": ("lab/trainers/verl/",),
    "datasets": ("lab/trainers/trl/",),
    "tinker": ("lab/trainers/tinker",),
    # Three servers: the viewer's, the OTLP receiver and the endpoint of models, with what they share, imported only by `serve`, `view` and `models serve`.
    "starlette": ("app/viewer/", "app/receiver/server.py", "lab/app/model_server.py"),
    "uvicorn": ("app/viewer/", "app/receiver/server.py", "app/http_server.py"),
    "triton": ("lab/lm/kernels.py",),
    "numba": ("trace/kernels.py", "lab/worlds/", "credits/", "lab/train/"),
    "duckdb": ("store/",),
    "mcp": ("app/mcp/server.py",),
    "ray": ("lab/train/ray_cluster.py", "lab/train/runners/ray_actors.py", "lab/train/lm/ray_workers.py", "lab/train/lm/ray_ranks.py"),
    "openai": ("lab/lm/endpoint/", "recorder/"),
    "requests": (),
    "networkx": (),
    "pandas": (),
    "matplotlib": ("lab/app/plots/",),
}
# Mathematics reads no file, clock, network, environment or hidden random state.
PURE = ("trace/", "rewards/", "credits/", "audits/", "lab/train/objectives.py")
IMPURE_MODULES = {"os", "io", "pathlib", "time", "random", "socket", "urllib", "http", "subprocess", "tempfile", "shutil"}


def _relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _room(path: Path) -> str:
    return _room_of(path.relative_to(PACKAGE).with_suffix("").parts)


def _room_of(parts: tuple[str, ...]) -> str:
    """`trace`, or `lab/worlds` in the laboratory."""
    return "/".join(parts[:2]) if parts[0] == "lab" and len(parts) > 1 else parts[0]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_text(path))


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_tree(path)))


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _imports(path: Path) -> set[str]:
    out: set[str] = set()
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            out.add(node.module)
            out |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            pytest.fail(f"{_relative(path)}: relative import; name the module in full")
    return out


def _targets(path: Path) -> set[str]:
    return {_room_of(tuple(name.split(".")[1:])) for name in _imports(path) if name.startswith("counterpoint.")} - {"lab"}


def _wrong_arrows(path: Path) -> list[str]:
    room = _room(path)
    if room in {"__init__", "__main__", "testing", "lab/__init__", "lab/testing"}:
        return []
    if room not in HEIGHT:
        return [f"{room} is not a room of the house: a new room needs a decision note and a place in LAYERS"]
    out = []
    for target in sorted(_targets(path) - {room}):
        if target in {"testing", "lab/testing"} and "app/templates/" not in _relative(path):  # the tests that `counterpoint new` writes
            out.append(f"{_relative(path)} imports testing, which nothing in the package may")
        elif target in HEIGHT and HEIGHT[target] >= HEIGHT[room] and (room, target) not in ALLOWED:
            out.append(f"{_relative(path)} imports {target}: the arrow points up or sideways")
    return out


def test_there_are_files() -> None:
    assert {"trace", "formats", "store", "lab/team", "lab/train", "app", "lab/app"} <= {_room(path) for path in FILES}


def test_arrows_point_down() -> None:
    assert [wrong for path in FILES for wrong in _wrong_arrows(path)] == []


def test_heavy_imports_stay_where_they_belong() -> None:
    used = [(path, name) for path in FILES for name in sorted({n.split(".")[0] for n in _imports(path)} & set(HEAVY))]
    wrong = [f"{_relative(p)} imports {n}; only {HEAVY[n]} may" for p, n in used if not _relative(p).startswith(HEAVY[n])]
    assert wrong == []


def test_mathematics_reads_nothing_from_the_world() -> None:
    pure = [path for path in FILES if _relative(path).startswith(PURE)]
    assert pure
    used = {_relative(path): {n.split(".")[0] for n in _imports(path)} & IMPURE_MODULES for path in pure}
    assert [f"{path} imports {sorted(names)}: this room is pure" for path, names in used.items() if names] == []


def _shrinks(found: Iterable[str], listed: Collection[str], rule: str) -> None:
    """Nothing breaks the rule but what is listed, and all that is listed still does."""
    now = set(found)
    assert sorted(now - set(listed)) == [], rule
    assert sorted(set(listed) - now) == [], "these keep the rule now: take them off the list"


# -- modules and who imports whom ----------------------------------------------------------------------------------------


def _module(path: Path) -> str:
    return ".".join(("counterpoint", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {_module(path): path for path in FILES}


@cache
def _targets_of(path: Path) -> frozenset[str]:
    """The modules that a file imports, anywhere in it, under TYPE_CHECKING too; through a face is from the face; so are strings that
    name a module (`importlib.import_module("counterpoint.x")`, "counterpoint.x:object")."""
    out: set[str] = set()
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            out |= inside & MODULES.keys() or {node.module}
            out |= {node.module} if inside - MODULES.keys() else set()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            out.add(node.value.partition(":")[0])
    return frozenset((out & MODULES.keys()) - {_module(path)})


def _package(path: Path) -> str:
    return _module(path) if path.name == "__init__.py" else _module(path).rpartition(".")[0]


def test_the_core_never_imports_the_laboratory() -> None:
    """Under TYPE_CHECKING, in a function and by a string that names a module too."""
    core = [path for path in FILES if not _relative(path).startswith("lab/")]
    wrong = [f"{_module(path)} -> {target}" for path in core for target in _targets_of(path) if f"{target}.".startswith("counterpoint.lab.")]
    assert wrong == [], "the core imports nothing of the laboratory; the laboratory hangs in by entry points"


PRIVATE: set[str] = set()


def test_what_begins_with_an_underscore_is_imported_by_its_own_folder_only() -> None:
    found = []
    for path in FILES:
        for target in _targets_of(path):
            parts = target.split(".")
            at = next((i for i, part in enumerate(parts) if part.startswith("_")), None)
            if at is not None and not f"{_package(path)}.".startswith(".".join(parts[:at]) + "."):
                found.append(f"{_module(path)} -> {target}")
    _shrinks(found, PRIVATE, "an underscore means private to its folder")


def _circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of two and more modules that reach each other (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            out.append(sorted(stack[at:]))
            del stack[at:]

    for v in graph:
        if v not in index:
            visit(v)
    return [part for part in out if len(part) > 1]


def test_circles_are_found() -> None:
    assert _circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert _circles({"a": {"b"}, "b": set()}) == []


CIRCLES: set[str] = set()


def test_no_room_goes_in_circles() -> None:
    room = {name: _room(path) for name, path in MODULES.items()}
    graph = {name: {t for t in _targets_of(path) if room[t] == room[name]} for name, path in MODULES.items()}
    _shrinks([" ".join(part) for part in _circles(graph)], CIRCLES, "modules of a room import each other in a circle")


# -- names ---------------------------------------------------------------------------------------------------------------

FACES = {"__init__.py", "trace/__init__.py", "store/__init__.py", "testing.py", "lab/testing.py"}
# The noun says what a kind of thing is; its kinds are the plural folder.
NOUNS = {
    "credits/mechanism.py": "credits/mechanisms",
    "rewards/reward.py": "rewards/terms",
    "formats/format.py": "formats",
    "app/viewer/panel.py": "app/viewer/panels",
    "lab/worlds/world.py": "lab/worlds",
    "lab/tasks/task.py": "lab/tasks",
    "lab/lm/model.py": "lab/lm/models",
    "lab/team/tool.py": "lab/team/tools",
    "lab/team/topology.py": "lab/team/topologies",
    "lab/train/preset.py": "lab/train/presets",
    "lab/train/loss.py": "lab/train/losses",
    "lab/train/runner.py": "lab/train/runners",
    "lab/bench/claim.py": "lab/bench/claims",
    "lab/trainers/trainer.py": "lab/trainers",
}


@pytest.mark.parametrize("noun", NOUNS)
def test_the_noun_is_a_file_and_its_kinds_are_a_folder(noun: str) -> None:
    assert (PACKAGE / noun).is_file()
    assert (PACKAGE / NOUNS[noun]).is_dir()


def test_plugins_lie_in_folders_of_nouns() -> None:
    folders = {name.removeprefix("counterpoint.").replace(".", "/") for kind in registry.kinds() for name in registry.packages(kind)}
    assert folders - {"app/cli", "lab/app/cli"} <= set(NOUNS.values())


ALL: set[str] = set()


def test_only_faces_list_their_names() -> None:
    found = [_relative(p) for p in FILES if any(isinstance(n, ast.Name) and n.id == "__all__" for n in _nodes(p))]
    _shrinks(set(found) - FACES, ALL, "`__all__` stands in faces only")


PASSES_ON: set[str] = set()


def test_no_file_only_passes_names_on() -> None:
    def is_import(node: ast.stmt) -> bool:
        if isinstance(node, ast.If):  # TYPE_CHECKING
            return all(map(is_import, node.body))
        is_all = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return is_all or is_text or isinstance(node, ast.Import | ast.ImportFrom)

    empty = {p for p in FILES if all(isinstance(n, ast.Expr) for n in _tree(p).body)}  # the docstring of a folder
    found = [_relative(p) for p in FILES if p not in empty and all(map(is_import, _tree(p).body))]
    _shrinks(set(found) - FACES, PASSES_ON, "a file for re-export alone: import from where a name is defined")


# -- length --------------------------------------------------------------------------------------------------------------


def test_files_are_short() -> None:
    lengths = {_relative(path): _text(path).count("\n") for path in FILES}
    assert [f"{path} has {length} lines: split it by idea" for path, length in lengths.items() if length > 500] == []


def test_functions_are_short() -> None:
    wrong = []
    for path in FILES:
        for node in _nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > 50:
                    wrong.append(f"{_relative(path)}:{node.lineno} {node.name} has {length} lines")
    assert wrong == []


def test_every_file_says_what_it_is() -> None:
    silent = [_relative(path) for path in FILES if path.stat().st_size and not ast.get_docstring(_tree(path))]
    assert silent == [], "these have no docstring"


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in out.stdout.split()}


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = {"numpy", "pyarrow", "duckdb", "click", "numba", "torch", "polars", "pandas"}
    assert not _loaded_by("import counterpoint") & heavy


def test_help_loads_no_command_and_no_library() -> None:
    loaded = _loaded_by("import counterpoint.app.cli as c; c.cli.main(['--help'], standalone_mode=False)")
    assert not loaded & {"numpy", "pyarrow", "duckdb", "msgspec", "numba", "torch"}


def test_listing_a_store_loads_neither_arrays_nor_tables() -> None:
    assert not _loaded_by("import counterpoint.app.cli.ls, counterpoint.store.listing") & {"numpy", "pyarrow", "duckdb", "numba"}


def test_reading_a_small_trace_needs_no_columnar_library() -> None:
    assert not _loaded_by("from counterpoint.trace import decode") & {"pyarrow", "duckdb", "numba", "torch"}


def test_no_machine_path_in_what_we_ship() -> None:
    shipped = [p for folder in ("src", "docs", "examples", "benchmarks") for p in (ROOT / folder).rglob("*") if p.is_file()]
    texts = {
        p: p.read_text(errors="ignore") for p in [*shipped, ROOT / "README.md"] if p.suffix in {".py", ".md", ".toml", ".jsonl"}
    }
    for path, text in texts.items():
        # Codex calls the thread at the top of a tree /root, which is a home too; the people of our samples live in /home/ada.
        home = [] if "codex" in path.as_posix() else [f"{Path.home()}/"]
        for mark in (f"{ROOT}/", *home, "/home/"):
            assert mark not in text.replace("/home/ada/", ""), f"{path.relative_to(ROOT)} names a machine path: {mark}"


_PATH = re.compile(r"(?<![\w*./{<-])(?:\w+/)*\w+\.py\b")
_ANY_NAME = ("NAME.py", "plugin_name.py", "import_.py", "my/file.py", "path/to/file.py")
"""Names that stand for any module, and for files of a user."""


def test_modules_that_docstrings_and_comments_name_are_there() -> None:
    """By the path from a folder that the file is in: its own, the package, the repository."""
    for path in FILES:
        strings = (n.value for n in _nodes(path) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
        texts = [*re.findall(r"#.*", _text(path)), *(n.value for n in strings if isinstance(n.value, str))]
        names = {name for text in texts for name in _PATH.findall(text) if not name.endswith(_ANY_NAME)}
        gone = [name for name in names if not any((folder / name).exists() for folder in path.parents)]
        assert not gone, f"{_relative(path)} names {gone}"
