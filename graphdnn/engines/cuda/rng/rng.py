"""Engine ``cuda_rng``: random numbers, the same as on the host.

Integers, Bernoulli and uniform numbers agree bit by bit: Philox is exact, and the arithmetic in double rounds as on the
host. Normal numbers agree to 4 units in the last place of ``standard_deviation * z``, because logarithm and cosine are
computed in float.

One counter yields four numbers for consecutive elements in row-major order, while memory may have another order. Then a
thread draws a tile: all four elements of as many counters as one access has elements. If no rows of four elements
exist, each element is drawn separately.

Fused pointwise operations run in the thread that draws their numbers, and overlap their loads: drawing takes about as
long as a copy. If tensors have different memory orders, the numbers are drawn first, and a pointwise kernel follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.fast_division import count_type
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, collapsed, is_addressable, whole
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import MAX_WIDTH, width_for
from graphdnn.engines.engine import needs_rule
from graphdnn.enums import DataType, RngDistribution
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation, Rng, RngSpec
from graphdnn.tensors import TensorSpec, packed_strides

_THREADS = 256
_BLOCKS_PER_SM = 16
_COUNTER_ELEMS = 4  # elements of a counter
_WIDEST_TILE = 8
_BYTES, _BYTES_BESIDE_BITS = 16, 32  # bytes of a thread's access
_BITS = 8  # bits of a byte
_WIDE = 4  # bytes of an element
_DISTRIBUTIONS = {RngDistribution.BERNOULLI: 0, RngDistribution.UNIFORM: 1, RngDistribution.NORMAL: 2}  # as in the text


@dataclass(frozen=True, slots=True)
class Tile:
    """The elements of a thread: ``counter_elems`` along counters, ``width`` contiguous elements on another axis."""

    counter_elems: int
    counter_axis: int
    width: int
    vector_axis: int
    store_width: int  # elements of one access, along the vector axis if there is one, otherwise along the counter axis
    bits: bool = False  # numbers are bits along the counter axis; the epilogue's results lie along the vector axis

    @property
    def store_axis(self) -> int:
        return self.counter_axis if self.width == 1 else self.vector_axis


def choose_tile(space: IndexSpace, y: TensorSpec, stored: Sequence[TensorSpec]) -> Tile:
    """``y``: the numbers; ``stored``: tensors in memory among the numbers and the epilogue's results."""
    last = space.rank - 1
    alone = Tile(1, last, 1, last, 1)
    if any(t.vector_count != 1 for t in stored) or (space.rank > 1 and space.sizes[last] % _COUNTER_ELEMS):
        return alone
    inner = {_inner_axis(space, t) for t in stored if t.elements == y.elements}
    if inner == {last}:
        # The remainder of a single row is written element by element, so an odd size does not narrow the other
        # accesses.
        size = space.sizes[last] if space.rank > 1 else -(-space.sizes[0] // MAX_WIDTH) * MAX_WIDTH
        rows = replace(space, axes=(*space.axes[:-1], replace(space.axes[-1], size=size)))
        # Bits are stored in bytes, so besides them a thread has more elements than one access.
        has_bits = any(t.data_type is DataType.BOOLEAN for t in stored)
        width = width_for(rows, stored, limit=_BYTES_BESIDE_BITS if has_bits else _BYTES, bits=True)
        return Tile(max(_COUNTER_ELEMS, width), last, 1, last, width)
    across = inner - {last}
    others = [t for t in stored if t.uid != y.uid]
    bits = last in inner
    if len(across) != 1 or None in across or not all(map(is_addressable, others)):
        return alone
    if bits and not (_is_row_of_bytes(space, y) and all(_inner_axis(space, t) in across for t in others)):
        return alone
    (vector_axis,) = across
    assert vector_axis is not None
    width = min(width_for(space, others if bits else stored, vector_axis), _WIDEST_TILE)
    if bits and width < _WIDEST_TILE:  # with fewer adjacent bytes of the mask, two launches take less time
        return alone
    return alone if width == 1 else Tile(_BITS if bits else _COUNTER_ELEMS, last, width, vector_axis, width, bits)


def _inner_axis(space: IndexSpace, spec: TensorSpec) -> int | None:
    """The axis along which elements are contiguous."""
    strides = space.strides(spec)
    return strides.index(1) if 1 in strides else None


def _is_row_of_bytes(space: IndexSpace, y: TensorSpec) -> bool:
    """Whether bits fill whole bytes along the last axis, and no other tensor is packed."""
    return y.data_type is DataType.BOOLEAN and all(
        size % _BITS == 0 if stride == 1 else stride % _BITS == 0
        for size, stride in zip(space.sizes, space.strides(y), strict=True)
    )


def generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    if op.epilogue and _tile_of(op)[1].counter_elems == 1:
        return _apart(op, device)
    return _together(op, device)


def _tile_of(op: FusedOp) -> tuple[IndexSpace, Tile]:
    """The index space, and the elements of a thread: one if tensors have no memory order in common."""
    assert isinstance(op.anchor, Rng)
    row_major, y = _row_major(op.anchor.y), op.anchor.y
    front_only = op.uses.front_only
    given = [t for t in op.inputs if t.uid not in front_only and not (t.is_by_value or t.is_constant)]
    stored = [*given, *op.outputs]
    space = collapsed(whole(y.extents), row_major, [row_major, *stored])
    tile = choose_tile(space, y, stored)
    if tile.vector_axis == tile.counter_axis and tile.counter_elems > 1:
        return space, tile
    # Then threads follow the memory order.
    strides = space.strides(stored[-1])
    order = sorted(range(space.rank), key=lambda j: -strides[j])
    space = replace(space, axes=tuple(space.axes[j] for j in order))
    return space, replace(tile, counter_axis=order.index(tile.counter_axis), vector_axis=order.index(tile.vector_axis))


def _row_major(y: TensorSpec) -> TensorSpec:
    return y.model_copy(
        update={"dims": y.extents, "strides": packed_strides(y.extents), "vector_count": 1, "vectorized_dimension": -1}
    )


def _apart(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    """Draws the numbers to memory; then a pointwise kernel computes the epilogue."""
    from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence, fused_inputs
    from graphdnn.engines.cuda.pointwise.pointwise import generate_pointwise

    anchor = op.anchor
    assert isinstance(anchor, Rng)
    y = anchor.y
    steps = LaunchSequence(op, device)
    if all(t.uid != y.uid for t in op.outputs):
        steps.workspace_offsets[y.uid] = steps.allocate(y.bytes)
    drawing = FusedOp(op.index, op.rule, anchor, (), (), None, tuple(anchor.inputs().values()), (y,), ())
    steps.include(_together(drawing, device), drawing)
    rest = FusedOp(
        op.index,
        "pointwise",
        None,
        (),
        op.epilogue,
        None,
        (y, *(t for t in fused_inputs(op.epilogue) if t.uid != y.uid)),
        tuple(t for t in op.outputs if t.uid != y.uid),
        tuple(t for t in op.internal if t.uid != y.uid),
    )
    kernel = generate_pointwise(rest, device)
    steps.include(kernel, rest)
    return steps.kernel(f"rng__apart__{kernel.name}")


def _together(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, Rng)
    y, spec = anchor.y, anchor.spec
    row_major = _row_major(y)
    space, tile = _tile_of(op)

    parameters = Parameters()
    functions = [_integer(parameters, "seed", anchor.seed), _integer(parameters, "offset", anchor.offset)]
    asking, asked = _asked(op, parameters, space, tile)
    functions.append(asking)
    wide = Program(op, parameters, space, "y", width=tile.store_width, vector_axis=tile.store_axis)
    if tile.bits:
        row = Program(op, parameters, space, "bits", width=tile.counter_elems, vector_axis=tile.counter_axis)
        functions.append(_write(row, "write_bits", anchor, (), (anchor,)))
        functions.append(_write(wide, "write", anchor, op.epilogue, op.epilogue, asked))
    else:
        functions.append(_write(wide, "write", anchor, op.epilogue, (anchor, *op.epilogue), asked))
    is_whole = space.sizes[tile.counter_axis] % tile.counter_elems == 0
    if not is_whole and tile.store_width > 1:
        one = Program(op, parameters, space, "one")
        functions.append(_write(one, "write_one", anchor, op.epilogue, (anchor, *op.epilogue)))

    steps = [
        -(
            -size
            // ((tile.counter_elems if j == tile.counter_axis else 1) * (tile.width if j == tile.vector_axis else 1))
        )
        for j, size in enumerate(space.sizes)
    ]
    count = prod(steps)
    parameters.integer("count", count)
    parameters.integers("steps", steps)
    parameters.integers("row_major", space.strides(row_major))
    parameters.integer("counter_extent", space.sizes[tile.counter_axis])
    _add_distribution(parameters, spec)
    name = f"rng_{spec.distribution.name.lower()}__l{tile.counter_elems}v{tile.width}r{space.rank}"
    if op.epilogue:
        name += f"__{op.name}"
    text = kernel_text(
        name,
        ["rng.cu"],
        parameters=parameters.text,
        functions=functions,
        constants={
            "THREADS": _THREADS,
            "DISTRIBUTION": _DISTRIBUTIONS[spec.distribution],
            "RANK": space.rank,
            "COUNTER_ELEMS": tile.counter_elems,
            "COUNTER_AXIS": tile.counter_axis,
            "VEC_WIDTH": tile.width,
            "STORE_WIDTH": tile.store_width,
            "WHOLE": is_whole,
            "BITS": tile.bits,
            **_pace(asked, tile),
            "VEC_AXIS": tile.vector_axis,
            "Count": count_type(count),
        },
    )
    blocks = min(-(-count // _THREADS), _BLOCKS_PER_SM * device.sm_count)
    return DeviceKernel(name, (Launch(text, "rng", (blocks, 1, 1), _THREADS, parameters.pack()),))


def _integer(parameters: Parameters, name: str, given: TensorSpec | int) -> str:
    """A function that returns the seed or offset as 64 bits, from memory or by value."""
    if isinstance(given, TensorSpec):
        parameters.tensor(name, given)
        kind = STORAGE[given.data_type]
        value = f"from_bits<{kind}>(p.{name})" if given.is_by_value or given.is_constant else f"*p.{name}"
    else:
        parameters.integer(name, given)
        value = f"p.{name}"
    return f"__device__ __forceinline__ unsigned long long {name}(const Params& p) {{ return (long long)({value}); }}\n"


def _pace(asked: Sequence[tuple[TensorSpec, str]], tile: Tile) -> dict[str, int | bool]:
    """Whether operands are loaded one turn ahead, and the least CTAs of an SM. As measured on an H200, relative to a
    copy: for elements of four bytes 1.10 instead of 1.46; for elements of two bytes 1.39 instead of 1.18.
    """
    is_wide = any(ELEMENTS[spec.data_type].bytes >= _WIDE for spec, _ in asked)
    ahead = is_wide and tile.width == 1
    return {"AHEAD": ahead, "BLOCKS": 2 if ahead else 0}


def _asked(
    op: FusedOp, parameters: Parameters, space: IndexSpace, tile: Tile
) -> tuple[str, list[tuple[TensorSpec, str]]]:
    """The fused operands, as a struct and the function that loads it; and the parameters."""
    assert isinstance(op.anchor, Rng)
    elements, front_only = op.anchor.y.elements, op.uses.front_only
    large = [t for t in op.inputs if t.uid not in front_only and t.elements == elements and is_addressable(t)]
    specs = [t for t in large if not (t.is_by_value or t.is_constant)]
    program = Program(op, parameters, space, "a", width=tile.store_width, vector_axis=tile.store_axis)
    fields = [(spec, f"asked.a{i}") for i, spec in enumerate(specs)]
    for spec, field in fields:
        program.copy_to(field, spec)
    members = "".join(f"    {STORAGE[spec.data_type]} a{i}[{tile.store_width}];\n" for i, spec in enumerate(specs))
    return f"struct Asked {{\n{members}}};\n" + program.function("ask", "Asked& asked"), fields


def _write(
    program: Program,
    name: str,
    anchor: Rng,
    behind: Sequence[Operation],
    written: Sequence[Operation],
    asked: Sequence[tuple[TensorSpec, str]] | None = None,
) -> str:
    """A function that receives drawn numbers, runs the operations ``behind`` and stores the results of ``written``.
    ``asked``: expressions of operands that are already loaded.
    """
    arguments = f"const float (&drawn)[{program.width}]"
    if asked is not None:
        arguments += ", const Asked& asked"
        for spec, field in asked:
            program.bind(spec, f"{field}[e]")
    program.define(anchor.y, "drawn[e]")
    program.apply(behind)
    program.store_outputs(written)
    return program.function(name, arguments)


def _add_distribution(parameters: Parameters, spec: RngSpec) -> None:
    """``first + second * value``; or the first word, from 24 bits and 8 more, that is at least the probability."""
    first, second, below = 0.0, 0.0, 0
    if spec.distribution is RngDistribution.BERNOULLI:
        assert spec.probability is not None
        below = ceil(spec.probability * 2**24) << 8
    elif spec.distribution is RngDistribution.UNIFORM:
        assert spec.minimum is not None
        assert spec.maximum is not None
        first, second = spec.minimum, spec.maximum - spec.minimum
    else:
        assert spec.mean is not None
        assert spec.standard_deviation is not None
        first, second = spec.mean, spec.standard_deviation
    parameters.number("first", first)
    parameters.number("second", second)
    parameters.integer("below", below % 2**32)
    parameters.integer("always", below >> 32)


ENGINE = cuda_engine(
    id=41,
    name="cuda_rng",
    summary="random numbers by Philox, each counter drawn once; the host's numbers",
    needs=(needs_rule("cuda_rng.operation", "rng"),),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate(op, device),
    is_general=True,
)
