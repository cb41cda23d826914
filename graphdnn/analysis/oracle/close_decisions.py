"""Close decisions, and how far results may be off because of them, element by element.

A comparison whose operands lie within their errors of each other may be decided either way, and a selection by it takes
one operand or the other: their distance is the *swing* of that element. Operations behind it hand swings on, a sum the
sum of its terms' swings. Sums of small fractions meet in comparisons all the time, so swings are no faults.

An error bound holds for a whole tensor, so it says of a zero that an activation made that it might be something else.
Some elements are exact: inputs, clipped elements, sums whose every term is 0, and copies and choices of exact elements.
A comparison of two exact elements is decided. So is the comparison of a value with itself
(``graphdnn.graph.value_numbering``), and that of the largest element with its maximum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import isfinite
from typing import Any

import numpy as np

from graphdnn.analysis.oracle.float64_evaluation import apply, apply_all
from graphdnn.dtypes import BOOLEANS, COMPUTE, ELEMENTS, FLOATS, Array, cast
from graphdnn.enums import PointwiseMode, ReductionOperator, ResampleMode
from graphdnn.graph.value_numbering import Numbers, cancels, is_of_itself
from graphdnn.operations import (
    Concat,
    ConvolutionOperation,
    Matmul,
    Operation,
    PointwiseOperation,
    Reduction,
    ResampleBackward,
    ResampleForward,
    Reshape,
    Slice,
    Transpose,
)
from graphdnn.tensors import TensorSpec

_WHOLE = tuple(kind for kind, row in ELEMENTS.items() if row.kind not in ("float", "bool"))
_M, _R = PointwiseMode, ReductionOperator
_MOVEMENT = (Concat, Reshape, Slice, Transpose)
_BY_ELEMENT = ("comparison", "logical")
_JUMPING = (_M.CEIL, _M.FLOOR, _M.MOD, _M.FLOOR_MOD, _M.RELU_BWD)
_CHOICES = (_M.MIN, _M.MAX, _M.ABS, _M.NEG, _M.IDENTITY, _M.CEIL, _M.FLOOR)
_ROUNDED_ONCE = (_M.ADD, _M.SUB, _M.MUL)  # exact where the result is a number of the type
_DRAWS, _SAFETY = 3, 4.0  # for operations that are neither sums nor choices: tried on operands that are off
_EXTREMES = (_R.MAX, _R.MIN)


def tips(op: Operation) -> bool:
    """Whether the operation's decisions are followed element by element."""
    return isinstance(op, PointwiseOperation) and op.spec.row.kind in _BY_ELEMENT


def has_decisions(operations: Sequence[Operation]) -> bool:
    """True for a graph in which something may be decided either way."""
    return any(_jumps(op) or any(rounds_to_whole(op, t) for t in op.outputs().values()) for op in operations)


def _jumps(op: Operation) -> bool:
    return tips(op) or (isinstance(op, PointwiseOperation) and op.spec.mode in _JUMPING)


def rounds_to_whole(op: Operation, tensor: TensorSpec) -> bool:
    """True for a result whose fractions are rounded to an integer: a decision between two of them."""
    compute = COMPUTE.get(op.compute_type)
    if compute is None or compute.kind in "biu" or isinstance(op, _MOVEMENT) or op.reads_output:
        return False
    return tensor.data_type in _WHOLE


class Decisions:
    """``swings`` by uid, of tensors that have any: 1 for a boolean that may be the other. Filled in by ``follow``."""

    def __init__(self, operations: Sequence[Operation], values: Mapping[int, Array], numbers: Numbers) -> None:
        self.values, self.numbers = values, numbers
        self.swings: dict[int, Array] = {}
        self._sure: dict[int, Array] = {}  # of what operations write: the elements that cannot be off
        self._made = {t.uid: op for op in operations for t in op.outputs().values()}
        self._is_idle = not has_decisions(operations)

    def follow(self, op: Operation, errors: Mapping[int, float], bound: Mapping[str, float]) -> None:
        """``errors`` of the operands by uid, ``bound`` of the results by port: both without swings."""
        if self._is_idle:
            return
        with np.errstate(all="ignore"):
            swings = self._swings(op, errors, bound)
            for port, step in self._steps(op, bound).items():
                swings[port] = np.maximum(swings.get(port, np.zeros(())), step)
            for port, found in swings.items():
                swing = np.where(np.isnan(found), np.inf, found)
                if np.any(swing > 0):
                    tensor = op.outputs()[port]
                    whole = swing if tensor.data_type in FLOATS else np.ceil(swing)
                    self.swings[tensor.uid] = np.broadcast_to(whole, tensor.extents)
            for port, tensor in op.outputs().items():
                sure = self._sure_of(op, port, tensor, errors)
                self._sure[tensor.uid] = sure & (self.swings[tensor.uid] == 0) if tensor.uid in self.swings else sure

    def is_sure(self, uid: int) -> bool:
        """True where no element can be off."""
        return not self._is_idle and uid in self._sure and bool(self._sure[uid].all())

    # What is known of operands.

    def _sure_at(self, tensor: TensorSpec) -> Array:
        return self._sure[tensor.uid] if tensor.uid in self._sure else np.asarray(tensor.uid not in self._made)

    def _off(self, tensor: TensorSpec, errors: Mapping[int, float]) -> Array:
        """How far each element may be off, decisions included."""
        error = np.where(self._sure_at(tensor), 0.0, errors.get(tensor.uid, 0.0))
        return np.asarray(error + self.swings[tensor.uid] if tensor.uid in self.swings else error)

    def _value(self, tensor: TensorSpec) -> Array:
        return np.asarray(self.values[tensor.uid]).astype(np.float64)

    # Swings.

    def _swings(self, op: Operation, errors: Mapping[int, float], bound: Mapping[str, float]) -> dict[str, Array]:
        inputs = op.inputs()
        if isinstance(op, PointwiseOperation):
            if op.spec.row.kind == "index" or cancels(op, self.numbers):
                return {}
            if op.spec.row.kind == "comparison":
                return {"y": self._close(op, errors)}
            moved = {port: self.swings[t.uid] for port, t in inputs.items() if t.uid in self.swings}
            if op.spec.row.kind == "logical":
                moved |= {p: np.where(self._off(t, errors) >= np.abs(self._value(t)), self._off(t, errors), 0.0)
                          for p, t in inputs.items() if t.data_type not in BOOLEANS}  # fmt: skip
            (port,) = op.outputs()
            found = self._varied(op, moved)[port] if any(np.any(s > 0) for s in moved.values()) else np.zeros(())
            if op.spec.mode in _JUMPING:
                off = {p: self._off(t, errors) for p, t in inputs.items() if np.any(self._off(t, errors) > 0)}
                jumps = self._varied(op, off)[port] if off else np.zeros(())
                found = np.maximum(found, np.where(jumps > 4 * bound[port], jumps, 0.0))
            return {port: found}
        moved = {port: self.swings[t.uid] for port, t in inputs.items() if t.uid in self.swings}
        if not moved:
            return {}
        port = next(iter(op.outputs()))
        if isinstance(op, _MOVEMENT):
            return {port: apply(op, {p: moved.get(p, np.zeros(())) for p in inputs})}
        factor = abs(float(getattr(op, "alpha", 1.0)))
        if isinstance(op, (ConvolutionOperation, Matmul)):
            (a, x), (b, w) = ((p, np.abs(self._value(t))) for p, t in list(inputs.items())[:2])
            s, r = moved.get(a, np.zeros(())), moved.get(b, np.zeros(()))
            total = apply(op, {a: s, b: w + r}) if np.any(s) else np.zeros(())
            return {port: factor * (total + apply(op, {a: x, b: r}) if np.any(r) else total)}
        if isinstance(op, Reduction) and op.spec.operator in (_R.ADD, _R.AVG, _R.NORM1):
            operator = _R.ADD if op.spec.operator is _R.NORM1 else op.spec.operator
            plain = op.model_copy(update={"spec": op.spec.model_copy(update={"operator": operator})})
            return {port: apply(plain, moved)}
        is_pool = isinstance(op, ResampleForward) and op.spec.mode is ResampleMode.MAXPOOL
        if is_pool or (isinstance(op, Reduction) and op.spec.operator in _EXTREMES):
            return self._varied(op, moved)  # rising in every element: the ends are enough
        if isinstance(op, ResampleForward) or (isinstance(op, ResampleBackward) and set(inputs) == {"dy"}):
            return {port: factor * apply(op, moved)}  # averages
        return self._tried(op, moved)

    def _steps(self, op: Operation, bound: Mapping[str, float]) -> dict[str, Array]:
        """How far rounding to integers may take a result, where what is rounded is off by ``bound``."""
        whole = [p for p, t in op.outputs().items() if bound[p] > 0 and rounds_to_whole(op, t)]
        if not whole:
            return {}
        results = self._computed(op, {port: self._value(t) for port, t in op.inputs().items()})
        found = {}
        for port in whole:
            limits = ELEMENTS[op.outputs()[port].data_type]
            low, usual, high = (
                np.clip(np.rint(results[port] + off), limits.smallest, limits.largest)
                for off in (-bound[port], 0.0, bound[port])
            )
            found[port] = np.nan_to_num(np.maximum(high - usual, usual - low), nan=0.0)
        return found

    def _close(self, op: PointwiseOperation, errors: Mapping[int, float]) -> Array:
        """1 where a comparison may be decided either way."""
        if is_of_itself(op, self.numbers):
            return np.zeros(())
        a, b = op.inputs().values()
        compute = COMPUTE.get(op.compute_type)
        ends, reach = [], []
        for tensor, scale in ((a, op.alpha1), (b, op.alpha2)):
            value = self._value(tensor) * scale
            off = abs(scale) * self._off(tensor, errors)
            if compute is not None and compute.kind not in "biu" and tensor.data_type not in BOOLEANS:
                held = scale == 1.0 and np.can_cast(ELEMENTS[tensor.data_type].numpy, compute)
                off = off if held else off + np.abs(value - value.astype(compute).astype(np.float64))
            ends.append(value)
            reach.append(off)
        off = reach[0] + reach[1]
        close = (off > 0) & (np.abs(ends[0] - ends[1]) <= off)
        for whole, part in ((a, b), (b, a)):
            if np.any(close) and op.alpha1 == op.alpha2 == 1.0 and self._is_extreme(part, whole):
                axes = tuple(i for i, n in enumerate(part.extents) if n != whole.extents[i])
                close = close & (np.sum(close, axis=axes, keepdims=True) > 1)
        return close.astype(np.float64)

    def _is_extreme(self, extreme: TensorSpec, of: TensorSpec) -> bool:
        """True where one tensor is the other's largest or smallest elements."""
        op = self._made.get(extreme.uid)
        return (
            isinstance(op, Reduction)
            and op.spec.operator in _EXTREMES
            and self.numbers[op.x.uid] == self.numbers[of.uid]
            and extreme.data_type is op.x.data_type
        )

    def _varied(self, op: Operation, moved: Mapping[str, Array]) -> dict[str, Array]:
        """The largest change of each result where each operand is as it is, or at either end."""
        inputs = op.inputs()
        at = {port: self._value(t) for port, t in inputs.items()}
        usual = self._computed(op, at)
        found = {port: np.zeros(()) for port in usual}
        ends = [list(self._ends(inputs[port], swing)) for port, swing in moved.items()]
        for values in product(*ends):
            for port, result in self._computed(op, at | dict(zip(moved, values, strict=True))).items():
                found[port] = np.maximum(found[port], _apart(result, usual[port]))
        return found

    def _ends(self, tensor: TensorSpec, swing: Array) -> Iterator[Array]:
        value = self._value(tensor)
        yield value
        if tensor.data_type in BOOLEANS:
            yield np.where(swing > 0, 1 - value, value)
        else:
            yield value + swing
            yield value - swing

    def _tried(self, op: Operation, moved: Mapping[str, Array]) -> dict[str, Array]:
        """How far results move for a few draws of operands that are off, and some more."""
        inputs, rng = op.inputs(), np.random.default_rng(0)
        at = {port: self._value(t) for port, t in inputs.items()}
        usual = self._computed(op, at)
        found = {port: np.zeros(()) for port in usual}
        for _ in range(_DRAWS):
            drawn = {p: at[p] + s * rng.choice((-1.0, 1.0), np.shape(s)) for p, s in moved.items()}
            for port, result in self._computed(op, at | drawn).items():
                found[port] = np.maximum(found[port], _apart(result, usual[port]))
        return {port: _SAFETY * np.where(s > 0, np.maximum(s, np.mean(s)), 0.0) for port, s in found.items()}

    def _computed(self, op: Operation, operands: Mapping[str, Array]) -> dict[str, Array]:
        if isinstance(op, PointwiseOperation):
            row, (port, tensor) = op.spec.row, next(iter(op.outputs().items()))
            scaled = [
                operands[name] * (alpha if alpha != 1.0 else 1.0)
                for name, alpha in zip(row.operands, (op.alpha1, op.alpha2, 1.0), strict=False)
            ]
            result = np.asarray(row.numpy(*scaled, **op.spec.parameters()), np.float64)
            return {port: np.broadcast_to(result, tensor.extents)}
        return apply_all(op, operands, **({"alpha": op.alpha} if hasattr(op, "alpha") else {}))

    # Elements that cannot be off.

    def _sure_of(self, op: Operation, port: str, tensor: TensorSpec, errors: Mapping[int, float]) -> Array:
        none = np.zeros((), bool)
        if op.reads_output:
            return none
        inputs = op.inputs()
        if isinstance(op, PointwiseOperation):
            return self._sure_pointwise(op, tensor, errors)
        if isinstance(op, _MOVEMENT) or (isinstance(op, Reduction) and op.spec.operator in _EXTREMES):
            unsure = {p: np.where(self._sure_at(t), 0.0, 1.0) for p, t in inputs.items()}
            if not any(np.any(u) for u in unsure.values()):
                return np.ones((), bool)
            if all(np.all(u) for u in unsure.values()):
                return none
            if isinstance(op, Reduction):
                op = op.model_copy(update={"spec": op.spec.model_copy(update={"operator": _R.MAX})})
            return np.asarray(apply(op, unsure) == 0)
        if isinstance(op, (ConvolutionOperation, Matmul, ResampleForward, ResampleBackward)) or (
            isinstance(op, Reduction) and op.spec.operator in (_R.ADD, _R.AVG, _R.NORM1, _R.NORM2, _R.AMAX)
        ):
            zero = self.values[tensor.uid] == 0
            if not np.any(zero) or tensor.data_type not in FLOATS or port == "index":
                return none
            # What a gradient of pooling reads to find the largest elements is no factor.
            factors = {"dy"} if isinstance(op, ResampleBackward) else set(inputs)
            off = {p: self._off(t, errors) if p in factors else 0.0 for p, t in inputs.items()}
            reach = {p: np.abs(self._value(t)) + off[p] if p in factors else self._value(t) for p, t in inputs.items()}
            return np.asarray(zero & (apply(op, reach) == 0))
        return none

    def _sure_pointwise(self, op: PointwiseOperation, tensor: TensorSpec, errors: Mapping[int, float]) -> Array:
        mode, kind, none = op.spec.mode, op.spec.row.kind, np.zeros((), bool)
        if kind in ("comparison", "logical", "index") or cancels(op, self.numbers):
            return np.ones((), bool)  # where swings do not say otherwise
        inputs = op.inputs()
        sure = {p: self._sure_at(t) for p, t in inputs.items()}
        if mode is _M.BINARY_SELECT:
            found = np.where(self._value(inputs["t"]) != 0, sure["x"], sure["b"]) & sure["t"]
        elif mode in (_M.RELU_FWD, _M.RELU_BWD):
            found = self._clipped(op, errors)
        else:
            found = np.asarray(np.logical_and.reduce(np.broadcast_arrays(*sure.values())))
            if mode in (_M.MIN, _M.MAX) and op.alpha1 == op.alpha2 == 1.0:
                found = found | self._won(op, sure, errors)
            elif mode is _M.MUL:
                x, b = (self._value(t) for t in inputs.values())
                s, r = sure.values()
                found = found | (s & (x == 0) & np.isfinite(b)) | (r & (b == 0) & np.isfinite(x))
            elif mode not in (*_CHOICES, *_ROUNDED_ONCE):
                return none
        if not np.any(found):
            return none
        return found & self._is_held(op, tensor)

    def _clipped(self, op: PointwiseOperation, errors: Mapping[int, float]) -> Array:
        """Where the operand is sure, or clipped by more than it may be off."""
        spec = op.spec
        x = op.x
        assert x is not None
        value, off = self._value(x) * op.alpha1, abs(op.alpha1) * self._off(x, errors)
        if spec.mode is _M.RELU_BWD:
            value, off = (self._value(x), self._off(x, errors))
        below = (value + off < spec.relu_lower_clip) if spec.relu_lower_clip_slope == 0 else np.zeros((), bool)
        above = value - off > spec.relu_upper_clip if isfinite(spec.relu_upper_clip) else np.zeros((), bool)
        found = self._sure_at(x) | below | above
        if op.dy is not None:
            found = (found & self._sure_at(op.dy)) | below | above
        return np.asarray(found)

    def _won(self, op: PointwiseOperation, sure: Mapping[str, Array], errors: Mapping[int, float]) -> Array:
        """Where a sure element is the choice whatever the other is off by."""
        (a, x), (b, w) = op.inputs().items()
        sign = 1.0 if op.spec.mode is _M.MAX else -1.0
        ahead = sign * (self._value(x) - self._value(w))
        return np.asarray((sure[a] & (ahead > self._off(w, errors))) | (sure[b] & (-ahead > self._off(x, errors))))

    def _is_held(self, op: PointwiseOperation, tensor: TensorSpec) -> Array:
        """Where the arithmetic and the type have the reference's number."""
        compute, value = COMPUTE.get(op.compute_type), self._value(tensor)
        if tensor.data_type not in FLOATS:
            return np.ones((), bool)
        held: Array = np.asarray(cast(value, tensor.data_type)).astype(np.float64) == value
        if compute is not None and compute.kind == "f":
            held = held & (value.astype(compute).astype(np.float64) == value)
        return held


def _apart(values: Array, usual: Array) -> Any:
    """How far two results are apart; infinite where only one is a number."""
    apart = np.where((values == usual) | (np.isnan(values) & np.isnan(usual)), 0.0, np.abs(values - usual))
    return np.where(np.isnan(apart), np.inf, apart)
