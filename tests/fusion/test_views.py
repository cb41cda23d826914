"""Views: reshape, slice and transpose that move nothing, in whole device plans with kernels on the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cuda_comparison import emulated
from emulator.runtime import EmulatedRuntime

from graphdnn import ExecutionPlan, Graph, rank
from graphdnn.builder.tensor import Tensor
from graphdnn.enums import ReshapeMode
from graphdnn.fusion.views import views_of
from graphdnn.plan import DevicePlan

Build = Callable[[Graph, Tensor], Tensor]
DIMS = (2, 8, 6, 10)
ALL = slice(None)


def graph_of(build: Build, *, nhwc: bool = False, computed: bool = False) -> Graph:
    """relu(build(x)); ``computed``: of x * x, which passes through memory."""
    graph = Graph("views", io_data_type="float32", intermediate_data_type="float32", device="h200")
    _, c, h, w = DIMS
    x = graph.tensor(DIMS, name="x", stride=[c * h * w, 1, w * c, c] if nhwc else None)
    graph.relu(build(graph, graph.mul(x, x) if computed else x)).set_output(True)
    return graph


def quarter(graph: Graph, x: Tensor) -> Tensor:
    return graph.slice(x, (ALL, slice(4, 8), ALL, ALL))


def every_other(graph: Graph, x: Tensor) -> Tensor:
    return graph.slice(x, (ALL, ALL, slice(0, 6, 2), ALL))


def turned(graph: Graph, x: Tensor) -> Tensor:
    return graph.transpose(x, (0, 2, 3, 1))


def flat(graph: Graph, x: Tensor) -> Tensor:
    return graph.reshape(x).set_dim((2, 8, 60))


def split(graph: Graph, x: Tensor) -> Tensor:
    return graph.reshape(x, reshape_mode=ReshapeMode.LOGICAL).set_dim((2, 2, 4, 6, 10))


def nested(graph: Graph, x: Tensor) -> Tensor:
    return graph.slice(turned(graph, quarter(graph, x)), (slice(1, 2), ALL, ALL, ALL))


EXPECTED: dict[Build, Callable[[np.ndarray], np.ndarray]] = {
    quarter: lambda x: x[:, 4:8],
    every_other: lambda x: x[:, :, 0:6:2],
    turned: lambda x: x.transpose(0, 2, 3, 1),
    flat: lambda x: x.reshape(2, 8, 60),
    split: lambda x: x.reshape(2, 2, 4, 6, 10),
    nested: lambda x: x[:, 4:8].transpose(0, 2, 3, 1)[1:2],
}


def plan_of(graph: Graph) -> DevicePlan:
    return DevicePlan(graph.ranking.best, EmulatedRuntime())


# Channels last, the elements that a reshape joins or splits have no common strides.
CASES = [(build, nhwc) for build in EXPECTED for nhwc in (False, True) if not (nhwc and build in (flat, split))]


@emulated
@pytest.mark.parametrize(("build", "nhwc"), CASES, ids=lambda v: getattr(v, "__name__", "nhwc" if v else "nchw"))
def test_nothing_moves(build: Build, nhwc: bool) -> None:
    graph = graph_of(build, nhwc=nhwc)
    plan = plan_of(graph)
    assert plan.workspace_size == 0
    assert [launch.entry for launch in plan.launches] == ["pointwise"]
    x = np.random.default_rng(0).standard_normal(DIMS).astype(np.float32)
    if nhwc:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(run(graph, plan, x), np.maximum(EXPECTED[build](x), 0))


@emulated
def test_a_view_of_what_a_kernel_computes() -> None:
    graph = graph_of(nested, computed=True)
    plan = plan_of(graph)
    assert [launch.entry for launch in plan.launches] == ["pointwise", "pointwise"]
    assert plan.workspace_size == 4 * np.prod(DIMS)  # x * x; what it is cut and turned to lies in there
    x = np.random.default_rng(1).standard_normal(DIMS).astype(np.float32)
    np.testing.assert_array_equal(run(graph, plan, x), EXPECTED[nested](x * x))


@emulated
@pytest.mark.parametrize("build", [quarter, nested], ids=lambda b: b.__name__)
def test_the_engine_that_copies_leaves_views_alone(build: Build) -> None:
    """Chosen by hand: y lies in x, which belongs to the caller."""
    graph = graph_of(build)
    copying = next(c for c in graph.ranking if "cuda_view" not in c.name)
    assert "cuda_data_movement" in copying.name
    plan = DevicePlan(copying, EmulatedRuntime())
    x = np.random.default_rng(3).standard_normal(DIMS).astype(np.float32)
    x.setflags(write=False)
    assert [launch.entry for launch in plan.launches] == ["pointwise"]
    np.testing.assert_array_equal(run(graph, plan, x), np.maximum(EXPECTED[build](x), 0))


def one_channel_on(graph: Graph, x: Tensor) -> Tensor:
    return graph.slice(x, (ALL, slice(1, 5), ALL, ALL))


def packed(graph: Graph, x: Tensor) -> Tensor:
    y = turned(graph, x)
    return y.set_stride([480, 80, 8, 1])


def kept(graph: Graph, x: Tensor) -> Tensor:
    return turned(graph, x).set_output(True)


@emulated
@pytest.mark.parametrize("build", [one_channel_on, packed, kept], ids=lambda b: b.__name__)
def test_what_has_to_move(build: Build) -> None:
    """An address that is not aligned, strides that were chosen, a result that is bound."""
    graph = graph_of(build, nhwc=build is one_channel_on)
    assert "cuda_view" not in graph.ranking.best.name
    reasons = {d.engine.name: [r.rule for r in d.rejections] for d in graph.ranking.declined if d.operation.index == 0}
    assert reasons["cuda_view"] == ["cuda_view.layout"]
    assert not views_of(graph.fused)


@emulated
@pytest.mark.parametrize("place", ["device", "host"])
def test_windows_of_an_operand_whose_elements_overlap(place: str) -> None:
    """Results of transpose and slice lie as what they show of it, so what seems to be written twice is one element."""
    graph = Graph("windows", io_data_type="float32", device="h200" if place == "device" else "cpu")
    x = graph.tensor([4, 6, 3], [2, 1, 3])
    graph.relu(graph.slice(graph.transpose(x, (1, 0, 2)), (ALL, slice(1, 4), slice(0, 3, 2)))).set_output(True)
    plan = plan_of(graph) if place == "device" else ExecutionPlan(graph.ranking.best)
    memory = np.random.default_rng(2).standard_normal(18).astype(np.float32)
    windows = np.lib.stride_tricks.as_strided(memory, (4, 6, 3), (8, 4, 12))
    wanted = np.maximum(windows.transpose(1, 0, 2)[:, 1:4, ::2], 0)
    np.testing.assert_array_equal(run(graph, plan, windows), wanted)


def test_the_host_copies() -> None:
    """NumPy's engines take whole arrays."""
    graph = graph_of(nested)
    plan = ExecutionPlan(rank(graph.build_operation_graph(), "cpu").best)
    x = np.random.default_rng(2).standard_normal(DIMS).astype(np.float32)
    np.testing.assert_array_equal(run(graph, plan, x), np.maximum(EXPECTED[nested](x), 0))


def run(graph: Graph, plan: ExecutionPlan, x: np.ndarray) -> np.ndarray:
    """y, from poisoned memory."""
    (given,), (result,) = graph.build_operation_graph().inputs, graph.build_operation_graph().outputs
    y = plan.new_array(result)
    y.fill(np.nan)
    workspace = plan.new_workspace()
    plan.execute({given.uid: x, result.uid: y}, workspace)
    return y
