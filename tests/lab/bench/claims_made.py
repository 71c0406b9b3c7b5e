"""Claims from outside, for the tests of `reproduce`: one that holds, one that misses, one that crashes, and odd ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.errors import NotFound
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most, reported

played: list[tuple[int, int]] = []


def hit(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Uniform numbers have a mean below one."""
    played.append((seed, seeds))
    means = [np.random.default_rng(seed + k).random(100).mean() for k in range(seeds)]
    yield at_most("mean of a uniform", means, 1)
    yield at_least("mean of a uniform, low end", means, 0, by="low")


def miss(*, seed: int, seeds: int) -> Iterator[dict[str, Any]]:
    """Says that one is two; rows as plain dictionaries."""
    yield {"name": "one", "value": 1, "low": None, "high": None, "target": "= 2", "ok": False}
    yield {"name": "two", "value": 2, "low": None, "high": None, "target": "= 2", "ok": True}


def crash(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Falls over after its first row."""
    yield at_least("fine so far", 1, 0)
    raise KeyError("oops")


def empty(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Shows nothing."""
    yield from ()


def wrong(*, seed: int, seeds: int) -> Iterator[dict[str, Any]]:
    """Yields what is no row."""
    yield {"name": "half a row"}


def lacking(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Needs a model that nobody has."""
    yield at_least("fine so far", 1, 0)
    raise NotFound("tiny-1b is not installed", fix="counterpoint models install tiny-1b")


def importing(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Needs a package that nobody has."""
    import no_such_package_at_all  # type: ignore[import-not-found]  # noqa: F401

    yield at_least("never", 1, 0)


def partly(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """One row with a target, two without."""
    yield at_least("held", 1, 0)
    yield reported("first", [1, 2])
    yield reported("second", [3, 4])


def free(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Only rows without a target, one in words of its own."""
    yield reported("first", [1, 2])
    yield ClaimRow("second", 3.5, None, None, "none: only told", False)


def long_part(folder: Path) -> None:
    """A part of a claim that has something which must stay whole, and says when it has begun and when it is done."""
    from counterpoint.lab.train.session import Interrupts  # needs torch

    with Interrupts() as interrupts:
        try:
            with interrupts.whole():
                (folder / "begun").touch()
                time.sleep(1.5)
                (folder / "whole").touch()
            time.sleep(60)
        except KeyboardInterrupt:
            (folder / "checkpoint").touch()
            raise SystemExit(130) from None
