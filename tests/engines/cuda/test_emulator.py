"""The host emulator of kernel text: what it computes, and what it refuses."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from emulator import MISSING, EmulationError, compile_for_host, guarded

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

PARAMS = "struct Params { const int* x; int* y; long long n; };\n"


def run(body: str, x: Any, size: int, block: Any = 64, grid: Any = 1, shared: int = 0, **rest: Any) -> np.ndarray:
    """int32 results of a kernel `k` with the given body (and what stands before it, up to a line of dashes)."""
    before, _, inside = body.rpartition("----")
    text = f'{PARAMS}{before}\nextern "C" __global__ void k(const __grid_constant__ Params p) {{\n{inside}\n}}'
    x = np.asarray(x, np.int32)
    y = np.zeros(size, np.int32)
    params = struct.pack("<QQq", x.ctypes.data, y.ctypes.data, x.size)
    compile_for_host(text, ("k",)).launch("k", (grid,), block, shared, params, **rest)
    return y


def refusal(body: str, **launch: Any) -> str:
    with pytest.raises(EmulationError) as caught:
        run(body, np.zeros(64), 64, **launch)
    return str(caught.value)


X = np.random.default_rng(0).integers(-1000, 1000, 1024, dtype=np.int32)


def test_every_thread_of_every_block_has_its_place() -> None:
    text = """
struct Params { int* y; };
extern "C" __global__ void places(const __grid_constant__ Params p) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    p.y[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1 + thread + 1000 * block;
}"""
    y = np.zeros((2 * 3 * 4, 5 * 6 * 7), np.int32)
    emulated = compile_for_host(text, ("places",))
    emulated.launch("places", (2, 3, 4), (5, 6, 7), 0, struct.pack("<Q", y.ctypes.data))
    assert (y == 1 + np.arange(210) + 1000 * np.arange(24)[:, None]).all()


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("block", [(256,), (16, 16), (4, 8, 8)])
def test_block_reduction(block: tuple[int, ...], backward: bool) -> None:
    total = run(
        """
template <int N> __device__ int total(int v, int t) {
    __shared__ alignas(16) int part[N];
    part[t] = v;
    __syncthreads();
    for (int step = N / 2; step; step /= 2) {
        if (t < step) part[t] += part[t + step];
        __syncthreads();
    }
    return part[0];
}
----
    const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int v = total<256>(p.x[blockIdx.x * 256 + t], t);
    if (t == 0) p.y[blockIdx.x] = v;""",
        X, 4, block, 4, backward=backward,
    )  # fmt: skip
    assert (total == X.reshape(4, 256).sum(1)).all()


@pytest.mark.parametrize(
    "shared", ["extern __shared__ __align__(16) unsigned char at[];", "extern __shared__ int at[];"]
)
@pytest.mark.parametrize("outside", [False, True])
def test_dynamic_shared_memory(shared: str, outside: bool) -> None:
    body = """
    int* row = reinterpret_cast<int*>(at);
    row[threadIdx.x] = p.x[threadIdx.x];
    __syncthreads();
    p.y[threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];"""
    y = run(shared + "----" + body if outside else shared + body, X[:100], 100, 100, shared=400)
    assert (y == X[:100][::-1]).all()


LANES = X[:64].reshape(2, 32)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("__shfl_sync(~0u, v, 5)", np.broadcast_to(LANES[:, 5:6], (2, 32))),
        ("__shfl_sync(~0u, v, t + 3)", np.roll(LANES, -3, 1)),
        ("__shfl_sync(~0u, v, 1, 8)", np.repeat(LANES[:, 1::8], 8, 1)),
        ("__shfl_xor_sync(~0u, v, 16)", np.roll(LANES, 16, 1)),
        ("__shfl_down_sync(~0u, v, 4)", np.hstack([LANES[:, 4:], LANES[:, 28:]])),
        ("__shfl_up_sync(~0u, v, 4)", np.hstack([LANES[:, :4], LANES[:, :28]])),
        ("(int)__shfl_xor_sync(~0u, (double)v, 16)", np.roll(LANES, 16, 1)),
        ("(int)__shfl_xor_sync(~0u, (float)v, 16)", np.roll(LANES, 16, 1)),
        ("(int)(__shfl_xor_sync(~0u, (long long)v << 32, 16) >> 32)", np.roll(LANES, 16, 1)),
        ("__any_sync(~0u, v > 990)", np.repeat((LANES > 990).any(1, keepdims=True), 32, 1)),
        ("__all_sync(~0u, v > -999)", np.repeat((LANES > -999).all(1, keepdims=True), 32, 1)),
        ("__reduce_add_sync(~0u, v)", np.repeat(LANES.sum(1, keepdims=True), 32, 1)),
        ("__reduce_max_sync(~0u, v)", np.repeat(LANES.max(1, keepdims=True), 32, 1)),
        ("__popc(__ballot_sync(~0u, v < 0))", np.repeat((LANES < 0).sum(1, keepdims=True), 32, 1)),
        ("t < 16 ? __shfl_xor_sync(0xffffu, v, 1) : v", np.hstack([LANES[:, [i ^ 1 for i in range(16)]], LANES[:, 16:]])),
    ],
)  # fmt: skip
@pytest.mark.parametrize("backward", [False, True])
def test_lanes_of_a_warp(expression: str, expected: np.ndarray, backward: bool) -> None:
    body = f"const int t = threadIdx.x % 32, v = p.x[threadIdx.x];\np.y[threadIdx.x] = {expression};"
    assert (run(body, X[:64], 64, backward=backward).reshape(2, 32) == expected).all()


def test_lanes_that_have_left_are_not_waited_for() -> None:
    y = run(
        """if (threadIdx.x >= 40) return;
int v = 1;
for (int step = 16; step; step /= 2) { int other = __shfl_xor_sync(~0u, v, step); if (other > 0) v += other; }
p.y[threadIdx.x] = v;""",
        X[:64], 64,
    )  # fmt: skip
    assert (y[:32] == 32).all()
    assert (y[32:40] == 8).all()


def test_the_work_of_a_whole_warp_is_done_once() -> None:
    y = run(
        """
struct Place { int give, get; };
inline void prefix(void** places, unsigned present) {
    int sum = 0;
    for (int lane = 0; lane < 32; ++lane) {
        Place& place = *(Place*)places[lane];
        place.get = sum += place.give;
    }
}
----
Place mine{p.x[threadIdx.x], 0};
emulated_together(32, &mine, prefix);
p.y[threadIdx.x] = mine.get;""",
        X[:64], 64,
    )  # fmt: skip
    assert (y.reshape(2, 32) == LANES.cumsum(1)).all()


def test_votes_of_a_block_and_named_barriers() -> None:
    y = run(
        """__shared__ int ready[4];
const int warp = threadIdx.x / 32;
if (warp < 2) {
    ready[warp] = warp + 1;
    emulated_bar_arrive(1, 128);
} else {
    emulated_bar_sync(1, 128);
    p.y[threadIdx.x] = ready[0] + ready[1];
}
const int many = __syncthreads_count(threadIdx.x % 3 == 0), any = __syncthreads_or(threadIdx.x == 5);
const int all = __syncthreads_and(threadIdx.x < 127);
if (threadIdx.x == 0) p.y[0] = many, p.y[1] = any, p.y[2] = all;""",
        X, 128, 128,
    )  # fmt: skip
    assert y[:3].tolist() == [43, 1, 0]
    assert (y[64:] == 3).all()


def test_atomics_count_across_blocks() -> None:
    y = run(
        """const int v = p.x[blockIdx.x * 256 + threadIdx.x];
atomicAdd(&p.y[0], v);
atomicMax(&p.y[1], v);
atomicMin(&p.y[2], v);
atomicOr((unsigned*)&p.y[3], 1u << (threadIdx.x & 7));
atomicAdd((float*)&p.y[4], 0.5f);
atomicAdd((double*)&p.y[6], 0.25);
atomicAdd((unsigned long long*)&p.y[8], 1ull << 32);
int old = p.y[10], seen;
do { seen = old; old = atomicCAS(&p.y[10], seen, seen + 2); } while (old != seen);
if (atomicExch(&p.y[11], 1) == 0) p.y[12] = 1 + threadIdx.x;""",
        X, 16, 256, 4,
    )  # fmt: skip
    assert y[:4].tolist() == [X.sum(), X.max(), X.min(), 255]
    assert y[4:5].view(np.float32)[0] == 512
    assert y[6:8].view(np.float64)[0] == 256
    assert y[8:10].view(np.int64)[0] == 1024 << 32
    assert y[10:13].tolist() == [2048, 1, 1]


def test_intrinsics() -> None:
    expressions = {
        "__popc(0xf0f0u)": 8, "__clz(1)": 31, "__ffs(8)": 4, "__clzll(1ll)": 63, "__brev(1u) == 1u << 31": 1,
        "__umulhi(1u << 31, 6u)": 3, "__mul24(-3, 5)": -15, "__dp4a(0x01ff02fe, 0x02020202, 10)": 10,
        "__dp4a(0xffffffffu, 0x01010101u, 1u)": 1021, "__float_as_int(1.0f)": 0x3F800000,
        "__byte_perm(0x33221100, 0x77665544, 0x6420)": 0x66442200, "__funnelshift_l(1u << 31, 1u, 1)": 3,
        "(int)rsqrtf(0.25f)": 2, "(int)(erfcf(0.0f) + erff(0.0f))": 1, "min(3, 2) + max(2.5f, 1.0f) == 4.5f": 1,
        "(int)fmaf(2.0f, 3.0f, 1.0f)": 7, "__float2int_rn(2.5f)": 2, "__float2int_rz(-2.7f)": -2,
        "__float2int_rn(1e20f)": 2**31 - 1, "(int)__ldg(&p.x[3])": int(X[3]), "abs(-3) + (int)abs(-2.0f)": 5,
        "isnan(__int_as_float(0x7fc00000))": 1,
    }  # fmt: skip
    body = "\n".join(f"p.y[{i}] = {expression};" for i, expression in enumerate(expressions))
    assert run(body, X, len(expressions), 1).tolist() == list(expressions.values())


# ---- what would hang or be undefined


def test_threads_that_left_before_a_barrier() -> None:
    body = "if (threadIdx.x == 7) return;\n__syncthreads();"
    said = refusal(body)
    assert "63 wait in __syncthreads at line 5" in said
    assert "1 have exited (the first is thread 7)" in said
    run(body, X, 1, exits_allowed=True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("if (threadIdx.x < 32)\n__syncthreads();\nelse\n__syncthreads();", "threads wait at different barriers"),
        ("if (threadIdx.x < 32)\n__syncthreads();\nelse if (threadIdx.x < 40)\n__syncwarp();", "others wait for them"),
        (
            "if (threadIdx.x % 32 < 31)\n__shfl_sync(~0u, 1, 0);\nelse\n__ballot_sync(~0u, 1);",
            "meet at different calls",
        ),
        ("if (threadIdx.x % 32 < 16)\n__syncthreads();\nelse\n__syncwarp();", "threads wait for each other"),
        ("if (threadIdx.x == 9) __syncwarp(1);", "the calling lane is not in the mask"),
        ("volatile int* y = p.y; while (*y == 0) emulated_yield();", "no thread gets on"),
        ("emulated_bar_sync(1, 96);", "wait for each other"),
        ("volatile int zero = p.x[0]; p.y[0] = 5 / zero;", "division by zero"),
        ("*(volatile int*)8 = 1;", "memory at 0x8 is not accessible"),
        ("volatile char large[1 << 19]; large[0] = 1; __syncwarp();", "stack (256 KiB) is full"),
        ("__trap();", "__trap()"),
    ],
)
@pytest.mark.parametrize("backward", [False, True])
def test_what_would_hang_stops_with_a_message(body: str, said: str, backward: bool) -> None:
    message = refusal(body, backward=backward)
    assert said in message
    assert "block (0,0,0)" in message


# Each block keeps a number in shared memory of both kinds, waits for all blocks, and adds what the next one wrote.
TOGETHER = """
    __shared__ int fixed[64];
    extern __shared__ int dynamic[];
    const int t = threadIdx.x, block = blockIdx.x;
    int *arrived = p.y, *numbers = p.y + 1;
    fixed[t] = dynamic[t] = block;
    numbers[block] = 100 * (block + 1);
    __syncthreads();
    if (t == 0) {
        atomicAdd(arrived, 1);
        while (*(volatile int*)arrived < p.n) __nanosleep(0);
    }
    __syncthreads();
    if (t == 63) p.y[1 + gridDim.x + block] = numbers[(block + 1) % gridDim.x] + fixed[t - 1] + dynamic[t - 2];
"""


@pytest.mark.parametrize("backward", [False, True])
def test_blocks_of_a_cooperative_launch_wait_for_each_other(backward: bool) -> None:
    found = run(TOGETHER, np.zeros(5), 11, grid=5, shared=256, together=True, backward=backward)
    np.testing.assert_array_equal(found[6:], [200, 302, 404, 506, 108])


@pytest.mark.parametrize(
    ("grid", "together", "said"),
    [(5, False, "no thread gets on"), (4, True, "no block gets on"), (2000, True, "do not run at the same time")],
)
def test_blocks_that_do_not_run_together_are_not_waited_for(grid: int, together: bool, said: str) -> None:
    with pytest.raises(EmulationError, match=said):
        run(TOGETHER, np.zeros(5), 2 * 2000 + 1, grid=grid, shared=256, together=together)


def test_a_missing_barrier_shows_in_one_of_the_orders() -> None:
    body = """__shared__ int row[64];
row[threadIdx.x] = p.x[threadIdx.x];
__syncwarp();
p.y[threadIdx.x] = row[(threadIdx.x + 32) % 64];"""
    right = np.roll(X[:64], 32)
    orders = [run(body, X[:64], 64, backward=backward) for backward in (False, True)]
    assert not all((y == right).all() for y in orders)


def test_shared_memory_is_poisoned_before_each_block() -> None:
    body = """extern __shared__ int dynamic[];
__shared__ int fixed[64];
p.y[2 * blockIdx.x] = fixed[threadIdx.x];
p.y[2 * blockIdx.x + 1] = dynamic[threadIdx.x];
fixed[threadIdx.x] = dynamic[threadIdx.x] = 5;
__syncthreads();"""
    assert (run(body, X, 6, 64, 3, 256) == -1).all()


def test_a_write_behind_dynamic_shared_memory() -> None:
    said = refusal("extern __shared__ char at[];\nat[threadIdx.x + 1] = 0;", shared=64)
    assert "byte 64 of dynamic shared memory was written, the launch has 64" in said


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("p.y[0] = x[12 + p.n]", "48 bytes from the start of a guarded array of 40 bytes"),
        ("x[10 + p.n] = 1", "wrote 0 bytes behind a guarded array of 40 bytes"),
        ("x[-1 + p.n] = 1", "wrote 4 bytes before a guarded array of 40 bytes"),
        ("p.y[0] = x[9 + p.n]", ""),
    ],
)
def test_guarded_arrays(statement: str, said: str) -> None:
    text = (
        f'{PARAMS}extern "C" __global__ void k(const __grid_constant__ Params p) {{ int* x = (int*)p.x; {statement}; }}'
    )
    x, y = guarded(np.arange(10, dtype=np.int32)), np.zeros(1, np.int32)
    launch = compile_for_host(text, ("k",)).launch
    params = struct.pack("<QQq", x.ctypes.data, y.ctypes.data, 0)
    if said:
        with pytest.raises(EmulationError, match=said):
            launch("k", (1,), 1, 0, params)
    else:
        launch("k", (1,), 1, 0, params)
        assert y[0] == 9


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ({"entry": "other"}, "not one of the entries"),
        ({"block": (1025,)}, "between 1 and 1024 threads"),
        ({"grid": (0,)}, "a grid of"),
        ({"shared": 300_000}, "bytes of dynamic shared memory"),
        ({"params": b"12345678"}, "takes 24 bytes of parameters, got 8"),
    ],
)
def test_launches_that_a_device_would_refuse(launch: dict[str, Any], said: str) -> None:
    emulated = compile_for_host(PARAMS + 'extern "C" __global__ void k(const __grid_constant__ Params p) {}', ("k",))
    with pytest.raises(EmulationError, match=said):
        emulated.launch(**{"entry": "k", "grid": (1,), "block": (1,), "params": bytes(24)} | launch)


def test_text_that_does_not_compile_names_the_line() -> None:
    with pytest.raises(EmulationError, match=r"kernel\.cu:2:.*error"):
        compile_for_host("struct Params { int x; };\nnonsense", ("k",))
