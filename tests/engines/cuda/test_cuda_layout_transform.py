"""Images that lie with pixels as neighbours, or along one axis: on the host against the general engine, and what is chosen."""

from __future__ import annotations

import pytest
from cuda_comparison import emulated
from exact_sums import check_sums, operations

from graphdnn import OperationGraph, channels_last_strides, fuse
from graphdnn.device.profiles import device_spec
from graphdnn.engines import ENGINE_BY_NAME
from graphdnn.engines.cuda.rewrites.as_conv2d import as_conv2d
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.heuristics import Ranking
from graphdnn.operations import ConvForward, Operation, PointwiseOperation, PointwiseSpec

ENGINE = ENGINE_BY_NAME["cuda_layout_transform"]

H200 = device_spec("h200")

PROBLEMS = [
    "conv x=f16[2,24,9,10] w=f16[24,1,5,5] pad=2 + bias + residual + relu",
    "conv x=f16[2,24,40]nhwc w=f16[24,1,31] pad=15 + bias + swish",
    "conv x=bf16[1,16,30] w=bf16[16,1,13] pre=6 post=3 stride=2",
    "dgrad dy=f16[2,16,20] w=f16[16,4,5] dx=[2,16,20] pad=2",
    "dgrad dy=f16[1,16,15,15] w=f16[16,1,13,13] dx=[1,16,15,15] pad=6",
    "wgrad x=f16[2,16,9,8] dy=f16[2,16,9,8] dw=[16,1,3,3] pad=1",
    "wgrad x=f16[2,16,40] dy=f16[2,16,40] dw=[16,1,15] pad=7",
    "conv x=f16[1,16,4,5,6] w=f16[16,16,3,3,3] pad=1 + bias",
    "conv x=f16[2,24,3,7,6]nhwc w=f16[24,1,1,3,3] pad=0,1,1 + bias + residual",
    "dgrad dy=f16[2,64,5,3,4]nhwc w=f16[64,72,3,1,1] dx=[2,72,5,3,4] pad=1,0,0",
    "wgrad x=f16[2,64,2,16,8]nhwc dy=f16[2,64,2,16,8]nhwc dw=[64,64,1,3,3] pad=0,1,1",
]


@emulated
@pytest.mark.parametrize("text", PROBLEMS)
def test_results(text: str) -> None:
    check_sums(text, ENGINE, 0, H200)


@emulated
def test_old_contents() -> None:
    (conv,) = operations("conv x=f16[1,24,7,6] w=f16[24,1,3,3] pad=1")
    check_sums([conv.model_copy(update={"beta": -2.0})], ENGINE, 0, H200)


def _with_end(text: str, extents: tuple[int, ...] | None, index: int | None = None) -> list[Operation]:
    """A convolution whose result gets an operand of these extents, or the index along an axis, added."""
    (conv,) = operations(text)
    assert isinstance(conv, ConvForward)
    y = conv.y.model_copy(update={"data_type": DataType.FLOAT, "is_virtual": True})
    free, dims = conv.y.uid, y.dims
    strides = conv.y.strides
    added = y.model_copy(update={"uid": free + 1, "is_virtual": index is not None})
    steps: list[Operation] = [conv.model_copy(update={"y": y})]
    if index is None:
        assert extents is not None
        added = added.model_copy(update={"dims": extents, "strides": channels_last_strides(extents)})
    else:
        spec = PointwiseSpec(mode=PointwiseMode.GEN_INDEX, math_type="f32", axis=index)
        steps.append(PointwiseOperation(spec=spec, x=y, y=added))
    out = y.model_copy(update={"uid": free + 2, "is_virtual": False, "dims": dims, "strides": strides})
    add = PointwiseSpec(mode=PointwiseMode.ADD, math_type="f32")
    return [*steps, PointwiseOperation(spec=add, x=y, b=added, y=out)]


_LINE = "conv x=f16[2,8,5,3,4]nhwc w=f16[16,8,3,1,1]nhwc pad=1,0,0"
_PLANES = "conv x=f16[2,8,3,6,6]nhwc w=f16[16,8,1,3,3]nhwc pad=0,1,1"


@emulated
@pytest.mark.parametrize("extents", [(2, 1, 1, 3, 4), (1, 16, 5, 1, 1)], ids=str)
def test_operands_that_repeat(extents: tuple[int, ...]) -> None:
    """Along both of two axes that are seen as one, or along neither."""
    check_sums(_with_end(_LINE, extents), ENGINE, 0, H200)


def _has_conv2d_form(steps: list[Operation]) -> bool:
    (op,) = fuse(OperationGraph.of(steps))
    return as_conv2d(op) is not None


@pytest.mark.parametrize(
    ("text", "extents"),
    [(_LINE, (2, 16, 5, 1, 4)), (_LINE, (1, 16, 1, 3, 1)), (_PLANES, (1, 16, 3, 6, 6)), (_PLANES, (2, 1, 1, 1, 6))],
)
def test_operands_that_repeat_along_one_axis(text: str, extents: tuple[int, ...]) -> None:
    """Seen as planes they would repeat where they do not, and be read beyond their end."""
    assert not _has_conv2d_form(_with_end(text, extents))


@pytest.mark.parametrize("text", [_LINE, _PLANES, "conv x=f16[2,8,40]nhwc w=f16[16,8,3] pad=1"])
def test_indices_are_those_of_the_graph(text: str) -> None:
    rank = len(operations(text)[0].inputs()["x"].dims)
    assert not any(_has_conv2d_form(_with_end(text, None, axis)) for axis in range(rank))


def _best(text: str) -> str:
    return Ranking(fuse(OperationGraph.of(operations(text))), H200).best.name


def test_what_is_chosen() -> None:
    """Layers along one axis; others have engines that read them as they lie."""
    assert _best("conv x=f16[16,512,1000]nhwc w=f16[512,1,31] pad=15 + bias + swish") == "cuda_layout_transform"
    assert (
        _best("conv x=f16[8,144,16,56,56]nhwc w=f16[64,144,3,1,1]nhwc pad=1,0,0 + bias + relu")
        == "cuda_layout_transform"
    )
    assert _best("conv x=f16[32,672,14,14]nhwc w=f16[672,1,5,5] pad=2 + bias + relu") == "cuda_direct"
    assert _best("conv x=f16[64,256,14,14] w=f16[256,256,3,3] pad=1 + bias + relu") == "cuda_hopper_gemm"
