"""The house rules that a machine can hold: arrows, heavy imports, length of files and functions."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "counterpoint"
FILES = sorted(PACKAGE.rglob("*.py"))

# Bottom to top; rooms in one row never import each other. `testing.py` may import anything, and nothing imports it.
LAYERS = [
    {"registry", "errors", "files"},
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
    # Two servers: the viewer's, and the OTLP receiver, which is one file and is imported only by `serve`.
    "starlette": ("app/viewer/", "app/receiver.py"),
    "uvicorn": ("app/viewer/", "app/receiver.py"),
    "numba": ("trace/kernels.py", "envs/", "credit/", "train/"),
    "duckdb": ("store/",),
    "openai": ("team/",),
    "requests": (),
    "networkx": (),
    "pandas": (),
    "matplotlib": ("app/plots/",),
}
# Mathematics reads no file, clock, network, environment or hidden random state.
PURE = ("trace/", "reward/", "credit/", "audit/", "train/losses.py")
IMPURE_MODULES = {"os", "io", "pathlib", "time", "random", "socket", "urllib", "http", "subprocess", "tempfile", "shutil"}


def _relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _room(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def _imports(path: Path) -> set[str]:
    out: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
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


@pytest.mark.parametrize("path", FILES, ids=_relative)
def test_arrows_point_down(path: Path) -> None:
    room = _room(path)
    if room in {"__init__", "testing"}:
        return
    assert room in HEIGHT, f"{room} is not a room of the house: a new room needs a decision note and a place in LAYERS"
    for target in _targets(path) - {room}:
        if target not in HEIGHT:
            assert target not in {"testing"}, f"{_relative(path)} imports testing, which nothing in the package may"
            continue
        is_down = HEIGHT[target] < HEIGHT[room] or (room, target) in ALLOWED
        assert is_down, f"{_relative(path)} imports {target}: the arrow points up or sideways"


@pytest.mark.parametrize("path", FILES, ids=_relative)
def test_heavy_imports_stay_where_they_belong(path: Path) -> None:
    for name in {n.split(".")[0] for n in _imports(path)} & set(HEAVY):
        assert _relative(path).startswith(HEAVY[name]), f"{_relative(path)} imports {name}; only {HEAVY[name]} may"


@pytest.mark.parametrize("path", [p for p in FILES if _relative(p).startswith(PURE)], ids=_relative)
def test_mathematics_reads_nothing_from_the_world(path: Path) -> None:
    used = {n.split(".")[0] for n in _imports(path)} & IMPURE_MODULES
    assert not used, f"{_relative(path)} imports {sorted(used)}: this room is pure"


@pytest.mark.parametrize("path", FILES, ids=_relative)
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400, f"{_relative(path)} has {text.count(chr(10))} lines: split it by idea"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 50, f"{_relative(path)}:{node.lineno} {node.name} has {length} lines"


@pytest.mark.parametrize("path", [p for p in FILES if p.stat().st_size], ids=_relative)
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{_relative(path)} has no docstring"


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
