"""TeamWorld by other rules: constants that no world changes, so that a law of the engine is tried at more than one number."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from counterpoint.lab.worlds.teamworld.config import Config

_DIALS = {f.name for f in dataclasses.fields(Config)}


@cache
def _rules(constants: tuple[tuple[str, Any], ...]) -> type[Config]:
    assert all(hasattr(Config, name) for name, _ in constants), constants
    return type("OtherRules", (Config,), dict(constants))


def ruled(**numbers: Any) -> Config:
    """A configuration with these dials and constants."""
    constants = tuple(sorted((k, v) for k, v in numbers.items() if k not in _DIALS))
    dials = {k: v for k, v in numbers.items() if k in _DIALS}
    return _rules(constants)(**dials) if constants else Config(**dials)
