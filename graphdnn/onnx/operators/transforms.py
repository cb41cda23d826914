"""Fourier transforms as products with constant matrices."""

from __future__ import annotations

from math import prod

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import AtMost, Equals
from graphdnn.dtypes import Array
from graphdnn.enums import DataType
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need, operator

_FACTORS = 2**22
_SMALL = Need(
    "elements of the matrix of factors",
    lambda node: _length(node) ** 2,
    AtMost(_FACTORS),
    "a transform is a product with a matrix of all factors",
)


def _axis(node: Node) -> int:
    given = node.attribute("axis", 1) if node.version < 20 else (node.integers(2) or [-2])[0]
    return int(given) % node.rank(0)


def _length(node: Node) -> int:
    given = node.integers(1)
    return given[0] if given else node.shape(0)[_axis(node)]


def _factors(length: int, outputs: int, inverse: bool) -> tuple[Array, Array]:
    """Cosines and sines [outputs, length] of exp(-2 pi i o k / length), or of its inverse."""
    angle = 2 * np.pi * (np.outer(np.arange(outputs), np.arange(length)) % length) / length
    scale = 1 / length if inverse else 1.0
    return np.cos(angle) * scale, np.sin(angle) * (scale if inverse else -scale)


@operator("DFT", since=17, by_value=(1, 2), needs=(
    _SMALL,
    Need("inverse with onesided", lambda node: bool(node.attribute("inverse", 0) and node.attribute("onesided", 0)),
         Equals(False), "the missing half of the spectrum is not completed here"),
))  # fmt: skip
def dft(node: Node, emit: Emitter, x: Tensor, *_: None) -> Tensor:
    axis, length, rank = _axis(node), _length(node), node.rank(0)
    inverse = bool(node.attribute("inverse", 0))
    wide = emit.convert(x, DataType.DOUBLE)  # where factors cancel, the digits of FLOAT would be left over
    extent = node.shape(0)[axis]
    if extent > length:
        wide = emit.part(wide, axis, 0, length)
    elif extent < length:
        wide = emit.padded(wide, axis, 0, length - extent, 0.0)
    cosine, sine = _factors(length, node.result_shape()[axis], inverse)
    real = emit.part(wide, rank - 1, 0, 1)
    parts = [_product(emit, real, axis, m) for m in (cosine, sine)]
    if node.shape(0)[-1] == 2:
        imaginary = emit.part(wide, rank - 1, 1, 2)
        crossed = [_product(emit, imaginary, axis, m) for m in (sine, cosine)]
        parts = [emit.pointwise("SUB", parts[0], crossed[0]), emit.pointwise("ADD", parts[1], crossed[1])]
    return emit.convert(emit.concat(parts, rank - 1), type_of(x))


def _product(emit: Emitter, x: Tensor, axis: int, matrix: Array) -> Tensor:
    dims = list(x.dim or ())
    flat = emit.reshape(x, (prod(dims[:axis]), dims[axis], prod(dims[axis + 1 :])))
    found = emit.matmul(emit.constant(matrix[None], type_of(x)), flat)
    return emit.reshape(found, (*dims[:axis], len(matrix), *dims[axis + 1 :]))


def _spectra(node: Node) -> tuple[int, ...]:
    """[signals, frames, frequencies, 2]; the half of a symmetric spectrum by default."""
    (hop,) = node.integers(1) or (1,)
    length = _frame(node)
    frames = (node.shape(0)[1] - length) // hop + 1
    return node.shape(0)[0], frames, length // 2 + 1 if node.attribute("onesided", 1) else length, 2


@operator("STFT", since=17, by_value=(1, 3), shape=_spectra, needs=(
    Need("frame_length", lambda node: _frame(node) ** 2, AtMost(_FACTORS), _SMALL.reason),
    Need("frames", lambda node: node.result_shape()[1], AtMost(512), "each frame is a slice of the signal"),
))  # fmt: skip
def stft(node: Node, emit: Emitter, x: Tensor, step: None, window: Tensor | None = None, *_: None) -> Tensor:
    (hop,) = node.integers(1) or (1,)
    length, frames = _frame(node), node.result_shape()[1]
    wide = emit.convert(x, DataType.DOUBLE)
    wide = emit.reshape(wide, (*node.shape(0)[:2], prod(node.shape(0)[2:])))
    rows = emit.concat([
        emit.reshape(emit.part(wide, 1, i * hop, i * hop + length), (node.shape(0)[0], 1, length, (wide.dim or ())[2]))
        for i in range(frames)
    ], 1)  # fmt: skip
    if window is not None:
        rows = emit.pointwise("MUL", rows, emit.reshape(emit.convert(window, DataType.DOUBLE), (1, 1, length, 1)))
    cosine, sine = _factors(length, node.result_shape()[2], inverse=False)
    real = emit.part(rows, 3, 0, 1)
    parts = [_product(emit, real, 2, m) for m in (cosine, sine)]
    if (rows.dim or ())[3] == 2:
        imaginary = emit.part(rows, 3, 1, 2)
        crossed = [_product(emit, imaginary, 2, m) for m in (sine, cosine)]
        parts = [emit.pointwise("SUB", parts[0], crossed[0]), emit.pointwise("ADD", parts[1], crossed[1])]
    return emit.convert(emit.concat(parts, 3), type_of(x))


def _frame(node: Node) -> int:
    given = node.integers(3)
    return given[0] if given else node.shape(2)[0]
