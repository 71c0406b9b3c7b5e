"""Keyed randomness: every draw is a hash of (seed, stable key), never of the order in which draws are made.

Always true: the same seed and key give the same number, alone or inside an array of millions, on every machine; another key
gives an independent one. So deleting an agent cannot shift anybody else's noise, and two forks share every draw that both make.

    u(key) = mix(... mix(mix(seed) + k1) + k2 ...) / 2^64

`mix` is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), a bijection of
64-bit words; each part of the key is added after a multiplication by the golden-ratio constant and mixed again.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
_LOWEST, _LAST = -(2**63), 2**64 - 1
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def purpose(name: str) -> int:
    """A 63-bit constant for a named purpose, so that draws for different purposes never share a key."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") >> 1


def _words(value: Any) -> np.ndarray:
    """Integers of any kind as 64-bit words; negative ones wrap."""
    array = np.asarray(value)
    if array.dtype == np.uint64:
        return array
    if array.dtype.kind not in "iub":
        raise TypeError(f"keys are integers, not {array.dtype}")
    return array.astype(np.int64, copy=False).view(np.uint64)


def _step(part: Any) -> Any:
    """(part + 1) times the golden ratio: of an integer, which most parts are, by Python's arithmetic."""
    if isinstance(part, int) and _LOWEST <= part <= _LAST:
        return np.uint64((part + 1) * _GOLDEN & _LAST)
    return np.multiply(np.add(_words(part), np.uint64(1)), np.uint64(_GOLDEN))


def mixed(word: np.ndarray, part: Any) -> np.ndarray:
    """One more part of a key mixed into a word."""
    z = np.asarray(np.add(_step(part), word))  # in place below, so that words wrap silently, also where there is only one
    z ^= z >> _S30
    z *= _M1
    z ^= z >> _S27
    z *= _M2
    z ^= z >> _S31
    return z


def bits(seeds: Any, *keys: Any) -> np.ndarray:
    """The 64-bit word of (seed, key); seeds and parts of the key broadcast."""
    word = mixed(np.zeros((), np.uint64), seeds)
    for key in keys:
        word = mixed(word, key)
    return word


def uniform(seeds: Any, *keys: Any) -> np.ndarray:
    """u(key) in [0, 1), with 53 bits."""
    return share(bits(seeds, *keys))


def share(word: np.ndarray) -> np.ndarray:
    """A word as u(key)."""
    return (word >> _S11).astype(np.float64) * 2.0**-53


def normal(seeds: Any, *keys: Any) -> np.ndarray:
    """A standard normal number by Box and Muller from two keyed uniforms."""
    word = bits(seeds, *keys)
    radius = np.sqrt(-2.0 * np.log1p(-share(mixed(word, 1))))
    return np.asarray(radius * np.cos(2 * np.pi * share(mixed(word, 2))))


def child_seed(seed: int, *keys: int) -> int:
    """A seed for something inside: the word of (seed, key) as a non-negative 63-bit integer."""
    return int(bits(seed, *keys)) >> 1
