"""The walk through a graph: from the boxes of its inputs to those of every tensor, operation by operation.

An operation adds its own roundings to what its operands carry along (a module for each kind), and its result is rounded
to the type of its tensor, virtual or not. Boxes are arrays where data is known, and single ranges elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphdnn.analysis.certificate import ctc_loss, grid_sampling, normalizations, recurrent, recurrent_gradients
from graphdnn.analysis.certificate.contractions import product
from graphdnn.analysis.certificate.error_interval import ErrorInterval, quiet
from graphdnn.analysis.certificate.known_values import Known, NoBound
from graphdnn.analysis.certificate.normalizations import Arithmetic, Type
from graphdnn.analysis.certificate.pointwise import pointwise
from graphdnn.analysis.certificate.pointwise_rounding import EXACT, ROUNDED
from graphdnn.analysis.certificate.pooling import resampled, spread
from graphdnn.analysis.certificate.reductions import reduction, statistics
from graphdnn.analysis.certificate.roundoff import compute_of, largest, roundoff, smallest, storage_roundoff
from graphdnn.dtypes import BOOLEANS, ELEMENTS, FLOATS, Array
from graphdnn.enums import NumericalNote
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

_MOVED = (Concat, Reshape, Slice, Transpose)

FORMULAS: dict[type[Operation], Callable[[Any, Mapping[str, ErrorInterval], Arithmetic], dict[str, ErrorInterval]]] = {
    NormForward: normalizations.norm_forward,
    NormBackward: normalizations.norm_backward,
    BnFinalize: normalizations.bn_finalize,
    BnBackwardWeights: normalizations.bn_backward_weights,
    GridSample: grid_sampling.grid_sample,
    GridSampleBackward: grid_sampling.grid_sample_backward,
    RnnForward: recurrent.forward,
    RnnBackwardData: recurrent_gradients.of_data,
    RnnBackwardWeights: recurrent_gradients.of_weights,
    CtcLoss: ctc_loss.ctc_loss,
}


@dataclass(slots=True)
class Walk:
    """``boxes``: by uid, of the inputs at first and of every tensor in the end."""

    config: EngineConfig
    operations: Sequence[Operation]  # of the plan's graph in their order, on all of the data or on a part of it
    boxes: dict[int, ErrorInterval]
    known: Known
    why_not: dict[int, str] = field(default_factory=dict)  # uid -> why it has no bound
    remarks: list[str] = field(default_factory=list)  # why bounds say little

    @quiet
    def run(self) -> None:
        """Fill in the boxes of everything that an operation writes."""
        mains = {id(op): choice for choice in self.config.choices for op in _summing(choice)}
        for whole, op in zip(self.config.fused.graph.operations, self.operations, strict=True):
            unproved = next((self.why_not[t.uid] for t in op.inputs().values() if t.uid in self.why_not), "")
            try:
                if unproved:
                    raise NoBound(unproved)
                found = self._results(op, mains.get(id(whole)))
            except NoBound as why:
                for tensor in op.outputs().values():
                    self.why_not[tensor.uid] = str(why)
                    self.boxes[tensor.uid] = self._around(tensor, ErrorInterval.between(-np.inf, np.inf), np.inf)
                continue
            for port, tensor in op.outputs().items():
                self.boxes[tensor.uid] = self._stored(op, tensor, found[port])

    def _results(self, op: Operation, choice: Choice | None) -> dict[str, ErrorInterval]:
        operands = {port: self._converted(op, t) for port, t in op.inputs().items()}
        if isinstance(op, PointwiseOperation):
            return {next(iter(op.outputs())): pointwise(self.known, op, operands)}
        if isinstance(op, (ConvolutionOperation, Matmul)):
            return {next(iter(op.outputs())): product(self.known, op, choice, operands)}
        if isinstance(op, Reduction):
            return {"y": reduction(self.known, op, operands["x"])}
        if isinstance(op, GenStats):
            return statistics(self.known, op, operands["x"])
        if isinstance(op, ResampleForward):
            return resampled(self.known, op, operands["x"])
        if isinstance(op, ResampleBackward):
            return {"dx": spread(self.known, op, operands)}
        if isinstance(op, _MOVED):
            return {"y": self._moved(op)}
        if type(op) in FORMULAS:
            if not self.known.has_data:
                raise NoBound(f"{op.label().split(' ')[0]} depends on how the data is spread: give data")
            steps = 1 if self.config.device.kind == "cpu" else 4
            arithmetic = Arithmetic.of(op, self.known.is_statistical, steps, _handed(op, choice))
            found = FORMULAS[type(op)](op, operands, arithmetic)
            self.remarks += arithmetic.remarks
            return found
        raise NoBound(f"no bound is derived for {op.label().split(' ')[0]}")

    # Operands and results.

    def _converted(self, op: Operation, tensor: TensorSpec) -> ErrorInterval:
        """In the arithmetic of the operation, rounded to it where it does not hold the tensor's type."""
        box, compute = self.boxes[tensor.uid], compute_of(op.compute_type)
        if compute is None or isinstance(op, _MOVED) or np.can_cast(ELEMENTS[tensor.data_type].numpy, compute):
            return box
        error = box.error + roundoff(compute) * box.reach + smallest(compute)
        return box.with_error(np.where(box.reach > largest(compute), np.inf, error))

    def _stored(self, op: Operation, tensor: TensorSpec, box: ErrorInterval) -> ErrorInterval:
        """In the type of its tensor: floats rounded, integers rounded and saturated, booleans as they are."""
        compute = compute_of(op.compute_type)
        error, most = box.error, box.most if not self.known.has_data else np.abs(self.known.value(tensor))
        is_inside = tensor.is_virtual or tensor.uid in self.config.fused.graph.consumers
        if compute is not None and compute.kind not in "biu" and not isinstance(op, _MOVED):
            error = _unless_beyond(most, error, largest(compute))
        if tensor.data_type in FLOATS:
            unit, eta = storage_roundoff(tensor.data_type)
            if not keeps(op, compute, tensor):
                error = error + (unit * (most + error) + eta)
            if is_inside:  # the reference goes on with a number that this type does not have
                error = _unless_beyond(most, error, ELEMENTS[tensor.data_type].largest)
        elif tensor.data_type not in BOOLEANS:
            rounds = compute is not None and compute.kind == "f" and not isinstance(op, _MOVED)
            error = np.where(error > 0, np.floor(error) + 1.0, 0.0) if rounds else np.ceil(error)
        else:
            error = np.minimum(np.ceil(error), 1.0)
        return self._around(tensor, box, error)

    def _around(self, tensor: TensorSpec, box: ErrorInterval, error: Any) -> ErrorInterval:
        """With the reference's own values where they are known."""
        if not self.known.has_data:
            limits = ELEMENTS[tensor.data_type]
            if tensor.data_type in FLOATS:
                return box.with_error(error)
            low, high = (
                np.clip(np.nan_to_num(v, nan=0.0), limits.smallest, limits.largest) for v in (box.low, box.high)
            )
            return ErrorInterval(low, high, np.broadcast_to(np.asarray(error, np.float64), low.shape)).with_error(error)
        values = self.known.value(tensor)
        return ErrorInterval.of(values).with_error(np.broadcast_to(np.asarray(error, np.float64), values.shape))

    # Copies.

    def _moved(self, op: Any) -> ErrorInterval:
        boxes, values = {port: self.boxes[t.uid] for port, t in op.inputs().items()}, self.known.values
        if values is None:
            low, high, error = (
                np.asarray(pick([getattr(box, name) for box in boxes.values()]))
                for pick, name in ((min, "low"), (max, "high"), (max, "error"))
            )
            return ErrorInterval(low, high, error)
        if all(box.is_exact for box in boxes.values()):
            return ErrorInterval.of(values[op.y.uid])
        from graphdnn.analysis.oracle.float64_evaluation import apply

        return ErrorInterval.of(values[op.y.uid], apply(op, {port: box.error for port, box in boxes.items()}))


def _unless_beyond(most: Array, error: Array, limit: float) -> Array:
    """The error, infinite where a computed value may be larger than a type's largest number."""
    beyond = most + error > limit
    return np.where(beyond, np.inf, error) if beyond.any() else error


def keeps(op: Operation, compute: Any, tensor: TensorSpec) -> bool:
    """True where storing rounds nothing: a copy, or arithmetic of the same type or a narrower one."""
    if isinstance(op, _MOVED):
        return True
    if compute is not None and np.can_cast(compute, ELEMENTS[tensor.data_type].numpy):
        return True
    exact = isinstance(op, PointwiseOperation) and ROUNDED[op.spec.mode] is EXACT
    operands = {t.data_type for t in op.inputs().values()}
    return exact and operands == {tensor.data_type} and getattr(op, "alpha1", 1.0) == 1.0 and not _makes(op)


def _summing(choice: Choice) -> Iterator[Operation]:
    """The operations whose sums are as the engine says: a kernel's main one, and further products."""
    op = choice.task.op
    yield op.main
    yield from (step for step in op.operations if isinstance(step, Matmul) and step is not op.main)


def _makes(op: Operation) -> bool:
    """A result that is no operand's: whole numbers of a narrow type are not all in it."""
    from graphdnn.enums import PointwiseMode as M

    return isinstance(op, PointwiseOperation) and op.spec.mode in (M.GEN_INDEX, M.MOD)


def _handed(op: Operation, choice: Choice | None) -> Type | None:
    """Tensor cores of recurrent networks read and hand on the data's type, where others keep that of the arithmetic."""
    if choice is None or NumericalNote.TENSOR_CORE not in choice.engine.numerical_notes:
        return None
    return Type.of(next(iter(op.inputs().values())).data_type) if isinstance(op, RecurrentOperation) else None
