"""ATen's operators through ``torch.compile``: served by the library, and equal to PyTorch, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphdnn.torch  # noqa: E402
from graphdnn.enums import PointwiseMode  # noqa: E402
from graphdnn.torch.compiler import Compilation  # noqa: E402

F = torch.nn.functional
# Relative to the largest element: the rounding of the type, with a few roundings between the operators.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
NO_GRADIENT = "no gradient"


class Case(NamedTuple):
    """A function of tensors with the given extents."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    note: str = ""


I = (2, 6, 9, 8)  # noqa: E741  an image
CASES = {
    "conv1d": Case(lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), ((2, 4, 11), (6, 4, 3), (6,))),
    "conv2d": Case(lambda x, w: F.conv2d(x, w, padding=1), (I, (4, 6, 3, 3))),
    "conv2d bias stride": Case(lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=(0, 1)), (I, (4, 6, 3, 3), (4,))),
    "conv2d dilated": Case(lambda x, w: F.conv2d(x, w, dilation=2, padding=2), (I, (4, 6, 3, 3))),
    "conv2d groups": Case(lambda x, w, b: F.conv2d(x, w, b, groups=3), (I, (9, 2, 3, 3), (9,))),
    "conv2d depthwise": Case(lambda x, w: F.conv2d(x, w, padding=1, groups=6), (I, (6, 1, 3, 3))),
    "conv3d": Case(lambda x, w: F.conv3d(x, w, padding=1), ((1, 3, 5, 6, 4), (2, 3, 3, 3, 3))),
    "conv_transpose2d": Case(
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1), (I, (6, 4, 3, 3), (4,))
    ),
    "conv_transpose1d": Case(lambda x, w: F.conv_transpose1d(x, w, stride=3), ((2, 4, 7), (4, 5, 3))),
    "linear": Case(F.linear, ((5, 7), (3, 7), (3,))),
    "linear of a batch": Case(F.linear, ((2, 4, 7), (3, 7), (3,))),
    "matmul": Case(torch.matmul, ((2, 3, 4, 5), (2, 3, 5, 6))),
    "bmm": Case(torch.bmm, ((3, 4, 5), (3, 5, 2))),
    "baddbmm": Case(lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2.0), ((3, 4, 2), (3, 4, 5), (3, 5, 2))),
    "max_pool2d": Case(lambda x: F.max_pool2d(x, 3, 2, 1), (I,)),
    "max_pool2d ceil": Case(lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), (I,)),
    "max_pool1d": Case(lambda x: F.max_pool1d(x, 3, 2), ((2, 4, 11),), NO_GRADIENT),
    "max_pool3d": Case(lambda x: F.max_pool3d(x, 2), ((1, 2, 4, 6, 4),), NO_GRADIENT),
    "avg_pool2d": Case(lambda x: F.avg_pool2d(x, 3, 2, 1), (I,)),
    "avg_pool2d exclude": Case(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (I,)),
    "avg_pool3d": Case(lambda x: F.avg_pool3d(x, 2), ((1, 2, 4, 6, 4),), NO_GRADIENT),
    "adaptive_avg_pool2d 1": Case(lambda x: F.adaptive_avg_pool2d(x, 1), (I,)),
    "adaptive_avg_pool2d": Case(lambda x: F.adaptive_avg_pool2d(x, (3, 4)), (I,), NO_GRADIENT),
    "batch_norm": Case(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (I, (6,), (6,)), "not served"),
    "layer_norm": Case(lambda x, w, b: F.layer_norm(x, (9, 8), w, b), (I, (9, 8), (9, 8))),
    "layer_norm rows": Case(lambda x, w, b: F.layer_norm(x, (16,), w, b), ((3, 5, 16), (16,), (16,))),
    "group_norm": Case(lambda x, w, b: F.group_norm(x, 3, w, b), (I, (6,), (6,)), NO_GRADIENT),
    "instance_norm": Case(lambda x: F.instance_norm(x), (I,), "not served"),
    "softmax": Case(lambda x: F.softmax(x, 1), (I,)),
    "log_softmax": Case(lambda x: F.log_softmax(x, -1), ((4, 9),)),
    "relu": Case(lambda x: F.relu(x) * 2, (I,)),
    "relu6": Case(lambda x: F.relu6(x * 4), (I,)),
    "hardtanh": Case(lambda x: F.hardtanh(x, -0.5, 0.7) * 2, (I,)),
    "leaky_relu": Case(lambda x: F.leaky_relu(x, 0.1) * 2, (I,)),
    "elu": Case(lambda x: F.elu(x, 0.7) * 2, (I,), NO_GRADIENT),
    "gelu": Case(lambda x: F.gelu(x) * 2, (I,)),
    "gelu tanh": Case(lambda x: F.gelu(x, approximate="tanh") * 2, (I,)),
    "silu": Case(lambda x: F.silu(x) * 2, (I,)),
    "mish": Case(lambda x: F.mish(x) * 2, (I,), NO_GRADIENT),
    "sigmoid": Case(lambda x: torch.sigmoid(x) * 2, (I,)),
    "tanh": Case(lambda x: torch.tanh(x) * 2, (I,)),
    "softplus": Case(lambda x: F.softplus(x, beta=2.0) * 2, (I,), NO_GRADIENT),
    "hardswish": Case(lambda x: F.hardswish(x * 3) * 2, (I,)),
    "hardsigmoid": Case(lambda x: F.hardsigmoid(x * 3) * 2, (I,)),
    "arithmetic": Case(lambda a, b: (a + b) * a - b / (a * a + 1.5), (I, I)),
    "broadcast": Case(lambda a, b, c: a * b + c, (I, (6, 1, 1), (8,))),
    "alpha": Case(lambda a, b: torch.add(a, b, alpha=3) - torch.sub(b, a, alpha=0.5), (I, I)),
    "numbers": Case(lambda a: (2 - a) * 3 + a / 4 - 1, (I,)),
    "powers": Case(lambda a: a**2 + a**3 + (a * a + 1) ** -0.5 + (a * a + 1) ** 0.5, (I,)),
    "power": Case(lambda a: (a * a + 0.5) ** 1.7 * 2, (I,), NO_GRADIENT),
    "functions": Case(lambda a: torch.exp(a) + torch.log(a * a + 1) + torch.sin(a) * torch.cos(a), (I,)),
    "roots": Case(lambda a: torch.sqrt(a * a + 1) + torch.rsqrt(a * a + 1) + torch.reciprocal(a * a + 2), (I,)),
    "rounding": Case(lambda a: torch.floor(a * 3) + torch.ceil(a * 5) + torch.abs(a), (I,), NO_GRADIENT),
    "erf": Case(lambda a: torch.erf(a) * 2, (I,)),
    "clamp": Case(lambda a: a.clamp(-0.3, 0.4) + a.clamp(min=0.1) + a.clamp(max=0.2), (I,), NO_GRADIENT),
    "maximum": Case(lambda a, b: torch.maximum(a, b) - torch.minimum(a, b), (I, I), NO_GRADIENT),
    "where": Case(lambda a, b: torch.where(a > b, a * 2, b), (I, I)),
    "masked_fill": Case(lambda a, b: a.masked_fill(b > 0, -2.0) * 2, (I, I), NO_GRADIENT),
    "comparisons": Case(lambda a, b: ((a > 0) & (b <= 0.5) | ~(a < b)).to(a.dtype) * a, (I, I), NO_GRADIENT),
    "remainder": Case(lambda a: torch.remainder(a * 7, 2.0) * 2, (I,), NO_GRADIENT),
    "mean": Case(lambda x: x.mean((2, 3)) * 2, (I,)),
    "mean of all": Case(lambda x: (x * x).mean(), (I,)),
    "sum": Case(lambda x: (x * 2).sum(1, keepdim=True), (I,)),
    "amax": Case(lambda x: (x * 2).amax((1, 3)), (I,), NO_GRADIENT),
    "reshape": Case(lambda x: (x * 2).reshape(2, -1).t().exp(), (I,)),
    "permute": Case(lambda x: (x * 2).permute(0, 2, 3, 1).reshape(2, 72, 6).exp(), (I,)),
    "shuffle": Case(lambda x: (x * 2).view(2, 3, 2, 9, 8).transpose(1, 2).reshape(2, 6, 9, 8).exp(), (I,)),
    "chunk": Case(lambda x: [a * 2 for a in (x * 2).chunk(3, 1)][1].exp(), (I,), NO_GRADIENT),
    "unbind": Case(lambda x: torch.mul(*(x * 2).unbind(0)).sigmoid(), (I,), NO_GRADIENT),
    "cat": Case(lambda a, b: torch.cat([a * 2, b], 1).exp(), (I, (2, 3, 9, 8))),
    "slice": Case(lambda x: (x * 2)[:, 1:5, ::2].exp(), (I,), NO_GRADIENT),
    "pad": Case(lambda x: F.pad(x * 2, (1, 2, 0, 3), value=1.5).exp(), (I,), NO_GRADIENT),
    "roll": Case(lambda x: torch.roll(x * 2, (2, -1), (2, 3)).exp(), (I,), NO_GRADIENT),
    "squeeze": Case(lambda x: (x * 2).unsqueeze(1).exp().squeeze(1) + 1, (I,)),
    "attention": Case(F.scaled_dot_product_attention, ((2, 3, 7, 8), (2, 3, 9, 8), (2, 3, 9, 8)), NO_GRADIENT),
    "attention causal": Case(
        partial(F.scaled_dot_product_attention, is_causal=True), ((2, 3, 7, 8),) * 3, NO_GRADIENT
    ),
}  # fmt: skip


def _compiled(function: Callable[..., Any], found: list[Compilation]) -> Callable[..., Any]:
    torch._dynamo.reset()
    backend = partial(graphdnn.torch.backend, listener=found.append)
    return torch.compile(function, backend=backend, dynamic=False, fullgraph=True)  # type: ignore[no-any-return]


def _drawn(case: Case, dtype: Any, *, requires_grad: bool = False) -> list[Any]:
    generator = torch.Generator().manual_seed(11)
    drawn = (torch.randn(s, generator=generator, dtype=torch.float64) for s in case.shapes)
    return [t.to(dtype).requires_grad_(requires_grad) for t in drawn]


def _compare(found: Any, wanted: Any, tolerance: float) -> None:
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if found.numel() > 1:
        assert found.stride() == wanted.stride() or not found.is_contiguous()
    difference = (found.double() - wanted.double()).abs().max()
    assert difference <= tolerance * max(1.0, wanted.double().abs().max()), float(difference)


def _refused(found: list[Compilation]) -> list[str]:
    """What PyTorch kept although the library could compute it, views apart."""
    quiet = ("torch.views_only", "torch.one_operator")
    return [f"{f.operator}: {f.reasons[0]}" for c in found for f in c.fallbacks if f.reasons[0].rule not in quiet]


def _check(case: Case, dtype: Any) -> None:
    compilations: list[Compilation] = []
    inputs = _drawn(case, dtype)
    with torch.no_grad():
        found = _compiled(case.function, compilations)(*inputs)
        wanted = case.function(*(t.double() for t in inputs)).to(dtype)
    _compare(found, wanted, TOLERANCES[dtype])
    failures = [e for c in compilations for s in c.segments for e in s.failures]
    assert not failures
    if case.note != "not served":
        assert not _refused(compilations)
        assert sum(len(c.segments) for c in compilations) >= 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["f32", "f16", "bf16"])
def test_operator(name: str, dtype: Any) -> None:
    if dtype is not torch.float32 and name in ("rounding", "remainder"):
        return  # these functions jump: float64 is on the other side
    _check(CASES[name], dtype)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.note != NO_GRADIENT])
def test_gradient(name: str) -> None:
    case = CASES[name]
    compilations: list[Compilation] = []
    mine, theirs = (_drawn(case, torch.float32, requires_grad=True) for _ in range(2))
    found, wanted = _compiled(case.function, compilations)(*mine), case.function(*theirs)
    _compare(found.detach(), wanted.detach(), 2e-5)
    weight = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(5))
    (found * weight).sum().backward()
    (wanted * weight).sum().backward()
    for a, b in zip(mine, theirs, strict=True):
        _compare(a.grad, b.grad, 5e-5)
    assert not [e for c in compilations for s in c.segments for e in s.failures]
    assert {c.kind for c in compilations} == {"forward", "backward"}
    if case.note != "not served":
        assert not _refused(compilations)


def test_a_wrong_lowering_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the comparison is worth: a bias that is subtracted, a pooling that is shifted, a product that is halved."""
    from graphdnn.torch.lowering import LOWERINGS

    aten, mul = torch.ops.aten, LOWERINGS[torch.ops.aten.mul.Tensor]
    wrong = {
        aten.add.Tensor: LOWERINGS[aten.sub.Tensor],
        aten.relu.default: lambda low, x: low.typed(low.pointwise(PointwiseMode.IDENTITY, x)),
        aten.mul.Tensor: lambda low, x, b: mul(low, x, 0.5),
    }
    for overload, lowering in wrong.items():
        monkeypatch.setitem(LOWERINGS, overload, lowering)
    for name in ("arithmetic", "relu", "broadcast"):
        with pytest.raises(AssertionError):
            _check(CASES[name], torch.float32)
