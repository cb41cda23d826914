"""Views: results of reshape, slice and transpose that lie in the memory of what they read, so nothing has to move.

A virtual result may lie anywhere, as long as its strides are those of the part of x that it shows. A result that
is bound has memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Reshape, Slice, Transpose
from graphdnn.operations.copy_blocks import block_of, pieces_of
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class View:
    """Where a tensor lies: ``start`` bytes into another one's memory."""

    tensor: TensorSpec
    start: int


def view_of(op: FusedOp) -> View | None:
    """What the result of a fused operation is a view of; None where something has to move."""
    anchor = op.anchor
    if not isinstance(anchor, (Reshape, Slice, Transpose)):
        return None
    x, y = anchor.x, anchor.y
    if not y.is_virtual or x.is_by_value or x.is_constant or DataType.BOOLEAN in (x.data_type, y.data_type):
        return None
    (piece,) = pieces_of(anchor)
    block = block_of(piece)
    if block is None or any(axis.x != axis.y for axis in block.axes if axis.size > 1):
        return None
    start = (block.x_start - block.y_start) * ELEMENTS[x.data_type].bytes
    is_aligned = start % y.byte_alignment == 0 and x.byte_alignment % y.byte_alignment == 0
    return View(x, start) if is_aligned else None


def views_of(operations: Iterable[FusedOp]) -> Mapping[int, View]:
    """uid of each view -> the tensor that has memory of its own, and where in it; through views of views."""
    found: dict[int, View] = {}
    for op in operations:
        view = view_of(op)
        if view is not None:
            (y,) = op.outputs
            below = found.get(view.tensor.uid)
            found[y.uid] = View(below.tensor, below.start + view.start) if below else view
    return found
