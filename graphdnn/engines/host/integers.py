"""Exact matrix products of integers at BLAS speed.

NumPy multiplies integer matrices in a plain loop, some fifty times slower than
BLAS multiplies floats. Products and sums of small integers are exact in
floats, so the operands go through float32 or float64 where their value ranges
prove that nothing rounds, and in pieces of a few bits ("limbs") that do fit
where they prove no such thing. Matrix products and convolutions share this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]

_FLOAT32_BITS = 24  # integers up to 2**24 are exact in float32
_FLOAT64_BITS = 53


def exact_matmul(a: Array, b: Array, out_dtype: DTypeLike) -> Array:
    """a[..., M, K] @ b[..., K, N] of integer arrays, modulo 2**32 (int32) or 2**64 (int64).

    Works on stacks as ``np.matmul`` does. The operands may have any signed or unsigned dtype whose values
    int64 holds; the result has ``out_dtype``, int32 or int64, and wraps where the true sum does not fit.
    """
    out = np.dtype(out_dtype)
    bits = _bits(a) + _bits(b) + _bit_length(a.shape[-1])
    if bits <= _FLOAT32_BITS:
        return _through(np.float32, a, b).astype(out)
    if bits <= _FLOAT64_BITS:
        return _through(np.float64, a, b).astype(np.int64).astype(out)
    # What wraps at the end may wrap at once: operands of an int32 product have at most 32 bits that matter.
    return _by_limbs(a.astype(out).astype(np.int64), b.astype(out).astype(np.int64), out)


def _bit_length(count: int) -> int:
    return max(count - 1, 0).bit_length()  # count <= 2**this


def _bits(values: Array) -> int:
    """Least n with |v| <= 2**n for every value."""
    if values.size == 0:
        return 0
    return _bit_length(max(-int(values.min()), int(values.max())))


def _through(dtype: DTypeLike, a: Array, b: Array) -> Array:
    return np.asarray(np.matmul(a.astype(dtype), b.astype(dtype)))


def _by_limbs(a: Array, b: Array, out: np.dtype[Any]) -> Array:
    # a = sum of a_i * 2**(i*width_a), b alike: the product is the sum of the exact float64 products
    # a_i @ b_j, shifted. Shifts by the bits of the result or more leave nothing of a product.
    result_bits = out.itemsize * 8
    (count_a, width_a), (count_b, width_b) = _limbs(_bits(a), _bits(b), _bit_length(a.shape[-1]), result_bits)
    limbs_a, limbs_b = _split(a, count_a, width_a), _split(b, count_b, width_b)
    result: Array | None = None
    for i, j in _pairs(count_a, width_a, count_b, width_b, result_bits):
        product = np.asarray(np.matmul(limbs_a[i], limbs_b[j])).astype(np.int64).view(np.uint64)
        product <<= np.uint64(i * width_a + j * width_b)
        result = product if result is None else np.add(result, product, out=result)
    assert result is not None  # the pair (0, 0) is never left out
    return result.view(np.int64).astype(out, copy=False)


def _pairs(count_a: int, width_a: int, count_b: int, width_b: int, result_bits: int) -> list[tuple[int, int]]:
    places = ((i, j) for i in range(count_a) for j in range(count_b))
    return [(i, j) for i, j in places if i * width_a + j * width_b < result_bits]


def _limbs(bits_a: int, bits_b: int, bits_k: int, result_bits: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(number, width in bits) of the limbs of a and b: the choice with the fewest float64 products."""
    choices = []
    for count_a in range(1, bits_a + 1) if bits_a else (1,):
        width_a = -(-bits_a // count_a)
        room = _FLOAT64_BITS - bits_k - width_a
        if room > 0:
            a, b = (count_a, width_a), _cut(bits_b, room)
            choices.append((len(_pairs(*a, *b, result_bits)), a, b))
    if not choices:
        raise ValueError(f"sums of 2**{bits_k} products are not supported")
    _, best_a, best_b = min(choices)
    return best_a, best_b


def _cut(bits: int, room: int) -> tuple[int, int]:
    """(number, width) of the fewest equal pieces of ``bits`` that are not wider than ``room``."""
    count = max(-(-bits // room), 1)
    return count, -(-bits // count)


def _split(values: Array, count: int, width: int) -> list[Array]:
    """Limbs as float64, lowest first: all but the highest in [0, 2**width), the highest keeps the sign."""
    mask = np.int64((1 << width) - 1)
    low = [((values >> np.int64(i * width)) & mask).astype(np.float64) for i in range(count - 1)]
    return [*low, (values >> np.int64((count - 1) * width)).astype(np.float64)]
