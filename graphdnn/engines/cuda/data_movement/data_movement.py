"""Engine ``cuda_data_movement``: concat, slice, transpose and reshape as copies of bits.

Pieces whose sides have common axes are copied or transposed by the kernels of copy_launches.py. movement_general
computes the address of each element by itself. It serves layouts without common axes, parts of bytes, and scalars
passed by value.
"""

from __future__ import annotations

from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.data_movement.bit_copies import BLOCKS_PER_SM, THREADS, Copy, launches_of
from graphdnn.engines.cuda.data_movement.copy_launches import WORD, add_tensors, copy_or_transpose, transposed_bits
from graphdnn.engines.engine import needs_rule
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.fusion.views import view_of
from graphdnn.operations.copy_blocks import Axis, Block, Piece, Run, Side, block_of, merged, pieces_of

_BITS = 8


def generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert anchor is not None
    if view_of(op) is not None:  # y lies in x's memory
        return DeviceKernel(f"movement__{op.name}", ())
    moves = [move for piece in pieces_of(anchor) for move in _moves(piece, anchor.tag, device)]
    copies = launches_of((move for move in moves if isinstance(move, Copy)), anchor.tag, device)
    others = [move for move in moves if isinstance(move, Launch)]
    return DeviceKernel(f"movement__{op.name}", (*copies, *others))


def _moves(piece: Piece, tag: str, device: DeviceSpec) -> list[Launch | Copy]:
    x, y = piece.x.tensor, piece.y.tensor
    block = None if x.is_by_value or x.is_constant else block_of(piece)
    size = ELEMENTS[y.data_type].bytes
    if y.data_type is not DataType.BOOLEAN:
        return [_general(piece, tag, device) if block is None else copy_or_transpose(x, y, block, size, tag, device)]
    if block is None:
        return [_general(piece, tag, device)]
    block_of_bytes, rest = _whole_bytes(block)
    if block_of_bytes is None:
        return [transposed_bits(x, y, block, tag, device) or _general(piece, tag, device)]
    found: list[Launch | Copy] = [copy_or_transpose(x, y, block_of_bytes, 1, tag, device)]
    if rest:  # bits of one long row
        end = block.axes[0].size - rest
        x_end, y_end = Run(rest, block.x_start + end, 1, 1), Run(rest, block.y_start + end, 1, 1)
        found.append(_general(Piece(Side(x, (x_end,)), Side(y, (y_end,))), tag, device))
    return found


def _whole_bytes(block: Block) -> tuple[Block | None, int]:
    """The block of whole bytes of packed booleans, and the number of remaining bits. The block is None where the two
    sides begin at different bits of a byte.
    """
    *outer, inner = block.axes
    starts_whole = block.x_start % _BITS == block.y_start % _BITS == 0
    if not starts_whole or inner.x != 1 or inner.y != 1 or any(a.x % _BITS or a.y % _BITS for a in outer):
        return None, 0
    if inner.size < _BITS or (outer and inner.size % _BITS):
        return None, 0
    axes = [*(Axis(a.size, a.x // _BITS, a.y // _BITS) for a in outer), Axis(inner.size // _BITS, 1, 1)]
    return Block(merged(axes), block.x_start // _BITS, block.y_start // _BITS), inner.size % _BITS


def _general(piece: Piece, tag: str, device: DeviceSpec) -> Launch:
    x, y = piece.x.tensor, piece.y.tensor
    size = ELEMENTS[y.data_type].bytes
    is_bits = y.data_type is DataType.BOOLEAN
    parameters = Parameters()
    add_tensors(parameters, x, y)
    _add_side(parameters, "x", piece.x)
    _add_side(parameters, "y", piece.y)
    count = prod(run.size for run in piece.y.runs)
    parameters.integer("count", count)
    if x.is_by_value or x.is_constant:
        loaded = "from_bits<Item>(p.x)"
    else:
        loaded = "load_bit(p.x, at).bits" if is_bits else "((const Item*)p.x)[at]"
    stored = "store_bit(p.y, at, bool_t{item})" if is_bits else "((Item*)p.y)[at] = item"
    text = kernel_text(
        f"movement__general_b{size}__{tag}",
        ["movement_general.cu"],
        parameters=parameters.text,
        functions=[
            f"__device__ __forceinline__ Item load_item(const Params& p, long long at) {{ return {loaded}; }}\n",
            f"__device__ __forceinline__ void store_item(const Params& p, long long at, Item item) {{ {stored}; }}\n",
        ],
        constants={"THREADS": THREADS, "Item": WORD[size]},
    )
    blocks = min(-(-count // THREADS), BLOCKS_PER_SM * device.sm_count)
    return Launch(text, "movement_general", (blocks, 1, 1), THREADS, parameters.pack())


def _add_side(parameters: Parameters, name: str, side: Side) -> None:
    for field in ("size", "start", "step", "stride", "vector"):
        parameters.integers(f"{name}_{field}", [getattr(run, field) for run in side.runs])


ENGINE = cuda_engine(
    id=40,
    name="cuda_data_movement",
    summary="concat, slice, transpose, reshape: wide copies, tiles in shared memory where the order of axes changes",
    needs=(needs_rule("cuda_data_movement.operation", "movement"),),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate(op, device),
    is_general=True,
)
