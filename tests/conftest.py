"""For all tests: an interruption is one, however the tests were started; one thread per process; examples by profile."""

from __future__ import annotations

import os
import signal
import sys

# Hundreds of processes are started here, and each would compile the package again: compiled modules are kept, whoever asked for none.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# The tests use a machine's cores by running beside each other. Threads of a mathematical library would only wait for each
# other on top of that, spinning: a fit of a second then takes ten. It is read when numpy or torch is imported, hence up here.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import hypothesis  # noqa: E402
import pytest  # noqa: E402

# A shell that starts a job in the background tells it to ignore Ctrl-C, and so would every run that is interrupted here.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline would be a timed assertion: on a loaded machine any test may take long, and drawing may be slow.
_SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("usual", deadline=None, max_examples=60, suppress_health_check=_SLOW)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=1200, suppress_health_check=_SLOW)
# COUNTERPOINT_EXAMPLES=thorough: twenty times the examples of every property, also of those that state a number themselves.
PROFILE = os.environ.get("COUNTERPOINT_EXAMPLES", "usual")
hypothesis.settings.load_profile(PROFILE)


def pytest_itemcollected(item: pytest.Item) -> None:
    stated = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
    if PROFILE == "thorough" and stated is not None and stated.max_examples < 1200:
        more = hypothesis.settings(stated, max_examples=20 * stated.max_examples)
        item.obj._hypothesis_internal_use_settings = more  # type: ignore[attr-defined]
