"""Engines ``cuda_fft`` and ``cuda_fft_tiling``: convolutions as products of spectra, by cuFFT and cuBLAS.

Operands become planes of float32 with zero padding. Transforms place the values of all planes at one frequency side by
side, and one matrix product for each frequency sums over channels. The last launch crops and scales the inverse
transform and runs the epilogue. Tiles of 32 keep the planes small if images are large.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2, prod

from graphdnn.checks import Check, Each, Equals, InRange, OneOf
from graphdnn.cuda import cufft
from graphdnn.cuda.cufft import Transform
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import copy_seconds, least_seconds_in_sequence, memory_seconds, phased_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.dense_operands import epilogue_phase, materialize, with_prologue_launches
from graphdnn.engines.cuda.codegen.fast_division import count_type, magic
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Function, Launch, LibraryCall
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    Condition,
    convolution_of,
    is_convolution,
    is_plane,
    problem_need,
    problem_of,
    roles_of,
)
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.cublas.contraction import Contraction, best_product
from graphdnn.engines.cuda.cublas.gemm_launches import Place, add_product, needs_cublas
from graphdnn.engines.cuda.cublas.strided_gemm import Sizes, gemm_seconds
from graphdnn.engines.cuda.fft.fft_tiles import Tiles
from graphdnn.engines.engine import Cost, Engine, Knobs, Task, kind_need, need, needs_rule
from graphdnn.enums import DataType, NumericalNote, Status
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec, stride_order

TILE = 32
_THREADS = 256
_BLOCKS_PER_SM = 32
# As measured on an H200: transforms access memory in short runs if the values of all planes at one frequency are
# adjacent, and products with few rows run below the rate of large products.
_SHARE = 0.02  # of the peak rate, for transforms
_BUTTERFLY = 2.5  # operations for each position and power of two
_LAUNCHES = 8  # transforms with their preparation and epilogue, products
_SMALL = 1.6  # multiples of the products' operations
_PASSES = 12.0  # bytes that transforms and products move for each position at least: fp32, and its spectrum twice
_SPECTRUM = 4.0  # bytes that products move for each position, out of these
_ROLES = {"fprop": ("x", "w", "y"), "dgrad": ("y", "w", "x"), "wgrad": ("y", "x", "w")}  # a, b, c of the product


def _add_pad(steps: LaunchSequence, tiles: Tiles, role: str, spec: TensorSpec, place: int) -> None:
    """Writes the planes of an operand."""
    (outer, counts, inner), how = tiles.planes(role), tiles.placement(role)
    original = tiles.roles.op.roles["xwy".index(role)]
    space = tiles.roles.space(original)
    strides = space.strides(spec)
    first, second = (1, 2) if role == "w" else (0, 2)  # there is one group
    sizes = (outer, *counts, inner, *tiles.size)
    parameters = Parameters(steps.workspace_offsets)
    parameters.tensor("source", spec)
    parameters.workspace_pointer("target", "float", place)
    parameters.integer("count", prod(sizes))
    parameters.integers("size", sizes)
    parameters.integers("magic", [magic(size) for size in sizes])
    parameters.integers("stride", (strides[first], strides[second], *strides[4:]))
    parameters.integers("shift", how.shift)
    parameters.integers("advance", how.advance)
    parameters.integers("limit", how.limit)
    parameters.integers("source_size", space.sizes[4:])
    text = kernel_text(
        "fft_pad",
        ["fft_pad.cu"],
        parameters=parameters.text,
        functions=(),
        constants={
            "THREADS": _THREADS,
            "REVERSED": how.reversed,
            "SIGN": how.sign,
            "Count": count_type(prod(sizes)),
        },
    )
    steps.add(Launch(text, "fft_pad", (_blocks(steps, prod(sizes)), 1, 1), _THREADS, parameters.pack()))


def _add_transform(steps: LaunchSequence, transform: Transform, source: int, target: int, work: int) -> None:
    """A transform between buffers in scratch memory."""

    def prepare() -> Function:
        run = cufft.library().prepare(transform)

        def call(addresses: Mapping[int, int], scratch: int, stream: int) -> None:
            run(scratch + source, scratch + target, scratch + work, stream)

        return call

    steps.add(LibraryCall("cufftExecC2R" if transform.is_inverse else "cufftExecR2C", prepare))


def _add_crop(steps: LaunchSequence, tiles: Tiles, role: str, place: int) -> None:
    """Crops the result from its planes, and runs the epilogue."""
    roles, how = tiles.roles, tiles.crop()
    result = roles.output
    space = roles.space(result)
    written = next((t for t in steps.op.outputs if t.extents == result.extents), result)
    order = stride_order(space.sizes, space.strides(written))
    axis = 2 if space.strides(written)[2] == 1 else 5
    width = min(4, width_for(space, [*steps.epilogue_tensors(), result], axis))
    order = (*(j for j in order if j != axis), axis)
    parameters = Parameters(steps.workspace_offsets)
    program = Program(steps.op, parameters, space, "t", width=width, vector_axis=axis)
    steps.write_epilogue(program, "acc", "float")
    counts = [space.sizes[j] // (width if j == axis else 1) for j in order]
    outer, tile_counts, inner = tiles.planes(role)
    planes, step = [0] * 6, 1
    for j, size in reversed(list(enumerate((outer, *tile_counts, inner, *tiles.size)))):
        planes[j] = step
        step *= size
    parameters.workspace_pointer("planes", "float", place)
    parameters.integer("count", prod(counts))
    parameters.integers("size", counts)
    parameters.integers("magic", [magic(size) for size in counts])
    parameters.integers("plane", planes)
    parameters.integers("first", how.first)
    parameters.integers("advance", how.advance)
    parameters.integers("advance_magic", [magic(size) for size in how.advance])
    parameters.number("scale", 1.0 / prod(tiles.size))
    listed = ", ".join(map(str, order))
    text = kernel_text(
        f"fft_crop__v{width}__{steps.op.name}",
        ["fft_crop.cu"],
        parameters=parameters.text,
        functions=[
            f"constexpr int ORDER[] = {{{listed}}};\n",
            program.function("epilogue", f"const float (&acc)[{width}]"),
        ],
        constants={
            "THREADS": _THREADS,
            "VEC_WIDTH": width,
            "AXIS": axis,
            "OUTER": 1 if role == "w" else 0,
            "INNER": 2,
            "SIGN": how.sign,
            "Accum": "float",
            "Count": count_type(prod(counts)),
        },
    )
    steps.add(Launch(text, "fft_crop", (_blocks(steps, prod(counts)), 1, 1), _THREADS, parameters.pack()))


def _blocks(steps: LaunchSequence, count: int) -> int:
    return min(-(-count // _THREADS), _BLOCKS_PER_SM * steps.device.sm_count)


def _contraction(tiles: Tiles) -> Contraction:
    """One product for each frequency; planes are rows and columns, and tiles count as images."""
    p, f = tiles.roles.problem, tiles.transform("w").frequencies
    images = p.n * prod(tiles.counts)
    planes = {role: tiles.transform(role).planes for role in "xwy"}
    a, b, c = (planes[role] for role in _ROLES[tiles.roles.direction])
    batch = ((f, a, b, c),)
    match tiles.roles.direction:
        case "fprop":
            return Contraction(((images, p.c, 0, p.k),), ((p.k, 0, p.c, 1),), ((p.c, 1, 1, 0),), batch)
        case "dgrad":
            return Contraction(((images, p.k, 0, p.c),), ((p.c, 0, 1, 1),), ((p.k, 1, p.c, 0),), batch)
        case _:
            return Contraction(((p.k, 1, 0, p.c),), ((p.c, 0, 1, 1),), ((images, p.k, p.c, 0),), batch)


def _generate(op: FusedOp, device: DeviceSpec, limit: int | None) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    roles, steps = Roles.of(anchor), LaunchSequence(op, device)
    tiles = Tiles.of(roles, limit)
    a, b, c = _ROLES[roles.direction]
    original = dict(zip("xwy", anchor.roles, strict=True))
    operands = {role: materialize(steps, original[role]) for role in (a, b)}
    back = tiles.transform(c, is_inverse=True)
    transforms = {role: tiles.transform(role) for role in (a, b)}
    everything = (*transforms.values(), back)
    planes = steps.allocate(max(t.real_bytes for t in everything))  # of one operand at a time
    work = steps.allocate(max(t.work_bytes for t in everything))
    spectra = {}
    for role, transform in transforms.items():
        spectra[role] = steps.allocate(transform.spectrum_bytes)
        _add_pad(steps, tiles, role, operands[role], planes)
        _add_transform(steps, transform, planes, spectra[role], work)
    spectra[c] = steps.allocate(back.spectrum_bytes)
    kind = DataType.COMPLEX_FP32
    product = best_product(_contraction(tiles), (kind, kind), DataType.FLOAT)
    assert product is not None, "spectra lie side by side"
    add_product(steps, product, [(Place(None, spectra[role]), kind) for role in (a, b, c)])
    _add_transform(steps, back, spectra[c], planes, work)
    _add_crop(steps, tiles, c, planes)
    return steps.kernel(f"conv_{roles.direction}__fft{'' if limit is None else limit}__{op.name}")


# Needs and cost.

_TYPES = (DataType.FLOAT, DataType.HALF, DataType.BFLOAT16)


def _types(task: Task) -> tuple[DataType, ...]:
    op = convolution_of(task)
    return (*(t.data_type for t in op.inputs().values()), op.compute_type)


def _bytes(task: Task, limit: int | None) -> int:
    tiles = Tiles.of(roles_of(task), limit)
    return sum(t.real_bytes + 3 * t.spectrum_bytes for t in (tiles.transform(role) for role in "xwy"))


def _needs(id: str, limit: int | None) -> tuple[Constraint, ...]:
    def fits(task: Task) -> bool:
        return is_plane(task) and (limit is None or max(problem_of(task).filter) <= limit)

    def shape(
        field: str, check: Check, reason: str, fix: str = "use another engine", when: Condition = is_convolution
    ) -> Constraint:
        return problem_need(id, field, check, reason, fix, when, status=Status.NOT_SUPPORTED_SHAPE)

    found: tuple[Constraint, ...] = (
        needs_rule(f"{id}.operation", "conv"),
        needs_cublas(f"{id}.cublas", is_convolution),
        need(
            f"{id}.cufft",
            "cuFFT",
            lambda task: cufft.missing() or "found",
            Equals("found"),
            reason="the transforms are computed by cuFFT",
            fix="pip install nvidia-cufft, or use another engine",
            status=Status.NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE,
            when=is_convolution,
        ),
        shape("spatial", Equals(2), "planes are transformed along two axes"),
        kind_need(
            f"{id}.types",
            "data_type",
            _types,
            Each(OneOf(*_TYPES)),
            reason="transforms and sums are float32, which holds no wider type, and integers only up to rounding",
            fix="use float, half or bfloat16 operands and such a compute type, or another engine",
            status=Status.NOT_SUPPORTED_DATA_TYPE,
            when=is_convolution,
        ),
        shape("groups", Equals(1), "products of spectra gain where there are many channels to sum over"),
        shape("stride", Each(Equals(1)), "a transform yields the results of every position"),
        shape("dilation", Each(Equals(1)), "taps lie side by side in the planes"),
        need(
            f"{id}.memory",
            "workspace",
            lambda task: _bytes(task, limit),
            lambda task: InRange(0, task.device.memory // 4),
            reason="spectra of all channels are in memory at once; at most a quarter of the device's is used",
            fix="use a smaller batch or fewer channels, or another engine",
            when=fits,
        ),
    )
    if limit is None:
        return found
    reason = f"a filter fits into a tile of {limit} positions"
    return (*found, shape("filter", Each(InRange(1, limit)), reason, "use cuda_fft, or another engine", is_plane))


def _cost(task: Task, limit: int | None) -> Cost:
    device = task.device
    tiles = Tiles.of(roles_of(task), limit)
    p, transforms = tiles.roles.problem, [tiles.transform(role) for role in "xwy"]
    points = prod(tiles.size)
    pace = device.rate(DataType.FLOAT) * _SHARE
    images = p.n * prod(tiles.counts)
    m, n, k = {"fprop": (images, p.k, p.c), "dgrad": (images, p.c, p.k), "wgrad": (p.k, p.c, images)}[
        tiles.roles.direction
    ]
    product = 4 * _SMALL * gemm_seconds(Sizes(m, n, k, transforms[0].frequencies), DataType.FLOAT, device)
    real, spectra = (sum(size) for size in zip(*((t.real_bytes, t.spectrum_bytes) for t in transforms), strict=True))
    butterflies = _BUTTERFLY * points * log2(points) * sum(t.planes for t in transforms)
    result = transforms["xwy".index(_ROLES[tiles.roles.direction][2])].real_bytes
    read = sum(t.bytes for t in convolution_of(task).inputs().values())
    phases = {
        "planes": (0.0, float(real - result + read)),
        "transforms": (butterflies / pace, float(real + spectra)),
        "products": (product, float(spectra)),
        "finish": epilogue_phase(task.op, device, result),
    }
    return with_prologue_launches(phased_cost(task, phases, _LAUNCHES), task)


def _least(task: Task) -> float:
    """A lower bound of the seconds: transforms of both images' planes, and products of spectra at least as large."""
    p = problem_of(task)
    positions = p.n * p.groups * (p.c + p.k) * prod(map(min, p.input, p.output))
    return least_seconds_in_sequence(task, _LAUNCHES, traffic=_PASSES * positions)


def _closer(task: Task, limit: int | None) -> float:
    """A closer lower bound: all launches, each operand once through memory, the butterflies of planes of at most
    cuFFT's sizes, and spectra once through memory. Spectra are at least as large as planes.
    """
    p, device = problem_of(task), task.device
    results = p.input if roles_of(task).direction == "dgrad" else p.output
    sizes = [n + f - 1 if limit is None else limit for n, f in zip(results, p.filter, strict=True)]
    tiles = prod([-(-n // max(1, size - f + 1)) for n, size, f in zip(results, sizes, p.filter, strict=True)])
    points = prod(sizes)
    positions = points * (p.n * tiles * (p.c + p.k) + p.c * p.k)
    transforms = _BUTTERFLY * log2(points) * positions / (device.rate(DataType.FLOAT) * _SHARE)
    return memory_seconds(task) + _LAUNCHES * device.launch + transforms + copy_seconds(device, _SPECTRUM * positions)


def _engine(id: int, name: str, summary: str, limit: int | None) -> Engine:
    def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
        return _generate(op, device, limit)

    return cuda_engine(
        id=id,
        name=name,
        summary=summary,
        needs=_needs(name, limit),
        cost=lambda task, knobs: _cost(task, limit),
        least=_least,
        closer=lambda task: _closer(task, limit),
        generate=generate,
        numerical_notes=(NumericalNote.FFT,),
    )


ENGINE = _engine(17, "cuda_fft", "convolutions of stride 1 as products of spectra, whole images, float32", None)
TILING = _engine(18, "cuda_fft_tiling", "convolutions of stride 1 as products of spectra of tiles of 32, float32", TILE)
