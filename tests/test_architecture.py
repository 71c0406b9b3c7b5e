"""The house rules that a machine can hold: arrows, heavy imports, length of files and functions."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "counterpoint"
FILES = sorted(PACKAGE.rglob("*.py"))

# Bottom to top; rooms in one row never import each other. `testing.py` may import anything, and nothing imports it.
LAYERS = [
    {"registry", "errors", "files", "display"},
    {"trace"},
    {"formats", "store", "envs", "reward", "credit", "audit", "corpus"},
    {"team"},
    {"train"},
    {"bench"},
    {"app"},
]
HEIGHT = {room: height for height, row in enumerate(LAYERS) for room in row}
# The arrows inside a row: everything may say what went wrong.
ALLOWED = {("registry", "errors"), ("files", "errors")}

# Who may import what is slow to import, optional, or reaches out.
HEAVY = {
    "torch": ("train/", "team/"),
    "transformers": ("train/", "team/"),
    "ray": ("train/ray_runner.py",),
    # Two servers: the viewer's, and the OTLP receiver, with what both share, imported only by `serve` and `view`.
    "starlette": ("app/viewer/", "app/receiver.py"),
    "uvicorn": ("app/viewer/", "app/receiver.py", "app/_connections.py"),
    "triton": ("team/lm/kernels.py",),
    "numba": ("trace/kernels.py", "envs/", "credit/", "train/"),
    "duckdb": ("store/",),
    "openai": ("team/",),
    "requests": (),
    "networkx": (),
    "pandas": (),
    "matplotlib": ("app/plots/",),
}
# Mathematics reads no file, clock, network, environment or hidden random state.
PURE = ("trace/", "reward/", "credit/", "audit/", "train/objectives.py")
IMPURE_MODULES = {"os", "io", "pathlib", "time", "random", "socket", "urllib", "http", "subprocess", "tempfile", "shutil"}


def _relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _room(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _imports(path: Path) -> set[str]:
    out: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            out.add(node.module)
            out |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            pytest.fail(f"{_relative(path)}: relative import; name the module in full")
    return out


def _targets(path: Path) -> set[str]:
    return {name.split(".")[1] for name in _imports(path) if name.startswith("counterpoint.") and "." in name}


def _wrong_arrows(path: Path) -> list[str]:
    room = _room(path)
    if room in {"__init__", "__main__", "testing"}:
        return []
    if room not in HEIGHT:
        return [f"{room} is not a room of the house: a new room needs a decision note and a place in LAYERS"]
    out = []
    for target in sorted(_targets(path) - {room}):
        if target == "testing":
            out.append(f"{_relative(path)} imports testing, which nothing in the package may")
        elif target in HEIGHT and HEIGHT[target] >= HEIGHT[room] and (room, target) not in ALLOWED:
            out.append(f"{_relative(path)} imports {target}: the arrow points up or sideways")
    return out


def test_there_are_files() -> None:
    assert {"trace", "formats", "store", "team", "train", "app"} <= {_room(path) for path in FILES}


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


def test_files_are_short() -> None:
    lengths = {_relative(path): path.read_text().count("\n") for path in FILES}
    assert [f"{path} has {length} lines: split it by idea" for path, length in lengths.items() if length > 500] == []


def test_functions_are_short() -> None:
    wrong = []
    for path in FILES:
        for node in ast.walk(_tree(path)):
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
    heavy = {"numpy", "pyarrow", "duckdb", "click", "rich", "numba", "torch", "polars", "pandas"}
    assert not _loaded_by("import counterpoint") & heavy


def test_help_loads_no_command_and_no_library() -> None:
    loaded = _loaded_by("import counterpoint.app.cli as c; c.cli.main(['--help'], standalone_mode=False)")
    assert not loaded & {"numpy", "pyarrow", "duckdb", "rich", "msgspec", "numba", "torch"}


def test_reading_a_small_trace_needs_no_columnar_library() -> None:
    assert not _loaded_by("from counterpoint.trace import decode") & {"pyarrow", "duckdb", "numba", "torch"}


def test_no_machine_path_in_what_we_ship() -> None:
    shipped = [p for folder in ("src", "docs", "examples", "benchmarks") for p in (ROOT / folder).rglob("*") if p.is_file()]
    texts = {p: p.read_text(errors="ignore") for p in [*shipped, ROOT / "README.md"] if p.suffix in {".py", ".md", ".toml", ".jsonl"}}
    for path, text in texts.items():
        # Codex calls the thread at the top of a tree /root, which is a home too.
        home = [] if "codex" in path.as_posix() else [f"{Path.home()}/"]
        for mark in (f"{ROOT}/", *home, "/home/"):
            assert mark not in text, f"{path.relative_to(ROOT)} names a machine path: {mark}"
