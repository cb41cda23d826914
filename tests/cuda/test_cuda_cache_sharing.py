"""The kernel cache among threads and processes: each kernel compiled once, nobody waits for ever or reads half a file."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_compiler import KERNEL, Compiler, named
from repository import ROOT

from graphdnn.cuda import nvrtc
from graphdnn.cuda.kernel_cache import KernelCache, default_cache
from graphdnn.errors import InternalError


def test_threads_compile_once(compiler: Compiler, tmp_path: Path) -> None:
    compiler.seconds = 0.1
    cache = KernelCache(tmp_path)
    origins: list[str] = []
    gate = threading.Barrier(8)

    def load(name: str) -> None:
        gate.wait()
        origins.append(cache.load(named(name), "sm_80").origin)

    threads = [threading.Thread(target=load, args=("ab"[i % 2],)) for i in range(8)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(compiler.compiled) == ["a", "b"]
    assert sorted(origins) == ["compiled"] * 2 + ["memory"] * 6
    assert time.perf_counter() - start < 10


def test_a_failure_wakes_the_waiting(compiler: Compiler) -> None:
    compiler.seconds = 0.02
    compiler.error = InternalError(nvrtc.COMPILATION.reject("k", "text", "", version="", result="", errors="", path=""))
    cache = KernelCache(None)
    failed: list[type] = []

    def load() -> None:
        try:
            cache.load(KERNEL, "sm_80")
        except InternalError as error:
            failed.append(type(error))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert failed == [InternalError] * 4


LOADS = """
import sys
from pathlib import Path
from graphdnn.cuda import nvrtc
from graphdnn.cuda.kernel_cache import KernelCache
from graphdnn.cuda.nvrtc import Compiled, KernelText
nvrtc.version = lambda: (13, 0)
nvrtc.compile_text = lambda kernel, arch: Compiled(kernel.text.encode() * 1000, "log", 0.0)
folder = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for turn in range(40):
    cache = KernelCache(folder, limit_bytes=int(sys.argv[2]))
    for name in "abcdefgh":
        text = f"text of {name}"
        assert cache.load(KernelText(name, text), "sm_80").cubin == text.encode() * 1000, name
    if turn % 7 == int(sys.argv[3]):
        for path in folder.glob("*.kernel"):
            try:
                with open(path, "r+b") as file:
                    file.truncate(100)
            except FileNotFoundError:
                pass
"""


@pytest.mark.parametrize("limit", [10**9, 50_000])
def test_processes_share_a_folder(tmp_path: Path, limit: int) -> None:
    """Four processes load, prune and damage the same files; none ever gets a wrong cubin or an error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-c", LOADS, str(tmp_path), str(limit), str(i)],
                         stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
        for i in range(4)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        _, err = process.communicate("go\n", timeout=120)
        assert process.returncode == 0, err
        assert "Traceback" not in err
    assert not list(tmp_path.glob("*.tmp"))
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_a_thread_compiles(compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child does not wait for a lock that nobody in it holds."""
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(tmp_path))
    default_cache.cache_clear()
    cache = default_cache()
    compiler.seconds = 1.0
    thread = threading.Thread(target=cache.load, args=(KERNEL, "sm_80"))
    thread.start()
    while not compiler.compiled:
        time.sleep(0.01)
    child = multiprocessing.get_context("fork").Process(target=cache.load, args=(KERNEL, "sm_80"))
    child.start()
    child.join(timeout=30)
    alive = child.is_alive()
    if alive:
        child.kill()
    thread.join()
    default_cache.cache_clear()
    assert not alive
    assert child.exitcode == 0
