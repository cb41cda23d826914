"""Plans and arrays on the GPU that is there: what these tests have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from graphdnn import ExecutionPlan, OperationGraph, rank
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.host.memory import binding_layout
from graphdnn.plan import DevicePlan
from graphdnn.problem import parse
from graphdnn.tensors import TensorSpec

CONVOLUTION = "conv x=f16[4,32,20,20]nhwc w=f16[64,32,3,3]nhwc pad=1 + bias + residual + relu"

# Two kernels at least, with a tensor or partial sums between them.
THROUGH_WORKSPACE = "conv x=f32[4,16,14,14] w=f32[16,16,3,3] pad=1 + relu -> reduce add [1,16,1,1]"

SUM = "pointwise x=f32[64,64] + residual"

# Problems for the engines that call a library.
OF_LIBRARIES = {
    "cuda_matmul_cublas": "matmul a=f32[2,96,64] b=f32[2,64,80]",
    "cuda_fft": "conv x=f32[2,8,20,20] w=f32[8,8,5,5] pad=2",
}


def plan_for(text: str, engine: str | None = None) -> tuple[OperationGraph, DevicePlan]:
    """The best plan, or one with an engine."""
    graph = parse(text).build_operation_graph()
    ranking = rank(graph, "cuda")
    configs = (c for c in ranking if engine in (None, *(choice.engine.name for choice in c.choices)))
    plan = ExecutionPlan(next(configs))
    assert isinstance(plan, DevicePlan)
    return graph, plan


def device_array(spec: TensorSpec, rng: np.random.Generator | None) -> Any:
    """A CuPy array as described, of random numbers or of NaN."""
    import cupy

    dtype, shape, strides = binding_layout(spec)
    memory = cupy.full(spec.bytes, 0xFF, cupy.uint8)
    array = cupy.ndarray(shape, dtype, memory.data, strides=strides)
    if rng is not None:
        element = ELEMENTS[spec.data_type]
        values = rng.standard_normal(shape) if element.kind == "float" else rng.integers(-9, 9, shape)
        array[...] = cupy.asarray(values.astype(dtype))
    return array


def arrays_for(graph: OperationGraph, seed: int) -> dict[int, Any]:
    rng = np.random.default_rng(seed)
    written = {t.uid for t in graph.outputs}
    return {t.uid: device_array(t, None if t.uid in written else rng) for t in graph.bound}


def in_a_new_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns, or raises, where no context was ever current."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *arguments).result()


def results(graph: OperationGraph, bound: Mapping[int, Any]) -> dict[int, bytes]:
    return {t.uid: bound[t.uid].get().tobytes() for t in graph.outputs}


def expected(graph: OperationGraph, plan: DevicePlan, seed: int) -> dict[int, bytes]:
    import cupy

    bound = arrays_for(graph, seed)
    plan.execute(bound, plan.new_workspace())
    cupy.cuda.get_current_stream().synchronize()
    found = results(graph, bound)
    assert all(value[:4] != b"\xff\xff\xff\xff" for value in found.values()), "nothing was written"
    return found
