"""Every case of the GPU benchmark at small extents, on the host engines and beside its peer."""

from __future__ import annotations

from typing import Any

import pytest
from benchmark_fakes import SMALL, FakeDevice, assert_right, measured, small
from gpu import convolutions, host, integers, memory, models, recurrent
from gpu.buffers import allocate, fill
from gpu.check import Checked, compare, definition
from gpu.fills import Integers, Normal, Uniform
from gpu.groups import GROUPS, chosen
from gpu.layers import DIRECT_LAYERS, LAYERS, TEMPLATE_MATCHING, Layer
from gpu.model_layers import CONVOLUTIONS, Convolution, Product

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("layout", memory.LAYOUTS)
@pytest.mark.parametrize("kind", memory.TYPES)
@pytest.mark.parametrize("operation", memory.OPERATIONS)
def test_memory_case_is_right_and_agrees_with_its_peer(operation: str, kind: str, layout: str) -> None:
    problem = memory.memory_problem(operation, kind, layout, (4, 8, 6, 4))
    result = measured(problem)
    if "not implemented for 'Half'" in result.peers[0].error:  # PyTorch has no such kernel on the CPU
        assert result.status == "ok"
        return
    assert_right(result)
    assert all(check["right"] for check in result.checks)
    # PyTorch rounds between its kernels, and its own sums of fp16 are coarse; still the same function.
    for peer in (p for p in result.peers if p.time):
        assert float(peer.error.split()[1 if ":" in peer.error else 0]) < 5e-3


@pytest.mark.parametrize("layer", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
def test_convolution_case_is_right(direction: str, layer: Layer) -> None:
    kinds = {"fprop": convolutions.fused_problem, "dgrad": convolutions.dgrad_problem}
    problem = kinds.get(direction, convolutions.wgrad_problem)(layer, "f16")
    result = measured(problem)
    assert_right(result)
    assert result.flops == layer.flops


@pytest.mark.parametrize("kind", ["bf16", "tf32", "f32"])
def test_dense_case_is_right_in_every_type(kind: str) -> None:
    result = measured(convolutions.fused_problem(SMALL["dense"], kind))
    assert_right(result)


def test_clipped_activation_has_cudnn_fused_call_as_part_only() -> None:
    result = measured(convolutions.fused_problem(SMALL["depthwise"], "f16", clip=6.0))
    assert_right(result)
    assert {p.label: p.part for p in result.peers} == {
        "conv2d, activation": False, "cudnn fused, no clip": True, "conv2d alone": True
    }  # fmt: skip
    assert "cudnn" in next(p.error for p in result.peers if p.label.startswith("cudnn")).lower()


def test_strict_case_gives_the_peer_both_formats() -> None:
    result = measured(convolutions.strict_problem(SMALL["dense"]))
    assert_right(result)
    assert [p.label for p in result.peers] == ["conv2d nhwc", "conv2d nchw"]


@pytest.mark.parametrize(
    ("data_type", "result_type", "values"),
    [("int16", "int32", integers.PIXELS), ("int16", "int64", integers.INT16), ("int8", "int32", integers.INT8)],
)
def test_integer_case_is_exact(data_type: str, result_type: str, values: Integers) -> None:
    layer = Layer("small", 1, 1, 12, 12, 3, 12, 12, 1, 4)
    problem = integers.integer_problem(layer, data_type, result_type, values, channels_last=False, peer_type="float32")
    result = measured(problem)
    assert_right(result)
    assert result.right == "exact"


@pytest.mark.parametrize("result_type", ["int8", "float32", "int32"])
def test_case_of_bytes(result_type: str) -> None:
    layer = Layer("small", 2, 24, 9, 8, 32, 3, 3, 1, 1)
    problem = integers.byte_problem(layer, result_type)
    result = measured(problem)
    assert result.status == "ok", result.reason  # cuDNN has no bytes here, and PyTorch no fused half
    assert [p.label for p in result.peers] == ["cudnn int8", "cudnn int8, its first choice", "cudnn float16"]
    assert len(problem.inputs) == (2 if result_type == "int32" else 4)


MODELS = {
    "row": Convolution("row", "", 2, 8, (20,), 8, (3,), 1, 2, 2),
    "volume": Convolution("volume", "", 2, 4, (5, 6, 7), 8, (1, 3, 3), 2, (0, 1, 1), 1, 2),
    "dilated": Convolution("dilated", "", 2, 8, (12, 12), 6, (3, 3), 1, 3, 3, activation="swish"),
}


@pytest.mark.parametrize("layer", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
def test_layer_of_a_model(direction: str, layout: str, layer: Convolution) -> None:
    result = measured(models.convolution_problem(layer, direction, "f16", layout))
    assert_right(result)
    assert any(p.error and float(p.error.split()[-1]) < 1e-3 for p in result.peers if p.time and not p.part)


@pytest.mark.parametrize(
    "product",
    [Product("a", (), 5, 6, 7, "gelu"), Product("b", (2, 3), 5, 6, 7), Product("c", (2,), 5, 6, 7, transposed=False)],
    ids=lambda product: product.name,
)
def test_product_of_a_model(product: Product) -> None:
    assert_right(measured(models.product_problem(product, "f16")))


@pytest.mark.parametrize("describe", [recurrent.inference, recurrent.training])
def test_recurrent_case(describe: Any) -> None:
    result = measured(describe(recurrent.network(steps=3, batch=2, hidden=5)))
    assert result.status == "ok", result.reason
    assert all(float(p.error) < recurrent.GRADIENT_BOUND for p in result.peers)


def test_every_case_describes_itself_in_full_size() -> None:
    for group, _ in GROUPS.values():
        if group is host.HOST:
            continue
        for case in group.cases:
            problem = case.describe()
            assert problem.peers, case.name
            assert set(problem.inputs) == set(problem.fills), case.name
            assert problem.moved > 0


def test_case_names_are_unique_and_some_are_quick() -> None:
    for group, _ in GROUPS.values():
        names = [case.name for case in group.cases]
        assert len(set(names)) == len(names)
        assert 0 < len(chosen(group, quick=True)) < len(names)
    assert len(LAYERS) == 17


@pytest.mark.parametrize("layer", [*LAYERS.values(), *DIRECT_LAYERS.values(), TEMPLATE_MATCHING], ids=lambda v: v.name)
def test_layer_extents_are_pytorchs(layer: Layer) -> None:
    with torch.device("meta"):
        x, w = torch.empty(layer.x_dims), torch.empty(layer.w_dims)
        y = torch.nn.functional.conv2d(x, w, None, layer.stride, layer.padding, 1, layer.groups)
    assert tuple(y.shape) == layer.y_dims


def test_known_amounts_of_work() -> None:
    assert LAYERS["vgg_3x3_256"].flops / 1e9 == pytest.approx(118.38, abs=0.01)
    assert memory.memory_problem("relu", "f16", "nhwc").moved == 2 * 2 * 64 * 128 * 56 * 56


def test_cases_are_chosen_by_word_and_pattern() -> None:
    group = memory.MEMORY
    assert {c.name for c in chosen(group, ["softmax"])} == {
        f"softmax_channel_{k}_{v}" for k in memory.TYPES for v in memory.LAYOUTS
    }
    assert [c.name for c in chosen(group, ["relu_f16_*"])] == ["relu_f16_nhwc", "relu_f16_nchw"]
    assert all(c.quick for c in chosen(group, quick=True))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_poison_is_seen_in_every_element(kind: str) -> None:
    problem, device = small(kind), FakeDevice()
    buffers = allocate(problem, device)
    fill(problem, buffers, device, 0)
    buffers.poison()
    expected = definition(problem, buffers.tensors, torch)
    (check,) = compare(problem, {"y": buffers.outputs["y"].tensor}, expected, torch)
    assert not check.is_right
    assert check.unwritten == buffers.outputs["y"].tensor.numel()


def test_arrays_and_tensors_are_one_memory_in_the_described_layout() -> None:
    problem = small()
    buffers = allocate(problem, FakeDevice())
    x = buffers.inputs["x"]
    x.tensor[1, 2, 3, 4] = 7
    assert x.array[1, 2, 3, 4] == 7
    assert x.tensor.is_contiguous(memory_format=torch.channels_last)
    assert set(buffers.bindings) == {spec.uid for spec in problem.graph.bound}


def test_a_single_wrong_integer_is_found() -> None:
    layer = Layer("small", 1, 1, 4, 4, 2, 3, 3, 1, 1)
    problem = integers.integer_problem(layer, "int8", "int32", integers.INT8, channels_last=False, peer_type="float32")
    expected = {"y": torch.arange(32, dtype=torch.float64).reshape(1, 2, 4, 4)}
    found = expected["y"].to(torch.int32)
    assert compare(problem, {"y": found}, expected, torch)[0].is_right
    found[0, 1, 2, 3] += 1
    (check,) = compare(problem, {"y": found}, expected, torch)
    assert not check.is_right
    assert str(check) == "y: 1 elements differ"


def test_nan_is_never_right() -> None:
    assert not Checked("y", float("nan"), 1.0, 0).is_right


@pytest.mark.parametrize("values", [Normal(2.0, 1.0), Uniform(0.5, 1.5), Integers(-3, 3)])
def test_fills_are_random_and_repeatable(values: Any) -> None:
    like = torch.empty(500)
    first, second = (values.draw(torch, like, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, second)
    assert first.unique().numel() > 4
    if isinstance(values, Integers):
        assert (int(first.min()), int(first.max())) == (-3, 3)


@pytest.mark.parametrize("layer", [*CONVOLUTIONS, *MODELS.values()], ids=lambda v: v.name)
def test_extents_of_models_are_pytorchs(layer: Convolution) -> None:
    rank = len(layer.extents)
    with torch.device("meta"):
        x, w = torch.empty(layer.x_dims), torch.empty(layer.w_dims)
        geometry = [numbers[-rank:] for numbers in layer.geometry]
        y = torch.ops.aten.convolution(x, w, None, *geometry, False, [0] * rank, layer.groups)
    assert tuple(y.shape) == layer.y_dims
