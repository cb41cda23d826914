"""Engines ``cuda_winograd`` and ``cuda_winograd_4x4``: 3x3 convolutions with fewer products, in fp32.

| engine            | products | kernels                                               | bytes beside x, w, y          |
|-------------------|----------|-------------------------------------------------------|-------------------------------|
| cuda_winograd     | 1/2.25   | filter; products with all the rest                    | filter                        |
| ... after a chain | 1/2.25   | image, filter; products, transform back and epilogue  | filter, 4 x written and read  |
| cuda_winograd_4x4 | 1/4      | image, filter; products; transform back and epilogue  | filter, 2.25 (x + y) twice    |

(counted in fp32; transformed filters are 16/9 and 4 times as large). F(2x2) rounds about as much as a direct sum does:
its root-mean-square error over normal data is below that of one running fp32 sum. F(4x4) has about 2.5 times that
error, single results up to 15 times. In both, an infinity or NaN reaches every result of the tiles that see it.

Errors grow with the constants of the transforms (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks,
2015): 1/2 to 1 in F(2x2), up to 8 in F(4x4). The largest error of a tensor under F(4x4) is 6 times that under
F(2x2), the same for 1 to 128 channels; F(4x4) states that factor, which leaves both as far below the oracle's bound.
"""

from __future__ import annotations

from types import MappingProxyType

from graphdnn.checks import Each, Equals, OneOf
from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.generator.convolution_needs import convolution_of, is_convolution, problem_need
from graphdnn.engines.cuda.generator.cost import least_seconds
from graphdnn.engines.cuda.generator.engine import cuda_engine
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.packs import width_for
from graphdnn.engines.cuda.generator.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.generator.program import Program
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.engines.cuda.winograd.layout import FLOAT_BYTES, TAPS, Algorithm, Panels, Winograd
from graphdnn.engines.cuda.winograd.transforms import image_fields, transform_filter, transform_image
from graphdnn.engines.engine import Cost, Engine, Knob, Knobs, Task, kind_need, need, needs_rule
from graphdnn.engines.sum_error import SumError
from graphdnn.engines.work import bytes_moved, flops
from graphdnn.enums import DataType, KnobType, NumericalNote
from graphdnn.fusion.fused import FusedOp
from graphdnn.multiprocessor import RESERVED
from graphdnn.operations import ConvBackwardData, ConvForward
from graphdnn.rules import Constraint

F2 = Algorithm("winograd_2x2.cuh", 2, 8)
F4 = Algorithm("winograd_4x4.cuh", 4, 8)

_TILES, _OUTER, _THREADS = 32, 64, 256  # of a block of F(2x2)'s products
_PAD = 4  # elements after the tiles of a channel, and after a row of the exchange
_STAGES_SIZE = 2 * F2.step * (F2.components * (_TILES + _OUTER) + _PAD)  # elements of shared memory
_EXCHANGE_SIZE = F2.components * 32 * (32 + _PAD)
_STORED = (DataType.FLOAT, DataType.HALF, DataType.BFLOAT16)
_SHARE = 0.72  # of the peak that the products reach
_FEWER_2X2, _FEWER_4X4 = 2.25, 4.0  # products that the transforms save
_COPY_SHARE = 0.8  # of the data sheet's bandwidth that the transforms reach
_GROWTH_4X4 = 6.0  # of the largest error, beside that of F(2x2) and of a direct sum
_HANDICAP_4X4 = 1.25  # strict fp32 goes first unless this one saves a fifth of its time
_TRANSFORM = 0.1  # of the products' time, where one kernel does both

_IMAGE = Knob(
    KnobType.LDGA,
    0,
    1,
    1,
    0,
    "0: the products' kernel transforms the image, unless a chain stands before it; 1: a kernel of its own does",
)


def _finishing(op: FusedOp, w: Winograd, steps: Steps, parameters: Parameters, most: int) -> tuple[str, int]:
    """The epilogue's text and its width: ``most`` channels, or a tile's columns."""
    space = w.roles.space(w.roles.output)
    axis = 2 if w.channels_last else 5
    width = min(width_for(space, steps.epilogue_tensors(), axis), most if w.channels_last else w.algorithm.m)
    body = Program(op, parameters, space, "t", width=width, vector_axis=axis)
    steps.finish(body, "acc", "float")
    parameters.integers("size", w.result_size)
    parameters.integer("tiles", w.tiles)
    parameters.integer("tiles_p", w.grid[0])
    parameters.integer("tiles_q", w.grid[1])
    parameters.integer("outer", w.outer)
    return body.function("epilogue", f"const float (&acc)[{width}]"), width


def _generate_2x2(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    w, steps = Winograd.of(F2, op), Steps(op, device)
    v, u = Panels.interleaved(w, w.tiles, _TILES), Panels.interleaved(w, w.outer, _OUTER)
    from_image = _is_from_image(op, knobs)
    at_u = steps.allocate(u.bytes)
    at_v = 0 if from_image else steps.allocate(v.bytes)
    if not from_image:
        transform_image(op, w, v, steps, at_v)
    transform_filter(w, u, steps, at_u)
    parameters = Parameters(steps.places)
    epilogue, width = _finishing(op, w, steps, parameters, 4)
    stored = "float"
    if from_image:
        stored = STORAGE[w.image.data_type]
        parameters.tensor("image", w.image)
        parameters.nothing("v", "const float")
    else:
        parameters.nothing("image", "const float")
        parameters.scratch("v", "const float", at_v)
    image_fields(w, parameters)
    parameters.integers("image_size", w.image_size)
    parameters.scratch("u", "const float", at_u)
    parameters.integer("v_block", v.block)
    parameters.integer("u_block", u.block)
    turns = v.blocks * u.blocks
    parameters.integer("turns", turns)
    apart = device.shared_memory - RESERVED >= (_STAGES_SIZE + _EXCHANGE_SIZE) * FLOAT_BYTES
    shared = _STAGES_SIZE + (_EXCHANGE_SIZE if apart else 0)
    name = f"conv_{w.roles.direction}__winograd_2x2{'' if from_image else '_v'}__{op.name}"
    text = kernel_text(
        name,
        [
            F2.file,
            "copies.cuh",
            "winograd_tile.cuh",
            "winograd_image.cuh",
            "winograd_finish.cuh",
            "winograd_product.cu",
        ],
        parameters=parameters.text,
        functions=[epilogue],
        constants={
            "THREADS": _THREADS,
            "BLOCK_TILES": _TILES,
            "BLOCK_OUTER": _OUTER,
            "CHANNELS_LAST": w.channels_last,
            "IMAGE_CHANNELS_LAST": w.image_channels_last,
            "FROM_IMAGE": from_image,
            "APART": apart,
            "WIDTH": width,
            "Image": stored,
        },
    )
    grid = (min(turns, device.sm_count) if apart else turns, 1, 1)
    steps.add(Launch(text, "winograd_product", grid, _THREADS, parameters.pack(), shared * FLOAT_BYTES))
    return steps.kernel(name)


def _is_from_image(op: FusedOp, knobs: Knobs) -> bool:
    """The kernel of the products transforms the image itself: once for each block of the result's channels."""
    return not op.prologue and not knobs[_IMAGE.type]


def _panels_4x4(w: Winograd) -> tuple[Panels, Panels]:
    """Of tiles and of channels; channels come in narrow blocks where few are left for a wide one."""
    narrow = w.outer % 128 and w.outer % 128 <= 64
    return Panels.separate(w, w.tiles, 128), Panels.separate(w, w.outer, 64 if narrow else 128)


def _generate_4x4(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    w, steps = Winograd.of(F4, op), Steps(op, device)
    v, u = _panels_4x4(w)
    at_v, at_u = steps.allocate(v.bytes), steps.allocate(u.bytes)
    at_sums = steps.allocate(F4.components * v.padded * u.padded * FLOAT_BYTES)
    transform_image(op, w, v, steps, at_v)
    transform_filter(w, u, steps, at_u)
    rows, columns, at_rows, at_columns = (v, u, at_v, at_u) if w.channels_last else (u, v, at_u, at_v)
    steps.add(_batched(steps, rows, columns, at_rows, at_columns, at_sums, w.padded_inner))

    parameters = Parameters(steps.places)
    epilogue, width = _finishing(op, w, steps, parameters, 2)
    parameters.scratch("sums", "const float", at_sums)
    parameters.integer("pitch", columns.padded)
    parameters.integer("component", rows.padded * columns.padded)
    name = f"conv_{w.roles.direction}__winograd_4x4__{op.name}"
    text = kernel_text(
        name,
        [F4.file, "winograd_tile.cuh", "winograd_finish.cuh", "winograd_output.cu"],
        parameters=parameters.text,
        functions=[epilogue],
        constants={"THREADS": _THREADS, "CHANNELS_LAST": w.channels_last, "WIDTH": width},
    )
    blocks = -(-w.tiles * w.outer // (_THREADS * (width if w.channels_last else 1)))
    grid = (min(blocks, 64 * device.sm_count), 1, 1)
    steps.add(Launch(text, "winograd_output", grid, _THREADS, parameters.pack()))
    return steps.kernel(name)


def _batched(
    steps: Steps, rows: Panels, columns: Panels, at_rows: int, at_columns: int, at_sums: int, channels: int
) -> Launch:
    parameters = Parameters(steps.places)
    for name, panels, offset in (("a", rows, at_rows), ("b", columns, at_columns)):
        parameters.scratch(name, "const float", offset)
        parameters.integer(f"{name}_block", panels.block)
        parameters.integer(f"{name}_xi", panels.component)
    parameters.scratch("sums", "float", at_sums)
    parameters.integer("blocks_m", rows.blocks)
    parameters.integer("blocks_n", columns.blocks)
    parameters.integer("padded_channels", channels)
    threads = rows.width * columns.width // 64
    text = kernel_text(
        f"winograd_batched__{rows.width}x{columns.width}",
        ["copies.cuh", "tile_place.cuh", "tile.cuh", "winograd_batched.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            "BM": rows.width, "BN": columns.width, "BK": F4.step, "TM": 8, "TN": 8, "PAD": 0, "THREADS": threads,
            "BLOCKS": 2 if threads == 256 else 3,
            "Staged": "float",
            "Accumulator": "float",
        },
    )  # fmt: skip
    blocks = rows.blocks * columns.blocks * F4.components
    return Launch(text, "winograd_batched", (blocks, 1, 1), threads, parameters.pack())


# What they need, and what they cost.


def _needs(name: str) -> tuple[Constraint, ...]:
    def operands(task: Task) -> tuple[DataType, ...]:
        return tuple(t.data_type for t in convolution_of(task).inputs().values())

    return (
        needs_rule(f"{name}.operation", "conv"),
        kind_need(
            f"{name}.direction",
            "operation",
            lambda task: task.op.main.tag,
            OneOf(ConvForward.tag, ConvBackwardData.tag),
            reason="the filter's gradient has another transform",
            fix="nothing to do: another engine serves this operation",
            when=is_convolution,
        ),
        problem_need(
            name,
            "filter",
            Equals((TAPS, TAPS)),
            reason="the transforms are those of two-dimensional filters of three taps",
            fix="nothing to do: another engine serves this filter",
        ),
        *(
            problem_need(
                name,
                field,
                Each(Equals(1)),
                reason="neighbouring results share inputs only at distance one",
                fix="nothing to do: another engine serves this convolution",
            )
            for field in ("stride", "dilation")
        ),
        problem_need(
            name,
            "groups",
            Equals(1),
            reason="a group has too few channels for the transforms to pay",
            fix="nothing to do: another engine serves groups",
            attribute="w.dims[1]",
        ),
        need(
            f"{name}.operands",
            "data_type",
            operands,
            Each(OneOf(*_STORED)),
            reason="transforms and products run in fp32",
            fix="use FLOAT, HALF or BFLOAT16 operands",
            when=is_convolution,
        ),
        need(
            f"{name}.compute_type",
            "conv.compute_type",
            lambda task: task.op.main.compute_type,
            OneOf(*_STORED),
            reason="transforms and products run in fp32",
            fix="use FLOAT",
            when=is_convolution,
        ),
    )


def _seconds(task: Task, parts: dict[str, float]) -> Cost:
    """Kernels run one after another; ``parts`` are their seconds."""
    op = task.op
    work = sum(flops(step) for step in op.operations)
    return Cost(work, bytes_moved(op), sum(parts.values()), MappingProxyType(parts))


def _waves(blocks: int, resident: int, work: float, device: DeviceSpec) -> float:
    """Seconds of blocks with ``work`` each."""
    pace = device.rate(DataType.FLOAT) * _SHARE / device.sm_count
    return -(-blocks // (resident * device.sm_count)) * resident * work / pace


def _filter_bytes(w: Winograd, u: Panels) -> int:
    spec = w.roles.op.roles[1]
    return int(spec.elements * ELEMENTS[spec.data_type].bytes) + u.bytes


def _cost_2x2(task: Task, knobs: Knobs) -> Cost:
    w, device = Winograd.of(F2, task.op), task.device
    bandwidth = device.bandwidth * _COPY_SHARE
    v, u = Panels.interleaved(w, w.tiles, _TILES), Panels.interleaved(w, w.outer, _OUTER)
    product = _waves(v.blocks * u.blocks, 1, 2 * F2.components * _TILES * _OUTER * w.padded_inner, device)
    results = bytes_moved(task.op) - w.image.bytes
    if _is_from_image(task.op, knobs):
        return _seconds(task, {
            "transform": _filter_bytes(w, u) / bandwidth,
            "product": max(product * (1 + _TRANSFORM), bytes_moved(task.op) / bandwidth),
            "launch": 2 * device.launch,
        })  # fmt: skip
    return _seconds(task, {
        "transform": (w.image.bytes + v.bytes + _filter_bytes(w, u)) / bandwidth,
        "product": max(product, (v.bytes + results) / bandwidth),
        "launch": 3 * device.launch,
    })  # fmt: skip


def _cost_4x4(task: Task, knobs: Knobs) -> Cost:
    w, device = Winograd.of(F4, task.op), task.device
    bandwidth = device.bandwidth * _COPY_SHARE
    v, u = _panels_4x4(w)
    sums = F4.components * v.padded * u.padded * FLOAT_BYTES
    work = 2 * v.width * u.width * w.padded_inner
    resident = 2 if u.width == 128 else 3
    results = bytes_moved(task.op) - w.image.bytes
    blocks = v.blocks * u.blocks * F4.components
    return _seconds(task, {
        "transform": (w.image.bytes + v.bytes + _filter_bytes(w, u) + sums + results) / bandwidth,
        "product": max(_waves(blocks, resident, work, device), (v.bytes + sums) / bandwidth),
        "launch": 4 * device.launch,
    })  # fmt: skip


ENGINE: Engine = cuda_engine(
    id=14,
    name="cuda_winograd",
    summary="3x3 convolutions and their data gradients by F(2x2,3x3) in fp32: 2.25 times fewer products",
    needs=_needs("cuda_winograd"),
    cost=_cost_2x2,
    least=lambda task: least_seconds(task, 2, _FEWER_2X2 * _SHARE * task.device.rate(DataType.FLOAT)),
    generate=_generate_2x2,
    knobs=(_IMAGE,),
    frugal={_IMAGE.type: 0},
    numerical_notes=(NumericalNote.WINOGRAD, NumericalNote.WINOGRAD_TILE_4x4),
    sum_error=SumError(90, 1, of_largest=True, headroom=2.0**7, spreads=True),
)
ENGINE_4X4: Engine = cuda_engine(
    id=15,
    name="cuda_winograd_4x4",
    summary="3x3 convolutions and their data gradients by F(4x4,3x3) in fp32: 4 times fewer products, larger errors",
    needs=_needs("cuda_winograd_4x4"),
    cost=_cost_4x4,
    least=lambda task: least_seconds(task, 4, _FEWER_4X4 * _SHARE * task.device.rate(DataType.FLOAT)),
    generate=_generate_4x4,
    numerical_notes=(NumericalNote.WINOGRAD, NumericalNote.WINOGRAD_TILE_6x6),
    # The matrices of an axis come to 29.6 |x| |w| at most, those of two to 97 times the nine products of a channel, and
    # each passes through n / 9 + 22 roundings.
    sum_error=SumError(2_300, 11, of_largest=True, headroom=2.0**15, spreads=True),
    error_growth=_GROWTH_4X4,
    handicap=_HANDICAP_4X4,
)
