"""Certificates of recurrent networks, CTC and gradients of sampling: observed errors, bounds and numeric classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_comparison import emulated
from emulator.libraries import host_libraries
from emulator.runtime import EmulatedRuntime
from legal_problems import tensor
from recurrent_cases import network

from graphdnn import build, fuse
from graphdnn.analysis.certificate import numeric_class
from graphdnn.analysis.certificate.state_error import Deviation, Matrix
from graphdnn.device.profiles import device_spec, this_cpu
from graphdnn.dtypes import ELEMENTS, cast, data_type_of
from graphdnn.engines import ENGINE_BY_NAME
from graphdnn.engines.host.memory import empty, store
from graphdnn.enums import PointwiseMode
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Ranking
from graphdnn.operations import Cell, CtcLoss, Operation, PointwiseOperation, PointwiseSpec
from graphdnn.operations.grid_sample import GridSampleBackward
from graphdnn.plan import DevicePlan, ExecutionPlan

H200 = device_spec("h200")
KINDS = ("normal", "positive", "cancelling")
TAGS = ("rnn_fwd", "rnn_bwd_data", "rnn_bwd_weights")
ENGINES = {
    "rnn_fwd": ("cuda_rnn", "cuda_rnn_persistent", "cuda_rnn_16bit"),
    "rnn_bwd_data": ("cuda_rnn_backward_data", "cuda_rnn_persistent_backward_data"),
    "rnn_bwd_weights": ("cuda_rnn_backward_weights", "cuda_rnn_backward_weights_16bit"),
}


def inputs_of(op: Operation, kind: str, rng: np.random.Generator, scale: float) -> dict[int, Any]:
    """Of one sign, nearly cancelling, or neither; weights times ``scale``."""
    found = {}
    for port, spec in op.inputs().items():
        values = rng.standard_normal(spec.extents)
        if kind == "positive":
            values = np.abs(values)
        elif kind == "cancelling":
            values = np.where(np.arange(values.size).reshape(values.shape) % 2, 1, -1) * (1 + 1e-3 * values)
        if port == "w":
            values = values * scale
        elif port == "kept":
            values = 1 / (1 + np.exp(-values))
        elif port in ("seed", "offset", "masks"):
            values = rng.integers(0, 2, spec.extents)
        found[spec.uid] = empty(spec)
        store(cast(values, spec.data_type), found[spec.uid], spec)
    return found


def holds(op: Operation, data: dict[int, Any], plan: ExecutionPlan | None = None) -> dict[str, Any]:
    """The bounds of its outputs, none of which is smaller than what is observed."""
    plan = build(OperationGraph.of([op]), "cpu") if plan is None else plan
    with np.errstate(all="ignore"):
        certificate = plan.certificate(data)
    names = {t.uid: port for port, t in op.outputs().items()}
    for output in certificate.outputs:
        assert output.observed is not None
        assert not output.why_not
        assert output.holds, f"{op.label()} {output}"
    return {names[o.tensor.uid]: o for o in certificate.outputs}


def some_network(tag: str, kind: str, rng: np.random.Generator, **settings: Any) -> Operation:
    sizes = tuple(sorted(map(int, rng.integers(1, 6, rng.integers(1, 8))), reverse=True))
    drawn = {
        "cell": Cell(rng.integers(4)), "hidden_size": int(rng.integers(1, 17)), "input_size": int(rng.integers(1, 17)),
        "layers": int(rng.integers(1, 3)), "directions": int(rng.integers(1, 3)), "batch_sizes": sizes,
        "dropout": float(rng.choice([0.0, 0.3])), "arithmetic": "f64" if kind == "f64" else "f32",
    } | settings  # fmt: skip
    if rng.integers(4) == 0:
        drawn |= {"skip_input": True, "input_size": drawn["hidden_size"]}
    return network(tag, kind, **drawn)


@pytest.mark.parametrize("tag", TAGS)
def test_networks(tag: str) -> None:
    many(tag, range(8))


@pytest.mark.long
@pytest.mark.parametrize("tag", TAGS)
def test_many_networks(tag: str) -> None:
    many(tag, range(100, 400))


def many(tag: str, seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        op = some_network(tag, ("f16", "bf16", "f32", "f64")[seed % 4], rng)
        scale = (1.0, 0.5, 0.2)[seed % 3]
        assert any(o.unbounded < 1 for o in holds(op, inputs_of(op, KINDS[seed % 3], rng, scale)).values())


@emulated
@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 20), marks=pytest.mark.long)])
def test_networks_on_a_device(tag: str, seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for place, name in enumerate(ENGINES[tag]):
            kind = ("f16", "bf16")[seed % 2] if place else ("f32", "bf16", "f64", "f16")[seed % 4]
            sizes = {"hidden_size": 32, "input_size": 32} if place else {}
            op = some_network(tag, kind, rng, batch_sizes=(3, 3, 2), **sizes)
            with host_libraries():
                ranking = Ranking(fuse(OperationGraph.of([op])), H200, engines=[ENGINE_BY_NAME[name]])
                plan = DevicePlan(ranking.best, EmulatedRuntime())
                holds(op, inputs_of(op, KINDS[seed % 3], rng, 0.2), plan)


@pytest.mark.parametrize(
    "cell", [Cell.TANH, Cell.LSTM, *(pytest.param(c, marks=pytest.mark.long) for c in (Cell.RELU, Cell.GRU))]
)
def test_ordinary_networks_of_128_steps(cell: Cell) -> None:
    """Weights as networks begin with. Bounds do not grow with the steps."""
    hidden = 8
    rng = np.random.default_rng(int(cell))
    op = network("rnn_fwd", "f32", cell=cell, hidden_size=hidden, input_size=hidden, layers=1, batch_sizes=(2,) * 128)
    data = inputs_of(op, "normal", rng, 1.0)
    weights = op.inputs()["w"]
    store(cast(rng.uniform(-1, 1, weights.extents) / np.sqrt(hidden), weights.data_type), data[weights.uid], weights)
    for output in holds(op, data).values():
        assert output.unbounded == 0
        assert output.worst < 1e-2


@pytest.mark.parametrize("tag", TAGS[:2])
def test_growth_is_said(tag: str) -> None:
    """Weights far too large: no bound holds what it says, and the certificate says by which factor and from where on."""
    rng = np.random.default_rng(0)
    kind, scale = ("bf16", 0.4) if tag == "rnn_fwd" else ("f32", 3.0)
    op = network(tag, kind, cell=Cell.TANH, hidden_size=12, input_size=12, layers=1, batch_sizes=(1,) * 40)
    data = inputs_of(op, "normal", rng, scale)
    certificate = build(OperationGraph.of([op]), "cpu").certificate(data)
    assert certificate.holds
    (said,) = (note for note in certificate.notes if note.startswith("TANH, layer 0 of 1"))
    factor, stretch = (float(said.split(f"{word} ")[1].split(" ")[0].rstrip(":")) for word in ("factor of", "up to"))
    assert factor > 1
    assert stretch > 1
    assert " not contractive" in said
    assert int(said.split("from step ")[1].split(" ")[0]) <= 40


def training(kind: str, cell: Cell, rng: np.random.Generator) -> tuple[OperationGraph, dict[int, Any]]:
    """All three in one graph: the gradients read what is off."""
    settings: dict[str, Any] = {"cell": cell, "hidden_size": 5, "input_size": 4, "directions": 2, "layers": 2}
    ops = [network(tag, kind, batch_sizes=(3, 3, 2, 1), dropout=0.3, **settings) for tag in TAGS]
    shared, made, uid = {}, [], 0
    for op in ops:
        ports = {}
        for port, spec in op.tensors().items():
            uid += 1
            ports[port] = shared.setdefault(port, spec.model_copy(update={"uid": uid}))
        made.append(type(op)(rnn=op.rnn, **ports))
    graph = OperationGraph.of(made)
    data = {uid: values for op in made for uid, values in inputs_of(op, "normal", rng, 0.4).items()}
    return graph, {t.uid: data[t.uid] for t in graph.inputs}


@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize("cell", Cell)
def test_a_training_step(cell: Cell, kind: str) -> None:
    graph, data = training(kind, cell, np.random.default_rng(int(cell)))
    for output in build(graph, "cpu").certificate(data).outputs:
        assert output.holds, str(output)
        assert output.observed is not None
        assert not output.why_not
        assert output.unbounded == 0 or cell is Cell.RELU


@pytest.mark.parametrize("tag", TAGS)
def test_tensor_cores_are_a_class_of_their_own(tag: str) -> None:
    """They hand on 16 bits where others hand on the arithmetic's type; plans of the host are in the general class."""
    op = network(tag, "f16", cell=Cell.LSTM, hidden_size=32, input_size=32, batch_sizes=(3, 2))
    fused = fuse(OperationGraph.of([op]))
    general, narrow = (numeric_class(Ranking(fused, H200, engines=[ENGINE_BY_NAME[e]]).best) for e in ENGINES[tag][:2])
    assert numeric_class(Ranking(fused, this_cpu()).best) == general
    assert general.can_replace(narrow)
    assert not narrow.can_replace(general)


def test_deviations() -> None:
    rng = np.random.default_rng(0)
    for power in (0, -200):
        values, error = rng.standard_normal((5, 7)), 1e-3 * rng.random((5, 7))
        each = rng.random((3, 7)) * 10.0**power
        matrix = Matrix.of(values, error)
        bound = Deviation.of(each).through(matrix).scaled(np.full(5, 0.5)).plus(10.0**power)
        for _ in range(50):
            off = each * rng.choice([-1, 1], each.shape)
            actual = 0.5 * off @ (values + error * rng.choice([-1, 1], error.shape)).T
            assert (np.abs(actual) <= bound.each).all()
            assert (np.linalg.norm(actual / 10.0**power, axis=1) <= bound.norm / 10.0**power).all()
    assert np.isinf(Deviation.of([[np.nan, 0.0]]).each[0, 0])
    assert np.isinf(Deviation.of([[np.inf] * 7]).through(matrix).at_most(1.0).each).all()


def probabilities(kind: str, extents: tuple[int, ...], rng: np.random.Generator) -> Any:
    if kind == "any":
        return np.abs(rng.standard_normal(extents)) * 10.0 ** rng.integers(-30, 10, extents)
    found = rng.dirichlet(np.full(extents[-1], {"flat": 10.0, "peaked": 0.1}.get(kind, 1.0)), extents[:-1])
    return np.where(rng.random(extents) < 0.2, 0.0, found) if kind == "zeros" else found


@pytest.mark.parametrize("kind", ["flat", "peaked", "zeros", "any"])
def test_alignments(kind: str) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        data_type, steps = ("f16", "f32", "f64")[seed % 3], (1, 7, 200)[seed // 2]
        extents, longest = (steps, 3, int(rng.integers(2, 7))), 5
        op = CtcLoss(
            probs=tensor(1, extents, data_type), labels=tensor(2, (3, longest), "i32"),
            label_lengths=tensor(3, (3,), "i32"), input_lengths=tensor(4, (3,), "i32"),
            costs=tensor(5, (3,), data_type), gradients=tensor(6, extents, data_type),
            arithmetic=data_type_of("f64" if data_type == "f64" else "f32"),
        )  # fmt: skip
        probs = empty(op.probs)
        store(cast(probabilities(kind, extents, rng), op.probs.data_type), probs, op.probs)
        counts = [rng.integers(0, most, 3).astype(np.int32) for most in (longest + 1, steps + 1)]
        labels = rng.integers(1, extents[-1], (3, longest)).astype(np.int32)
        found = holds(op, {1: probs, 2: labels, 3: counts[0], 4: counts[1]})
        if kind != "any":
            assert found["costs"].unbounded == found["gradients"].unbounded == 0
            assert found["gradients"].worst < 1


def rounded(op: GridSampleBackward, data: dict[int, Any]) -> None:
    double = tensor(9, op.grid.extents, "f64")
    spec = PointwiseSpec(mode=PointwiseMode.IDENTITY, math_type="f64")
    graph = OperationGraph.of([PointwiseOperation(spec=spec, x=double, y=op.grid), op])
    (output, *more) = build(graph, "cpu").certificate({**data, 9: data[2].astype(np.float64) * (1 + 1e-9)}).outputs
    assert all(o.holds and not o.why_not for o in (output, *more)), str((output, *more))


@pytest.mark.parametrize("arithmetic", ["f32", "f64"])
@pytest.mark.parametrize("data_type", ["f32", "f16"])
def test_gradients_of_sampling(arithmetic: str, data_type: str) -> None:
    image, grid, out = (2, 3, 5, 7), (2, 6, 4, 2), (2, 3, 6, 4)
    shapes = {"x": image, "grid": grid, "dy": out, "dx": image, "dgrid": grid}
    op = GridSampleBackward(
        **{port: tensor(i, e, data_type) for i, (port, e) in enumerate(shapes.items(), 1)},
        arithmetic=data_type_of(arithmetic),
    )
    dtype = ELEMENTS[op.x.data_type].numpy
    for seed in range(4):
        rng = np.random.default_rng(seed)
        positions = rng.uniform(-1.3, 1.3, grid)
        positions[:, 0], positions[:, 1], positions[:, 2, :, 0] = 1.0, -1.0, np.linspace(-1, 1, 4)
        values = rng.standard_normal(image) * 10.0 ** rng.integers(-2, 3, image)
        data = {1: values.astype(dtype), 2: positions.astype(dtype), 3: rng.standard_normal(out).astype(dtype)}
        found = holds(op, data)
        if arithmetic == "f32":  # behind a rounding of the grid, which may pass an element
            rounded(op, data)
        scale = {"dx": 5.0, "dgrid": 50 * float(np.abs(values).max())}
        for port, output in found.items():
            assert 0 < output.worst < scale[port] * (1e-2 if data_type == "f16" else 1e-3)
