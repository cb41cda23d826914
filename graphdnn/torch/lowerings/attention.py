"""Scaled dot-product attention."""

from __future__ import annotations

import torch

from graphdnn.builder.tensor import Tensor
from graphdnn.torch.lowering import Lowering, lowers

aten = torch.ops.aten


def _attention(
    low: Lowering, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout: float, is_causal: bool,
    scale: float | None,
) -> Tensor:  # fmt: skip
    if dropout:
        raise low.refuse(
            "dropout_p", dropout, "0", "PyTorch's random numbers are another sequence", "call module.eval()"
        )
    factor = q.get_dim()[-1] ** -0.5 if scale is None else scale
    y = low.graph.sdpa(q, k, v, attn_scale=factor, bias=bias, use_causal_mask=is_causal, name=low.node.name)[0]
    assert y is not None
    return low.typed(y)


def _results(low: Lowering, y: Tensor) -> list[Tensor | None]:
    """``y`` alone: no operator of an inference reads the statistics."""
    return [y, *[None] * (len(low.results()) - 1)]


@lowers(aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_attention_on_host(
    low: Lowering, q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> list[Tensor | None]:  # fmt: skip
    return _results(low, _attention(low, q, k, v, attn_mask, dropout_p, is_causal, scale))


@lowers(aten._scaled_dot_product_flash_attention.default)
def flash_attention(
    low: Lowering, q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, *, scale: float | None = None,
) -> list[Tensor | None]:  # fmt: skip
    return _results(low, _attention(low, q, k, v, None, dropout_p, is_causal, scale))


@lowers(aten._scaled_dot_product_efficient_attention.default)
def efficient_attention(
    low: Lowering, q: Tensor, k: Tensor, v: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
) -> list[Tensor | None]:  # fmt: skip
    return _results(low, _attention(low, q, k, v, attn_bias, dropout_p, is_causal, scale))


@lowers(aten._scaled_dot_product_cudnn_attention.default)
def cudnn_attention(
    low: Lowering, q: Tensor, k: Tensor, v: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> list[Tensor | None]:  # fmt: skip
    return _results(low, _attention(low, q, k, v, attn_bias, dropout_p, is_causal, scale))
