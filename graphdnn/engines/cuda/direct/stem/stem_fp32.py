"""Engine ``cuda_direct_stem_fp32``: the first layer of a network, forward, in fp32 on CUDA cores."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.checks import AtMost, OneOf
from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import problem_of
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.direct_access import (
    image_space,
    packed_filter,
    row_copy_elements,
    slice_fields,
    slices_of,
)
from graphdnn.engines.cuda.direct.stem.stem_requirements import is_served, stem_needs
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need
from graphdnn.engines.operation_cost import flops
from graphdnn.engines.sum_error import ROUNDED
from graphdnn.enums import DataType, KnobType, LayoutType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvForward
from graphdnn.operations.conv_problem import ConvProblem

_TAG = "conv_fprop"
_WARPS = 8
_STAGES = 2
_ELEMENT_BYTES = 4  # bytes of an element
_PEAK_FRACTION = 0.75  # the fraction of the peak fp32 rate that the kernel reaches, without loads of operands
_TYPES = (
    OneOf((DataType.FLOAT, DataType.FLOAT)),
    "the kernel multiplies fp32 elements without conversion",
    "nothing to do: another engine serves other types",
)
_ROWS = Knob(KnobType.TILE_ROWS, 0, 32, 1, 0, "output rows of a tile; 0: chosen by the shape")
_PIXELS = Knob(KnobType.TILE_COLS, 0, 8, 1, 0, "pixels of a thread; 0: chosen by the shape")


@dataclass(frozen=True, slots=True)
class Plan:
    """The extents of a thread and of a tile, and the layout of image rows, in elements unless stated otherwise."""

    slices: int  # depth slices of the image that a result reads
    pixels: int  # pixels of a thread, every fourth of a row
    channels: int  # channels of a thread
    rows: int  # output rows of a tile
    left_pad: int  # zeros before an image row (LEFT_PAD_ELEMS)
    window: int  # offset of pixel 0's window in a row
    pitch: int

    @classmethod
    def of(cls, problem: ConvProblem, device: DeviceSpec, rows: int, pixels: int) -> Plan:
        """The plan of a problem. ``rows`` and ``pixels`` set the extents; 0: chosen. Shared memory limits the rows."""
        p, slices = slices_of(problem)
        width = p.output[1]
        channels = min((8, 4), key=lambda n: -(-p.k // (8 * n)) * n * (1 + (4 / n) / 8))
        pixels = pixels or min((8, 7, 6, 5), key=lambda n: -(-width // (4 * n)) * n * (1 + 2 / n))
        reach = p.pre_padding[1] * p.c
        left_pad = -(-reach // 4) * 4
        last = (-(-width // (4 * pixels)) * 4 * pixels - 1) * p.stride[1] * p.c
        pitch = -(-max(left_pad + p.input[1] * p.c, left_pad - reach + last + p.filter[1] * p.c) // 64) * 64

        def plan(rows: int) -> Plan:
            return cls(slices, pixels, channels, rows, left_pad, left_pad - reach, pitch)

        limit = device.shared_memory - RESERVED
        fitting = [r for r in range(1, (rows or 8) + 1) if plan(r).shared(p) <= limit] or [1]
        if rows:
            return plan(fitting[-1])
        # Adjacent tiles read the rows of a halo twice.
        return plan(min(fitting, key=lambda r: plan(r).rounds(p, device) * (1 + 0.05 * p.filter[0] / r)))

    def warp_tiles(self, p: ConvProblem) -> int:
        """Warp tiles of an output row. ``p``, here and below: the 2-D problem of ``slices_of``."""
        return -(-p.output[1] // (4 * self.pixels))

    def resident(self, p: ConvProblem, device: DeviceSpec) -> int:
        """Resident CTAs of an SM."""
        return 2 if 2 * (self.shared(p) + RESERVED) <= device.shared_memory else 1

    def rounds(self, p: ConvProblem, device: DeviceSpec) -> float:
        """Relative time of the warps of a CTA for an image. A CTA that is alone on its SM takes longer."""
        rounds = -(-p.output[0] // self.rows) * -(-self.rows * self.warp_tiles(p) // _WARPS)
        return rounds * (1.2 if self.resident(p, device) == 1 else 1.0)

    def shared(self, p: ConvProblem) -> int:
        """Bytes of shared memory."""
        image = _STAGES * self.slices * ((self.rows - 1) * p.stride[0] + p.filter[0]) * self.pitch
        return _ELEMENT_BYTES * (image + self.slices * p.taps * p.c * (8 * self.channels + 4))


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    """The launch of direct_stem_fp32.cu."""
    anchor = op.anchor
    assert isinstance(anchor, ConvForward)
    roles, problem = Roles.of(anchor), anchor.problem
    p, slices = slices_of(problem)
    x, steps = anchor.x, LaunchSequence(op, device)
    w, strides = packed_filter(steps, roles, anchor.w)
    plan = Plan.of(problem, device, knobs[_ROWS.type], knobs[_PIXELS.type])
    x_space, y_space = image_space(roles, x), image_space(roles, roles.output)
    parameters = Parameters(steps.workspace_offsets)
    width = min(4, width_for(y_space, steps.epilogue_tensors(), 1))
    body = Program(op, parameters, y_space, "t", width=width, vector_axis=1)
    steps.write_epilogue(body, "acc", "float")

    row, warp_tiles = p.input[1] * p.c, plan.warp_tiles(p)
    x_n, _, *x_lines, _ = x_space.strides(x)
    copy_elements = row_copy_elements(x, 4, row, x_n, *x_lines)
    row_tiles, channels = -(-p.output[0] // plan.rows), 8 * plan.channels
    parameters.tensor("x", x)
    parameters.tensor("filter", w)
    parameters.table({
        "x_n": x_n, "x_h": x_lines[-1], "in_h": p.input[0], "pad_h": p.pre_padding[0],
        "row_vectors": row // copy_elements,
        "window": plan.window, "out_h": p.output[0], "out_w": p.output[1], "channels_out": p.k,
        "row_tiles": row_tiles, "column_tiles": warp_tiles, "tiles": p.n * row_tiles,
        "filter_c": strides[2], "filter_r": strides[4], "filter_s": strides[5],
        **slice_fields(problem, x_space.strides(x), strides),
    })  # fmt: skip
    shared, resident = plan.shared(p), plan.resident(p, device)
    taps = f"{f't{slices}' if problem.spatial == 3 else ''}r{p.filter[0]}s{p.filter[1]}"
    variant = f"{taps}c{p.c}p{plan.rows}x{plan.pixels}x{plan.channels}"
    text = kernel_text(
        f"conv_fprop__direct_stem_float_{variant}__{op.name}",
        ["direct_stem_fp32.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const float (&acc)[{width}]")],
        constants={
            "SPATIAL": problem.spatial, "T": slices,
            "R": p.filter[0], "S": p.filter[1], "C": p.c, "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
            "FLIP": p.flip, "PITCH": plan.pitch, "LEFT_PAD_ELEMS": plan.left_pad, "FIRST_PAIR": plan.window % 2,
            "TILE_ROWS": plan.rows, "TM": plan.pixels, "TN": plan.channels, "THREADS": 32 * _WARPS,
            "CTAS_PER_SM": resident,
            "STAGES": _STAGES, "COPY_ELEMS": copy_elements, "VEC_WIDTH": width, "Element": STORAGE[x.data_type],
        },
    )  # fmt: skip
    across = -(-p.k // channels)
    ctas = min(p.n * row_tiles, max(1, device.sm_count * resident // across))
    steps.add(Launch(text, "direct_stem_fp32", (ctas, across, 1), 32 * _WARPS, parameters.pack(), shared))
    return steps.kernel(f"conv_fprop__direct_stem_float_{variant}__{op.name}")


def _cost(task: Task, knobs: Knobs) -> Cost:
    p, slices = slices_of(problem_of(task))
    plan = Plan.of(problem_of(task), task.device, knobs[_ROWS.type], knobs[_PIXELS.type])
    channels = -(-p.k // (8 * plan.channels)) * 8 * plan.channels
    pixels = p.n * plan.rounds(p, task.device) * _WARPS * 4 * plan.pixels
    reading = 1 + (plan.pixels / 2 + plan.channels / 4) / (plan.pixels * plan.channels)
    rate = _PEAK_FRACTION * task.device.rate(DataType.FLOAT)
    others = sum(flops(op) for op in task.op.operations if op is not task.op.anchor)
    return device_cost(task, (2.0 * pixels * channels * slices * p.taps * p.c * reading + others) / rate)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    plan = Plan.of(problem_of(task), task.device, knobs[_ROWS.type], knobs[_PIXELS.type])
    return {_ROWS.type: plan.rows, _PIXELS.type: plan.pixels}


ENGINE = cuda_engine(
    id=22,
    name="cuda_direct_stem_fp32",
    summary="first layers, forward: an image of 1 to 4 channels in fp32, channels last",
    needs=(
        *stem_needs("cuda_direct_stem_fp32", _TAG, _TYPES, volumes=True),
        need(
            "cuda_direct_stem_fp32.row",
            "x.dims[3]",
            lambda task: Plan.of(problem_of(task), task.device, 1, 0).shared(slices_of(problem_of(task))[0]),
            lambda task: AtMost(task.device.shared_memory - RESERVED),
            reason="shared memory has the filters, and two stages of whole rows, each a filter height",
            fix="divide the image into narrower ones",
            when=lambda task: is_served(task, _TAG, volumes=True),
        ),
    ),
    cost=_cost,
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    knobs=(_ROWS, _PIXELS),
    effective=_effective,
    sum_error=ROUNDED,
)
