"""Hostile calls of the v8 face: each kind of descriptor, attribute, storage type, count and value, in drawn combinations.

    python tests/attack/backend_calls_drawn.py 1000000 [--seed N]

A call has to end in a result or in an error of the library that is no ``call.unexpected``: a rule that says what is
wrong. Prints what came out otherwise, and ends with code 1.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from builder_calls import Finding, last_line
from hostile import VALUES

from graphdnn import Graph, GraphdnnError, backend
from graphdnn.attribute_names import AttributeName
from graphdnn.backend.attribute_elements import ELEMENTS, ENUM_OF
from graphdnn.backend.descriptor import Descriptor
from graphdnn.backend.descriptor_types import KINDS
from graphdnn.backend.rules import UNEXPECTED
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DataType, DescriptorType

Rng = random.Random
DESCRIPTORS = tuple(DescriptorType)
NAMES = tuple(AttributeName)
OWN_RULES = tuple(KINDS)
_MOST = 40  # descriptors that later ones may refer to


def right(rng: Rng, kind: T) -> Any:
    """One element of a storage type, which may be of use."""
    if kind in ENUM_OF:
        return rng.choice(tuple(ENUM_OF[kind]))
    if kind is T.BOOLEAN:
        return rng.random() < 0.5
    if kind in (T.INT64, T.INT32):
        return rng.choice((0, 1, 1, 2, 2, 3, 4, 8, 16, -1, 2**31 - 1, 2**53 + 1, 2**63 - 1, -(2**63)))
    if kind in (T.FLOAT, T.DOUBLE):
        return rng.choice((0.0, 1.0, -1.0, 1e-5, 0.5, float("inf"), float("nan"), 1e300, 2**53 + 1))
    if kind is T.FRACTION:
        return rng.choice((Fraction(1), Fraction(1, 2), (2, 1), (1, 0), Fraction(2**62, 3)))
    if kind is T.CHAR:
        return rng.choice(("", "{}", "x", "[1]", '{"a": 1}', "\ud800", "a\0b"))
    if kind is T.VOID_PTR:
        return rng.choice(
            (
                np.zeros(4, np.float32),
                np.float32(1),
                np.array([1.5]),
                1.0,
                None,
                123456,
                np.int64(3),
                np.zeros(1, np.int8),
            )
        )
    return None


class Session:
    """Descriptors that were made so far."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        self.made: list[Descriptor] = []
        self.handle = backend.cudnnCreate("cpu")

    def descriptor(self, kinds: tuple[DescriptorType, ...] = ()) -> Any:
        fitting = [d for d in self.made if d.type in kinds] if kinds else self.made
        roll = self.rng.random()
        if fitting and roll < 0.95:
            return self.rng.choice(fitting)
        return VALUES[self.rng.choice(tuple(VALUES))]() if roll > 0.98 or not self.made else self.rng.choice(self.made)

    def element(self, kind: T, nested: tuple[DescriptorType, ...]) -> Any:
        if self.rng.random() < 0.12:
            return VALUES[self.rng.choice(tuple(VALUES))]()
        if kind is T.BACKEND_DESCRIPTOR:
            return self.descriptor(nested)
        return self.handle if kind is T.HANDLE else right(self.rng, kind)

    def elements(self, kind: T, count: int, nested: tuple[DescriptorType, ...]) -> Any:
        rng = self.rng
        roll = rng.random()
        if roll < 0.1:
            return VALUES[rng.choice(tuple(VALUES))]()
        items = [self.element(kind, nested) for _ in range(max(0, min(count, 9)))]
        if roll < 0.2 and kind in ELEMENTS:
            dtype = rng.choice(
                (ELEMENTS[kind].dtype, np.dtype(np.int64), np.dtype(np.float32), np.dtype(object), np.dtype("U1"))
            )
            try:
                return np.array(items, dtype)
            except Exception:
                return np.zeros(len(items))
        if roll < 0.25:
            return (ctypes.c_int64 * len(items))()
        return items[0] if len(items) == 1 and roll < 0.4 else items

    def create(self) -> None:
        kind = self.rng.choice(OWN_RULES if self.rng.random() < 0.9 else DESCRIPTORS)
        self.made = [*self.made[-_MOST:], backend.cudnnBackendCreateDescriptor(kind)]

    def described(self) -> None:
        """A descriptor with most of its attributes right, so that what follows has something to go on with."""
        rng = self.rng
        kind = rng.choice([k for k in OWN_RULES if KINDS[k].settings is not None])
        descriptor = backend.cudnnBackendCreateDescriptor(kind)
        self.made = [*self.made[-_MOST:], descriptor]
        for row in KINDS[kind].rows.values():
            if row.field is None or not (row.required or rng.random() < 0.3):
                continue
            element = rng.choice(row.attr.types)
            count = rng.choice((row.attr.count[0], min(row.attr.count[1], 4), 4, 2, 1))
            items = [self.element(element, row.nested) for _ in range(count)]
            try:
                backend.cudnnBackendSetAttribute(descriptor, row.attr.name, element, count, items)
            except GraphdnnError as error:
                _judge(error)
        backend.cudnnBackendFinalize(descriptor)

    def tensor(self) -> None:
        rng = self.rng
        dims = [rng.choice((1, 1, 2, 3, 4)) for _ in range(rng.choice((1, 2, 4, 4, 5)))]
        strides = [int(np.prod(dims[i + 1 :])) for i in range(len(dims))]
        t = backend.cudnnBackendCreateDescriptor(DescriptorType.TENSOR)
        self.made = [*self.made[-_MOST:], t]
        backend.cudnnBackendSetAttribute(t, AttributeName.TENSOR_UNIQUE_ID, T.INT64, 1, [rng.randrange(40)])
        backend.cudnnBackendSetAttribute(
            t,
            AttributeName.TENSOR_DATA_TYPE,
            T.DATA_TYPE,
            1,
            [rng.choice((DataType.FLOAT, DataType.HALF, DataType.INT8, DataType.INT64))],
        )
        backend.cudnnBackendSetAttribute(t, AttributeName.TENSOR_DIMENSIONS, T.INT64, len(dims), dims)
        backend.cudnnBackendSetAttribute(t, AttributeName.TENSOR_STRIDES, T.INT64, len(dims), strides)
        if rng.random() < 0.3:
            backend.cudnnBackendSetAttribute(t, AttributeName.TENSOR_IS_VIRTUAL, T.BOOLEAN, 1, [True])
        backend.cudnnBackendFinalize(t)

    def whole(self) -> None:
        """A graph of the builder as a plan: what executions are drawn with."""
        rng = self.rng
        g = Graph(io_data_type=rng.choice(("float32", "float16", "int8")))
        g.relu(g.tensor([2, 3])).set_output(True)
        from graphdnn.files import plan_to_json

        text = plan_to_json(g.build())
        plan = backend.cudnnBackendCreateDescriptor(DescriptorType.EXECUTION_PLAN)
        self.made = [*self.made[-_MOST:], plan]
        backend.cudnnBackendSetAttribute(
            plan, AttributeName.EXECUTION_PLAN_JSON_REPRESENTATION, T.CHAR, len(text) + 1, text
        )
        backend.cudnnBackendFinalize(plan)

    def set(self) -> None:
        rng = self.rng
        target = self.descriptor()
        rows = list(KINDS[target.type].rows.values()) if isinstance(target, Descriptor) else []
        if rows and rng.random() < 0.85:
            row = rng.choice(rows)
            name, nested = row.attr.name, row.nested
            kind = rng.choice(row.attr.types) if rng.random() < 0.85 else rng.choice(tuple(T))
            low, high = row.attr.count
            count: Any = rng.choice((low, min(high, 4), 1, 2, 4, 5, 9, 0, -1))
        else:
            name, nested = rng.choice(NAMES), ()
            kind, count = rng.choice(tuple(T)), rng.choice((0, 1, 2, 8, 9, -1, 2**40))
        values = self.elements(kind, count, nested)
        arguments = [target, name, kind, count, values]
        backend.cudnnBackendSetAttribute(*self.spoiled(arguments))

    def get(self) -> None:
        rng = self.rng
        target = self.descriptor()
        rows = list(KINDS[target.type].rows.values()) if isinstance(target, Descriptor) else []
        row = rng.choice(rows) if rows and rng.random() < 0.9 else None
        name = row.attr.name if row else rng.choice(NAMES)
        kind = rng.choice(row.attr.types) if row and rng.random() < 0.85 else rng.choice(tuple(T))
        count = rng.choice((0, 1, 2, 4, 100, -1))
        given = None
        if kind is T.BACKEND_DESCRIPTOR:
            given = [
                backend.cudnnBackendCreateDescriptor(rng.choice(row.nested or OWN_RULES if row else OWN_RULES))
                for _ in range(max(0, min(count, 4)))
            ]
        backend.cudnnBackendGetAttribute(*self.spoiled([target, name, kind, count, given]))

    def spoiled(self, arguments: list[Any]) -> list[Any]:
        if self.rng.random() < 0.1:
            arguments[self.rng.randrange(len(arguments))] = VALUES[self.rng.choice(tuple(VALUES))]()
        return arguments

    def finalize(self) -> None:
        backend.cudnnBackendFinalize(*self.spoiled([self.descriptor()]))

    def execute(self) -> None:
        pack = backend.cudnnBackendCreateDescriptor(DescriptorType.VARIANT_PACK)
        uids = [1, 2] if self.rng.random() < 0.8 else [self.rng.randrange(5) for _ in range(3)]
        arrays = [
            self.rng.choice(
                (
                    np.zeros((2, 3), np.float32),
                    np.zeros((2, 3), np.float16),
                    np.zeros((2, 3), np.int8),
                    (ctypes.c_float * 6)(),
                )
            )
            for _ in uids
        ]
        arrays = [a if self.rng.random() < 0.8 else self.element(T.VOID_PTR, ()) for a in arrays]
        backend.cudnnBackendSetAttribute(pack, AttributeName.VARIANT_PACK_UNIQUE_IDS, T.INT64, len(uids), uids)
        backend.cudnnBackendSetAttribute(pack, AttributeName.VARIANT_PACK_DATA_POINTERS, T.VOID_PTR, len(uids), arrays)
        if self.rng.random() < 0.2:
            backend.cudnnBackendSetAttribute(
                pack, AttributeName.VARIANT_PACK_WORKSPACE, T.VOID_PTR, 1, [self.element(T.VOID_PTR, ())]
            )
        backend.cudnnBackendFinalize(pack)
        backend.cudnnBackendExecute(
            *self.spoiled([self.handle, self.descriptor((DescriptorType.EXECUTION_PLAN,)), pack])
        )

    def other(self) -> None:
        calls: tuple[Callable[..., Any], ...] = (
            backend.cudnnCreate, backend.cudnnDestroy, backend.cudnnGetStream, backend.cudnnBackendCreateDescriptor, backend.cudnnBackendDestroyDescriptor,
            backend.cudnnBackendInitialize, backend.cudnnBackendFinalize, backend.cudnnGetErrorString, backend.cudnnGetLastErrorString,
        )  # fmt: skip
        value = VALUES[self.rng.choice(tuple(VALUES))]()
        if self.rng.random() < 0.3:
            backend.cudnnSetStream(backend.cudnnCreate("cpu"), value)
        else:
            self.rng.choice(calls)(value)


_STEPS = (
    (Session.create, 2), (Session.described, 30), (Session.tensor, 12), (Session.whole, 1), (Session.set, 40), (Session.get, 20),
    (Session.finalize, 6), (Session.execute, 6), (Session.other, 6),
)  # fmt: skip


def _judge(error: GraphdnnError) -> None:
    if any(r.rule == UNEXPECTED.id for r in error.rejections):
        raise error.__cause__ or error


def attack(count: int, seed: int) -> tuple[Counter[str], list[Finding]]:
    """Endings by kind, and everything that was no ending."""
    rng = random.Random(seed)
    session = Session(rng)
    steps, weights = zip(*_STEPS, strict=True)
    endings: Counter[str] = Counter()
    found: list[Finding] = []
    for _ in range(count):
        step = rng.choices(steps, weights)[0]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                step(session)
            endings["accepted"] += 1
        except GraphdnnError as error:
            try:
                str(error)
                _judge(error)
                endings["refused"] += 1
            except Exception as cause:
                found.append(Finding(step.__name__, "", f"{type(cause).__name__}: {last_line(cause)}"))
        except Exception as error:
            found.append(Finding(step.__name__, "", f"{type(error).__name__}: {last_line(error)}"))
    endings["foreign"] = len(found)
    return endings, found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.chdir("/tmp")
    endings, found = attack(options.count, options.seed)
    kinds: dict[str, list[Finding]] = {}
    for finding in found:
        kinds.setdefault(finding.error.split(" ", 2)[1], []).append(finding)
    for place, those in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"{len(those):5} {place}: {those[0].method} {those[0].error}")
    print(dict(endings), f"{len(kinds)} kinds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
