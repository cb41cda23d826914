"""The fast kernels of data movement: a block of common axes as the launch of one of them.

| kernel | what it moves                                                                               |
|--------|---------------------------------------------------------------------------------------------|
| copy   | items in y's order, as wide as both sides allow (movement_copies.py)                        |
| tile   | squares of two axes, turned in shared memory, where x and y run along different ones        |
| run    | the whole of a short axis between neighbours: on its side one run, as an odd image's pixels |
| odd    | the same as a tile, where rows on a side do not begin at whole words                        |
| zip    | the same of a few items, in registers                                                       |
| bits   | squares of packed booleans, turned in registers                                             |
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
_TILE = {1: 128, 2: 64, 4: 32, 8: 32}  # elements, by bytes
_TILE_THREADS = 128
_LEAST_TILE = 32  # bytes; axes that are shorter leave most of a tile empty
_BYTE, _SQUARE, _WORD_BYTES = 8, 32, 4  # bits of a byte and along a square; bytes along it
_ODD_BYTES = 4  # that neighbours on a side have in common at most, where rows begin anywhere in a word
_FLAT = 1.5  # times as long as a tile's side an axis may be that a tile has the whole of
_ZIPPED = (2, 4)  # items that registers interleave
_ZIP_BYTES = 64  # of a thread, on their way
_RUN_BYTES = 8192  # of shared memory, and on their way for a block


def add_tensors(parameters: Parameters, x: TensorSpec, y: TensorSpec) -> None:
    parameters.tensor("x", x)
    parameters.tensor("y", y, is_output=True)


def moved(x: TensorSpec, y: TensorSpec, block: Block, size: int, tag: str, device: DeviceSpec) -> Launch | Copy:
    """Items of ``size`` bytes; a copy may go with others of the same y."""
    closest_in_x = min(block.axes, key=lambda a: a.x)
    closest_in_y = block.axes[-1]
    if closest_in_x is closest_in_y:
        pack = min(_pack_of(block, -1, x, size, "x"), _pack_of(block, -1, y, size, "y"))
        return Copy.of(x, y, block, size, pack)
    run = _run(x, y, block, size, tag, device)
    if run is not None:
        return run
    if min(closest_in_x.size, closest_in_y.size) * size < _LEAST_TILE:
        return Copy.of(x, y, block, size, 1)
    return _odd(x, y, block, size, tag, device) or _tile(x, y, block, size, tag, device)


def _is_early(device: DeviceSpec) -> bool:
    """Whether a kernel may start while the launch before it finishes."""
    return device.compute_capability >= (9, 0)


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


def _add_axes(parameters: Parameters, axes: Sequence[Axis]) -> None:
    parameters.integers("size", [a.size for a in axes])
    parameters.integers("magic", [magic(a.size) for a in axes])
    parameters.integers("x_stride", [a.x for a in axes])
    parameters.integers("y_stride", [a.y for a in axes])


def _tile(x: TensorSpec, y: TensorSpec, block: Block, size: int, tag: str, device: DeviceSpec) -> Launch:
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
    add_tensors(parameters, x, y)
    fields = {
        "x_start": block.x_start, "y_start": block.y_start, "a_size": a.size, "b_size": b.size,
        "x_stride_a": a.x, "x_stride_b": b.x, "y_stride_a": a.y, "y_stride_b": b.y,
        "tiles_a": tiles_a, "tiles_b": tiles_b, "magic_a": magic(tiles_a), "magic_b": magic(tiles_b),
    }  # fmt: skip
    parameters.table(fields)
    _add_axes(parameters, outer)
    text = kernel_text(
        f"movement__tile_b{size}r{len(outer)}v{x_pack}v{y_pack}__{tag}",
        ["movement_tile.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            "THREADS": _TILE_THREADS,
            "TILE": tile,
            "SKEW": skew,
            "X_PACK": x_pack,
            "Y_PACK": y_pack,
            "RANK": len(outer),
            "Item": WORD[size],
            "Count": "unsigned int",
        },
    )
    packed = parameters.pack()
    return Launch(text, "movement_tile", (blocks, 1, 1), _TILE_THREADS, packed, starts_early=_is_early(device))


def _odd(x: TensorSpec, y: TensorSpec, block: Block, size: int, tag: str, device: DeviceSpec) -> Launch | None:
    """None where packs of a side fit, or an address says nothing of where a word begins."""
    along_x, along_y = min(range(len(block.axes)), key=lambda j: block.axes[j].x), len(block.axes) - 1
    a, b = block.axes[along_x], block.axes[along_y]
    fitting = min(_pack_of(block, along_x, x, size, "x"), _pack_of(block, along_y, y, size, "y"))
    if fitting * size > _ODD_BYTES or a.x != 1 or b.y != 1 or x.byte_alignment % _WIDEST or y.byte_alignment % _WIDEST:
        return None
    pack, most = _WIDEST // size, _TILE[size]
    outer = [axis for j, axis in enumerate(block.axes) if j not in (along_x, along_y)] or [Axis(1, 0, 0)]
    longest = _FLAT * most
    is_flat_x, is_flat_y = a.size <= longest and b.x == a.size, b.size <= longest and a.y == b.size
    if size >= _WORD_BYTES and not (is_flat_x or is_flat_y):  # whose tiles are fast enough
        return None
    tile_a, tile_b = a.size if is_flat_x else most, b.size if is_flat_y else most
    if is_flat_x and not is_flat_y:
        tile_b = min(b.size, most * most // a.size)
    words_a, words_b = ((length + 2 * pack - 2) // pack for length in (tile_a, tile_b))
    tiles_a, tiles_b = -(-a.size // tile_a), -(-b.size // tile_b)
    items = tile_a * tile_b + 2 * pack if is_flat_x else tile_b * (most + pack) + (tile_b // pack + 1) * pack + pack
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
            "ROW": most,
            "PACK": pack,
            "RANK": len(outer),
            "FLAT_X": is_flat_x,
            "FLAT_Y": is_flat_y,
            "Item": WORD[size],
            "Count": "unsigned int",
        },
    )
    grid, packed = (tiles_a * tiles_b * prod(axis.size for axis in outer), 1, 1), parameters.pack()
    shared, is_early = -(-items // pack) * _WIDEST, _is_early(device)
    return Launch(text, "movement_odd", grid, _TILE_THREADS, packed, shared, starts_early=is_early)


def _run(x: TensorSpec, y: TensorSpec, block: Block, size: int, tag: str, device: DeviceSpec) -> Launch | None:
    """Where one side has a short axis between neighbours of the other side's, and packs do not fit into it."""
    along_x, along_y = min(range(len(block.axes)), key=lambda j: block.axes[j].x), len(block.axes) - 1
    for short, long, flat, other in ((along_x, along_y, "x", "y"), (along_y, along_x, "y", "x")):
        a, b = block.axes[short], block.axes[long]
        flat_tensor, other_tensor = (x, y) if flat == "x" else (y, x)
        outer = [axis for axis in block.axes if axis is not a and axis is not b] or [Axis(1, 0, 0)]
        pack = _WIDEST // size
        if (
            getattr(a, flat) != 1
            or getattr(b, flat) != a.size
            or _pack_of(block, long, other_tensor, size, other) < pack
        ):
            continue
        if a.size * size >= _LEAST_TILE and _pack_of(block, short, flat_tensor, size, flat) == pack:
            continue
        starts = block.x_start if flat == "x" else block.y_start, *(getattr(axis, flat) for axis in outer)
        if flat_tensor.byte_alignment % _WIDEST or any(v % pack for v in starts):
            continue
        if a.size in _ZIPPED:
            return _zip(x, y, block, a, b, outer, flat, size, tag, device)
        rows = min(b.size, _RUN_BYTES // (a.size * size)) // pack * pack
        if rows * size < _LEAST_TILE:
            continue
        tiles = -(-b.size // rows)
        rows = -(-b.size // (tiles * pack)) * pack
        parameters = Parameters()
        add_tensors(parameters, x, y)
        fields = {
            "x_start": block.x_start, "y_start": block.y_start, "a_size": a.size, "b_size": b.size, "rows": rows,
            "x_stride_a": a.x, "x_stride_b": b.x, "y_stride_a": a.y, "y_stride_b": b.y,
            "tiles_b": tiles, "magic_b": magic(tiles), "packs_b": rows // pack, "magic_packs": magic(rows // pack),
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
                "PACK": pack,
                "RANK": len(outer),
                "OF_X": flat == "x",
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
    pack = _WIDEST // size
    unroll = max(1, _ZIP_BYTES // (a.size * _WIDEST))
    count = b.size // pack * prod(axis.size for axis in outer)
    parameters = Parameters()
    add_tensors(parameters, x, y)
    parameters.table({
        "x_start": block.x_start, "y_start": block.y_start, "x_stride_a": a.x, "y_stride_a": a.y,
        "packs_b": b.size // pack, "magic_packs": magic(b.size // pack), "count": count,
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
            "PACK": pack,
            "A": a.size,
            "RANK": len(outer),
            "OF_X": flat == "x",
            "Item": WORD[size],
            "Count": count_type(count),
        },
    )
    grid, packed = (-(-count // (THREADS * unroll)), 1, 1), parameters.pack()
    return Launch(text, "movement_zip", grid, THREADS, packed, starts_early=_is_early(device))


def turned_bits(x: TensorSpec, y: TensorSpec, block: Block, tag: str, device: DeviceSpec) -> Launch | None:
    """Packed booleans whose sides run along different axes; None where y is not written in whole bytes."""
    along_x, along_y = min(range(len(block.axes)), key=lambda j: block.axes[j].x), len(block.axes) - 1
    a, b = block.axes[along_x], block.axes[along_y]
    outer = [axis for axis in block.axes if axis is not a and axis is not b] or [Axis(1, 0, 0)]
    places = gcd(b.size, a.y, block.y_start, *(axis.y for axis in outer))
    if a is b or a.x != 1 or b.y != 1 or places % _BYTE or x.byte_alignment % _WORD_BYTES:
        return None
    squares_a, squares_b = -(-a.size // _SQUARE), -(-b.size // _SQUARE)
    squares = squares_a * squares_b * prod(axis.size for axis in outer)
    parameters = Parameters()
    add_tensors(parameters, x, y)
    parameters.table({
        "x_start": block.x_start, "y_start": block.y_start, "x_bytes": x.bytes, "a_size": a.size, "b_size": b.size,
        "x_stride_b": b.x, "y_stride_a": a.y, "squares": squares, "squares_a": squares_a, "squares_b": squares_b,
        "magic_a": magic(squares_a), "magic_b": magic(squares_b),
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
            "WORDS": places % _SQUARE == 0 and y.byte_alignment % _WORD_BYTES == 0,
            "Count": count_type(squares),
        },
    )
    blocks = -(-squares * _SQUARE // THREADS)
    return Launch(text, "movement_bits", (blocks, 1, 1), THREADS, parameters.pack(), starts_early=_is_early(device))
