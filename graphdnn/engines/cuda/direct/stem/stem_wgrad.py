"""Engine ``cuda_direct_stem_wgrad``: the filter gradient of a network's first layer, on tensor cores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphdnn.checks import Equals, MultipleOf
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
from graphdnn.engines.cuda.direct.direct_access import image_space, row_copy_elements
from graphdnn.engines.cuda.direct.stem.stem_requirements import is_served, stem_needs
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need
from graphdnn.enums import DataType, KnobType, LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter
from graphdnn.operations.conv_problem import ConvProblem

_TAG = "conv_wgrad"
_ROWS = Knob(KnobType.TILE_ROWS, 0, 8, 1, 0, "rows of dy of a stage; 0: chosen by the shape")
_USUAL_ROWS = 4
_WARPS = 16
_REDUCE_WARPS = 8  # warps of the second launch that divide the splits of one channel
_PEAK_FRACTION = 0.5  # the fraction of the tensor cores' peak rate that the kernel reaches


@dataclass(frozen=True, slots=True)
class Plan:
    """The layout of image rows and the extents of a CTA, in elements unless stated otherwise (direct_stem_wgrad.cu)."""

    leading_element: int  # 1 if the window of pixel 0 begins at an odd element (LEADING_ELEMENT)
    left_pad: int  # zeros before an image row (LEFT_PAD_ELEMS)
    window: int  # offset of pixel 0's window in a row
    words: int  # 32-bit words of the window of one filter row
    pitch: int
    width: int  # pixels of a row of dy, padded to the MMA's K
    channel_tiles: int  # MMA tiles of 16 channels of dy of a CTA
    pairs: int  # pairs of MMAs of a warp along N
    warps_n: int  # warps along the words
    warps_k: int  # warps along the pixels
    rows: int  # rows of dy of a stage
    shared: int  # bytes of shared memory

    @property
    def columns(self) -> int:
        """Columns of N of a CTA: two for each word."""
        return 16 * self.pairs * self.warps_n


@lru_cache(maxsize=64)
def plan_of(p: ConvProblem, shared_memory: int, requested_rows: int) -> Plan | None:
    """The plan, or None if one row does not fit into shared memory.

    ``shared_memory``: bytes of an SM. ``requested_rows``: rows of dy of a stage; 0: chosen.
    """
    (r, s), c = p.filter, p.c
    reach = p.pre_padding[1] * c
    left_pad = -(-(reach + 1) // 8) * 8
    leading_element = (left_pad - reach) % 2
    window = left_pad - reach - leading_element
    words = -(-(s * c + leading_element) // 2)
    width = -(-p.output[1] // 16) * 16
    last = window + (width - 1) * p.stride[1] * c + 2 * words
    pitch = -(-max(left_pad + p.input[1] * c, last) // 8) * 8
    channel_tiles = min(4, -(-p.k // 16))
    word_pairs = -(-r * words // 8)
    pairs = next(n for n in (2, 3, 4, 1) if -(-word_pairs // n) <= _WARPS) if word_pairs > 1 else 1
    warps_n = -(-word_pairs // pairs)
    warps_k = max(1, _WARPS // warps_n)
    exchange = warps_n * channel_tiles * pairs * 8 * 32 * 4 if warps_k > 1 else 0
    for rows in range(min(requested_rows or _USUAL_ROWS, p.output[0]), 0, -1):
        images = ((rows - 1) * p.stride[0] + r) * pitch + rows * width * (16 * channel_tiles + 8)
        shared = max(2 * images * 2, exchange)
        if shared <= shared_memory - RESERVED:
            return Plan(
                leading_element, left_pad, window, words, pitch, width, channel_tiles, pairs, warps_n, warps_k,
                rows, shared,
            )  # fmt: skip
    return None


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    """The launches of direct_stem_wgrad.cu: partial sums, and their sum."""
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    roles, p = Roles.of(anchor), anchor.problem
    x, _, dy = anchor.roles
    steps = LaunchSequence(op, device)
    plan = plan_of(p, device.shared_memory, knobs[_ROWS.type])
    assert plan is not None
    x_n, _, x_h, _ = image_space(roles, x).strides(x)
    dy_n, _, dy_h, dy_w = image_space(roles, dy).strides(dy)
    row = p.input[1] * p.c
    copy_elements = row_copy_elements(x, 8, row, x_n, x_h)
    row_stages = -(-p.output[0] // plan.rows)
    channels = 16 * plan.channel_tiles
    channel_blocks = -(-p.k // channels)
    stages = p.n * row_stages
    splits = min(stages, max(1, device.sm_count // channel_blocks))

    parameters = Parameters(steps.workspace_offsets)
    body = Program(op, parameters, roles.space(roles.output), "t")
    steps.write_epilogue(body, "acc", "float")
    parameters.tensor("x", x)
    parameters.tensor("dy", dy)
    parameters.table({
        "x_n": x_n, "x_h": x_h, "in_h": p.input[0], "pad_h": p.pre_padding[0], "row_vectors": row // copy_elements,
        "window": plan.window,
        "dy_n": dy_n, "dy_h": dy_h, "dy_w": dy_w, "out_h": p.output[0], "out_w": p.output[1], "channels_out": p.k,
        "row_stages": row_stages, "stages": stages, "splits": splits, "padded_channels": channel_blocks * channels,
    })  # fmt: skip
    partial_bytes = splits * channel_blocks * channels * plan.columns * 4
    parameters.workspace_pointer("partial", "float", steps.allocate(partial_bytes))
    variant = f"r{p.filter[0]}s{p.filter[1]}c{p.c}t{plan.channel_tiles}x{plan.pairs}p{plan.rows}"
    name = f"conv_wgrad__direct_stem_{variant}__{op.name}"
    threads = 32 * plan.warps_n * plan.warps_k
    text = kernel_text(
        name,
        ["direct_stem_wgrad.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", "const float (&acc)[1]")],
        constants={
            "R": p.filter[0], "S": p.filter[1], "C": p.c, "STRIDE_H": p.stride[0], "STRIDE_W": p.stride[1],
            "FLIP": p.flip, "PITCH": plan.pitch, "LEADING_ELEMENT": plan.leading_element,
            "LEFT_PAD_ELEMS": plan.left_pad,
            "WINDOW_WORDS": plan.words,
            "QP": plan.width, "WHOLE_COLUMNS": plan.width == p.output[1], "TILE_ROWS": plan.rows,
            "MT": plan.channel_tiles, "NP": plan.pairs, "WARPS_N": plan.warps_n, "WARPS_K": plan.warps_k,
            "THREADS": threads, "CTAS_PER_SM": 1, "REDUCE_WARPS": _REDUCE_WARPS,
            "COPY_ELEMS": copy_elements, "DY_COPY_ELEMS": row_copy_elements(dy, 8, p.k, dy_n, dy_h, dy_w),
            "Element": STORAGE[x.data_type],
        },
    )  # fmt: skip
    packed = parameters.pack()
    steps.add(Launch(text, "direct_stem_wgrad", (splits, channel_blocks, 1), threads, packed, plan.shared))
    steps.add(Launch(text, "direct_stem_wgrad_sum", (-(-plan.columns // 32), p.k, 1), 32 * _REDUCE_WARPS, packed))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    p = problem_of(task)
    plan = plan_of(p, task.device.shared_memory, 0)
    assert plan is not None
    channels = -(-p.k // (16 * plan.channel_tiles)) * 16 * plan.channel_tiles
    work = 2.0 * p.n * p.output[0] * plan.width * channels * plan.columns
    seconds = work / (_PEAK_FRACTION * task.device.rate(DataType.HALF))
    partial = 8.0 * task.device.sm_count * 16 * plan.channel_tiles * plan.columns
    return device_cost(task, seconds + other_seconds(task), partial, launches=2)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    plan = plan_of(problem_of(task), task.device.shared_memory, knobs[_ROWS.type])
    return {} if plan is None else {_ROWS.type: plan.rows}


ENGINE = cuda_engine(
    id=23,
    name="cuda_direct_stem_wgrad",
    summary="first layers, filter gradient: an image of 1 to 4 channels in 16 bits, channels last, on tensor cores",
    needs=(
        *stem_needs("cuda_direct_stem_wgrad", _TAG),
        need(
            "cuda_direct_stem_wgrad.pairs",
            "conv.filter_strides",
            lambda task: problem_of(task).stride[1] * problem_of(task).c,
            MultipleOf(2),
            reason="a load has a pair of elements, so windows must begin at even elements",
            fix="use an even stride, or 2 or 4 channels",
            when=lambda task: is_served(task, _TAG),
        ),
        need(
            "cuda_direct_stem_wgrad.shared_memory",
            "device.shared_memory",
            lambda task: task.device.shared_memory,
            Equals("enough for two stages of one row"),
            reason="shared memory has two stages of whole rows of dy and of the rows of x that they multiply",
            fix="divide the image into narrower ones",
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
