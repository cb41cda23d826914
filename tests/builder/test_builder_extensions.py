"""The builder's methods for extension operations: each of them, what they infer, and a network that learns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulator import MISSING
from extension_cases import extension
from v6_device_mirror import OnDevice, emulated

from graphdnn import BadParam, Cell, DataType, Graph, RnnSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.operations import EXTENSIONS, Operation, RnnForward
from graphdnn.tensors import TensorSpec

Given = dict[str, Any]  # the builder's tensors, by port


def _rnn_forward(g: Graph, op: Any, t: Given) -> Given:
    found = g.rnn_forward(op.rnn, t["x"], t["w"], t["hx"], t["cx"], training=True)
    return dict(zip(("y", "hy", "cy", "kept", "masks"), found, strict=True))


def _rnn_backward_data(g: Graph, op: Any, t: Given) -> Given:
    found = g.rnn_backward_data(op.rnn, t["y"], t["dy"], t["w"], kept=t["kept"])
    return dict(zip(("dx", "dhx", "dcx", "kept_gradients"), found, strict=True))


def _ctc_loss(g: Graph, op: Any, t: Given) -> Given:
    found = g.ctc_loss(t["probs"], t["labels"], t["label_lengths"], t["input_lengths"], generate_gradients=True)
    return dict(zip(("costs", "gradients"), found, strict=True))


METHODS: dict[str, Callable[[Graph, Any, Given], Given]] = {
    "patches": lambda g, op, t: {"y": g.im2col(t["x"], op.taps)},
    "grid_sample": lambda g, op, t: {"y": g.grid_sample(t["x"], t["grid"])},
    "grid_sample_bwd": lambda g, op, t: dict(
        zip(("dx", "dgrid"), g.grid_sample_backward(t["dy"], t["x"], t["grid"]), strict=True)
    ),
    "rnn_fwd": _rnn_forward,
    "rnn_bwd_data": _rnn_backward_data,
    "rnn_bwd_weights": lambda g, op, t: {
        "dw": g.rnn_backward_weights(op.rnn, t["x"], t["y"], t["kept_gradients"], kept=t["kept"])
    },
    "ctc_loss": _ctc_loss,
}


def test_every_extension_operation_has_a_method() -> None:
    assert {*METHODS} == {*EXTENSIONS}, "METHODS in this file needs a row for each extension operation"


def _operand(g: Graph, t: TensorSpec) -> Any:
    return g.tensor(t.dims, data_type=t.data_type, uid=t.uid)


def _alike(found: Operation, wanted: Operation) -> bool:
    """The same operation, names and origins aside."""
    no_names = {"name": "", "origin": ""}
    tensors = {p: t.model_copy(update={"name": ""}) for p, t in found.tensors().items()}
    return bool(found.model_copy(update=no_names | tensors) == wanted)


@pytest.mark.parametrize("tag", METHODS)
def test_the_method_makes_the_operation(tag: str) -> None:
    """Extents, strides and types are worked out."""
    wanted, g = extension(tag), Graph()
    results = METHODS[tag](g, wanted, {port: _operand(g, t) for port, t in wanted.inputs().items()})
    for port, tensor in wanted.outputs().items():
        results.pop(port).set_output(True).set_uid(tensor.uid)
    assert all(tensor is None or tensor.is_virtual for tensor in results.values())
    (found,) = g.build_operation_graph().operations
    assert _alike(found, wanted)


@pytest.mark.parametrize("tag", METHODS)
def test_names_and_origins(tag: str) -> None:
    wanted, g = extension(tag), Graph()
    results = METHODS[tag](g, wanted, {port: _operand(g, t) for port, t in wanted.inputs().items()})
    for tensor in results.values():
        if tensor is not None:
            tensor.set_output(True)
    (found,) = g.build_operation_graph().operations
    assert found.origin.startswith("test_builder_extensions.py:")


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize(("tag", "port"), [(tag, port) for tag in METHODS for port in extension(tag).outputs()])
def test_one_result_alone(tag: str, port: str) -> None:
    """What nothing reads is left out, or written where nobody looks: on a device as on the host."""
    wanted = extension(tag)
    drawn = {p: np.random.default_rng(i).integers(1, 3, t.dims) / 4 for i, (p, t) in enumerate(wanted.inputs().items())}
    found = []
    with emulated():
        for device in ("cpu", "h200"):
            g = Graph(device=device)
            operands = {p: _operand(g, t) for p, t in wanted.inputs().items()}
            result = METHODS[tag](g, wanted, operands)[port].set_output(True)
            plan = g.build()
            arrays = {operands[p]: (4 * a if t.data_type is DataType.INT32 else a).astype(ELEMENTS[t.data_type].numpy)
                      for (p, a), t in zip(drawn.items(), wanted.inputs().values(), strict=True)}  # fmt: skip
            arrays[result] = np.zeros(result.get_dim(), np.float32)
            if device == "h200":
                arrays = {t: a.view(OnDevice) for t, a in arrays.items()}
            g.execute(arrays, plan.new_workspace())
            found.append(np.array(arrays[result]))
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


def _network(cell: Any = "GRU", **settings: Any) -> RnnSpec:
    return RnnSpec(**{"cell": cell, "input_size": 4, "hidden_size": 3, "batch_sizes": (2, 2, 1), **settings})


def test_cells_by_name() -> None:
    assert _network("lstm").cell is _network(Cell.LSTM).cell is Cell.LSTM
    with pytest.raises(BadParam) as error:
        _network("LSTN")
    assert "cell" in str(error.value)


def test_states_that_nothing_reads_are_left_out() -> None:
    g, rnn = Graph(), _network("LSTM")
    x, w = g.tensor([5, 4], data_type="f32"), g.tensor([rnn.weight_count], data_type="f32")
    y, _, cy, kept, masks = g.rnn_forward(rnn, x, w)
    assert kept is masks is None
    y.set_output(True)
    cy.set_output(True)
    (op,) = g.build_operation_graph().operations
    assert isinstance(op, RnnForward)
    assert op.hy is None
    assert op.cy is not None


def test_a_first_state_is_a_last_one() -> None:
    """Half of a sequence after the other: what an operation reads is not left out."""
    g, rnn = Graph(), _network(batch_sizes=(2,))
    a, b, w = (
        g.tensor([2, 4], data_type="f16"),
        g.tensor([2, 4], data_type="f16"),
        g.tensor([rnn.weight_count], data_type="f16"),
    )
    _, hy, *_ = g.rnn_forward(rnn, a, w)
    y, *_ = g.rnn_forward(rnn, b, w, hx=hy)
    y.set_output(True)
    first, second = g.build_operation_graph().operations
    assert isinstance(first, RnnForward)
    assert isinstance(second, RnnForward)
    assert (first.hy, second.hy, second.cy) == (second.hx, None, None)
    assert y.get_data_type() is DataType.HALF


def test_types_of_what_is_kept() -> None:
    """Data and states are the operands', what the gradients read again is as it was computed, masks are bits."""
    g, rnn = Graph(io_data_type="f16", intermediate_data_type="f16"), _network("LSTM", layers=2, dropout=0.5)
    x, w, seed, offset = (
        g.tensor([5, 4]),
        g.tensor([rnn.weight_count]),
        *(g.tensor([1], data_type="i64") for _ in range(2)),
    )
    y, hy, cy, kept, masks = g.rnn_forward(rnn, x, w, training=True, seed=seed, offset=offset)
    dx, dhx, dcx, gradients = g.rnn_backward_data(rnn, y, g.tensor([5, 3]), w, kept=kept, masks=masks)
    dw = g.rnn_backward_weights(rnn, x, y, gradients, kept=kept, masks=masks)
    for tensor in (y, hy, cy, dx, dhx, dcx, dw, kept, masks):
        tensor.set_output(True)
    g.build()
    assert {t.get_data_type() for t in (y, hy, cy, dx, dhx, dcx, dw)} == {DataType.HALF}
    assert {t.get_data_type() for t in (kept, gradients)} == {DataType.FLOAT}
    assert masks.get_data_type() is DataType.BOOLEAN


def test_refusals_name_the_line() -> None:
    g, rnn = Graph(), _network("LSTM", layers=2, dropout=0.5)
    x, w = g.tensor([5, 4], data_type="f32"), g.tensor([rnn.weight_count], data_type="f32")
    with pytest.raises(BadParam) as error:
        g.rnn_forward(rnn, g.tensor([4, 5], data_type="f32"), w)
    assert error.value.rejections[0].rule == "rnn_fwd.extents"
    assert "test_builder_extensions.py:" in error.value.rejections[0].where
    with pytest.raises(BadParam) as error:
        g.grid_sample(g.tensor([1, 2, 3, 4], data_type="f32"), g.tensor([1, 5, 5, 3], data_type="f32"))
    assert error.value.rejections[0].rule == "grid_sample.grid.extents"
    y, *_, masks = g.rnn_forward(rnn, x, w, training=True)
    y.set_output(True)
    masks.set_output(True)
    with pytest.raises(BadParam) as error:  # masks of nothing
        g.build()
    assert error.value.rejections[0].rule == "rnn_fwd.dropout"


def test_moved_data_keeps_its_type() -> None:
    """What is computed of it is computed as of what was moved."""
    g = Graph()
    columns = g.im2col(g.tensor([1, 2, 4, 4], data_type="f64"), [2, 2])
    g.relu(g.transpose(columns, [1, 0])).set_output(True)
    operations = g.build_operation_graph().operations
    assert {op.compute_type for op in operations} == {DataType.DOUBLE}


def _packed(rnn: RnnSpec, module: Any) -> np.ndarray:
    """PyTorch's parameters as packed weights."""
    w, hidden = np.zeros(rnn.weight_count, np.float32), rnn.hidden_size
    for layer in range(rnn.layers):
        for part, first in (("ih", 0), ("hh", rnn.gates)):
            matrices, biases = (getattr(module, f"{n}_{part}_l{layer}").detach().numpy() for n in ("weight", "bias"))
            for gate in range(rnn.gates):
                rows = slice(gate * hidden, (gate + 1) * hidden)
                for block, values in (
                    (rnn.matrix(layer, first + gate), matrices[rows]),
                    (rnn.bias(layer, first + gate), biases[rows]),
                ):
                    w[block.offset : block.offset + values.size] = values.reshape(-1)
    return w


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_a_network_learns_as_pytorchs_does(cell: str) -> None:
    """Five steps of gradient descent on one graph: forward, both gradients, and the new weights."""
    torch = pytest.importorskip("torch")
    steps, batch, values, hidden = 6, 3, 4, 5
    module = getattr(torch.nn, cell)(values, hidden, 2)
    rnn = RnnSpec(cell=cell, input_size=values, hidden_size=hidden, layers=2, batch_sizes=[batch] * steps)
    g = Graph(io_data_type="float32")
    x, target = g.tensor([steps * batch, values], name="x"), g.tensor([steps * batch, hidden], name="target")
    w = g.tensor([rnn.weight_count], name="w")
    y, *_, kept, _ = g.rnn_forward(rnn, x, w, training=True)
    dy = g.sub(y, target)
    *_, gradients = g.rnn_backward_data(rnn, y, dy, w, kept=kept)
    dw = g.rnn_backward_weights(rnn, x, y, gradients, kept=kept)
    g.pointwise("SUB", x=w, b=dw, alpha2=0.1).set_output(True).set_name("next w")
    dy.set_output(True).set_name("dy")
    g.build()
    rng = np.random.default_rng(3)
    data = {"x": rng.standard_normal((steps * batch, values)).astype(np.float32),
            "target": rng.standard_normal((steps * batch, hidden)).astype(np.float32)}  # fmt: skip
    weights, error = _packed(rnn, module), np.empty_like(data["target"])
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(5):
        out = module(torch.from_numpy(data["x"]).reshape(steps, batch, values))[0].reshape(-1, hidden)
        loss = 0.5 * ((out - torch.from_numpy(data["target"])) ** 2).sum()
        after = np.empty_like(weights)
        g.execute({**data, "w": weights, "next w": after, "dy": error})
        np.testing.assert_allclose(0.5 * (error**2).sum(), loss.item(), rtol=1e-4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        weights = after
    np.testing.assert_allclose(weights, _packed(rnn, module), rtol=1e-3, atol=1e-5)


def test_ctc_and_a_spatial_transformer_agree_with_pytorch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    logits = torch.tensor(rng.standard_normal((7, 2, 4)), dtype=torch.float32, requires_grad=True)
    labels, lengths, inputs = (
        np.array([[1, 2, 2], [3, 1, 0]], np.int32),
        np.array([3, 2], np.int32),
        np.array([7, 6], np.int32),
    )
    loss = torch.nn.functional.ctc_loss(
        logits.log_softmax(2),
        torch.from_numpy(labels),
        torch.from_numpy(inputs),
        torch.from_numpy(lengths),
        reduction="none",
    )
    loss.sum().backward()
    g = Graph(io_data_type="float32")
    i = {
        n: g.tensor(a.shape, data_type="int32", name=n)
        for n, a in (("labels", labels), ("lengths", lengths), ("inputs", inputs))
    }
    costs, gradients = g.ctc_loss(g.tensor([7, 2, 4], name="probs"), i["labels"], i["lengths"], i["inputs"], True)
    found = {"costs": np.empty(2, np.float32), "gradients": np.empty((7, 2, 4), np.float32)}
    costs.set_output(True).set_name("costs")
    gradients.set_output(True).set_name("gradients")
    g.build()
    g.execute(
        {"probs": logits.softmax(2).detach().numpy(), "labels": labels, "lengths": lengths, "inputs": inputs, **found}
    )
    np.testing.assert_allclose(found["costs"], loss.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(found["gradients"], logits.grad.numpy(), atol=1e-5)

    image, grid = (
        torch.tensor(rng.uniform(-1.2, 1.2, s), dtype=torch.float32, requires_grad=True)
        for s in ((2, 3, 5, 6), (2, 4, 4, 2))
    )
    sampled = torch.nn.functional.grid_sample(image, grid, align_corners=True)
    dy = torch.tensor(rng.standard_normal(sampled.shape), dtype=torch.float32)
    sampled.backward(dy)
    g = Graph(io_data_type="float32")
    x, places = g.tensor([2, 3, 5, 6]), g.tensor([2, 4, 4, 2])
    results = [g.grid_sample(x, places).set_output(True)]
    gradient = g.tensor([2, 3, 4, 4])
    results += [t.set_output(True) for t in g.grid_sample_backward(gradient, x, places)]
    made = g.run({x: image.detach().numpy(), places: grid.detach().numpy(), gradient: dy.numpy()})
    for tensor, wanted in zip(results, (sampled, image.grad, grid.grad), strict=True):
        np.testing.assert_allclose(made[tensor], wanted.detach().numpy(), atol=1e-5)
