"""Groups of few channels as joined ones: on the host against the general engine, and what is chosen."""

from __future__ import annotations

import pytest
from cuda_comparison import emulated, first_choice
from exact_sums import check_sums, operations

from graphdnn import OperationGraph
from graphdnn.device.profiles import device_spec
from graphdnn.engines import ENGINE_BY_NAME

ENGINE = ENGINE_BY_NAME["cuda_group_packing"]

H200 = device_spec("h200")

PROBLEMS = [
    "conv x=f16[1,128,6,7]nhwc w=f16[128,16,3,3] pad=1 + bias + residual + relu",
    "conv x=bf16[2,24,6,5]nhwc w=bf16[48,8,3,3]nhwc pad=1 stride=2 mode=conv + bias",
    "conv x=i8[1,128,5,6]nhwc w=i8[64,32,2,3] pad=1 compute=i32 out=i32",
    "conv x=f16[1,24,3,4,5]nhwc w=f16[24,8,3,2,1] pad=1",
    "dgrad dy=f16[1,64,4,4]nhwc w=f16[64,8,3,3] dx=[1,64,8,8] pad=1 stride=2",
    "dgrad dy=f16[1,40,20]nhwc w=f16[40,8,5] dx=[1,40,20] pad=2",
    "wgrad x=f16[1,64,6,7]nhwc dy=f16[1,128,6,7]nhwc dw=[128,16,3,3] pad=1",
    "wgrad x=bf16[2,40,6,5]nhwc dy=bf16[2,40,3,3]nhwc dw=[40,8,3,3] pad=1 stride=2",
]


@emulated
@pytest.mark.parametrize("text", PROBLEMS)
def test_results(text: str) -> None:
    check_sums(text, ENGINE, 0, H200)


def test_what_is_chosen() -> None:
    """Strided fprop; unit strides are ``cuda_grouped``'s, and filter gradients ``cuda_grouped_wgrad``'s."""
    text = "conv x=f16[64,256,56,56]nhwc w=f16[256,8,3,3]nhwc pad=1 stride=2 + bias + relu"
    first_choice(OperationGraph.of(operations(text)), "cuda_group_packing", H200)
