"""Calls of cuBLAS and cuFFT against stubs that are declared as the libraries' headers declare them."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from emulator import MISSING

from graphdnn.cuda import driver_api, vendor_libraries
from graphdnn.cuda.cublas import Cublas, Gemm
from graphdnn.cuda.cufft import Cufft, Transform
from graphdnn.cuda.errors import CudaError, OutOfMemory
from graphdnn.enums import DataType, Status
from graphdnn.errors import NotSupported

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
STREAM, WORK = 0x7000_0000_1000, 0x7000_0000_2000

STUB = r"""
#include <cstdio>
#include <cstring>
#include <string>
static std::string told;
static int answer = 0;
template <class... A> static int tell(const char* format, A... values) {
    char line[512];
    snprintf(line, sizeof line, format, values...);
    told += line; told += "\n";
    return answer;
}
extern "C" {
typedef long long ll; typedef void* ptr; typedef const void* cptr;
const char* read_told() { static std::string last; last = told; told.clear(); return last.c_str(); }
void set_answer(int code) { answer = code; }
int cublasCreate_v2(ptr* handle) { *handle = (ptr)0x11; return tell("create"); }
int cublasSetMathMode(ptr h, int mode) { return tell("math %p %d", h, mode); }
int cublasSetStream_v2(ptr h, ptr stream) { return tell("stream %p %p", h, stream); }
int cublasSetWorkspace_v2(ptr h, ptr work, size_t size) { return tell("work %p %p %zu", h, work, size); }
int cublasGemmStridedBatchedEx(
    ptr h, int ta, int tb, int m, int n, int k, cptr alpha, cptr a, int type_a, int lda, ll stride_a,
    cptr b, int type_b, int ldb, ll stride_b, cptr beta, ptr c, int type_c, int ldc, ll stride_c,
    int batch, int compute, int algorithm) {
    double one = type_a == 1 ? *(const double*)alpha : compute == 72 ? *(const int*)alpha : *(const float*)alpha;
    double zero = type_a == 1 ? *(const double*)beta : compute == 72 ? *(const int*)beta : *(const float*)beta;
    return tell("gemm %p %d%d %d %d %d %g %p %d %d %lld %p %d %d %lld %g %p %d %d %lld %d %d %d",
        h, ta, tb, m, n, k, one, a, type_a, lda, stride_a, b, type_b, ldb, stride_b, zero, c, type_c, ldc, stride_c,
        batch, compute, algorithm);
}
int cufftCreate(int* plan) { *plan = 5; return tell("create"); }
int cufftSetAutoAllocation(int plan, int automatic) { return tell("auto %d %d", plan, automatic); }
int cufftMakePlanMany64(
    int plan, int rank, ll* n, ll* in, ll istride, ll idist, ll* out, ll ostride, ll odist, int type, ll batch,
    size_t* work) {
    *work = batch == 99 ? (size_t)1 << 40 : 1024;
    return tell("plan %d %d [%lld %lld] [%lld %lld] %lld %lld [%lld %lld] %lld %lld %x %lld",
        plan, rank, n[0], n[1], in[0], in[1], istride, idist, out[0], out[1], ostride, odist, type, batch);
}
int cufftSetStream(int plan, ptr stream) { return tell("stream %d %p", plan, stream); }
int cufftSetWorkArea(int plan, ptr work) { return tell("work %d %p", plan, work); }
int cufftExecR2C(int plan, ptr in, ptr out) { return tell("forward %d %p %p", plan, in, out); }
int cufftExecC2R(int plan, ptr in, ptr out) { return tell("back %d %p %p", plan, in, out); }
int cufftDestroy(int plan) { return tell("destroy %d", plan); }
}
"""


class Stub:
    def __init__(self, library: Any) -> None:
        library.read_told.restype = ctypes.c_char_p
        self.library = library

    def told(self) -> list[str]:
        return self.library.read_told().decode().splitlines()  # type: ignore[no-any-return]

    def answer(self, code: int) -> None:
        self.library.set_answer(code)


@pytest.fixture(scope="module")
def _library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("stub")
    source, target = folder / "stub.cpp", folder / "libstub.so"
    Path(source).write_text(STUB)
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-o", str(target), str(source)], check=True)
    return ctypes.CDLL(str(target))


@pytest.fixture
def stub(_library: Any, monkeypatch: pytest.MonkeyPatch) -> Stub:
    monkeypatch.setattr(driver_api, "current_device", lambda: 0)
    monkeypatch.setattr(driver_api, "beside_captures", nullcontext)
    found = Stub(_library)
    found.answer(0)
    found.told()
    return found


def gemm(kind: DataType, result: DataType, compute: DataType) -> Gemm:
    return Gemm(True, False, 3, 4, 5, kind, result, compute, 6, 7, 8, 2**33, 10, 11, 12)


@pytest.mark.parametrize(
    ("types", "codes"),
    [
        (("DOUBLE", "DOUBLE", "DOUBLE"), (1, 1, 70)),
        (("FLOAT", "FLOAT", "FLOAT"), (0, 0, 69)),
        (("HALF", "FLOAT", "FLOAT"), (2, 0, 68)),
        (("BFLOAT16", "BFLOAT16", "FLOAT"), (14, 14, 68)),
        (("INT8", "INT32", "INT32"), (3, 10, 72)),
        (("COMPLEX_FP32", "COMPLEX_FP32", "FLOAT"), (4, 4, 69)),
    ],
)
def test_arguments_of_products(stub: Stub, types: tuple[str, str, str], codes: tuple[int, int, int]) -> None:
    kind, result, compute = (DataType[name] for name in types)
    blas = Cublas(stub.library)
    blas.prepare()
    assert stub.told() == ["create", "math 0x11 16"]
    blas.gemm(gemm(kind, result, compute), 0xA000_0000_00A0, 0xB0, 0xC0, WORK, 2**25, STREAM)
    operand, out, arithmetic = codes
    assert stub.told() == [
        f"stream 0x11 {STREAM:#x}",
        f"work 0x11 {WORK:#x} {2**25}",
        f"gemm 0x11 10 3 4 5 1 0xa000000000a0 {operand} 6 {2**33} 0xb0 {operand} 7 10 0 0xc0 {out} 8 11 12 {arithmetic} -1",
    ]


def test_threads_that_end_leave_their_handle_to_the_next(stub: Stub) -> None:
    """Each handle has device memory of its own, and a server may start a thread for each request."""
    blas, numbers = Cublas(stub.library), []
    for _ in range(5):
        thread = threading.Thread(target=lambda: numbers.append(blas.handle()))
        thread.start()
        thread.join()
    assert len(numbers) == 5
    assert stub.told() == ["create", "math 0x11 16"]
    both = threading.Barrier(2)

    def at_once() -> None:
        blas.handle()
        both.wait()

    threads = [threading.Thread(target=at_once) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stub.told() == ["create", "math 0x11 16"], "one was left, and one more is needed at the same time"


def test_a_failing_product_says_so(stub: Stub) -> None:
    blas = Cublas(stub.library)
    blas.prepare()
    stub.answer(15)
    with pytest.raises(CudaError, match="CUBLAS_STATUS_NOT_SUPPORTED") as caught:
        blas.gemm(gemm(*(DataType.FLOAT,) * 3), 0, 0, 0, WORK, 0, STREAM)
    assert caught.value.status is Status.EXECUTION_FAILED_CUBLAS


def test_a_library_without_memory_says_so(stub: Stub) -> None:
    """It is no error of the problem: free memory, and the same call works."""
    blas = Cublas(stub.library)
    for call, code in ((blas.prepare, 3), (lambda: Cufft(stub.library).prepare(Transform(12, 10, 7)), 2)):
        stub.answer(code)
        with pytest.raises(MemoryError, match="ALLOC_FAILED") as caught:
            call()
        assert isinstance(caught.value, OutOfMemory)
        assert caught.value.rejections[0].rule == "cuda.memory"
        stub.answer(0)
        call()


def test_arguments_of_transforms(stub: Stub) -> None:
    forward = Cufft(stub.library).prepare(Transform(12, 10, 7))
    assert stub.told() == ["create", "auto 5 0", "plan 5 2 [12 10] [12 10] 1 120 [12 6] 7 1 2a 7"]
    forward(0xA0, 0xB0, WORK, STREAM)
    assert stub.told() == [f"stream 5 {STREAM:#x}", f"work 5 {WORK:#x}", "forward 5 0xa0 0xb0"]
    back = Cufft(stub.library).prepare(Transform(12, 10, 7, is_inverse=True))
    assert stub.told()[-1] == "plan 5 2 [12 10] [12 6] 7 1 [12 10] 1 120 2c 7"
    back(0xA0, 0xB0, WORK, STREAM)
    assert stub.told()[-1] == "back 5 0xa0 0xb0"
    del forward, back
    assert stub.told() == [], "captured graphs hold its kernels"


def test_plans_of_transforms_go_from_one_caller_to_the_next(stub: Stub) -> None:
    """None is destroyed, so there are as many as were in use at once."""
    fft, transform = Cufft(stub.library), Transform(12, 10, 7)
    first = fft.prepare(transform)
    del first
    kept = fft.prepare(transform)
    assert sum(line == "create" for line in stub.told()) == 1
    both = [fft.prepare(transform), fft.prepare(Transform(12, 10, 8))]
    assert sum(line == "create" for line in stub.told()) == 2
    del kept, both
    again = [fft.prepare(transform) for _ in range(2)]
    assert not stub.told()
    again[0](0xA0, 0xB0, WORK, STREAM)
    assert stub.told()[-1] == "forward 5 0xa0 0xb0"


def test_a_transform_that_asks_for_more_memory_is_refused(stub: Stub) -> None:
    with pytest.raises(NotSupported) as caught:
        Cufft(stub.library).prepare(Transform(12, 10, 99))
    assert caught.value.rejections[0].rule == "cuda.cufft.work_area"
    assert stub.told()[-1] == "destroy 5"


def test_a_failing_transform_says_so(stub: Stub) -> None:
    stub.answer(8)
    with pytest.raises(CudaError, match="CUFFT_INVALID_SIZE"):
        Cufft(stub.library).prepare(Transform(12, 10, 7))


def test_a_library_that_is_not_there() -> None:
    assert "nothing_like_it" in str(vendor_libraries.find("nothing_like_it")[1])
    assert vendor_libraries.missing("nothing_like_it")
    with pytest.raises(NotSupported) as caught:
        vendor_libraries.load("nothing_like_it")
    assert caught.value.rejections[0].rule == "cuda.library.missing"
