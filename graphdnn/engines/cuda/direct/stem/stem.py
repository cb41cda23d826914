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
    element_bytes,
    image_space,
    packed_filter,
    row_copy_elements,
    slice_fields,
    slices_of,
)
from graphdnn.engines.cuda.direct.stem.stem_mma_layout import STAGES, Plan, filter_row_k, mma_pixels, pixel_parities
from graphdnn.engines.cuda.direct.stem.stem_requirements import accumulator_types, is_served, operands_of, stem_needs
from graphdnn.engines.cuda.sm90.stem.hopper_stem import Warpgroups, divide, image_map, is_copied_in_bulk
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_rs_text
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvForward
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec

_TAG = "conv_fprop"
# wgmma is faster than mma.sync, by 8 % (3x3) to 4 times (11x11), if a thread needs at least so many registers for
# filters, or if the output has more channels.
_MIN_WGMMA_REGISTERS, _MAX_MMA_CHANNELS = 64, 32
_MIN_WGMMA_REGISTERS_3D = 32  # the same if a result reads several depth slices
_VOLUME_AXES = 3  # spatial axes of a volume
_SINGLE_SLICE_OVERHEAD = 0.3  # additional fraction of time of a volume if a result reads one depth slice
_TWO_CTA_REGISTERS = 88  # the most filter registers of a thread with which two CTAs fit on an SM
_WARPS = 8
# A result has at most 484 products. Sums of more products of unsigned bytes may exceed 2^24, the exact range of fp32.
_BYTE_PAIRS = (
    (DataType.INT8, DataType.INT8),
    (DataType.UINT8, DataType.INT8),
    (DataType.INT8, DataType.UINT8),
)
_TYPES = (
    OneOf(*FLOAT_PAIRS, *_BYTE_PAIRS),
    "the kernel multiplies 16-bit floats of one type; sums of products of bytes are exact in fp32",
    "cast both to HALF or BFLOAT16",
)
_ROWS = Knob(KnobType.TILE_ROWS, 0, 32, 1, 0, "output rows of a tile; 0: chosen by the shape")
_WARPGROUPS = Knob(
    KnobType.KERNEL_CFG,
    0,
    2,
    1,
    0,
    "0: chosen by the filter; 1: mma.sync; 2: wgmma (compute capability 9.0), if it fits",
)
# The fraction of the tensor cores' peak rate that mma.sync and wgmma reach.
_PEAK_FRACTION, _WGMMA_PEAK_FRACTION = 0.3, 0.5
_OCCUPANCY = Knob(KnobType.OCCUPANCY, 1, 4, 1, 2, "CTAs of an SM for which the registers are limited")


def _warpgroups(
    p: ConvProblem, plan: Plan, x: TensorSpec, strides: tuple[int, ...], size: int, device: DeviceSpec, knobs: Knobs
) -> Warpgroups | None:
    """The plan of the wgmma kernel, or None if the mma.sync kernel is chosen. ``size``: bytes of a filter element."""
    requests_wgmma, requests_mma = knobs[_WARPGROUPS.type] == 2, knobs[_WARPGROUPS.type] == 1
    min_registers = _MIN_WGMMA_REGISTERS if plan.slices == 1 else _MIN_WGMMA_REGISTERS_3D
    if device.compute_capability != (9, 0) or requests_mma:
        return None
    if plan.filter_registers(p) < min_registers and p.k <= _MAX_MMA_CHANNELS and not requests_wgmma:
        return None
    slabs = pixel_parities(p) * -(-plan.slices * p.filter[0] * filter_row_k(p, plan.leading_element) // 64)
    loads_by_tma = is_copied_in_bulk(p, plan.pitch, strides, max(1, x.byte_alignment))
    sizes = slabs, size, loads_by_tma, device.sm_count, device.shared_memory
    return divide(p, plan.slices, plan.pitch, *sizes, knobs[_ROWS.type])


def _copy_as_halves(steps: LaunchSequence, spec: TensorSpec) -> TensorSpec:
    """Add a launch that copies bytes as 16-bit floats. Sums of products stay below 2^24, so results are exact."""
    update = {"uid": steps.new_uid(), "data_type": DataType.HALF, "byte_alignment": 16, "is_virtual": False}
    copy = spec.model_copy(update=update)
    steps.add_copy(spec, copy)
    return copy


def _shares_sm(plan: Plan, p: ConvProblem, x: TensorSpec) -> bool:
    """Whether several CTAs fit on an SM. The epilogue of bytes needs additional registers."""
    return plan.filter_registers(p) <= _TWO_CTA_REGISTERS and x.data_type not in INTEGERS


class _Block(NamedTuple):
    """The extents of a CTA and the resources that it needs."""

    entry: str  # the name of the kernel and of its file
    rows: int  # output rows of a tile
    channels: int  # output channels of a CTA
    lane_channels: int  # contiguous output channels of a lane
    threads: int
    resident: int  # CTAs of an SM for which the registers are limited
    shared: int  # bytes of shared memory
    constants: Mapping[str, int]


def _warp_block(plan: Plan, p: ConvProblem, x: TensorSpec, w: TensorSpec, *, resident: int) -> _Block:
    channels = plan.channel_splits * 8 * plan.tiles_n
    shared = plan.shared(p, plan.rows, max(element_bytes(x), element_bytes(w)))
    constants = {"NT": plan.tiles_n, "CHANNEL_SPLITS": plan.channel_splits, "STAGES": STAGES, "CTAS_PER_SM": resident}
    fields = 2 * plan.tiles_n, WARP * _WARPS, resident, shared, constants
    return _Block("direct_stem", plan.rows, channels, *fields)


def _warpgroup_block(groups: Warpgroups, *, loads_by_tma: bool) -> _Block:
    constants = {"TILE_N": groups.columns, "STAGES": groups.stages, "LOADS_BY_TMA": loads_by_tma}
    fields = 8, groups.threads, 1, groups.shared, constants
    return _Block("hopper_stem", groups.rows, groups.columns, *fields)


def _constants(
    problem: ConvProblem, plan: Plan, w: TensorSpec, strides: tuple[int, ...], block: _Block
) -> dict[str, int | bool | str]:
    """The compile-time constants of both kernels that depend on the filter and on the layout of image rows.

    ``strides``: the strides of the filter along ``(g, k, c, f0, f1, f2)``.
    """
    p, slices = slices_of(problem)
    # Whether the filter has the memory order of the window.
    is_packed = not p.flip and (strides[2], strides[4], strides[5]) == (1, p.filter[1] * p.c, p.c)
    is_packed = is_packed and (slices == 1 or strides[3] == p.taps * p.c)
    cta_filters, filters = block.channels * problem.taps * p.c, p.k * problem.taps * p.c
    return {
        "SPATIAL": problem.spatial, "T": slices,
        "R": p.filter[0], "S": p.filter[1], "C": p.c, "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
        "FLIP": p.flip, "FILTER_IS_PACKED": is_packed, "PITCH": plan.pitch, "LEADING_ELEMENT": plan.leading_element,
        "LEFT_PAD_ELEMS": plan.left_pad, "TILE_ROWS": block.rows, "THREADS": block.threads,
        "FILTER_COPY_ELEMS": row_copy_elements(w, 16 // element_bytes(w), cta_filters, filters),
        "Filter": STORAGE[w.data_type],
    }  # fmt: skip


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    """The launch of direct_stem.cu or hopper_stem.cu, after copies of operands of other types or layouts."""
    anchor = op.anchor
    assert isinstance(anchor, ConvForward)
    roles, problem = Roles.of(anchor), anchor.problem
    p, slices = slices_of(problem)
    steps = LaunchSequence(op, device)
    w, strides = packed_filter(steps, roles, anchor.w)
    plan = Plan.of(problem, device, knobs[_ROWS.type])
    y_space, x_strides = image_space(roles, roles.output), image_space(roles, anchor.x).strides(anchor.x)
    compute = COMPUTE_TYPE[anchor.compute_type]
    has_bytes = anchor.x.data_type in INTEGERS
    x = _copy_as_halves(steps, anchor.x) if has_bytes else anchor.x
    groups = _warpgroups(p, plan, x, x_strides, element_bytes(w), device, knobs)
    loads_by_tma = is_copied_in_bulk(p, plan.pitch, x_strides, max(1, x.byte_alignment))
    if groups:
        block = _warpgroup_block(groups, loads_by_tma=loads_by_tma)
    else:
        resident = knobs[_OCCUPANCY.type] if _shares_sm(plan, p, anchor.x) else 1
        block = _warp_block(plan, p, x, w, resident=resident)

    parameters = Parameters(steps.workspace_offsets)
    width = min(block.lane_channels, width_for(y_space, steps.epilogue_tensors(), 1, 32))
    body = Program(op, parameters, y_space, "t", width=width, vector_axis=1, has_column_operands=groups is not None)
    steps.write_epilogue(body, "acc", compute)
    if groups and loads_by_tma:
        parameters.maps("image", [(x, image_map(problem, plan.pitch, x_strides, block.rows))])
    row, (x_n, _, *x_lines, _) = p.input[1] * p.c, x_strides
    copy_elements = row_copy_elements(x, 8, row, x_n, *x_lines)
    filters = p.k * problem.taps * p.c
    row_tiles, column_tiles = -(-p.output[0] // block.rows), -(-p.output[1] // mma_pixels(p))
    parameters.tensor("x", x)
    parameters.tensor("filter", w)
    parameters.table({
        "x_n": x_n, "x_h": x_lines[-1], "in_h": p.input[0], "pad_h": p.pre_padding[0],
        "row_vectors": row // copy_elements,
        "window": plan.window,
        "out_h": p.output[0], "out_w": p.output[1], "channels_out": p.k,
        "row_tiles": row_tiles, "column_tiles": column_tiles, "tiles": p.n * row_tiles,
        "filter_elements": filters,
        "filter_c": strides[2], "filter_r": strides[4], "filter_s": strides[5],
        **slice_fields(problem, x_strides, strides),
    })  # fmt: skip

    taps = f"{f't{slices}' if problem.spatial == 3 else ''}r{p.filter[0]}s{p.filter[1]}"
    name = f"conv_fprop__direct_stem_{taps}c{p.c}p{block.rows}__{op.name}"
    column_operands = "const ColumnOperands& column_operands, " if groups else ""
    text = kernel_text(
        name,
        [f"{block.entry}.cu"],
        parameters=parameters.text,
        functions=[
            *([body.column_operands_text(), wgmma_rs_text(x.data_type, groups.columns)] if groups else []),
            body.function("epilogue", f"{column_operands}const {compute} (&acc)[{width}]"),
        ],
        constants={
            **_constants(problem, plan, w, strides, block), **block.constants,
            "COPY_ELEMS": copy_elements, "VEC_WIDTH": width, "Element": STORAGE[x.data_type], "Accum": compute,
        },
    )  # fmt: skip
    across = -(-p.k // block.channels)
    ctas = min(p.n * row_tiles, max(1, device.sm_count * block.resident // across))
    grid = (ctas, across, 1)
    steps.add(Launch(text, block.entry, grid, block.threads, parameters.pack(), block.shared))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    (p, slices), x = slices_of(problem_of(task)), operands_of(task)["x"]
    plan = Plan.of(problem_of(task), task.device, knobs[_ROWS.type])
    k = slices * p.filter[0] * filter_row_k(p, plan.leading_element)
    strides = image_space(Roles.of(task.op.anchor), x).strides(x)  # type: ignore[arg-type]
    groups = _warpgroups(p, plan, x, strides, 2, task.device, knobs)
    cta_channels = groups.columns if groups else 8 * plan.tiles_n * plan.channel_splits
    pixels = p.n * p.output[0] * -(-p.output[1] // mma_pixels(p)) * mma_pixels(p)
    peak_fraction = _WGMMA_PEAK_FRACTION if groups else _PEAK_FRACTION
    flops = 2.0 * pixels * -(-p.k // cta_channels) * cta_channels * k
    seconds = flops / (peak_fraction * task.device.rate(DataType.HALF))
    row_tiles = p.n * -(-p.output[0] // plan.rows)
    cost = _with_idle_sms(device_cost(task, seconds + other_seconds(task)), row_tiles, task.device)
    if slices == 1 and problem_of(task).spatial == _VOLUME_AXES:
        cost = cost.plus({"slices": _SINGLE_SLICE_OVERHEAD * cost.seconds})
    if x.data_type not in INTEGERS:
        return cost
    return cost.plus({"copies": task.device.launch + 3 * x.bytes / task.device.bandwidth})


def _with_idle_sms(cost: Cost, tiles: int, device: DeviceSpec) -> Cost:
    """The cost by whole row tiles: with fewer row tiles than SMs, the time is the time of one row tile."""
    if tiles >= device.sm_count:
        return cost
    return cost.plus({"idle": (device.sm_count / tiles - 1.0) * (cost.seconds - cost.parts["launch"])})


def _fits(task: Task) -> bool:
    """Whether the filters fit into registers, and the image rows of one output row into shared memory."""
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
    x = _copy_as_halves(steps, anchor.x) if anchor.x.data_type in INTEGERS else anchor.x
    strides = image_space(roles, anchor.x).strides(anchor.x)
    groups = _warpgroups(p, plan, x, strides, element_bytes(w), task.device, knobs)
    if groups:
        return {_ROWS.type: groups.rows, _WARPGROUPS.type: 2}
    resident = {_OCCUPANCY.type: knobs[_OCCUPANCY.type]} if _shares_sm(plan, p, anchor.x) else {}
    return {_ROWS.type: plan.rows, _WARPGROUPS.type: 1, **resident}


ENGINE = cuda_engine(
    id=13,
    name="cuda_direct_stem",
    summary="first layers, forward: an image of 1 to 4 channels in 16 bits or bytes, channels last, on tensor cores",
    needs=(
        *stem_needs("cuda_direct_stem", _TAG, _TYPES, accumulator_types, volumes=True),
        need(
            "cuda_direct_stem.row",
            "x.dims[3]",
            lambda task: problem_of(task).input[-1],
            Equals("rows so short that the shared memory of a CTA holds two filter heights of rows"),
            reason="shared memory has two stages of whole rows, each a filter height",
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
