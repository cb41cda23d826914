"""Engine ``cuda_depthwise_wgrad``: the filter gradient with one channel per group that ``cuda_direct_wgrad`` declines.

The engine serves any dilation and stride, one to three spatial axes, channels last or first, and long filters. Its
results are deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from graphdnn.checks import AtMost
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import convolution_of, problem_of
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles, padded
from graphdnn.engines.cuda.direct.depthwise.depthwise_requirements import (
    CHANNEL,
    COLUMN,
    depthwise_needs,
    is_filter_gradient,
)
from graphdnn.engines.cuda.direct.depthwise.depthwise_tile import balanced_size
from graphdnn.engines.cuda.direct.direct_fields import volume_fields
from graphdnn.engines.cuda.direct.sliding_mma.sliding_mma_wgrad import REDUCE_WARPS
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.enums import DataType, KnobType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec

_THREADS, _SINGLE_CHANNEL_THREADS = 256, 128  # threads of a CTA, and of a CTA with one channel
_MAX_SHARED = 48 * 1024  # bytes of shared memory for the accumulators of a row of taps
_MAX_ACCUMULATORS = 72  # the most accumulators of a thread
_MAX_ROW_ELEMENTS = 48  # the most elements of a row of x in the registers of a thread with several columns
_MAX_TAPS = 64  # taps along columns
_VEC_BYTES = 8  # bytes of a vector of channels
_CTAS_PER_SM = 4
_PEAK_FRACTION = 0.3  # the fraction of the peak rate of multiply-adds that the kernel reaches
_STALL_FACTOR = 1.8  # time over issue slots if channels are contiguous: a thread loads one row after another
_SATURATING_WARPS = 16  # resident warps that hide latency
_OTHER_REGISTERS = 40  # registers of a thread except for accumulators and operands
_LOAD_COST, _ITEM_COST = 6.0, 60.0  # costs of a load and of a work item, in instructions
_REREAD = 0.3  # the fraction of the memory traffic that a second SM reads as well
_COLUMNS = Knob(KnobType.TILE_COLS, 0, 16, 1, 0, "columns of dy of a thread; 0: chosen by the shape")


@dataclass(frozen=True, slots=True)
class _Shape:
    """A depthwise wgrad without its addresses."""

    problem: ConvProblem
    columns_contiguous: bool
    load_elements: int  # elements of the widest load of x, and of dy
    dy_load_elements: int


@dataclass(frozen=True, slots=True)
class _Tile:
    """The extents of a thread and of a CTA."""

    v: int  # channels of a thread
    tw: int  # columns of dy of a thread
    column_vec: int  # columns of a load of x
    dy_column_vec: int  # columns of a load of dy
    channel_threads: int  # threads of a CTA along the channels
    row_taps: int  # rows of taps of a CTA

    @property
    def thread_slots(self) -> int:
        """Threads of a CTA along the work items."""
        threads = _THREADS if self.v * self.channel_threads > 1 else _SINGLE_CHANNEL_THREADS
        return max(1, threads // self.channel_threads)

    @property
    def threads(self) -> int:
        return -(-self.channel_threads * self.thread_slots // 32) * 32


def _shape(op: ConvBackwardFilter) -> _Shape:
    roles = Roles.of(op)
    x, _, dy = op.roles
    spaces = roles.space(x), roles.space(dy)
    along = [_strides(roles, t)[CHANNEL] != 1 and _strides(roles, t)[COLUMN] == 1 for t in (x, dy)]
    columns_contiguous = all(along)
    axis, limit = (COLUMN, 16) if columns_contiguous else (CHANNEL, _VEC_BYTES)
    return _Shape(
        op.problem, columns_contiguous, *(width_for(s, [t], axis, limit) for s, t in zip(spaces, (x, dy), strict=True))
    )


def _strides(roles: Roles, spec: TensorSpec) -> tuple[int, ...]:
    return roles.space(spec).strides(spec)


def _tap_rows(p: ConvProblem) -> int:
    """Rows of taps of all planes."""
    return p.taps // p.filter[-1]


@lru_cache(maxsize=256)
def _choose(shape: _Shape, requested: int) -> _Tile:
    """The tile with the least predicted time. ``requested``: columns of a thread; 0: chosen."""
    p = shape.problem
    s, columns = p.filter[-1], p.output[-1]
    found: list[tuple[float, _Tile]] = []
    for v in (1,) if shape.columns_contiguous else (1, 2, 4):
        if v > min(shape.load_elements, shape.dy_load_elements) or (v > 1 and v * s > _MAX_ACCUMULATORS):
            continue
        channel_threads = 1 if shape.columns_contiguous else balanced_size(-(-p.groups // v), 32)
        row_taps = balanced_size(_tap_rows(p), max(1, _MAX_ACCUMULATORS // (s * v)))
        for tw in (requested,) if requested else (1, 2, 4, 7, 8, 14, 16):
            reach = (tw - 1) * p.stride[-1] + (s - 1) * p.dilation[-1] + 1
            window = min(reach, tw * s)
            if tw > max(1, columns) or (tw > 1 and v * window > _MAX_ROW_ELEMENTS):
                continue
            column_vec = gcd(shape.load_elements, tw * p.stride[-1]) if shape.columns_contiguous else 1
            dy_column_vec = gcd(shape.dy_load_elements, tw) if shape.columns_contiguous else 1
            tile = _Tile(v, tw, column_vec, dy_column_vec, channel_threads, row_taps)
            if tile.thread_slots * s * tile.channel_threads * v * 4 <= _MAX_SHARED or shape.columns_contiguous:
                found.append((_seconds(shape, tile, 1.0), tile))
    if requested and not found:  # no tile has the requested columns
        return _choose(shape, 0)
    return min(found, key=lambda pair: pair[0])[1]


def _items(p: ConvProblem, tw: int) -> int:
    """Work items: tiles of ``tw`` columns of dy."""
    return p.n * -(-p.output[-1] // tw) * (p.macs // (p.n * p.groups * p.taps * p.output[-1]))


def _instructions(shape: _Shape, tile: _Tile) -> float:
    """Instructions of all threads."""
    p = shape.problem
    window = min((tile.tw - 1) * p.stride[-1] + (p.filter[-1] - 1) * p.dilation[-1] + 1, tile.tw * p.filter[-1])
    groups = -(-_tap_rows(p) // tile.row_taps)
    row = tile.tw * p.filter[-1] * tile.v + window * (_LOAD_COST / tile.column_vec + tile.v)
    per_item = tile.row_taps * row + tile.tw * (_LOAD_COST / tile.dy_column_vec + tile.v) + _ITEM_COST
    channels = -(-p.groups // (tile.channel_threads * tile.v)) * tile.channel_threads
    return float(channels * groups * _items(p, tile.tw) * per_item)


def _seconds(shape: _Shape, tile: _Tile, rate: float) -> float:
    """Predicted seconds at ``rate`` instructions of threads per second. Low occupancy exposes latency."""
    p = shape.problem
    window = min((tile.tw - 1) * p.stride[-1] + (p.filter[-1] - 1) * p.dilation[-1] + 1, tile.tw * p.filter[-1])
    registers = _OTHER_REGISTERS + tile.v * (tile.row_taps * p.filter[-1] + window + tile.tw)
    stalls = 1.0 if shape.columns_contiguous else _STALL_FACTOR
    return stalls * _instructions(shape, tile) / rate * max(1.0, registers * 32 * _SATURATING_WARPS / 65536)


def _splits(shape: _Shape, tile: _Tile, device: DeviceSpec) -> int:
    """Splits: CTAs that divide the work items of the same channels and taps."""
    p = shape.problem
    ctas_per_split = -(-p.groups // (tile.channel_threads * tile.v)) * -(-_tap_rows(p) // tile.row_taps)
    return max(1, min(-(-_items(p, tile.tw) // tile.thread_slots), _CTAS_PER_SM * device.sm_count // ctas_per_split))


def _constants(anchor: ConvBackwardFilter, shape: _Shape, tile: _Tile) -> dict[str, int | bool | str]:
    """The compile-time constants of direct_depthwise_wgrad.cu."""
    p, (x, _, dy) = anchor.problem, anchor.roles
    return {
        "COLUMNS_CONTIGUOUS": shape.columns_contiguous, "FLIP": p.flip,
        "S": p.filter[-1], "STRIDE": p.stride[-1], "DILATION": p.dilation[-1], "PAD": p.pre_padding[-1],
        "V": tile.v, "TW": tile.tw, "COLUMN_VEC": tile.column_vec, "DY_COLUMN_VEC": tile.dy_column_vec,
        "ROW_TAPS": tile.row_taps,
        "CHANNEL_THREADS": tile.channel_threads, "THREAD_SLOTS": tile.thread_slots,
        "THREADS": tile.threads, "REDUCE_WARPS": REDUCE_WARPS, "WHOLE_COLUMNS": p.output[-1] % tile.tw == 0,
        "Offset": "int" if max(x.span, dy.span) < 2**31 else "long long",
        "ImageElement": STORAGE[x.data_type],
        "DyElement": STORAGE[dy.data_type],
    }  # fmt: skip


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    """The launches of direct_depthwise_wgrad.cu: partial sums, and their sum."""
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    roles, shape, p = Roles.of(anchor), _shape(anchor), anchor.problem
    x, _, dy = anchor.roles
    tile = _choose(shape, knobs[_COLUMNS.type])
    splits = _splits(shape, tile, device)
    steps = LaunchSequence(op, device)
    compute = COMPUTE_TYPE[anchor.compute_type]
    parameters = Parameters(steps.workspace_offsets)
    body = Program(op, parameters, roles.space(roles.output), "t")
    steps.write_epilogue(body, "acc", compute)

    channel_blocks = -(-p.groups // (tile.channel_threads * tile.v))
    padded_channels = channel_blocks * tile.channel_threads * tile.v
    in_d, in_h, in_w = padded(p.input, 1)
    out_d, out_h, out_w = padded(p.output, 1)
    _, rows, _ = padded(p.filter, 1)
    pad, stride, dilation = padded(p.pre_padding, 0), padded(p.stride, 1), padded(p.dilation, 1)
    parameters.tensor("image", x)
    parameters.tensor("dy", dy)
    parameters.table({
        **volume_fields("image", _strides(roles, x)), **volume_fields("dy", _strides(roles, dy)),
        "in_d": in_d, "in_h": in_h, "in_w": in_w, "out_d": out_d, "out_h": out_h, "out_w": out_w,
        "channels": p.groups, "filter_rows": rows, "row_taps": _tap_rows(p), "taps": p.taps,
        "stride_d": stride[0], "stride_h": stride[1], "dilation_d": dilation[0], "dilation_h": dilation[1],
        "pad_d": pad[0], "pad_h": pad[1], "tiles": -(-out_w // tile.tw), "items": _items(p, tile.tw), "splits": splits,
        "padded_channels": padded_channels,
    })  # fmt: skip
    parameters.workspace_pointer("partial", compute, steps.allocate(splits * p.taps * padded_channels * 4))

    name = f"conv_wgrad__depthwise_v{tile.v}w{tile.tw}r{tile.row_taps}c{tile.channel_threads * tile.v}__{op.name}"
    text = kernel_text(
        name,
        ["direct_depthwise_wgrad.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const {compute} (&acc)[1]")],
        constants={**_constants(anchor, shape, tile), "Accum": compute},
    )
    packed = parameters.pack()
    groups = -(-_tap_rows(p) // tile.row_taps)
    steps.add_early(Launch(text, "direct_depthwise_wgrad", (channel_blocks, groups, splits), tile.threads, packed))
    steps.add_early(Launch(text, "direct_depthwise_sum", (-(-p.groups // 32), p.taps, 1), 32 * REDUCE_WARPS, packed))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    op = convolution_of(task)
    assert isinstance(op, ConvBackwardFilter)
    shape = _shape(op)
    tile = _choose(shape, knobs[_COLUMNS.type])
    seconds = _seconds(shape, tile, task.device.rate(DataType.FLOAT) / 2 * _PEAK_FRACTION)
    return device_cost(task, seconds, _REREAD * bytes_moved(task.op), 2)


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    op = convolution_of(task)
    assert isinstance(op, ConvBackwardFilter)
    return {_COLUMNS.type: _choose(_shape(op), knobs[_COLUMNS.type]).tw}


ENGINE = cuda_engine(
    id=85,
    name="cuda_depthwise_wgrad",
    summary="filter gradient of depthwise convolutions: any dilation, stride, number of axes, either layout",
    needs=(
        *depthwise_needs("cuda_depthwise_wgrad", filter_gradient=True),
        need(
            "cuda_depthwise_wgrad.taps",
            "w.dims",
            lambda task: problem_of(task).filter[-1],
            AtMost(_MAX_TAPS),
            reason="a thread keeps the accumulators of a row of taps in registers",
            fix="nothing to do: another engine serves longer filters",
            when=is_filter_gradient,
        ),
    ),
    cost=_cost,
    generate=generate,
    knobs=(_COLUMNS,),
    effective=_effective,
)
