"""Narrow groups on tensor cores: 16-bit floats, fprop and dgrad of unit stride, block-diagonal filters.

The kernel (text/direct_diagonal.cu) takes half the issue slots of the one with ordinary multiply-adds for 3 x 3
filters and a fifth for 7 x 7: seven of eight products of the tensor cores are with zeros, and still they are cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.direct_tile import Shape, Wishes, padded_bytes
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec

TILE = 4  # output columns of a tile


@dataclass(frozen=True, slots=True)
class Walk:
    """A division: ``warps`` of ``2 * pairs`` channels, ``across`` tiles of columns, ``lines`` steps at a time."""

    warps: int
    across: int
    lines: int
    rows: int  # steps of a block that let rows leave
    stages: int
    blocks: int  # of a multiprocessor, which registers are limited for
    pairs: int = 4

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def channels(self) -> int:
        return 2 * self.pairs * self.warps


def chunks(shape: Shape) -> int:
    """Gathered columns of a tile, by four."""
    return -(-shape.wide(TILE) // TILE)


def walk_weights(shape: Shape, pairs: int) -> int:
    """Registers of a lane for filters."""
    return shape.problem.filter[0] * pairs * max(1, shape.group_in // 2) * chunks(shape)


def walk_registers(shape: Shape, pairs: int) -> int:
    return walk_weights(shape, pairs) + 4 * pairs * (shape.window + chunks(shape)) + 50


def serves_walk(shape: Shape, gathered: TensorSpec, filter: TensorSpec, compute: str) -> bool:
    p = shape.problem
    return (
        not shape.is_wgrad
        and gathered.data_type in (DataType.HALF, DataType.BFLOAT16)
        and filter.data_type is gathered.data_type
        and compute == "float"
        and shape.group_in == shape.group_out
        and 8 % shape.group_in == 0
        and shape.in_piece == 16
        and (not shape.is_dgrad or TILE % p.stride[1] == 0)
        and any(walk_registers(shape, pairs) <= 250 for pairs in (2, 4) if 2 * pairs % shape.group_in == 0)
    )


def walk_shared(shape: Shape, walk: Walk) -> int:
    """Shared memory of a block; the kernel's own constants, once more."""
    wide = (walk.across - 1) * shape.step_w(TILE) + chunks(shape) * TILE
    pixel = walk.channels + (0 if walk.channels // 8 % 2 else 8)
    ring = padded_bytes(walk.stages * walk.lines * shape.in_rows * wide * pixel * 2)
    pieces = walk.channels * shape.out_bytes // 16
    place = walk.channels + (0 if pieces % 2 else 16 // shape.out_bytes)
    hall = walk.lines * shape.out_rows * walk.across * TILE * place * shape.out_bytes
    over = 16 * shape.step_w(TILE) * pixel * 2  # tiles that are not there are read too
    return max(ring + padded_bytes(walk.channels * shape.group_in * shape.problem.taps * 2) + 2 * hall, ring + over)


def choose_walk(shape: Shape, device: DeviceSpec, wishes: Wishes) -> Walk | None:
    p = shape.problem
    parts = -(-shape.columns // (16 * TILE))
    across = -(-shape.columns // (parts * TILE))
    legal = [pairs for pairs in (4, 2) if 2 * pairs % shape.group_in == 0 and walk_registers(shape, pairs) <= 250]
    pairs = wishes.tw if wishes.tw in legal else next((n for n in legal if walk_registers(shape, n) <= 168), legal[-1])
    total = -(-shape.channels_out // 8)  # by eight
    eights = 2 * pairs / 8
    if wishes.lanes:
        warps = max(1, wishes.lanes)
    else:
        most = 18 if p.taps <= 9 else 12
        warps = next(w for w in range(most, 0, -1) if w * eights % 1 == 0 and total % (w * eights) == 0)
    if warps * eights % 1:
        warps += 1
    lines = wishes.v or 1
    for stages in range(wishes.stages, 1, -1):
        walk = Walk(warps, across, lines, 1, stages, 1, pairs)
        if walk_shared(shape, walk) <= device.shared_memory - 1024:
            break
    else:
        return None
    by_registers = 65536 // (min(255, -(-walk_registers(shape, pairs) // 8) * 8) * walk.threads)
    by_memory = device.shared_memory // (walk_shared(shape, walk) + 1024)
    resident = wishes.blocks or max(1, min(by_registers, by_memory, 64 // warps, 16))
    height = shape.rows
    rows = min(wishes.rows, height) or height
    if not wishes.rows:
        strips = p.n * -(-shape.channels_out // walk.channels) * parts

        def seconds(rows: int) -> float:
            blocks = strips * -(-height // rows)
            return -(-blocks // device.sm_count) * (rows + shape.extra + 4)

        rows = min(sorted({-(-height // n) for n in (1, 2, 3, 4, 6, 8)}, reverse=True), key=seconds)
    return Walk(warps, across, lines, rows, stages, resident, pairs)


DEPTH = 16  # columns of a product of the filter gradient
_SUMS = 130  # registers of a lane


def _shifts(shape: Shape) -> int:
    """Places of x that a row's products begin at: each serves two taps."""
    s, stride = shape.problem.filter[1], shape.problem.stride[1]
    return s // (2 * stride) * stride + min(s % (2 * stride), stride)


def serves_wgrad(shape: Shape, x: TensorSpec, dy: TensorSpec, compute: str) -> bool:
    return (
        x.data_type in (DataType.HALF, DataType.BFLOAT16)
        and dy.data_type is x.data_type
        and compute == "float"
        and shape.group_in == shape.group_out
        and 8 % shape.group_in == 0
        and shape.in_piece == shape.out_piece == 16
        and 4 * shape.problem.filter[0] * _shifts(shape) <= _SUMS
    )


def wgrad_registers(shape: Shape) -> int:
    shifts = _shifts(shape)
    return 4 * shape.problem.filter[0] * shifts + 4 * shape.window + 4 * -(-shifts // 2) + 50


def wgrad_shared(shape: Shape, walk: Walk) -> int:
    """Shared memory of a block; the kernel's own constants, once more."""
    p, channels = shape.problem, 8 * walk.warps
    pixel = channels + (0 if walk.warps % 2 else 8)
    columns = (DEPTH * walk.across - 1) * p.stride[1] + p.filter[1]
    images = padded_bytes(walk.stages * walk.lines * p.stride[0] * columns * pixel * 2)
    gradients = padded_bytes(walk.stages * walk.lines * (DEPTH * walk.across + 1) * pixel * 2)
    return max(images + gradients, walk.across * p.filter[1] * shape.group_in * channels * 4)


def choose_wgrad(shape: Shape, device: DeviceSpec, wishes: Wishes) -> Walk | None:
    p = shape.problem
    total = -(-shape.channels_out // 8)
    across = min(-(-(shape.columns + 1) // DEPTH), 4)
    warps = min(total, max(1, wishes.lanes)) if wishes.lanes else 3 if total % 3 == 0 else min(total, 4)
    if wishes.threads:
        across = max(1, min(across, wishes.threads // (32 * warps)))
    for stages in range(wishes.stages, 1, -1):
        walk = Walk(warps, across, wishes.v or 2, 1, stages, 1, 0)
        if wgrad_shared(shape, walk) <= device.shared_memory - 1024:
            break
    else:
        return None
    by_registers = 65536 // (min(255, -(-wgrad_registers(shape) // 8) * 8) * 32 * warps * across)
    by_memory = device.shared_memory // (wgrad_shared(shape, walk) + 1024)
    resident = wishes.blocks or max(1, min(by_registers, by_memory, 64 // (warps * across), 16))
    height = shape.rows
    rows = min(wishes.rows, height) or height
    if not wishes.rows:
        blocks = -(-total // warps)

        def seconds(rows: int) -> float:
            items = p.n * -(-(shape.columns + 1) // (DEPTH * across)) * -(-height // rows)
            parts = max(1, min(items, device.sm_count * resident // blocks))
            return -(-items // parts) * (rows + shape.extra)

        rows = min(sorted({-(-height // parts) for parts in (1, 2, 3, 4, 6, 8)}, reverse=True), key=seconds)
    return Walk(warps, across, walk.lines, rows, stages, resident, 0)
