"""The gradient of maxima over windows that lie beside each other: one launch reads x and dy once and writes dx once.

Each element of dx is in one window: the thread that finds a window's maximum again knows what all of it gets.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphdnn.device import DeviceSpec
from graphdnn.dtypes import COMPUTE
from graphdnn.engines.cuda.generator.convolution_roles import padded
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.generator.program import Program, width_for
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.engines.cuda.resampling.axes import add_counts, is_channels_last, resample_space
from graphdnn.engines.cuda.resampling.forward import BLOCKS_PER_SM, THREADS, read
from graphdnn.enums import NanPropagation, ResampleMode
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import ResampleBackward

_MOST_TAPS = 16
_HELD = 256  # bytes of x in the registers of a thread
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Apart:
    """``width``: outputs of a thread; ``along``: neighbours of x in memory that belong to one of them."""

    channels_last: bool
    width: int
    along: int
    taps: tuple[int, int, int]


def apart_of(op: FusedOp, steps: Steps) -> Apart | None:
    """None where windows overlap or leave something out, where x is not read again, or not in whole packs."""
    anchor = op.anchor
    assert isinstance(anchor, ResampleBackward)
    if not is_apart(anchor):
        return None
    assert anchor.x is not None
    taps = padded(tuple(int(w) for w in anchor.spec.window_dims), 1)
    channels_last = is_channels_last(anchor.dx)
    x_space, y_space = (resample_space(t, channels_last) for t in (anchor.dx, anchor.dy))
    x_width = width_for(x_space, [anchor.x, *steps.epilogue_tensors()])
    y_width = width_for(y_space, read(op, anchor.dy))
    along = 1 if channels_last else taps[2]
    held = _HELD // (prod(taps) * COMPUTE[anchor.compute_type].itemsize)
    width = min(x_width // along, y_width, 1 << held.bit_length() - 1, _WIDTHS[-1])
    if along not in _WIDTHS or width not in _WIDTHS:
        return None
    return Apart(channels_last, width, along, (taps[0], taps[1], taps[2]))


def is_apart(anchor: ResampleBackward) -> bool:
    spec, x, y = anchor.spec, anchor.dx.extents[2:], anchor.dy.extents[2:]
    return (
        spec.mode is ResampleMode.MAXPOOL
        and anchor.index is None
        and spec.strides == spec.window_dims
        and not any(spec.pre_paddings)
        and all(to == of * int(w) for to, of, w in zip(x, y, spec.window_dims, strict=True))
        and prod(map(int, spec.window_dims)) <= _MOST_TAPS
    )


def generate_apart(op: FusedOp, steps: Steps, apart: Apart, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, ResampleBackward)
    assert anchor.x is not None
    parameters = Parameters(steps.places)
    compute = COMPUTE_TYPE[anchor.compute_type]
    x_space, y_space = (resample_space(t, apart.channels_last) for t in (anchor.dx, anchor.dy))
    x_width = apart.width * apart.along
    source = Program(op, parameters, x_space, "s", width=x_width)
    source.result("value", anchor.x, compute)
    prologue = Program(op, parameters, y_space, "y", width=apart.width)
    prologue.apply(op.prologue)
    prologue.result("value", anchor.dy, compute)
    body = Program(op, parameters, x_space, "x", width=x_width)
    steps.finish(body, "acc", compute)
    functions = [
        source.function("source", f"{compute} (&value)[{x_width}]"),
        prologue.function("prologue", f"{compute} (&value)[{apart.width}]"),
        body.function("epilogue", f"const {compute} (&acc)[{x_width}]"),
    ]
    count = add_counts(parameters, y_space, apart.width)
    name = f"resample_maxpool_bwd__apart_v{apart.width}x{apart.along}__{op.name}"
    text = kernel_text(
        name,
        ["next_launch.cuh", "quotient.cuh", "resample_order.cuh", "resample_apart.cu"],
        parameters=parameters.text,
        functions=functions,
        constants={
            "CHANNELS_LAST": apart.channels_last,
            "MISSING_AXES": 3 - anchor.spec.spatial_dims,
            **{f"TAPS_{axis}": taps for axis, taps in enumerate(apart.taps)},
            "PROPAGATE": anchor.spec.nan_propagation is NanPropagation.PROPAGATE_NAN,
            "THREADS": THREADS,
            "WIDTH": apart.width,
            "ALONG": apart.along,
            "Compute": compute,
            "Count": "unsigned int" if count < 2**31 else "unsigned long long",
        },
    )
    blocks = min(-(-count // THREADS), BLOCKS_PER_SM * device.sm_count)
    steps.add_early(Launch(text, "resample_apart", (blocks, 1, 1), THREADS, parameters.pack()))
    return steps.kernel(name)
