"""Engine ``cuda_winograd_4x4``: 3x3 convolutions by F(4x4, 3x3) in fp32 (see the package)."""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import least_seconds_in_sequence, memory_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import Parameters
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
from graphdnn.engines.cuda.winograd.winograd_transforms import transform_filter, transform_image
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import DataType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp

F4 = Algorithm(4, 8)

_THREADS = 256  # threads of a CTA of the output transform
_TILES = 128  # image tiles of a CTA of the GEMMs
_SAVING = 4.0  # multiplications of a direct convolution over those of F(4x4, 3x3)
_GROWTH = 6.0  # the largest error, relative to that of F(2x2) and of a direct sum
_HANDICAP = 1.25  # an engine with smaller errors goes first unless this one saves a fifth of its time


def _panels(w: Winograd) -> tuple[Panels, Panels]:
    """The packed image and the packed filter."""
    return Panels.separate(w, w.tiles, _TILES), Panels.separate(w, w.outer, _width(w.outer))


def _width(channels: int) -> int:
    """Output channels of a CTA: 128, or 64 where the last 128 would be half empty."""
    return 64 if channels % 128 and channels % 128 <= 64 else 128


def _resident(width: int) -> int:
    """CTAs of the GEMMs on an SM."""
    return 2 if width == 128 else 3


def _generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    w, steps = Winograd.of(F4, op), LaunchSequence(op, device)
    v, u = _panels(w)
    at_v, at_u = steps.allocate(v.bytes), steps.allocate(u.bytes)
    at_sums = steps.allocate(F4.components * v.padded * u.padded * FLOAT_BYTES)
    transform_image(op, w, v, steps, at_v)
    transform_filter(w, u, steps, at_u)
    rows, columns, at_rows, at_columns = (v, u, at_v, at_u) if w.channels_last else (u, v, at_u, at_v)
    steps.add(_batched(steps, rows, columns, at_rows, at_columns, at_sums, w.padded_inner))

    parameters = Parameters(steps.workspace_offsets)
    epilogue, width = output_epilogue(op, w, steps, parameters, 2)
    parameters.workspace_pointer("sums", "const float", at_sums)
    parameters.integer("pitch", columns.padded)
    parameters.integer("component", rows.padded * columns.padded)
    name = f"conv_{w.roles.direction}__winograd_4x4__{op.name}"
    text = kernel_text(
        name,
        ["winograd_output.cu"],
        variants=F4.variants,
        parameters=parameters.text,
        functions=[epilogue],
        constants={"THREADS": _THREADS, "CHANNELS_LAST": w.channels_last, "VEC_WIDTH": width},
    )
    blocks = -(-w.tiles * w.outer // (_THREADS * (width if w.channels_last else 1)))
    grid = (min(blocks, 64 * device.sm_count), 1, 1)
    steps.add(Launch(text, "winograd_output", grid, _THREADS, parameters.pack()))
    return steps.kernel(name)


def _batched(
    steps: LaunchSequence, rows: Panels, columns: Panels, at_rows: int, at_columns: int, at_sums: int, channels: int
) -> Launch:
    parameters = Parameters(steps.workspace_offsets)
    for name, panels, offset in (("a", rows, at_rows), ("b", columns, at_columns)):
        parameters.workspace_pointer(name, "const float", offset)
        parameters.integer(f"{name}_block", panels.block)
        parameters.integer(f"{name}_xi", panels.component)
    parameters.workspace_pointer("sums", "float", at_sums)
    parameters.integer("blocks_m", rows.blocks)
    parameters.integer("blocks_n", columns.blocks)
    parameters.integer("padded_channels", channels)
    threads = rows.width * columns.width // 64
    text = kernel_text(
        f"winograd_batched__{rows.width}x{columns.width}",
        ["winograd_batched.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            "TILE_M": rows.width, "TILE_N": columns.width, "TILE_K": F4.step, "TM": 8, "TN": 8,
            "PAD": 0, "THREADS": threads,
            "CTAS_PER_SM": 2 if threads == 256 else 3,
            "Staged": "float",
            "Accum": "float",
        },
    )  # fmt: skip
    blocks = rows.blocks * columns.blocks * F4.components
    return Launch(text, "winograd_batched", (blocks, 1, 1), threads, parameters.pack())


def _cost(task: Task, knobs: Knobs) -> Cost:
    w, device = Winograd.of(F4, task.op), task.device
    bandwidth = device.bandwidth * COPY_SHARE
    v, u = _panels(w)
    sums = F4.components * v.padded * u.padded * FLOAT_BYTES
    work = 2 * v.width * u.width * w.padded_inner
    results = bytes_moved(task.op) - w.image.bytes
    blocks = v.blocks * u.blocks * F4.components
    return sequence_cost(task, {
        "transform": (w.image.bytes + v.bytes + filter_bytes(w, u) + sums + results) / bandwidth,
        "product": max(waves(blocks, _resident(u.width), work, device), (v.bytes + sums) / bandwidth),
        "launch": 4 * device.launch,
    })  # fmt: skip


def _closer(task: Task) -> float:
    """A closer bound: GEMMs in whole waves of CTAs, and the memory traffic of operands, transformed tiles and sums."""
    tiles, outer, inner = least_sizes(task, F4)
    device, width = task.device, _width(outer)
    rows, columns = -(-tiles // _TILES), -(-outer // width)
    product = waves(rows * columns * F4.components, _resident(width), 2 * _TILES * width * inner, device)
    kept = rows * _TILES * (inner + columns * width) * F4.components * FLOAT_BYTES
    return 4 * device.launch + product + kept / (device.bandwidth * COPY_SHARE) + memory_seconds(task)


ENGINE = cuda_engine(
    id=15,
    name="cuda_winograd_4x4",
    summary="3x3 convolutions and their data gradients by F(4x4,3x3) in fp32: 4 times fewer products, larger errors",
    needs=winograd_needs("cuda_winograd_4x4"),
    cost=_cost,
    least=lambda task: least_seconds_in_sequence(task, 4, _SAVING * SHARE * task.device.rate(DataType.FLOAT)),
    closer=_closer,
    generate=_generate,
    numerical_notes=(NumericalNote.WINOGRAD, NumericalNote.WINOGRAD_TILE_6x6),
    # The transforms of one axis grow |x| |w| by at most 29.6, the transforms of two axes by 97 relative to the nine
    # products of a channel; each value passes through n / 9 + 22 roundings.
    sum_error=SumError(2_300, 11, of_largest=True, headroom=2.0**15, spreads=True),
    error_growth=_GROWTH,
    handicap=_HANDICAP,
)
