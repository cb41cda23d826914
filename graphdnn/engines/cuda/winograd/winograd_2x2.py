"""Engine ``cuda_winograd``: 3x3 convolutions by F(2x2, 3x3) in fp32 (see the package)."""

from __future__ import annotations

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import least_seconds_in_sequence, memory_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.winograd.launch_times import (
    COPY_SHARE,
    SHARE,
    filter_bytes,
    least_sizes,
    sequence_cost,
    waves,
)
from graphdnn.engines.cuda.winograd.winograd_epilogue import output_epilogue
from graphdnn.engines.cuda.winograd.winograd_layout import FLOAT_BYTES, Algorithm, Panels, Winograd
from graphdnn.engines.cuda.winograd.winograd_requirements import winograd_needs
from graphdnn.engines.cuda.winograd.winograd_transforms import image_fields, transform_filter, transform_image
from graphdnn.engines.engine import Cost, Knob, Knobs, Task
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import DataType, KnobType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp

F2 = Algorithm(2, 8)

_TILES, _OUTER, _THREADS = 32, 64, 256  # image tiles, output channels and threads of a CTA
_PAD = 4  # elements after the tiles of a channel, and after a row of the exchange
_STAGES_SIZE = 2 * F2.step * (F2.components * (_TILES + _OUTER) + _PAD)  # elements of shared memory
_EXCHANGE_SIZE = F2.components * 32 * (32 + _PAD)
_SAVING = 2.25  # multiplications of a direct convolution over those of F(2x2, 3x3)
_TRANSFORM = 0.1  # time that a fused input transform adds, relative to the GEMMs

_IMAGE = Knob(
    KnobType.LDGA,
    0,
    1,
    1,
    0,
    "0: the products' kernel transforms the image, unless a chain stands before it; 1: a kernel of its own does",
)


def _generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    w, steps = Winograd.of(F2, op), LaunchSequence(op, device)
    v, u = Panels.interleaved(w, w.tiles, _TILES), Panels.interleaved(w, w.outer, _OUTER)
    fused_transform = _fuses_input_transform(op, knobs)
    at_u = steps.allocate(u.bytes)
    at_v = 0 if fused_transform else steps.allocate(v.bytes)
    if not fused_transform:
        transform_image(op, w, v, steps, at_v)
    transform_filter(w, u, steps, at_u)
    parameters = Parameters(steps.workspace_offsets)
    epilogue, width = output_epilogue(op, w, steps, parameters, 4)
    stored = "float"
    if fused_transform:
        stored = STORAGE[w.image.data_type]
        parameters.tensor("image", w.image)
        parameters.null_pointer("v", "const float")
    else:
        parameters.null_pointer("image", "const float")
        parameters.workspace_pointer("v", "const float", at_v)
    image_fields(w, parameters)
    parameters.integers("image_size", w.image_size)
    parameters.workspace_pointer("u", "const float", at_u)
    parameters.integer("v_block", v.block)
    parameters.integer("u_block", u.block)
    work_tiles = v.blocks * u.blocks
    parameters.integer("work_tiles", work_tiles)
    overlaps_epilogue = device.shared_memory - RESERVED >= (_STAGES_SIZE + _EXCHANGE_SIZE) * FLOAT_BYTES
    shared = _STAGES_SIZE + (_EXCHANGE_SIZE if overlaps_epilogue else 0)
    name = f"conv_{w.roles.direction}__winograd_2x2{'' if fused_transform else '_v'}__{op.name}"
    text = kernel_text(
        name,
        ["winograd_product.cu"],
        variants=F2.variants,
        parameters=parameters.text,
        functions=[epilogue],
        constants={
            "THREADS": _THREADS,
            "BLOCK_TILES": _TILES,
            "BLOCK_OUTER": _OUTER,
            "CHANNELS_LAST": w.channels_last,
            "IMAGE_CHANNELS_LAST": w.image_channels_last,
            "FUSED_INPUT_TRANSFORM": fused_transform,
            "OVERLAP_EPILOGUE": overlaps_epilogue,
            "VEC_WIDTH": width,
            "Image": stored,
        },
    )
    grid = (min(work_tiles, device.sm_count) if overlaps_epilogue else work_tiles, 1, 1)
    steps.add(Launch(text, "winograd_product", grid, _THREADS, parameters.pack(), shared * FLOAT_BYTES))
    return steps.kernel(name)


def _fuses_input_transform(op: FusedOp, knobs: Knobs) -> bool:
    """Whether winograd_product transforms the image; each CTA along the result's channels repeats the transform."""
    return not op.prologue and not knobs[_IMAGE.type]


def _block_work(padded_inner: int) -> int:
    return 2 * F2.components * _TILES * _OUTER * padded_inner


def _cost(task: Task, knobs: Knobs) -> Cost:
    w, device = Winograd.of(F2, task.op), task.device
    bandwidth = device.bandwidth * COPY_SHARE
    v, u = Panels.interleaved(w, w.tiles, _TILES), Panels.interleaved(w, w.outer, _OUTER)
    product = waves(v.blocks * u.blocks, 1, _block_work(w.padded_inner), device)
    results = bytes_moved(task.op) - w.image.bytes
    if _fuses_input_transform(task.op, knobs):
        return sequence_cost(task, {
            "transform": filter_bytes(w, u) / bandwidth,
            "product": max(product * (1 + _TRANSFORM), bytes_moved(task.op) / bandwidth),
            "launch": 2 * device.launch,
        })  # fmt: skip
    return sequence_cost(task, {
        "transform": (w.image.bytes + v.bytes + filter_bytes(w, u)) / bandwidth,
        "product": max(product, (v.bytes + results) / bandwidth),
        "launch": 3 * device.launch,
    })  # fmt: skip


def _closer(task: Task) -> float:
    """A closer bound: GEMMs in whole waves of CTAs, and the faster of the two ways to transform the image."""
    tiles, outer, inner = least_sizes(task, F2)
    device, blocks = task.device, -(-tiles // _TILES) * -(-outer // _OUTER)
    product = waves(blocks, 1, _block_work(inner), device)
    return 2 * device.launch + max(product + min(product * _TRANSFORM, device.launch), memory_seconds(task))


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    return {_IMAGE.type: int(not _fuses_input_transform(task.op, knobs))}


ENGINE = cuda_engine(
    id=14,
    name="cuda_winograd",
    summary="3x3 convolutions and their data gradients by F(2x2,3x3) in fp32: 2.25 times fewer products",
    needs=winograd_needs("cuda_winograd"),
    cost=_cost,
    least=lambda task: least_seconds_in_sequence(task, 2, _SAVING * SHARE * task.device.rate(DataType.FLOAT)),
    closer=_closer,
    generate=_generate,
    knobs=(_IMAGE,),
    effective=_effective,
    frugal={_IMAGE.type: 0},
    numerical_notes=(NumericalNote.WINOGRAD, NumericalNote.WINOGRAD_TILE_4x4),
    sum_error=SumError(90, 1, of_largest=True, headroom=2.0**7, spreads=True),
)
