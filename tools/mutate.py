"""Would the tests notice? `python tools/mutate.py MODULE [-n 40] [--seed 0]`, or `make mutate MODULE=store/log N=40 SEED=0`.

Always true: the working tree is never changed. A copy is, one mutant at a time, and the tests that run the changed line run on
it, cheapest first, until one fails. A test that hangs has noticed; a line that no test runs is not noticed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import coverage
import pytest
from _draw import Mutant, draw

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".mutants"
TAKEN = ("src", "tests", "docs", "examples", "benchmarks", "pyproject.toml", "README.md", "Makefile", "constraints.txt")
# Lines that ran outside of any test (at import, in a fixture that a whole file shares) belong to every test of the file.
OUTSIDE = ""
# Loaded once, here: every child begins with them. Not numba, because `trace.kernels` asks whether somebody has loaded it.
WARM = ("numpy", "pyarrow", "msgspec", "zstandard", "hypothesis", "hypothesis.strategies", "click", "duckdb")
UNUSED = ("cacheprovider", "xdist", "langsmith_plugin", "anyio")
ARGUMENTS = ["-q", "--no-header", "-W", "ignore", *(word for name in UNUSED for word in ("-p", f"no:{name}"))]


@dataclass
class Test:
    """One test of the map: its id, what it took, and which lines of the room it ran."""

    id: str
    seconds: float
    lines: dict[str, list[int]] = field(default_factory=dict)

    @property
    def function(self) -> str:
        return self.id.split("[")[0]


class _Map:
    """A pytest plug-in: the lines of each test, by coverage's contexts."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.measured.switch_context(item.nodeid)
        start = time.perf_counter()
        yield
        self.seconds[item.nodeid] = time.perf_counter() - start
        self.measured.switch_context(OUTSIDE)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            yield
            return
        self.measured.switch_context(OUTSIDE)
        yield
        self.measured.switch_context(request._pyfuncitem.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self.failed.add(report.nodeid)


class _Chosen:
    """A pytest plug-in: only these tests, in this order."""

    def __init__(self, ids: list[str]) -> None:
        self.place = {test: k for k, test in enumerate(ids)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.place), key=lambda i: self.place[i.nodeid])


def warm_up() -> None:
    """Load here what every child needs: the libraries, and pytest with its plug-ins."""
    for name in WARM:
        __import__(name)
    with tempfile.TemporaryDirectory() as nothing, open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet):
        pytest.main([*ARGUMENTS, "-c", os.devnull, "--rootdir", nothing, nothing])


def copy_of(folder: Path) -> Path:
    """The tree as it is now, without what git ignores, beside a link to the reference data where that exists."""
    here = folder / "tree"
    here.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard", *TAKEN], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, here / name)
    if (ROOT.parent / "shared").is_dir():
        (folder / "shared").symlink_to(ROOT.parent / "shared")
    return here


def in_child(tree: Path, work: Callable[[], int], limit_s: float | None = None) -> int | None:
    """Run this in a process of its own that sees only the copy; its exit code, or None where it took too long."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            os.chdir(tree)
            os.environ.update(PYTHONPATH=str(tree / "src"), HOME=str(tree.parent), COUNTERPOINT_EXAMPLES="stated")
            # The copy itself too, as `python -m pytest` has it: workers that a test starts find `tests.lm_help` by it.
            sys.path[:] = [str(tree / "src"), str(tree), *(p for p in sys.path if p not in ("", str(ROOT), str(ROOT / "tools")))]
            with open(tree.parent / "said.txt", "w") as said:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                code = work()
                sys.stdout.flush()
        finally:
            os._exit(code)
    until = None if limit_s is None else time.monotonic() + limit_s
    pause = 0.005
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _end(child)
            return os.waitstatus_to_exitcode(status)
        if until is not None and time.monotonic() > until:
            _end(child)
            os.waitpid(child, 0)
            return None
        time.sleep(pause)
        pause = min(0.05, pause * 1.2)


def _end(group: int) -> None:
    """What a test started, and left running when it was ended, ends with it."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _measure(tree: Path, test_file: str, room: Path, out: Path) -> int:
    measured = coverage.Coverage(
        data_file=str(tree.parent / "coverage"), include=[f"{tree / room}/*"], config_file=False, messages=False
    )
    measured.erase()
    plugin = _Map(measured)
    measured.start()
    pytest.main([*ARGUMENTS, test_file], plugins=[plugin])
    measured.stop()
    found = measured.get_data()
    lines: dict[str, dict[str, list[int]]] = {}
    for name in found.measured_files():
        for line, contexts in found.contexts_by_lineno(name).items():
            for context in contexts:
                lines.setdefault(context, {}).setdefault(str(Path(name).relative_to(tree)), []).append(line)
    tests = [[i, s, lines.get(i, {})] for i, s in plugin.seconds.items() if i not in plugin.failed]
    out.write_text(json.dumps({"tests": tests, "outside": lines.get(OUTSIDE, {}), "failed": sorted(plugin.failed)}))
    return 0


def _sum(tree: Path, room: Path, test_file: str) -> str:
    """What the lines of a test file depend on: the room, the helpers of the tests, and the file itself."""
    total = hashlib.sha256(f"3 {room} {test_file}".encode())
    for path in [*sorted((tree / room).rglob("*.py")), *sorted((tree / "tests").glob("*.py")), tree / test_file]:
        total.update(path.read_bytes())
    return total.hexdigest()[:20]


def mapped(tree: Path, room: Path, test_files: list[str]) -> tuple[list[Test], list[str]]:
    """The tests that pass unchanged, with their lines, and those that do not. Kept until the room or the test changes."""
    KEPT.mkdir(exist_ok=True)
    tests: list[Test] = []
    failed: list[str] = []
    for name in test_files:
        kept = KEPT / f"{Path(name).stem}-{_sum(tree, room, name)}.json"
        if not kept.exists():
            print(f"  map of {name}", file=sys.stderr, flush=True)
            fresh = tree.parent / "map.json"
            fresh.unlink(missing_ok=True)
            in_child(tree, lambda name=name, fresh=fresh: _measure(tree, name, room, fresh))  # type: ignore[misc]
            if not fresh.exists():
                raise SystemExit(f"error: {name} could not be measured:\n{(tree.parent / 'said.txt').read_text()[-3000:]}")
            shutil.copy(fresh, f"{kept}.{os.getpid()}")
            os.replace(f"{kept}.{os.getpid()}", kept)
        found = json.loads(kept.read_text())
        for i, seconds, lines in found["tests"]:
            both = {f: sorted({*lines.get(f, []), *found["outside"].get(f, [])}) for f in {**lines, **found["outside"]}}
            tests.append(Test(i, seconds, both))
        failed += found["failed"]
    return tests, failed


def order(tests: list[Test]) -> list[Test]:
    """Cheapest first, and one of each parametrized test before a second of any."""
    seen: dict[str, int] = {}
    rows = []
    for test in sorted(tests, key=lambda t: t.seconds):
        rows.append((seen.get(test.function, 0) > 0, test.seconds, test.id, test))
        seen[test.function] = seen.get(test.function, 0) + 1
    return [row[3] for row in sorted(rows, key=lambda r: r[:3])]


def _is_in_a_function(text: str, line: int) -> bool:
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return any(f.body[0].lineno <= line <= (f.end_lineno or 0) for f in functions)


def covering(tests: list[Test], mutant: Mutant) -> list[Test]:
    """The tests that run the line. A statement over several lines counts as its first, so a line that is none looks upwards.

    What runs when the module is loaded (constants, defaults, decorators) runs in whichever test comes first, and is meant for all
    that use the module.
    """
    mine = [t for t in tests if t.lines.get(mutant.path)]
    if not _is_in_a_function(mutant.text, mutant.line):
        return order(mine)
    known = {line for test in mine for line in test.lines[mutant.path]}
    line = next((k for k in range(mutant.line, max(0, mutant.line - 12), -1) if k in known), mutant.line)
    return order([t for t in mine if line in t.lines[mutant.path]])


def is_noticed(tree: Path, mutant: Mutant, tests: list[Test], stamp: int) -> str:
    """How the tests took it: "noticed", "noticed (time)", "survived" or "survived (no test)"."""
    if not tests:
        return "survived (no test)"
    path = tree / mutant.path
    clean = path.read_text()
    files = list(dict.fromkeys(t.id.split("::")[0] for t in tests))
    try:
        path.write_text(mutant.text)
        # A time of its own: compiled Python and numba's cache take a file of the same time and size for the same.
        os.utime(path, (stamp, stamp))
        chosen = [*ARGUMENTS, "-x", "--hypothesis-seed=0", *files]
        limit_s = 30 + 6 * sum(t.seconds for t in tests)
        code = in_child(tree, lambda: int(pytest.main(chosen, plugins=[_Chosen([t.id for t in tests])])), limit_s)
    finally:
        path.write_text(clean)
        os.utime(path, (stamp + 1, stamp + 1))
    return "noticed (time)" if code is None else "survived" if code == 0 else "noticed"


def _files(module: str) -> dict[str, Path]:
    path = ROOT / "src" / "counterpoint" / module
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_name(path.name.removesuffix(".py") + ".py")]
    if not all(p.is_file() for p in found) or not found:
        raise SystemExit(f"error: there is no module src/counterpoint/{module}; try store/log, or trace for a whole room")
    return {str(p.relative_to(ROOT)): p for p in found}


def _test_files(module: str, asked: list[str]) -> list[str]:
    room = module.split("/")[0].removesuffix(".py")
    folders = [ROOT / name for name in asked] or [ROOT / "tests" / room, ROOT / "tests" / f"test_{room}.py"]
    found = [p for f in folders for p in (sorted(f.rglob("test_*.py")) if f.is_dir() else [f]) if p.is_file()]
    return list(dict.fromkeys(str(p.relative_to(ROOT)) for p in found))


def report(rows: list[dict[str, Any]], failed: list[str]) -> None:
    """The survivors with their changes, then the table."""
    for row in rows:
        if row["outcome"].startswith("survived"):
            print(f"\n{row['path']}:{row['line']}  {row['operator']}  {row['outcome']}, {row['tests']} tests\n{row['diff']}")
    if failed:
        print(f"\nleft out, since they do not pass unchanged: {len(failed)} tests, such as {failed[0]}")
    print(f"\n{'module':44} {'noticed':>8} {'survived':>9} {'share':>7}")
    names = sorted({row["path"] for row in rows})
    for name in [*names, "all"]:
        mine = [r["outcome"].startswith("noticed") for r in rows if name in ("all", r["path"])]
        if mine:
            share = sum(mine) / len(mine)
            print(f"{name.removeprefix('src/counterpoint/'):44} {sum(mine):8} {len(mine) - sum(mine):9} {share:7.0%}")


def again(file: Path, mutants: list[Mutant]) -> list[Mutant]:
    """Only those that survived in an earlier report of the same draw."""
    lived = {(r["path"], r["diff"]) for r in json.loads(file.read_text())["rows"] if r["outcome"].startswith("survived")}
    return [m for m in mutants if (m.path, m.diff) in lived]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make mutate", description="Random mutants of a module: would the tests notice?")
    parser.add_argument("module", help="store/log, or a whole room: trace")
    parser.add_argument("-n", "--number", type=int, default=40, help="how many mutants (40)")
    parser.add_argument("--seed", type=int, default=0, help="which draw (0)")
    parser.add_argument("--tests", nargs="*", default=[], metavar="PATH", help="these tests, instead of tests/<room>")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here as well")
    parser.add_argument("--again", type=Path, metavar="FILE", help="only the survivors of that result, from the same draw")
    asked = parser.parse_args(arguments)
    module = asked.module.removeprefix("src/counterpoint/").strip("/")
    mutants = draw(_files(module), asked.number, asked.seed)
    mutants = again(asked.again, mutants) if asked.again else mutants
    warm_up()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = copy_of(Path(folder).resolve())
        tests, failed = mapped(tree, Path("src/counterpoint") / module.split("/")[0], _test_files(module, asked.tests))
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        for k, mutant in enumerate(mutants):
            chosen = covering(tests, mutant)
            outcome = is_noticed(tree, mutant, chosen, 1_000_000_000 + 2 * k)
            rows.append({**mutant.told(), "outcome": outcome, "tests": len(chosen)})
            change = f"\n{mutant.diff}" if outcome.startswith("survived") else ""
            print(f"  {k + 1}/{len(mutants)} {mutant.path}:{mutant.line} {outcome}{change}", file=sys.stderr, flush=True)
    report(rows, failed)
    if asked.json:
        asked.json.write_text(json.dumps({"module": module, "seed": asked.seed, "failed": failed, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
