"""Convolutions behind pointwise chains, computed ahead: on the host against the general engine, and what is chosen."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_comparison import emulated, first_choice
from exact_sums import check_sums, operations

from graphdnn import Graph, OperationGraph, build, fuse
from graphdnn.device.profiles import device_spec
from graphdnn.engines import ENGINE_BY_NAME
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.enums import ReductionOperator
from graphdnn.heuristics import Ranking

ENGINE = ENGINE_BY_NAME["cuda_materialized_prologue"]


def behind(
    dims: tuple[int, ...],
    filters: int,
    kernel: int = 3,
    kind: str = "float16",
    *,
    nhwc: bool = True,
    exit: bool = False,
    groups: int = 1,
) -> OperationGraph:
    """ReLU(x * scale + shift), a convolution, a bias; perhaps the sums of the channels."""
    g = Graph("behind", kind, kind, "int32" if kind.startswith("int") else "float32")
    _, c, h, w = dims
    x = g.tensor(dims, stride=[c * h * w, 1, w * c, c] if nhwc else None)
    scale, shift = g.tensor([1, c, 1, 1]), g.tensor([1, c, 1, 1])
    v = g.relu(g.add(g.mul(x, scale), shift))
    sums = g.conv_fprop(v, g.tensor([filters, c // groups, kernel, kernel]), padding=[kernel // 2] * 2)
    y = g.bias(sums, g.tensor([1, filters, 1, 1]))
    if exit:
        g.reduction(y, ReductionOperator.ADD).set_dim([1, filters, 1, 1]).set_output(True)
    else:
        y.set_output(True)
    return g.build_operation_graph()


@emulated
@pytest.mark.parametrize(
    "fields",
    [
        {"dims": (2, 16, 6, 7), "filters": 24},
        {"dims": (1, 24, 5, 6), "filters": 40, "kernel": 1, "kind": "bfloat16", "nhwc": False},
        {"dims": (2, 32, 4, 5), "filters": 32, "kind": "int8"},
        {"dims": (1, 16, 6, 7), "filters": 32, "exit": True},
        {"dims": (1, 16, 5, 6), "filters": 24, "kind": "int16"},
        {"dims": (2, 24, 9, 8), "filters": 24, "groups": 24},
    ],
)
def test_results(fields: Any) -> None:
    check_sums(behind(**fields).operations, ENGINE)


@emulated
def test_a_device_without_the_products_of_warpgroups() -> None:
    check_sums(behind((1, 24, 5, 6), 16, nhwc=False).operations, ENGINE, 0, device_spec("a100"))


@emulated
def test_gradients() -> None:
    """The chain leads to dy, and to the image of a filter gradient."""
    for direction in ("dgrad", "wgrad"):
        g = Graph(direction, "float16", "float16", "float32")
        dy = g.tensor([2, 16, 6, 7], stride=[16 * 42, 1, 7 * 16, 16])
        if direction == "dgrad":
            dx = g.conv_dgrad(g.mul(dy, g.tensor([1, 16, 1, 1])), g.tensor([16, 24, 3, 3]), padding=[1, 1])
            dx.set_dim([2, 24, 6, 7]).set_output(True)
        else:
            x = g.tensor([2, 24, 6, 7], stride=[24 * 42, 1, 7 * 24, 24])
            dw = g.conv_wgrad(g.relu(x), dy, padding=[1, 1])
            dw.set_dim([16, 24, 3, 3]).set_output(True)
        check_sums(g.build_operation_graph().operations, ENGINE)


@pytest.mark.parametrize("device", ["h200", "l40s"])
def test_what_is_chosen(device: str) -> None:
    graph, spec = behind((64, 256, 28, 28), 256), device_spec(device)
    kernel = first_choice(graph, "cuda_materialized_prologue", spec)
    assert any(isinstance(step, Launch) and step.text.name.startswith("pointwise__") for step in kernel.steps)


def test_without_a_chain_there_is_nothing_to_do() -> None:
    graph = OperationGraph.of(operations("conv x=f16[1,16,6,6] w=f16[16,16,3,3]"))
    assert "cuda_materialized_prologue" not in {config.name for config in Ranking(fuse(graph), device_spec("h200"))}


def test_lines_are_told_with_the_plans_operations() -> None:
    """Operation 0 of the convolution's text is not operation 0 of the plan."""
    plan = build(behind((64, 256, 28, 28), 256), "h200")
    assert plan.name == "cuda_materialized_prologue"
    numbers = {line.operation.label() for line in plan.source_lines[0]}
    assert {"conv_fprop", "mul", "relu_fwd", "add"} <= numbers
