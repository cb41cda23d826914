"""The kernel cache: each kernel compiled once, nothing damaged ever used, no folder needed. And the command for it."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphdnn.cli import main
from graphdnn.cli.outcome import Exit
from graphdnn.cuda import cache as cache_module
from graphdnn.cuda import debug, entry, nvrtc, upkeep
from graphdnn.cuda import folder as folder_module
from graphdnn.cuda.cache import KernelCache, cache_directory, default_cache
from graphdnn.cuda.entry import Damaged, Entry, key_of, manifest_of, packed, unpacked
from graphdnn.cuda.nvrtc import Compiled, KernelText
from graphdnn.errors import InternalError, NotSupported

ROOT = Path(__file__).resolve().parents[1]
KERNEL = KernelText("scale", 'extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= 2; }')


class Compiler:
    """Stands for NVRTC: counts, and makes bytes that depend on everything that it is given."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.version = (13, 0)
        self.seconds = 0.0
        self.size = 100
        self.error: Exception | None = None

    def compile_text(self, kernel: KernelText, arch: str) -> Compiled:
        self.compiled.append(kernel.name)
        time.sleep(self.seconds)
        if self.error:
            raise self.error
        text = f"{kernel.text}|{arch}|{self.version}|{kernel.options}".encode()
        return Compiled(text.ljust(self.size, b"\0"), f"log of {kernel.name}", self.seconds)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    made = Compiler()
    monkeypatch.setattr(nvrtc, "compile_text", made.compile_text)
    monkeypatch.setattr(nvrtc, "version", lambda: made.version)
    return made


@pytest.fixture(autouse=True)
def unsaid() -> Iterator[None]:
    """What was said once may be said again."""
    debug._said.clear()
    yield
    debug._said.clear()


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def named(name: str) -> KernelText:
    return KernelText(name, f"text of {name}")


# Where a kernel comes from.


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
    monkeypatch.setattr(cache_module, "_IN_MEMORY", 2)
    cache = KernelCache(None)
    origins = [cache.load(named(name), "sm_80").origin for name in "abcca"]
    assert origins == ["compiled", "compiled", "compiled", "memory", "compiled"]


def test_verbose(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = KernelCache(tmp_path)
    cache.load(KERNEL, "sm_80")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(debug, "verbose", True)
    cache.load(KERNEL, "sm_80")
    assert "graphdnn,kernel,scale,sm_80,memory," in capsys.readouterr().err


# Damage.


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def of_another_kernel(data: bytes) -> bytes:
    return packed(Entry(manifest_of("other", "text", (), (13, 0), "sm_80"), "", b"cubin"))


def of_another_format(data: bytes) -> bytes:
    found = unpacked(data)
    return packed(Entry({**found.manifest, "format": 2}, found.log, found.cubin))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": cut,
    "one byte short": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\0",
    "magic": flipped(0),
    "hash": flipped(10),
    "sizes": flipped(42),
    "manifest": flipped(80),
    "cubin": flipped(-2),
    "another kernel": of_another_kernel,
    "another format": of_another_format,
    "something else": lambda data: b"\x7fELF" * 100,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_never_used(
    compiler: Compiler, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[bytes], bytes]
) -> None:
    whole = KernelCache(tmp_path).load(KERNEL, "sm_80")
    (path,) = files(tmp_path)
    content = path.read_bytes()
    for _ in range(2):
        path.write_bytes(damage(content))
        again = KernelCache(tmp_path).load(KERNEL, "sm_80")
        assert again.origin == "compiled"
        assert again.cubin == whole.cubin
        assert path.read_bytes() == content
    said = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("graphdnn,note,kernel cache,") for line in said) == 1
    assert path.name in said[-1]
    assert KernelCache(tmp_path).load(KERNEL, "sm_80").origin == "disk"


def test_every_byte_is_guarded() -> None:
    data = packed(Entry(manifest_of("k", "t", ("-a",), (13, 0), "sm_80"), "log \u00b5", bytes(range(64))))
    assert unpacked(data).cubin == bytes(range(64))
    assert unpacked(data).log == "log \u00b5"
    for at in range(len(data)):
        with pytest.raises(Damaged):
            unpacked(flipped(at)(data))
        with pytest.raises(Damaged):
            unpacked(data[:at])


@pytest.mark.parametrize("sizes", [(0, 0, 0), (2**63, 2**63, 0), (5, 0, 0), (10**9, 0, 0)])
def test_sizes_that_lie(sizes: tuple[int, int, int]) -> None:
    """With a right hash, as from another program: still no entry, and nothing large is read."""
    import hashlib
    import struct

    rest = struct.pack("<QQQ", *sizes) + b"[[[[["
    with pytest.raises(Damaged):
        unpacked(entry.MAGIC + hashlib.sha256(rest).digest() + rest)


def test_a_damaged_file_in_a_folder_that_cannot_be_written(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    (path,) = files(tmp_path)
    path.write_bytes(b"damaged")
    no_writing(monkeypatch)
    cache = KernelCache(tmp_path)
    assert [cache.load(KERNEL, "sm_80").origin for _ in range(2)] == ["compiled", "memory"]


# Folders that cannot be written, or are not there.


def no_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root every folder can be written, so the calls are refused instead."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for module, call in ((folder_module.tempfile, "mkstemp"), (os, "utime"), (os, "replace")):
        monkeypatch.setattr(module, call, refuse)
    monkeypatch.setattr(Path, "unlink", refuse)


def test_a_folder_that_is_read_only(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    before = {path: path.read_bytes() for path in files(tmp_path)}
    no_writing(monkeypatch)
    cache = KernelCache(tmp_path)
    assert cache.load(KERNEL, "sm_80").origin == "disk", "reading still saves the time"
    assert [cache.load(named(name), "sm_80").origin for name in "aab"] == ["compiled", "memory", "compiled"]
    assert {path: path.read_bytes() for path in files(tmp_path)} == before
    said = [line for line in capsys.readouterr().err.splitlines() if ",note," in line and "template" not in line]
    assert len(said) == 1
    assert "Permission denied" in said[0]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write(compiler: Compiler, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert KernelCache(tmp_path / "new").load(KERNEL, "sm_80").origin == "compiled"
    assert files(tmp_path) == []


def test_a_folder_below_a_file(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    cache = KernelCache(tmp_path / "file" / "kernels")
    assert [cache.load(KERNEL, "sm_80").origin for _ in range(2)] == ["compiled", "memory"]


def test_a_folder_in_place_of_a_file(compiler: Compiler, tmp_path: Path) -> None:
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    (path,) = files(tmp_path)
    path.unlink()
    path.mkdir()
    cache = KernelCache(tmp_path)
    assert [cache.load(KERNEL, "sm_80").origin for _ in range(2)] == ["compiled", "memory"]
    assert [file for file in files(tmp_path) if file.suffix == ".tmp"] == []


def test_a_full_disk(compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    cache = KernelCache(tmp_path)
    assert [cache.load(KERNEL, "sm_80").origin for _ in range(2)] == ["compiled", "memory"]
    assert files(tmp_path) == [], "nothing half written is left"


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "own"
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable, found in (("GRAPHDNN_CACHE_DIR", "own"), ("XDG_CACHE_HOME", "own/graphdnn")):
        with monkeypatch.context() as patch:  # as files of settings pass it on
            patch.delenv("GRAPHDNN_CACHE_DIR")
            patch.setenv(variable, "~/own")
            assert cache_directory() == tmp_path / found
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", "")
    assert cache_directory() == tmp_path / "xdg" / "graphdnn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "graphdnn"


def test_a_relative_folder_stays_where_it_was(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that change their folder would leave kernels in each."""
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", "kept here")
    monkeypatch.chdir(tmp_path)
    default_cache.cache_clear()
    cache = default_cache()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert cache.load(KERNEL, "sm_80").origin == "compiled"
    default_cache.cache_clear()
    assert [path.parent for path in tmp_path.rglob("*.kernel")] == [tmp_path / "kept here"]


def test_a_folder_relative_to_one_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", "kept")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cache_directory() is None


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def home(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GRAPHDNN_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", home)
    default_cache.cache_clear()
    yield
    default_cache.cache_clear()


@pytest.mark.usefixtures("no_home")
def test_no_home(compiler: Compiler, capsys: pytest.CaptureFixture[str]) -> None:
    cache = default_cache()
    assert cache is default_cache()
    assert [cache.load(KERNEL, "sm_80").origin for _ in range(2)] == ["compiled", "memory"]
    assert "no home folder" in capsys.readouterr().err


# Its size.


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
    compiler.size, listings, looked = 10_000, [], upkeep.stored
    monkeypatch.setattr(upkeep, "stored", lambda folder: listings.append(folder) or looked(folder))
    cache = KernelCache(tmp_path, limit_bytes=10_000_000)
    for i in range(60):
        cache.load(named(f"kernel{i}"), "sm_80")
    assert len(listings) == 1
    for i in range(60, 120):
        cache.load(named(f"kernel{i}"), "sm_80")
    assert len(listings) == 2


def test_what_is_larger_than_the_limit_is_not_written(compiler: Compiler, tmp_path: Path) -> None:
    compiler.size = 10_000
    cache = KernelCache(tmp_path, limit_bytes=5_000)
    assert [cache.load(KERNEL, "sm_80").origin for _ in range(2)] == ["compiled", "memory"]
    assert files(tmp_path) == []


def test_what_a_crash_left_goes_after_an_hour(compiler: Compiler, tmp_path: Path) -> None:
    old, new = tmp_path / ".abc-1.tmp", tmp_path / ".abc-2.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    other = tmp_path / "notes.txt"
    other.write_text("not ours", encoding="utf-8")
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    assert not old.exists()
    assert new.exists(), "somebody may be writing it"
    assert other.exists()


# Threads and processes.


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
from graphdnn.cuda.cache import KernelCache
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


# With the compiler itself.


def test_with_nvrtc(tmp_path: Path) -> None:
    try:
        nvrtc.loaded_version()
    except NotSupported as error:
        pytest.skip(f"NVRTC: {error}")
    loads = [KernelCache(tmp_path).load(KERNEL, "sm_80") for _ in range(2)]
    assert [load.origin for load in loads] == ["compiled", "disk"]
    assert loads[0].cubin == loads[1].cubin
    assert nvrtc.resources(loads[1].log)["scale"].registers > 0


# graphdnn cache


@pytest.fixture
def folder(compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three kernels, one of them damaged."""
    path = tmp_path / "kernels"
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(path))
    cache = KernelCache(path)
    for name in "abc":
        cache.load(named(name), "sm_90a")
    next(file for file in files(path) if b"text of c" in file.read_bytes()).write_bytes(b"damaged")
    return path


def command(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = Exit.OK) -> str:
    ended = main(["cache", *arguments])
    out, err = capsys.readouterr()
    assert ended == code, out + err
    assert all(line == line.rstrip() for line in out.splitlines())
    return out + err


def test_list(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    out = command(capsys, "list")
    for word in ("a ", "b ", "damaged: it is no entry", "sm_90a", "13.0", "3 kernels", "of 512 MiB", str(folder)):
        assert word in out
    data = json.loads(command(capsys, "list", "--json"))
    assert {kernel["name"] for kernel in data["kernels"]} == {"a", "b", ""}
    assert len(files(folder)) == 3


def test_verify(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert "3 kernels checked" in command(capsys, "verify", code=Exit.CHECK_FAILED)
    data = json.loads(command(capsys, "verify", "--json", code=Exit.CHECK_FAILED))
    assert len(data["damaged"]) == 1
    assert len(files(folder)) == 3, "verifying changes nothing"
    command(capsys, "prune")
    assert "2 kernels checked" in command(capsys, "verify")


def test_prune(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert "removed 1 file, 7 B; 1 of them damaged" in command(capsys, "prune")
    assert "removed 0 files" in command(capsys, "prune", "--limit", "1", "--days", "1")
    os.utime(files(folder)[0], (time.time() - 3 * 86400,) * 2)
    assert json.loads(command(capsys, "prune", "--days", "2", "--json"))["removed"] == 1
    assert "removed 1 file" in command(capsys, "prune", "--all")
    assert files(folder) == []


def test_no_folder_yet(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(tmp_path / "none"))
    for action in ("list", "verify", "prune"):
        assert "0 " in command(capsys, action)
    assert not (tmp_path / "none").exists(), "looking must not change anything"


@pytest.mark.usefixtures("no_home")
def test_no_folder_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert "stay in memory" in command(capsys, "list")
    assert json.loads(command(capsys, "verify", "--json")) == {"folder": None}


@pytest.mark.parametrize("arguments", [(), ("remove",), ("prune", "--limit", "-1"), ("prune", "--days", "soon")])
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert "usage: graphdnn cache" in command(capsys, *arguments, code=Exit.USAGE)


def test_a_file_that_goes_while_it_is_looked_at(folder: Path) -> None:
    file = upkeep.stored(folder)[0]
    file.path.unlink()
    assert not upkeep.is_damaged(file)
    assert upkeep._removed([file]) == upkeep.Pruned(0, 0)
