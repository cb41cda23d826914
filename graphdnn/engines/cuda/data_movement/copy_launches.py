"""The fast kernels of data movement: each moves a block of common axes of x and y by one launch.

| kernel | layouts that it serves                                                              |
|--------|-------------------------------------------------------------------------------------|
| copy   | one axis is contiguous in x and in y: no transpose (bit_copies.py)                  |
| tile   | different axes are contiguous in x and y: tiles are transposed in shared memory     |
| run    | as tile, where one contiguous axis is short: on that side a tile is one run         |
| odd    | as tile, where rows do not begin at multiples of 16 bytes                           |
| zip    | as run, where the short axis has 2 or 4 items: tiles are transposed in registers    |
| bits   | as tile, for packed booleans: tiles of 32 x 32 bits are transposed by warp shuffles |
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.fast_division import count_type, magic
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.data_movement.bit_copies import THREADS, Copy
from graphdnn.operations.copy_blocks import Axis, Block
from graphdnn.tensors import TensorSpec

WORD = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
_WIDEST = 16  # bytes of an access
_TILE = {1: 128, 2: 64, 4: 32, 8: 32}  # extent of a tile in items, by bytes of an item
_TILE_THREADS = 128
_LEAST_TILE = 32  # bytes; shorter axes would leave most of a tile empty
_BYTE, _BIT_TILE, _WORD_BYTES = 8, 32, 4  # bits of a byte; rows and columns of a tile of bits, and bytes of its rows
_ODD_BYTES = 4  # movement_odd serves rows whose widest aligned vector has at most so many bytes
_FLAT = 1.5  # a tile takes the whole of an axis that is at most so many times as long as the tile
_ZIP_EXTENTS = (2, 4)  # extents of the short axis that movement_zip interleaves in registers
_ZIP_BYTES = 64  # bytes of a thread in flight
_RUN_BYTES = 8192  # shared memory of a CTA, which are also its bytes in flight


def add_tensors(parameters: Parameters, x: TensorSpec, y: TensorSpec) -> None:
    parameters.tensor("x", x)
    parameters.tensor("y", y, is_output=True)


def copy_or_transpose(
    x: TensorSpec, y: TensorSpec, block: Block, size: int, tag: str, device: DeviceSpec
) -> Launch | Copy:
    """The launch that moves a block of items of ``size`` bytes, or a copy, which may share a launch with other copies
    to the same y.
    """
    contiguous_in_x = min(block.axes, key=lambda a: a.x)
    contiguous_in_y = block.axes[-1]
    if contiguous_in_x is contiguous_in_y:
        vec_width = min(_vec_width(block, -1, x, size, "x"), _vec_width(block, -1, y, size, "y"))
        return Copy.of(x, y, block, size, vec_width)
    run = _run(x, y, block, size, tag, device)
    if run is not None:
        return run
    if min(contiguous_in_x.size, contiguous_in_y.size) * size < _LEAST_TILE:
        return Copy.of(x, y, block, size, 1)
    return _odd(x, y, block, size, tag, device) or _tile(x, y, block, size, tag, device)


def _is_early(device: DeviceSpec) -> bool:
    """Whether a kernel may start while the launch before it finishes."""
    return device.compute_capability >= (9, 0)


def _vec_width(block: Block, axis: int, spec: TensorSpec, size: int, side: str) -> int:
    along = block.axes[axis]
    if getattr(along, side) != 1:
        return 1
    start = block.x_start if side == "x" else block.y_start
    others = (getattr(a, side) for a in block.axes if a is not along)
    common = gcd(along.size, start, *others)
    vec_width = _WIDEST // size
    while vec_width > 1 and (common % vec_width or spec.byte_alignment % (vec_width * size)):
        vec_width //= 2
    return vec_width


def _add_axes(parameters: Parameters, axes: Sequence[Axis]) -> None:
    parameters.integers("size", [a.size for a in axes])
    parameters.integers("magic", [magic(a.size) for a in axes])
    parameters.integers("x_stride", [a.x for a in axes])
    parameters.integers("y_stride", [a.y for a in axes])


def _tile(x: TensorSpec, y: TensorSpec, block: Block, size: int, tag: str, device: DeviceSpec) -> Launch:
    x_axis = min(range(len(block.axes)), key=lambda j: block.axes[j].x)
    y_axis = len(block.axes) - 1
    a, b = block.axes[x_axis], block.axes[y_axis]
    x_vec = _vec_width(block, x_axis, x, size, "x")
    y_vec = _vec_width(block, y_axis, y, size, "y")
    tile = _TILE[size]
    skew = max(1, 4 // size) if x_vec == y_vec == 1 else _WIDEST // size
    outer = [axis for j, axis in enumerate(block.axes) if j not in (x_axis, y_axis)] or [Axis(1, 0, 0)]
    tiles_a, tiles_b = -(-a.size // tile), -(-b.size // tile)
    blocks = tiles_a * tiles_b * prod(axis.size for axis in outer)

    parameters = Parameters()
    add_tensors(parameters, x, y)
    fields = {
        "x_start": block.x_start, "y_start": block.y_start, "a_size": a.size, "b_size": b.size,
        "x_stride_a": a.x, "x_stride_b": b.x, "y_stride_a": a.y, "y_stride_b": b.y,
        "tiles_a": tiles_a, "tiles_b": tiles_b, "magic_a": magic(tiles_a), "magic_b": magic(tiles_b),
    }  # fmt: skip
    parameters.table(fields)
    _add_axes(parameters, outer)
    text = kernel_text(
        f"movement__tile_b{size}r{len(outer)}v{x_vec}v{y_vec}__{tag}",
        ["movement_tile.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            "THREADS": _TILE_THREADS,
            "TILE": tile,
            "SKEW": skew,
            "X_VEC_WIDTH": x_vec,
            "Y_VEC_WIDTH": y_vec,
            "RANK": len(outer),
            "Item": WORD[size],
            "Count": "unsigned int",
        },
    )
    packed = parameters.pack()
    return Launch(text, "movement_tile", (blocks, 1, 1), _TILE_THREADS, packed, starts_early=_is_early(device))


def _odd(x: TensorSpec, y: TensorSpec, block: Block, size: int, tag: str, device: DeviceSpec) -> Launch | None:
    """A launch of movement_odd, or None where vectors of one side are aligned or the alignment of an address is
    unknown.
    """
    x_axis, y_axis = min(range(len(block.axes)), key=lambda j: block.axes[j].x), len(block.axes) - 1
    a, b = block.axes[x_axis], block.axes[y_axis]
    fitting = min(_vec_width(block, x_axis, x, size, "x"), _vec_width(block, y_axis, y, size, "y"))
    if fitting * size > _ODD_BYTES or a.x != 1 or b.y != 1 or x.byte_alignment % _WIDEST or y.byte_alignment % _WIDEST:
        return None
    vec_width, most = _WIDEST // size, _TILE[size]
    outer = [axis for j, axis in enumerate(block.axes) if j not in (x_axis, y_axis)] or [Axis(1, 0, 0)]
    longest = _FLAT * most
    is_flat_x, is_flat_y = a.size <= longest and b.x == a.size, b.size <= longest and a.y == b.size
    if size >= _WORD_BYTES and not (is_flat_x or is_flat_y):  # movement_tile is fast enough
        return None
    tile_a, tile_b = a.size if is_flat_x else most, b.size if is_flat_y else most
    if is_flat_x and not is_flat_y:
        tile_b = min(b.size, most * most // a.size)
    words_a, words_b = ((length + 2 * vec_width - 2) // vec_width for length in (tile_a, tile_b))
    tiles_a, tiles_b = -(-a.size // tile_a), -(-b.size // tile_b)
    items = (
        tile_a * tile_b + 2 * vec_width
        if is_flat_x
        else tile_b * (most + vec_width) + (tile_b // vec_width + 1) * vec_width + vec_width
    )
    parameters = Parameters()
    add_tensors(parameters, x, y)
    parameters.table({
        "x_start": block.x_start, "y_start": block.y_start, "a_size": a.size, "b_size": b.size,
        "x_items": x.bytes // size,
        "x_stride_a": a.x, "x_stride_b": b.x, "y_stride_a": a.y, "y_stride_b": b.y, "tile_a": tile_a, "tile_b": tile_b,
        "tiles_a": tiles_a, "tiles_b": tiles_b, "magic_a": magic(tiles_a), "magic_b": magic(tiles_b),
        "words_a": words_a, "words_b": words_b, "magic_words_a": magic(words_a), "magic_words_b": magic(words_b),
    })  # fmt: skip
    _add_axes(parameters, outer)
    flat = ("x" if is_flat_x else "") + ("y" if is_flat_y else "")
    text = kernel_text(
        f"movement__odd_{flat}_b{size}r{len(outer)}__{tag}",
        ["movement_odd.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            "THREADS": _TILE_THREADS,
            "ROW_ITEMS": most,
            "VEC_WIDTH": vec_width,
            "RANK": len(outer),
            "FLAT_X": is_flat_x,
            "FLAT_Y": is_flat_y,
            "Item": WORD[size],
            "Count": "unsigned int",
        },
    )
    grid, packed = (tiles_a * tiles_b * prod(axis.size for axis in outer), 1, 1), parameters.pack()
    shared, is_early = -(-items // vec_width) * _WIDEST, _is_early(device)
    return Launch(text, "movement_odd", grid, _TILE_THREADS, packed, shared, starts_early=is_early)


def _run(x: TensorSpec, y: TensorSpec, block: Block, size: int, tag: str, device: DeviceSpec) -> Launch | None:
    """A launch of movement_run or movement_zip, or None. They serve a contiguous axis of one side that is too short for
    vectors and is followed without gaps by the contiguous axis of the other side.
    """
    x_axis, y_axis = min(range(len(block.axes)), key=lambda j: block.axes[j].x), len(block.axes) - 1
    for short, long, flat, other in ((x_axis, y_axis, "x", "y"), (y_axis, x_axis, "y", "x")):
        a, b = block.axes[short], block.axes[long]
        flat_tensor, other_tensor = (x, y) if flat == "x" else (y, x)
        outer = [axis for axis in block.axes if axis is not a and axis is not b] or [Axis(1, 0, 0)]
        vec_width = _WIDEST // size
        if (
            getattr(a, flat) != 1
            or getattr(b, flat) != a.size
            or _vec_width(block, long, other_tensor, size, other) < vec_width
        ):
            continue
        if a.size * size >= _LEAST_TILE and _vec_width(block, short, flat_tensor, size, flat) == vec_width:
            continue
        starts = block.x_start if flat == "x" else block.y_start, *(getattr(axis, flat) for axis in outer)
        if flat_tensor.byte_alignment % _WIDEST or any(v % vec_width for v in starts):
            continue
        if a.size in _ZIP_EXTENTS:
            return _zip(x, y, block, a, b, outer, flat, size, tag, device)
        rows = min(b.size, _RUN_BYTES // (a.size * size)) // vec_width * vec_width
        if rows * size < _LEAST_TILE:
            continue
        tiles = -(-b.size // rows)
        rows = -(-b.size // (tiles * vec_width)) * vec_width
        parameters = Parameters()
        add_tensors(parameters, x, y)
        fields = {
            "x_start": block.x_start, "y_start": block.y_start, "a_size": a.size, "b_size": b.size, "rows": rows,
            "x_stride_a": a.x, "x_stride_b": b.x, "y_stride_a": a.y, "y_stride_b": b.y,
            "tiles_b": tiles, "magic_b": magic(tiles), "vecs_b": rows // vec_width,
            "magic_vecs": magic(rows // vec_width),
        }  # fmt: skip
        parameters.table(fields)
        _add_axes(parameters, outer)
        text = kernel_text(
            f"movement__run_{flat}_b{size}r{len(outer)}__{tag}",
            ["movement_run.cu"],
            parameters=parameters.text,
            functions=[],
            constants={
                "THREADS": _TILE_THREADS,
                "VEC_WIDTH": vec_width,
                "RANK": len(outer),
                "RUNS_IN_X": flat == "x",
                "Item": WORD[size],
                "Count": "unsigned int",
            },
        )
        grid, packed = (tiles * prod(axis.size for axis in outer), 1, 1), parameters.pack()
        shared, is_early = rows * a.size * size, _is_early(device)
        return Launch(text, "movement_run", grid, _TILE_THREADS, packed, shared, starts_early=is_early)
    return None


def _zip(
    x: TensorSpec,
    y: TensorSpec,
    block: Block,
    a: Axis,
    b: Axis,
    outer: Sequence[Axis],
    flat: str,
    size: int,
    tag: str,
    device: DeviceSpec,
) -> Launch:
    vec_width = _WIDEST // size
    unroll = max(1, _ZIP_BYTES // (a.size * _WIDEST))
    count = b.size // vec_width * prod(axis.size for axis in outer)
    parameters = Parameters()
    add_tensors(parameters, x, y)
    parameters.table({
        "x_start": block.x_start, "y_start": block.y_start, "x_stride_a": a.x, "y_stride_a": a.y,
        "vecs_b": b.size // vec_width, "magic_vecs": magic(b.size // vec_width), "count": count,
    })  # fmt: skip
    _add_axes(parameters, outer)
    text = kernel_text(
        f"movement__zip_{flat}_b{size}a{a.size}r{len(outer)}__{tag}",
        ["movement_zip.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            "THREADS": THREADS,
            "UNROLL": unroll,
            "VEC_WIDTH": vec_width,
            "A": a.size,
            "RANK": len(outer),
            "RUNS_IN_X": flat == "x",
            "Item": WORD[size],
            "Count": count_type(count),
        },
    )
    grid, packed = (-(-count // (THREADS * unroll)), 1, 1), parameters.pack()
    return Launch(text, "movement_zip", grid, THREADS, packed, starts_early=_is_early(device))


def transposed_bits(x: TensorSpec, y: TensorSpec, block: Block, tag: str, device: DeviceSpec) -> Launch | None:
    """A launch of movement_bits for packed booleans with different contiguous axes; None where y's rows do not begin at
    whole bytes.
    """
    x_axis, y_axis = min(range(len(block.axes)), key=lambda j: block.axes[j].x), len(block.axes) - 1
    a, b = block.axes[x_axis], block.axes[y_axis]
    outer = [axis for axis in block.axes if axis is not a and axis is not b] or [Axis(1, 0, 0)]
    places = gcd(b.size, a.y, block.y_start, *(axis.y for axis in outer))
    if a is b or a.x != 1 or b.y != 1 or places % _BYTE or x.byte_alignment % _WORD_BYTES:
        return None
    tiles_a, tiles_b = -(-a.size // _BIT_TILE), -(-b.size // _BIT_TILE)
    tiles = tiles_a * tiles_b * prod(axis.size for axis in outer)
    parameters = Parameters()
    add_tensors(parameters, x, y)
    parameters.table({
        "x_start": block.x_start, "y_start": block.y_start, "x_bytes": x.bytes, "a_size": a.size, "b_size": b.size,
        "x_stride_b": b.x, "y_stride_a": a.y, "tiles": tiles, "tiles_a": tiles_a, "tiles_b": tiles_b,
        "magic_a": magic(tiles_a), "magic_b": magic(tiles_b),
    })  # fmt: skip
    _add_axes(parameters, outer)
    text = kernel_text(
        f"movement__bits_r{len(outer)}__{tag}",
        ["movement_bits.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            "THREADS": THREADS,
            "RANK": len(outer),
            "WORDS": places % _BIT_TILE == 0 and y.byte_alignment % _WORD_BYTES == 0,
            "Count": count_type(tiles),
        },
    )
    blocks = -(-tiles * _BIT_TILE // THREADS)
    return Launch(text, "movement_bits", (blocks, 1, 1), THREADS, parameters.pack(), starts_early=_is_early(device))
