"""HALF and BFLOAT16 as compute types are computed in fp32, so every engine that sums in fp32 serves them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from knob_launches import DEVICE, MORE
from random_problems.named_problems import NAMED, Named

from graphdnn.device.profiles import device_spec
from graphdnn.engines import Task, engines_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.enums import DataType
from graphdnn.fusion import FusedGraph, fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Ranking
from graphdnn.operations import Operation
from graphdnn.problem import parse

FLOAT_COMPUTE = (DataType.FLOAT, DataType.HALF, DataType.BFLOAT16)
SPECS = ("conv", "matmul", "spec")
REACHED = {"cuda_hopper_gemm", "cuda_hopper_halo", "cuda_hopper_matmul", "cuda_hopper_bf16x3", "cuda_mma_gemm_tf32"}


def computed_in(operation: Operation, compute_type: DataType) -> Operation:
    """The same operation with another compute type, where it is FLOAT."""
    if operation.compute_type is not DataType.FLOAT:
        return operation
    field = next((name for name in SPECS if hasattr(getattr(operation, name, None), "compute_type")), None)
    if field is None:
        return operation
    spec = getattr(operation, field).model_copy(update={"compute_type": compute_type})
    return operation.model_copy(update={field: spec})


def of_type(problem: Named, compute_type: DataType) -> FusedGraph:
    return fuse(OperationGraph.of([computed_in(op, compute_type) for op in problem.problem().operations]))


def pairs(compute_type: DataType) -> Iterator[tuple[Named, Task, Task]]:
    device = device_spec(DEVICE)
    for problem in (*NAMED, *MORE):
        operations = problem.problem().operations
        if any(computed_in(op, compute_type) is not op for op in operations):
            plain, other = of_type(problem, DataType.FLOAT), of_type(problem, compute_type)
            assert len(plain) == len(other), f"{problem} is fused differently"
            yield from ((problem, Task(a, device), Task(b, device)) for a, b in zip(plain, other, strict=True))


@pytest.mark.parametrize("compute_type", [DataType.HALF, DataType.BFLOAT16])
def test_the_same_engines_serve_it(compute_type: DataType) -> None:
    served = set()
    for problem, plain, other in pairs(compute_type):
        for engine in engines_of("cuda"):
            assert engine.serves(plain) is engine.serves(other), f"{engine.name}, {problem}"
            if engine.serves(other):
                served.add(engine.name)
                seconds = [engine.cost(task, engine.defaults()).seconds for task in (plain, other)]
                assert seconds[0] == seconds[1], f"{engine.name} is predicted another time, {problem}"
    assert served >= REACHED


@pytest.mark.parametrize("compute_type", FLOAT_COMPUTE)
def test_the_kernel_is_that_of_float(compute_type: DataType) -> None:
    problem = Named("conv x=f16[2,64,12,12]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu")
    texts = []
    for kind in (DataType.FLOAT, compute_type):
        best = Ranking(of_type(problem, kind), device_spec(DEVICE)).best.choices[0]
        kernel = best.engine.compile(best.task, best.knobs)
        assert isinstance(kernel, DeviceKernel)
        texts.append([step.text for step in kernel.steps if isinstance(step, Launch)])
    assert texts[0] == texts[1]


def test_shorter_sums_of_fp8_stay_a_request() -> None:
    """FAST_FLOAT_FOR_FP8 allows shorter sums; HALF does not ask for them."""
    graph = parse("matmul a=e4m3[256,512] b=e4m3[512,256]").build_operation_graph()
    (op,) = graph.operations
    half = fuse(OperationGraph.of([computed_in(op, DataType.HALF)]))
    assert "fast" not in Ranking(half, device_spec(DEVICE)).best.name
