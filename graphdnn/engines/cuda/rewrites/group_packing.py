"""Rewrite ``group_packing``: several groups of few channels become one group with zeros in its filters.

TMA loads 64 channels at a time, and a wgmma of 64 columns takes as long as a narrower one, so groups of 8 to 56
channels leave most of both unused. A packed group has the channels of several groups, and its filters are zero for
the channels of other groups. Multiplications by these zeros cost nothing extra. Images stay as they are; a launch
packs the filters. A filter gradient is computed for packed filters, and only the blocks on the diagonal are kept. An
infinity or NaN times a zero is NaN, so it reaches all groups that are packed with its own.
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
from graphdnn.engines.cuda.rewrites.rewrite import Pass, Remainder, Rewrite, Rewritten, with_passes
from graphdnn.engines.cuda.sm90.gemm import hopper_gemm
from graphdnn.engines.cuda.sm90.halo import hopper_halo, hopper_halo_dgrad, hopper_halo_wgrad
from graphdnn.engines.engine import Cost, Task, need, needs_rule, window_need
from graphdnn.engines.memoization import memoize
from graphdnn.enums import NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter, ConvolutionOperation
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec, channels_last_strides

_ROW = 64  # channels that are copied at a time
_MOST = 64  # channels of a joined group for each of its own: beyond, zeros are most of the work
_THREADS = 256
_DOUBT = 0.12  # of their predictions: 18 layers with several groups took 0.94 to 1.56 of them, in the mean so much more
_DOUBT_OF_GRADIENTS = 0.6  # of a launch: the one that picks out blocks waits for all of the joined gradient


def _counts(p: ConvProblem) -> list[int]:
    """Groups that become one: as few as fill rows on both sides, and all of them."""
    numbers = range(2, min(p.groups - 1, _MOST) + 1)
    fitting = [n for n in numbers if p.groups % n == 0 and n * p.c % _ROW == n * p.k % _ROW == 0]
    return [n for n in dict.fromkeys([*fitting[:1], p.groups]) if 1 < n <= _MOST]


@memoize
def _packed(op: FusedOp) -> tuple[Rewritten, ...]:
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    return tuple(_pack(op, anchor, count) for count in _counts(anchor.problem))


def _pack(op: FusedOp, anchor: ConvolutionOperation, together: int) -> Rewritten:
    """The convolution with fewer groups. ``together``: groups of one."""
    p, (_, w, _) = anchor.problem, anchor.roles
    dims = (w.extents[0], w.extents[1] * together, *w.extents[2:])
    uid = min(t.uid for t in (*op.inputs, *op.outputs, *op.internal)) - 1
    filters = dense_tensor(w, uid=uid).model_copy(update={"dims": dims, "strides": channels_last_strides(dims)})
    packed = op.with_anchor(anchor.model_copy(update={anchor.role_names[1]: filters}))
    if isinstance(anchor, ConvBackwardFilter):
        outputs = tuple(filters if t.uid == w.uid else t for t in op.outputs)
        diagonal = _diagonal(p, w, filters, together)
        cut = Pass(
            f"diagonal blocks of {together} groups in one copied to {w.label()}",
            filters,
            2.0 * w.bytes,
            lambda steps: steps.copy_into(*diagonal),
            result=w,
        )
        return Rewritten(replace(packed, outputs=outputs), after=(cut,))
    join = Pass(
        f"filters of {together} groups packed as one",
        filters,
        float(w.bytes + filters.bytes),
        lambda steps: steps.add_early(_packing(steps, p, w, filters, together)),
    )
    return Rewritten(packed, before=(join,))


def _is_ours(task: Task) -> bool:
    """Groups in the channels' axis, and filters whose elements have addresses."""
    if not is_convolution(task) or task.op.prologue or task.op.exit is not None:
        return False
    anchor = convolution_of(task)
    x, w, _ = anchor.roles
    is_alone = not isinstance(anchor, ConvBackwardFilter) or (not task.op.epilogue and not anchor.reads_output)
    return (
        problem_of(task).groups > 1 and len(x.dims) == anchor.conv.spatial_dims + 2 and is_addressable(w) and is_alone
    )


def _packing(steps: LaunchSequence, p: ConvProblem, w: TensorSpec, filters: TensorSpec, together: int) -> Launch:
    parameters = Parameters(steps.workspace_offsets)
    parameters.tensor("from", w)
    parameters.tensor("to", filters, is_output=True)
    stride_k, stride_c, *strides = w.strides
    sizes, steps_of = padded(p.filter, 1), padded(tuple(strides), 0)
    parameters.table({
        "count": filters.elements, "channels": p.c, "groups": together, "filters": p.k,
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


def _diagonal(p: ConvProblem, dw: TensorSpec, made: TensorSpec, n: int) -> tuple[TensorSpec, TensorSpec]:
    """The blocks of each group in the packed gradient, and their places in dw: (packed group, group, k, c, taps)."""
    dims = (p.groups // n, n, p.k, p.c, *p.filter)

    def seen(spec: TensorSpec, along: int) -> TensorSpec:
        k, c, *taps = spec.strides
        strides = (n * p.k * k, p.k * k + along * c, k, c, *taps)
        return spec.model_copy(update={"dims": dims, "strides": strides, "is_virtual": False})

    return seen(made, p.c), seen(dw, 0)


def _cost(task: Task, form: Rewritten, cost: Cost) -> Cost:
    doubt = _DOUBT * cost.seconds + bool(form.after) * _DOUBT_OF_GRADIENTS * task.device.launch
    return with_passes("filters")(task, form, cost.plus({"doubt": doubt}))


ROW = Rewrite(
    id=93,
    name="group_packing",
    summary="groups of few channels on tensor cores: several groups as one, with zeros in filters, which spread NaN",
    why="groups have few channels",
    match=(
        needs_rule("cuda_group_packing.operation", "conv"),
        prologue_need("cuda_group_packing", is_convolution),
        window_need(
            "cuda_group_packing.groups",
            "groups",
            lambda task: problem_of(task).groups,
            AtLeast(2),
            reason="there is nothing to join",
            fix="nothing to do: other engines serve a single group",
            when=is_convolution,
        ),
        window_need(
            "cuda_group_packing.channels",
            "w.dims[1]",
            lambda task: max(problem_of(task).c, problem_of(task).k),
            AtMost(4 * _ROW),
            reason="groups of many channels fill rows themselves",
            fix="nothing to do: other engines serve such groups as they are",
            when=lambda task: is_convolution(task) and problem_of(task).groups > 1,
        ),
        need(
            "cuda_group_packing.operands",
            "operation",
            lambda task: task.op.name,
            Equals(
                "groups in the axis of channels, an address for each element of filters, their gradients alone, beta 0"
            ),
            reason="joined groups are one in a tensor's axis of channels, and a filter gradient is cut out afterwards",
            fix="write x as [N, G*C, ...] and w as [G*K, C, ...]; end the graph with the filter gradient, beta 0",
            when=lambda task: (
                is_convolution(task) and problem_of(task).groups > 1 and not task.op.prologue and not _is_ours(task)
            ),
        ),
        need(
            "cuda_group_packing.size",
            "w.dims",
            lambda task: max((one.scratch.elements for form in _packed(task.op) for one in form.passes), default=0),
            AtMost(INT_MAX),
            reason="joined filters are counted in 32 bits",
            fix="nothing to do: another engine serves it",
            when=_is_ours,
        ),
    ),
    rewrite=_packed,
    engines=(hopper_gemm.ENGINE, hopper_halo.ENGINE, hopper_halo_wgrad.ENGINE, hopper_halo_dgrad.ENGINE),
    remainder=Remainder("what an engine for tensor cores of compute capability 9.0 serves with joined filters"),
    cost=_cost,
    least=lambda task: least_seconds_of_delegate(task, 1),
    notes={"numerical_notes": (NumericalNote.TENSOR_CORE,)},
)
