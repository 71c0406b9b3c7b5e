"""Every number that we state about our methods, as an experiment: one file per claim.

Always true: a claim runs its experiment, it never reads a stored result. `NAME.py` defines `NAME(*, seed, seeds)`, which plays
the seeds `seed`, `seed + 1`, ... (`seeds` of them) and yields rows made by `bench/claim.py`; a fresh seed gives fresh data.
"""
