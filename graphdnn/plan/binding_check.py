"""The check of CuPy's arrays and PyTorch's tensors at each call.

Known CuPy arrays are found by their identities alone. On an AMD EPYC that takes 1.0 us for four arrays; to compare each
array with a reference took 1.3 for the arrays of the last call and 2.6 for others.

A PyTorch tensor can change its memory, extents and strides (``set_``, ``t_``, ``Parameter.data``). For this reason a
plan reads all of them at each call, and never finds a tensor by its identity.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import and_, attrgetter, is_
from typing import Any

import numpy as np

from graphdnn.dtypes import CARRIERS
from graphdnn.enums import DataType
from graphdnn.plan.binding_cache import Addresses, BoundArrays, Ids, is_of_cupy
from graphdnn.plan.binding_validation import Expected, promised_alignment
from graphdnn.plan.execution_plan import picking
from graphdnn.plan.memory_overlap import FixedSpans, are_apart

Arrays = Sequence[Any]
_MOST = 8  # strides of an array
_FEW = 8  # arrays that are compared pair by pair
_shape = attrgetter("shape")
# PyTorch's classes whose tensors are their memory. A plan adds them when the complete check first accepts one. Other
# subclasses may give other values than those in memory, and pass through the complete check at each call.
_PLAIN_TENSOR_CLASSES: set[type[Any]] = set()


class BindingCheck:
    """The types, extents, strides and addresses that a plan's arrays must have.

    ``strides``: the byte strides that passed every check, for each array; axes of one element may have any.
    ``tensor_layouts``: the same for PyTorch's tensors, as (type, strides in elements).
    """

    __slots__ = (
        "_are_written",
        "_fixed",
        "_masks",
        "_pairs",
        "_pick",
        "_rows",
        "_shapes",
        "_sizes",
        "_written",
        "strides",
        "tensor_layouts",
    )

    def __init__(self, expected: Sequence[Expected], fixed: FixedSpans | None = None) -> None:
        """``fixed``: the memory of arrays that are bound for good."""
        self._fixed = fixed
        self.strides = tuple([[e.layout[2]] for e in expected])
        self.tensor_layouts: tuple[list[tuple[Any, Any]], ...] = tuple([[] for _ in expected])
        self._pick = picking([e.spec.uid for e in expected])
        self._shapes = tuple([e.layout[1] for e in expected])
        types = [_types(e.layout[0], e.spec.data_type) for e in expected]
        self._rows = tuple(zip(types, self._shapes, self.strides, self.tensor_layouts, strict=True))
        self._masks = [promised_alignment(e.spec) - 1 for e in expected]  # bits that an aligned address has not
        self._sizes = [e.spec.bytes for e in expected]
        self._are_written = [e.is_output for e in expected]
        self._written = tuple([e.spec.uid for e in expected if e.is_output])
        self._pairs = _pairs(self._are_written) if len(expected) <= _FEW else None

    def find(self, bindings: Mapping[int, Any], known: Callable[[Ids], BoundArrays | None]) -> BoundArrays | None:
        """The set that ``known`` has for the identities of the bound arrays; None if the extents are others.

        A caller can set the extents of a CuPy array, and nothing else of it.
        """
        arrays = self._pick(bindings)
        found = known(tuple(map(id, arrays)))
        if found is None:
            return None
        return found if tuple(map(_shape, arrays)) == self._shapes else None

    def where(
        self, arrays: Arrays, kind: type[Any] | None, device: int, right: Container[Addresses]
    ) -> tuple[Addresses, Ids, bool] | None:
        """Addresses and identities of arrays of this device that are exactly as described, and either lie where others
        lay that were ``right``, or are aligned and apart from each other; None for any other arrays.

        ``kind``: CuPy's class. The last result is True if all arrays are CuPy's, which keep their addresses for life.
        """
        found: list[int] = []
        are_fixed = True
        try:
            for array, (types, shape, strides, layouts) in zip(arrays, self._rows, strict=True):
                if type(array) is kind:
                    if array.dtype not in types or array.shape != shape or array.strides not in strides:
                        return None
                    memory = array.data
                    if memory.device_id != device:
                        return None
                    found.append(memory.ptr)
                elif type(array) in _PLAIN_TENSOR_CLASSES:
                    if (array.dtype, array.stride()) not in layouts or array.shape != shape:
                        return None
                    if array.get_device() != device or array.is_neg():
                        return None
                    are_fixed = False
                    found.append(array.data_ptr())
                else:
                    return None
        except RuntimeError:  # PyTorch's answer for strides and addresses that a sparse tensor does not have
            return None
        if not (are_fixed or all(found)):  # a tensor without memory, which the complete check names
            return None
        addresses = tuple(found)
        if addresses not in right:
            if any(map(and_, found, self._masks)):
                return None
            if not self._are_apart(found):
                return None
        return addresses, tuple(map(id, arrays)), are_fixed

    def writes_tensors(self, bindings: Mapping[int, Any]) -> bool:
        """Whether an output is a tensor of PyTorch."""
        return any(map(_is_tensor_class, map(type, map(bindings.get, self._written))))

    def _are_apart(self, addresses: Sequence[int]) -> bool:
        """Whether no output shares a byte with another array: pair by pair where the arrays are few."""
        sizes = self._sizes
        if self._fixed is not None:
            for start, size, is_written in zip(addresses, sizes, self._are_written, strict=True):
                if is_written and self._fixed.shares(start, start + size):
                    return False
        if self._pairs is None:
            ends = map(int.__add__, addresses, sizes)
            return are_apart(zip(addresses, ends, self._are_written, strict=True))
        for i, j in self._pairs:
            if addresses[i] < addresses[j] + sizes[j] and addresses[j] < addresses[i] + sizes[i]:
                return False
        return True

    def learn(self, arrays: Arrays) -> None:
        """Arrays that passed every check: their strides are right. Those of other libraries are passed over."""
        for strides, layouts, array in zip(self.strides, self.tensor_layouts, arrays, strict=True):
            if is_of_cupy(array):
                _add(strides, array.strides)
            elif _is_plain_tensor(array):
                _PLAIN_TENSOR_CLASSES.add(type(array))
                _add(layouts, (array.dtype, array.stride()))


def _add(known: list[Any], found: Any) -> None:
    if found not in known and len(known) < _MOST:
        known.append(found)


def _is_plain_tensor(array: Any) -> bool:
    """Whether an array is exactly a ``torch.Tensor`` or a ``torch.nn.Parameter``."""
    torch = sys.modules.get("torch")
    classes = getattr(torch, "Tensor", None), getattr(getattr(torch, "nn", None), "Parameter", None)
    return type(array) in classes


@lru_cache(maxsize=64)
def _is_tensor_class(kind: type[Any]) -> bool:
    """Whether objects of a class are PyTorch's tensors. No class becomes one when PyTorch is imported later."""
    return issubclass(kind, getattr(sys.modules.get("torch"), "Tensor", ()))


def has_tensors_only(arrays: Iterable[Any]) -> bool:
    """Whether all arrays are tensors of PyTorch."""
    return all(map(_is_tensor_class, map(type, arrays)))


def numbers_of(expected: Sequence[Expected]) -> Callable[[Mapping[int, Any], tuple[Any, ...]], tuple[Any, ...]]:
    """``numbers(bindings, last)``: the by-value numbers that are bound; ``last`` itself where these are the same."""
    pick = picking([e.spec.uid for e in expected])

    def numbers(bindings: Mapping[int, Any], last: tuple[Any, ...]) -> tuple[Any, ...]:
        found = pick(bindings)
        return last if all(map(is_, found, last)) else found

    return numbers


def _pairs(are_written: Sequence[bool]) -> list[tuple[int, int]]:
    """The pairs of arrays that must not share memory: an output and any other array, each pair once."""
    count = range(len(are_written))
    return [(i, j) for i in count for j in count if are_written[i] and i != j and not (are_written[j] and j < i)]


@lru_cache(maxsize=64)
def _types(dtype: np.dtype[Any], data_type: DataType) -> tuple[Any, ...]:
    """The element type, and the one that carries its bits."""
    carrier = CARRIERS.get(data_type)
    return (dtype,) if carrier is None else (dtype, np.dtype(carrier))
