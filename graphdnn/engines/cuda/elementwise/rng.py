"""Engine ``cuda_rng``: random numbers, the same as on the host.

Integers, Bernoulli and uniform numbers agree bit by bit: Philox and the arithmetic in
double are exact or rounded alike. Normal numbers agree to 4 units in the last place
of ``standard_deviation * z``: logarithm and cosine are those of float.

One counter makes four numbers for elements that follow each other in row-major
order, and memory may run another way. A thread then draws a tile: the four lanes of as
many counters as fit one access. Only where rows of four do not exist is each element
drawn for itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.generator.cost import memory_cost
from graphdnn.engines.cuda.generator.engine import cuda_engine
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.generator.program import MAX_WIDTH, Program, width_for
from graphdnn.engines.cuda.generator.quotient import count_type
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.space import Space, collapsed, is_addressable, whole
from graphdnn.engines.engine import needs_rule
from graphdnn.enums import DataType, RngDistribution
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import Rng, RngSpec
from graphdnn.tensors import TensorSpec, packed_strides

_THREADS = 256
_BLOCKS_PER_SM = 16
_LANES = 4  # elements of a counter
_WIDEST_TILE = 8
_DISTRIBUTIONS = {RngDistribution.BERNOULLI: 0, RngDistribution.UNIFORM: 1, RngDistribution.NORMAL: 2}  # as in the text


@dataclass(frozen=True, slots=True)
class Tile:
    """What a thread draws: ``lanes`` on one axis, ``width`` neighbours in memory on another."""

    lanes: int
    lane_axis: int
    width: int
    vector_axis: int
    stored: int  # elements of one access, along the vector axis if there is a width, else along the lanes

    @property
    def stored_axis(self) -> int:
        return self.lane_axis if self.width == 1 else self.vector_axis


def choose_tile(space: Space, y: TensorSpec) -> Tile:
    last = space.rank - 1
    alone = Tile(1, last, 1, last, 1)
    if y.data_type is DataType.BOOLEAN and y.vector_count == 1 and space.rank == 1 and space.strides(y) == (1,):
        return Tile(MAX_WIDTH, last, 1, last, MAX_WIDTH)
    if not is_addressable(y) or (space.rank > 1 and space.sizes[last] % _LANES):
        return alone
    strides = space.strides(y)
    if strides[last] == 1:
        # The end of a single row is written element by element, so an odd size does not narrow the rest.
        size = space.sizes[last] if space.rank > 1 else -(-space.sizes[0] // MAX_WIDTH) * MAX_WIDTH
        width = width_for(replace(space, axes=(*space.axes[:-1], replace(space.axes[-1], size=size))), [y])
        return Tile(max(_LANES, width), last, 1, last, width)
    vector_axis = strides.index(1) if 1 in strides else last
    width = min(width_for(space, [y], vector_axis), _WIDEST_TILE)
    return Tile(_LANES, last, width, vector_axis, width) if width > 1 and vector_axis != last else alone


def generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, Rng)
    y, spec = anchor.y, anchor.spec
    row_major = y.model_copy(
        update={"dims": y.extents, "strides": packed_strides(y.extents), "vector_count": 1, "vectorized_dimension": -1}
    )
    space = collapsed(whole(y.extents), row_major, [row_major, y])
    tile = choose_tile(space, y)
    if tile.lanes == 1:  # then threads may as well follow memory
        strides = space.strides(y)
        order = sorted(range(space.rank), key=lambda j: -strides[j])
        space = replace(space, axes=tuple(space.axes[j] for j in order))

    parameters = Parameters()
    functions = [_integer(parameters, "seed", anchor.seed), _integer(parameters, "offset", anchor.offset)]
    wide = Program(op, parameters, space, "y", width=tile.stored, vector_axis=tile.stored_axis)
    functions.append(_write(wide, "write", y, tile.stored))
    if space.rank == 1 and tile.stored > 1:
        functions.append(_write(Program(op, parameters, space, "one"), "write_one", y, 1))

    steps = [
        -(-size // ((tile.lanes if j == tile.lane_axis else 1) * (tile.width if j == tile.vector_axis else 1)))
        for j, size in enumerate(space.sizes)
    ]
    count = prod(steps)
    parameters.integer("count", count)
    parameters.integers("steps", steps)
    parameters.integers("row_major", space.strides(row_major))
    parameters.integer("lanes", space.sizes[tile.lane_axis])
    _add_distribution(parameters, spec)
    name = f"rng_{spec.distribution.name.lower()}__l{tile.lanes}v{tile.width}r{space.rank}"
    text = kernel_text(
        name,
        ["philox.cuh", "rng.cu"],
        parameters=parameters.text,
        functions=functions,
        constants={
            "THREADS": _THREADS,
            "DISTRIBUTION": _DISTRIBUTIONS[spec.distribution],
            "RANK": space.rank,
            "LANES": tile.lanes,
            "LANE_AXIS": tile.lane_axis,
            "WIDTH": tile.width,
            "STORED": tile.stored,
            "VECTOR_AXIS": tile.vector_axis,
            "Count": count_type(count),
        },
    )
    blocks = min(-(-count // _THREADS), _BLOCKS_PER_SM * device.sm_count)
    return DeviceKernel(name, (Launch(text, "rng", (blocks, 1, 1), _THREADS, parameters.pack()),))


def _integer(parameters: Parameters, name: str, given: TensorSpec | int) -> str:
    """A function that gives the number as 64 bits, wherever it comes from."""
    if isinstance(given, TensorSpec):
        parameters.tensor(name, given)
        kind = STORAGE[given.data_type]
        value = f"from_bits<{kind}>(p.{name})" if given.is_by_value or given.is_constant else f"*p.{name}"
    else:
        parameters.integer(name, given)
        value = f"p.{name}"
    return f"__device__ __forceinline__ unsigned long long {name}(const Params& p) {{ return (long long)({value}); }}\n"


def _write(program: Program, name: str, y: TensorSpec, width: int) -> str:
    program.set(y, "drawn[e]")
    program.store(y)
    return program.function(name, f"const float (&drawn)[{width}]")


def _add_distribution(parameters: Parameters, spec: RngSpec) -> None:
    """``first + second * value``; or the first word, 24 bits and 8 more, that is not below the probability."""
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
