"""The CTC loss: against PyTorch and against all alignments written out; its statuses are in test_v6_rnn_statuses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from v6_tools import strided

from graphdnn import build, v6
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import CtcLoss
from graphdnn.tensors import TensorSpec, packed_strides

H = v6.cudnnCreate()
LOSS = v6.cudnnCreateCTCLossDescriptor()
v6.cudnnSetCTCLossDescriptor(LOSS, v6.CUDNN_DATA_FLOAT)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def run(probs: np.ndarray, labels: Any, lengths: Any, inputs: Any, gradients: bool = True) -> tuple[Any, Any]:
    desc = strided(probs)
    costs, found = np.full(probs.shape[1], np.nan, np.float32), np.full(probs.shape, np.nan, np.float32)
    algo = v6.CUDNN_CTC_LOSS_ALGO_DETERMINISTIC
    size = v6.cudnnGetCTCLossWorkspaceSize(H, desc, desc, labels, lengths, inputs, algo, LOSS)
    workspace = np.full(size, 0xFF, np.uint8)
    out = (strided(found), found) if gradients else (None, None)
    v6.cudnnCTCLoss(H, desc, probs, labels, lengths, inputs, costs, *out, algo, LOSS, workspace, size)
    return costs, found if gradients else None


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(6))
def test_against_torch(seed: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    steps, batch, classes = 24, 5, 3 + seed
    logits = rng.standard_normal((steps, batch, classes))
    inputs = rng.integers(16, steps, batch, endpoint=True)
    lengths = rng.integers(0, 8, batch)
    lengths[0] = 0
    labels = rng.integers(1, classes, lengths.sum())
    logits_t = torch.tensor(logits, requires_grad=True)
    wanted = torch.nn.functional.ctc_loss(
        logits_t.log_softmax(2), torch.tensor(labels), torch.tensor(inputs), torch.tensor(lengths), reduction="none"
    )
    wanted.sum().backward()
    probs = softmax(logits)
    costs, gradients = run(probs.astype(np.float32), labels, lengths, inputs)
    np.testing.assert_allclose(costs, wanted.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradients, logits_t.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert (gradients[inputs[1] :, 1] == 0).all()
    again = run(probs.astype(np.float32), labels, lengths, inputs)
    np.testing.assert_array_equal(gradients, again[1])
    alone, nothing = run(probs.astype(np.float32), labels, lengths, inputs, gradients=False)
    np.testing.assert_array_equal(costs, alone)
    assert nothing is None


@pytest.mark.torch
def test_the_operation_in_double_precision() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(9)
    steps, batch, classes, longest = 12, 3, 4, 4
    logits, lengths, inputs = rng.standard_normal((steps, batch, classes)), np.array([4, 2, 0]), np.array([12, 9, 3])
    labels = np.zeros((batch, longest), np.int32)
    for n, length in enumerate(lengths):
        labels[n, :length] = rng.integers(1, classes, length)
    logits_t = torch.tensor(logits, requires_grad=True)
    wanted = torch.nn.functional.ctc_loss(
        logits_t.log_softmax(2), torch.tensor(labels), torch.tensor(inputs), torch.tensor(lengths), reduction="none"
    )
    wanted.sum().backward()

    def spec(uid: int, dims: tuple[int, ...], kind: str = "f64") -> TensorSpec:
        return TensorSpec(uid=uid, data_type=kind, dims=dims, strides=packed_strides(dims))

    op = CtcLoss(
        probs=spec(1, logits.shape), labels=spec(2, labels.shape, "i32"), label_lengths=spec(3, (batch,), "i32"),
        input_lengths=spec(4, (batch,), "i32"), costs=spec(5, (batch,)), gradients=spec(6, logits.shape),
        arithmetic="f64",
    )  # fmt: skip
    plan = build(OperationGraph.of([op]))
    costs, gradients = np.empty(batch), np.empty(logits.shape)
    lengths, inputs = lengths.astype(np.int32), inputs.astype(np.int32)
    plan.execute({1: softmax(logits), 2: labels, 3: lengths, 4: inputs, 5: costs, 6: gradients}, plan.new_workspace())
    np.testing.assert_allclose(costs, wanted.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(gradients, logits_t.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("label", [(), (1,), (1, 1), (1, 2), (2, 1, 2)])
def test_against_all_alignments(label: tuple[int, ...]) -> None:
    """The sum over every sequence of classes that reads as the label, repeats joined and blanks left out."""
    rng = np.random.default_rng(len(label))
    probs = softmax(rng.standard_normal((5, 1, 3))).astype(np.float32)
    total = 0.0
    for path in itertools.product(range(3), repeat=5):
        joined = [c for i, c in enumerate(path) if c and (i == 0 or path[i - 1] != c)]
        if tuple(joined) == label:
            total += float(np.prod([probs[t, 0, c] for t, c in enumerate(path)], dtype=np.float64))
    costs, _ = run(probs, label, [len(label)], [5])
    assert costs[0] == pytest.approx(-np.log(total), rel=1e-5)


def test_labels_that_do_not_fit() -> None:
    """Two equal classes need a blank between them."""
    probs = np.full((4, 3, 3), 1 / 3, np.float32)
    costs, gradients = run(probs, [1, 1, 1, 1, 1, 1, 1], [3, 2, 2], [4, 2, 3])
    assert costs[0] == costs[1] == np.inf
    assert costs[2] == pytest.approx(3 * np.log(3), rel=1e-6)
    assert (gradients[:, :2] == 0).all()
    costs, gradients = run(probs, [1], [0, 1, 0], [0, 0, 4])
    assert (costs[0], costs[1]) == (0, np.inf)
    assert (gradients[:, :2] == 0).all()


def test_strided_probabilities() -> None:
    rng = np.random.default_rng(1)
    wide = softmax(rng.standard_normal((6, 2, 4))).astype(np.float32)
    strange = np.empty((2, 6, 7), np.float32)[:, :, :4].transpose(1, 0, 2)
    strange[...] = wide
    expected, wanted = run(wide, [1, 2, 3], [2, 1], [6, 5])
    costs, gradients = run(strange, [1, 2, 3], [2, 1], [6, 5])
    np.testing.assert_array_equal(costs, expected)
    np.testing.assert_array_equal(gradients, wanted)


def test_the_call_is_a_graph() -> None:
    run(np.full((4, 1, 3), 1 / 3, np.float32), [1, 2], [2], [4])
    assert [op.tag for op in v6.last_graph().operations] == ["ctc_loss"]
    assert v6.cudnnGetCTCLossDescriptor(LOSS) is v6.CUDNN_DATA_FLOAT
