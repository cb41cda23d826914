"""Which outputs of a plan for a device may be the memory of an input: each element is read by none but the thread that
writes the element there, before it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphdnn.operations import NormForward
from graphdnn.tensors import TensorSpec

if TYPE_CHECKING:
    from graphdnn.fusion.fused_graph import FusedOp
    from graphdnn.heuristics import EngineConfig

Pairs = frozenset[tuple[int, int]]  # input and output, by uid

_POINTWISE, _NORM = "cuda_pointwise", "cuda_norm_forward"


def in_place(config: EngineConfig) -> Pairs:
    readers = Counter(t.uid for choice in config.choices for t in choice.task.op.inputs)
    found = []
    for choice in config.choices:
        op = choice.task.op
        pairs = {_POINTWISE: _elements, _NORM: _averages}.get(choice.engine.name)
        if pairs is not None:
            found += [(old.uid, new.uid) for old, new in pairs(op) if readers[old.uid] == 1 and _is_alike(old, new)]
    return frozenset(found)


def _elements(op: FusedOp) -> Iterator[tuple[TensorSpec, TensorSpec]]:
    """Operands of a pointwise graph as large as what it computes."""
    most = max(t.elements for t in op.outputs)
    for new in op.outputs:
        for old in op.inputs:
            if old.elements == new.elements == most and not old.is_by_value:
                yield old, new


def _averages(op: FusedOp) -> Iterator[tuple[TensorSpec, TensorSpec]]:
    """Running averages of a norm, which only the end of a row looks at."""
    anchor = op.anchor
    assert isinstance(anchor, NormForward)
    ports = [t.uid for step in op.operations for t in step.inputs().values()]
    for name in ("mean", "var"):
        old, new = getattr(anchor, f"input_running_{name}"), getattr(anchor, f"output_running_{name}")
        if old is not None and new is not None and ports.count(old.uid) == 1:
            yield old, new


def _is_alike(old: TensorSpec, new: TensorSpec) -> bool:
    """Elements of the same index are the same bytes."""
    return (old.extents, old.data_type, old.strides) == (new.extents, new.data_type, new.strides) and (
        old.vector_count,
        old.vectorized_dimension,
    ) == (1, -1) == (new.vector_count, new.vectorized_dimension)
