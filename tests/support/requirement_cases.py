"""NEED_CASES: for each reason of an engine to decline, an operation that gives it that reason and no other.

Most are lines of data/need_cases.txt: rule, device, problem text. A text may begin with ``prologue``, which puts a ReLU
before the streamed operand, or ``fast``, which makes the arithmetic FAST_FLOAT_FOR_FP8. ``INSEPARABLE`` are the reasons
that come with another one, whatever the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import pytest
from extension_cases import recurrent
from legal_problems import operation, pooling, tensor
from repository import DATA

from graphdnn import device_spec, fuse
from graphdnn.engines import ENGINES, Engine, Task
from graphdnn.enums import DataType, PaddingMode, PointwiseMode, ResampleMode
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import ConvolutionOperation, Matmul, MatmulSpec, Operation, PointwiseOperation, PointwiseSpec
from graphdnn.operations.resample import resampled_extents
from graphdnn.problem import parse
from graphdnn.tensors import TensorSpec

TABLE = DATA / "need_cases.txt"
H200, A100 = device_spec("h200"), device_spec("a100")
DEVICES = {"h200": H200, "a100": A100, "h200, 1500 bytes shared": replace(H200, shared_memory=1500)}


def _operations(text: str) -> list[Operation]:
    kind, _, rest = text.partition(" ")
    if kind == "fast":
        return [_fast(op) for op in _operations(rest)]
    if kind == "prologue":
        return _after_relu(_operations(rest))
    return list(parse(text).build_operation_graph().operations)


def _fast(op: Operation) -> Operation:
    port = "conv" if isinstance(op, ConvolutionOperation) else "spec"
    if not isinstance(op, (ConvolutionOperation, Matmul)):
        return op
    settings = getattr(op, port).model_copy(update={"compute_type": DataType.FAST_FLOAT_FOR_FP8})
    return op.model_copy(update={port: settings})


def _after_relu(operations: list[Operation]) -> list[Operation]:
    """With a ReLU before x, or before dy of a data gradient."""
    (op,) = operations
    port = "dy" if op.tag == "conv_dgrad" else "x"
    streamed: TensorSpec = getattr(op, port)
    before = streamed.model_copy(update={"uid": 1000})
    virtual = streamed.model_copy(update={"is_virtual": True})
    integer = op.compute_type in (DataType.INT32, DataType.INT64)
    spec = PointwiseSpec(mode=PointwiseMode.RELU_FWD, math_type=op.compute_type if integer else DataType.FLOAT)
    return [PointwiseOperation(spec=spec, x=before, y=virtual), op.model_copy(update={port: virtual})]


def _uneven() -> list[Operation]:
    """An interpolation whose step has a denominator of 31 bits."""
    spec = pooling(
        mode=ResampleMode.NEAREST, padding_mode=PaddingMode.EDGE_VAL_PAD, spatial_dims=1, window_dims=(1,),
        strides=(Fraction(10**9 + 7, 2 * 10**9),), pre_paddings=(0,), post_paddings=(0,),
    )  # fmt: skip
    y = tensor(2, resampled_extents((1, 1, 9), spec))
    return [operation("resample_fwd", x=tensor(1, (1, 1, 9)), y=y, index=..., spec=spec)]


def _stacks_apart() -> list[Operation]:
    """A product of fp8 whose results leave gaps between the stacks, in the fast arithmetic."""
    a, b = (tensor(uid, (2, 2, 8, 8), data_type="e4m3") for uid in (1, 2))
    apart = tensor(3, (2, 2, 8, 8), data_type="e4m3", strides=(256, 64, 8, 1))
    return [_fast(operation("matmul", a=a, b=b, c=apart, spec=MatmulSpec(compute_type="f32")))]


def _by_columns(columns: int, *, is_behind: bool = False) -> list[Operation]:
    """A product with neighbours along k, after a ReLU of a perhaps."""
    a, c = (tensor(uid, (40, n), data_type="f16") for uid, n in ((1, 64), (3, columns)))
    b = tensor(2, (64, columns), data_type="f16", strides=(1, 64))
    if not is_behind:
        return [operation("matmul", a=a, b=b, c=c)]
    virtual = a.model_copy(update={"is_virtual": True})
    spec = PointwiseSpec(mode=PointwiseMode.RELU_FWD, math_type=DataType.FLOAT)
    first = PointwiseOperation(spec=spec, x=a.model_copy(update={"uid": 1000}), y=virtual)
    return [first, operation("matmul", a=virtual, b=b, c=c)]


def _wide_windows() -> list[Operation]:
    """The gradient of a maximum over windows with more positions than 64-bit numbers count."""
    pads = (2**22,) * 3
    x, y = tensor(1, (1, 1, 2, 2, 2)), tensor(2, (1, 1, 3, 3, 3))
    spec = pooling(spatial_dims=3, strides=(1,) * 3, window_dims=pads, pre_paddings=pads, post_paddings=(0,) * 3)
    dx, dy = x.model_copy(update={"uid": 3}), y.model_copy(update={"uid": 4})
    return [operation("resample_bwd", x=x, y=y, dx=dx, dy=dy, index=..., spec=spec)]


def _lines() -> Iterator[tuple[str, str, str]]:
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            rule, device, text = (part.strip() for part in line.split("|"))
            yield rule, device, text


def _task(operations: list[Operation], device: str = "h200") -> Task:
    (fused,) = fuse(OperationGraph.of(operations))
    return Task(fused, DEVICES[device])


def from_text(text: str, device: str) -> Callable[[], Task]:
    return lambda: _task(_operations(text), device)


RECURRENT = (
    ("cuda_rnn", "rnn_fwd"), ("cuda_rnn_16bit", "rnn_fwd"), ("cuda_rnn_persistent", "rnn_fwd"),
    ("cuda_rnn_backward_data", "rnn_bwd_data"), ("cuda_rnn_persistent_backward_data", "rnn_bwd_data"),
    ("cuda_rnn_backward_weights", "rnn_bwd_weights"), ("cuda_rnn_backward_weights_16bit", "rnn_bwd_weights"),
)  # fmt: skip

NEED_CASES: dict[str, Callable[[], Task]] = {
    **{rule: from_text(text, device) for rule, device, text in _lines()},
    "cuda_hopper_matmul_fp8_fast.batch": lambda: _task(_stacks_apart()),
    "cuda_matmul_skinny.lines": lambda: _task(_by_columns(40)),
    "cuda_matmul_skinny.prologue": lambda: _task(_by_columns(8, is_behind=True)),
    **{
        f"{engine}.layers": lambda tag=tag: _task([recurrent(tag, "f16", input_size=32, hidden_size=32, layers=257)])
        for engine, tag in RECURRENT
    },
    "cuda_resample_forward.coordinates": lambda: _task(_uneven()),
    "cuda_resample_forward.direction": lambda: _task([operation("resample_bwd")]),
    "cuda_resample_backward.places": lambda: _task(_wide_windows()),
    "cuda_resample_backward.direction": lambda: _task([operation("resample_fwd")]),
}

# rule -> (what it comes with, all or some of it, why)
INSEPARABLE: dict[str, tuple[tuple[str, ...], str]] = {
    **{
        f"{engine}.layout": (
            (f"{engine}.hidden_size", f"{engine}.types", f"{engine}.size"),
            "vectors are of bytes and scalars by value of one element, and neither is what the engine multiplies",
        )
        for engine in ("cuda_rnn_persistent", "cuda_rnn_persistent_backward_data")
    },
    **{
        f"{engine}.hidden_size": (
            (f"{engine}.size",),
            "a hidden size that blocks do not divide evenly leaves no way to divide the layer among them",
        )
        for engine in ("cuda_rnn_persistent", "cuda_rnn_persistent_backward_data")
    },
    **{
        f"{engine}.layout": ((f"{engine}.types",), "vectors are of bytes, and the engine multiplies 16-bit types")
        for engine in ("cuda_rnn_16bit", "cuda_rnn_backward_weights_16bit")
    },
}


@contextmanager
def libraries(missing: str = "") -> Iterator[None]:
    """As if cuBLAS and cuFFT were installed, but for one of them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("cublas", "cufft"):
            patch.setattr(f"graphdnn.cuda.{name}.missing", lambda name=name: "no file" if name == missing else "")
        yield


def broken(engine: Engine, task: Task) -> list[str]:
    """The rules of the engine that an operation breaks."""
    return [need.id for need in engine.needs if not need.holds(task)]


def engine_of(rule: str) -> Engine:
    """The engine whose need it is; the first of those that share it."""
    return next(engine for engine in ENGINES if rule in {need.id for need in engine.needs})
