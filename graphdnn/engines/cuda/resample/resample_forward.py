"""Engine ``cuda_resample_forward``: pooling and interpolation, any mode, type, layout, window and stride.

A thread computes contiguous elements of y. If these are channels, they read the same windows, so that x is read in
vectors too; along a spatial axis each element has its own window. Small windows (pool.py) are compile-time constants,
and each thread reads their common elements once.
"""

from __future__ import annotations

from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.index_space import IndexSpace
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence, fused_inputs
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program, gen_index_axes
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.resample import box_average, pool_constants
from graphdnn.engines.cuda.resample.box_average import Box, box_of
from graphdnn.engines.cuda.resample.global_average import global_average_forward
from graphdnn.engines.cuda.resample.pool import Pool, pads_zeros, pool_of, sums_rows_first
from graphdnn.engines.cuda.resample.pool_disjoint import disjoint_windows, generate_pool_disjoint
from graphdnn.engines.cuda.resample.resample_axes import (
    add_counts,
    add_geometry,
    coordinates_need,
    direction_need,
    geometry_constants,
    is_channels_last,
    reads_edges,
    resample_space,
)
from graphdnn.engines.engine import needs_rule
from graphdnn.enums import NanPropagation, PaddingMode, ResampleMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation, PointwiseOperation, ResampleForward, ResampleSpec
from graphdnn.operations.resample import POOLING
from graphdnn.tensors import TensorSpec

THREADS = 256
BLOCKS_PER_SM = 32  # beyond this number, a CTA loops


def generate_forward(op: FusedOp, device: DeviceSpec, *, divides_first: bool = False) -> DeviceKernel:
    """``divides_first``: elements are divided before they are added, as gradients are; only with a ``Pool``."""
    anchor = op.anchor
    assert isinstance(anchor, ResampleForward)
    planes = global_average_forward(op, device)
    if planes is not None:
        return planes
    steps = LaunchSequence(op, device)
    parameters = Parameters(steps.workspace_offsets)
    inputs, outputs = read(op, anchor.x), steps.epilogue_tensors()
    asked = gen_index_axes((*op.prologue, *op.epilogue))
    pool = pool_of(anchor, inputs, outputs, asked, device)
    box = None if pool is None or divides_first else box_of(anchor, pool, inputs, outputs, device)
    if box is not None:
        return _boxed(op, steps, parameters, box)
    apart = None if pool is not None or asked else disjoint_windows(anchor, inputs, outputs)
    if apart is not None:
        reading = _prologue(op, parameters, apart.x_space, "prologue", "x", apart.x_width)
        functions = [reading, _epilogue(op, parameters, steps, apart.y_space, apart.width)]
        return generate_pool_disjoint(op, steps, apart, parameters, functions)
    if pool is not None:
        x_space, y_space = (pool.space(t.extents, is_input=t is anchor.x) for t in (anchor.x, anchor.y))
        widths = [pool.tile.x_vec_width, pool.tile.halo] if pool.along else [pool.tile.vec_width]
        width = pool.tile.columns if pool.along else pool.tile.vec_width
    else:
        channels_last = is_channels_last(anchor.y)
        x_space, y_space = resample_space(anchor.x, channels_last), resample_space(anchor.y, channels_last)
        width = width_for(y_space, outputs)
        widths = [1]
        if channels_last:
            width = min(width, width_for(x_space, inputs))
            widths = [width]
    functions = [
        _prologue(op, parameters, x_space, name, prefix, w)
        for name, prefix, w in zip(("prologue", "prologue_halo"), "xs", dict.fromkeys(widths), strict=False)
    ]
    functions.append(_epilogue(op, parameters, steps, y_space, width))
    has_fast = pool is not None and _has_fast_epilogue(op)
    if has_fast:
        functions.append(_epilogue(op, parameters, steps, y_space, width, flag="fallback_flags"))
    if pool is not None:
        flags = {"FAST": has_fast, "DIVIDES_FIRST": divides_first}
        steps.add_early(_pooled(op, parameters, functions, pool, flags))
    else:
        steps.add_early(_by_taps(op, parameters, functions, (widths[0], width), device))
    return steps.kernel(f"resample_{anchor.spec.mode.name.lower()}__{'taps' if pool is None else 'pool'}__{op.name}")


def _boxed(op: FusedOp, steps: LaunchSequence, parameters: Parameters, box: Box) -> DeviceKernel:
    anchor, has_fast = op.anchor, _has_fast_epilogue(op)
    assert isinstance(anchor, ResampleForward)
    space = box.pool.space(anchor.y.extents, is_input=False)
    functions = [box_average.prologue(op, parameters, box)]
    for flag in ("", "fallback_flags") if has_fast else ("",):
        functions.append(_epilogue(op, parameters, steps, space, box_average.VEC_WIDTH, flag=flag, source=box.source))
    steps.add_early(box_average.boxed(op, parameters, functions, box, has_fast=has_fast))
    return steps.kernel(f"resample_average__box__{op.name}")


def _has_fast_epilogue(op: FusedOp) -> bool:
    return any(_has_fast_form(step) for step in op.epilogue) and getattr(op.anchor, "beta", 0.0) == 0.0


def _prologue(op: FusedOp, parameters: Parameters, space: IndexSpace, name: str, prefix: str, width: int) -> str:
    assert isinstance(op.anchor, ResampleForward)
    compute = COMPUTE_TYPE[op.anchor.compute_type]
    program = Program(op, parameters, space, prefix, width=width)
    program.apply(op.prologue)
    program.copy_widened_to("value", op.anchor.x, compute)
    return program.function(name, f"{compute} (&value)[{width}]") + program.prefetch_text(f"fetch_{name}")


def _epilogue(
    op: FusedOp,
    parameters: Parameters,
    steps: LaunchSequence,
    space: IndexSpace,
    width: int,
    *,
    flag: str = "",
    source: TensorSpec | None = None,
) -> str:
    """``flag``: the name of the fast form's flag, or nothing for the exact form.

    ``source``: a tensor whose elements the kernel has in registers.
    """
    anchor = op.anchor
    assert isinstance(anchor, ResampleForward)
    compute = COMPUTE_TYPE[anchor.compute_type]
    program = Program(op, parameters, space, "q" if flag else "y", width=width, inexact_flag=flag)
    if source is not None and source.uid in op.uses.behind:
        program.bind(source, "raw[e]")
    for spec in fused_inputs(op.epilogue):
        if spec not in anchor.outputs().values():
            program.value(spec)  # loads first, because the operations may branch
    if anchor.index is not None:
        program.define(anchor.index, "place[e]")
    if _is_wanted(op, anchor.y):
        steps.write_epilogue(program, "acc", compute)
    else:
        program.store_outputs((anchor,))
    held = f"const int (&place)[{width}]" if source is None else f"const {STORAGE[source.data_type]} (&raw)[{width}]"
    arguments = f"const {compute} (&acc)[{width}], {held}"
    if flag:
        return program.function("fast_epilogue", f"{arguments}, unsigned int& {flag}")
    return program.function("epilogue", arguments)


def _has_fast_form(step: Operation) -> bool:
    """Whether an operation has a fast form for most operands and an exact form for all."""
    is_float = COMPUTE_TYPE[step.compute_type] == "float"
    return is_float and isinstance(step, PointwiseOperation) and bool(step.spec.row.cuda_pack)


def _by_taps(
    op: FusedOp, parameters: Parameters, functions: list[str], widths: tuple[int, int], device: DeviceSpec
) -> Launch:
    anchor = op.anchor
    assert isinstance(anchor, ResampleForward)
    channels_last = is_channels_last(anchor.y)
    input_width, width = widths
    add_geometry(parameters, anchor)
    count = add_counts(parameters, resample_space(anchor.y, channels_last), width)
    is_maximum = anchor.spec.mode is ResampleMode.MAXPOOL
    text = kernel_text(
        f"resample_{anchor.spec.mode.name.lower()}__taps_v{width}__{op.name}",
        ["resample_forward.cu"],
        variants={"RESAMPLE_WINDOW": _window(anchor.spec)},
        parameters=parameters.text,
        functions=functions,
        constants={
            **geometry_constants(anchor.spec, channels_last),
            **({"PROPAGATE": _propagates(anchor.spec)} if is_maximum else {}),
            "THREADS": THREADS,
            "VEC_WIDTH": width,
            "LOAD_VEC_WIDTH": input_width,
            "Compute": COMPUTE_TYPE[anchor.compute_type],
            "Count": "unsigned int" if count < 2**31 else "unsigned long long",
        },
    )
    blocks = min(-(-count // THREADS), BLOCKS_PER_SM * device.sm_count)
    return Launch(text, "resample_forward", (blocks, 1, 1), THREADS, parameters.pack())


def _window(spec: ResampleSpec) -> int:
    """RESAMPLE_WINDOW of resample_forward.cu."""
    if spec.mode is ResampleMode.MAXPOOL:
        return 0
    return 1 if spec.mode in POOLING and not reads_edges(spec) else 2


def _pooled(op: FusedOp, parameters: Parameters, functions: list[str], pool: Pool, flags: dict[str, bool]) -> Launch:
    anchor = op.anchor
    assert isinstance(anchor, ResampleForward)
    spec, tile, row, column = anchor.spec, pool.tile, pool.row, pool.column
    pool_constants.add_sizes(parameters, pool, pool.steps)
    is_maximum = spec.mode is ResampleMode.MAXPOOL
    text = kernel_text(
        f"resample_{spec.mode.name.lower()}__pool_{row.window}x{column.window}_v{tile.vec_width}"
        f"_{tile.rows}x{tile.columns}__{op.name}",
        ["resample_pool.cu"],
        parameters=parameters.text,
        functions=functions,
        constants={
            **pool_constants.constants(spec, pool, tile, pool.steps, anchor.compute_type),
            "LEFT": column.before,
            "BESIDE": 0,
            "CHECKED_FROM": pool.checked_from,
            "X_WHOLE": column.x.size == pool.steps[pool.place(column)] * tile.columns * column.stride,
            "ZEROS": pads_zeros(anchor),
            "CHECK_ROWS": row.pads or row.y.size % (tile.rows * tile.turns) != 0,
            "SHARE": tile.shares,
            "ABSENT": is_maximum and spec.padding_mode is PaddingMode.NEG_INF_PAD,
            "INDEX": anchor.index is not None,
            "EXACT": ELEMENTS[anchor.y.data_type].kind != "float",
            "ROWS_FIRST": sums_rows_first(anchor, pool),
            "ROWS": tile.rows,
            "TURNS": tile.turns,
            "FETCHES": tile.fetches,
            "WHOLE_ROWS": row.y.size % (tile.rows * tile.turns) == 0,
            "WHOLE_COLS": column.y.size % tile.columns == 0,
            **flags,
        },
    )
    threads = pool_constants.THREADS
    return Launch(text, "resample_pool", (-(-prod(pool.steps) // threads), 1, 1), threads, parameters.pack())


def _propagates(spec: ResampleSpec) -> bool:
    return spec.nan_propagation is NanPropagation.PROPAGATE_NAN


def _is_wanted(op: FusedOp, y: TensorSpec) -> bool:
    """False if only the index is an output."""
    return y.uid in op.uses.behind or any(t.uid == y.uid for t in op.outputs)


def read(op: FusedOp, entering: TensorSpec) -> list[TensorSpec]:
    """The tensors that the prologue reads from memory; without a prologue, the operand itself."""
    return fused_inputs(op.prologue) if op.prologue else [entering]


ENGINE = cuda_engine(
    id=33,
    name="cuda_resample_forward",
    summary="pooling and interpolation, any mode and layout",
    needs=(
        needs_rule("cuda_resample_forward.operation", "resample"),
        direction_need("cuda_resample_forward.direction", ResampleForward),
        coordinates_need("cuda_resample_forward.coordinates"),
    ),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate_forward(op, device),
    is_general=True,
)
