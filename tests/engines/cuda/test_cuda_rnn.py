"""Recurrent networks on the emulator against NumPy, and their text through NVRTC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_comparison import (
    ARCHITECTURES,
    compiler,
    compiles_cleanly,
    device_kernel,
    emulated,
    fused,
    run_both,
    text_compiles_cleanly,
)
from emulator.libraries import host_libraries
from problems import values_of
from recurrent_cases import network

from graphdnn import rank
from graphdnn.cuda import cublas
from graphdnn.device.profiles import device_spec
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.recurrent import (
    rnn_backward,
    rnn_forward,
    rnn_persistent,
    rnn_persistent_backward,
    rnn_weight_gradient,
)
from graphdnn.engines.engine import Engine, Task
from graphdnn.enums import DataType, NumericalNote
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics.filters import UNFILTERED, Filters
from graphdnn.operations import Cell, Operation, RnnForward

ENGINES: dict[str, Engine] = {
    "rnn_fwd": rnn_forward.ENGINE, "rnn_bwd_data": rnn_backward.ENGINE, "rnn_bwd_weights": rnn_weight_gradient.ENGINE
}  # fmt: skip


@pytest.fixture(autouse=True)
def libraries(request: pytest.FixtureRequest) -> Iterator[None]:
    """Products by own kernels, and for tensor cores by cuBLAS, which NumPy stands in for."""
    if "resident" in request.node.name:
        with host_libraries():
            yield
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cublas, "missing", lambda: "not asked for")
            yield


def values_for(op: Operation, seed: int = 5) -> dict[int, np.ndarray]:
    rng, found = np.random.default_rng(seed), {}
    for port, t in op.inputs().items():
        found[t.uid] = values_of(t, rng)
        if port == "w":
            found[t.uid] = (found[t.uid].astype(np.float64) * 0.4).astype(found[t.uid].dtype)
        elif port == "kept":  # like gates, so that gradients stay small
            found[t.uid] = 1 / (1 + np.exp(-found[t.uid]))
    return found


def agrees(op: Operation, bound: float, values: Any = None, knobs: Any = None, engine: Engine | None = None) -> None:
    """Every output is NumPy's, up to ``bound`` of the largest number."""
    here, there = run_both(op, engine or ENGINES[op.tag], values or values_for(op), knobs)
    for port, t in op.outputs().items():
        found, wanted = here[t.uid].astype(np.float64), there[t.uid].astype(np.float64)
        if port == "masks":
            np.testing.assert_array_equal(found, wanted)
        else:
            scale = max(1.0, float(np.abs(wanted).max()))
            np.testing.assert_allclose(found, wanted, rtol=bound, atol=bound * scale, err_msg=port)


NETWORKS: dict[str, dict[str, Any]] = {
    "relu": {"cell": Cell.RELU},
    "tanh both": {"cell": Cell.TANH, "directions": 2},
    "lstm": {"cell": Cell.LSTM},
    "gru both": {"cell": Cell.GRU, "directions": 2},
    "lstm dropout": {"cell": Cell.LSTM, "dropout": 0.3, "directions": 2},
    "lstm skip": {"cell": Cell.LSTM, "input_size": 3, "skip_input": True},
    "gru sizes": {"cell": Cell.GRU, "batch_sizes": (19, 18, 18, 2, 1), "hidden_size": 18, "layers": 1},
    "lstm sizes": {"cell": Cell.LSTM, "batch_sizes": (17,) * 3, "hidden_size": 37, "directions": 2, "layers": 2},
}


def some(names: Any, ordinary: tuple[str, ...]) -> list[Any]:
    """Names to run with; most in the long run only."""
    return [n if n in ordinary else pytest.param(n, marks=pytest.mark.long) for n in names]


@emulated
@pytest.mark.parametrize("name", some(NETWORKS, ("lstm dropout", "gru sizes")))
@pytest.mark.parametrize("tag", ENGINES)
def test_networks(tag: str, name: str) -> None:
    agrees(network(tag, **NETWORKS[name]), 2e-5)


@emulated
@pytest.mark.long
@pytest.mark.parametrize("tag", ENGINES)
@pytest.mark.parametrize(
    ("kind", "arithmetic", "bound"), [("f64", "f64", 1e-12), ("f16", "f32", 2e-3), ("bf16", "f32", 2e-2)]
)
def test_types(tag: str, kind: str, arithmetic: str, bound: float) -> None:
    agrees(network(tag, kind, cell=Cell.LSTM, arithmetic=arithmetic), bound)


STATES = ("hx", "cx", "hy", "cy", "dhx", "dcx", "dhy", "dcy")
MIXED = {
    "x": "bf16",
    "w": "f32",
    "y": "f16",
    "hx": "e5m2",
    "hy": "f32",
    "cx": "f32",
    "cy": "f64",
    "dy": "bf16",
    "dx": "f64",
}


@emulated
@pytest.mark.parametrize("tag", ENGINES)
def test_layouts_and_types_of_their_own(tag: str) -> None:
    agrees(network(tag, "f16", "rotated", types=MIXED, cell=Cell.LSTM, directions=2), 2e-3)


@emulated
@pytest.mark.long
@pytest.mark.parametrize("tag", ENGINES)
def test_packed_masks(tag: str) -> None:
    agrees(network(tag, types={"masks": DataType.BOOLEAN}, cell=Cell.GRU, dropout=0.5, batch_sizes=(5, 3)), 2e-5)


@emulated
@pytest.mark.long
@pytest.mark.parametrize("tag", ENGINES)
def test_without_states(tag: str) -> None:
    without = (*STATES, *(("kept",) if tag == "rnn_fwd" else ()))
    agrees(network(tag, without=without, cell=Cell.LSTM, batch_sizes=(3, 3, 1)), 2e-5)


@emulated
def test_many_runs_of_batch_sizes() -> None:
    agrees(network("rnn_fwd", cell=Cell.RELU, layers=1, batch_sizes=tuple(range(70, 0, -1)), hidden_size=2), 2e-5)


@compiler
@pytest.mark.long
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("tag", ENGINES)
def test_text_compiles(tag: str, name: str, arch: str) -> None:
    compiles_cleanly(network(tag, **NETWORKS[name]), ENGINES[tag], arch)


def test_products_on_tensor_cores_are_noted() -> None:
    """Who bars the note gets none, and the first of equal predictions has them."""
    op = network("rnn_fwd", "f16", cell=Cell.LSTM, input_size=64, hidden_size=40, batch_sizes=(16,) * 64)
    filters = UNFILTERED, Filters(frozenset({NumericalNote.TENSOR_CORE}))
    first, barred = (rank(OperationGraph.of([op]), "h200", filters=f).best.name for f in filters)
    assert (first, barred) == ("cuda_rnn_16bit", "cuda_rnn")
    assert "wgmma" in device_kernel(op, rnn_forward.NARROW).source
    assert "wgmma" not in device_kernel(op, rnn_forward.ENGINE).source


RESIDENT: dict[str, dict[str, Any]] = {
    "lstm": {"cell": Cell.LSTM, "batch_sizes": (20, 18, 18, 3, 1), "hidden_size": 48, "directions": 2},
    "gru dropout": {"cell": Cell.GRU, "batch_sizes": (5, 5), "hidden_size": 16, "dropout": 0.3},
    "tanh rows": {"cell": Cell.TANH, "batch_sizes": (70, 70), "hidden_size": 528, "layers": 1},
    "relu skip": {"cell": Cell.RELU, "batch_sizes": (2,) * 4, "hidden_size": 32, "input_size": 32, "skip_input": True},
}


RESIDENT_ENGINES = {
    "rnn_fwd": rnn_persistent.ENGINE, "rnn_bwd_data": rnn_persistent_backward.ENGINE, "rnn_bwd_weights": rnn_weight_gradient.NARROW,
}  # fmt: skip


@emulated
@pytest.mark.parametrize("name", some(RESIDENT, ("lstm",)))
@pytest.mark.parametrize("tag", RESIDENT_ENGINES)
def test_resident_networks(tag: str, name: str) -> None:
    agrees(network(tag, "f16", **RESIDENT[name]), 4e-3, engine=RESIDENT_ENGINES[tag])


@emulated
@pytest.mark.long
@pytest.mark.parametrize("tag", ["rnn_fwd", "rnn_bwd_data"])
def test_resident_matrices_in_shared_memory(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rnn_persistent, "_REGISTERS", 60 if tag == "rnn_fwd" else 44)
    op = network(tag, "f16", cell=Cell.LSTM, batch_sizes=(18, 17, 3), hidden_size=272)
    agrees(op, 1e-2, engine=RESIDENT_ENGINES[tag])
    names = [step.text.name for step in device_kernel(op, RESIDENT_ENGINES[tag]).steps if isinstance(step, Launch)]
    assert any("k2a2s_" in name for name in names), names


@emulated
def test_resident_networks_hand_on_what_is_no_number() -> None:
    """A NaN is as good as any value to those who wait for it."""
    op = network("rnn_fwd", "f16", cell=Cell.GRU, batch_sizes=(3, 3), hidden_size=16, layers=1)
    values = values_for(op)
    assert isinstance(op, RnnForward)
    values[op.x.uid][:] = np.frombuffer(np.uint16(0xFFFF).tobytes(), np.float16)[0]
    run_both(op, rnn_persistent.ENGINE, values)


@emulated
@pytest.mark.long
def test_resident_inference_in_other_layouts() -> None:
    settings = {"cell": Cell.LSTM, "hidden_size": 32, "batch_sizes": (17, 17, 2)}
    agrees(network("rnn_fwd", "bf16", "gaps", ("kept",), **settings), 3e-2, engine=rnn_persistent.ENGINE)


LARGEST = (
    (Cell.LSTM, 512, 64),
    (Cell.LSTM, 1024, 16),
    (Cell.LSTM, 512, 65),
    (Cell.GRU, 768, 32),
    (Cell.LSTM, 1024, 64),
)


def own_texts_compile(op: Operation, engine: Engine, arch: str) -> None:
    """Products are other engines' texts, for other devices perhaps."""
    for text in {
        s.text for s in device_kernel(op, engine).steps if isinstance(s, Launch) and s.entry.startswith("rnn")
    }:
        text_compiles_cleanly(text, arch)


@compiler
@pytest.mark.parametrize("arch", some(ARCHITECTURES, ("sm_90a",)))
@pytest.mark.parametrize("name", [n if n == "lstm" else pytest.param(n, marks=pytest.mark.long) for n in RESIDENT])
@pytest.mark.parametrize("tag", RESIDENT_ENGINES)
def test_resident_text_compiles(tag: str, name: str, arch: str) -> None:
    own_texts_compile(network(tag, "f16", **RESIDENT[name]), RESIDENT_ENGINES[tag], arch)


@compiler
@pytest.mark.long
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("cell", "hidden", "batch"), LARGEST)
@pytest.mark.parametrize("tag", RESIDENT_ENGINES)
def test_largest_resident_texts_compile(tag: str, cell: Cell, hidden: int, batch: int, arch: str) -> None:
    op = network(tag, "f16", cell=cell, hidden_size=hidden, batch_sizes=(batch,), input_size=hidden)
    if RESIDENT_ENGINES[tag].serves(Task(fused(op), device_spec("h200"))):
        own_texts_compile(op, RESIDENT_ENGINES[tag], arch)
