"""The walk through a graph: from the boxes of its inputs to those of every tensor, operation by operation.

An operation adds its own roundings to what its operands carry along, and its result is rounded to the type of its
tensor, virtual or not. Whether boxes are arrays (data) or single ranges, linear operations ask ``Terms``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from graphdnn.certificate import alignments, normalizations, recurrent, recurrent_gradients, sampling
from graphdnn.certificate.box import Box, quiet, times
from graphdnn.certificate.derivatives import CARRIED
from graphdnn.certificate.normalizations import Arithmetic, Type
from graphdnn.certificate.roundings import ROUNDED, underflow
from graphdnn.certificate.summation import Summation, summation
from graphdnn.certificate.units import (
    REFERENCE,
    compute_of,
    gamma,
    largest,
    likely,
    roundoff,
    smallest,
    smallest_normal,
    storage_roundoff,
)
from graphdnn.dtypes import BOOLEANS, ELEMENTS, FLOATS, Array
from graphdnn.engines.work import reduction_length
from graphdnn.enums import NumericalNote, ReductionOperator, ResampleMode
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.operations import (
    BnBackwardWeights,
    BnFinalize,
    Concat,
    ConvolutionOperation,
    CtcLoss,
    GenStats,
    Matmul,
    NormBackward,
    NormForward,
    Operation,
    PointwiseOperation,
    RecurrentOperation,
    Reduction,
    ResampleBackward,
    ResampleForward,
    Reshape,
    RnnBackwardData,
    RnnBackwardWeights,
    RnnForward,
    Slice,
    Transpose,
)
from graphdnn.operations.grid_sample import GridSample, GridSampleBackward
from graphdnn.tensors import TensorSpec

_R = ReductionOperator
_MOVED = (Concat, Reshape, Slice, Transpose)

FORMULAS: dict[type[Operation], Callable[[Any, Mapping[str, Box], Arithmetic], dict[str, Box]]] = {
    NormForward: normalizations.norm_forward,
    NormBackward: normalizations.norm_backward,
    BnFinalize: normalizations.bn_finalize,
    BnBackwardWeights: normalizations.bn_backward_weights,
    GridSample: sampling.grid_sample,
    GridSampleBackward: sampling.grid_sample_backward,
    RnnForward: recurrent.forward,
    RnnBackwardData: recurrent_gradients.of_data,
    RnnBackwardWeights: recurrent_gradients.of_weights,
    CtcLoss: alignments.ctc_loss,
}


class Unproved(Exception):
    """No bound is derived for an operation, and why."""


@dataclass(slots=True)
class Walk:
    """``values``: the reference of every tensor, or None where only ranges of the inputs are known."""

    config: EngineConfig
    boxes: dict[int, Box]
    values: Mapping[int, Array] | None
    old: Mapping[int, Array] = field(default_factory=dict)  # of outputs that a beta reads
    is_statistical: bool = False
    why_not: dict[int, str] = field(default_factory=dict)  # uid -> why it has no bound
    remarks: list[str] = field(default_factory=list)  # why bounds say little
    totals: dict[int, Array] = field(default_factory=dict)  # of sums of exact operands, which another walk may share

    @quiet
    def run(self) -> None:
        """Fill in the boxes of everything that an operation writes."""
        mains = {id(choice.task.op.main): choice for choice in self.config.choices}
        for op in self.config.fused.graph.operations:
            unproved = next((self.why_not[t.uid] for t in op.inputs().values() if t.uid in self.why_not), "")
            try:
                if unproved:
                    raise Unproved(unproved)
                found = self._results(op, mains.get(id(op)))
            except Unproved as why:
                for tensor in op.outputs().values():
                    self.why_not[tensor.uid] = str(why)
                    self.boxes[tensor.uid] = self._around(tensor, Box.between(-np.inf, np.inf), np.inf)
                continue
            for port, tensor in op.outputs().items():
                self.boxes[tensor.uid] = self._stored(op, tensor, found[port])

    def _results(self, op: Operation, choice: Choice | None) -> dict[str, Box]:
        operands = {port: self._converted(op, t) for port, t in op.inputs().items()}
        if isinstance(op, PointwiseOperation):
            return {next(iter(op.outputs())): self._pointwise(op, operands)}
        if isinstance(op, (ConvolutionOperation, Matmul)):
            return {next(iter(op.outputs())): self._product(op, choice, operands)}
        if isinstance(op, Reduction):
            return {"y": self._reduction(op, operands["x"])}
        if isinstance(op, GenStats):
            return self._statistics(op, operands["x"])
        if isinstance(op, ResampleForward):
            return self._resampled(op, operands["x"])
        if isinstance(op, ResampleBackward):
            return {"dx": self._spread(op, operands)}
        if isinstance(op, _MOVED):
            return {"y": self._moved(op)}
        if type(op) in FORMULAS:
            if self.values is None:
                raise Unproved(f"{op.label().split(' ')[0]} depends on how the data is spread: give data")
            steps = 1 if self.config.device.kind == "cpu" else 4
            arithmetic = Arithmetic.of(op, self.is_statistical, steps, _handed(op, choice))
            found = FORMULAS[type(op)](op, operands, arithmetic)
            self.remarks += arithmetic.remarks
            return found
        raise Unproved(f"no bound is derived for {op.label().split(' ')[0]}")

    # Operands and results.

    def _converted(self, op: Operation, tensor: TensorSpec) -> Box:
        """In the arithmetic of the operation, rounded to it where it does not hold the tensor's type."""
        box, compute = self.boxes[tensor.uid], compute_of(op.compute_type)
        if compute is None or isinstance(op, _MOVED) or np.can_cast(ELEMENTS[tensor.data_type].numpy, compute):
            return box
        error = box.error + roundoff(compute) * box.reach + smallest(compute)
        return box.with_error(np.where(box.reach > largest(compute), np.inf, error))

    def _stored(self, op: Operation, tensor: TensorSpec, box: Box) -> Box:
        """In the type of its tensor: floats rounded, integers rounded and saturated, booleans as they are."""
        compute = compute_of(op.compute_type)
        error, most = box.error, box.most if self.values is None else np.abs(self._value(tensor))
        is_inside = tensor.is_virtual or tensor.uid in self.config.fused.graph.consumers
        if compute is not None and compute.kind not in "biu" and not isinstance(op, _MOVED):
            error = np.where(most + error > largest(compute), np.inf, error)
        if tensor.data_type in FLOATS:
            unit, eta = storage_roundoff(tensor.data_type)
            own = 0.0 if keeps(op, compute, tensor) else 1.0
            error = error + own * (unit * (most + error) + eta)
            if is_inside:  # the reference goes on with a number that this type does not have
                error = np.where(most + error > ELEMENTS[tensor.data_type].largest, np.inf, error)
        elif tensor.data_type not in BOOLEANS:
            rounds = compute is not None and compute.kind == "f" and not isinstance(op, _MOVED)
            error = np.where(error > 0, np.floor(error) + 1.0, 0.0) if rounds else np.ceil(error)
        else:
            error = np.minimum(np.ceil(error), 1.0)
        return self._around(tensor, box, error)

    def _around(self, tensor: TensorSpec, box: Box, error: Any) -> Box:
        """With the reference's own values where they are known."""
        if self.values is None:
            limits = ELEMENTS[tensor.data_type]
            if tensor.data_type in FLOATS:
                return box.with_error(error)
            low, high = (
                np.clip(np.nan_to_num(v, nan=0.0), limits.smallest, limits.largest) for v in (box.low, box.high)
            )
            return Box(low, high, np.broadcast_to(np.asarray(error, np.float64), low.shape)).with_error(error)
        values = self._value(tensor)
        return Box.of(values).with_error(np.broadcast_to(np.asarray(error, np.float64), values.shape))

    def _value(self, tensor: TensorSpec) -> Array:
        assert self.values is not None
        return np.asarray(self.values[tensor.uid]).astype(np.float64)

    # Sums of products.

    def _product(self, op: Any, choice: Choice | None, operands: dict[str, Box]) -> Box:
        (a, x), (b, w) = operands.items()
        compute = compute_of(op.compute_type)
        terms = Terms(op, self.values is not None)
        if compute.kind in "iu":
            return self._whole_product(op, terms, {a: x, b: w}, largest(compute))
        how = summation(op, choice)
        worst: Any = how.statistical if self.is_statistical else how.worst
        reach = {a: x.reach, b: w.reach}
        total = self._total(op, terms, x, w, reach) if not how.products else _largest_products(how, reach)
        whole = all(ELEMENTS[t.data_type].kind != "float" for t in op.inputs().values()) and x.is_exact and w.is_exact
        if whole and not how.products:  # such sums are integers that the arithmetic has
            worst = np.where(total <= 1 / roundoff(compute), 0.0, worst)
        most = max(1.0, *(float(np.max(v, initial=0.0)) for v in reach.values()))
        tiny = 0.0 if whole else how.floor * most
        error = np.where(np.asarray(worst) == 0, 0.0, worst * total) + tiny
        error = error + terms.of({a: x.error, b: w.reach}, (x.error,)) + terms.of({a: x.most, b: w.error}, (w.error,))
        error = np.where(how.headroom * total * (1 + worst) > largest(compute), np.inf, error)
        return self._blended(op, terms.range({a: x, b: w}).with_error(error), total)

    def _total(self, op: Operation, terms: Terms, x: Box, w: Box, reach: Mapping[str, Array]) -> Array:
        if not (x.is_exact and w.is_exact):
            return terms.of(reach)
        if id(op) not in self.totals:
            self.totals[id(op)] = terms.of(reach)
        return self.totals[id(op)]

    def _whole_product(self, op: Any, terms: Terms, operands: dict[str, Box], top: float) -> Box:
        """Exact while operands are, wrapped sums included; an operand that may be off needs sums that do not wrap."""
        (a, x), (b, w) = operands.items()
        box = terms.range(operands)
        if x.is_exact and w.is_exact:
            return self._blended(op, box, box.most)
        total = terms.of({a: x.reach, b: w.reach})
        error = terms.of({a: x.error, b: w.reach}, (x.error,)) + terms.of({a: x.most, b: w.error}, (w.error,))
        return self._blended(op, box.with_error(np.where(total > top, np.inf, error)), total)

    def _blended(self, op: Any, box: Box, total: Any) -> Box:
        """alpha * result + beta * old."""
        alpha, beta = float(getattr(op, "alpha", 1.0)), float(getattr(op, "beta", 0.0))
        if alpha == 1.0 and beta == 0.0:
            return box
        compute = compute_of(op.compute_type)
        u = max(roundoff(compute), REFERENCE) + REFERENCE  # integers are scaled in double where factors are fractions
        tensor = next(iter(op.outputs().values()))
        old = Box.between(0.0, 0.0) if beta == 0 else self._old(tensor)
        scaled, added = box.scaled(alpha), old.scaled(beta)
        reach = abs(alpha) * (np.maximum(box.most, total) + box.error) + added.reach
        error = scaled.error + added.error + gamma(3, u) * reach + 2 * smallest(compute)
        return Box(scaled.low + added.low, scaled.high + added.high, np.zeros(())).with_error(error)

    def _old(self, tensor: TensorSpec) -> Box:
        if tensor.uid not in self.old:
            raise Unproved(f"beta reads the old contents of {tensor.label()}, whose range is not known")
        return Box.of(self.old[tensor.uid])

    # Reductions.

    def _reduction(self, op: Reduction, x: Box) -> Box:
        operator, compute = op.spec.operator, compute_of(op.compute_type)
        terms, n = Terms(op, self.values is not None), max(1, op.x.elements // op.y.elements)
        if operator in (_R.MAX, _R.MIN, _R.AMAX):
            low, high = (x.low, x.high) if operator is not _R.AMAX else (np.zeros_like(x.low), x.most)
            return terms.widest(low, high, x.error)
        u = roundoff(compute) + (0.0 if compute.kind in "iu" else REFERENCE)
        if operator in (_R.MUL, _R.MUL_NO_ZEROS):
            return self._multiplied(op, terms, x, n, u)
        grown = self._sum_of(n, u)
        if operator is _R.NORM2:
            squares, errors = terms.of({"x": x.reach**2}), terms.of({"x": x.error**2}, (x.error,))
            norm = np.sqrt(squares)
            error = np.sqrt(errors) + gamma(n + 2, u) * norm + np.sqrt(n * smallest(compute))
            return Box(np.zeros_like(norm), norm, np.zeros(())).with_error(
                np.where(squares > largest(compute), np.inf, error)
            )
        total = terms.of({"x": x.reach})
        error = times(grown, total) + terms.of({"x": x.error}, (x.error,))
        if compute.kind in "iu":
            error = np.where((terms.of({"x": x.error}, (x.error,)) > 0) & (total > largest(compute)), np.inf, error)
        else:
            error = np.where(total * (1 + grown) > largest(compute), np.inf, error)
        low, high = (
            terms.signed({"x": v})
            for v in ((np.zeros_like(x.low), x.most) if operator is _R.NORM1 else (x.low, x.high))
        )
        if operator is _R.AVG:
            return Box(low / n, high / n, np.zeros(())).with_error(error / n + 2 * u * total / n + smallest(compute))
        return Box(low, high, np.zeros(())).with_error(error)

    def _sum_of(self, n: int, u: float) -> float:
        return likely(n, u) if self.is_statistical else gamma(n, u)

    def _multiplied(self, op: Reduction, terms: Terms, x: Box, n: int, u: float) -> Box:
        """prod |x + e| - prod |x|, and a rounding for each factor."""
        most, reach = x.most, x.reach
        if op.spec.operator is _R.MUL_NO_ZEROS:
            low, high = x.wide
            if bool(np.any((x.error > 0) & (low <= 0) & (high >= 0))):
                raise Unproved("mul_no_zeros leaves out zeros, and rounding decides what is one")
            most, reach = np.where(most == 0, 1.0, most), np.where(reach == 0, 1.0, reach)
        compute = compute_of(op.compute_type)
        exact, far = terms.multiplied(most), terms.multiplied(reach)
        error = (
            np.maximum(far - exact, 0.0) + (gamma(n + 2, u + REFERENCE)) * far if compute.kind == "f" else far - exact
        )
        if compute.kind == "f":  # partial products may leave the range on the way
            peak = terms.multiplied(np.maximum(reach, 1.0))
            error = error + smallest(compute) * n * np.maximum(peak, 1.0)
            error = np.where(peak > largest(compute), np.inf, error)
        elif not x.is_exact:
            error = np.where(far > largest(compute), np.inf, error)
        else:
            error = np.zeros_like(far)
        return Box(-exact, exact, np.zeros(())).with_error(error)

    def _statistics(self, op: GenStats, x: Box) -> dict[str, Box]:
        """Sums of values and of their squares."""
        terms, n = Terms(op, self.values is not None), reduction_length(op)
        u = roundoff(compute_of(op.compute_type)) + REFERENCE
        grown, top = self._sum_of(n + 1, u), largest(compute_of(op.compute_type))
        found = {}
        carried = 2 * x.most * x.error + x.error**2
        for port, reach, error, low, high in (
            ("sum", x.reach, x.error, x.low, x.high),
            ("sqsum", x.reach**2, carried, np.zeros_like(x.low), x.most**2),
        ):
            total = terms.of({"x": reach})
            bound = times(grown, total) + terms.of({"x": error}, (error,)) + n * smallest(compute_of(op.compute_type))
            box = Box(terms.signed({"x": low}), terms.signed({"x": high}), np.zeros(()))
            found[port] = box.with_error(np.where(total * (1 + grown) > top, np.inf, bound))
        return found

    # Pooling.

    def _resampled(self, op: ResampleForward, x: Box) -> dict[str, Box]:
        terms, u = Terms(op, self.values is not None), roundoff(compute_of(op.compute_type)) + REFERENCE
        if op.spec.mode is ResampleMode.MAXPOOL:
            largest_of = terms.widest(x.most, x.most, x.reach).error  # of each window
            box = self._blended(op, terms.widest(x.low, x.high, x.error), largest_of)
            index = Box.between(0.0, 0.0 if x.is_exact else 1.0)
            unclear = np.zeros(()) if x.is_exact else np.asarray(np.inf)
            return {"y": box, "index": index.with_error(unclear)}
        n = prod(map(int, op.spec.window_dims)) + 4
        total = terms.of({"x": x.reach})
        error = (
            gamma(3 * n, u) * total + terms.of({"x": x.error}, (x.error,)) + n * smallest(compute_of(op.compute_type))
        )
        error = np.where(n * terms.peak(x.reach) > largest(compute_of(op.compute_type)), np.inf, error)
        box = Box(terms.signed({"x": x.low}), terms.signed({"x": x.high}), np.zeros(())).with_error(error)
        return {"y": self._blended(op, box, total)}

    def _spread(self, op: ResampleBackward, operands: dict[str, Box]) -> Box:
        dy = operands["dy"]
        if any(not box.is_exact for port, box in operands.items() if port != "dy"):
            raise Unproved("rounding decides which element of a window was the largest")
        if self.values is None:
            raise Unproved("where the gradient of a window goes depends on the data")
        fixed = {port: box.low for port, box in operands.items() if port != "dy"}
        terms = Terms(op, True)
        u = roundoff(compute_of(op.compute_type)) + REFERENCE
        n = prod(map(int, op.spec.window_dims)) + 4
        total = terms.of({"dy": dy.reach, **fixed})
        error = (
            gamma(3 * n, u) * total
            + terms.of({"dy": dy.error, **fixed}, (dy.error,))
            + n * smallest(compute_of(op.compute_type))
        )
        error = np.where(n * terms.peak(dy.reach) > largest(compute_of(op.compute_type)), np.inf, error)
        return self._blended(op, Box(-total, total, np.zeros(())).with_error(error), total)

    # Element by element.

    def _pointwise(self, op: PointwiseOperation, operands: dict[str, Box]) -> Box:
        spec, compute = op.spec, compute_of(op.compute_type)
        boxes = [operands[port] for port in spec.row.operands]
        u = roundoff(compute) + (REFERENCE if compute.kind == "f" else 0.0)
        for i, alpha in enumerate((op.alpha1, op.alpha2)):
            if alpha != 1.0:
                scaled = boxes[i].scaled(alpha)
                boxes[i] = scaled.with_error(scaled.error + 2 * u * scaled.reach + smallest(compute))
        parameters = spec.parameters()
        carried = CARRIED[spec.mode](boxes, parameters)
        low, high = self._pointwise_range(op, boxes, parameters)
        if compute.kind != "f":
            top = largest(compute)
            wraps = (np.maximum(np.abs(low), np.abs(high)) + carried > top) & (np.asarray(carried) > 0)
            return Box(low, high, np.zeros(())).with_error(np.where(wraps, np.inf, carried))
        units, scale = ROUNDED.get(spec.mode, (0.0, None))
        most = np.maximum(np.abs(low), np.abs(high)) + carried
        own = 0.0 if scale is None else gamma(units, u) * scale(boxes, most, parameters)
        lost = underflow(spec.mode, parameters, smallest(compute), smallest_normal(compute), boxes)
        return Box(low, high, np.zeros(())).with_error(carried + own + lost)

    def _pointwise_range(
        self, op: PointwiseOperation, boxes: list[Box], parameters: Mapping[str, Any]
    ) -> tuple[Array, Array]:
        """Of the exact results: their own values where data is there, else what can be said of a box."""
        tensor = next(iter(op.outputs().values()))
        if self.values is not None:
            return self._value(tensor), self._value(tensor)
        from graphdnn.certificate.ranges import range_of

        return range_of(op, boxes, parameters)

    # Copies.

    def _moved(self, op: Any) -> Box:
        boxes = {port: self.boxes[t.uid] for port, t in op.inputs().items()}
        if self.values is None:
            low, high, error = (
                np.asarray(pick([getattr(box, name) for box in boxes.values()]))
                for pick, name in ((min, "low"), (max, "high"), (max, "error"))
            )
            return Box(low, high, error)
        if all(box.is_exact for box in boxes.values()):
            return Box.of(self.values[op.y.uid])
        from graphdnn.certificate.magnitudes import apply

        return Box.of(self.values[op.y.uid], apply(op, {port: box.error for port, box in boxes.items()}))


def keeps(op: Operation, compute: Any, tensor: TensorSpec) -> bool:
    """True where storing rounds nothing: a copy, or arithmetic of the same type or a narrower one."""
    if isinstance(op, _MOVED):
        return True
    if compute is not None and np.can_cast(compute, ELEMENTS[tensor.data_type].numpy):
        return True
    exact = isinstance(op, PointwiseOperation) and op.spec.mode not in ROUNDED
    operands = {t.data_type for t in op.inputs().values()}
    return exact and operands == {tensor.data_type} and getattr(op, "alpha1", 1.0) == 1.0 and not _makes(op)


def _makes(op: Operation) -> bool:
    """A result that is no operand's: whole numbers of a narrow type are not all in it."""
    from graphdnn.enums import PointwiseMode as M

    return isinstance(op, PointwiseOperation) and op.spec.mode in (M.GEN_INDEX, M.MOD)


def _handed(op: Operation, choice: Choice | None) -> Type | None:
    """Tensor cores of recurrent networks read and hand on the data's type, where others keep that of the arithmetic."""
    if choice is None or NumericalNote.TENSOR_CORE not in choice.engine.numerical_notes:
        return None
    return Type.of(next(iter(op.inputs().values())).data_type) if isinstance(op, RecurrentOperation) else None


def _largest_products(how: Summation, reach: Mapping[str, Array]) -> Array:
    return np.asarray(how.products * prod(float(np.max(v, initial=0.0)) for v in reach.values()))


class Terms:
    """What an operation adds up, on magnitudes: of arrays by itself, of single ranges by counting terms."""

    def __init__(self, op: Operation, has_data: bool) -> None:
        self.op, self.has_data = op, has_data
        self.length = reduction_length(op)

    def of(self, magnitudes: Mapping[str, Array], unless_zero: tuple[Array, ...] = ()) -> Array:
        """sum |x| |w|; 0 at once where a factor is."""
        if any(not np.any(v) for v in unless_zero):
            return np.zeros(())
        if not self.has_data:
            return np.asarray(self._weight() * prod(float(v) for v in magnitudes.values()))
        from graphdnn.certificate.magnitudes import apply

        return np.abs(apply(self._adding(), magnitudes)) * (1 + (self.length + 8) * 2 * REFERENCE)

    def signed(self, values: Mapping[str, Array]) -> Array:
        """The same sum of values with their signs: the end of a range."""
        if not self.has_data:
            (value,) = values.values()
            return np.asarray(self._weight() * float(value))
        from graphdnn.certificate.magnitudes import apply

        return apply(self._adding(), values)

    def _weight(self) -> float:
        return 1.0 if isinstance(self.op, (ResampleForward, ResampleBackward)) else float(self.length)

    def _adding(self) -> Operation:
        """Other reductions as sums."""
        if not isinstance(self.op, Reduction):
            return self.op
        return self.op.model_copy(update={"spec": self.op.spec.model_copy(update={"operator": _R.ADD})})

    def range(self, operands: Mapping[str, Box]) -> Box:
        """Of a sum of products; terms that fall onto padding are 0."""
        if self.has_data:
            zero = np.zeros(())
            return Box(zero, zero, zero)
        x, w = operands.values()
        products = [float(a) * float(b) for a in (x.low, x.high) for b in (w.low, w.high)]
        low, high = min(0.0, *products) * self.length, max(0.0, *products) * self.length
        return Box.between(low, high)

    def widest(self, low: Array, high: Array, error: Array) -> Box:
        """Of a choice among elements: |max a - max b| <= max |a - b|."""
        if not self.has_data:
            return Box(low, high, error)
        if not np.any(error):  # and the values themselves are known
            return Box.between(0.0, 0.0)
        from graphdnn.certificate.magnitudes import apply

        op = self.op
        if isinstance(op, Reduction):
            op = op.model_copy(update={"spec": op.spec.model_copy(update={"operator": _R.MAX})})
        found = apply(op, {"x": error})
        return Box(found, found, found)

    def multiplied(self, values: Array) -> Array:
        if not self.has_data:
            return np.power(np.asarray(values, np.float64), self.length)
        from graphdnn.certificate.magnitudes import apply

        assert isinstance(self.op, Reduction)
        op = self.op.model_copy(update={"spec": self.op.spec.model_copy(update={"operator": _R.MUL})})
        return apply(op, {"x": values})

    def peak(self, values: Array) -> float:
        return float(np.max(values, initial=0.0))
