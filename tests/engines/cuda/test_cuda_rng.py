"""Engine ``cuda_rng`` on the emulator against the host's numbers, and its text through NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_comparison import compiler, compiles_cleanly, emulated, run_both
from legal_problems import operation
from problems import tensor

from graphdnn.engines.cuda.rng.rng import ENGINE
from graphdnn.enums import DataType, PointwiseMode, RngDistribution
from graphdnn.fusion import fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation, PointwiseOperation, PointwiseSpec, Rng, RngSpec
from graphdnn.tensors import TensorSpec

BERNOULLI = RngSpec(distribution=RngDistribution.BERNOULLI, probability=0.3)
UNIFORM = RngSpec(distribution=RngDistribution.UNIFORM, minimum=-2.7, maximum=11.1)
NORMAL = RngSpec(distribution=RngDistribution.NORMAL, mean=0.7, standard_deviation=3.1)

# y's extents, type and layout
OUTPUTS = {
    "packed": ((2, 8, 6, 4), "f32", "packed"),
    "odd end": ((5, 7, 9), "f16", "packed"),
    "one": ((1,), "f32", "packed"),
    "bytes": ((3, 64), "u8", "packed"),
    "channels last": ((2, 16, 6, 6), "f16", "channels_last"),
    "channels last, odd rows": ((2, 16, 7, 7), "bf16", "channels_last"),
    "gaps": ((3, 4, 8), "f64", "gaps"),
    "reversed": ((3, 4, 8), "i32", "reversed"),
    "bits": ((3, 5, 7), DataType.BOOLEAN, "packed"),
}


def scalar(uid: int, kind: str, **fields: Any) -> TensorSpec:
    return tensor(uid, (1, 1), kind, **fields)


@emulated
@pytest.mark.parametrize("spec", [BERNOULLI, UNIFORM, NORMAL], ids=lambda s: s.distribution.name.lower())
@pytest.mark.parametrize("name", OUTPUTS)
def test_numbers_are_the_hosts(spec: RngSpec, name: str) -> None:
    dims, kind, layout = OUTPUTS[name]
    y = tensor(3, dims, kind, layout)
    op = Rng(spec=spec, y=y, seed=scalar(1, "i64"), offset=scalar(2, "i64"))
    got, expected = run_both(op, ENGINE, {1: np.int64(-(2**61) + 12345), 2: np.int64(2**32 - 3)})
    assert_close(got[3], expected[3], y, spec)


def assert_close(got: np.ndarray, expected: np.ndarray, y: TensorSpec, spec: RngSpec) -> None:
    if spec is not NORMAL:
        np.testing.assert_array_equal(got, expected)
        return
    assert spec.mean is not None
    steps = {DataType.HALF: 2.0**-10, DataType.BFLOAT16: 2.0**-7}  # the narrow type may fall to the other side
    wide, wanted = got.astype(np.float64), expected.astype(np.float64)
    bound = 4 * 2.0**-23 * np.abs(wanted - spec.mean) + (2.0**-23 + steps.get(y.data_type, 0.0)) * np.abs(wanted)
    assert (np.abs(wide - wanted) <= bound).all()


SOURCES: dict[str, tuple[Any, Any]] = {
    "attribute, constant": (-7, scalar(2, "i32", is_by_value=True, constant_value=9)),
    "by value": (scalar(1, "i64", is_by_value=True), scalar(2, "i64", is_by_value=True)),
    "int32 in memory": (scalar(1, "i32"), scalar(2, "u8")),
    "constant, by value": (scalar(1, "i64", is_by_value=True, constant_value=-1), scalar(2, "i32", is_by_value=True)),
}


@emulated
@pytest.mark.parametrize("name", SOURCES)
def test_seed_and_offset_come_from_anywhere(name: str) -> None:
    seed, offset = SOURCES[name]
    op = Rng(spec=UNIFORM, y=tensor(3, (4, 32), "f32"), seed=seed, offset=offset)
    got, expected = run_both(op, ENGINE, {1: np.int64(-5), 2: np.int64(77)})
    np.testing.assert_array_equal(got[3], expected[3])


@emulated
@pytest.mark.parametrize("probability", [0.0, 2.0**-24, 0.5, 1 - 2.0**-25, 1.0])
def test_probabilities_are_exact(probability: float) -> None:
    spec = RngSpec(distribution=RngDistribution.BERNOULLI, probability=probability)
    op = Rng(spec=spec, y=tensor(3, (4096,), "u8"), seed=3, offset=scalar(2, "i64"))
    got, expected = run_both(op, ENGINE, {2: np.int64(0)})
    np.testing.assert_array_equal(got[3], expected[3])


# x's extents, type and layout, and whether the mask is stored as bits in row-major order.
DROPPED = {
    "bits": ((2, 8, 4, 8), "f16", "packed", True),
    "bits beside floats": ((2, 8, 4, 8), "f32", "packed", True),
    "bits, odd end": ((3, 5, 7), "f16", "packed", True),
    "virtual": ((2, 16, 6, 6), "f16", "packed", False),
    "virtual, odd end": ((5, 7, 9), "bf16", "packed", False),
    "virtual, channels last": ((2, 16, 6, 8), "f16", "channels_last", False),
    "virtual, odd rows": ((2, 16, 7, 7), "f16", "channels_last", False),
    "bits, channels last": ((2, 24, 4, 8), "f16", "channels_last", True),
    "bits, floats, channels last": ((2, 8, 4, 16), "f32", "channels_last", True),
    "bits, odd rows, channels last": ((2, 16, 7, 7), "f16", "channels_last", True),
    "gaps": ((3, 4, 8), "f32", "gaps", True),
}


def dropped(name: str, *, bias: bool = False) -> list[Operation]:
    """y = x times 1 / 0.3 where the mask is set, else 0; and a bias for each channel."""
    dims, kind, layout, is_stored = DROPPED[name]
    of_type = DataType.BOOLEAN if is_stored else "f32"
    mask = tensor(3, dims, of_type, "packed", is_virtual=not is_stored)
    x, y = tensor(4, dims, kind, layout), tensor(5, dims, kind, layout)
    zero = scalar(6, "f32", is_by_value=True, constant_value=0.0).model_copy(update={"dims": (1,) * len(dims)})
    select = PointwiseSpec(mode=PointwiseMode.BINARY_SELECT, math_type=DataType.FLOAT)
    kept = y if not bias else tensor(7, dims, "f32", layout, is_virtual=True)
    steps: list[Operation] = [
        Rng(spec=BERNOULLI, y=mask, seed=scalar(1, "i64"), offset=scalar(2, "i64")),
        PointwiseOperation(spec=select, x=x, b=zero, t=mask, y=kept, alpha1=1 / 0.3),
    ]
    if bias:
        row = tensor(8, (1, dims[1], *(1,) * (len(dims) - 2)), "f32")
        add = PointwiseSpec(mode=PointwiseMode.ADD, math_type=DataType.FLOAT)
        steps.append(PointwiseOperation(spec=add, x=kept, b=row, y=y))
    return steps


@emulated
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("name", DROPPED)
def test_operations_behind_the_numbers(name: str, bias: bool) -> None:
    dims = DROPPED[name][0]
    values = {1: np.int64(11), 2: np.int64(2**32 - 3), 4: np.random.default_rng(0).standard_normal(dims)}
    got, expected = run_both(dropped(name, bias=bias), ENGINE, values | {8: np.arange(dims[1])})
    for uid, array in got.items():
        np.testing.assert_allclose(array, expected[uid], rtol=1e-2 if "b" in DROPPED[name][1] else 1e-3)


@pytest.mark.parametrize(
    ("first", "kernels"),
    [
        ("relu_fwd", ["rng+relu_fwd+mul"]),
        ("conv_fprop", ["rng", "conv_fprop+mul"]),
    ],
)
def test_other_kernels_take_what_they_can(first: str, kernels: list[str]) -> None:
    """A mask is fewer bytes than a result that would be written before; of pointwise operations nothing is."""
    dims = (2, 4, 6, 6)
    x, y, mask = (
        tensor(4, dims, "f32", is_virtual=True),
        tensor(5, dims, "f32"),
        tensor(3, dims, "f32", is_virtual=True),
    )
    relu = PointwiseSpec(mode=PointwiseMode.RELU_FWD, math_type=DataType.FLOAT)
    times = PointwiseSpec(mode=PointwiseMode.MUL, math_type=DataType.FLOAT)
    given = tensor(6, dims, "f32")
    made = {
        "relu_fwd": lambda: PointwiseOperation(spec=relu, x=given, y=x),
        "conv_fprop": lambda: operation("conv_fprop", x=given, w=tensor(7, (4, 4, 1, 1)), y=x),
    }[first]()
    graph = OperationGraph.of([
        made,
        Rng(spec=BERNOULLI, y=mask, seed=1, offset=scalar(2, "i64")),
        PointwiseOperation(spec=times, x=x, b=mask, y=y),
    ])  # fmt: skip
    assert [op.name for op in fuse(graph)] == kernels


@compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("name", DROPPED)
def test_operations_behind_the_numbers_compile_without_spills(name: str, arch: str) -> None:
    compiles_cleanly(dropped(name), ENGINE, arch)


@compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("spec", [BERNOULLI, UNIFORM, NORMAL], ids=lambda s: s.distribution.name.lower())
@pytest.mark.parametrize("name", ["packed", "odd end", "channels last", "channels last, odd rows", "bits"])
def test_text_compiles_without_spills(spec: RngSpec, name: str, arch: str) -> None:
    dims, kind, layout = OUTPUTS[name]
    op = Rng(spec=spec, y=tensor(3, dims, kind, layout), seed=1, offset=scalar(2, "i64"))
    compiles_cleanly(op, ENGINE, arch)
