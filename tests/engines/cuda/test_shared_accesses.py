"""What the watched emulator says of shared memory that threads touch in no order, and kernels that keep to one."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from emulator import MISSING, EmulationError, compile_for_host
from random_problems.execution_targets import Emulated
from random_problems.named_problems import Named
from random_problems.run_and_compare import Prepared, check

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

TEXT = """struct Params { const int* x; int* y; };
extern "C" __global__ void k(const __grid_constant__ Params p) {
    extern __shared__ int outer[];
    __shared__ int inner[64];
    const int t = threadIdx.x;
    %s
}"""
X = np.arange(64, dtype=np.int32)


def run(body: str, *, watched: bool = True, backward: bool = False) -> np.ndarray:
    y = np.zeros(64, np.int32)
    kernel = compile_for_host(TEXT % body, ("k",), watched=watched)
    kernel.launch("k", 1, 64, 256, struct.pack("<QQ", X.ctypes.data, y.ctypes.data), backward=backward)
    return y


IN_ORDER = [
    "outer[t] = p.x[t]; __syncthreads(); p.y[t] = outer[63 - t];",
    "outer[t] = p.x[t]; __syncwarp(); p.y[63 - t] = outer[t ^ 1] ^ outer[t] ^ outer[t];",
    "emulated_copy_async(inner + t, p.x + t, 4, 1); emulated_commit_copies(); emulated_await_copies(0); "
    "__syncthreads(); p.y[t] = inner[63 - t];",
    "if (t == 0) inner[0] = 0; __syncthreads(); atomicAdd(inner, 1); __syncthreads(); p.y[t] = inner[0];",
]


@pytest.mark.parametrize("body", IN_ORDER)
def test_what_is_in_order_runs(body: str) -> None:
    assert (run(body) == run(body, watched=False)).all()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("outer[t] = p.x[t];\np.y[t] = outer[63 - t]; __syncthreads();", "nothing orders them"),
        ("inner[t] = p.x[t]; __syncthreads(); p.y[t] = inner[63 - t];\ninner[t] = 0;", "nothing orders them"),
        ("outer[t] = p.x[t]; __syncwarp();\np.y[t] = outer[63 - t]; __syncthreads();", "nothing orders them"),
        # A copy that lands after the barrier, one that nobody waits for, one into what others still read.
        ("emulated_copy_async(inner + t, p.x + t, 4, 1); emulated_commit_copies(); __syncthreads();\n"
         "p.y[t] = inner[63 - t]; emulated_await_copies(0);", "has not landed"),
        ("emulated_copy_async(inner + t, p.x + t, 4, 1); emulated_commit_copies(); emulated_await_copies(1); "
         "__syncthreads();\np.y[t] = inner[t];", "has not landed"),
        ("inner[t] = p.x[t]; __syncthreads(); p.y[t] = inner[63 - t];\nemulated_copy_async(inner + t, p.x + t, 4, 1);",
         "has not landed"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("backward", [False, True])
def test_what_nothing_orders_is_said_with_its_lines(body: str, says: str, backward: bool) -> None:
    with pytest.raises(EmulationError) as caught:
        run(body, backward=backward)
    message = str(caught.value)
    assert says in message
    assert "shared memory at line" in message


def test_a_copy_is_poison_until_its_thread_waits() -> None:
    """Also where nobody watches: results are wrong then."""
    y = run(
        "emulated_copy_async(inner + t, p.x + t, 4, 1); emulated_commit_copies(); p.y[t] = inner[t];", watched=False
    )
    assert (y == -1).all()


# Rings, windows and sums in parts. The first two read what others were still to write, for tiles behind the last one.
KERNELS = [
    Named("conv x=f16[2,48,9,11]nhwc w=f16[48,1,3,3] pad=1 + bias + relu(0,6)", "cuda_direct", {"KERNEL_CFG": 2}),
    Named("conv x=f16[1,16,12,41]nhwc w=f16[16,1,7,7]nhwc pad=3 + bias", "cuda_direct", {"KERNEL_CFG": 2}),
    Named("wgrad x=f16[2,48,9,11]nhwc dy=f16[2,48,9,11]nhwc dw=[48,1,3,3] pad=1", "cuda_direct_wgrad", {"KERNEL_CFG": 2}),
    Named("conv x=f16[1,64,12,10]nhwc w=f16[64,1,5,5] pad=2 + bias", "cuda_direct", {"KERNEL_CFG": 1}),
    Named("wgrad x=f16[3,32,9,7]nhwc dy=f16[3,32,9,7]nhwc dw=[32,16,3,3] pad=1", "cuda_grouped_wgrad", {"TILE_ROWS": 3, "SPLIT_P_SLC": 2}),
    Named("conv x=f16[2,64,12,12]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu", "cuda_mma_gemm"),
    Named("reduce add x=f32[2,40000] y=[2,1]"),
]  # fmt: skip


@pytest.mark.parametrize("named", KERNELS, ids=str)
def test_kernels_touch_shared_memory_in_order(named: Named) -> None:
    place = Emulated(watched=True)
    prepared = Prepared.of(named.problem())
    configurations = list(named.configurations(prepared.fused, place.device))
    assert configurations
    for config in configurations:
        assert check(prepared, place.plan(config), place) == []
