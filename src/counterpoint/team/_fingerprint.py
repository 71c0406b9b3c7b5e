"""A short digest of what a tool answers from, for its version.

Always true: equal parts give the same digest in every process; parts are compared by what they print as.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from functools import lru_cache


@lru_cache(maxsize=64)
def fingerprint(*parts: Hashable) -> str:
    """Twelve hexadecimal digits."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
