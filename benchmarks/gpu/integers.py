"""Exact integer convolution: finding an image in others by correlation, wide integers, and layers of bytes.

PyTorch refuses every one of them. Bytes meet cuDNN's own graph calls and a float16 convolution of the same extents, the
others only floating convolutions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gpu.convolutions import DENSE_LAYERS, QUICK, convolve
from gpu.cudnn_graph import ByteConvolution, fastest
from gpu.fills import Integers, Normal, Uniform
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


def byte_problem(layer: Layer, result: str) -> Problem:
    """int8 operands: the sums as int32, or relu(scale * sum + bias) as int8 or float32, scale and bias by channel."""
    s = Sketch(layer.name, "int8", channels_last=True)
    x, w = s.data("x", layer.x_dims, INT8), s.data("w", layer.w_dims, INT8)
    pair = [layer.stride] * 2, [layer.padding] * 2
    y = s.graph.conv_fprop(x, w, stride=pair[0], padding=pair[1], compute_data_type="int32")
    is_alone = result == "int32"
    if not is_alone:
        y.set_data_type("int32")
        size = (layer.c * layer.r * layer.s) ** -0.5 / 74.0**2 * 48.0  # results fill a byte, a few are cut off
        scale = s.channel("scale", layer.k, Uniform(0.5 * size, 1.5 * size))
        scaled = s.graph.mul(y, scale, compute_data_type="float32").set_data_type("float32")
        moved = s.graph.bias(scaled, s.channel("b", layer.k, Normal(20.0)), compute_data_type="float32")
        y = s.graph.relu(moved.set_data_type("float32"), compute_data_type="float32")

    def formula(torch: Any, t: Tensors) -> Tensors:
        sums = convolve(torch, layer, t["x"], t["w"])
        if is_alone:
            return {"y": sums}
        values = (sums.float() * t["scale"].float() + t["b"].float()).relu()  # each step rounded to float32
        return {"y": (values.round().clamp(max=127) if result == "int8" else values).double()}

    made: dict[str, tuple[ByteConvolution, int]] = {}  # once for all sets of operands

    def bytes_(choice: str, torch: Any, t: Tensors) -> Callable[[], Any]:
        y = torch.empty(layer.y_dims, dtype=getattr(torch, result), device=t["x"].device)
        y = y.as_strided(layer.y_dims, s.strides(layer.y_dims))
        given = {**t, "y": y}
        if choice not in made:
            convolution = made["fastest"][0] if made else ByteConvolution(result, t["x"], t["w"], *pair, y)
            made[choice] = convolution, fastest(torch, convolution, given) if choice == "fastest" else 0
        call = made[choice][0].on(torch, given, made[choice][1])

        def run() -> Any:
            call(torch.cuda.current_stream())
            return y

        return run

    def halves(torch: Any, t: Tensors) -> Callable[[], Any]:
        x, w = (t[name].to(torch.float16) for name in ("x", "w"))
        if is_alone:
            return lambda: convolve(torch, layer, x, w)
        b = t["b"].reshape(-1).to(torch.float16)
        return lambda: torch.cudnn_convolution_relu(x, w, b, *pair, [1, 1], 1)

    return s.problem(
        {"y": (y, result)},
        formula=formula,
        peers=(
            Peer("cudnn int8", partial(bytes_, "fastest"), ("y",)),
            Peer("cudnn int8, its first choice", partial(bytes_, "first"), part=True),
            Peer("cudnn float16", halves, part=True),
        ),
        flops=layer.flops,
    )


def _wide(name: str, data_type: str, result: str, fill: Integers) -> Case:
    describe = partial(integer_problem, LAYERS[name], data_type, result, fill, channels_last=True, peer_type="float32")
    label = f"{name}_{data_type.replace('int', 'i')}_{result.replace('int', 'i')}"
    return Case(label, describe, note="beside a float32 convolution, which is not exact: PyTorch has no integer one")


INTEGERS = Group(
    "integers",
    "exact integer convolution",
    (
        _template("i16_i32", "int16", "int32", PIXELS, quick=True),
        _template("i16_i64", "int16", "int64", INT16),
        _template("i32_i32", "int32", "int32", PIXELS),
        _wide("vgg_3x3_256", "int16", "int64", INT16),
        _wide("vgg_3x3_256", "int16", "int32", PIXELS),
        _wide("vgg_3x3_256", "int32", "int32", PIXELS),
    ),
)

BYTES = Group(
    "bytes",
    "int8 convolution, NHWC: int32 sums, or scale + bias + ReLU to int8 or fp32",
    tuple(
        Case(
            f"{layer.name}_bytes_{short}",
            partial(byte_problem, layer, result),
            quick=layer.name in QUICK,
            note="ratio to cuDNN's own int8 engines; its float16 is shown beside them"
            + (", with half the bytes of results" if short == "i32" else ""),
        )
        for short, result in (("i8", "int8"), ("f32", "float32"), ("i32", "int32"))
        for layer in DENSE_LAYERS.values()
    ),
    by_default=False,
)
