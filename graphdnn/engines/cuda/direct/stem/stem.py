"""Engine ``cuda_direct_stem``: the first layer of a network, an image of 1 to 4 channels, forward, on tensor cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from graphdnn.checks import Equals, OneOf
from graphdnn.device.multiprocessor import RESERVED, WARP
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import FLOAT_PAIRS, INTEGERS
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import problem_of
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.direct_access import (
    copied_at_once,
    element_bytes,
    image_space,
    packed_filter,
    slice_fields,
    slices_of,
)
from graphdnn.engines.cuda.direct.stem.stem_mma_layout import STAGES, Plan, depth_of_row, pixels_apart, pixels_together
from graphdnn.engines.cuda.direct.stem.stem_requirements import is_served, operands_of, stem_needs, sums_of_types
from graphdnn.engines.cuda.sm90.stem.hopper_stem import Warpgroups, divide, image_map, is_copied_in_bulk
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_rs_text
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvForward
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec

_TAG = "conv_fprop"
# From so many taps on, or for more channels, wgmma is faster than mma.sync: by 8 % (3x3) to 4 times (11x11).
_MANY, _NARROW = 64, 32
_MANY_OF_SLICES = 32  # the same where a result reads several depth slices
_OF_VOLUMES = 3  # spatial axes of a volume
_ONE_SLICE = 0.3  # additional time of a volume whose results read one depth slice; as 2-D images it takes none
_HALF = 88  # registers with which two CTAs fit on an SM
_WARPS = 8
# The most multiply-adds of a result are 484: more products of two unsigned bytes may exceed 2^24.
_BYTES = (
    (DataType.INT8, DataType.INT8),
    (DataType.UINT8, DataType.INT8),
    (DataType.INT8, DataType.UINT8),
)
_TYPES = (
    OneOf(*FLOAT_PAIRS, *_BYTES),
    "the tensor cores take two operands of one 16-bit type here, and bytes as such, whose sums floats hold exactly",
    "cast both to HALF or BFLOAT16",
)
_ROWS = Knob(KnobType.TILE_ROWS, 0, 32, 1, 0, "output rows of a tile; 0: chosen by the shape")
_WARPGROUPS = Knob(
    KnobType.KERNEL_CFG,
    0,
    2,
    1,
    0,
    "0: chosen by the filter; 1: products of warps; 2: of warpgroups (9.0), if they fit",
)
# The part of the tensor cores' peak that mma.sync and wgmma reach, beside the loads of operands.
_PACE, _PACE_OF_GROUPS = 0.3, 0.5
_OCCUPANCY = Knob(KnobType.OCCUPANCY, 1, 4, 1, 2, "blocks of a multiprocessor that registers are limited for")


def _warpgroups(
    p: ConvProblem, plan: Plan, x: TensorSpec, strides: tuple[int, ...], size: int, device: DeviceSpec, knobs: Knobs
) -> Warpgroups | None:
    """The plan of the kernel with wgmma, or None if mma.sync is used. ``size``: bytes of a filter element."""
    is_asked, of_warps = knobs[_WARPGROUPS.type] == 2, knobs[_WARPGROUPS.type] == 1
    few = _MANY if plan.slices == 1 else _MANY_OF_SLICES
    if device.compute_capability != (9, 0) or of_warps or (plan.weights(p) < few and p.k <= _NARROW and not is_asked):
        return None
    panels = pixels_apart(p) * -(-plan.slices * p.filter[0] * depth_of_row(p, plan.lead) // 64)
    is_bulk = is_copied_in_bulk(p, plan.pitch, strides, max(1, x.byte_alignment))
    sizes = panels, size, is_bulk, device.sm_count, device.shared_memory
    return divide(p, plan.slices, plan.pitch, *sizes, knobs[_ROWS.type])


def _as_halves(steps: LaunchSequence, spec: TensorSpec) -> TensorSpec:
    """A copy of bytes as 16-bit floats for the tensor cores. Sums stay below 2^24, so the result is exact."""
    update = {"uid": steps.new_uid(), "data_type": DataType.HALF, "byte_alignment": 16, "is_virtual": False}
    copy = spec.model_copy(update=update)
    steps.add_copy(spec, copy)
    return copy


def _is_shared(plan: Plan, p: ConvProblem, x: TensorSpec) -> bool:
    """Whether several CTAs fit on an SM. The epilogue of bytes needs further registers."""
    return plan.weights(p) <= _HALF and x.data_type not in INTEGERS


class _Block(NamedTuple):
    """The division of a tile among the warps or warpgroups of a CTA."""

    entry: str  # the name of the kernel and of its file
    rows: int  # output rows of a tile
    channels: int
    own: int  # contiguous channels of a lane
    threads: int
    resident: int  # CTAs of an SM that the register limit allows
    shared: int  # bytes of shared memory
    constants: Mapping[str, int]


def _of_warps(plan: Plan, p: ConvProblem, x: TensorSpec, w: TensorSpec, *, resident: int) -> _Block:
    channels = plan.parts * 8 * plan.tiles_n
    shared = plan.shared(p, plan.rows, max(element_bytes(x), element_bytes(w)))
    constants = {"NT": plan.tiles_n, "CHANNEL_SPLITS": plan.parts, "STAGES": STAGES, "CTAS_PER_SM": resident}
    rest = 2 * plan.tiles_n, WARP * _WARPS, resident, shared, constants
    return _Block("direct_stem", plan.rows, channels, *rest)


def _of_warpgroups(groups: Warpgroups, *, is_bulk: bool) -> _Block:
    constants = {"TILE_N": groups.columns, "STAGES": groups.stages, "LOADS_BY_TMA": is_bulk}
    rest = 8, groups.threads, 1, groups.shared, constants
    return _Block("hopper_stem", groups.rows, groups.columns, *rest)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, ConvForward)
    roles, problem = Roles.of(anchor), anchor.problem
    p, slices = slices_of(problem)
    steps = LaunchSequence(op, device)
    w, strides = packed_filter(steps, roles, anchor.w)
    plan = Plan.of(problem, device, knobs[_ROWS.type])
    y_space, x_strides = image_space(roles, roles.output), image_space(roles, anchor.x).strides(anchor.x)
    compute = COMPUTE_TYPE[anchor.compute_type]
    are_bytes = anchor.x.data_type in INTEGERS
    x = _as_halves(steps, anchor.x) if are_bytes else anchor.x
    groups = _warpgroups(p, plan, x, x_strides, element_bytes(w), device, knobs)
    is_bulk = is_copied_in_bulk(p, plan.pitch, x_strides, max(1, x.byte_alignment))
    if groups:
        block = _of_warpgroups(groups, is_bulk=is_bulk)
    else:
        resident = knobs[_OCCUPANCY.type] if _is_shared(plan, p, anchor.x) else 1
        block = _of_warps(plan, p, x, w, resident=resident)

    parameters = Parameters(steps.workspace_offsets)
    width = min(block.own, width_for(y_space, steps.epilogue_tensors(), 1, 32))
    body = Program(op, parameters, y_space, "t", width=width, vector_axis=1, keeps=groups is not None)
    steps.finish(body, "acc", compute)
    if groups and is_bulk:
        parameters.maps("image", [(x, image_map(problem, plan.pitch, x_strides, block.rows))])
    row, of_slice = p.input[1] * p.c, p.taps * p.c
    x_n, _, *x_lines, _ = x_strides
    chunk = copied_at_once(x, 8, row, x_n, *x_lines)
    part_filters, filters = block.channels * problem.taps * p.c, p.k * problem.taps * p.c
    filter_chunk = copied_at_once(w, 16 // element_bytes(w), part_filters, filters)
    row_tiles, column_tiles = -(-p.output[0] // block.rows), -(-p.output[1] // pixels_together(p))
    parameters.tensor("x", x)
    parameters.tensor("filter", w)
    parameters.table({
        "x_n": x_n, "x_h": x_lines[-1], "in_h": p.input[0], "pad_h": p.pre_padding[0], "row_pieces": row // chunk,
        "window": plan.window,
        "out_h": p.output[0], "out_w": p.output[1], "channels_out": p.k,
        "row_tiles": row_tiles, "column_tiles": column_tiles, "tiles": p.n * row_tiles,
        "filter_elements": filters,
        "filter_c": strides[2], "filter_r": strides[4], "filter_s": strides[5],
        **slice_fields(problem, x_strides, strides),
    })  # fmt: skip

    # The filter has the memory order of the windows.
    in_order = not p.flip and (strides[2], strides[4], strides[5]) == (1, p.filter[1] * p.c, p.c)
    in_order = in_order and (slices == 1 or strides[3] == of_slice)
    taps = f"{f't{slices}' if problem.spatial == 3 else ''}r{p.filter[0]}s{p.filter[1]}"
    name = f"conv_fprop__direct_stem_{taps}c{p.c}p{block.rows}__{op.name}"
    text = kernel_text(
        name,
        [f"{block.entry}.cu"],
        parameters=parameters.text,
        functions=[
            *([body.keeping(), wgmma_rs_text(x.data_type, groups.columns)] if groups else []),
            body.function(
                "epilogue", ("const ColumnOperands& kept, " if groups else "") + f"const {compute} (&acc)[{width}]"
            ),
        ],
        constants={
            "SPATIAL": problem.spatial, "T": slices,
            "R": p.filter[0], "S": p.filter[1], "C": p.c, "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
            "FLIP": p.flip, "FILTER_IS_PACKED": in_order, "PITCH": plan.pitch, "LEADING_ELEMENT": plan.lead,
            "LEFT_PAD_ELEMS": plan.before,
            "TILE_ROWS": block.rows, "THREADS": block.threads, "COPY_ELEMS": chunk,
            "FILTER_COPY_ELEMS": filter_chunk, "VEC_WIDTH": width,
            **block.constants,
            "Element": STORAGE[x.data_type], "Filter": STORAGE[w.data_type], "Accum": compute,
        },
    )  # fmt: skip
    across = -(-p.k // block.channels)
    blocks = min(p.n * row_tiles, max(1, device.sm_count * block.resident // across))
    grid = (blocks, across, 1)
    steps.add(Launch(text, block.entry, grid, block.threads, parameters.pack(), block.shared))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    (p, slices), x = slices_of(problem_of(task)), operands_of(task)["x"]
    plan = Plan.of(problem_of(task), task.device, knobs[_ROWS.type])
    depth = slices * p.filter[0] * depth_of_row(p, plan.lead)
    strides = image_space(Roles.of(task.op.anchor), x).strides(x)  # type: ignore[arg-type]
    groups = _warpgroups(p, plan, x, strides, 2, task.device, knobs)
    block = groups.columns if groups else 8 * plan.tiles_n * plan.parts
    pixels = p.n * p.output[0] * -(-p.output[1] // pixels_together(p)) * pixels_together(p)
    pace = _PACE_OF_GROUPS if groups else _PACE
    seconds = 2.0 * pixels * -(-p.k // block) * block * depth / (pace * task.device.rate(DataType.HALF))
    cost = _of_lines(device_cost(task, seconds + other_seconds(task)), p.n * -(-p.output[0] // plan.rows), task.device)
    if slices == 1 and problem_of(task).spatial == _OF_VOLUMES:
        cost = cost.plus({"slices": _ONE_SLICE * cost.seconds})
    if x.data_type not in INTEGERS:
        return cost
    return cost.plus({"copies": task.device.launch + 3 * x.bytes / task.device.bandwidth})


def _of_lines(cost: Cost, tiles: int, device: DeviceSpec) -> Cost:
    """Predicted seconds by whole output rows: with fewer rows than SMs, the time is that of one row."""
    if tiles >= device.sm_count:
        return cost
    return cost.plus({"idle": (device.sm_count / tiles - 1.0) * (cost.seconds - cost.parts["launch"])})


def _fits(task: Task) -> bool:
    """Whether filters fit into registers, and the image rows of one output row into shared memory."""
    p, _ = slices_of(problem_of(task))
    plan = Plan.of(problem_of(task), task.device, 0)
    return plan.tiles_n > 0 and plan.shared(p, 1, 2) <= task.device.shared_memory - RESERVED


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    anchor, steps = task.op.anchor, LaunchSequence(task.op, task.device)
    assert isinstance(anchor, ConvForward)
    (p, _), roles = slices_of(anchor.problem), Roles.of(anchor)
    w, _ = packed_filter(steps, roles, anchor.w)
    plan = Plan.of(anchor.problem, task.device, knobs[_ROWS.type])
    x = _as_halves(steps, anchor.x) if anchor.x.data_type in INTEGERS else anchor.x
    strides = image_space(roles, anchor.x).strides(anchor.x)
    groups = _warpgroups(p, plan, x, strides, element_bytes(w), task.device, knobs)
    if groups:
        return {_ROWS.type: groups.rows, _WARPGROUPS.type: 2}
    resident = {_OCCUPANCY.type: knobs[_OCCUPANCY.type]} if _is_shared(plan, p, anchor.x) else {}
    return {_ROWS.type: plan.rows, _WARPGROUPS.type: 1, **resident}


ENGINE = cuda_engine(
    id=13,
    name="cuda_direct_stem",
    summary="first layers, forward: an image of 1 to 4 channels in 16 bits or bytes, channels last, on tensor cores",
    needs=(
        *stem_needs("cuda_direct_stem", _TAG, _TYPES, sums_of_types, volumes=True),
        need(
            "cuda_direct_stem.row",
            "x.dims[3]",
            lambda task: problem_of(task).input[-1],
            Equals("rows so short that two filter heights of them fit in the shared memory of a CTA"),
            reason="the rows of a filter's height are kept in shared memory twice, whole",
            fix="divide the image into narrower ones",
            when=lambda task: is_served(task, _TAG, volumes=True) and not _fits(task),
        ),
    ),
    cost=_cost,
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    knobs=(_ROWS, _OCCUPANCY, _WARPGROUPS),
    effective=_effective,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)
