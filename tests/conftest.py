"""For all tests: an interruption is one, however the tests were started; one thread per process; examples by profile."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

# Hundreds of processes are started here, and each would compile the package again: compiled modules are kept, whoever asked for none.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# The tests use a machine's cores by running beside each other. Threads of a mathematical library would only wait for each
# other on top of that, spinning: a fit of a second then takes ten. It is read when numpy or torch is imported, hence up here.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# How far a command is shows after ten seconds, and so on a loaded machine where a test expects no word.
os.environ["COUNTERPOINT_PROGRESS"] = "off"

# Where no store is named it is ./traces here, and the user's own, which no test may touch, lies in a folder of this process: another
# one for every test (`_own_store`). Which store is meant otherwise is said by tests/store/test_place.py.
_DATA = tempfile.mkdtemp(prefix="counterpoint-data-")
os.environ["XDG_DATA_HOME"], os.environ["COUNTERPOINT_STORE"] = _DATA, "traces"

# Records make no circles, and looking through all of them again and again takes a twentieth of the time.
gc.set_threshold(50_000, 20, 50)

import hypothesis  # noqa: E402
import pytest  # noqa: E402

from ends_help import Ends  # noqa: E402

# A shell that starts a job in the background tells it to ignore Ctrl-C, and so would every run that is interrupted here.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How many examples a property is tried with, of the number that it states (60 where it states none). They are drawn anew in every
# run, so a short run finds in a week what a long one finds in a day. COUNTERPOINT_EXAMPLES=stated or thorough: as many, twenty times.
PROFILE = os.environ.get("COUNTERPOINT_EXAMPLES", "usual")
TIMES = {"usual": 0.5, "stated": 1, "thorough": 20}[PROFILE]
# A deadline would be a timed assertion: on a loaded machine any test may take long, and drawing may be slow.
_SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile(PROFILE, deadline=None, max_examples=int(60 * TIMES), suppress_health_check=_SLOW)
hypothesis.settings.load_profile(PROFILE)
_SCALED: set[int] = set()

# `make test` hands out whole files, so that what a file's tests share is made once. The longest come first, so that nothing long
# begins when all the rest is over.
LONGEST = (
    "web/test_journeys.py", "test_docs.py", "lab/train/lm/test_own_team.py", "lab/train/test_presets.py", "test_conformance.py", "store/test_interleavings.py",
    "lab/worlds/teamworld/test_fork.py", "lab/train/test_start.py", "lab/worlds/teamworld/test_worlds.py", "lab/team/test_end_to_end.py", "lab/app/test_train.py",
    "app/test_serve.py", "lab/worlds/teamworld/test_traces.py", "web/test_page.py", "lab/team/test_sandbox_escapes.py", "store/test_bad.py",
    "lab/team/test_topologies.py", "lab/train/test_recorded.py", "lab/team/test_live_forks.py", "lab/app/test_plot.py",
)  # fmt: skip
HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Of several processes that collect all tests each begins elsewhere: in a fresh clone a file is compiled by one, and read by the others."""
    mine = getattr(config, "workerinput", None)
    if mine is not None and [Path(config.invocation_params.dir, given) for given in config.args] == [HERE]:
        files = sorted(str(path) for path in HERE.rglob("test_*.py"))
        first = len(files) * int(mine["workerid"].removeprefix("gw")) // mine["workercount"]
        config.args[:] = files[first:] + files[:first]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {HERE / name: k for k, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (place.get(item.path, len(place)), str(item.path)))


def pytest_itemcollected(item: pytest.Item) -> None:
    work = getattr(item, "obj", None)
    stated = getattr(work, "_hypothesis_internal_use_settings", None)
    if stated is None or id(work) in _SCALED or stated.max_examples == int(60 * TIMES):
        return
    _SCALED.add(id(work))  # the cases of one test are one function
    work._hypothesis_internal_use_settings = hypothesis.settings(stated, max_examples=max(5, int(TIMES * stated.max_examples)))  # type: ignore[union-attr]


_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has a user's store of its own, which is not there before it is written."""
    monkeypatch.setenv("XDG_DATA_HOME", os.path.join(_DATA, str(next(_NUMBERS))))


def pytest_sessionfinish() -> None:
    shutil.rmtree(_DATA, ignore_errors=True)
    if "warm_help" in sys.modules:
        sys.modules["warm_help"].KEPT.close()


# -- commands run as a user would, in an empty folder -------------------------------------------------------------------------


@pytest.fixture
def ends_of(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Ends]:
    """For a command: a function of its arguments that gives exit code, stdout and stderr."""
    from counterpoint.app.cli import main

    monkeypatch.chdir(tmp_path)

    def of(command: str) -> Ends:
        def run(*arguments: str | Path) -> tuple[int, str, str]:
            with pytest.raises(SystemExit) as exit_:
                main([*command.split(), *map(os.fspath, arguments)])
            out = capsys.readouterr()
            assert isinstance(exit_.value.code, int)
            return exit_.value.code, out.out, out.err

        return run

    return of


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Ends:
    """A function of the words of a command line that gives exit code, stdout and stderr."""
    from counterpoint.app.cli import main

    def call(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in args])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call
