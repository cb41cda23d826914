"""Pairs of pixels as one: on the host against the general engine, and what is chosen."""

from __future__ import annotations

import pytest
from cuda_comparison import compiler, compiles_cleanly, emulated
from exact_sums import check_sums, operations

from graphdnn import Graph, OperationGraph, fuse
from graphdnn.device.profiles import device_spec
from graphdnn.engines import ENGINE_BY_NAME, Task
from graphdnn.heuristics import Ranking

ENGINE = ENGINE_BY_NAME["cuda_stride_fold"]

H200 = device_spec("h200")
DOWN = "conv x=f16[2,32,64,64,64]nhwc w=f16[64,32,3,3,3]nhwc pad=1 stride=2 spatial=3 + bias + relu"

PROBLEMS = [
    "conv x=f16[2,32,4,6,10]nhwc w=f16[40,32,3,3,3]nhwc pad=1 stride=2 spatial=3 + bias + relu",
    "conv x=bf16[2,16,9,12]nhwc w=bf16[24,16,3,3] pad=1 stride=1,2 mode=conv + bias + residual",
    "conv x=f16[1,8,7,16]nhwc w=f16[32,8,5,4]nhwc pre=2,0 post=2,2 stride=2",
    "conv x=f16[1,24,7,10]nhwc w=f16[32,24,2,1]nhwc pre=0,3 post=1,2 stride=2 dil=3,1",
    "conv x=i8[1,32,8,8]nhwc w=i8[48,32,3,7]nhwc pad=1,3 stride=2 compute=i32 out=i8 + relu",
]


@emulated
@pytest.mark.parametrize("text", PROBLEMS)
def test_results(text: str) -> None:
    check_sums(text, ENGINE, 0, H200)


def test_what_is_chosen() -> None:
    assert Ranking(fuse(OperationGraph.of(operations(DOWN))), H200).best.name == "cuda_stride_fold"


def test_filters_that_are_read_again_stay_as_they_are() -> None:
    graph = Graph(io_data_type="float16")
    x = graph.tensor([8, 8, 6, 6], [288, 1, 48, 8])
    w = graph.tensor([8, 8, 3, 3])
    y = graph.conv_fprop(x, w, padding=[1, 1], stride=[2, 2])
    graph.add(y, w).set_output(True)
    (op,) = fuse(graph.build_operation_graph())
    assert [r.rule for r in ENGINE.why_not(Task(op, H200))] == ["cuda_stride_fold.layout"]


@compiler
def test_compiles() -> None:
    compiles_cleanly(operations(DOWN), ENGINE, "sm_90a")
