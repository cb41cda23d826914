"""The kernel cache and damaged files: none is ever used, whichever byte is wrong."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_compiler import KERNEL, Compiler, files, no_writing

from graphdnn.cuda import cache_entry
from graphdnn.cuda.cache_entry import Damaged, Entry, manifest_of, packed, unpacked
from graphdnn.cuda.kernel_cache import KernelCache


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def of_another_kernel(data: bytes) -> bytes:
    return packed(Entry(manifest_of("other", "text", (), (13, 0), "sm_80"), "", b"cubin"))


def of_another_format(data: bytes) -> bytes:
    found = unpacked(data)
    return packed(Entry({**found.manifest, "format": 2}, found.log, found.cubin))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
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
    rest = struct.pack("<QQQ", *sizes) + b"[[[[["
    with pytest.raises(Damaged):
        unpacked(cache_entry.MAGIC + hashlib.sha256(rest).digest() + rest)


def test_a_damaged_file_in_a_folder_that_cannot_be_written(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    (path,) = files(tmp_path)
    path.write_bytes(b"damaged")
    no_writing(monkeypatch)
    cache = KernelCache(tmp_path)
    assert [cache.load(KERNEL, "sm_80").origin for _ in range(2)] == ["compiled", "memory"]
