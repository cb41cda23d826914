"""The kernel cache: each kernel compiled once, kept by everything that decides, and within its size."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fake_compiler import KERNEL, Compiler, files, named

from graphdnn import debug_log
from graphdnn.cuda import cache_maintenance, kernel_cache, nvrtc
from graphdnn.cuda.cache_entry import key_of, manifest_of
from graphdnn.cuda.kernel_cache import KernelCache
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.errors import InternalError, NotSupported


def test_origins(compiler: Compiler, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "kernels"
    first = KernelCache(folder)
    loads = [first.load(KERNEL, "sm_80"), first.load(KERNEL, "sm_80"), KernelCache(folder).load(KERNEL, "sm_80")]
    assert [load.origin for load in loads] == ["compiled", "memory", "disk"]
    assert len({(load.cubin, load.log) for load in loads}) == 1
    assert loads[0].log == "log of scale"
    assert all(load.milliseconds >= 0 for load in loads)
    assert compiler.compiled == ["scale"]
    assert [file.suffix for file in files(folder)] == [".kernel"]
    assert folder.stat().st_mode & 0o077 == 0, "what this process will run on the GPU is its user's own"


def test_everything_that_decides_is_in_the_key(compiler: Compiler, tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    variants: list[tuple[KernelText, str]] = [
        (KERNEL, "sm_80"), (KERNEL, "sm_90a"), (KernelText("scale", KERNEL.text + " "), "sm_80"),
        (KernelText("scale", KERNEL.text, ("-DN=1",)), "sm_80"), (KernelText("other", KERNEL.text), "sm_80"),
    ]  # fmt: skip
    for kernel, arch in variants:
        assert cache.load(kernel, arch).origin == "compiled"
    compiler.version = (13, 1)
    assert cache.load(KERNEL, "sm_80").origin == "compiled"
    assert len(files(tmp_path)) == len(variants) + 1
    assert KernelCache(tmp_path).load(KERNEL, "sm_80").origin == "disk"


def test_parts_do_not_run_into_each_other() -> None:
    """Text that moves from one option to the next is another kernel."""
    keys = {
        key_of(manifest_of("k", text, options, (13, 0), "sm_80"))
        for text, options in (("ab", ("c",)), ("a", ("bc",)), ("ab", ("c", "")), ("abc", ()))
    }
    assert len(keys) == 4


def test_a_failure_is_not_kept(compiler: Compiler, tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    compiler.error = InternalError(nvrtc.COMPILATION.reject("k", "text", "", version="", result="", errors="", path=""))
    for _ in range(2):
        with pytest.raises(InternalError):
            cache.load(KERNEL, "sm_80")
    assert files(tmp_path) == []
    compiler.error = None
    assert cache.load(KERNEL, "sm_80").origin == "compiled"
    assert compiler.compiled == ["scale"] * 3


def test_memory_is_bounded(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "_IN_MEMORY", 2)
    cache = KernelCache(None)
    origins = [cache.load(named(name), "sm_80").origin for name in "abcca"]
    assert origins == ["compiled", "compiled", "compiled", "memory", "compiled"]


def test_verbose(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = KernelCache(tmp_path)
    cache.load(KERNEL, "sm_80")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(debug_log, "verbose", True)
    cache.load(KERNEL, "sm_80")
    assert "graphdnn,kernel,scale,sm_80,memory," in capsys.readouterr().err


def test_the_least_recently_used_go(compiler: Compiler, tmp_path: Path) -> None:
    compiler.size = 10_000
    cache = KernelCache(tmp_path, limit_bytes=35_000)
    for age, name in enumerate("abc"):
        cache.load(named(name), "sm_80")
        for path in files(tmp_path):
            os.utime(path, (path.stat().st_atime - 100, path.stat().st_mtime - 100))
        assert len(files(tmp_path)) == age + 1
    KernelCache(tmp_path).load(named("a"), "sm_80")  # now b is the oldest
    cache.load(named("d"), "sm_80")
    assert len(files(tmp_path)) == 3
    fresh = KernelCache(tmp_path, limit_bytes=10**9)
    assert [fresh.load(named(name), "sm_80").origin for name in "acdb"] == ["disk", "disk", "disk", "compiled"]


def test_the_folder_is_listed_once_for_many_kernels(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again when a share of the limit was written, so that what others write beside is seen."""
    compiler.size, listings, looked = 10_000, [], cache_maintenance.stored
    monkeypatch.setattr(cache_maintenance, "stored", lambda folder: listings.append(folder) or looked(folder))
    cache = KernelCache(tmp_path, limit_bytes=10_000_000)
    for i in range(60):
        cache.load(named(f"kernel{i}"), "sm_80")
    assert len(listings) == 1
    for i in range(60, 120):
        cache.load(named(f"kernel{i}"), "sm_80")
    assert len(listings) == 2


def test_a_full_folder_is_not_listed_for_every_kernel(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.size, listings, looked = 1_000, [], cache_maintenance.stored
    monkeypatch.setattr(cache_maintenance, "stored", lambda folder: listings.append(folder) or looked(folder))
    cache = KernelCache(tmp_path, limit_bytes=160_000)
    for i in range(400):
        cache.load(named(f"kernel{i}"), "sm_80")
    stored = sum(path.stat().st_size for path in files(tmp_path))
    assert 140_000 <= stored <= 160_000
    assert len(listings) <= 400 * compiler.size // (160_000 // 16) * 2


def test_what_is_larger_than_the_limit_is_not_written(compiler: Compiler, tmp_path: Path) -> None:
    compiler.size = 10_000
    cache = KernelCache(tmp_path, limit_bytes=5_000)
    assert [cache.load(KERNEL, "sm_80").origin for _ in range(2)] == ["compiled", "memory"]
    assert files(tmp_path) == []


def test_what_a_crash_left_goes_after_an_hour(compiler: Compiler, tmp_path: Path) -> None:
    ours = {".graphdnn-abc-1.tmp": b"GDNNKRN2half", ".graphdnn-abc-3.tmp": b"", ".abc-1.tmp": b"GDNNKRN1half"}
    other = {
        "notes.txt": b"notes", "notes.tmp": b"notes", ".notes.tmp": b"GDNNKR", ".notes-1.tmp": b"", ".a-1.tmp": b"x",
        ".graphdnn-a.tmp": b"notes", "mine.kernel": b"GDNNKRN2", "0" * 64 + ".kernel": b"notes",
    }  # fmt: skip
    for name, content in (ours | other).items():
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, (time.time() - 7200,) * 2)
    link = tmp_path / ("1" * 64 + ".kernel")
    link.symlink_to(tmp_path / "notes.txt")
    new = tmp_path / ".graphdnn-abc-2.tmp"
    new.write_bytes(b"GDNNKRN2half")
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    cache_maintenance.prune(tmp_path, 0, 60.0)
    cache_maintenance.remove_damaged(tmp_path)
    assert {path.name for path in files(tmp_path)} == {*other, new.name, link.name}, (
        "somebody may be writing the new one"
    )
    assert {name: (tmp_path / name).read_bytes() for name in other} == other


def test_with_nvrtc(tmp_path: Path) -> None:
    try:
        nvrtc.loaded_version()
    except NotSupported as error:
        pytest.skip(f"NVRTC: {error}")
    loads = [KernelCache(tmp_path).load(KERNEL, "sm_80") for _ in range(2)]
    assert [load.origin for load in loads] == ["compiled", "disk"]
    assert loads[0].cubin == loads[1].cubin
    assert nvrtc.resources(loads[1].log)["scale"].registers > 0
