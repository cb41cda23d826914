"""Attention beside PyTorch's, which calls cuDNN's and FlashAttention's kernels for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpu.fills import Normal
from gpu.problem import Case, Group, Peer, Problem, Tensors
from gpu.sketch import Sketch

_AT_A_TIME = 4  # heads, in float64


@dataclass(frozen=True, slots=True)
class Heads:
    """``shared``: heads of q for each of k and v."""

    batch: int
    heads: int
    length: int
    size: int
    causal: bool = False
    shared: int = 1

    @property
    def name(self) -> str:
        groups = f"/{self.heads // self.shared}" if self.shared > 1 else ""
        kind = "causal" if self.causal else "full"
        return f"b{self.batch}_h{self.heads}{groups}_s{self.length}_d{self.size}_{kind}"


def attention(of: Heads, data_type: str = "float16") -> Problem:
    sketch = Sketch("attention", data_type, channels_last=False)
    held = of.heads // of.shared
    q = sketch.data("q", (of.batch, of.heads, of.length, of.size), Normal())
    k, v = (sketch.data(name, (of.batch, held, of.length, of.size), Normal()) for name in "kv")
    scale = of.size**-0.5
    o, _ = sketch.graph.sdpa(q, k, v, attn_scale=scale, use_causal_mask=of.causal)
    assert o is not None
    products = 4 * of.batch * of.heads * of.length * of.length * of.size
    return sketch.problem(
        {"o": o},
        formula=partial(_formula, of, scale),
        peers=tuple(Peer(name, partial(_peer, of, scale, name)) for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION")),
        flops=products // 2 if of.causal else products,
    )


def _formula(of: Heads, scale: float, torch: Any, t: Tensors) -> Tensors:
    """A few heads at a time: scores in float64 are large."""
    o = torch.empty_like(t["q"])
    hidden = torch.ones(of.length, of.length, dtype=torch.bool, device=o.device).triu(1) if of.causal else None
    for image in range(of.batch):
        for first in range(0, of.heads, _AT_A_TIME):
            heads = range(first, min(first + _AT_A_TIME, of.heads))
            k, v = (t[name][image, [head // of.shared for head in heads]] for name in "kv")
            scores = t["q"][image, list(heads)] @ k.mT * scale
            if hidden is not None:
                scores.masked_fill_(hidden, -float("inf"))
            o[image, list(heads)] = scores.softmax(-1) @ v
    return {"o": o}


def _peer(of: Heads, scale: float, backend: str, torch: Any, t: Tensors) -> Callable[[], Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call() -> Any:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(
                t["q"], t["k"], t["v"], is_causal=of.causal, scale=scale, enable_gqa=of.shared > 1
            )

    return call


HEADS = (
    Heads(4, 16, 4096, 128), Heads(4, 16, 4096, 128, True), Heads(4, 16, 4096, 64), Heads(4, 16, 4096, 64, True),
    Heads(8, 16, 1024, 128), Heads(8, 16, 1024, 128, True), Heads(8, 16, 1024, 64), Heads(16, 32, 512, 64, True),
    Heads(4, 32, 2048, 128, True, 4), Heads(2, 8, 2048, 256, True),
)  # fmt: skip

ATTENTION = Group(
    "attention",
    "attention in fp16, forward",
    tuple(Case(of.name, partial(attention, of), quick=of.length == 1024) for of in HEADS),
)
