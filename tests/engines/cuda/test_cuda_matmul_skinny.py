"""Matrix products with few lines on one side: on the host against the general engine, and what is chosen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from cuda_comparison import emulated, first_choice
from exact_sums import check_sums

from graphdnn import Graph, OperationGraph, TensorSpec
from graphdnn.device.profiles import device_spec
from graphdnn.engines.cuda.sm80.mma_skinny import ENGINE
from graphdnn.operations import Matmul, MatmulSpec, Operation

H200 = device_spec("h200")


def product(
    rows: int, columns: int, depth: int, kind: str = "f16", result: str = "", pitch: int = 0
) -> list[Operation]:
    """Neighbours along k on both sides. ``result``: "c" where columns of c are contiguous. ``pitch``: of b's columns."""

    def tensor(uid: int, dims: Sequence[int], strides: Sequence[int]) -> TensorSpec:
        return TensorSpec(uid=uid, data_type=kind, dims=tuple(dims), strides=tuple(strides))

    a = tensor(1, (rows, depth), (depth, 1))
    b = tensor(2, (depth, columns), (1, pitch or depth))
    c = tensor(3, (rows, columns), (1, rows) if result else (columns, 1))
    return [Matmul(a=a, b=b, c=c, spec=MatmulSpec(compute_type="f32"))]


@emulated
@pytest.mark.parametrize(
    ("rows", "columns", "depth", "rest"),
    [
        (1, 50, 200, {}),
        (3, 96, 72, {"kind": "bf16"}),
        (16, 33, 136, {"result": "c"}),
        (9, 17, 1208, {"pitch": 1216}),
        (40, 8, 72, {}),
        (70, 11, 8, {"result": "c"}),
    ],
)
def test_results(rows: int, columns: int, depth: int, rest: dict[str, str]) -> None:
    ops = product(rows, columns, depth, **rest)  # type: ignore[arg-type]
    check_sums(ops, ENGINE, 0, H200)
    check_sums(ops, ENGINE, 1, H200, TILE_M=2, BLOCK_SIZE=128, LOAD_SIZE=1)


def linear(rows: int, columns: int, depth: int) -> OperationGraph:
    graph = Graph(io_data_type="f16")
    a = graph.tensor(name="a", dim=(rows, depth), stride=(depth, 1))
    b = graph.tensor(name="b", dim=(depth, columns), stride=(1, depth))
    bias = graph.tensor(name="bias", dim=(1, columns), stride=(columns, 1))
    y = graph.add(graph.matmul(a, b), bias)
    y.set_output(True)
    return graph.build_operation_graph()


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_what_is_chosen(rows: int) -> None:
    """Linear layers of language models, a few tokens at a time."""
    first_choice(linear(rows, 4096, 4096), "cuda_matmul_skinny", H200)
