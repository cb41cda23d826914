"""Networks compiled for evaluation and training: equal to PyTorch, in few segments, following their parameters."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from small_modules import MODULES, made  # noqa: E402

import graphdnn.torch  # noqa: E402
from graphdnn.torch.compiler import Compilation  # noqa: E402
from graphdnn.torch.dynamic_segment import DynamicSegment  # noqa: E402
from graphdnn.torch.segment import Segment  # noqa: E402

# What PyTorch keeps of the networks above; everything else is served.
KEPT = {"unet": {"aten.native_group_norm.default", "aten.native_group_norm_backward.default"}}
TRAINED_ELSEWHERE = {
    "transformer": {
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
        "aten.cat.default", "aten.select_backward.default", "aten.slice_backward.default", "aten.stack.default",
    },
    "video": {
        "aten.max_pool3d_with_indices.default", "aten.max_pool3d_with_indices_backward.default", "aten.div.Scalar",
    },
    "shufflenet": {"aten.cat.default", "aten.slice_backward.default"},
    "densenet": {"aten.slice_backward.default", "aten.slice_scatter.default"},
}  # fmt: skip


EXACT = 1e-8  # of doubles; PyTorch divides by 6 in fp32 in the gradients of hardsigmoid and hardswish


def compiled(module: Any, **options: Any) -> tuple[Any, list[Compilation]]:
    """The compiled module, and what was compiled."""
    torch._dynamo.reset()
    found: list[Compilation] = []
    return torch.compile(module, backend=partial(graphdnn.torch.backend, listener=found.append), **options), found


def served_by_pytorch(found: list[Compilation]) -> set[str]:
    """The operators that PyTorch executes, views and single ones apart."""
    quiet = ("torch.views_only", "torch.one_operator")
    return {f.operator for c in found for f in c.fallbacks if f.reasons[0].rule not in quiet}


def failures(found: list[Compilation]) -> list[str]:
    """Calls that PyTorch executed in place of a plan."""
    return [str(e) for c in found for s in c.segments for e in s.failures]


def close(found: Any, wanted: Any, tolerance: float) -> None:
    """Equal in shape, strides and type, and within a tolerance relative to the largest element."""
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    assert found.stride() == wanted.stride()
    difference = (found.double() - wanted.double()).abs().max()
    assert difference <= tolerance * max(1e-3, float(wanted.double().abs().max())), float(difference)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5), ("float16", 1e-2), ("bfloat16", 6e-2)]
)
def test_evaluation(name: str, dtype: str, tolerance: float) -> None:
    module, x = made(name)
    module = module.eval().to(getattr(torch, dtype))
    x = x.to(getattr(torch, dtype))
    call, found = compiled(module)
    with torch.no_grad():
        close(call(x), module(x), tolerance)
    assert not failures(found)
    assert served_by_pytorch(found) <= set()
    assert sum(len(c.segments) for c in found) == 1


def test_frozen_parameters_are_followed_in_place() -> None:
    """Also if they get other memory; changes through ``data`` are excluded by the promise."""
    module, x = made("mobilenet")
    module.eval()
    torch._dynamo.reset()
    call = torch.compile(module, backend="graphdnn", options={"freeze": True})
    with torch.no_grad():
        close(call(x), module(x), 1e-5)
        module.expand[1].weight.mul_(1.5)
        close(call(x), module(x), 1e-5)
        module.expand[0].weight.data = torch.randn_like(module.expand[0].weight)
        close(call(x), module(x), 1e-5)
        module.depthwise[1].running_var.add_(0.5)
        close(call(x), module(x), 1e-5)


@pytest.mark.parametrize("name", MODULES)
def test_channels_last(name: str) -> None:
    module, x = made(name)
    if x.dim() != 4:
        return
    module, x = module.eval().to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    call, found = compiled(module)
    with torch.no_grad():
        close(call(x), module(x), 1e-5)
    assert not failures(found)


@pytest.mark.parametrize("name", MODULES)
def test_training(name: str) -> None:
    """Results, gradients of all parameters and of the input, and buffers after two steps."""
    mine, x = made(name)
    mine = mine.double().train()
    theirs, x = copy.deepcopy(mine), x.double()
    call, found = compiled(mine)
    for step in range(2):
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, wanted = call(a), theirs(b)
        close(y.detach(), wanted.detach(), EXACT)
        weight = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(step)).double()
        for module, result in ((mine, y), (theirs, wanted)):
            module.zero_grad()
            (result * weight).sum().backward()
        scale = max(float(p.grad.abs().max()) for p in theirs.parameters())
        for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert float((p.grad - q.grad).abs().max()) <= EXACT * scale
        assert float((a.grad - b.grad).abs().max()) <= EXACT * float(b.grad.abs().max())
        for p, q in zip(mine.buffers(), theirs.buffers(), strict=True):
            torch.testing.assert_close(p, q, rtol=EXACT, atol=EXACT)
        with torch.no_grad():
            for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
                p -= 0.01 * p.grad
                q -= 0.01 * q.grad
    assert not failures(found)
    assert served_by_pytorch(found) <= KEPT.get(name, set()) | TRAINED_ELSEWHERE.get(name, set())
    assert sum(c.served for c in found) >= 4


def test_changed_parameters_are_followed() -> None:
    """In place, by other memory, by loaded state, and in the folded batch normalization."""
    module, x = made("resnet")
    module.eval()
    call, found = compiled(module)
    convolution, norm, linear = module[0].body[0], module[0].body[1], module[3]

    def changes() -> Any:
        yield convolution.weight.mul_(1.5)
        yield norm.running_mean.add_(0.3)
        yield norm.weight.data.copy_(norm.weight + 1)
        convolution.weight.data = torch.randn_like(convolution.weight)
        yield
        linear.bias.data = torch.randn_like(linear.bias)
        yield
        yield module.load_state_dict({k: v * 0.9 for k, v in module.state_dict().items()})

    with torch.no_grad():
        before = call(x)
        for _ in changes():
            after = call(x)
            close(after, module(x), 1e-5)
            assert not torch.equal(before, after)
            before = after
    assert len(found) == 1
    assert not failures(found)


def test_other_extents_get_other_plans() -> None:
    module, _ = made("resnet")
    module.eval()
    call, found = compiled(module)
    with torch.no_grad():
        for shape in ((2, 8, 12, 12), (3, 8, 12, 12), (5, 8, 12, 12), (4, 8, 16, 10), (3, 8, 12, 12)):
            x = torch.randn(shape)
            close(call(x), module(x), 1e-5)
    dynamic = [s for c in found for s in c.segments if isinstance(s, DynamicSegment)]
    assert dynamic
    assert sum(len(s.segments) for s in dynamic) >= 2
    assert not failures(found)


def test_one_graph_serves_all_batches_that_are_marked_dynamic() -> None:
    module, _ = made("vgg")
    module.eval()
    call, found = compiled(module, dynamic=True)
    with torch.no_grad():
        for batch in (2, 3, 7, 2):
            x = torch.randn(batch, 8, 12, 12)
            close(call(x), module(x), 1e-5)
    assert len(found) == 1
    (segment,) = found[0].segments
    assert isinstance(segment, DynamicSegment)
    assert len(segment.segments) == 3


def test_a_call_that_cannot_be_served_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphdnn.errors import NotSupported
    from graphdnn.torch.rules import EMPTY

    module, x = made("vgg")
    module.eval()
    call, found = compiled(module)

    def refuse(self: Segment, args: Any) -> Any:
        raise NotSupported(EMPTY.reject("test", "shape", (0,)))

    with torch.no_grad():
        call(x)
        monkeypatch.setattr(Segment, "_executed", refuse)
        close(call(x), module(x), 1e-5)
    assert len(failures(found)) == 1


@pytest.mark.parametrize("offset", [1, 3])
def test_misaligned_inputs(offset: int) -> None:
    module, x = made("vgg")
    module.eval()
    call, found = compiled(module)
    memory = torch.empty(x.numel() + 8)
    shifted = memory[offset : offset + x.numel()].view(x.shape).copy_(x)
    assert shifted.data_ptr() % 16
    with torch.no_grad():
        close(call(shifted), module(x), 1e-5)
    assert not failures(found)


@pytest.mark.parametrize(
    ("make", "operator"),
    [
        (lambda x: (x.to(torch.complex64) * 2).real * 2 + 1, ""),
        (lambda x: torch.cumsum(torch.relu(x * 2), 1) * 2 + 1, "aten.cumsum.default"),
        (lambda x: (x[:0] * 2 + 1).sum() + x.mean(), ""),
        (lambda x: torch.relu(x * 2)[x > 0].sum(), ""),
        (lambda x: torch.relu(x * 2) if x.sum() > 0 else torch.sigmoid(x * 2) + 1, ""),
        (lambda x: [torch.relu(x * 2), {"a": (x + 1) * x, "none": None}], ""),
        (lambda x: (x.long() % 5 * 3, x.bool() & (x > 0)), ""),
        (lambda x: torch.fft.rfft(x * 2 + 1).abs() * 2 + 1, ""),
        (lambda x: (x.expand(4, 2, 8, 12, 12) * 2 + 1).permute(1, 0, 2, 3, 4), ""),
        (lambda x: x.new_zeros(3).fill_(2.0) * 2 + x[0, 0, 0, :3], ""),
        (lambda x: (x.unsqueeze(0).unsqueeze(0).unsqueeze(0).unsqueeze(0).unsqueeze(0) * 2 + 1) * 3, ""),
        (lambda x: x, ""),
        (lambda x: x.t() if x.dim() == 2 else x.transpose(0, 1), ""),
        (lambda x: (torch.relu(x * 2), torch.relu(x * 2).clone(), (x * 2).detach()), ""),
    ],
)  # fmt: skip
def test_unusual_functions(make: Any, operator: str) -> None:
    """What the library does not serve, and results that are views, constants and copies."""
    x = torch.randn(2, 8, 12, 12, generator=torch.Generator().manual_seed(1))
    call, found = compiled(make)
    with torch.no_grad():
        mine, theirs = call(x), make(x)
    leaves = torch.utils._pytree.tree_leaves
    for a, b in zip(leaves(mine), leaves(theirs), strict=True):
        if isinstance(b, torch.Tensor):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        else:
            assert a == b
    assert not failures(found)
    assert not operator or operator in served_by_pytorch(found)


def test_mutation_of_an_input() -> None:
    def step(x: Any, state: Any) -> Any:
        state.mul_(0.5).add_(x)
        return torch.relu(state * 2 + x)

    call, _ = compiled(step)
    x, mine, theirs = torch.randn(4, 5), torch.ones(4, 5), torch.ones(4, 5)
    for _ in range(3):
        torch.testing.assert_close(call(x, mine), step(x, theirs))
        torch.testing.assert_close(mine, theirs)


def test_autocast() -> None:
    module, x = made("resnet")
    module.eval()
    call, found = compiled(module)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        y, wanted = call(x), module(x)
    close(y, wanted, 6e-2)
    assert not failures(found)
    assert not served_by_pytorch(found)


def test_explanation() -> None:
    module, x = made("resnet")
    found = graphdnn.torch.explain(module.eval(), x)
    assert found.coverage == 1
    assert len(found.segments) == 1
    assert found.predicted_seconds > 0
    text = str(found)
    assert "100.0% of the operators in 1 segment" in text
    assert "convolution, _native_batch_norm_legit_no_training, relu" in text
    for_gpu = graphdnn.torch.explain(module, x, options={"device": "h200"})
    assert "on h200" in str(for_gpu)
    assert "device_absent" not in str(for_gpu)
    training = graphdnn.torch.explain(module.train(), x, training=True)
    assert [c.kind for c in training.compilations] == ["forward", "backward"]


def test_explanation_of_what_is_left() -> None:
    class Sums(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cumsum(torch.relu(x * 2), 1)

    found = graphdnn.torch.explain(torch.nn.Sequential(Sums()), torch.randn(3, 4))
    (fallback,) = found.fallbacks
    assert fallback.operator == "aten.cumsum.default"
    assert fallback.source
    assert 0 < found.coverage < 1
    for part in ("PyTorch executes aten.cumsum.default (1 call)", "why:", "fix:", "[torch.operator]", fallback.source):
        assert part in str(found)


@pytest.mark.parametrize("wrong", [{"options": {"devise": "h200"}}, {"mode": "fastest"}])
def test_unknown_options_are_refused(wrong: dict[str, Any]) -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"torch\.option"):
        torch.compile(torch.nn.ReLU(), backend="graphdnn", **wrong)(torch.randn(3))
