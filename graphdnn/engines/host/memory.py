"""How a tensor lies in host memory: bindings to logical arrays and back.

A logical array has the tensor's extents and element type; most bindings already
are one. Vectorised int8 (NC/4HW4, NC/32HW32) has the vector as a last axis of its
own, bit-packed BOOLEAN is a row of bytes, eight elements each, lowest bit first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdnn import host_memory
from graphdnn.dtypes import ELEMENTS, Array
from graphdnn.enums import DataType
from graphdnn.spec import INT64_MAX
from graphdnn.tensors import TensorSpec


def binding_layout(spec: TensorSpec) -> tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]:
    """(dtype, shape, byte strides) of the array that is bound to a tensor."""
    element = ELEMENTS[spec.data_type]
    if spec.data_type is DataType.BOOLEAN:
        return np.dtype(np.uint8), (spec.bytes,), (1,)
    size, vector = element.bytes, spec.vector_count
    if vector == 1:
        return element.numpy, spec.dims, _byte_strides(spec, size)
    return element.numpy, (*spec.dims, vector), (*_byte_strides(spec, vector * size), size)


def _byte_strides(spec: TensorSpec, size: int) -> tuple[int, ...]:
    """An axis of one element may have any stride: one that is no number of bytes becomes that of neighbours."""
    strides = tuple([s * size for s in spec.strides])
    if max(strides) <= INT64_MAX:
        return strides
    return tuple([s if s <= INT64_MAX else size for s in strides])


def is_plain(spec: TensorSpec) -> bool:
    """True when the binding already is the logical array."""
    return spec.vector_count == 1 and spec.data_type is not DataType.BOOLEAN


def load(binding: Array, spec: TensorSpec) -> Array:
    """The logical array behind a binding; a view where memory allows one."""
    if is_plain(spec):
        return binding
    if spec.data_type is DataType.BOOLEAN:
        return _bits_view(np.unpackbits(binding, bitorder="little"), spec).astype(np.bool_)
    return join_vectors(binding, spec)


def store(values: Array, binding: Array, spec: TensorSpec) -> None:
    """Write a logical array of the tensor's element type into its binding; gaps between elements stay as they are."""
    if is_plain(spec):
        binding[...] = values
    elif spec.data_type is DataType.BOOLEAN:
        bits = np.unpackbits(binding, bitorder="little")
        _bits_view(bits, spec)[...] = values
        binding[...] = np.packbits(bits, bitorder="little")
    else:
        binding[...] = split_vectors(values, spec)


def split_vectors(values: Array, spec: TensorSpec) -> Array:
    """A logical array with its vectors as a last axis, which has extent 1 where the tensor is not vectorised."""
    axis = spec.vectorized_dimension if spec.vector_count != 1 else spec.rank - 1
    split = (*spec.dims[: axis + 1], spec.vector_count, *spec.dims[axis + 1 :])
    return np.moveaxis(values.reshape(split), axis + 1, -1)


def join_vectors(values: Array, spec: TensorSpec) -> Array:
    """The logical array of one whose last axis are the vectors."""
    axis = spec.vectorized_dimension if spec.vector_count != 1 else spec.rank - 1
    return np.moveaxis(values, -1, axis + 1).reshape(spec.extents)


def _bits_view(bits: Array, spec: TensorSpec) -> Array:
    return np.lib.stride_tricks.as_strided(bits, spec.dims, spec.strides)


def from_pointer(address: int, spec: TensorSpec, *, is_written: bool = False) -> Array:
    """The binding at a raw host address, with the descriptor's extent. The caller keeps the memory alive.

    Raises ``UnreadableError`` where there is no memory of that size, or none that can be written.
    """
    dtype, shape, strides = binding_layout(spec)
    memory = host_memory.at(address, spec.bytes, is_written=is_written)
    return np.ndarray(shape, dtype, buffer=memory, strides=strides)


def from_buffer(buffer: Array, offset: int, spec: TensorSpec) -> Array:
    """The binding of a tensor that lies in a byte buffer, e.g. a workspace."""
    dtype, shape, strides = binding_layout(spec)
    return np.ndarray(shape, dtype, buffer=buffer, offset=offset, strides=strides)


def empty(spec: TensorSpec) -> Array:
    """A new, uninitialised binding with the tensor's strides and alignment; gaps are allocated too."""
    raw = new_bytes(spec.bytes + spec.byte_alignment)
    offset = -raw.__array_interface__["data"][0] % spec.byte_alignment
    return from_buffer(raw, offset, spec)


def new_bytes(size: int) -> Array:
    """Uninitialised memory. Raises ``MemoryError`` where there is not so much."""
    if size > INT64_MAX:
        raise MemoryError(f"{size} bytes are more than there are addresses")
    return np.empty(size, np.uint8)


def as_it_lies(array: Array) -> Array:
    """The array with its axes in the order of memory: contiguous where there are no gaps."""
    return array.transpose(axes_of(array))


def axes_of(array: Array) -> list[int]:
    """From the outermost in memory to the innermost."""
    return sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], axis))
