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
from graphdnn.engines.cuda.direct.direct_access import copied_at_once, image_space, packed_filter
from graphdnn.engines.cuda.direct.stem.stem_requirements import is_served, stem_needs
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardData
from graphdnn.operations.conv_problem import ConvProblem

_TAG = "conv_dgrad"
_ROWS = Knob(KnobType.TILE_ROWS, 0, 4, 1, 0, "rows of tiles of a warp, 1, 2 or 4; 0: chosen by the shape")
_WARPS = 16
_SUMS, _WEIGHTS = 64, 64  # the most registers of a thread for accumulators, and for weights
_UNROLLED = 4
_PACE = 0.5  # the part of the tensor cores' peak that the kernel reaches


@dataclass(frozen=True, slots=True)
class Axis:
    """The window of dy over one axis of dx."""

    low: int  # first position, relative to the tile
    taps: int
    base: int  # tap of residue 0 at the first position

    @classmethod
    def of(cls, filter: int, stride: int, pre: int) -> Axis:
        low = -((filter - 1 - pre) // stride)
        return cls(low, (stride - 1 + pre) // stride - low + 1, pre - stride * low)


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the kernel."""

    height: Axis
    width: Axis
    depth: int  # channels of dy, padded to the MMA's K
    products: int  # MMA tiles along N: columns of all residues
    tiles: int  # tiles of 16 pixels of a CTA along a row
    rows: int  # rows of a warp
    row_parts: int
    shared: int
    seconds: float  # time of all MMAs on one SM, in relative units

    @property
    def warps(self) -> int:
        return self.tiles * self.row_parts


@lru_cache(maxsize=64)
def plan_of(p: ConvProblem, shared_memory: int, wanted_rows: int) -> Plan | None:
    """The plan with the least predicted work of the limiting unit, or None if no plan fits."""
    height, width = (Axis.of(f, s, pre) for f, s, pre in zip(p.filter, p.stride, p.pre_padding, strict=True))
    depth = -(-p.k // 16) * 16
    products = p.stride[0] * -(-p.stride[1] * p.c // 8)
    across, down = (-(-size // stride) for size, stride in zip(p.input[::-1], p.stride[::-1], strict=True))
    weights = width.taps * (depth // 16) * height.taps * products * 32 * 8
    found = []
    for rows in (4, 2, 1):
        if (wanted_rows and rows != min(wanted_rows & -wanted_rows, 4)) or rows * products * 4 > _SUMS:
            continue
        if height.taps * products * 2 > _WEIGHTS:
            continue
        for row_parts in (1, 2, 4):
            for tiles in range(1, _WARPS // row_parts + 1):
                step = rows * row_parts
                slots = 2 * step + height.taps - 1
                ring = slots * (16 * tiles + width.taps - 1) * (depth + 8) * 2
                shared = ring + weights + tiles * row_parts * 16 * p.stride[1] * p.c * 4
                if shared > shared_memory - RESERVED:
                    continue
                # Shared-memory loads and MMAs of a warp for a step, per row.
                matrices = 4 * (rows + height.taps - 1) / rows + 2 * height.taps * products / rows
                busy = max(matrices, 2.0 * height.taps * products) + 0.3 * min(matrices, 2.0 * height.taps * products)
                blocks = max(1, min(shared_memory // (shared + RESERVED), 24 // (tiles * row_parts)))
                filled = min(1.0, 0.4 + 0.05 * blocks * tiles * row_parts)
                columns, steps = -(-across // (16 * tiles)), -(-down // step)
                work = columns * 16 * tiles * steps * step * (1 + 0.02 * height.taps / step)
                seconds = busy * width.taps * (depth // 16) * work / filled
                found.append(Plan(height, width, depth, products, tiles, rows, row_parts, shared, seconds))
    return min(found, key=lambda plan: plan.seconds, default=None)


def _plan(p: ConvProblem, device: DeviceSpec, knobs: Knobs) -> Plan | None:
    return plan_of(p, device.shared_memory, knobs[_ROWS.type]) or plan_of(p, device.shared_memory, 0)


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
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
    chunk = copied_at_once(dy, 8, p.k, dy_n, dy_h, dy_w)

    parameters = Parameters(steps.workspace_offsets)
    body = Program(op, parameters, dx_space, "t")
    steps.finish(body, "acc", "float")
    rows = plan.rows * plan.row_parts
    across, down = (-(-s // stride) for s, stride in zip(p.input[::-1], p.stride[::-1], strict=True))
    steps_across, steps_down = -(-across // (16 * plan.tiles)), -(-down // rows)
    count = p.n * steps_across * steps_down
    resident = max(1, min(device.shared_memory // (plan.shared + RESERVED), 24 // plan.warps))
    share = -(-count // (device.sm_count * resident))
    parameters.tensor("dy", dy)
    parameters.tensor("filter", w)
    parameters.table({
        "dy_n": dy_n, "dy_h": dy_h, "dy_w": dy_w,
        "filter_k": strides[1], "filter_c": strides[2], "filter_r": strides[4], "filter_s": strides[5],
        "in_h": p.input[0], "in_w": p.input[1], "out_h": p.output[0], "out_w": p.output[1],
        "steps": count, "steps_down": steps_down, "steps_across": steps_across, "steps_per_cta": share,
    })  # fmt: skip
    how = f"r{p.filter[0]}s{p.filter[1]}c{p.c}k{plan.depth}t{plan.tiles}x{plan.row_parts}x{plan.rows}"
    name = f"conv_dgrad__direct_stem_{how}__{op.name}"
    slices = plan.depth // 16
    text = kernel_text(
        name,
        ["direct_stem_dgrad.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", "const float (&acc)[1]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "C": p.c, "K": p.k, "KP": plan.depth,
            "SH": p.stride[0], "SW": p.stride[1], "FLIP": p.flip,
            "TAPS_H": plan.height.taps, "TAPS_W": plan.width.taps, "FIRST_H": plan.height.low,
            "FIRST_W": plan.width.low,
            "BASE_TAP_H": plan.height.base, "BASE_TAP_W": plan.width.base,
            "RW": plan.rows, "WARPS_H": plan.row_parts, "MT": plan.tiles, "THREADS": 32 * plan.warps,
            "CTAS_PER_SM": resident, "COPY_ELEMS": chunk,
            "UNROLL": next(n for n in range(min(_UNROLLED, slices), 0, -1) if slices % n == 0),
            "Element": STORAGE[dy.data_type],
        },
    )  # fmt: skip
    blocks = -(-count // share)
    steps.add(Launch(text, "direct_stem_dgrad", (blocks, 1, 1), 32 * plan.warps, parameters.pack(), plan.shared))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    p = problem_of(task)
    plan = plan_of(p, task.device.shared_memory, 0)
    assert plan is not None
    down, across = (-(-size // stride) for size, stride in zip(p.input, p.stride, strict=True))
    tiles = p.n * down * -(-across // 16) * 16
    work = 2.0 * tiles * plan.height.taps * plan.width.taps * plan.depth * 8 * plan.products
    seconds = work / (_PACE * task.device.rate(DataType.HALF))
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
            Equals("room for the weights and the rows of one step"),
            reason="weights, as fragments of products, and rows of dy are kept in shared memory",
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
