"""The three faces on the GPU: v8 addresses, the builder's arrays and captures, the command line."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest
from backend_calls import heuristics, pack_descriptor, plan_descriptor, workspace_size
from backend_descriptors import graph_descriptor
from legal_problems import IMAGE, operation, tensor

from graphdnn import Graph, ReductionOperator, build
from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import cudnnBackendExecute, cudnnCreate, cudnnSetStream
from graphdnn.cli import main
from graphdnn.enums import AttributeType as T
from graphdnn.operations import Operation
from graphdnn.problem import parse, random_bindings

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def two_kernels() -> tuple[Operation, Operation]:
    total = tensor(11, (1, 4, 1, 1), is_virtual=True)
    return (
        operation("reduction", x=tensor(10, IMAGE), y=total),
        operation("pointwise", x=tensor(10, IMAGE), b=total, y=tensor(12, IMAGE)),
    )


def values() -> Any:
    return np.random.default_rng(0).integers(-9, 9, IMAGE).astype(np.float32)


def expected(x: Any) -> Any:
    return x + x.sum((0, 2, 3), keepdims=True)


def test_v8_addresses_and_streams() -> None:
    import cupy

    handle = cudnnCreate("cuda")
    graph = graph_descriptor(*two_kernels(), HANDLE=(T.HANDLE, [handle]))
    plan = plan_descriptor(heuristics(graph)[0])
    x, y = cupy.asarray(values()), cupy.empty(IMAGE, cupy.float32)
    memory = cupy.empty(workspace_size(plan), cupy.uint8)
    pack = pack_descriptor({10: x.data.ptr, 12: y.data.ptr}, memory.data.ptr)
    cupy.cuda.Device().synchronize()
    for stream in (None, cupy.cuda.Stream(non_blocking=True)):
        y.fill(cupy.nan)
        cupy.cuda.Device().synchronize()
        cudnnSetStream(handle, stream)
        cudnnBackendExecute(handle, plan, pack)
        cupy.cuda.Device().synchronize()
        np.testing.assert_array_equal(y.get(), expected(values()))


def test_v8_shared_memory_and_device_id() -> None:
    from backend_descriptors import made, read

    from graphdnn.enums import DescriptorType as D

    prop = made(D.DEVICEPROP, {A.DEVICEPROP_DEVICE_ID: (T.INT32, [0])})
    assert prop.content.device.kind == "cuda"
    config = heuristics(graph_descriptor(operation("matmul")), DEVICEPROP=(T.BACKEND_DESCRIPTOR, [prop]))[-1]
    (used,) = read(config, A.ENGINECFG_SHARED_MEMORY_USED, T.INT32)
    assert 0 <= used <= prop.content.device.shared_memory


def test_builder_arrays_streams_and_captures() -> None:
    import cupy

    g = Graph("layer", io_data_type="float32", device="cuda")
    x = g.tensor(list(IMAGE), name="x")
    total = g.reduction(x, ReductionOperator.ADD).set_dim([1, 4, 1, 1])
    y = g.add(x, total).set_output(True)
    a = cupy.asarray(values())
    cupy.cuda.Device().synchronize()
    out = g.run({x: a})[y]
    assert isinstance(out, cupy.ndarray)
    np.testing.assert_array_equal(out.get(), expected(values()))
    side = cupy.cuda.Stream(non_blocking=True)
    out.fill(0)
    cupy.cuda.Device().synchronize()
    g.execute({x: a, y: out}, stream=side)
    side.synchronize()
    np.testing.assert_array_equal(out.get(), expected(values()))
    captured = g.capture({x: a, y: out})
    out.fill(0)
    captured.launch()
    cupy.cuda.Device().synchronize()
    np.testing.assert_array_equal(out.get(), expected(values()))


@pytest.mark.parametrize("own_streams", [False, True])
def test_a_built_graph_in_threads(own_streams: bool) -> None:
    """It keeps a workspace for each thread and stream: launches of two threads take turns in one stream."""
    import cupy

    g = Graph("shared", io_data_type="float32", device="cuda")
    x = g.tensor([64, 512])
    rows = g.mul(x, g.reduction(x, ReductionOperator.ADD).set_dim([64, 1]))
    y = g.add(x, g.reduction(rows, ReductionOperator.ADD).set_dim([1, 512])).set_output(True)
    assert g.build().workspace_size > 0
    data = [cupy.random.standard_normal((64, 512)).astype(cupy.float32) for _ in range(6)]
    wanted = [g.run({x: a})[y] for a in data]
    cupy.cuda.Device().synchronize()
    differences: list[int] = []

    def work(i: int) -> None:
        with cupy.cuda.Stream(non_blocking=True) if own_streams else cupy.cuda.Stream.null as stream:
            found = cupy.zeros((), cupy.int64)
            for _ in range(200):
                found += (g.run({x: data[i]})[y] != wanted[i]).sum()
            stream.synchronize()
            differences.append(int(found))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(data))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differences == [0] * len(data)


@pytest.mark.parametrize("kind", ["f32", "bf16", "e4m3", "i8"])
@pytest.mark.parametrize("layout", ["", "nhwc"])
def test_arrays_travel_whole(kind: str, layout: str) -> None:
    graph = parse(f"pointwise x={kind}[2,4,6,6]{layout} compute=f32 + relu").build_operation_graph()
    plan = build(graph, "cuda")
    host = random_bindings(graph, 1)
    back = plan.to_host(plan.to_device(host))
    for uid, array in host.items():
        assert back[uid].strides == array.strides
        assert back[uid].tobytes() == array.tobytes()


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    problem = "conv x=bf16[2,16,9,9]nhwc w=bf16[8,16,3,3] pad=1 + bias + relu"
    assert main(["run", problem, "--device", "cuda", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == "ok"
    assert all(time > 0 for time in data["device_times_us"])
