"""The graph builder: names and methods, each built and run."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builder_fixtures import conv_bias_relu, graph, values

from graphdnn import ConvolutionMode, Graph, NormPhase, ReductionOperator, ResampleMode, ReshapeMode, RngDistribution
from graphdnn.builder import Tensor
from graphdnn.builder import graph as graph_module
from graphdnn.builder.pointwise_methods import POINTWISE_METHODS
from graphdnn.operations.pointwise_modes import POINTWISE


def test_conv_bias_relu() -> None:
    g = graph()
    x, w, b, y = conv_bias_relu(g)
    plan = g.build()
    assert plan.fused_operations == (("conv_fprop", "add", "relu_fwd"),)
    assert y.get_dim() == [2, 4, 6, 6]
    data = {x: values(2, 8, 6, 6), w: values(4, 8, 3, 3), b: values(1, 4, 1, 1)}
    (out,) = g.run(data).values()
    expected = np.zeros((2, 4, 6, 6))
    padded = np.pad(data[x].astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    for r in range(3):
        for s in range(3):
            expected += np.einsum(
                "kc,ncpq->nkpq", data[w][:, :, r, s].astype(float), padded[:, :, r : r + 6, s : s + 6]
            )
    np.testing.assert_allclose(out, np.maximum(expected + data[b], 0), rtol=1e-4, atol=1e-3)


FRONTEND = {
    "conv_fprop": "image weight padding stride dilation convolution_mode compute_data_type name",
    "conv_dgrad": "loss filter padding stride dilation convolution_mode compute_data_type name",
    "conv_wgrad": "image loss padding stride dilation convolution_mode compute_data_type name",
    "matmul": "A B compute_data_type padding name",
    "reduction": "input mode compute_data_type name",
    "genstats": "input compute_data_type name",
    "reshape": "input name reshape_mode",
    "transpose": "input permutation compute_data_type name",
    "slice": "input slices compute_data_type name",
    "concatenate": "inputs axis in_place_index name",
    "batchnorm": "input scale bias in_running_mean in_running_var epsilon momentum peer_stats compute_data_type name",
    "batchnorm_inference": "input mean inv_variance scale bias compute_data_type name",
    "batchnorm_backward": "grad input scale mean inv_variance peer_stats compute_data_type name",
    "layernorm": "norm_forward_phase input scale bias epsilon compute_data_type name",
    "adalayernorm": "norm_forward_phase input scale bias epsilon compute_data_type name",
    "instancenorm": "norm_forward_phase input scale bias epsilon compute_data_type name",
    "rmsnorm": "norm_forward_phase input scale bias epsilon compute_data_type name",
    "rmsnorm_backward": "grad input scale inv_variance has_dbias compute_data_type name",
    "relu": "input negative_slope lower_clip upper_clip compute_data_type name",
    "leaky_relu": "input negative_slope compute_data_type name",
    "swish": "input swish_beta compute_data_type name",
    "gen_index": "input axis compute_data_type name",
    "binary_select": "input0 input1 mask compute_data_type name",
    "relu_backward": "loss input negative_slope lower_clip upper_clip compute_data_type name",
    "swish_backward": "loss input compute_data_type swish_beta name",
    "bias": "input bias compute_data_type name",
    "scale": "input scale compute_data_type name",
    "cmp_gt": "input comparison compute_data_type name",
    "add": "a b compute_data_type name",
    "max": "input0 input1 compute_data_type name",
    "tensor": "dim stride data_type is_virtual is_pass_by_value ragged_offset reordering_type name uid",
}


@pytest.mark.parametrize("method", FRONTEND)
def test_keywords_of_the_frontend(method: str) -> None:
    names = [n for n in inspect.signature(getattr(Graph, method)).parameters if n != "self"]
    wanted = FRONTEND[method].split()
    assert names[: len(wanted)] == wanted


def test_type_checkers_see_every_elementwise_method() -> None:
    declared = set(re.findall(r"^        (\w+): Elementwise$", Path(graph_module.__file__).read_text(), re.MULTILINE))
    assert declared == set(POINTWISE_METHODS), "declare `NAME: Elementwise` in Graph (graphdnn/builder/graph.py)"


def test_every_mode_has_a_method() -> None:
    assert {row.mode for row in POINTWISE_METHODS.values()} == set(POINTWISE), (
        "POINTWISE_METHODS (graphdnn/builder/pointwise_methods.py) needs a method per mode"
    )


@pytest.mark.parametrize("name", POINTWISE_METHODS)
def test_every_elementwise_method_runs(name: str) -> None:
    row = POINTWISE_METHODS[name]
    g = graph()
    operands = {a: g.tensor([2, 3], name=a) for a in row.arguments}
    parameters = dict.fromkeys(row.required, 1)
    y = getattr(g, name)(**operands, **parameters).set_output()
    data = {t: np.abs(values(2, 3)) + 1 for t in operands.values()}
    (out,) = g.run(data).values()
    keywords = {f: 1 for p, f in row.parameters.items() if p in row.required}
    (node,) = g._description.nodes
    wanted = POINTWISE[row.mode].numpy(
        *(data[operands[a]] for a in _in_port_order(row)), **{**node.fields["spec"].parameters(), **keywords}
    )
    np.testing.assert_array_equal(out, np.broadcast_to(wanted, (2, 3)).astype(np.float32))
    assert y.get_dim() == [2, 3]
    assert getattr(Graph, name).__doc__


def _in_port_order(row: Any) -> list[str]:
    argument = {port: a for a, port in row.arguments.items()}
    return [argument[port] for port in POINTWISE[row.mode].operands]


def norm_operands(g: Graph, channels: bool = True) -> tuple[Tensor, ...]:
    extents = [1, 4, 1, 1] if channels else [1, 1, 1, 5]
    epsilon = g.tensor([1, 1, 1, 1], is_pass_by_value=True, name="epsilon")
    return g.tensor([2, 4, 5, 5], name="x"), g.tensor(extents, name="scale"), g.tensor(extents, name="bias"), epsilon


METHODS: dict[str, Callable[[Graph], Any]] = {
    "wgrad": lambda g: g.conv_wgrad(g.tensor([2, 8, 6, 6]), g.tensor([2, 4, 4, 4])).set_dim([4, 8, 3, 3]),
    "flipped": lambda g: g.conv_fprop(
        g.tensor([2, 8, 6, 6]), g.tensor([4, 8, 3, 3]), pre_padding=[1, 0], post_padding=[0, 2],
        convolution_mode=ConvolutionMode.CONVOLUTION,
    ),
    "matmul": lambda g: g.matmul(g.tensor([2, 3, 4]), g.tensor([1, 4, 5])),
    "reduction": lambda g: g.reduction(g.tensor([2, 3, 4]), ReductionOperator.MAX).set_dim([2, 1, 1]),
    "reshape": lambda g: g.reshape(g.tensor([2, 6]), reshape_mode=ReshapeMode.LOGICAL).set_dim([3, 4]),
    "transpose": lambda g: g.transpose(g.tensor([2, 3, 4]), [2, 0, 1]),
    "slice": lambda g: g.slice(g.tensor([6, 8]), [slice(1, 5, 2), slice(None)]),
    "concatenate": lambda g: g.concatenate([g.tensor([2, 3]), g.tensor([2, 4])], axis=1),
    "batchnorm": lambda g: g.batchnorm(
        *(o := norm_operands(g))[:3], g.tensor([1, 4, 1, 1]), g.tensor([1, 4, 1, 1]), o[3],
        g.tensor([1, 1, 1, 1], is_pass_by_value=True),
    ),
    "batchnorm_inference": lambda g: g.batchnorm_inference(
        g.tensor([2, 4, 5, 5]), *(g.tensor([1, 4, 1, 1]) for _ in range(4))
    ),
    "batchnorm_backward": lambda g: g.batchnorm_backward(
        g.tensor([2, 4, 5, 5]), g.tensor([2, 4, 5, 5]), *(g.tensor([1, 4, 1, 1]) for _ in range(3))
    ),
    "layernorm": lambda g: g.layernorm(NormPhase.TRAINING, *norm_operands(g, False)),
    "layernorm_inference": lambda g: g.layernorm(NormPhase.INFERENCE, *norm_operands(g, False)),
    "layernorm_backward": lambda g: g.layernorm_backward(
        g.tensor([2, 4, 5, 5]), g.tensor([2, 4, 5, 5]), g.tensor([1, 1, 1, 5]), g.tensor([2, 4, 5, 1]), g.tensor([2, 4, 5, 1])
    ),
    "instancenorm": lambda g: g.instancenorm(NormPhase.TRAINING, *norm_operands(g)),
    "rmsnorm": lambda g: g.rmsnorm(NormPhase.TRAINING, *(o := norm_operands(g, False))[:2], None, o[3]),
    "rmsnorm_backward": lambda g: g.rmsnorm_backward(
        g.tensor([2, 4, 5, 5]), g.tensor([2, 4, 5, 5]), g.tensor([1, 1, 1, 5]), g.tensor([2, 4, 5, 1]), has_dbias=True
    ),
    "adalayernorm": lambda g: g.adalayernorm(
        NormPhase.TRAINING, g.tensor([2, 4, 6]), g.tensor([2, 1, 6]), g.tensor([2, 1, 6]),
        g.tensor([1, 1, 1], is_pass_by_value=True),
    ),
    "resample": lambda g: g.resample(g.tensor([2, 4, 6, 6]), ResampleMode.MAXPOOL, [2, 2], generate_index=True),
    "resample_backward": lambda g: g.resample_backward(
        g.tensor([2, 4, 3, 3]), ResampleMode.AVGPOOL_INCLUDE_PADDING, [2, 2]
    ).set_dim([2, 4, 6, 6]),
    "bn_finalize": lambda g: g.bn_finalize(
        *(g.tensor([1, 4, 1, 1]) for _ in range(4)), *(g.tensor([1, 1, 1, 1], is_pass_by_value=True) for _ in range(3))
    ),
    "dbn_weight": lambda g: g.dbn_weight(
        g.tensor([2, 4, 5, 5]), g.tensor([2, 4, 5, 5]), *(g.tensor([1, 4, 1, 1]) for _ in range(3))
    ),
    "rng": lambda g: g.rng(
        RngDistribution.UNIFORM, 7, g.tensor([1, 1], data_type="i64", is_pass_by_value=True), minimum=0.0, maximum=1.0
    ).set_dim([4, 5]),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_method_builds_and_runs(name: str) -> None:
    g = graph()
    made = METHODS[name](g)
    outputs = [t for t in (made if isinstance(made, list) else [made]) if t is not None]
    for tensor in outputs:
        tensor.set_output()
    op_graph = g.build_operation_graph()
    inputs = {s.uid: 1 if s.is_by_value else np.abs(values(*s.dims)) + 0.5 for s in op_graph.inputs}
    results = g.run(inputs)
    assert set(results) == set(outputs)
    assert all(np.isfinite(r.astype(float)).all() for r in results.values())
    assert len(g.plan.fused_operations) == 1


def test_threads_that_execute_one_graph_do_not_meet() -> None:
    """Each has a workspace of its own; NumPy lets other threads run while it computes."""
    g = Graph("shared", io_data_type="float32")
    x, w = g.tensor([2, 16, 40, 40]), g.tensor([16, 16, 3, 3])
    pooled, _ = g.resample(g.relu(g.conv_fprop(x, w, padding=[1, 1])), "MAXPOOL", window=[2, 2])
    y = g.mul(pooled, g.reduction(pooled, "ADD").set_dim([2, 16, 1, 1])).set_output(True)
    assert g.build().workspace_size > 0
    rng = np.random.default_rng(0)
    data = [{t: rng.standard_normal(t.get_dim()).astype(np.float32) for t in (x, w)} for _ in range(6)]
    wanted = [g.run(given)[y] for given in data]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(10):
            if not np.array_equal(g.run(data[i])[y], wanted[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(data))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
