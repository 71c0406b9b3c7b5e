"""`pytest --counterpoint`, in processes of their own: what is kept, limits, fixtures, async tests, xdist, and nothing without it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest

import counterpoint as cpt

pytest_plugins = ["pytester"]
Pytest = Callable[..., pytest.RunResult]

TEAM = """
    import counterpoint

    rec = counterpoint.record(task="bridge", agent="lead")

    @rec.tool
    def read(page):
        if page == "gone":
            raise OSError("no such page")
        return "It opened in 1932."

    @rec.model(name="fake")
    def ask(prompt, cost=0.5):
        rec.tell(cost_usd=cost, tokens_in=10, tokens_out=2)
        return prompt.upper()

    @rec.agent
    def lead(pages=("s1",), cost=0.5):
        found = []
        for page in pages:
            try:
                found.append(read(page))
            except OSError:
                found.append("nothing")
        return ask(" ".join(found), cost)

    def run(reward=1.0, **asked):
        with counterpoint.record(task="bridge", agent="lead") as one:
            answer = lead(**asked)
            if reward is not None:
                one.reward(team=reward)
        return answer
"""


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Pytest:
    """Run pytest on a file of tests, beside `team.py`; the plug-in is found as pytest finds those of installed packages."""
    points = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    info = pytester.path / "site" / "counterpoint_tests-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counterpoint-tests\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()))
    source = Path(cpt.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{source}:{info.parent}:{pytester.path}")
    monkeypatch.delenv("COUNTERPOINT_STORE", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(pytester.path / "home"))
    pytester.makepyfile(team=TEAM)

    def ran(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_team=source)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:langsmith_plugin", *options)

    return ran


def kept(folder: Path, store: str = "runs") -> list[cpt.Trace]:
    with cpt.Store(folder / store, read_only=True) as place:
        return [place.get(row.id) for row in place.rows()]


ON = ("--counterpoint", "--counterpoint-store", "runs")


def test_runs_are_kept_with_their_test_and_named_where_it_fails(pytester: pytest.Pytester, tests: Pytest) -> None:
    done = tests(
        """
        from team import run

        def test_right():
            assert run() == "IT OPENED IN 1932."

        def test_wrong():
            assert run() == "IT OPENED IN 1933."

        def test_no_team():
            pass
        """,
        *ON, "--junitxml", "junit.xml",
    )  # fmt: skip
    done.assert_outcomes(passed=2, failed=1)
    traces = {trace.meta["test"]: trace for trace in kept(pytester.path)}
    assert set(traces) == {"test_team.py::test_right", "test_team.py::test_wrong"}
    wrong = traces["test_team.py::test_wrong"]
    assert cpt.problems(wrong) == []
    done.stdout.fnmatch_lines([f"counterpoint show {wrong.trace_id} --store runs  # * events, $0.50, team reward 1"])
    done.stdout.fnmatch_lines(["2 runs of 2 tests in runs", "counterpoint gate --store runs *"])
    cases = {case.attrib["name"]: case for case in xml.parse(pytester.path / "junit.xml").iter("testcase")}
    assert [p.attrib["value"] for p in cases["test_wrong"].iter("property")] == [wrong.trace_id]
    assert list(cases["test_no_team"].iter("property")) == []


def test_limits_of_markers_and_settings(pytester: pytest.Pytester, tests: Pytest) -> None:
    pytester.makeini("[pytest]\ncounterpoint_max_cost = 0.9\ncounterpoint_store = kept\naddopts = --counterpoint --strict-markers\n")
    done = tests(
        """
        import pytest
        from team import run

        mark = pytest.mark.counterpoint

        def test_cheap():
            run()

        def test_twice():
            run(), run()

        @mark(max_cost=1.0, max_failures=0)
        def test_wider():
            run(), run()

        @mark(max_cost=None)
        def test_lifted():
            run(cost=50.0)

        @mark(max_failures=1)
        def test_failures():
            run(pages=["gone", "gone"])

        @mark(min_score=0.6)
        def test_score():
            run(reward=0.5)

        @mark(min_score=0.6)
        def test_unknown_score():
            run(reward=None)

        @mark(min_score=0.6)
        def test_no_run():
            pass

        def test_no_team():
            pass
        """,
        "-rfE",
    )
    done.assert_outcomes(passed=4, failed=5)
    done.stdout.fnmatch_lines_random([
        "counterpoint: cost broken: $1.00, at most $0.90",
        "counterpoint: failures broken: 2 failed calls, at most 1",
        "counterpoint: score broken: mean team reward 0.5, at least 0.6",
        "counterpoint: score not measured: no run has a team reward*",
        "counterpoint: not measured: no run ended in this test (max_cost, min_score)",
    ])  # fmt: skip
    failed = re.findall(r"^FAILED test_team.py::(\w+)", done.stdout.str(), re.M)
    assert failed == ["test_twice", "test_failures", "test_score", "test_unknown_score", "test_no_run"]
    assert len(kept(pytester.path, "kept")) == 9
    named = re.findall(r"counterpoint show (\S+) --store kept", done.stdout.str())
    assert set(named) <= {trace.trace_id for trace in kept(pytester.path, "kept")}


def test_what_is_no_limit_fails_before_the_team_runs(pytester: pytest.Pytester, tests: Pytest) -> None:
    done = tests(
        """
        import pytest
        from team import run

        @pytest.mark.counterpoint(max_costs=1)
        def test_name():
            run()

        @pytest.mark.counterpoint(1.0)
        def test_position():
            run()

        @pytest.mark.counterpoint(max_cost="much")
        def test_value():
            run()
        """,
        *ON,
    )
    done.assert_outcomes(errors=3)
    done.stdout.fnmatch_lines_random(["*no limit max_costs: name max_cost, *", "*no limit 1.0*", "*(max_cost='much'): give a finite*"])
    assert kept(pytester.path) == []
    pytester.makeini("[pytest]\ncounterpoint_max_cost = lots\n")
    assert tests("def test_a(): pass", *ON).ret == pytest.ExitCode.USAGE_ERROR
    pytester.makeini("[pytest]\n")
    (pytester.path / "file").write_text("no folder")
    for options in (["--counterpoint-store", "runs"], ["--counterpoint", "--counterpoint-store", "file"]):
        done = tests("def test_a(): pass", *options)
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        assert "Traceback" not in done.stderr.str()


FIXTURES = """
    import pytest
    import team

    @pytest.fixture
    def recorded():
        with team.rec:
            yield team

    @pytest.mark.counterpoint(max_cost=0.4)
    def test_own(counterpoint_recording):
        team.lead()
        counterpoint_recording.reward(team=1.0)

    @pytest.mark.counterpoint(max_cost=0.4)
    def test_fixture(recorded):
        recorded.lead()

    @pytest.mark.counterpoint(max_cost=1.0)
    def test_within(counterpoint_recording):
        team.run()
"""


def test_recordings_of_fixtures(pytester: pytest.Pytester, tests: Pytest) -> None:
    done = tests(FIXTURES, *ON)
    done.assert_outcomes(passed=2, failed=1, errors=1)  # a fixture's recording ends after the test: an error of its teardown
    lines = done.stdout.str().splitlines()
    assert lines.count("counterpoint: cost broken: $0.50, at most $0.40") == 2, "the summary has it once more where CI is set"
    traces = {trace.meta["test"].partition("::")[2]: trace for trace in kept(pytester.path)}
    assert set(traces) == {"test_own", "test_fixture", "test_within"}
    assert traces["test_own"].task_id == "test_team.py::test_own"
    assert traces["test_own"].rewards == {"team": 1.0}


def test_without_the_option_nothing_happens(pytester: pytest.Pytester, tests: Pytest) -> None:
    done = tests(
        """
        import os, sys

        def test_nothing_is_loaded():
            assert "COUNTERPOINT_STORE" not in os.environ
            assert [n for n in sys.modules if n.startswith("counterpoint.") and n != "counterpoint.app.pytest_plugin"] == [
                "counterpoint.display", "counterpoint.app"
            ]
        """
    )
    done.assert_outcomes(passed=1)
    tests(FIXTURES.replace("team.run()", "assert team.lead()").replace("with team.rec:", "if True:")).assert_outcomes(passed=3)
    assert not (pytester.path / "runs").exists()
    assert not (pytester.path / "home").exists()


def test_async_tests_and_threads(pytester: pytest.Pytester, tests: Pytest) -> None:
    done = tests(
        """
        import asyncio, threading
        import pytest
        import team

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.anyio
        @pytest.mark.counterpoint(max_cost=0.6)
        async def test_tasks(counterpoint_recording):
            await asyncio.gather(asyncio.to_thread(team.lead), asyncio.to_thread(team.lead))

        @pytest.mark.counterpoint(max_cost=0.6)
        def test_thread():
            def work():
                with team.rec:
                    team.lead()
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        """,
        *ON, "-p", "anyio",
    )  # fmt: skip
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["counterpoint: cost broken: $1.00, at most $0.60"])
    assert len(kept(pytester.path)) == 2


def test_a_store_that_a_test_names_keeps_its_run_and_a_copy_is_made(pytester: pytest.Pytester, tests: Pytest) -> None:
    source = """
        import counterpoint
        import team

        def test_named(tmp_path):
            with counterpoint.record(tmp_path / "mine", task="bridge", agent="lead", trace_id="run-1", sample=0.0):
                team.lead()
            with counterpoint.Store(tmp_path / "mine") as store:
                assert "run-1" in store
        """
    for _ in range(2):
        tests(source, *ON).assert_outcomes(passed=1)
    ids = sorted(trace.trace_id for trace in kept(pytester.path))
    assert len(ids) == 2
    assert ids[0] == "run-1"
    assert re.fullmatch(r"run-1-[0-9a-f]{6}", ids[1])


@pytest.mark.usefixtures("tests")
def test_the_example_runs_as_its_workflow_says(pytester: pytest.Pytester) -> None:
    """Both runs of the tests and the gate over them, as `examples/gate/workflow.yml` has them."""
    example = Path(__file__).parents[2] / "examples" / "gate"
    commands = re.findall(r"run: ((?:pytest|counterpoint gate) .*)", (example / "workflow.yml").read_text())
    assert len(commands) == 3
    for command, place in zip(commands[:2], ("base", "new"), strict=True):
        shutil.copytree(example, pytester.path / place)
        words = shlex.split(command.removesuffix(" || true").replace("$GITHUB_WORKSPACE", str(pytester.path)))
        done = subprocess.run([sys.executable, "-m", *words], cwd=pytester.path / place, capture_output=True, text=True, check=False)
        assert "6 passed" in done.stdout, done.stdout
    words = [sys.executable, "-m", "counterpoint", *shlex.split(commands[2])[1:]]
    done = subprocess.run(words, cwd=pytester.path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 shared tasks" in done.stdout
    assert (pytester.path / "junit.xml").exists()
    assert "gate passes" in (pytester.path / "gate.md").read_text()


def test_workers_of_xdist_keep_in_one_store(pytester: pytest.Pytester, tests: Pytest) -> None:
    done = tests(
        """
        import pytest
        from team import run

        @pytest.mark.counterpoint(max_cost=0.4)
        @pytest.mark.parametrize("k", range(6))
        def test_some(k):
            run(cost=k / 10)
        """,
        *ON, "-p", "xdist", "-n", "2",
    )  # fmt: skip
    done.assert_outcomes(passed=5, failed=1)
    assert len(kept(pytester.path)) == 6
    done.stdout.fnmatch_lines(["counterpoint show * --store runs  # *", "6 runs of 6 tests in runs"])
