"""Inference: what a node leaves open follows from its operands and the graph's default types.

Extents come from the operations' own ``infer``. Strides are packed in the memory
order of the first operand of the same rank; virtual slices and transposes are views.
Types: a result with memory takes the graph's io type, or the floating type of the
graph's first operand; a virtual one the graph's intermediate type; both fall back to
the operation's arithmetic. Statistics and integers keep the type they were computed
in, data movement keeps the type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from graphdnn.builder.tensor import Tensor
from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import DataType
from graphdnn.errors import BadParam
from graphdnn.escaped import escaped
from graphdnn.operations import (
    Concat,
    Operation,
    Patches,
    PointwiseOperation,
    Reshape,
    Slice,
    Transpose,
)
from graphdnn.rules import Rule
from graphdnn.tensors import ordered_strides, packed_strides, stride_order

# Outputs that stand for data, as opposed to statistics.
RESULTS = ("y", "c", "dx", "dw", "hy", "cy", "dhx", "dcx", "dgrid", "gradients")
MOVEMENT = (Concat, Patches, Reshape, Slice, Transpose)
_OF_THE_ARITHMETIC = ("kept", "kept_gradients")  # what a gradient reads again, as it was computed
_FIXED = {"index": DataType.INT8, "masks": DataType.BOOLEAN}

NO_EXTENTS = Rule(
    id="builder.extents.open",
    expected="extents",
    reason="several extents are possible, so the caller has to choose them: {why}",
    fix="call set_dim([...]) on the tensor before the graph is built",
)
NO_TYPE = Rule(
    id="builder.data_type.open",
    expected="an element type",
    reason="neither the tensor nor the graph says what its elements are",
    fix="pass data_type=... to tensor(), or io_data_type=... to Graph()",
)
RANK = Rule(
    id="builder.rank",
    expected="{rank} axes, or an operand that only this operation reads",
    reason="operands of lower rank get leading axes of 1, which would change the tensor for its other readers",
    fix="describe the tensor with {rank} axes from the start",
)

OPEN_EXTENTS = {
    "conv_dgrad": "inputs of several sizes have this gradient of y",
    "conv_wgrad": "filters of several sizes have this gradient of y",
    "reduction": "axes of extent 1 are the ones that are reduced",
    "reshape": "the new extents are the point of the operation",
    "rng": "nothing else says how many numbers are wanted",
    "resample_bwd": "inputs of several sizes have this gradient of y",
}


@dataclass(eq=False)
class Node:
    """An operation to be: its class, its fields with builder tensors in the ports, and where it was written."""

    cls: type[Operation]
    fields: dict[str, Any]
    outputs: dict[str, Tensor]
    name: str
    origin: str
    settings: dict[str, Any] = field(default_factory=dict)

    def inputs(self) -> list[Tensor]:
        found: list[Tensor] = []
        for port, value in self.fields.items():
            if port in self.outputs:
                continue
            found += [t for t in (value if isinstance(value, tuple) else (value,)) if isinstance(t, Tensor)]
        return found

    @property
    def where(self) -> str:
        label = f"{self.cls.tag} '{escaped(self.name)}'" if self.name else self.cls.tag
        return placed(label, self.origin)


def placed(label: str, origin: str) -> str:
    """A label with the line it was written in, where that is known."""
    return f"{label} ({origin})" if origin else label


def compute_type(types: Iterable[DataType | None], given: DataType | None, default: DataType | None) -> DataType:
    """The given type, the graph's, or the natural one: DOUBLE and INT32 where the operands ask for it, else FLOAT."""
    if given is not None:
        return given
    if default is not None:
        return default
    types = [t for t in types if t is not None]
    if DataType.DOUBLE in types:
        return DataType.DOUBLE
    if types and all(t in ELEMENTS and ELEMENTS[t].kind == "int" for t in types):
        return DataType.INT64 if DataType.INT64 in types else DataType.INT32
    return DataType.FLOAT


def infer_extents(node: Node) -> None:
    """Fill the open extents of a node's outputs; what does not follow stays open."""
    inputs = node.inputs()
    if any(t.dim is None for t in inputs):
        return
    _align_ranks(node, inputs)
    try:
        inferred = node.cls.infer(node.fields)
    except (IndexError, ValueError):  # too few axes, or too many: the operation's constraints say so
        return
    for port, tensor in node.outputs.items():
        if tensor.dim is None and port in inferred:
            tensor.dim = inferred[port]


def _align_ranks(node: Node, inputs: list[Tensor]) -> None:
    """Right-align operands of lower rank by leading axes of 1: all that broadcast, and by-value scalars anywhere."""
    rank = max((len(t.dim or ()) for t in inputs), default=0)
    for tensor in inputs:
        assert tensor.dim is not None
        if node.cls is not PointwiseOperation and not tensor.is_by_value:
            continue
        missing = rank - len(tensor.dim)
        if not missing:
            continue
        if tensor.readers > 1 or tensor.is_virtual:
            raise BadParam(RANK.reject(node.where, tensor.where, f"{len(tensor.dim)} axes", rank=rank))
        if tensor.stride is not None:
            # A stride too many or too few is refused where the tensor is finished.
            outermost = max((d * s for d, s in zip(tensor.dim, tensor.stride, strict=False)), default=1)
            tensor.stride = (outermost,) * missing + tensor.stride
        tensor.dim = (1,) * missing + tensor.dim


@dataclass(frozen=True)
class Defaults:
    """The graph's types: as given, and the floating type its first operand suggests for results."""

    io: DataType | None
    intermediate: DataType | None
    suggested: DataType | None


def complete(node: Node, defaults: Defaults) -> None:
    """Give every tensor of the node extents, strides and a type, or say what is missing."""
    infer_extents(node)
    found = []
    inputs = node.inputs()
    for tensor in inputs:
        if tensor.data_type is None:
            tensor.data_type = defaults.io
        if tensor.data_type is None:
            found.append(NO_TYPE.reject(node.where, tensor.where, "open"))
        if tensor.dim is not None and tensor.stride is None:
            tensor.stride = packed_strides(tensor.dim)
    for port, tensor in node.outputs.items():
        if tensor.dim is None:
            why = OPEN_EXTENTS.get(node.cls.tag, "they do not follow from the operands")
            found.append(NO_EXTENTS.reject(node.where, f"{port} {tensor.where}", "open", why=why))
    if found:
        raise BadParam(found)
    main = inputs[0] if inputs else None
    for port, tensor in node.outputs.items():
        if tensor.stride is None:
            tensor.stride = _view_strides(node, tensor) or _strides_like(tensor.dim or (), inputs)
        if tensor.data_type is None:
            tensor.data_type = _output_type(node, port, tensor, main, defaults)


def _view_strides(node: Node, tensor: Tensor) -> tuple[int, ...] | None:
    """Strides with which a virtual result lies in the memory of x, so that a device has nothing to move."""
    x = node.fields.get("x")
    if not tensor.is_virtual or not isinstance(x, Tensor) or x.stride is None or x.data_type is None:
        return None
    if node.cls is Transpose:
        return tuple(x.stride[axis] for axis in node.fields["permutation"])
    if node.cls is not Slice:
        return None
    starts = node.fields["starts"]
    steps = node.fields.get("slice_strides") or (1,) * len(starts)
    first = sum(start * stride for start, stride in zip(starts, x.stride, strict=True))
    if first * ELEMENTS[x.data_type].bits % (8 * tensor.get_alignment()):
        return None
    return tuple(step * stride for step, stride in zip(steps, x.stride, strict=True))


def _strides_like(dim: tuple[int, ...], inputs: list[Tensor]) -> tuple[int, ...]:
    for tensor in inputs:
        if tensor.dim is not None and tensor.stride is not None and len(tensor.dim) == len(dim) == len(tensor.stride):
            return ordered_strides(dim, stride_order(tensor.dim, tensor.stride))
    return packed_strides(dim)


def _output_type(node: Node, port: str, tensor: Tensor, main: Tensor | None, defaults: Defaults) -> DataType:
    arithmetic = node.settings["compute_type"]
    if port in _FIXED:
        return _FIXED[port]
    if node.cls in MOVEMENT and main is not None and main.data_type is not None:
        return main.data_type
    natural: DataType = arithmetic if arithmetic in ELEMENTS else DataType.FLOAT
    if port in _OF_THE_ARITHMETIC:
        return natural
    if tensor.is_virtual:
        return defaults.intermediate or natural
    if defaults.io is not None:
        return defaults.io
    if port not in RESULTS or ELEMENTS[natural].kind == "int":
        return natural  # statistics and exact integers keep the precision they were computed in
    return defaults.suggested or natural
