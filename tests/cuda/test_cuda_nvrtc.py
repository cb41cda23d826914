"""Kernel text to cubins: NVRTC really compiles where it is installed; every refusal says what to do."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cuda_comparison import ARCHITECTURES, compiler
from expect_rejection import refusal

from graphdnn import debug_log
from graphdnn.cuda import library_record, nvrtc
from graphdnn.cuda.nvrtc import KernelText, arch_of, compile_text, first_errors, loaded_version, resources
from graphdnn.errors import InternalError

SCALE = """
struct Params { float *y; const float *x; long long n; double factor; };
extern "C" __global__ void __launch_bounds__(256) scale(const __grid_constant__ Params p) {
    __shared__ float tile[256];
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < p.n ? p.x[i] : 0.f;
    __syncthreads();
    if (i < p.n) p.y[i] = tile[threadIdx.x ^ 1] * (float)p.factor;
}
"""
SPILLING = """
extern "C" __global__ void __maxnreg__(32) spilling(float *x) {
    float a[100];
    #pragma unroll
    for (int i = 0; i < 100; i++) a[i] = x[i * threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 100; i++) x[i * 3] = a[99 - i] * a[i];
}
"""
LOG = """ptxas info    : 0 bytes gmem
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in function 'a'
ptxas info    : Compiling entry function 'b' for 'sm_90a'
ptxas info    : Function properties for b
ptxas         .     464 bytes stack frame, 832 bytes spill stores, 836 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 464 bytes cumulative stack size, 128 bytes smem, 368 bytes cmem[0]
ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers
k.cu(3): warning #177-D: variable "z" was declared but never referenced"""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is remembered of the compiler, before and after, and nothing is noted."""
    monkeypatch.setattr(library_record, "_file", lambda: None)
    for remembered in (nvrtc._loaded, nvrtc._architectures):
        remembered.cache_clear()
    yield
    for remembered in (nvrtc._loaded, nvrtc._architectures):
        remembered.cache_clear()


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles(arch: str) -> None:
    made = compile_text(KernelText("scale", SCALE), arch)
    assert made.cubin[:4] == b"\x7fELF"
    assert b"scale" in made.cubin
    assert made.seconds > 0
    found = resources(made.log)["scale"]
    assert 0 < found.registers <= 64
    assert found.shared >= 1024
    assert (found.spill_stores, found.spill_loads, found.warnings) == (0, 0, ())


@compiler
def test_same_text_gives_the_same_cubin() -> None:
    first, second = (compile_text(KernelText("scale", SCALE), "sm_80") for _ in range(2))
    assert first.cubin == second.cubin


@compiler
def test_spills_are_seen() -> None:
    found = resources(compile_text(KernelText("spilling", SPILLING), "sm_80").log)["spilling"]
    assert found.registers == 32
    assert min(found.stack, found.spill_stores, found.spill_loads) > 0


@compiler
def test_options_take_part() -> None:
    text = "#ifndef SIZE\n#error no size\n#endif\n" + SCALE
    with pytest.raises(InternalError, match="no size"):
        compile_text(KernelText("scale", text), "sm_80")
    assert compile_text(KernelText("scale", text, ("-DSIZE=1",)), "sm_80").cubin


def test_arithmetic_is_never_relaxed() -> None:
    for option in nvrtc.options_of(KernelText("k", ""), "sm_80"):
        assert not any(word in option for word in ("fast", "ftz", "prec"))


def test_line_numbers_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KernelText("k", "", ("-DN=1",))
    assert "-lineinfo" not in nvrtc.options_of(kernel, "sm_80")
    monkeypatch.setattr(debug_log, "switches", frozenset({"lineinfo"}))
    assert nvrtc.options_of(kernel, "sm_80")[-2:] == ("-lineinfo", "-DN=1")


def test_resources_of_a_log() -> None:
    found = resources(LOG)
    b = found["b"]
    assert (b.registers, b.stack, b.spill_stores, b.spill_loads, b.shared) == (32, 464, 832, 836, 128)
    assert found["a"].registers == 168
    assert "C7510" in found["a"].warnings[0]
    for entry in found.values():
        assert "never referenced" in entry.warnings[-1], "a warning without an entry belongs to each"
    assert len(b.warnings) == 1
    assert resources("") == {}


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100")],
)
def test_architecture(capability: tuple[int, int], arch: str) -> None:
    assert arch_of(capability) == arch


# Refusals.


def test_older_devices() -> None:
    text = refusal("cuda.capability", lambda: arch_of((7, 5), "Tesla T4"))
    assert "Tesla T4: compute capability = 7.5, expected compute capability 8.0 or later" in text


@compiler
@pytest.mark.parametrize("arch", ["sm_999", "sm_60", "compute_80", "", "sm_90a --help"])
def test_unknown_architectures(arch: str) -> None:
    assert "sm_80" in refusal("cuda.nvrtc.architecture", lambda: compile_text(KernelText("k", SCALE), arch))


@compiler
def test_text_that_does_not_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = SCALE.replace("p.factor", "p.facto")
    message = refusal("cuda.nvrtc.compilation", lambda: compile_text(KernelText("a/b c", text), "sm_80"), InternalError)
    assert 'has no member "facto"' in message
    (saved,) = tmp_path.iterdir()
    assert str(saved) in message
    assert saved.read_text(encoding="utf-8") == text


@compiler
def test_text_that_cannot_be_saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(InternalError, match="not saved"):
        compile_text(KernelText("k", "int"), "sm_80")


@compiler
def test_the_text_can_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(debug_log, "switches", frozenset({"source", "ptxas"}))
    compile_text(KernelText("scale", SCALE), "sm_80")
    (saved,) = tmp_path.iterdir()
    assert saved.read_text(encoding="utf-8") == SCALE
    err = capsys.readouterr().err
    assert f"graphdnn,source,scale,{saved}" in err
    assert "graphdnn,resources,scale,scale," in err


def test_errors_come_before_warnings() -> None:
    log = "k.cu(1): warning #1: first\nk.cu(2): error: second\n  x = y;\n      ^\nk.cu(9): warning #1: last"
    assert first_errors(log)[0] == "k.cu(2): error: second"
    assert len(first_errors("\n".join(f"k.cu({i}): error: again" for i in range(50)))) == 6
    assert first_errors("something else\n\n") == ["something else"]
    assert first_errors("") == []


@pytest.mark.usefixtures("fresh")
def test_no_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    assert "graphdnn[nvrtc]" in refusal("cuda.bindings", loaded_version)


def _raises(*_: Any) -> Any:
    raise RuntimeError("Failed to dlopen libnvrtc.so.13\nsecond line")


class _Result(int):
    name = "NVRTC_ERROR_INTERNAL_ERROR"


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("answer", [_raises, lambda: (_Result(11), 0, 0)])
def test_no_library(monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Any]) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", types.SimpleNamespace(nvrtcVersion=answer))
    text = refusal("cuda.nvrtc.library", lambda: compile_text(KernelText("k", SCALE), "sm_80"))
    assert "pip install nvidia-cuda-nvrtc" in text
    assert "second line" not in text


@pytest.mark.usefixtures("fresh")
def test_a_program_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fake = types.SimpleNamespace(
        nvrtcVersion=lambda: (0, 13, 0),
        nvrtcGetSupportedArchs=lambda: (0, [80]),
        nvrtcCreateProgram=lambda *_: (_Result(11), None),
    )
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", fake)
    text = refusal("cuda.nvrtc.compilation", lambda: compile_text(KernelText("k", SCALE), "sm_80"), InternalError)
    assert "NVRTC 13.0 answers NVRTC_ERROR_INTERNAL_ERROR" in text
    assert "(no log)" in text


@pytest.mark.usefixtures("fresh")
def test_a_log_of_one_byte_is_not_written_into_a_shared_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has one object for each text of one byte; the bindings would write the compiler's NUL into it."""
    sizes: list[int] = []

    def get(program: Any, buffer: bytes) -> tuple[int]:
        sizes.append(len(buffer))
        return (0,)

    assert nvrtc._bytes_of(lambda _: (0, 1), get, None) == b" "
    assert sizes == [2]
