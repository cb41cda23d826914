"""EDITS: every edit that a repair can be made of, one row each."""

from __future__ import annotations

from graphdnn.repairs import channels, flags, kinds, layout, order, shapes
from graphdnn.repairs.edit import Propose, Row

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
        "extents.output", "outputs get the extents of the shape rule", shapes.to_the_shape_rule,
        "*.extents", "*.index.*",
    ),
    _legal(
        "extents.order", "operands whose extents are in the order of NHWC, of RSCK, of a transposed matrix",
        order.axes_in_order, *_SHAPES,
    ),
    _legal("ports.exchange", "two operands that were exchanged change places", order.exchanged, "*.rank", *_SHAPES),
    _legal("extents.one", "one extent of one tensor becomes what the others say", shapes.one_extent, *_SHAPES),
    _legal("extents.as_another", "a tensor gets the extents of another one", shapes.extents_of_another, *_SHAPES),
    _legal(
        "extents.rank", "axes of extent 1 are added or dropped", shapes.more_axes,
        "*.rank", "*.rank.*", "*.channel_axis", "*.spatial_rank",
    ),
    _legal(
        "settings.geometry", "padding, stride, dilation or window that fit the extents", shapes.geometry_settings,
        *_SHAPES,
    ),
    _legal(
        "settings.range", "as many entries as there are axes, each in its range", shapes.setting_values,
        "convolution.*", "resample.*", "*.spatial_rank", "conv.rank",
    ),
    _legal(
        "settings.movement", "axis, permutation or limits that fit the extents", shapes.movement_settings,
        "concat.*", "slice.*", "transpose.*",
    ),
    _legal(
        "settings.unset", "what is not read is left unset", flags.leave_unset,
        "*.unused", "*.extra", "attr.unknown", "*.misplaced", "*.index.mode", "*.mean.rms",
        "*.nan_propagation", "*.whole",
    ),
    _legal("settings.beta", "beta is left at 0", flags.drop_beta, "graph.beta"),
    Row(
        "types.compute", "another type of the arithmetic",
        ("*.compute_type", "*.operand_types", "*.math_type", "*.fast_float_for_fp8", "*.parameter.whole",
         "*.alpha.whole"),
        ("*.compute_type",), kinds.compute_type,
    ),
    Row(
        "types.tensor", "a tensor is stored as another type",
        ("*.data_type", "*.index.type", "*.operand_types", "*.seed.*", "*.offset.*"), _STORED, kinds.data_type,
    ),
    _legal("types.storage", "a type that can be stored", kinds.storage_type, "tensor.data_type.storage"),
    _faster("types.operands", "all operands are stored as one type", kinds.operand_types, *_STORED),
    Row(
        "layout.tensor", "a tensor in another order in memory",
        ("tensor.strides.*", "*.overlap", "tensor.size.overflow", "*.view.packed"), (*_ORDER, "*.batch"),
        layout.tensor_layout,
    ),
    _faster(
        "layout.operation", "all tensors of an operation channels last, or row-major", layout.operation_layout, *_ORDER
    ),
    _faster("layout.graph", "all tensors of the graph channels last, or row-major", layout.graph_layout, *_ORDER),
    _legal("layout.alignment", "16 bytes of alignment", layout.alignment, "tensor.alignment"),
    _legal(
        "layout.vectors", "no vectors and no reordering, or the axis of the vectors named", layout.vectors,
        "tensor.vector*", "tensor.reordering",
    ),
    Row(
        "virtual.mark", "a value that only passes on stays out of memory", ("graph.beta", "*.output.overlap"),
        ("fuse.*.virtual", "fuse.prologue.outputs"), flags.mark_virtual,
    ),
    _legal(
        "virtual.unmark", "a tensor from outside, or wanted outside, gets memory", flags.unmark_virtual,
        "graph.virtual.*", "tensor.by_value.virtual",
    ),
    _legal(
        "by_value", "scalars from the host are scalars, and nothing else is", flags.by_value,
        "tensor.by_value.*", "tensor.constant.*", "graph.by_value.*", "*.epsilon", "*.scalar",
    ),
    _legal(
        "graph.drop", "an operation whose results nothing reads is left out", flags.drop_operation,
        "graph.virtual.unread",
    ),
    _legal("ports.rename", "a tensor in the port that the mode has", flags.pointwise_ports, "pointwise.port.*"),
    _faster(
        "ports.swap", "the operands of a commutative operation change places", flags.swap_operands,
        "fuse.*", "*.operands",
    ),
    _legal(
        "uid.own", "two tensors of one uid get two", flags.own_uid,
        "graph.uid.conflict", "graph.producer.duplicate", "graph.cycle",
    ),
    _legal(
        "ports.write", "a port means another tensor", flags.other_tensor,
        "graph.producer.duplicate", "graph.cycle", "graph.virtual.*", "graph.disconnected", "*.rank", *_SHAPES,
    ),
    _faster(
        "channels.pad", "channels of zeros up to a multiple", channels.pad_channels,
        "*.channels", "*.groups", "*.int8.rows", *_ORDER,
    ),
)  # fmt: skip
