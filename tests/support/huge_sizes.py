"""Operations of every kind whose sizes can be set one by one; whatever follows from a size is set with it.

``FAMILIES`` has for each of them its sizes, with small values, and what makes the operation of sizes. A name that ends
in "s" is set on all spatial axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from legal_problems import bernoulli, convolution, pooling, reduction, scalar, tensor
from recurrent_cases import spec as network

from graphdnn.enums import (
    ConvolutionMode,
    NormMode,
    NormPhase,
    PaddingMode,
    PointwiseMode,
    ReductionOperator,
    ResampleMode,
)
from graphdnn.operations import EXTENSIONS, OPERATIONS, MatmulSpec, Operation, PointwiseSpec
from graphdnn.operations.conv_problem import output_extent
from graphdnn.tensors import TensorSpec, channels_last_strides

Sizes = Mapping[str, int]
TABLE: dict[str, type[Operation]] = {**OPERATIONS, **EXTENSIONS}


@dataclass(frozen=True, slots=True)
class Family:
    """``name`` begins with the operation's tag."""

    name: str
    sizes: Sizes
    make: Callable[..., Operation]

    @property
    def tag(self) -> str:
        return self.name.split()[0]

    def of(self, **changes: int) -> Operation:
        return self.make(**{**self.sizes, **changes})


def _image(uid: int, dims: tuple[int, ...], data_type: str, channels_last: bool) -> TensorSpec:
    return tensor(uid, dims, data_type, **({"strides": channels_last_strides(dims)} if channels_last else {}))


def _pairs(sizes: Sizes, name: str) -> tuple[int, int]:
    """Of H and W: the size named, larger on W alone where that is set."""
    return sizes[f"{name}s"], max(sizes[f"{name}s"], sizes[name])


CONVOLUTION = {
    "n": 2, "groups": 1, "c": 16, "k": 16, "size": 1, "sizes": 8, "filter": 1, "filters": 3, "stride": 1, "strides": 1,
    "dilation": 1, "dilations": 1, "pre": 0, "pres": 1, "post": 0, "posts": 1,
}  # fmt: skip


def _convolution(tag: str, data_type: str, channels_last: bool, flip: bool = False) -> Callable[..., Operation]:
    def make(**sizes: int) -> Operation:
        size, taps, stride, dilation, pre, post = (
            _pairs(sizes, name) for name in ("size", "filter", "stride", "dilation", "pre", "post")
        )
        # The image holds the filter, so that a large filter is no refusal of its own.
        size = tuple(
            [max(s, d * (f - 1) + 1 - a - b) for s, d, f, a, b in zip(size, dilation, taps, pre, post, strict=False)]
        )
        out = tuple([output_extent(*axis) for axis in zip(size, taps, pre, post, stride, dilation, strict=False)])
        n, g, c, k = (sizes[name] for name in ("n", "groups", "c", "k"))
        result = "i32" if data_type.startswith("i") else data_type
        types = {"conv_fprop": (data_type, data_type, result), "conv_dgrad": (result, data_type, data_type),
                 "conv_wgrad": (data_type, result, data_type)}[tag]  # fmt: skip
        names = {"conv_fprop": "x w y", "conv_dgrad": "dx w dy", "conv_wgrad": "x dw dy"}[tag].split()
        x, w, y = (n, g * c, *size), (g * k, c, *taps), (n, g * k, *out)
        if data_type.startswith("i") and tag != "conv_fprop":
            types = ("i32",) * 3 if tag == "conv_wgrad" else (data_type, data_type, data_type)
        kinds = dict(zip(("x", "w", "y"), (types[0], types[1], types[2]), strict=True))
        tensors = {
            name: _image(uid, dims, kinds[role], channels_last)
            for uid, (name, role, dims) in enumerate(zip(names, "xwy", (x, w, y), strict=True), start=1)
        }
        conv = convolution(
            compute_type="i32" if data_type.startswith("i") else "f64" if data_type == "f64" else "f32",
            mode=ConvolutionMode.CONVOLUTION if flip else ConvolutionMode.CROSS_CORRELATION,
            dilations=dilation, filter_strides=stride, pre_paddings=pre, post_paddings=post,
        )  # fmt: skip
        return TABLE[tag](**tensors, conv=conv)

    return make


def _families_of_convolutions() -> list[Family]:
    kinds = [("f16", True), ("f32", False), ("f32", True), ("i8", True), ("i16", False), ("f64", False), ("f16", False)]
    wide = {"groups of one": {"groups": 64, "c": 1, "k": 1}, "narrow groups": {"groups": 16, "c": 4, "k": 4},
            "first layer": {"c": 3, "k": 64}, "few outputs": {"c": 64, "k": 2}}  # fmt: skip
    found = []
    for tag in ("conv_fprop", "conv_dgrad", "conv_wgrad"):
        for data_type, last in kinds:
            layout = "channels last" if last else "channels first"
            found.append(Family(f"{tag} {data_type} {layout}", CONVOLUTION, _convolution(tag, data_type, last)))
        for name, sizes in wide.items():
            of = _convolution(tag, "f16", True)
            found.append(Family(f"{tag} {name}", {**CONVOLUTION, **sizes}, of))
        found.append(Family(f"{tag} flipped", CONVOLUTION, _convolution(tag, "f32", False, flip=True)))
    return found


def _matmul(data_type: str) -> Callable[..., Operation]:
    def make(n: int, rows: int, depth: int, columns: int) -> Operation:
        whole = data_type.startswith("i")
        a, b, c = (n, rows, depth), (n, depth, columns), (n, rows, columns)
        return TABLE["matmul"](
            a=tensor(1, a, data_type), b=tensor(2, b, data_type), c=tensor(3, c, "i32" if whole else data_type),
            spec=MatmulSpec(compute_type="i32" if whole else "f32"),
        )  # fmt: skip

    return make


def _matmul_of_one(n: int, rows: int, depth: int, columns: int) -> Operation:
    return TABLE["matmul"](
        a=tensor(1, (n, rows, depth), "f16"), b=tensor(2, (1, depth, columns), "f16"),
        c=tensor(3, (n, rows, columns), "f16"), spec=MatmulSpec(compute_type="f32"),
    )  # fmt: skip


PLANES = {"n": 2, "c": 8, "h": 8, "w": 8}


def _pointwise(broadcast: bool) -> Callable[..., Operation]:
    def make(n: int, c: int, h: int, w: int) -> Operation:
        other = (1, c, 1, 1) if broadcast else (n, c, h, w)
        spec = PointwiseSpec(mode=PointwiseMode.ADD, math_type="f32")
        x, y = tensor(1, (n, c, h, w), "f16"), tensor(3, (n, c, h, w), "f16")
        return TABLE["pointwise"](x=x, b=tensor(2, other, "f16"), y=y, spec=spec)

    return make


def _reduction(kept: tuple[bool, ...], operator: ReductionOperator) -> Callable[..., Operation]:
    def make(**sizes: int) -> Operation:
        dims = tuple(sizes.values())
        out = tuple(d if is_kept else 1 for d, is_kept in zip(dims, kept, strict=True))
        return TABLE["reduction"](x=tensor(1, dims, "f16"), y=tensor(2, out, "f16"), spec=reduction(operator))

    return make


RESAMPLING = {
    "n": 2, "c": 8, "size": 1, "sizes": 8, "window": 1, "windows": 2, "stride": 1, "strides": 2, "pre": 0, "pres": 0,
    "post": 0, "posts": 0,
}  # fmt: skip


def _resample(tag: str, mode: ResampleMode, channels_last: bool, indexed: bool = False) -> Callable[..., Operation]:
    def make(**sizes: int) -> Operation:
        size, window, stride, pre, post = (_pairs(sizes, name) for name in ("size", "window", "stride", "pre", "post"))
        size = tuple([max(s, f - a - b) for s, f, a, b in zip(size, window, pre, post, strict=False)])
        out = tuple(
            [output_extent(s, f, a, b, t, 1) for s, f, a, b, t in zip(size, window, pre, post, stride, strict=False)]
        )
        x, y = (sizes["n"], sizes["c"], *size), (sizes["n"], sizes["c"], *out)
        padding = PaddingMode.NEG_INF_PAD if mode is ResampleMode.MAXPOOL else PaddingMode.ZERO_PAD
        spec = pooling(mode=mode, padding_mode=padding, strides=stride, pre_paddings=pre, post_paddings=post,
                       window_dims=window)  # fmt: skip
        names = ("x", "y") if tag == "resample_fwd" else ("dx", "dy")
        tensors = {names[0]: _image(1, x, "f16", channels_last), names[1]: _image(2, y, "f16", channels_last)}
        if indexed:
            tensors["index"] = _image(3, y, "i64", channels_last)
        elif tag == "resample_bwd" and mode is ResampleMode.MAXPOOL:
            tensors |= {"x": _image(4, x, "f16", channels_last), "y": _image(5, y, "f16", channels_last)}
        return TABLE[tag](**tensors, spec=spec)

    return make


def _channels(names: str, c: int, data_type: str = "f32") -> dict[str, TensorSpec]:
    return {name: tensor(uid, (1, c, 1, 1), data_type) for uid, name in enumerate(names.split(), start=10)}


def _genstats(n: int, c: int, h: int, w: int) -> Operation:
    return TABLE["genstats"](x=tensor(1, (n, c, h, w), "f16"), math_type="f32", **_channels("sum sqsum", c))


def _bn_finalize(c: int) -> Operation:
    from legal_problems import LEGAL

    fields = LEGAL["bn_finalize"]()
    wide = {
        name: tensor(value.uid, (1, c, 1, 1))
        for name, value in fields.items()
        if isinstance(value, TensorSpec) and value.elements > 1
    }
    return TABLE["bn_finalize"](**{**fields, **wide})


def _bn_bwd_weights(n: int, c: int, h: int, w: int) -> Operation:
    ports = "mean inv_std scale dscale dbias eq_dy_scale eq_x_scale eq_bias"
    x, dy = tensor(1, (n, c, h, w), "f16"), tensor(2, (n, c, h, w), "f16")
    return TABLE["bn_bwd_weights"](math_type="f32", x=x, dy=dy, **_channels(ports, c))


def _norm(tag: str, mode: NormMode, channels_last: bool) -> Callable[..., Operation]:
    def make(n: int, c: int, h: int, w: int) -> Operation:
        dims = (n, c, h, w)
        about = {NormMode.LAYER_NORM: (n, 1, 1, 1), NormMode.INSTANCE_NORM: (n, c, 1, 1)}.get(mode, (1, c, 1, 1))
        along = (1, c, h, w) if mode is NormMode.LAYER_NORM else (1, c, 1, 1)
        image = {p: _image(uid, dims, "f16", channels_last) for uid, p in enumerate(("x", "dy", "dx", "y"), start=1)}
        if tag == "norm_fwd":
            fields = {
                "x": image["x"], "y": image["y"], "phase": NormPhase.TRAINING,
                "epsilon": scalar(5, 4, is_by_value=True), "scale": tensor(6, along), "bias": tensor(7, along),
                "mean": tensor(8, about), "inv_variance": tensor(9, about),
            }  # fmt: skip
        else:
            fields = {
                "x": image["x"], "dy": image["dy"], "dx": image["dx"], "mean": tensor(6, about),
                "inv_variance": tensor(7, about), "scale": tensor(8, along), "dscale": tensor(9, along),
                "dbias": tensor(10, along),
            }  # fmt: skip
        return TABLE[tag](mode=mode, **fields)

    return make


def _concat(a: int, b: int, outer: int, inner: int) -> Operation:
    return TABLE["concat"](
        inputs_list=(tensor(1, (outer, a, inner), "f16"), tensor(2, (outer, b, inner), "f16")),
        y=tensor(3, (outer, a + b, inner), "f16"), axis=1,
    )  # fmt: skip


def _reshape(a: int, b: int) -> Operation:
    return TABLE["reshape"](x=tensor(1, (a, b), "f16"), y=tensor(2, (b, a), "f16"))


def _transpose(a: int, b: int, c: int) -> Operation:
    return TABLE["transpose"](x=tensor(1, (a, b, c), "f16"), y=tensor(2, (c, a, b), "f16"), permutation=(2, 0, 1))


def _slice(outer: int, start: int, count: int, stride: int, inner: int) -> Operation:
    limit = start + (count - 1) * stride + 1
    return TABLE["slice"](
        x=tensor(1, (outer, limit, inner), "f16"), y=tensor(2, (outer, count, inner), "f16"), starts=(0, start, 0),
        limits=(outer, limit, inner), slice_strides=(1, stride, 1),
    )  # fmt: skip


def _rng(rows: int, columns: int) -> Operation:
    return TABLE["rng"](y=tensor(1, (rows, columns)), spec=bernoulli(), offset=scalar(2, 2, "i64", is_by_value=True))


GRID = {"n": 2, "c": 4, "h": 5, "w": 6, "p": 4, "q": 3}


def _grid_sample(n: int, c: int, h: int, w: int, p: int, q: int) -> Operation:
    return TABLE["grid_sample"](
        x=tensor(1, (n, c, h, w)), grid=tensor(2, (n, p, q, 2)), y=tensor(3, (n, c, p, q)),
    )  # fmt: skip


def _grid_sample_bwd(n: int, c: int, h: int, w: int, p: int, q: int) -> Operation:
    return TABLE["grid_sample_bwd"](
        x=tensor(1, (n, c, h, w)), grid=tensor(2, (n, p, q, 2)), dy=tensor(3, (n, c, p, q)),
        dx=tensor(4, (n, c, h, w)), dgrid=tensor(5, (n, p, q, 2)),
    )  # fmt: skip


def _patches(**sizes: int) -> Operation:
    size, taps, stride, dilation, pre, post = (
        _pairs(sizes, name) for name in ("size", "filter", "stride", "dilation", "pre", "post")
    )
    size = tuple(
        [max(s, d * (f - 1) + 1 - a - b) for s, d, f, a, b in zip(size, dilation, taps, pre, post, strict=False)]
    )
    out = [output_extent(*axis) for axis in zip(size, taps, pre, post, stride, dilation, strict=False)]
    conv = convolution(dilations=dilation, filter_strides=stride, pre_paddings=pre, post_paddings=post)
    n, c = sizes["n"], sizes["c"]
    return TABLE["patches"](
        x=tensor(1, (n, c, *size)), y=tensor(2, (c * taps[0] * taps[1], n * out[0] * out[1])), taps=taps, conv=conv,
    )  # fmt: skip


NETWORK = {"batch": 2, "input_size": 8, "hidden_size": 8, "layers": 2, "directions": 1}


def _recurrent(tag: str, data_type: str = "f32") -> Callable[..., Operation]:
    def make(batch: int, **sizes: int) -> Operation:
        from recurrent_cases import LEGAL_RECURRENT

        net = network(batch_sizes=(batch, batch, 1), **sizes)
        dims = {
            "x": (net.rows, net.input_size), "y": (net.rows, net.width), "w": (net.weight_count,),
            "dw": (net.weight_count,), "kept": (net.kept_count,), "kept_gradients": (net.gradient_count,),
            "dx": (net.rows, net.input_size), "dy": (net.rows, net.width), "hx": net.states, "hy": net.states,
            "cx": net.states, "cy": net.states,
        }  # fmt: skip
        ports = sorted(LEGAL_RECURRENT[tag]().keys() - {"rnn"})
        tensors = {
            port: tensor(i, dims[port], "f32" if port.startswith("kept") else data_type)
            for i, port in enumerate(ports, start=1)
        }
        return TABLE[tag](rnn=net, **tensors)

    return make


def _ctc(steps: int, batch: int, classes: int, longest: int) -> Operation:
    probs = (steps, batch, classes)
    return TABLE["ctc_loss"](
        probs=tensor(1, probs), labels=tensor(2, (batch, longest), "i32"), label_lengths=tensor(3, (batch,), "i32"),
        input_lengths=tensor(4, (batch,), "i32"), costs=tensor(5, (batch,)), gradients=tensor(6, probs),
    )  # fmt: skip


_PRODUCT = {"n": 4, "rows": 64, "depth": 64, "columns": 64}
_MODES = (ResampleMode.MAXPOOL, ResampleMode.AVGPOOL_INCLUDE_PADDING, ResampleMode.NEAREST, ResampleMode.BILINEAR)
_NORMS = (NormMode.BATCH_NORM, NormMode.INSTANCE_NORM, NormMode.LAYER_NORM)
_KEPT = {"channels": (False, True, False, False), "rows": (True, True, True, False), "one": (False,) * 4}

FAMILIES: tuple[Family, ...] = (
    *_families_of_convolutions(),
    *(Family(f"matmul {t}", _PRODUCT, _matmul(t)) for t in ("f16", "f32", "i8", "i16")),
    Family("matmul of one b", _PRODUCT, _matmul_of_one),
    Family("pointwise", PLANES, _pointwise(False)),
    Family("pointwise broadcast", PLANES, _pointwise(True)),
    *(Family(f"reduction of {name}", PLANES, _reduction(kept, ReductionOperator.ADD)) for name, kept in _KEPT.items()),
    Family("reduction product", PLANES, _reduction(_KEPT["rows"], ReductionOperator.MUL)),
    *(
        Family(
            f"{tag} {mode.name} {'channels last' if last else 'channels first'}", RESAMPLING, _resample(tag, mode, last)
        )
        for tag in ("resample_fwd", "resample_bwd")
        for mode in _MODES
        for last in (False, True)
    ),
    Family("resample_fwd with index", RESAMPLING, _resample("resample_fwd", ResampleMode.MAXPOOL, False, True)),
    Family("resample_bwd with index", RESAMPLING, _resample("resample_bwd", ResampleMode.MAXPOOL, False, True)),
    Family("genstats", PLANES, _genstats),
    Family("bn_finalize", {"c": 8}, _bn_finalize),
    Family("bn_bwd_weights", PLANES, _bn_bwd_weights),
    *(
        Family(f"{tag} {mode.name} {'channels last' if last else 'channels first'}", PLANES, _norm(tag, mode, last))
        for tag in ("norm_fwd", "norm_bwd")
        for mode in _NORMS
        for last in (False, True)
    ),
    Family("concat", {"a": 3, "b": 4, "outer": 2, "inner": 5}, _concat),
    Family("reshape", {"a": 4, "b": 6}, _reshape),
    Family("transpose", {"a": 4, "b": 6, "c": 8}, _transpose),
    Family("slice", {"outer": 4, "start": 1, "count": 3, "stride": 2, "inner": 5}, _slice),
    Family("rng", {"rows": 4, "columns": 6}, _rng),
    Family("grid_sample", GRID, _grid_sample),
    Family("grid_sample_bwd", GRID, _grid_sample_bwd),
    Family("patches", CONVOLUTION, _patches),
    *(
        Family(f"{tag} {t}", NETWORK, _recurrent(tag, t))
        for tag in TABLE
        if tag.startswith("rnn")
        for t in ("f32", "f16")
    ),
    Family("ctc_loss", {"steps": 4, "batch": 2, "classes": 3, "longest": 2}, _ctc),
)
