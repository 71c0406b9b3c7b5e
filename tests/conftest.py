"""For all tests: an interruption is one, however the tests were started."""

from __future__ import annotations

import signal

import hypothesis

# A shell that starts a job in the background tells it to ignore Ctrl-C, and so would every run that is interrupted here.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline would be a timed assertion: on a loaded machine any test may take long.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
