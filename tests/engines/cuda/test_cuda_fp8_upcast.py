"""Convolutions of fp8 through copies in 16 bits, on the host against the general engine, and what is chosen for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_comparison import device_kernel, emulated, fused
from emulator.libraries import host_libraries
from exact_sums import check_sums, operations

from graphdnn import Graph, fuse
from graphdnn.device.profiles import device_spec
from graphdnn.engines import ENGINE_BY_NAME, Task
from graphdnn.engines.cuda.rewrites import fp8_upcast
from graphdnn.engines.cuda.rewrites.rewrite_engine import rewrite_engine
from graphdnn.engines.cuda.sm90.gemm import hopper_matmul
from graphdnn.enums import DataType
from graphdnn.heuristics import Ranking
from graphdnn.operations import ConvForward, Operation
from graphdnn.problem import parse

ENGINE = ENGINE_BY_NAME["cuda_fp8_upcast"]


@emulated
@pytest.mark.parametrize(
    "text",
    [
        "conv x=e4m3[2,20,9,11]nhwc w=e5m2[24,20,3,3] pad=1 out=f32 + bias + residual + relu",
        "conv x=bf16[1,24,5,6] w=e4m3[40,24,3,3] stride=2 out=bf16",
        "dgrad dy=e5m2[2,12,5,6] w=e4m3[12,20,3,3] dx=[2,20,10,12] pad=1 stride=2",
        "wgrad x=e4m3[2,9,7,6]nhwc dy=f16[2,12,7,6]nhwc dw=[12,9,3,3] pad=1 out=f32",
        "conv x=e4m3[2,64,6,7]nhwc w=e4m3[32,32,3,3]nhwc pad=1 out=f16 -> reduce add [1,32,1,1]",
    ],
)
def test_results(text: str) -> None:
    check_sums(text, ENGINE)


@emulated
def test_a_device_without_the_products_of_warpgroups() -> None:
    check_sums("conv x=e4m3[1,24,5,6]nhwc w=e5m2[16,24,3,3]nhwc pad=1 out=f16 + relu", ENGINE, 0, device_spec("a100"))


@emulated
def test_an_operand_that_is_read_again_after_the_sum() -> None:
    """As it is in memory, not its copy."""
    check_sums("conv x=e4m3[1,16,5,6]nhwc w=e4m3[16,16,3,3]nhwc pad=1 out=e4m3 + residual", ENGINE)


@emulated
@pytest.mark.parametrize(
    "text",
    [
        "matmul a=e4m3[2,40,36] b=e5m2[2,36,24] out=f32 + relu",
        "matmul a=bf16[70,20] b=e4m3[20,64] out=bf16 + bias",
    ],
)
def test_matrix_products(text: str) -> None:
    """By cuBLAS, or what stands in for it here, and by kernels of our own."""
    with host_libraries():
        check_sums(text, ENGINE)
    check_sums(text, rewrite_engine(replace(fp8_upcast.ROW, engines=(hopper_matmul.ENGINE,))))


def test_what_is_computed_ahead_is_not_copied() -> None:
    graph = Graph()
    a, b = (graph.tensor(dims, data_type="e4m3") for dims in ([2, 24, 40], [2, 40, 16]))
    graph.matmul(graph.relu(a).set_data_type("e4m3"), b).set_output(True)
    op = fused(graph.build_operation_graph().operations)
    assert op.prologue
    (reason,) = ENGINE.why_not(Task(op, device_spec("h200")))
    assert reason.rule == "cuda_fp8_upcast.copies"


@emulated
def test_fast_sums_are_full_sums_here() -> None:
    (conv,) = operations("conv x=e4m3[1,144,5,6]nhwc w=e4m3[24,144,3,3]nhwc pad=1 out=f32")
    assert isinstance(conv, ConvForward)
    fast = conv.conv.model_copy(update={"compute_type": DataType.FAST_FLOAT_FOR_FP8})
    changed: Operation = conv.model_copy(update={"conv": fast})
    check_sums([changed], ENGINE)


def test_what_is_chosen() -> None:
    """Full sums unless shorter ones are allowed; never the engines without tensor cores, where there are products."""
    graph = parse("conv x=e4m3[32,256,56,56]nhwc w=e4m3[256,256,3,3]nhwc pad=1 out=f16 + bias").build_operation_graph()
    for device in ("h200", "a100"):
        assert Ranking(fuse(graph), device_spec(device)).best.name == "cuda_fp8_upcast"
    kernel = device_kernel(graph.operations, ENGINE)
    assert len(kernel.steps) == 3  # two copies
