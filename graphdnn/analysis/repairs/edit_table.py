"""EDITS: every edit that a repair can be made of, one row each."""

from __future__ import annotations

from graphdnn.analysis.repairs import (
    attribute_edits,
    extent_edits,
    layout_edits,
    order_edits,
    padding_edits,
    type_edits,
)
from graphdnn.analysis.repairs.edit import Propose, Row

_SHAPES = (
    "*.extents", "*.broadcast", "*.inner", "*.batch", "*.channels", "*.groups.*", "*.fits", "*.scalar", "*.single",
    "reshape.elements", "*.channel_axis",
)  # fmt: skip
_ORDER = (
    "",
    "*.layout",
    "*.across_k",
    "*.group_start",
    "*.addressable",
)  # "": engines that copy a tensor first decline nothing
_STORED = ("*.types", "*.data_type", "*.operands")


def _legal(id: str, words: str, propose: Propose, *mends: str) -> Row:
    """An edit of what is refused on the way to a graph."""
    return Row(id, words, mends, (), propose)


def _faster(id: str, words: str, propose: Propose, *mends: str) -> Row:
    """An edit of a legal graph, which keeps what it computes, up to rounding and what is there to be ignored."""
    return Row(id, words, (), mends, propose)


EDITS: tuple[Row, ...] = (
    _legal(
        "extents.output", "outputs get the extents of the shape rule", extent_edits.to_the_shape_rule,
        "*.extents", "*.index.*",
    ),
    _legal(
        "extents.order", "operands whose extents are in the order of NHWC, of RSCK, of a transposed matrix",
        order_edits.axes_in_order, *_SHAPES,
    ),
    _legal(
        "ports.exchange", "two operands that were exchanged change places", order_edits.exchanged, "*.rank", *_SHAPES
    ),
    _legal("extents.one", "one extent of one tensor becomes what the others say", extent_edits.one_extent, *_SHAPES),
    _legal("extents.as_another", "a tensor gets the extents of another one", extent_edits.extents_of_another, *_SHAPES),
    _legal(
        "extents.rank", "axes of extent 1 are added or dropped", extent_edits.more_axes,
        "*.rank", "*.rank.*", "*.channel_axis", "*.spatial_rank",
    ),
    _legal(
        "settings.geometry", "padding, stride, dilation or window that fit the extents", extent_edits.geometry_settings,
        *_SHAPES,
    ),
    _legal(
        "settings.range", "as many entries as there are axes, each in its range", extent_edits.setting_values,
        "convolution.*", "resample.*", "*.spatial_rank", "conv.rank",
    ),
    _legal(
        "settings.movement", "axis, permutation or limits that fit the extents", extent_edits.movement_settings,
        "concat.*", "slice.*", "transpose.*",
    ),
    _legal(
        "settings.unset", "what is not read is left unset", attribute_edits.leave_unset,
        "*.unused", "*.extra", "attr.unknown", "*.misplaced", "*.index.mode", "*.mean.rms",
        "*.nan_propagation", "*.whole",
    ),
    _legal("settings.beta", "beta is left at 0", attribute_edits.drop_beta, "graph.beta"),
    Row(
        "types.compute", "another type of the arithmetic",
        ("*.compute_type", "*.operand_types", "*.math_type", "*.fast_float_for_fp8", "*.parameter.whole",
         "*.alpha.whole"),
        ("*.compute_type",), type_edits.compute_type,
    ),
    Row(
        "types.tensor", "a tensor is stored as another type",
        ("*.data_type", "*.index.type", "*.operand_types", "*.seed.*", "*.offset.*"), _STORED, type_edits.data_type,
    ),
    _legal("types.storage", "a type that can be stored", type_edits.storage_type, "tensor.data_type.storage"),
    _faster("types.operands", "all operands are stored as one type", type_edits.operand_types, *_STORED),
    Row(
        "layout.tensor", "a tensor in another order in memory",
        ("tensor.strides.*", "*.overlap", "tensor.size.overflow", "*.view.packed"), (*_ORDER, "*.batch"),
        layout_edits.tensor_layout,
    ),
    _faster(
        "layout.operation", "all tensors of an operation channels last, or row-major", layout_edits.operation_layout,
        *_ORDER
    ),
    _faster("layout.graph", "all tensors of the graph channels last, or row-major", layout_edits.graph_layout, *_ORDER),
    _legal("layout.alignment", "16 bytes of alignment", layout_edits.alignment, "tensor.alignment"),
    _legal(
        "layout.vectors", "no vectors and no reordering, or the axis of the vectors named", layout_edits.vectors,
        "tensor.vector*", "tensor.reordering",
    ),
    Row(
        "virtual.mark", "a value that only passes on stays out of memory", ("graph.beta", "*.output.overlap"),
        ("fuse.*.virtual", "fuse.prologue.outputs"), attribute_edits.mark_virtual,
    ),
    _legal(
        "virtual.unmark", "a tensor from outside, or wanted outside, gets memory", attribute_edits.unmark_virtual,
        "graph.virtual.*", "tensor.by_value.virtual",
    ),
    _legal(
        "by_value", "scalars from the host are scalars, and nothing else is", attribute_edits.by_value,
        "tensor.by_value.*", "tensor.constant.*", "graph.by_value.*", "*.epsilon", "*.scalar",
    ),
    _legal(
        "graph.drop", "an operation whose results nothing reads is left out", attribute_edits.drop_operation,
        "graph.virtual.unread",
    ),
    _legal(
        "ports.rename", "a tensor in the port that the mode has", attribute_edits.pointwise_ports, "pointwise.port.*"
    ),
    _faster(
        "ports.swap", "the operands of a commutative operation change places", attribute_edits.swap_operands,
        "fuse.*", "*.operands",
    ),
    _legal(
        "uid.own", "two tensors of one uid get two", attribute_edits.own_uid,
        "graph.uid.conflict", "graph.producer.duplicate", "graph.cycle",
    ),
    _legal(
        "ports.write", "a port means another tensor", attribute_edits.other_tensor,
        "graph.producer.duplicate", "graph.cycle", "graph.virtual.*", "graph.disconnected", "*.rank", *_SHAPES,
    ),
    _faster(
        "channels.pad", "channels of zeros up to a multiple", padding_edits.pad_channels,
        "*.channels", "*.groups", "*.int8.rows", *_ORDER,
    ),
)  # fmt: skip
