"""Random numbers: Philox4x32-10, counter based, so that every engine draws the same ones.

Element i of the row-major order of y takes lane i % 4 of the block whose
128-bit counter is offset + i // 4 in the two low words (low word first, the
sum modulo 2**64) and zero in the two high ones. The key is the seed, low word
first. Seed and offset count as 64-bit two's complement. A following call
continues the stream with offset + ceil(elements / 4).

A word w gives the uniform number u = (w >> 8) * 2**-24 in [0, 1), exact in
float32 and so the same on every device. From it, in float64, rounded to
float32 once:

    BERNOULLI  1 where u < probability, else 0
    UNIFORM    minimum + (maximum - minimum) * u; rounding may reach maximum
    NORMAL     mean + standard_deviation * z, Box-Muller on lanes (0, 1) and (2, 3):
               r = sqrt(-2 ln(u_even + 2**-24)), z_even = r cos(2 pi u_odd), z_odd = r sin(2 pi u_odd),
               so |z| < 5.77
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod, tau
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphdnn.enums import RngDistribution

Array = NDArray[Any]
Words = NDArray[np.uint32]

_LANES = 4
_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_STEP = 2.0**-24


def generate(
    extents: tuple[int, ...],
    distribution: RngDistribution,
    seed: int,
    offset: int,
    parameters: Mapping[str, float],
) -> Array:
    """Random float32 array of ``extents``; ``parameters`` by the names used in the module's table."""
    count = prod(extents)
    lanes = uniform_words(seed, offset, -(-count // _LANES)) >> np.uint32(8)
    with np.errstate(over="ignore"):
        drawn = _DISTRIBUTIONS[distribution](lanes * _STEP, **parameters)
        return drawn.reshape(-1)[:count].astype(np.float32).reshape(extents)


def uniform_words(seed: int, offset: int, blocks: int) -> Words:
    """The stream: [blocks, 4] words from counter ``offset`` on."""
    counters = np.arange(blocks, dtype=np.uint64) + np.uint64(offset % 2**64)
    zeros = np.zeros(blocks, np.uint64)
    counter = (counters & np.uint64(_WORD), counters >> np.uint64(32), zeros, zeros)
    return philox(counter, (seed & _WORD, seed >> 32 & _WORD))


def philox(counter: tuple[Array, Array, Array, Array], key: tuple[int, int]) -> Words:
    """Philox4x32-10 of n counters: four uint64 arrays [n] of 32-bit words, and one key, to [n, 4] words.

    J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    c0, c1, c2, c3 = counter
    low, shift = np.uint64(_WORD), np.uint64(32)
    for r in range(_ROUNDS):
        k0, k1 = (np.uint64(k + r * weyl & _WORD) for k, weyl in zip(key, _WEYL, strict=True))
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> shift) ^ c1 ^ k0,
            product1 & low,
            (product0 >> shift) ^ c3 ^ k1,
            product0 & low,
        )
    return np.stack((c0, c1, c2, c3), axis=1).astype(np.uint32)


def _bernoulli(uniform: Array, probability: float) -> Array:
    return uniform < probability


def _uniform(uniform: Array, minimum: float, maximum: float) -> Array:
    return minimum + (maximum - minimum) * uniform


def _normal(uniform: Array, mean: float, standard_deviation: float) -> Array:
    radius = np.sqrt(-2.0 * np.log(uniform[:, 0::2] + _STEP))
    angle = tau * uniform[:, 1::2]
    standard = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=2)
    return np.asarray(mean + standard_deviation * standard)


_DISTRIBUTIONS: dict[RngDistribution, Callable[..., Array]] = {
    RngDistribution.BERNOULLI: _bernoulli,
    RngDistribution.UNIFORM: _uniform,
    RngDistribution.NORMAL: _normal,
}
