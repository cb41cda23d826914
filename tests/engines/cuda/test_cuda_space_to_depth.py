"""Windows that lie side by side, a line of each as one pixel: on the host against the general engine, and what is chosen."""

from __future__ import annotations

import pytest
from cuda_comparison import compiler, compiles_cleanly, emulated
from exact_sums import check_sums, operations

from graphdnn import Graph, OperationGraph, fuse
from graphdnn.device.profiles import device_spec
from graphdnn.engines import ENGINE_BY_NAME, Task
from graphdnn.engines.engine import Engine
from graphdnn.heuristics import Ranking

H200 = device_spec("h200")
ENGINE = ENGINE_BY_NAME["cuda_space_to_depth"]
ENGINE_TF32 = ENGINE_BY_NAME["cuda_space_to_depth_tf32"]
ENGINE_BF16X3 = ENGINE_BY_NAME["cuda_space_to_depth_bf16x3"]
PATCHES = "conv x=f16[32,3,224,224]nhwc w=f16[768,3,16,16]nhwc stride=16 + bias"

PROBLEMS = [
    "conv x=f16[2,3,32,48]nhwc w=f16[24,3,16,16]nhwc stride=16 + bias + gelu",
    "conv x=bf16[2,16,6,8]nhwc w=bf16[24,16,2,2]nhwc stride=2 + bias + residual",
    "conv x=f16[1,16,9,8]nhwc w=f16[24,16,3,2]nhwc pad=1,0 stride=2",
    "conv x=f16[2,32,40]nhwc w=f16[24,32,4]nhwc stride=4 spatial=1 + bias",
    "conv x=f16[1,16,4,5,6]nhwc w=f16[16,16,2,3,3]nhwc pad=1,1,0 stride=2,1,3 spatial=3 + relu",
    "conv x=i8[1,32,6,8]nhwc w=i8[48,32,2,2]nhwc stride=2 compute=i32 out=i8 + relu",
    "dgrad dy=f16[2,24,3,5]nhwc w=f16[24,16,4,4]nhwc dx=[2,16,12,20] stride=4 + residual",
    "dgrad dy=f16[2,24,3,5]nhwc w=f16[24,16,2,2]nhwc dx=[2,16,6,10] stride=2 + bias + relu",
    "dgrad dy=bf16[2,24,3,2,4]nhwc w=bf16[24,16,2,1,3]nhwc dx=[2,16,6,2,12] stride=2,1,3 spatial=3 + scale + bias",
    "dgrad dy=f16[1,24,3,2,4]nhwc w=f16[24,16,2,2,2]nhwc dx=[1,16,6,4,8] stride=2 spatial=3",
    "dgrad dy=f16[2,24,5,4]nhwc w=f16[24,8,3,2]nhwc dx=[2,8,9,8] pad=1,0 stride=2 + relu",
    "wgrad x=f16[2,16,6,8]nhwc dy=f16[2,24,3,4]nhwc dw=[24,16,2,2] stride=2",
    "wgrad x=bf16[1,3,32,32]nhwc dy=bf16[1,16,2,2]nhwc dw=[16,3,16,16] stride=16",
    "wgrad x=f16[1,16,6,6,8]nhwc dy=f16[1,16,3,4,2]nhwc dw=[16,16,2,3,4] stride=2,1,4 spatial=3",
]


@emulated
@pytest.mark.parametrize("text", PROBLEMS)
def test_results(text: str) -> None:
    check_sums(text, ENGINE, 0, H200)


@emulated
@pytest.mark.parametrize("engine", [ENGINE_TF32, ENGINE_BF16X3], ids=lambda engine: engine.name)
@pytest.mark.parametrize(
    "text",
    [
        "conv x=f32[2,3,32,32]nhwc w=f32[24,3,16,16]nhwc stride=16 + bias + relu",
        "dgrad dy=f32[2,24,3,5]nhwc w=f32[24,16,4,4]nhwc dx=[2,16,12,20] stride=4 + bias",
        "wgrad x=f32[2,16,6,8]nhwc dy=f32[2,24,3,4]nhwc dw=[24,16,2,2] stride=2",
    ],
)
def test_results_of_floats(text: str, engine: Engine) -> None:
    check_sums(text, engine, 0, H200)


@emulated
@pytest.mark.parametrize(
    "text",
    [
        "conv x=f16[2,16,6,8]nhwc w=f16[24,16,2,2]nhwc stride=2",
        "dgrad dy=f16[2,24,3,4]nhwc w=f16[24,16,2,2]nhwc dx=[2,16,6,8] stride=2",
        "wgrad x=f16[2,16,6,8]nhwc dy=f16[2,24,3,4]nhwc dw=[24,16,2,2] stride=2",
    ],
)
def test_old_contents(text: str) -> None:
    (conv,) = operations(text)
    check_sums([conv.model_copy(update={"beta": -2.0})], ENGINE, 0, H200)


@emulated
def test_an_operand_for_each_place_of_an_image() -> None:
    """The same for all images: lines of windows are no images of their own beside it."""
    graph = Graph(io_data_type="float16")
    x = graph.tensor([2, 8, 4, 6], [192, 1, 48, 8])
    w = graph.tensor([16, 8, 2, 2], [32, 1, 16, 8])
    y = graph.conv_fprop(x, w, stride=[2, 2])
    graph.add(y, graph.tensor([1, 16, 2, 3], [96, 1, 48, 16])).set_output(True)
    check_sums(list(graph.build_operation_graph().operations), ENGINE, 0, H200)


def _rules(graph: Graph) -> list[str]:
    (op,) = fuse(graph.build_operation_graph())
    return [r.rule for r in ENGINE.why_not(Task(op, H200))]


def test_operands_that_repeat_along_a_piece_of_a_line() -> None:
    """A filter gradient's end knows no channels of its own."""
    graph = Graph(io_data_type="float16")
    x, dy = graph.tensor([2, 8, 4, 6], [192, 1, 48, 8]), graph.tensor([2, 16, 2, 3], [96, 1, 48, 16])
    dw = graph.conv_wgrad(x, dy, stride=[2, 2]).set_dim([16, 8, 2, 2]).set_stride([32, 1, 16, 8])
    graph.add(dw, graph.tensor([16, 1, 2, 2])).set_output(True).set_stride([32, 1, 16, 8])
    assert _rules(graph) == ["cuda_space_to_depth.layout"]


def test_filters_that_are_read_again_stay_as_they_are() -> None:
    graph = Graph(io_data_type="float16")
    x, w = graph.tensor([8, 8, 4, 4], [128, 1, 32, 8]), graph.tensor([8, 8, 2, 2], [32, 1, 16, 8])
    y = graph.conv_fprop(x, w, stride=[2, 2])
    graph.add(y, w).set_output(True)
    assert _rules(graph) == ["cuda_space_to_depth.layout"]


@pytest.mark.parametrize(
    "text",
    [
        PATCHES,
        "wgrad x=f16[32,3,224,224]nhwc dy=f16[32,768,14,14]nhwc dw=[768,3,16,16] stride=16",
        "dgrad dy=f16[2,64,64,64,64]nhwc w=f16[64,32,2,2,2]nhwc dx=[2,32,128,128,128] stride=2 spatial=3",
    ],
)
def test_what_is_chosen(text: str) -> None:
    assert Ranking(fuse(OperationGraph.of(operations(text))), H200).best.name == "cuda_space_to_depth"


@compiler
def test_compiles() -> None:
    compiles_cleanly(operations(PATCHES), ENGINE, "sm_90a")
