"""torch.compile with the library's backend on a GPU: results, gradients, streams, CUDA graphs, parameters."""

from __future__ import annotations

import copy
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cupy", reason="CuPy is not installed")
sys.path.append(str(Path(__file__).resolve().parents[1] / "pytorch"))

from small_modules import MODULES, made

import graphdnn.torch
from graphdnn.torch.compiler import Compilation

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # PyTorch's own, when Dynamo begins
]
EXACT = 1e-6  # of doubles; PyTorch divides by 6 in fp32 in the gradients of hardsigmoid and hardswish
TOLERANCES = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 6e-2}


@pytest.fixture(autouse=True)
def _exact_products() -> Any:
    """PyTorch's own products without TF32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before
    torch._dynamo.reset()


def _compiled(module: Any, **options: Any) -> tuple[Any, list[Compilation]]:
    torch._dynamo.reset()
    found: list[Compilation] = []
    backend = partial(graphdnn.torch.backend, listener=found.append, options=options)
    return torch.compile(module, backend=backend), found


def _close(found: Any, wanted: Any, tolerance: float) -> None:
    assert found.shape == wanted.shape
    assert found.stride() == wanted.stride()
    difference = float((found.double() - wanted.double()).abs().max())
    assert difference <= tolerance * max(1e-3, float(wanted.double().abs().max())), difference


def _clean(found: list[Compilation]) -> None:
    assert found
    assert not [str(e) for c in found for s in c.segments for e in s.failures]
    assert sum(c.served for c in found)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("channels_last", [False, True])
def test_evaluation(name: str, dtype: str, channels_last: bool) -> None:
    module, x = made(name)
    kind, layout = getattr(torch, dtype), torch.channels_last if channels_last else torch.contiguous_format
    if channels_last and x.dim() != 4:
        return
    module, x = module.eval().cuda().to(kind, memory_format=layout), x.cuda().to(kind).contiguous(memory_format=layout)
    call, found = _compiled(module)
    with torch.no_grad():
        wanted = copy.deepcopy(module).double()(x.double()).to(kind)
        y = call(x)
        assert y.stride() == module(x).stride()
    difference = float((y.double() - wanted.double()).abs().max())
    assert difference <= TOLERANCES[dtype] * max(1e-3, float(wanted.double().abs().max()))
    _clean(found)


@pytest.mark.parametrize("name", MODULES)
def test_training(name: str) -> None:
    mine, x = made(name)
    mine, x = mine.cuda().double().train(), x.cuda().double()
    theirs = copy.deepcopy(mine)
    call, found = _compiled(mine)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, wanted = call(a), theirs(b)
    _close(y.detach(), wanted.detach(), 1e-8)
    weight = torch.randn_like(wanted)
    (y * weight).sum().backward()
    (wanted * weight).sum().backward()
    scale = max(float(p.grad.abs().max()) for p in theirs.parameters())
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert float((p.grad - q.grad).abs().max()) <= EXACT * scale
    _clean(found)


def test_work_follows_the_current_stream() -> None:
    """The input is written late in a stream of its own; a wait too few would read the former values."""
    module, x = made("vgg")
    module, x = module.eval().cuda(), x.cuda()
    call, found = _compiled(module)
    with torch.no_grad():
        call(x)
        wanted = module(x * 2 + 1)
        torch.cuda.synchronize()
        stream, late = torch.cuda.Stream(), torch.zeros_like(x)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            late.copy_(x * 2 + 1)
            y = call(late)
        stream.synchronize()
    _close(y, wanted, 2e-5)
    _clean(found)


def test_capture_by_the_caller() -> None:
    module, x = made("resnet")
    module, x = module.eval().cuda().half(), x.cuda().half()
    call, found = _compiled(module)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                call(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = call(x)
        for _ in range(3):
            x.copy_(torch.randn_like(x))
            graph.replay()
            _close(y, module(x), 1e-2)
    _clean(found)


def test_graph_run_returns_tensors_of_the_device() -> None:
    graph = graphdnn.Graph(io_data_type="float16", device="cuda")
    x, w = graph.tensor([2, 16, 8, 8]).set_name("x"), graph.tensor([8, 16, 3, 3]).set_name("w")
    graph.relu(graph.conv_fprop(x, w, padding=1)).set_name("y").set_output(True)
    image, weight = torch.randn(2, 16, 8, 8).half().cuda(), torch.randn(8, 16, 3, 3).half().cuda()
    wanted = torch.relu(torch.conv2d(image, weight, padding=1))
    y = graph.run({"x": image, "w": weight})["y"]
    assert y.device == image.device
    _close(y, wanted, 1e-2)
    bound = graph.bind({"w": weight})
    for _ in range(3):
        image = torch.randn_like(image)
        _close(bound.run({"x": image})["y"], torch.relu(torch.conv2d(image, weight, padding=1)), 1e-2)
