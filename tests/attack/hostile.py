"""Values that no call wants: what a mistake, a foreign type or an object with code of its own hands in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np

from graphdnn.enums import DataType, HeurMode, PointwiseMode, Status


class OwnError(RuntimeError):
    """What the objects here raise."""


def _raising(*names: str) -> Any:
    def stop(*_: object, **__: object) -> Any:
        raise OwnError("code of the caller's object")

    return type(f"Raising{names[0].strip('_').title()}", (), dict.fromkeys(names, stop))()


class Other(IntEnum):
    """An enum that is not one of the library's."""

    FIRST = 0
    LAST = 10**6


class Index:
    def __index__(self) -> int:
        return 3


class Endless:
    """A sequence that says it is short and is not."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> int:
        if place > 50:
            raise OwnError("it goes on")
        return 1


VALUES: dict[str, Callable[[], Any]] = {
    "none": lambda: None, "true": lambda: True, "false": lambda: False,
    **{f"int {v}": (lambda v=v: v) for v in (0, 1, -1, 5, 123456, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**70)},
    "a huge int": lambda: 10**400, "an int too long to print": lambda: 10**5000,
    **{f"float {v}": (lambda v=v: v) for v in (0.0, -0.0, 1.5, 1e308, float("inf"), float("-inf"), float("nan"))},
    "complex": lambda: 1 + 2j, "decimal": lambda: Decimal("1.5"), "fraction": lambda: Fraction(1, 3),
    "text": lambda: "x", "no text": lambda: "", "digits": lambda: "12", "braces": lambda: "{x}{0}{", "surrogate": lambda: "\ud800",
    "bytes": lambda: b"a", "bytearray": lambda: bytearray(b"ab"), "memoryview": lambda: memoryview(b"ab"),
    "list": lambda: [1], "pair": lambda: [1, 1], "no list": list, "tuple": lambda: (1, 2), "nested": lambda: [[1, [2]], 3],
    "list of text": lambda: ["a"], "list of none": lambda: [None], "list of inf": lambda: [float("inf"), 1],
    "list of huge": lambda: [2**70, 1], "list of bools": lambda: [True, False], "long list": lambda: [1] * 40,
    "pairs": lambda: [(1, 1)], "list of objects": lambda: [object()], "list of raising": lambda: [_raising("__index__", "__eq__", "__repr__")],
    "set": lambda: {1}, "dict": lambda: {1: 1}, "dict of text": lambda: {"x": None}, "dict of raising": lambda: {1: _raising("__index__")},
    "range": lambda: range(3), "slice": lambda: slice(0, 1), "ellipsis": lambda: ..., "iterator": lambda: iter([1, 2]),
    "generator": lambda: (x for x in (1, 2)), "object": object, "class": lambda: int, "function": lambda: len, "module": lambda: np,
    "array of 0 axes": lambda: np.array(1), "array": lambda: np.zeros(2), "array of integers": lambda: np.array([1, 1]),
    "matrix": lambda: np.ones((2, 2)), "no array": lambda: np.zeros(0), "array of objects": lambda: np.array([None, "x"], object),
    "array of text": lambda: np.array(["a"]), "array of bools": lambda: np.array([True, False]), "record": lambda: np.zeros(2, "i4,f4"),
    "np int": lambda: np.int64(3), "np unsigned": lambda: np.uint64(2**64 - 1), "np float": lambda: np.float32(1.5),
    "np nan": lambda: np.float64("nan"), "np bool": lambda: np.bool_(True), "np complex": lambda: np.complex64(1j),
    "np text": lambda: np.str_("x"), "np date": lambda: np.datetime64("2020-01-01"), "masked": lambda: np.ma.masked_array([1.0, 2.0], [0, 1]),
    "dtype": lambda: np.dtype(np.float32), "complex dtype": lambda: np.dtype(complex), "type": lambda: np.float32,
    "ctypes int": lambda: ctypes.c_int(3), "ctypes array": lambda: (ctypes.c_float * 2)(), "null": lambda: ctypes.c_void_p(),
    "member of DataType": lambda: DataType.HALF, "member of HeurMode": lambda: HeurMode.B, "member of PointwiseMode": lambda: PointwiseMode.ADD,
    "member of Status": lambda: Status.BAD_PARAM, "foreign member": lambda: Other.FIRST, "far member": lambda: Other.LAST,
    "an index": Index, "endless": Endless, "exception": lambda: ValueError("x"), "none class": lambda: type(None),
    **{f"raising {names[0]}": (lambda names=names: _raising(*names)) for names in (
        ("__eq__", "__ne__"), ("__len__",), ("__iter__",), ("__index__",), ("__float__",), ("__bool__",), ("__repr__", "__str__"),
        ("__hash__",), ("__len__", "__iter__", "__getitem__"), ("__index__", "__float__", "__int__"), ("__contains__", "__eq__"),
        ("__getattr__",), ("__format__",), ("__array__",), ("__dlpack__", "__dlpack_device__"), ("__lt__", "__le__", "__gt__", "__ge__"),
        ("__fspath__",), ("__call__",), ("__getitem__", "keys"), ("items", "__iter__"), ("__str__",),
    )},
}  # fmt: skip
