"""The kernel cache and its folder: where it is, and that none is needed, no right to write and no room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_compiler import KERNEL, Compiler, files, named, no_writing

from graphdnn.cuda import private
from graphdnn.cuda.kernel_cache import KernelCache, cache_directory, default_cache


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


needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="a system without owners of files")


@needs_owners
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777], ids=oct)
def test_a_folder_that_others_may_write_to_is_not_used(
    compiler: Compiler, tmp_path: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    before = {path: path.read_bytes() for path in files(tmp_path)}
    tmp_path.chmod(mode)
    cache = KernelCache(tmp_path)
    assert [cache.load(named(name), "sm_80").origin for name in "aab"] == ["compiled", "memory", "compiled"]
    assert KernelCache(tmp_path).load(KERNEL, "sm_80").origin == "compiled"
    assert {path: path.read_bytes() for path in files(tmp_path)} == before
    said = [line for line in capsys.readouterr().err.splitlines() if ",note," in line and "template" not in line]
    assert len(said) == 1
    assert "others may write to the folder" in said[0]
    assert "GRAPHDNN_CACHE_DIR" in said[0]


@needs_owners
def test_a_folder_of_another_user_is_not_used(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    status = os.stat(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: status.st_uid + 4711)
    monkeypatch.setattr(private, "_ROOT", status.st_uid + 1)
    assert KernelCache(tmp_path).load(KERNEL, "sm_80").origin == "compiled"
    assert f"another user's (uid {status.st_uid})" in capsys.readouterr().err


@needs_owners
@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602], ids=oct)
def test_a_file_that_others_may_write_to_is_not_used(compiler: Compiler, tmp_path: Path, mode: int) -> None:
    KernelCache(tmp_path).load(KERNEL, "sm_80")
    (path,) = files(tmp_path)
    path.chmod(mode)
    assert KernelCache(tmp_path).load(KERNEL, "sm_80").origin == "compiled"
    assert KernelCache(tmp_path).load(KERNEL, "sm_80").origin == "disk", "it was written anew"


def test_a_link_is_not_followed(compiler: Compiler, tmp_path: Path) -> None:
    KernelCache(tmp_path / "kernels").load(KERNEL, "sm_80")
    (path,) = files(tmp_path / "kernels")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert KernelCache(tmp_path / "kernels").load(KERNEL, "sm_80").origin == "compiled"
    assert path.is_symlink()


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


@pytest.mark.usefixtures("no_home")
def test_no_home(compiler: Compiler, capsys: pytest.CaptureFixture[str]) -> None:
    cache = default_cache()
    assert cache is default_cache()
    assert [cache.load(KERNEL, "sm_80").origin for _ in range(2)] == ["compiled", "memory"]
    assert "no home folder" in capsys.readouterr().err
