"""Rewrite ``group_packing``: several groups of few channels become one group with zeros in its filters.

TMA loads 64 channels at a time, and a wgmma of 64 columns takes as long as a narrower one, so groups of 8 to 56
channels use a small part of both. A packed group has the channels of several groups, and its filters are zero for the
channels of other groups. Multiplications by these zeros take no extra time. Images are read in place; a launch packs
the filters. A filter gradient is computed for packed filters, and a launch copies the diagonal blocks. An infinity or
NaN times a zero is NaN, so it spreads to all groups of a packed group.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphdnn.checks import AtLeast, AtMost, Equals
from graphdnn.engines.cuda.codegen.cost import least_seconds_of_delegate
from graphdnn.engines.cuda.codegen.dense_operands import dense_tensor
from graphdnn.engines.cuda.codegen.index_space import INT_MAX, is_addressable
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    convolution_of,
    is_convolution,
    problem_of,
    prologue_need,
)
from graphdnn.engines.cuda.conv_geometry.convolution_roles import padded
from graphdnn.engines.cuda.rewrites.rewrite import DelegateRefusal, Pass, Rewrite, Rewritten, with_passes
from graphdnn.engines.cuda.sm90.gemm import hopper_gemm
from graphdnn.engines.cuda.sm90.halo import hopper_halo, hopper_halo_dgrad, hopper_halo_wgrad
from graphdnn.engines.engine import Cost, Task, need, needs_rule, window_need
from graphdnn.engines.memoization import memoize
from graphdnn.enums import NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter, ConvolutionOperation
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec, channels_last_strides

_TMA_CHANNELS = 64  # of a TMA load
_MAX_PACKED = 64  # groups in a packed group; with more groups, most products have a factor of zero
_THREADS = 256
# Mean error of predictions, as a share of the predicted time: 18 layers with several groups took 0.94 to 1.56 times it.
_MODEL_ERROR = 0.12
_DIAGONAL_WAIT = 0.6  # of a launch: the launch that copies the diagonal blocks waits for the whole packed gradient


def _packed_counts(p: ConvProblem) -> list[int]:
    """Numbers of groups in a packed group: the least number that fills TMA loads on both sides, and all groups."""
    numbers = range(2, min(p.groups - 1, _MAX_PACKED) + 1)
    fitting = [n for n in numbers if p.groups % n == 0 and n * p.c % _TMA_CHANNELS == n * p.k % _TMA_CHANNELS == 0]
    return [n for n in dict.fromkeys([*fitting[:1], p.groups]) if 1 < n <= _MAX_PACKED]


@memoize
def _packed(op: FusedOp) -> tuple[Rewritten, ...]:
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    return tuple(_pack(op, anchor, count) for count in _packed_counts(anchor.problem))


def _pack(op: FusedOp, anchor: ConvolutionOperation, count: int) -> Rewritten:
    """The convolution of packed groups. ``count``: groups in a packed group."""
    p, (_, w, _) = anchor.problem, anchor.roles
    dims = (w.extents[0], w.extents[1] * count, *w.extents[2:])
    uid = min(t.uid for t in (*op.inputs, *op.outputs, *op.internal)) - 1
    filters = dense_tensor(w, uid=uid).model_copy(update={"dims": dims, "strides": channels_last_strides(dims)})
    packed = op.with_anchor(anchor.model_copy(update={anchor.role_names[1]: filters}))
    if isinstance(anchor, ConvBackwardFilter):
        outputs = tuple(filters if t.uid == w.uid else t for t in op.outputs)
        diagonal = _diagonal(p, w, filters, count)
        diagonal_copy = Pass(
            f"diagonal blocks of {count} packed groups copied to {w.label()}",
            filters,
            2.0 * w.bytes,
            lambda steps: steps.copy_into(*diagonal),
            result=w,
        )
        return Rewritten(replace(packed, outputs=outputs), after=(diagonal_copy,))
    packing = Pass(
        f"filters of {count} groups packed as one",
        filters,
        float(w.bytes + filters.bytes),
        lambda steps: steps.add_early(_packing(steps, p, w, filters, count)),
    )
    return Rewritten(packed, before=(packing,))


def _is_supported(task: Task) -> bool:
    """Whether the groups lie along the axis of channels, and the elements of the filters have addresses."""
    if not is_convolution(task) or task.op.prologue or task.op.exit is not None:
        return False
    anchor = convolution_of(task)
    x, w, _ = anchor.roles
    is_plain = not isinstance(anchor, ConvBackwardFilter) or (not task.op.epilogue and not anchor.reads_output)
    return (
        problem_of(task).groups > 1 and len(x.dims) == anchor.conv.spatial_dims + 2 and is_addressable(w) and is_plain
    )


def _packing(steps: LaunchSequence, p: ConvProblem, w: TensorSpec, filters: TensorSpec, count: int) -> Launch:
    parameters = Parameters(steps.workspace_offsets)
    parameters.tensor("from", w)
    parameters.tensor("to", filters, is_output=True)
    stride_k, stride_c, *strides = w.strides
    sizes, steps_of = padded(p.filter, 1), padded(tuple(strides), 0)
    parameters.table({
        "count": filters.elements, "channels": p.c, "groups": count, "filters": p.k,
        "taps": prod(sizes), "size_1": sizes[1], "size_2": sizes[2], "stride_k": stride_k, "stride_c": stride_c,
        "stride_0": steps_of[0], "stride_1": steps_of[1], "stride_2": steps_of[2],
    })  # fmt: skip
    text = kernel_text(
        "pack_group_filters",
        ["pack_group_filters.cu"],
        parameters=parameters.text,
        functions=(),
        constants={"THREADS": _THREADS, "Element": STORAGE[w.data_type]},
    )
    blocks = -(-filters.elements // _THREADS)
    return Launch(text, "pack_group_filters", (blocks, 1, 1), _THREADS, parameters.pack())


def _diagonal(p: ConvProblem, dw: TensorSpec, packed: TensorSpec, n: int) -> tuple[TensorSpec, TensorSpec]:
    """The diagonal blocks of the packed gradient, and dw, as tensors (packed group, group, k, c, taps)."""
    dims = (p.groups // n, n, p.k, p.c, *p.filter)

    def blocks(spec: TensorSpec, channels: int) -> TensorSpec:
        """``channels``: channels from a group to the next group."""
        k, c, *taps = spec.strides
        strides = (n * p.k * k, p.k * k + channels * c, k, c, *taps)
        return spec.model_copy(update={"dims": dims, "strides": strides, "is_virtual": False})

    return blocks(packed, p.c), blocks(dw, 0)


def _cost(task: Task, form: Rewritten, delegate_cost: Cost) -> Cost:
    model_error = _MODEL_ERROR * delegate_cost.seconds + bool(form.after) * _DIAGONAL_WAIT * task.device.launch
    return with_passes("filters")(task, form, delegate_cost.plus({"model_error": model_error}))


ROW = Rewrite(
    id=93,
    name="group_packing",
    summary="groups of few channels on tensor cores: several groups as one; zeros in the packed filters spread NaN",
    why="groups have few channels",
    match=(
        needs_rule("cuda_group_packing.operation", "conv"),
        prologue_need("cuda_group_packing", is_convolution),
        window_need(
            "cuda_group_packing.groups",
            "groups",
            lambda task: problem_of(task).groups,
            AtLeast(2),
            reason="a single group cannot be packed",
            fix="nothing to do: other engines serve a single group",
            when=is_convolution,
        ),
        window_need(
            "cuda_group_packing.channels",
            "w.dims[1]",
            lambda task: max(problem_of(task).c, problem_of(task).k),
            AtMost(4 * _TMA_CHANNELS),
            reason="groups of many channels fill TMA loads without packing",
            fix="nothing to do: other engines serve such groups without packing",
            when=lambda task: is_convolution(task) and problem_of(task).groups > 1,
        ),
        need(
            "cuda_group_packing.operands",
            "operation",
            lambda task: task.op.name,
            Equals(
                "groups in the axis of channels, an address for each element of filters, their gradients alone, beta 0"
            ),
            reason="a packed group is contiguous along channels, and a launch copies the diagonal of a filter gradient",
            fix="write x as [N, G*C, ...] and w as [G*K, C, ...]; end the graph with the filter gradient, beta 0",
            when=lambda task: (
                is_convolution(task)
                and problem_of(task).groups > 1
                and not task.op.prologue
                and not _is_supported(task)
            ),
        ),
        need(
            "cuda_group_packing.size",
            "w.dims",
            lambda task: max((one.scratch.elements for form in _packed(task.op) for one in form.passes), default=0),
            AtMost(INT_MAX),
            reason="elements of packed filters are counted in 32 bits",
            fix="nothing to do: another engine serves it",
            when=_is_supported,
        ),
    ),
    rewrite=_packed,
    engines=(hopper_gemm.ENGINE, hopper_halo.ENGINE, hopper_halo_wgrad.ENGINE, hopper_halo_dgrad.ENGINE),
    refusal=DelegateRefusal("an operation that an engine for compute capability 9.0 serves with packed filters"),
    cost=_cost,
    least=lambda task: least_seconds_of_delegate(task, 1),
    notes={"numerical_notes": (NumericalNote.TENSOR_CORE,)},
)
