"""What `pytest --counterpoint` does: each test's runs are kept, held to limits, and named where the test fails.

Always true: a run counts for the test in which it ended; limits are asked of a test that passed so far; what a limit needs and
nobody measured breaks it. A recording goes to the store that its program names, and a copy of it to the store of the tests.
"""

from __future__ import annotations

import math
import os
import secrets
import threading
from collections.abc import Collection, Generator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

import counterpoint.recorder.witness as witness
from counterpoint.app.api.gate import limit_checks
from counterpoint.display import counted, money
from counterpoint.errors import CounterpointError
from counterpoint.recorder.recording import Recording
from counterpoint.store import Store
from counterpoint.store.place import store_path
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace
from counterpoint.trace.keys import TEST

_STORE = "COUNTERPOINT_STORE"
_PROPERTY = "counterpoint_run"
"""What a run is called in the properties of a test, which JUnit XML has, too."""


class _Ended(NamedTuple):
    trace_id: str
    sealed: Future[Trace | None]


class Teams:
    """The teams of a session of tests, in one process."""

    def __init__(self, config: pytest.Config, limits: Collection[str]) -> None:
        """Open the store, which programs use that name no other; `limits` are the names of those there are."""
        self._names = tuple(limits)
        self._settings = _of_settings(config, self._names)
        named = config.getoption("counterpoint_store")
        folder = config.invocation_params.dir
        if not named and (named := config.getini("counterpoint_store")):
            folder = config.inipath.parent if config.inipath is not None else config.rootpath
        self._path = Path(os.path.abspath(folder / named if named else store_path()))
        try:
            with Store(self._path):
                pass
        except (CounterpointError, OSError) as error:
            raise pytest.UsageError(f"--counterpoint: {error}") from error
        config.option.counterpoint_store = os.fspath(self._path)  # as the workers of xdist get it
        near = os.path.relpath(self._path, config.invocation_params.dir)
        self._shown = os.fspath(self._path) if near.startswith("..") else near
        self._before = os.environ.get(_STORE)
        os.environ[_STORE] = os.fspath(self._path)
        self.own: Recording | None = None
        """The recording of the fixture, while its test runs."""
        self._lock = threading.Lock()
        self._test: str | None = None
        self._running: set[str] = set()
        self._ended: list[_Ended] = []
        self._runs: dict[str, Summary] = {}
        self._lost: list[str] = []
        self._is_due = self._is_past = False
        self._kept: dict[str, list[str]] = {}
        witness.add(self)

    def pytest_unconfigure(self) -> None:
        """Leave the process as it was."""
        witness.remove(self)
        if self._before is None:
            os.environ.pop(_STORE, None)
        else:
            os.environ[_STORE] = self._before

    # -- what recordings say -------------------------------------------------------------------------------------------

    def begin(self, trace_id: str) -> Mapping[str, Any]:
        """A recording begins; its trace says in which test."""
        with self._lock:
            self._running.add(trace_id)
        return {} if self._test is None else {TEST: self._test}

    def end(self, trace_id: str, events: int, sealed: Future[Trace | None]) -> None:
        """It ended in the test that runs now; one in which nothing happened is no run."""
        with self._lock:
            self._running.discard(trace_id)
            if events:
                self._ended.append(_Ended(trace_id, sealed))

    # -- a test --------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A test begins, with no run of its own."""
        self._test, self.own = item.nodeid, None
        self._runs, self._lost, self._running = {}, [], set()
        self._is_due = self._is_past = False
        _limits_of(item, self._settings, self._names)  # a marker that says nothing fails before a team costs anything

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Limits are part of a test, where all that it records has ended."""
        try:
            result = yield
        except BaseException as error:
            self._end_own(error)
            self._read(item)
            raise
        self._end_own(None)
        self._read(item)
        if self._running:  # a fixture's recording goes on: limits are asked after its end
            self._is_due = True
        else:
            self._hold(item)
        self._is_past = True
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Limits of a test that passed and whose fixtures record."""
        before = len(self._runs)
        try:
            result = yield
        finally:
            self._read(item)
            self._test = None
        if self._is_past and (self._is_due or len(self._runs) > before):
            self._hold(item)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A test that fails says how to look at its runs."""
        report = yield
        if report.failed and (self._runs or self._lost):
            report.sections.append(("Counterpoint", "\n".join([*map(self._line, self._runs.values()), *self._lost])))
        return report

    def _end_own(self, error: BaseException | None) -> None:
        """The fixture's recording ends; a wrong answer or a skipped test is no failure of the team's."""
        own, self.own = self.own, None
        if own is not None:
            failed = error if isinstance(error, Exception) and not isinstance(error, AssertionError) else None
            own.__exit__(None if failed is None else type(failed), failed, None)

    def _read(self, item: pytest.Item) -> None:
        """Wait for what has ended to be sealed."""
        with self._lock:
            ended, self._ended = self._ended, []
        for one in ended:
            trace = one.sealed.result()
            if trace is None:
                self._lost.append(f"nothing is kept of {one.trace_id}: it was broken off, or the disk refused it")
                continue
            try:
                trace = self._copy(trace)
            except (CounterpointError, OSError) as error:
                self._lost.append(f"{one.trace_id} is not in {self._shown}: {error}")
            self._runs[trace.trace_id] = Summary.of_trace(trace)
            item.user_properties.append((_PROPERTY, trace.trace_id))

    def _copy(self, trace: Trace) -> Trace:
        """The trace as the store of the tests has it: under another id where this one is another run's."""
        with Store(self._path) as store:
            if trace.trace_id in store:
                if store.get(trace.trace_id).meta.get("began") == trace.meta.get("began"):
                    return trace
                trace = replace(trace, trace_id=f"{trace.trace_id}-{secrets.token_hex(3)}")
            store.add(trace)
        return trace

    def _hold(self, item: pytest.Item) -> None:
        """Fail the test where its runs break a limit, or nothing says whether they do."""
        limits = _limits_of(item, self._settings, self._names)
        is_marked = any(True for _ in item.iter_markers("counterpoint"))
        if not limits or not (is_marked or self._runs or self._lost):
            return  # a test without a team
        if not self._runs:
            pytest.fail(f"counterpoint: not measured: no run ended in this test ({', '.join(limits)})", pytrace=False)
        checks = limit_checks(list(self._runs.values()), **{**dict.fromkeys(self._names), **limits})
        broken = [one for one in checks if not one.passed]
        lines = []
        for one in broken:
            lines.append(f"counterpoint: {one.name} {'not measured' if one.ok is None else 'broken'}: {one.words}")
            lines += [f"  {self._command(run)}" for run in one.runs[:1]]
        if not broken and self._lost:
            lines = ["counterpoint: not measured: a run of this test is lost", *self._lost]
        if lines:
            pytest.fail("\n".join(lines), pytrace=False)

    def _command(self, trace_id: str) -> str:
        return f"counterpoint show {trace_id} --store {self._shown}"

    def _line(self, run: Summary) -> str:
        reward = "" if run.team_reward is None else f", team reward {run.team_reward:g}"
        failed = f", {counted(run.errors, 'failed call')}" if run.errors else ""
        return f"{self._command(run.id)}  # {counted(run.events, 'event')}, {money(run.cost_usd)}{failed}{reward}"

    # -- the session ---------------------------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what workers say, too."""
        if report.when == "teardown":
            runs = [str(value) for name, value in report.user_properties if name == _PROPERTY]
            if runs:
                self._kept[report.nodeid] = runs

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """How many runs there are, and what to do with them."""
        runs = sum(map(len, self._kept.values()))
        terminalreporter.write_sep("-", "counterpoint")
        terminalreporter.write_line(f"{counted(runs, 'run')} of {counted(len(self._kept), 'test')} in {self._shown}")
        if runs:
            terminalreporter.write_line(f"counterpoint gate --store {self._shown} --max-failures 0")


# -- limits --------------------------------------------------------------------------------------------------------------


def _of_settings(config: pytest.Config, names: Sequence[str]) -> dict[str, float]:
    out = {}
    for name in names:
        if text := config.getini(f"counterpoint_{name}"):
            try:
                out[name] = float(text)
            except ValueError:
                out[name] = math.nan
            if not math.isfinite(out[name]):
                raise pytest.UsageError(f"counterpoint_{name} = {text}: give a finite number")
    return out


def _limits_of(item: pytest.Item, settings: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """The limits of a test: what its nearest marker says, then those around it, then the settings; None lifts a limit."""
    out: dict[str, Any] = {}
    for marker in item.iter_markers("counterpoint"):
        if marker.args or (strange := [name for name in marker.kwargs if name not in names]):
            what = repr(marker.args[0]) if marker.args else strange[0]
            pytest.fail(f"@pytest.mark.counterpoint: no limit {what}: name {', '.join(names)}", pytrace=False)
        for name, value in marker.kwargs.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)):
                pytest.fail(f"@pytest.mark.counterpoint({name}={value!r}): give a finite number, or None", pytrace=False)
            out.setdefault(name, value)
    return {name: value for name, value in {**settings, **out}.items() if value is not None}
