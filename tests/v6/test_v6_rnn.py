"""Recurrent networks: values and gradients against PyTorch, finite differences, the sums of the vendor's sample."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from recurrent_tools import dropout, rnn, states, steps, weights
from v6_tools import NUMPY

from graphdnn import v6
from graphdnn.dtypes import Array
from graphdnn.engines.host.random import generate
from graphdnn.engines.operation_cost import flops
from graphdnn.enums import RngDistribution
from graphdnn.plan import ExecutionPlan
from graphdnn.v6.thread_state import last_prepared

H = v6.cudnnCreate()
RELU, TANH, LSTM, GRU = v6.CUDNN_RNN_RELU, v6.CUDNN_RNN_TANH, v6.CUDNN_LSTM, v6.CUDNN_GRU
MODES = (RELU, TANH, LSTM, GRU)
FLOAT, DOUBLE, HALF = v6.CUDNN_DATA_FLOAT, v6.CUDNN_DATA_DOUBLE, v6.CUDNN_DATA_HALF
VARYING, EQUAL = (5, 3, 2, 1), (3, 3, 3)


@dataclass
class Network:
    """A network with all of its memory, and the four calls on it."""

    mode: Any
    batches: Sequence[int] = VARYING
    values: int = 4
    hidden: int = 3
    layers: int = 1
    bidirectional: bool = False
    skip: bool = False
    probability: float = 0.0
    kind: Any = DOUBLE
    math: Any = None
    algo: Any = v6.CUDNN_RNN_ALGO_STANDARD
    seed: int = 1
    given: bool = True  # whether initial states and gradients of last states are there
    memory: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(5)
        dtype = NUMPY[self.kind]
        self.drops = dropout(self.probability, seed=self.seed)
        self.desc = rnn(
            self.mode, self.hidden, self.layers, bidirectional=self.bidirectional, skip=self.skip, algo=self.algo,
            kind=self.kind if self.math is None else self.math, drops=self.drops,
        )  # fmt: skip
        ways, rows = 1 + self.bidirectional, sum(self.batches)
        self.length, self.pseudo_layers = len(self.batches), self.layers * ways
        self.x_desc = steps(self.batches, self.values, self.kind)
        self.y_desc = steps(self.batches, self.hidden * ways, self.kind)
        extents = (self.pseudo_layers, self.batches[0], self.hidden)
        self.s_desc = states(*extents, kind=self.kind)
        size = v6.cudnnGetRNNParamsSize(H, self.desc, self.x_desc[0], self.kind)
        self.w_desc = weights(size // dtype().itemsize, self.kind)
        shapes = {
            "x": (rows, self.values), "dx": (rows, self.values), "y": (rows, self.hidden * ways),
            "dy": (rows, self.hidden * ways), "w": (size // dtype().itemsize,), "dw": (size // dtype().itemsize,),
            **dict.fromkeys(("hx", "cx", "hy", "cy", "dhx", "dcx", "dhy", "dcy"), extents),
        }  # fmt: skip
        self.memory |= {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
        for name in ("y", "hy", "cy", "dx", "dhx", "dcx"):
            self.memory[name][...] = np.nan
        self.workspace = np.full(v6.cudnnGetRNNWorkspaceSize(H, self.desc, self.length, self.x_desc), 0xFF, np.uint8)
        reserve = v6.cudnnGetRNNTrainingReserveSize(H, self.desc, self.length, self.x_desc)
        self.reserve = np.full(reserve, 0xFF, np.uint8)

    def __getitem__(self, name: str) -> Array:
        return self.memory[name]

    def state(self, name: str) -> Array | None:
        return self.memory[name] if self.given else None

    def forward(self, *, trains: bool = True) -> None:
        s, w = self.s_desc, (self.workspace, self.workspace.nbytes)
        args = (
            H, self.desc, self.length, self.x_desc, self["x"], s, self.state("hx"), s, self.state("cx"), self.w_desc,
            self["w"], self.y_desc, self["y"], s, self["hy"], s, self["cy"], *w,
        )  # fmt: skip
        if trains:
            v6.cudnnRNNForwardTraining(*args, self.reserve, self.reserve.nbytes)
        else:
            v6.cudnnRNNForwardInference(*args)

    def backward_data(self) -> None:
        s = self.s_desc
        v6.cudnnRNNBackwardData(
            H, self.desc, self.length, self.y_desc, self["y"], self.y_desc, self["dy"], s, self.state("dhy"), s,
            self.state("dcy"), self.w_desc, self["w"], s, self.state("hx"), s, self.state("cx"), self.x_desc, self["dx"],
            s, self["dhx"], s, self["dcx"], self.workspace, self.workspace.nbytes, self.reserve, self.reserve.nbytes,
        )  # fmt: skip

    def backward_weights(self) -> None:
        v6.cudnnRNNBackwardWeights(
            H, self.desc, self.length, self.x_desc, self["x"], self.s_desc, self.state("hx"), self.y_desc, self["y"],
            self.workspace, self.workspace.nbytes, self.w_desc, self["dw"], self.reserve, self.reserve.nbytes,
        )  # fmt: skip

    def matrix(self, layer: int, id: int, buffer: str = "w") -> Array:
        into = v6.cudnnCreateFilterDescriptor()
        args = (H, self.desc, layer, self.x_desc[0], self.w_desc, self[buffer], id, into)
        return v6.cudnnGetRNNLinLayerMatrixParams(*args)

    def bias(self, layer: int, id: int, buffer: str = "w") -> Array:
        into = v6.cudnnCreateFilterDescriptor()
        return v6.cudnnGetRNNLinLayerBiasParams(
            H, self.desc, layer, self.x_desc[0], self.w_desc, self[buffer], id, into
        )

    @property
    def gates(self) -> int:
        return {LSTM: 4, GRU: 3}.get(self.mode, 1)


# Against PyTorch. Its gates are in the order of the ids (GRU: reset, update, new; LSTM: input, forget, new, output).


def module(net: Network) -> Any:
    torch = pytest.importorskip("torch")
    kinds = {LSTM: torch.nn.LSTM, GRU: torch.nn.GRU}
    words = {"nonlinearity": {RELU: "relu", TANH: "tanh"}[net.mode]} if net.mode in (RELU, TANH) else {}
    made = kinds.get(net.mode, torch.nn.RNN)(
        net.values, net.hidden, net.layers, bidirectional=net.bidirectional, dtype=torch.float64, **words
    )
    for parameter, blocks in parameters(net, made, "w"):
        parameter.data = torch.tensor(np.concatenate(blocks).astype(np.float64))
    return made


def parameters(net: Network, made: Any, buffer: str) -> list[tuple[Any, list[Array]]]:
    """Each parameter of a module with the blocks of the packed weights that it is made of."""
    found = []
    for p in range(net.pseudo_layers):
        layer, reverse = divmod(p, 2) if net.bidirectional else (p, 0)
        end = f"_l{layer}" + "_reverse" * reverse
        for name, blocks, first in (
            ("weight_ih", net.matrix, 0), ("weight_hh", net.matrix, net.gates),
            ("bias_ih", net.bias, 0), ("bias_hh", net.bias, net.gates),
        ):  # fmt: skip
            found_blocks = [blocks(p, id, buffer) for id in range(first, first + net.gates)]
            if name.startswith("bias"):
                found_blocks = [b.reshape(-1) for b in found_blocks]
            found.append((getattr(made, name + end), found_blocks))
    return found


def expected(net: Network) -> tuple[dict[str, Array], Any]:
    """Outputs and gradients by PyTorch in float64, and the module with the weights' gradients."""
    import torch

    made, tensors = module(net), {}
    for name in ("x", "hx", "cx"):
        values = net[name] if net.given or name == "x" else np.zeros_like(net[name])
        tensors[name] = torch.tensor(values.astype(np.float64), requires_grad=True)
    packed = torch.nn.utils.rnn.PackedSequence(tensors["x"], torch.tensor(net.batches))
    first = (tensors["hx"], tensors["cx"]) if net.mode is LSTM else tensors["hx"]
    out, last = made(packed, first)
    found = {"y": out.data, **(dict(zip(("hy", "cy"), last, strict=True)) if net.mode is LSTM else {"hy": last})}
    loss = sum(
        (value * torch.tensor(net["d" + name].astype(np.float64))).sum()
        for name, value in found.items()
        if net.given or name == "y"
    )
    loss.backward()
    values = {name: value.detach().numpy() for name, value in found.items()}
    grads = {"d" + n: t.grad.numpy() for n, t in tensors.items() if n != "cx" or net.mode is LSTM}
    return values | grads, made


NETWORKS = list(itertools.product(MODES, (False, True), (1, 3), (VARYING, EQUAL)))


@pytest.mark.torch
@pytest.mark.parametrize(("mode", "bidirectional", "layers", "batches"), NETWORKS)
def test_against_torch(mode: Any, bidirectional: bool, layers: int, batches: Any) -> None:
    """cudnnRNNForwardTraining, cudnnRNNForwardInference, cudnnRNNBackwardData, cudnnRNNBackwardWeights."""
    net = Network(mode, batches, layers=layers, bidirectional=bidirectional)
    compare(net, 1e-10)


@pytest.mark.torch
@pytest.mark.parametrize("mode", MODES)
def test_without_states(mode: Any) -> None:
    compare(Network(mode, layers=2, bidirectional=True, given=False), 1e-10)


@pytest.mark.torch
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "math", "bound"), [(FLOAT, FLOAT, 2e-5), (HALF, FLOAT, 2e-2), (HALF, HALF, 2e-2)])
def test_narrow_types(mode: Any, kind: Any, math: Any, bound: float) -> None:
    compare(Network(mode, layers=2, bidirectional=True, kind=kind, math=math), bound)


def compare(net: Network, bound: float) -> None:
    wanted, made = expected(net)
    before = net["dw"].copy()
    net.forward(trains=False)
    inferred = net["y"].copy()
    net["y"][...] = np.nan
    net.forward()
    np.testing.assert_array_equal(net["y"], inferred)
    net.backward_data()
    first = net["dx"].copy()
    net["dx"][...] = np.nan
    net.backward_data()  # once more, from the same reserve space
    np.testing.assert_array_equal(net["dx"], first)
    net.backward_weights()
    for name, values in wanted.items():
        np.testing.assert_allclose(net[name].astype(np.float64), values, rtol=bound, atol=bound, err_msg=name)
    net.memory["old"] = before
    for (parameter, added), (_, old) in zip(parameters(net, made, "dw"), parameters(net, made, "old"), strict=True):
        gradient = np.concatenate(added).astype(np.float64) - np.concatenate(old)
        np.testing.assert_allclose(gradient, parameter.grad.numpy(), rtol=bound, atol=3 * bound)
    if net.mode is not LSTM:
        assert np.isnan(net["cy"].astype(np.float64)).all(), "cells belong to LSTM"


# Where PyTorch has nothing to compare with: differences, and formulas.


def loss(net: Network, counter: Array) -> float:
    v6.cudnnGetDropoutDescriptor(net.drops, H)[1][8:] = counter  # the same masks again
    net.forward()
    total = (net["y"] * net["dy"]).sum() + (net["hy"] * net["dhy"]).sum()
    return float(total + ((net["cy"] * net["dcy"]).sum() if net.mode is LSTM else 0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("skip", "probability"), [(True, 0.0), (False, 0.4), (True, 0.4)])
def test_gradients_by_differences(mode: Any, skip: bool, probability: float) -> None:
    net = Network(mode, (2, 2, 1), values=3, hidden=3, layers=2, bidirectional=True, skip=skip, probability=probability)
    net["dw"][...] = 0
    counter = v6.cudnnGetDropoutDescriptor(net.drops, H)[1][8:].copy()
    loss(net, counter)
    net.backward_data()
    net.backward_weights()
    found = {name: net["d" + name].copy() for name in ("x", "w", "hx", *(("cx",) if mode is LSTM else ()))}
    rng = np.random.default_rng(2)
    for name, gradient in found.items():
        values = net[name].reshape(-1)
        for place in rng.choice(values.size, min(values.size, 24), replace=False):
            kept, step = values[place], 1e-6
            values[place] = kept + step
            above = loss(net, counter)
            values[place] = kept - step
            below = loss(net, counter)
            values[place] = kept
            assert (above - below) / (2 * step) == pytest.approx(gradient.reshape(-1)[place], abs=1e-6), name


@pytest.mark.parametrize("mode", MODES)
def test_skipped_input_is_that_of_identities(mode: Any) -> None:
    skipping, plain = (Network(mode, values=3, hidden=3, layers=2, skip=skip) for skip in (True, False))
    for p, id in itertools.product(range(2), range(2 * plain.gates)):
        if p == 0 and id < plain.gates:
            assert skipping.matrix(p, id) is None
            plain.matrix(p, id)[...] = np.eye(3)
        else:
            plain.matrix(p, id)[...] = skipping.matrix(p, id)
        plain.bias(p, id)[...] = skipping.bias(p, id)
    for net in (skipping, plain):
        net.memory |= {name: plain[name] for name in ("x", "hx", "cx")}
        net.forward()
    np.testing.assert_allclose(skipping["y"], plain["y"], rtol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_dropout_between_layers(mode: Any) -> None:
    """The masks are those of the generator; two networks of one layer give the same with the mask between them."""
    both = Network(mode, layers=2, bidirectional=True, probability=0.3, seed=8)
    width = 2 * both.hidden
    below = Network(mode, bidirectional=True)
    above = Network(mode, values=width, bidirectional=True)
    for p, id in itertools.product(range(4), range(2 * both.gates)):
        single = (below, above)[p // 2]
        single.matrix(p % 2, id)[...] = both.matrix(p, id)
        single.bias(p % 2, id)[...] = both.bias(p, id)
    for name in ("hx", "cx"):
        below[name][...], above[name][...] = both[name][:2], both[name][2:]
    for call in range(2):
        both.forward()
        below["x"][...] = both["x"]
        below.forward()
        count = sum(VARYING) * width
        drawn = generate(
            (sum(VARYING), width), RngDistribution.BERNOULLI, 8, call * -(-count // 4), {"probability": 0.7}
        )
        above["x"][...] = np.where(drawn != 0, below["y"] / 0.7, 0)
        above.forward()
        np.testing.assert_allclose(both["y"], above["y"], rtol=1e-10)
    assert v6.cudnnGetDropoutDescriptor(both.drops, H)[1].view(np.int64).tolist() == [8, 2 * -(-count // 4)]
    undropped = both["y"].copy()
    both.forward(trains=False)
    assert not np.allclose(both["y"], undropped)


@pytest.mark.parametrize(("mode", "h", "c"), [(LSTM, 0.355825769, 0.634465475), (GRU, -0.446042976, None)])
def test_anchors(mode: Any, h: float, c: float | None) -> None:
    net = Network(mode, (1,), values=1, hidden=1)
    for id in range(2 * net.gates):
        of_input = id < net.gates
        net.matrix(0, id)[...], net.bias(0, id)[...] = (0.5, 0.1) if of_input else (0.25, 0.2)
    net["x"][...], net["hx"][...], net["cx"][...] = 1, -1, 0.5
    net.forward()
    assert net["y"].item() == pytest.approx(h, abs=1e-9)
    assert c is None or net["cy"].item() == pytest.approx(c, abs=1e-9)


SAMPLE = {  # the sums that the vendor's sample prints: y, hy, cy, dx, dhx, dcx, dw
    (RELU, False): (1.315793e6, 1.315212e5, None, 66.76003, 64.25067, None, 1.453750e9),
    (TANH, False): (6.319591e5, 6.319605e4, None, 4.501830, 4.489546, None, 5.012598e7),
    (LSTM, False): (5.749536e5, 5.774818e4, 4.365091e5, 384.2206, 11.82566, 9323.785, 4.313461e8),
    (GRU, False): (6.358978e5, 6.281680e4, None, 6.296622, 2.289960e5, None, 5.397419e7),
    (RELU, True): (13.88634, 12.88997, None, 12.88729, 12.79004, None, 7.061081e7),
    (TANH, True): (13.88634, 12.88997, None, 12.88729, 12.79004, None, 7.061081e7),
    (LSTM, True): (3.134097e4, 1.922855, 3.845626, 4.794993, 2.468645, 2.870925e4, 1.121568e8),
    (GRU, True): (6.555183e4, 5.830924, None, 4.271801, 6.555744e4, None, 1.701796e8),
}


@pytest.mark.parametrize(("mode", "bidirectional"), [pytest.param(*key, marks=pytest.mark.long) for key in SAMPLE])
def test_sums_of_the_sample(mode: Any, bidirectional: bool) -> None:
    net = Network(mode, (64,) * 20, 512, 512, 2, bidirectional, kind=FLOAT)
    for name in ("x", "hx", "cx", "dy", "dhy", "dcy"):
        net[name][...] = 1
    net["dw"][...] = 0
    if bidirectional:
        net["w"][...] = 1 / net["w"].size
    else:
        for p, id in itertools.product(range(2), range(2 * net.gates)):
            net.matrix(p, id)[...], net.bias(p, id)[...] = 1 / (512 * 512), 1
    net.forward()
    net.backward_data()
    net.backward_weights()
    for name, wanted in zip(("y", "hy", "cy", "dx", "dhx", "dcx", "dw"), SAMPLE[mode, bidirectional], strict=True):
        if wanted is not None:
            assert net[name].sum(dtype=np.float64) == pytest.approx(wanted, rel=2e-5), name


# Weights, sizes, descriptors, algorithms.


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_blocks_tile_the_packed_weights(mode: Any, bidirectional: bool, skip: bool) -> None:
    """All matrices by pseudo-layer and id, then all biases: in this order, without gaps."""
    net = Network(mode, values=3, hidden=3, layers=3, bidirectional=bidirectional, skip=skip)
    ways, place = 1 + bidirectional, 0
    into = v6.cudnnCreateFilterDescriptor()
    for call in (v6.cudnnGetRNNLinLayerMatrixParams, v6.cudnnGetRNNLinLayerBiasParams):
        for p, id in itertools.product(range(3 * ways), range(2 * net.gates)):
            block = call(H, net.desc, p, net.x_desc[0], net.w_desc, net["w"], id, into)
            dims = v6.cudnnGetFilterNdDescriptor(into, 3)[3]
            if block is None:
                assert (skip, p < ways, id < net.gates, dims) == (True, True, True, (0, 0, 0))
                continue
            fan_in = 3 if p < ways or id >= net.gates else 3 * ways
            columns = fan_in if call is v6.cudnnGetRNNLinLayerMatrixParams else 1
            assert (block.shape, dims) == ((3, columns), (1, 3, columns))
            assert block.ctypes.data == net["w"].ctypes.data + 8 * place
            address = call(H, net.desc, p, net.x_desc[0], net.w_desc, net["w"].ctypes.data, id, into)
            assert address == block.ctypes.data
            place += block.size
    assert place == net["w"].size
    with v6.profile("6.0"):
        v6.cudnnGetRNNLinLayerBiasParams(H, net.desc, 0, net.x_desc[0], net.w_desc, net["w"], 0, into)
        assert v6.cudnnGetFilterNdDescriptor(into, 3)[3] == (3, 1, 1)


def test_descriptors_are_set_and_read() -> None:
    drops = dropout()
    desc = v6.cudnnCreateRNNDescriptor()
    settings = (7, 2, drops, v6.CUDNN_LINEAR_INPUT, v6.CUDNN_BIDIRECTIONAL, GRU)
    standard, static = v6.CUDNN_RNN_ALGO_STANDARD, v6.CUDNN_RNN_ALGO_PERSIST_STATIC
    v6.cudnnSetRNNDescriptor(desc, *settings, FLOAT)  # 5.1
    assert v6.cudnnGetRNNDescriptor(H, desc) == (*settings, standard, FLOAT)
    v6.cudnnSetRNNDescriptor_v6(H, desc, *settings, static, HALF)
    assert v6.cudnnGetRNNDescriptor(H, desc) == (*settings, static, HALF)
    v6.cudnnSetRNNDescriptor_v5(desc, *settings, DOUBLE)
    assert v6.cudnnGetRNNDescriptor(H, desc) == (*settings, standard, DOUBLE)
    v6.cudnnSetRNNDescriptor(H, desc, *settings, static, FLOAT)  # 7.0
    assert v6.cudnnGetRNNDescriptor(H, desc) == (*settings, static, FLOAT)
    v6.cudnnSetRNNMatrixMathType(desc, v6.CUDNN_TENSOR_OP_MATH)
    assert desc.math_type is v6.CUDNN_TENSOR_OP_MATH


@pytest.mark.parametrize("algo", [v6.CUDNN_RNN_ALGO_PERSIST_STATIC, v6.CUDNN_RNN_ALGO_PERSIST_DYNAMIC])
def test_persistent_algorithms_compute_the_same(algo: Any) -> None:
    persistent, standard = Network(LSTM, EQUAL, kind=FLOAT, algo=algo), Network(LSTM, EQUAL, kind=FLOAT)
    if algo is v6.CUDNN_RNN_ALGO_PERSIST_DYNAMIC:
        plan = v6.cudnnCreatePersistentRNNPlan(persistent.desc, EQUAL[0], FLOAT)
        v6.cudnnSetPersistentRNNPlan(persistent.desc, plan)
    for net in (persistent, standard):
        net.forward()
        net.backward_data()
        net.backward_weights()
    for name in ("y", "hy", "cy", "dx", "dhx", "dcx", "dw"):
        np.testing.assert_array_equal(persistent[name], standard[name])


def test_sizes_are_enough() -> None:
    for mode, probability in itertools.product(MODES, (0.0, 0.5)):
        net = Network(mode, layers=2, bidirectional=True, probability=probability)
        for call in (net.forward, net.backward_data, net.backward_weights):
            call()
            plan: ExecutionPlan = last_prepared().plan
            assert plan.workspace_size <= net.workspace.nbytes


@pytest.mark.parametrize("form", ["address", "bytes", "flat"])
def test_forms_of_memory(form: str) -> None:
    """Addresses, raw bytes and flat arrays stand for the same memory as arrays with the descriptors' extents."""
    wanted, net = (Network(LSTM, layers=2, probability=0.5) for _ in range(2))
    given: dict[str, Any] = {
        name: {"address": a.ctypes.data, "bytes": a.view(np.uint8), "flat": a.reshape(-1)}[form]
        for name, a in net.memory.items()
    }
    arrays, reserve = net.memory, net.reserve
    net.memory = given
    for each in (net, wanted):
        each.forward()
        each.backward_data()
        each.backward_weights()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, wanted[name], err_msg=name)
    np.testing.assert_array_equal(reserve.view(np.float64), wanted.reserve.view(np.float64))


def test_work_is_counted() -> None:
    net = Network(LSTM, (3, 2), values=5, hidden=7, layers=2, bidirectional=True)
    net.forward()
    (op,) = v6.last_graph().operations
    assert flops(op) == 2 * 5 * 2 * 4 * 7 * ((5 + 7) + (14 + 7))


def test_the_calls_are_graphs() -> None:
    net = Network(GRU, layers=2, probability=0.5)
    net.forward()
    assert [op.tag for op in v6.last_graph().operations] == ["rnn_fwd", "pointwise"]
    net.backward_data()
    assert "rnn_bwd_data (GRU, 2 layers, 4 to 3, 4 steps of 5)" in v6.explain()
    net.backward_weights()
    assert [op.tag for op in v6.last_graph().operations] == ["rnn_bwd_weights", "pointwise"]
