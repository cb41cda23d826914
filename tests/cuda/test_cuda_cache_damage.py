"""The kernel cache and damaged files: none is ever used, whichever byte is wrong."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_compiler import KERNEL, Compiler, files, no_writing

from graphdnn.cuda import cache_entry
from graphdnn.cuda.cache_entry import Damaged, Entry, manifest_of, packed, unpacked
from graphdnn.cuda.kernel_cache import KernelCache
from graphdnn.cuda.private import KEY_NAME

KEY = bytes(range(32))


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def of_another_kernel(data: bytes) -> bytes:
    return packed(Entry(manifest_of("other", "text", (), (13, 0), "sm_80"), "", b"cubin"), KEY)


def of_another_format(data: bytes) -> bytes:
    found = unpacked(data, KEY)
    return packed(Entry({**found.manifest, "format": 1}, found.log, found.cubin), KEY)


def with_another_cubin(data: bytes) -> bytes:
    """By somebody who has the file and the program, and not the folder's key."""
    found = unpacked(data, KEY)
    return packed(Entry(found.manifest, found.log, b"another"), bytes(32))


def of_version_1(data: bytes) -> bytes:
    rest = data[40:].replace(b"scale", b"scale")
    return b"GDNNKRN1" + hashlib.sha256(rest).digest() + rest


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\0",
    "hash": flipped(10),
    "sizes": flipped(42),
    "manifest": flipped(80),
    "cubin": flipped(-2),
    "another kernel": of_another_kernel,
    "another format": of_another_format,
    "another cubin": with_another_cubin,
    "version 1": of_version_1,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_never_used(
    compiler: Compiler, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[bytes], bytes]
) -> None:
    (tmp_path / KEY_NAME).write_bytes(KEY)
    (tmp_path / KEY_NAME).chmod(0o600)
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


@pytest.mark.parametrize("content", [b"\x7fELF" * 100, b"notes"])
def test_a_file_in_its_place_that_is_not_ours_stays(compiler: Compiler, tmp_path: Path, content: bytes) -> None:
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    (path,) = files(tmp_path)
    path.write_bytes(content)
    cache = KernelCache(tmp_path)
    assert [cache.load(KERNEL, "sm_80").origin for _ in range(2)] == ["compiled", "memory"]
    assert path.read_bytes() == content


def test_an_entry_of_another_folder_is_not_used(compiler: Compiler, tmp_path: Path) -> None:
    for name in ("a", "b"):
        KernelCache(tmp_path / name).load(KERNEL, "sm_80")
    (theirs,), (ours,) = files(tmp_path / "a"), files(tmp_path / "b")
    ours.write_bytes(theirs.read_bytes())
    assert KernelCache(tmp_path / "b").load(KERNEL, "sm_80").origin == "compiled"
    assert KernelCache(tmp_path / "b").load(KERNEL, "sm_80").origin == "disk"
    assert (tmp_path / "b" / KEY_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("key", [None, b"", b"short"])
def test_without_its_key_no_entry_is_used(
    compiler: Compiler, tmp_path: Path, key: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    (tmp_path / KEY_NAME).unlink()
    if key is not None:
        (tmp_path / KEY_NAME).write_bytes(key)
    origins = [KernelCache(tmp_path).load(KERNEL, "sm_80").origin for _ in range(2)]
    assert origins == (["compiled", "disk"] if key is None else ["compiled", "compiled"])
    if key is not None:
        assert (tmp_path / KEY_NAME).read_bytes() == key
        assert "no key of yours" in capsys.readouterr().err


def test_every_byte_is_guarded() -> None:
    data = packed(Entry(manifest_of("k", "t", ("-a",), (13, 0), "sm_80"), "log \u00b5", bytes(range(64))), KEY)
    assert unpacked(data, KEY).cubin == bytes(range(64))
    assert unpacked(data, KEY).log == "log \u00b5"
    for at in range(len(data)):
        with pytest.raises(Damaged):
            unpacked(flipped(at)(data), KEY)
        with pytest.raises(Damaged):
            unpacked(data[:at], KEY)


@pytest.mark.parametrize("sizes", [(0, 0, 0), (2**63, 2**63, 0), (5, 0, 0), (10**9, 0, 0)])
def test_sizes_that_lie(sizes: tuple[int, int, int]) -> None:
    """With a right hash, as from another program: still no entry, and nothing large is read."""
    rest = struct.pack("<QQQ", *sizes) + b"[[[[["
    with pytest.raises(Damaged):
        unpacked(cache_entry.MAGIC + hmac.digest(KEY, rest, "sha256") + rest, KEY)


def test_a_damaged_file_in_a_folder_that_cannot_be_written(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    (path,) = files(tmp_path)
    path.write_bytes(b"damaged")
    no_writing(monkeypatch)
    cache = KernelCache(tmp_path)
    assert [cache.load(KERNEL, "sm_80").origin for _ in range(2)] == ["compiled", "memory"]
