"""Layers of networks that no kernel was tuned on: other batches, odd channels, one or three spatial axes, products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from gpu.convolutions import TF32, dgrad_problem, fused_problem, wgrad_problem
from gpu.fills import Normal
from gpu.model_layers import CONVOLUTIONS, PRODUCTS, Convolution, Product
from gpu.problem import Case, Group, Peer, Problem, Tensors
from gpu.sketch import Sketch

QUICK = ("r50_c4_3x3_b8_fprop", "sd_640_b2_dgrad", "mobile_24_144_wgrad", "regnet_48_fprop", "audio_512_fprop")


def _as_rows(prepare: Callable[[Any, Tensors], Any]) -> Callable[[Any, Tensors], Any]:
    """One spatial axis as images of height 1: cuDNN has no others, and PyTorch would copy channels last."""
    return lambda torch, t: prepare(torch, {name: v.unsqueeze(2) if v.dim() == 3 else v for name, v in t.items()})


def convolution_problem(layer: Convolution, direction: str, kind: str, layout: str) -> Problem:
    channels_last = layout == "nhwc"
    if direction == "fprop":
        problem = fused_problem(layer, kind, channels_last=channels_last, activation=layer.activation)
    else:
        gradient = dgrad_problem if direction == "dgrad" else wgrad_problem
        problem = gradient(layer, kind, channels_last=channels_last)
    peers = tuple(replace(peer, prepare=_as_rows(peer.prepare)) for peer in problem.peers)
    return replace(problem, formula=_as_rows(problem.formula), peers=peers)


def product_problem(product: Product, kind: str) -> Problem:
    """y = activation(a b + bias)."""
    s = Sketch(product.name, {"f16": "float16", "tf32": "float32"}[kind], channels_last=False)
    a = s.data("a", product.a_dims, Normal(1.0))
    # The weights as networks keep them: a row for each output.
    strides = (*product.b_strides,) if product.transposed else None
    b = s.data("b", product.b_dims, Normal(product.k**-0.5), stride=strides)
    y = s.graph.matmul(a, b)
    if product.activation:
        y = s.graph.add(y, s.data("bias", (*(1,) * (len(product.a_dims) - 1), product.n), Normal(0.1)))
        y = y if product.activation == "bias" else getattr(s.graph, product.activation)(y)

    def formula(torch: Any, t: Tensors) -> Tensors:
        y = t["a"] @ t["b"]
        y = y + t["bias"] if product.activation else y
        return {"y": torch.nn.functional.gelu(y) if product.activation == "gelu" else y}

    def linear(torch: Any, t: Tensors) -> Callable[[], Any]:
        if not product.activation:
            return lambda: torch.matmul(t["a"], t["b"])
        weights, bias = t["b"].transpose(-1, -2), t["bias"].reshape(-1)
        run = torch.nn.functional.linear
        if product.activation == "gelu":
            return lambda: torch.nn.functional.gelu(run(t["a"], weights, bias))
        return lambda: run(t["a"], weights, bias)

    return s.problem(
        {"y": y},
        formula=formula,
        peers=(Peer("matmul" if not product.activation else "linear", linear, ("y",)),),
        flops=2 * prod(product.a_dims) * product.n,
        tf32=kind == "tf32",
        filters=TF32 if kind == "tf32" else None,
    )


def _cases() -> tuple[Case, ...]:
    cases = []
    for layer in CONVOLUTIONS:
        for what in layer.measured.split():
            label = f"{layer.name}_{what.replace('.', '_')}"
            quick = label in QUICK
            cases.append(Case(label, partial(convolution_problem, layer, *_parts(what)), quick))
    cases += [Case(product.name, partial(product_problem, product, product.kind)) for product in PRODUCTS]
    return tuple(cases)


def _parts(what: str) -> tuple[str, str, str]:
    """``fprop``, ``fprop.tf32`` or ``fprop.f16.nchw``."""
    given = what.split(".")
    direction, kind, layout = (*given, *("f16", "nhwc")[len(given) - 1 :])
    return direction, kind, layout


MODELS = Group("models", "layers of networks off the other tables", _cases(), by_default=False)
