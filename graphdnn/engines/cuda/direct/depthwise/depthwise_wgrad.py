"""Engine ``cuda_depthwise_wgrad``: the filter gradient with one channel per group that ``cuda_direct_wgrad`` declines.

It takes any dilation and stride, one to three spatial axes, channels last or first, and long filters. It is
deterministic.
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
from graphdnn.engines.cuda.direct.depthwise.depthwise_tile import whole
from graphdnn.engines.cuda.direct.direct_fields import volume_fields
from graphdnn.engines.cuda.direct.sliding_mma.sliding_mma_wgrad import SLICES
from graphdnn.engines.engine import Cost, Knob, Knobs, Task, need
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.enums import DataType, KnobType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardFilter
from graphdnn.operations.conv_problem import ConvProblem
from graphdnn.tensors import TensorSpec

_THREADS, _THREADS_OF_ONE = 256, 128  # threads of a CTA, and of a CTA with one channel
_SHARED = 48 * 1024  # bytes of shared memory in which the threads of a CTA add the sums of a row of taps
_SUMS = 72  # the most accumulators of a thread
_WINDOW = 48  # the most elements of a row of x in a thread's registers, where it has several columns
_LONGEST = 64  # taps along columns
_PIECE = 8  # bytes of a vector of channels
_RESIDENT = 4  # CTAs of an SM
_SHARE = 0.3  # the part of the peak rate of multiply-adds that such a kernel reaches
_WAITING = 1.8  # factor of time where channels are contiguous: rows are loaded one after the other
_WARPS, _AROUND = 16, 40  # warps that keep an SM busy; registers beside accumulators and operands
_ACCESS, _ITEM = 6.0, 60.0  # times of a load and of a work item, in instructions
_AGAIN = 0.3  # the part of the memory traffic that several SMs read
_COLUMNS = Knob(KnobType.TILE_COLS, 0, 16, 1, 0, "columns of dy of a thread; 0: chosen by the shape")


@dataclass(frozen=True, slots=True)
class _Shape:
    problem: ConvProblem
    along_columns: bool
    widest: int  # elements of the widest load of x
    widest_dy: int


@dataclass(frozen=True, slots=True)
class _Tile:
    v: int  # channels of a thread, and columns of dy
    tw: int
    vec: int  # columns of a load of x, and of dy
    out_vec: int
    lanes: int  # threads of a CTA along the channels
    row_taps: int  # rows of taps of a CTA

    @property
    def places(self) -> int:
        return max(1, (_THREADS if self.v * self.lanes > 1 else _THREADS_OF_ONE) // self.lanes)

    @property
    def threads(self) -> int:
        return -(-self.lanes * self.places // 32) * 32


def _shape(op: ConvBackwardFilter) -> _Shape:
    roles = Roles.of(op)
    x, _, dy = op.roles
    spaces = roles.space(x), roles.space(dy)
    along = [_strides(roles, t)[CHANNEL] != 1 and _strides(roles, t)[COLUMN] == 1 for t in (x, dy)]
    along_columns = all(along)
    axis, limit = (COLUMN, 16) if along_columns else (CHANNEL, _PIECE)
    return _Shape(
        op.problem, along_columns, *(width_for(s, [t], axis, limit) for s, t in zip(spaces, (x, dy), strict=True))
    )


def _strides(roles: Roles, spec: TensorSpec) -> tuple[int, ...]:
    return roles.space(spec).strides(spec)


def _lines(p: ConvProblem) -> int:
    """The number of rows of taps."""
    return p.taps // p.filter[-1]


@lru_cache(maxsize=256)
def _choose(shape: _Shape, wish: int) -> _Tile:
    p = shape.problem
    s, columns = p.filter[-1], p.output[-1]
    found: list[tuple[float, _Tile]] = []
    for v in (1,) if shape.along_columns else (1, 2, 4):
        if v > min(shape.widest, shape.widest_dy) or (v > 1 and v * s > _SUMS):
            continue
        lanes = 1 if shape.along_columns else whole(-(-p.groups // v), 32)
        row_taps = whole(_lines(p), max(1, _SUMS // (s * v)))
        for tw in (wish,) if wish else (1, 2, 4, 7, 8, 14, 16):
            reach = (tw - 1) * p.stride[-1] + (s - 1) * p.dilation[-1] + 1
            window = min(reach, tw * s)
            if tw > max(1, columns) or (tw > 1 and v * window > _WINDOW):
                continue
            vec = gcd(shape.widest, tw * p.stride[-1]) if shape.along_columns else 1
            out_vec = gcd(shape.widest_dy, tw) if shape.along_columns else 1
            tile = _Tile(v, tw, vec, out_vec, lanes, row_taps)
            if tile.places * s * tile.lanes * v * 4 <= _SHARED or shape.along_columns:
                found.append((_seconds(shape, tile, 1.0), tile))
    if wish and not found:  # a wish that no tile can meet is dropped
        return _choose(shape, 0)
    return min(found, key=lambda pair: pair[0])[1]


def _items(p: ConvProblem, tw: int) -> int:
    return p.n * -(-p.output[-1] // tw) * (p.macs // (p.n * p.groups * p.taps * p.output[-1]))


def _instructions(shape: _Shape, tile: _Tile) -> float:
    p = shape.problem
    window = min((tile.tw - 1) * p.stride[-1] + (p.filter[-1] - 1) * p.dilation[-1] + 1, tile.tw * p.filter[-1])
    groups = -(-_lines(p) // tile.row_taps)
    row = tile.tw * p.filter[-1] * tile.v + window * (_ACCESS / tile.vec + tile.v)
    each = tile.row_taps * row + tile.tw * (_ACCESS / tile.out_vec + tile.v) + _ITEM
    channels = -(-p.groups // (tile.lanes * tile.v)) * tile.lanes
    return float(channels * groups * _items(p, tile.tw) * each)


def _seconds(shape: _Shape, tile: _Tile, rate: float) -> float:
    """Predicted seconds at ``rate`` thread instructions per second; low occupancy lengthens them."""
    p = shape.problem
    window = min((tile.tw - 1) * p.stride[-1] + (p.filter[-1] - 1) * p.dilation[-1] + 1, tile.tw * p.filter[-1])
    registers = _AROUND + tile.v * (tile.row_taps * p.filter[-1] + window + tile.tw)
    waiting = 1.0 if shape.along_columns else _WAITING
    return waiting * _instructions(shape, tile) / rate * max(1.0, registers * 32 * _WARPS / 65536)


def _parts(shape: _Shape, tile: _Tile, device: DeviceSpec) -> int:
    """Splits: CTAs that share the work items of the same channels and taps."""
    p = shape.problem
    beside = -(-p.groups // (tile.lanes * tile.v)) * -(-_lines(p) // tile.row_taps)
    return max(1, min(-(-_items(p, tile.tw) // tile.places), _RESIDENT * device.sm_count // beside))


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, ConvBackwardFilter)
    roles, shape, p = Roles.of(anchor), _shape(anchor), anchor.problem
    x, _, dy = anchor.roles
    tile = _choose(shape, knobs[_COLUMNS.type])
    parts = _parts(shape, tile, device)
    steps = LaunchSequence(op, device)
    compute = COMPUTE_TYPE[anchor.compute_type]
    parameters = Parameters(steps.workspace_offsets)
    body = Program(op, parameters, roles.space(roles.output), "t")
    steps.finish(body, "acc", compute)

    channel_blocks = -(-p.groups // (tile.lanes * tile.v))
    in_d, in_h, in_w = padded(p.input, 1)
    out_d, out_h, out_w = padded(p.output, 1)
    _, rows, s = padded(p.filter, 1)
    pad, stride, dilation = padded(p.pre_padding, 0), padded(p.stride, 1), padded(p.dilation, 1)
    parameters.tensor("image", x)
    parameters.tensor("dy", dy)
    parameters.table({
        **volume_fields("image", _strides(roles, x)), **volume_fields("dy", _strides(roles, dy)),
        "in_d": in_d, "in_h": in_h, "in_w": in_w, "out_d": out_d, "out_h": out_h, "out_w": out_w,
        "channels": p.groups, "filter_rows": rows, "row_taps": _lines(p), "taps": p.taps,
        "stride_d": stride[0], "stride_h": stride[1], "dilation_d": dilation[0], "dilation_h": dilation[1],
        "pad_d": pad[0], "pad_h": pad[1], "tiles": -(-out_w // tile.tw), "items": _items(p, tile.tw), "splits": parts,
        "padded_channels": channel_blocks * tile.lanes * tile.v,
    })  # fmt: skip
    parameters.scratch("partial", compute, steps.allocate(parts * p.taps * channel_blocks * tile.lanes * tile.v * 4))

    name = f"conv_wgrad__depthwise_v{tile.v}w{tile.tw}r{tile.row_taps}c{tile.lanes * tile.v}__{op.name}"
    text = kernel_text(
        name,
        ["direct_depthwise_wgrad.cu"],
        parameters=parameters.text,
        functions=[body.function("epilogue", f"const {compute} (&acc)[1]")],
        constants={
            "COLUMNS_CONTIGUOUS": shape.along_columns, "FLIP": p.flip,
            "S": s, "STRIDE": stride[2], "DILATION": dilation[2], "PAD": pad[2],
            "V": tile.v, "TW": tile.tw, "COLUMN_VEC": tile.vec, "DY_COLUMN_VEC": tile.out_vec,
            "ROW_TAPS": tile.row_taps,
            "CHANNEL_THREADS": tile.lanes, "THREAD_SLOTS": tile.places,
            "THREADS": tile.threads, "REDUCE_WARPS": SLICES, "WHOLE_COLUMNS": out_w % tile.tw == 0,
            "Offset": "int" if max(x.span, dy.span) < 2**31 else "long long",
            "ImageElement": STORAGE[x.data_type],
            "DyElement": STORAGE[dy.data_type],
            "Accum": compute,
        },
    )  # fmt: skip
    packed = parameters.pack()
    groups = -(-_lines(p) // tile.row_taps)
    steps.add_early(Launch(text, "direct_depthwise_wgrad", (channel_blocks, groups, parts), tile.threads, packed))
    steps.add_early(Launch(text, "direct_depthwise_sum", (-(-p.groups // 32), p.taps, 1), 32 * SLICES, packed))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    op = convolution_of(task)
    assert isinstance(op, ConvBackwardFilter)
    shape = _shape(op)
    tile = _choose(shape, knobs[_COLUMNS.type])
    seconds = _seconds(shape, tile, task.device.rate(DataType.FLOAT) / 2 * _SHARE)
    return device_cost(task, seconds, _AGAIN * bytes_moved(task.op), 2)


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
            AtMost(_LONGEST),
            reason="a thread keeps the sums of a row of taps in registers",
            fix="nothing to do: another engine serves longer filters",
            when=is_filter_gradient,
        ),
    ),
    cost=_cost,
    generate=generate,
    knobs=(_COLUMNS,),
    effective=_effective,
)
