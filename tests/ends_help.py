"""How a command ended: exit code, stdout and stderr, as the fixtures `run` and `ends_of` give them."""

from __future__ import annotations

from collections.abc import Callable

Ends = Callable[..., tuple[int, str, str]]
