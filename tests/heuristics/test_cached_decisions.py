"""Kernels and predictions of shapes whose class, or whose images, are known: those of a process that knows nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from random_problems.families import Case, draw

from graphdnn import OperationGraph, device_spec
from graphdnn.bounded_cache import BoundedCache
from graphdnn.engines import Task, engines_of
from graphdnn.engines.batch_invariance import images_of, lines_of
from graphdnn.engines.cuda.codegen import epilogue
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.fusion import fuse, fusion_cache
from graphdnn.operations import ConvolutionOperation, Matmul, NormBackward, NormForward
from graphdnn.problem import parse
from graphdnn.reducer.extent_reduction import Axes, with_extents
from graphdnn.reducer.graph_rebuild import possible
from graphdnn.tensors import TensorSpec

H200 = device_spec("h200")
BESIDE = ("cuda_layout_transform", "cuda_pointwise", "cuda_norm_forward", "cuda_norm_backward")
ENGINES = [e for e in engines_of("cuda") if e.name.startswith("cuda_hopper") or e.name in BESIDE]
# Classes whose texts depend on extents in one way or the other: packs that rows allow, residuals that the copy unit
# brings, results whose pixels lie in a row, patches of lines, sums that are split, stacks that are one product.
CLASSES = (
    "conv x=f16[{n},{c},{h},{h}]nhwc w=f16[64,{c},3,3]nhwc pad=1 + bias + relu",
    "conv x=f16[{n},{c},{h},{h}]nhwc w=f16[{c},{c},1,1]nhwc + bias + residual + relu",
    "conv x=i8[{n},{c},{h},{h}]nhwc w=i8[96,{c},3,3]nhwc stride=2 pad=1 + scale + bias",
    "conv x=f32[{n},{c},{h},{h}]nhwc w=f32[32,{c},1,1]nhwc + bias",
    "conv x=f16[{n},{c},{h},{h}] w=f16[64,{c},1,1] + bias + gelu",
    "dgrad dy=f16[{n},64,{h},{h}]nhwc w=f16[64,{c},3,3]nhwc dx=[{n},{c},{h},{h}] pad=1 + residual",
    "wgrad x=f16[{n},{c},{h},{h}]nhwc dy=f16[{n},64,{h},{h}]nhwc dw=[64,{c},3,3] pad=1",
    "wgrad x=f16[{n},{c},{h},{h}]nhwc dy=f16[{n},64,{h},{h}]nhwc dw=[64,{c},1,1] + scale",
    "matmul a=f16[{n},{h},{c}] b=f16[{n},{c},64] + bias + gelu",
    "matmul a=f16[{n},{h},{c}] b=f16[1,{c},72] + bias",
    "matmul a=f32[{n},{h},{c}] b=f32[1,{c},{h}] + relu",
    "matmul a=f16[{n},2,{h},{c}] b=f16[{n},2,{c},64]",
    "matmul a=f16[1,{n},{c}] b=f16[1,{c},64] + bias + gelu",
    "matmul a=f16[{n},{c}] b=f16[{c},{c}] + mul + relu",
    "matmul a=f32[1,{n},{c}] b=f32[1,{c},{n}] + bias",
    "pointwise x=f16[{n},{c},{h},{h}]nhwc + bias + relu + mul",
    "pointwise x=f32[{n},{c},{h},{h}] + scale + bias + scale + bias + gelu",
    "pointwise x=f16[{n},{h}] + relu",
    "norm layer x=f16[{n},{c}]",
    "norm rms x=f32[{n},{h},{c}] + relu",
    "norm instance x=f16[{n},{c},{h},{h}]nhwc",
    "norm batch x=f16[{n},{c},{h},{h}]",
    "norm batch x=f16[{n},{c},{h},{h}]nhwc + relu",
)
PLANES = (
    "conv x=f16[{n},{c},{h},{w}]nhwc w=f16[64,{c},3,3]nhwc pad=1 + bias + residual + relu",
    "conv x=f16[{n},{c},{h},{w}]nhwc w=f16[40,{c},3,3]nhwc pad=1 stride=2 + scale + bias",
    "conv x=f16[{n},{c},{h},{w}]nhwc w=f16[64,{c},1,1]nhwc + bias + gelu",
    "conv x=i8[{n},{c},{h},{w}]nhwc w=i8[24,{c},3,3]nhwc pad=1 + scale",
    "conv x=f32[{n},{c},{h},{w}]nhwc w=f32[33,{c},3,3]nhwc pad=2 + relu",
    "conv x=f16[{n},{c},{h},{w}] w=f16[64,{c},3,3] pad=1 + bias",
)
FAMILIES = ("conv_fprop", "conv_dgrad", "conv_wgrad", "conv_fprop_int", "matmul", "pointwise_graph", "mask", "norm")
EXTENTS = [(n, h, c) for h, c in ((8, 64), (7, 64), (14, 48), (28, 128)) for n in (1, 2, 3, 40)]


def said(graph: OperationGraph) -> dict[tuple[int, str], tuple[Any, ...]]:
    """What the engines that serve a graph's operations make of them, and what they predict."""
    found = {}
    for op in fuse(graph):
        task = Task(op, H200)
        for engine in ENGINES:
            if engine.serves(task):
                kernel = engine.compile(task, engine.defaults())
                assert isinstance(kernel, DeviceKernel)
                steps = [launched(step) if isinstance(step, Launch) else step.name for step in kernel.steps]
                cost = engine.cost(task, engine.defaults())
                found[op.index, engine.name] = (
                    kernel.name,
                    kernel.workspace_bytes,
                    steps,
                    cost.seconds,
                    dict(cost.parts),
                )
    return found


def launched(step: Launch) -> tuple[Any, ...]:
    where = step.entry, step.grid, step.block, step.shared, step.is_cooperative, step.starts_early
    return step.text.name, step.text.text, step.text.options, *where, step.params.data, step.params.slots


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept by class is found by what fusion knows of it."""
    monkeypatch.setattr(fusion_cache, "_known", BoundedCache(512))


def assert_same(graphs: list[OperationGraph], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many kernels were compared."""
    again = [said(graph) for graph in (*graphs, *graphs[::-1])][len(graphs) :]
    for graph, found in zip(reversed(graphs), again, strict=True):
        forget(monkeypatch)
        assert said(graph) == found
    return sum(map(len, again))


@pytest.mark.parametrize("text", CLASSES)
def test_what_is_known_changes_no_kernel(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [parse(text.format(n=n, h=h, c=c)).build_operation_graph() for n, h, c in EXTENTS]
    assert assert_same(graphs, monkeypatch) >= len(EXTENTS)


def counted_of(graph: OperationGraph) -> TensorSpec:
    """Whose first axis images are along."""
    for op in graph.operations:
        if isinstance(op, ConvolutionOperation):
            return op.roles[0]
        if isinstance(op, (NormForward, NormBackward)):
            return op.x
        if isinstance(op, Matmul):
            return op.c
    return graph.outputs[0]


@pytest.mark.parametrize("count", [6, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize("family", FAMILIES)
def test_batches_before_change_no_kernel(family: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    met = 0
    for drawn in (draw(Case(family, 900 + seed, large=seed % 2 == 0)).graph for seed in range(count)):
        axes = Axes(drawn)
        wanted = [{axes.root((counted_of(drawn).uid, 0)): n} for n in (5, 3, 2, 64, 7, 48)]
        graphs = [g for g in (possible(partial(with_extents, axes, w)) for w in wanted) if g is not None]
        assert_same(graphs, monkeypatch)
        fused = [fuse(graph) for graph in (*graphs, *graphs)]
        met += sum(images_of(op) is not None for graph in fused for op in graph)
    assert met


@pytest.mark.parametrize("text", PLANES)
def test_lines_before_change_no_kernel(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One image, and images of one line or pixel, are among them."""
    extents = [
        (2, 9, 12),
        (3, 14, 7),
        (1, 9, 12),
        (2, 30, 31),
        (5, 3, 8),
        (2, 1, 9),
        (2, 16, 16),
        (2, 8, 1),
        (64, 40, 56),
    ]
    for c in (64, 24, 5):
        graphs = [parse(text.format(n=n, h=h, w=w, c=c)).build_operation_graph() for n, h, w in extents]
        assert_same(graphs, monkeypatch)


@pytest.mark.parametrize("text", CLASSES[:3])
def test_lines_and_pixels_have_one_number(text: str) -> None:
    """Of images without gaps whose channels are neighbours, more than one of each."""
    numbers = {}
    for n, h, c in EXTENTS:
        (op,) = fuse(parse(text.format(n=n, h=h, c=c)).build_operation_graph())
        numbers.setdefault((c, n > 1), set()).add(lines_of(op))
    assert all((numbers[key] == {None}) != key[1] and len(numbers[key]) == 1 for key in numbers)


def test_a_forgotten_dependency_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 129 and of 130 elements have other vectors. If the key of the cache lacked them, texts would differ."""
    monkeypatch.setattr(epilogue, "_layout_key", lambda space, axis, tensors: [])
    texts = [f"matmul a=f16[4,16,64] b=f16[1,64,{n}] + bias" for n in (129, 130, 136)]
    graphs = [parse(text).build_operation_graph() for text in texts]
    with pytest.raises(AssertionError):
        assert_same(graphs, monkeypatch)
