"""Engine ``cuda_movement``: concat, slice, transpose and reshape as copies of bits.

Three kernels: ``copy`` follows y with the widest accesses that both sides allow, ``tile`` turns tiles in
shared memory where x and y run along different axes, ``general`` finds each element by itself
(layouts that have no common axes, single bits, scalars passed by value).
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.generator.cost import memory_cost
from graphdnn.engines.cuda.generator.engine import cuda_engine
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.parameters import Parameters
from graphdnn.engines.cuda.generator.quotient import magic
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.engine import needs_rule
from graphdnn.enums import DataType
from graphdnn.fusion.fused import FusedOp
from graphdnn.fusion.pieces import Axis, Block, Piece, Run, Side, block_of, merged, pieces_of
from graphdnn.fusion.views import view_of
from graphdnn.tensors import TensorSpec

_ITEM = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "uint2", 16: "uint4"}  # by bytes
_WORD = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
_WIDEST = 16  # bytes of an access
_COPY_THREADS, _TILE_THREADS = 256, 128
_BLOCKS_PER_SM = 16
_UNROLL = {1: 8, 2: 8, 4: 4, 8: 4, 16: 2}  # accesses of a thread under way, by bytes
_TILE = {1: 128, 2: 64, 4: 32, 8: 32}  # elements, by bytes
_LEAST_TILE = 32  # bytes; axes that are shorter leave most of a tile empty
_BITS = 8


def generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert anchor is not None
    if view_of(op) is not None:  # plans put y where x is: a copy would write into the caller's own array
        return DeviceKernel(f"movement__{op.name}", ())
    launches = [launch for piece in pieces_of(anchor) for launch in _launches(piece, anchor.tag, device)]
    return DeviceKernel(f"movement__{op.name}", tuple(launches))


def _launches(piece: Piece, tag: str, device: DeviceSpec) -> list[Launch]:
    x, y = piece.x.tensor, piece.y.tensor
    block = None if x.is_by_value or x.is_constant else block_of(piece)
    size = ELEMENTS[y.data_type].bytes
    if y.data_type is not DataType.BOOLEAN:
        return [_general(piece, tag, device) if block is None else _moved(x, y, block, size, tag, device)]
    if block is None:
        return [_general(piece, tag, device)]
    block_of_bytes, rest = _whole_bytes(block)
    if block_of_bytes is None:
        return [_general(piece, tag, device)]
    found = [_moved(x, y, block_of_bytes, 1, tag, device)]
    if rest:  # bits of one long row
        end = block.axes[0].size - rest
        x_end, y_end = Run(rest, block.x_start + end, 1, 1), Run(rest, block.y_start + end, 1, 1)
        found.append(_general(Piece(Side(x, (x_end,)), Side(y, (y_end,))), tag, device))
    return found


def _whole_bytes(block: Block) -> tuple[Block | None, int]:
    """Packed booleans as bytes, and how many bits are left over. None where the sides cut bytes differently."""
    *outer, inner = block.axes
    starts_whole = block.x_start % _BITS == block.y_start % _BITS == 0
    if not starts_whole or inner.x != 1 or inner.y != 1 or any(a.x % _BITS or a.y % _BITS for a in outer):
        return None, 0
    if inner.size < _BITS or (outer and inner.size % _BITS):
        return None, 0
    axes = [*(Axis(a.size, a.x // _BITS, a.y // _BITS) for a in outer), Axis(inner.size // _BITS, 1, 1)]
    return Block(merged(axes), block.x_start // _BITS, block.y_start // _BITS), inner.size % _BITS


def _moved(x: TensorSpec, y: TensorSpec, block: Block, size: int, tag: str, device: DeviceSpec) -> Launch:
    closest_in_x = min(block.axes, key=lambda a: a.x)
    closest_in_y = block.axes[-1]
    if closest_in_x is closest_in_y:
        pack = min(_pack_of(block, -1, x, size, "x"), _pack_of(block, -1, y, size, "y"))
        return _copy(x, y, _in_packs(block, pack), pack * size, tag, device)
    if min(closest_in_x.size, closest_in_y.size) * size < _LEAST_TILE:
        return _copy(x, y, block, size, tag, device)
    return _tile(x, y, block, size, tag)


def _pack_of(block: Block, axis: int, spec: TensorSpec, size: int, side: str) -> int:
    along = block.axes[axis]
    if getattr(along, side) != 1:
        return 1
    start = block.x_start if side == "x" else block.y_start
    others = (getattr(a, side) for a in block.axes if a is not along)
    common = gcd(along.size, start, *others)
    pack = _WIDEST // size
    while pack > 1 and (common % pack or spec.byte_alignment % (pack * size)):
        pack //= 2
    return pack


def _in_packs(block: Block, pack: int) -> Block:
    """The block in units of ``pack`` elements of the last axis."""
    *outer, inner = block.axes
    axes = [Axis(a.size, a.x // pack, a.y // pack) for a in outer]
    last = inner if pack == 1 else replace(inner, size=inner.size // pack)
    return Block(merged([*axes, last]), block.x_start // pack, block.y_start // pack)


def _add_tensors(parameters: Parameters, x: TensorSpec, y: TensorSpec) -> None:
    parameters.tensor("x", x)
    parameters.tensor("y", y, is_output=True)


def _add_axes(parameters: Parameters, axes: tuple[Axis, ...] | list[Axis]) -> None:
    parameters.integers("size", [a.size for a in axes])
    parameters.integers("magic", [magic(a.size) for a in axes])
    parameters.integers("x_stride", [a.x for a in axes])
    parameters.integers("y_stride", [a.y for a in axes])


def _copy(x: TensorSpec, y: TensorSpec, block: Block, size: int, tag: str, device: DeviceSpec) -> Launch:
    count = prod(a.size for a in block.axes)
    unroll = _UNROLL[size]
    if count < 2 * device.sm_count * _COPY_THREADS * unroll:  # threads first, then work for each
        unroll = 1
    parameters = Parameters()
    _add_tensors(parameters, x, y)
    parameters.integer("x_start", block.x_start)
    parameters.integer("y_start", block.y_start)
    parameters.integer("count", count)
    _add_axes(parameters, block.axes)
    text = kernel_text(
        f"movement__copy_b{size}r{len(block.axes)}u{unroll}__{tag}",
        ["quotient.cuh", "movement_copy.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            "THREADS": _COPY_THREADS,
            "UNROLL": unroll,
            "RANK": len(block.axes),
            "Item": _ITEM[size],
            "Count": "unsigned int" if count < 2**31 else "unsigned long long",
        },
    )
    blocks = min(-(-count // (_COPY_THREADS * unroll)), _BLOCKS_PER_SM * device.sm_count)
    return Launch(text, "movement_copy", (blocks, 1, 1), _COPY_THREADS, parameters.pack())


def _tile(x: TensorSpec, y: TensorSpec, block: Block, size: int, tag: str) -> Launch:
    along_x = min(range(len(block.axes)), key=lambda j: block.axes[j].x)
    along_y = len(block.axes) - 1
    a, b = block.axes[along_x], block.axes[along_y]
    x_pack = _pack_of(block, along_x, x, size, "x")
    y_pack = _pack_of(block, along_y, y, size, "y")
    tile = _TILE[size]
    skew = max(1, 4 // size) if x_pack == y_pack == 1 else _WIDEST // size
    outer = [axis for j, axis in enumerate(block.axes) if j not in (along_x, along_y)] or [Axis(1, 0, 0)]
    tiles_a, tiles_b = -(-a.size // tile), -(-b.size // tile)
    blocks = tiles_a * tiles_b * prod(axis.size for axis in outer)

    parameters = Parameters()
    _add_tensors(parameters, x, y)
    fields = {
        "x_start": block.x_start, "y_start": block.y_start, "a_size": a.size, "b_size": b.size,
        "x_stride_a": a.x, "x_stride_b": b.x, "y_stride_a": a.y, "y_stride_b": b.y,
        "tiles_a": tiles_a, "tiles_b": tiles_b, "magic_a": magic(tiles_a), "magic_b": magic(tiles_b),
    }  # fmt: skip
    for name, value in fields.items():
        parameters.integer(name, value)
    _add_axes(parameters, outer)
    text = kernel_text(
        f"movement__tile_b{size}r{len(outer)}v{x_pack}v{y_pack}__{tag}",
        ["quotient.cuh", "movement_tile.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            "THREADS": _TILE_THREADS,
            "TILE": tile,
            "SKEW": skew,
            "X_PACK": x_pack,
            "Y_PACK": y_pack,
            "RANK": len(outer),
            "Item": _WORD[size],
            "Count": "unsigned int",
        },
    )
    return Launch(text, "movement_tile", (blocks, 1, 1), _TILE_THREADS, parameters.pack())


def _general(piece: Piece, tag: str, device: DeviceSpec) -> Launch:
    x, y = piece.x.tensor, piece.y.tensor
    size = ELEMENTS[y.data_type].bytes
    is_bits = y.data_type is DataType.BOOLEAN
    parameters = Parameters()
    _add_tensors(parameters, x, y)
    _add_side(parameters, "x", piece.x)
    _add_side(parameters, "y", piece.y)
    count = prod(run.size for run in piece.y.runs)
    parameters.integer("count", count)
    if x.is_by_value or x.is_constant:
        fetched = "from_bits<Item>(p.x)"
    else:
        fetched = "load_bit(p.x, at).bits" if is_bits else "((const Item*)p.x)[at]"
    put = "store_bit(p.y, at, bool_t{item})" if is_bits else "((Item*)p.y)[at] = item"
    text = kernel_text(
        f"movement__general_b{size}__{tag}",
        ["movement_general.cu"],
        parameters=parameters.text,
        functions=[
            f"__device__ __forceinline__ Item fetch(const Params& p, long long at) {{ return {fetched}; }}\n",
            f"__device__ __forceinline__ void put(const Params& p, long long at, Item item) {{ {put}; }}\n",
        ],
        constants={"THREADS": _COPY_THREADS, "Item": _WORD[size]},
    )
    blocks = min(-(-count // _COPY_THREADS), _BLOCKS_PER_SM * device.sm_count)
    return Launch(text, "movement_general", (blocks, 1, 1), _COPY_THREADS, parameters.pack())


def _add_side(parameters: Parameters, name: str, side: Side) -> None:
    for field in ("size", "start", "step", "stride", "vector"):
        parameters.integers(f"{name}_{field}", [getattr(run, field) for run in side.runs])


ENGINE = cuda_engine(
    id=40,
    name="cuda_movement",
    summary="concat, slice, transpose, reshape: wide copies, tiles in shared memory where the order of axes changes",
    needs=(needs_rule("cuda_movement.operation", "movement"),),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate(op, device),
    is_general=True,
)
