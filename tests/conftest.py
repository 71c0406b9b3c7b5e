"""For all tests: an interruption is one, however the tests were started."""

from __future__ import annotations

import signal

# A shell that starts a job in the background tells it to ignore Ctrl-C, and so would every run that is interrupted here.
signal.signal(signal.SIGINT, signal.default_int_handler)
