"""The plug-in of pytest: `pytest --counterpoint` keeps the teams that tests run, and holds them to limits.

Always true: pytest alone imports this module, in every run where Counterpoint is installed, so it imports nothing else. Without
`--counterpoint` nothing is recorded or judged; the fixture's recording has not begun, so that what it decorates is as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from counterpoint.recorder.recording import Recording

TEAMS = "counterpoint-teams"
"""Under what name the plug-in that does the work is registered."""
LIMITS = {
    "max_cost": "the most dollars that the runs of a test may cost together",
    "max_failures": "the most calls that may fail in the runs of a test together",
    "min_score": "the least mean team reward of the runs of a test",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two options; settings of the same names in pytest's configuration."""
    group = parser.getgroup("counterpoint", "teams of agents (Counterpoint)")
    group.addoption("--counterpoint", action="store_true", help="keep the teams that tests run, and hold them to limits")
    group.addoption("--counterpoint-store", metavar="DIR", help="where (default: counterpoint_store, else the store of commands)")
    parser.addini("counterpoint_store", "the store of --counterpoint, from the folder of this file")
    for name, about in LIMITS.items():
        parser.addini(f"counterpoint_{name}", f"{about}, where a marker does not say otherwise")


def pytest_configure(config: pytest.Config) -> None:
    """The marker is always known; the rest only with `--counterpoint`."""
    config.addinivalue_line("markers", f"counterpoint({', '.join(LIMITS)}): limits for the runs of a test (--counterpoint)")
    if config.getoption("counterpoint"):
        from counterpoint.app.pytest_teams import Teams

        config.pluginmanager.register(Teams(config, LIMITS), TEAMS)
    elif config.getoption("counterpoint_store"):
        raise pytest.UsageError("--counterpoint-store is where --counterpoint keeps runs: give both")


@pytest.fixture
def counterpoint_recording(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """A recording of the test's own team, with the test as its task; without `--counterpoint` it records nothing."""
    from counterpoint.recorder.recording import record

    recording = record(task=request.node.nodeid)
    teams = request.config.pluginmanager.get_plugin(TEAMS)
    if teams is None:
        yield recording
        return
    with recording:
        teams.own = recording  # ends with the test and not with its fixtures, so that limits find it
        yield recording
