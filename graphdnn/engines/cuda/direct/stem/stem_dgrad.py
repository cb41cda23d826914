"""Engine ``cuda_direct_stem_dgrad``: the data gradient of a network's first layer, on tensor cores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphdnn.checks import Equals
from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import problem_of
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.direct_access import image_space, packed_filter, row_copy_elements
from graphdnn.engines.cuda.direct.stem.stem_requirements import is_served, stem_needs
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardData
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec

_TAG = "conv_dgrad"
_ROWS = Knob(KnobType.TILE_ROWS, 0, 4, 1, 0, "rows of pixel blocks of a warp, 1, 2 or 4; 0: chosen by the shape")
_WARPS = 16
_MAX_ACCUMULATORS, _MAX_WEIGHTS = 64, 64  # registers of a thread
_MAX_UNROLL = 4
_PEAK_FRACTION = 0.5  # the fraction of the tensor cores' peak rate that the kernel reaches


@dataclass(frozen=True, slots=True)
class Axis:
    """The window of dy that a block of dx reads, along one axis."""

    low: int  # first position of the window, relative to the block
    taps: int  # positions of the window
    base: int  # filter tap of residue 0 at the first position

    @classmethod
    def of(cls, filter: int, stride: int, pre: int) -> Axis:
        low = -((filter - 1 - pre) // stride)
        return cls(low, (stride - 1 + pre) // stride - low + 1, pre - stride * low)


@dataclass(frozen=True, slots=True)
class Plan:
    """The extents of a warp and of a CTA, see direct_stem_dgrad.cu."""

    height: Axis
    width: Axis
    depth: int  # channels of dy, padded to the MMA's K
    mma_tiles_n: int  # MMA tiles along N: columns of all residues
    tiles: int  # tiles of 16 blocks of a CTA along a row
    rows: int  # rows of blocks of a warp
    warps_h: int  # warps of a CTA along the rows
    shared: int  # bytes of shared memory
    work: float  # predicted time of all MMAs on one SM, in relative units

    @property
    def warps(self) -> int:
        return self.tiles * self.warps_h


@lru_cache(maxsize=64)
def plan_of(p: ConvProblem, shared_memory: int, requested_rows: int) -> Plan | None:
    """The plan with the least predicted time, or None if no plan fits.

    ``shared_memory``: bytes of an SM. ``requested_rows``: rows of a warp; 0: chosen.
    """
    requested = min(requested_rows & -requested_rows, 4)  # a power of two
    plans = [
        plan
        for rows in ([requested] if requested else (4, 2, 1))
        for warps_h in (1, 2, 4)
        for tiles in range(1, _WARPS // warps_h + 1)
        if (plan := _candidate(p, shared_memory, rows, warps_h, tiles)) is not None
    ]
    return min(plans, key=lambda plan: plan.work, default=None)


def _candidate(p: ConvProblem, shared_memory: int, rows: int, warps_h: int, tiles: int) -> Plan | None:
    """The plan of these extents, or None if its registers or its shared memory do not fit."""
    height, width = (Axis.of(f, s, pre) for f, s, pre in zip(p.filter, p.stride, p.pre_padding, strict=True))
    depth = -(-p.k // 16) * 16
    mma_tiles_n = p.stride[0] * -(-p.stride[1] * p.c // 8)
    if rows * mma_tiles_n * 4 > _MAX_ACCUMULATORS or height.taps * mma_tiles_n * 2 > _MAX_WEIGHTS:
        return None
    step, warps = rows * warps_h, tiles * warps_h
    fragments = width.taps * (depth // 16) * height.taps * mma_tiles_n * 32 * 8
    ring = (2 * step + height.taps - 1) * (16 * tiles + width.taps - 1) * (depth + 8) * 2
    shared = ring + fragments + warps * 16 * p.stride[1] * p.c * 4
    if shared > shared_memory - RESERVED:
        return None
    # Shared-memory loads and MMAs of a warp for a row.
    loads = 4 * (rows + height.taps - 1) / rows + 2 * height.taps * mma_tiles_n / rows
    mmas = 2.0 * height.taps * mma_tiles_n
    row_time = max(loads, mmas) + 0.3 * min(loads, mmas)
    ctas_per_sm = max(1, min(shared_memory // (shared + RESERVED), 24 // warps))
    utilization = min(1.0, 0.4 + 0.05 * ctas_per_sm * warps)
    down, across = (-(-size // stride) for size, stride in zip(p.input, p.stride, strict=True))
    rows_of_all = -(-across // (16 * tiles)) * 16 * tiles * -(-down // step) * step * (1 + 0.02 * height.taps / step)
    work = row_time * width.taps * (depth // 16) * rows_of_all / utilization
    return Plan(height, width, depth, mma_tiles_n, tiles, rows, warps_h, shared, work)


def _plan(p: ConvProblem, device: DeviceSpec, knobs: Knobs) -> Plan | None:
    return plan_of(p, device.shared_memory, knobs[_ROWS.type]) or plan_of(p, device.shared_memory, 0)


def _constants(
    p: ConvProblem, plan: Plan, copy_elements: int, dy: TensorSpec, resident: int, slices: int
) -> dict[str, int | bool | str]:
    """The compile-time constants of direct_stem_dgrad.cu."""
    return {
        "R": p.filter[0], "S": p.filter[1], "C": p.c, "K": p.k, "KP": plan.depth,
        "SH": p.stride[0], "SW": p.stride[1], "FLIP": p.flip,
        "TAPS_H": plan.height.taps, "TAPS_W": plan.width.taps, "FIRST_H": plan.height.low,
        "FIRST_W": plan.width.low,
        "BASE_TAP_H": plan.height.base, "BASE_TAP_W": plan.width.base,
        "RW": plan.rows, "WARPS_H": plan.warps_h, "MT": plan.tiles, "THREADS": 32 * plan.warps,
        "CTAS_PER_SM": resident, "COPY_ELEMS": copy_elements,
        "UNROLL": next(n for n in range(min(_MAX_UNROLL, slices), 0, -1) if slices % n == 0),
        "Element": STORAGE[dy.data_type],
    }  # fmt: skip


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    """The launch of direct_stem_dgrad.cu."""
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardData)
    roles, p = Roles.of(anchor), anchor.problem
    _, w, dy = anchor.roles
    steps = LaunchSequence(op, device)
    plan = _plan(p, device, knobs)
    assert plan is not None
    w, strides = packed_filter(steps, roles, w, any_order=True)
    dx_space, dy_space = image_space(roles, roles.output), image_space(roles, dy)
    dy_n, _, dy_h, dy_w = dy_space.strides(dy)
    copy_elements = row_copy_elements(dy, 8, p.k, dy_n, dy_h, dy_w)

    parameters = Parameters(steps.workspace_offsets)
    body = Program(op, parameters, dx_space, "t")
    steps.write_epilogue(body, "acc", "float")
    rows = plan.rows * plan.warps_h
    across, down = (-(-s // stride) for s, stride in zip(p.input[::-1], p.stride[::-1], strict=True))
    steps_across, steps_down = -(-across // (16 * plan.tiles)), -(-down // rows)
    count = p.n * steps_across * steps_down
    resident = max(1, min(device.shared_memory // (plan.shared + RESERVED), 24 // plan.warps))
    steps_per_cta = -(-count // (device.sm_count * resident))
    parameters.tensor("dy", dy)
    parameters.tensor("filter", w)
    parameters.table({
        "dy_n": dy_n, "dy_h": dy_h, "dy_w": dy_w,
        "filter_k": strides[1], "filter_c": strides[2], "filter_r": strides[4], "filter_s": strides[5],
        "in_h": p.input[0], "in_w": p.input[1], "out_h": p.output[0], "out_w": p.output[1],
        "steps": count, "steps_down": steps_down, "steps_across": steps_across, "steps_per_cta": steps_per_cta,
    })  # fmt: skip
    variant = f"r{p.filter[0]}s{p.filter[1]}c{p.c}k{plan.depth}t{plan.tiles}x{plan.warps_h}x{plan.rows}"
    name = f"conv_dgrad__direct_stem_{variant}__{op.name}"
    slices = plan.depth // 16
    text = kernel_text(
        name,
        ["direct_stem_dgrad.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", "const float (&acc)[1]")],
        constants=_constants(p, plan, copy_elements, dy, resident, slices),
    )
    blocks = -(-count // steps_per_cta)
    steps.add(Launch(text, "direct_stem_dgrad", (blocks, 1, 1), 32 * plan.warps, parameters.pack(), plan.shared))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    p = problem_of(task)
    plan = plan_of(p, task.device.shared_memory, 0)
    assert plan is not None
    down, across = (-(-size // stride) for size, stride in zip(p.input, p.stride, strict=True))
    tiles = p.n * down * -(-across // 16) * 16
    work = 2.0 * tiles * plan.height.taps * plan.width.taps * plan.depth * 8 * plan.mma_tiles_n
    seconds = work / (_PEAK_FRACTION * task.device.rate(DataType.HALF))
    return device_cost(task, seconds + other_seconds(task))


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    plan = _plan(problem_of(task), task.device, knobs)
    return {} if plan is None else {_ROWS.type: plan.rows}


ENGINE = cuda_engine(
    id=19,
    name="cuda_direct_stem_dgrad",
    summary="first layers, data gradient: an image of 1 to 4 channels in 16 bits, channels last, on tensor cores",
    needs=(
        *stem_needs("cuda_direct_stem_dgrad", _TAG),
        need(
            "cuda_direct_stem_dgrad.shared_memory",
            "device.shared_memory",
            lambda task: task.device.shared_memory,
            Equals("enough for the weights and the rows of one step"),
            reason="weights, as MMA fragments, and rows of dy are in shared memory",
            fix="nothing to do: another engine serves it",
            when=lambda task: is_served(task, _TAG) and plan_of(problem_of(task), task.device.shared_memory, 0) is None,
        ),
    ),
    cost=_cost,
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    knobs=(_ROWS,),
    effective=_effective,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)
