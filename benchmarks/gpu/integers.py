"""Exact integer convolution: finding an image in others by correlation, and int8 layers with int32 sums.

PyTorch refuses every one of them, so the peers are floating convolutions of the same extents.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gpu.convolutions import convolve
from gpu.fills import Integers
from gpu.layers import LAYERS, TEMPLATE_MATCHING, Layer
from gpu.problem import Case, Group, Peer, Problem, Tensors
from gpu.sketch import Sketch

PIXELS = Integers(0, 255)
INT8, INT16 = Integers(-128, 127), Integers(-(2**15), 2**15 - 1)


def integer_problem(
    layer: Layer, data_type: str, result: str, fill: Integers, *, channels_last: bool, peer_type: str
) -> Problem:
    """Sums in ``result``'s type. float64 is exact as a reference: no sum of these values reaches 2^53."""
    s = Sketch(layer.name, data_type, channels_last=channels_last, compute=result)
    x, w = s.data("x", layer.x_dims, fill), s.data("w", layer.w_dims, fill)
    geometry: dict[str, Any] = {"padding": [layer.padding] * 2, "stride": [layer.stride] * 2}
    y = s.graph.conv_fprop(x, w, **geometry)
    # The float32 peer is right to a rounding, which is what is asked of it; float16 overflows and is only timed.
    gives = ("y",) if peer_type == "float32" else ()

    def prepare(torch: Any, t: Tensors) -> Callable[[], Any]:
        x, w = (t[name].to(getattr(torch, peer_type)) for name in ("x", "w"))
        return lambda: convolve(torch, layer, x, w)

    return s.problem(
        {"y": (y, result)},
        formula=lambda torch, t: {"y": convolve(torch, layer, t["x"], t["w"])},
        peers=(Peer(f"conv2d {peer_type}", prepare, gives),),
        flops=layer.flops,
    )


def _template(name: str, data_type: str, result: str, fill: Integers, quick: bool = False) -> Case:
    describe = partial(
        integer_problem, TEMPLATE_MATCHING, data_type, result, fill, channels_last=False, peer_type="float32"
    )
    return Case(f"template_{name}", describe, quick, note="cuDNN has fp32 only, which is not exact")


def _wide(name: str, data_type: str, result: str, fill: Integers, quick: bool = False) -> Case:
    """int16 beside float32, which is not exact; int8 beside float16: PyTorch has no integer convolution on a GPU."""
    peer = "float16" if data_type == "int8" else "float32"
    describe = partial(integer_problem, LAYERS[name], data_type, result, fill, channels_last=True, peer_type=peer)
    label = f"{name}_{data_type.replace('int', 'i')}_{result.replace('int', 'i')}"
    return Case(label, describe, quick, note=f"beside a {peer} convolution: PyTorch has no integer one on a GPU")


INTEGERS = Group(
    "integers",
    "exact integer convolution",
    (
        _template("i16_i32", "int16", "int32", PIXELS, quick=True),
        _template("i16_i64", "int16", "int64", INT16),
        _template("i32_i32", "int32", "int32", PIXELS),
        *(_wide(name, "int8", "int32", INT8, quick=name == "c3_3x3") for name in ("c3_3x3", "c3_3x3s2", "c3_1x1b")),
        _wide("vgg_3x3_256", "int8", "int32", INT8),
        _wide("vgg_3x3_256", "int16", "int64", INT16),
        _wide("vgg_3x3_256", "int16", "int32", PIXELS),
        _wide("vgg_3x3_256", "int32", "int32", PIXELS),
    ),
)
