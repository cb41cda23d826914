"""The command ``graphdnn cache``: what it lists, verifies and removes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from command_line import refused, told
from fake_compiler import Compiler, files, named

from graphdnn.cli.exit_codes import Exit
from graphdnn.cuda import cache_maintenance
from graphdnn.cuda.kernel_cache import KernelCache


@pytest.fixture
def folder(compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three kernels, one of them damaged."""
    path = tmp_path / "kernels"
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(path))
    cache = KernelCache(path)
    for name in "abc":
        cache.load(named(name), "sm_90a")
    next(file for file in files(path) if b"text of c" in file.read_bytes()).write_bytes(b"GDNNKRNdamaged")
    return path


def test_list(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    out = told(capsys, "cache", "list")
    for word in ("a ", "b ", "damaged: it is no entry", "sm_90a", "13.0", "3 kernels", "of 512 MiB", str(folder)):
        assert word in out
    data = json.loads(told(capsys, "cache", "list", "--json"))
    assert {kernel["name"] for kernel in data["kernels"]} == {"a", "b", ""}
    assert len(files(folder)) == 3


def test_verify(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert "3 kernels checked" in told(capsys, "cache", "verify", code=Exit.CHECK_FAILED)
    data = json.loads(told(capsys, "cache", "verify", "--json", code=Exit.CHECK_FAILED))
    assert len(data["damaged"]) == 1
    assert len(files(folder)) == 3, "verifying changes nothing"
    told(capsys, "cache", "prune")
    assert "2 kernels checked" in told(capsys, "cache", "verify")


def test_prune(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert "removed 1 file, 14 B; 1 of them damaged" in told(capsys, "cache", "prune")
    assert "removed 0 files" in told(capsys, "cache", "prune", "--limit", "1", "--days", "1")
    os.utime(files(folder)[0], (time.time() - 3 * 86400,) * 2)
    assert json.loads(told(capsys, "cache", "prune", "--days", "2", "--json"))["removed"] == 1
    assert "removed 1 file" in told(capsys, "cache", "prune", "--all")
    assert files(folder) == []


def test_other_files_are_named_and_stay(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    told(capsys, "cache", "prune")
    path = folder / ("0" * 64 + ".kernel")
    path.write_text("notes", encoding="utf-8")
    assert f"{path.name}: left as it is" in told(capsys, "cache", "verify")
    told(capsys, "cache", "prune", "--all")
    assert files(folder) == [path]


@pytest.mark.parametrize("action", ["list", "verify", "prune"])
def test_a_folder_that_others_may_write_to_is_refused(
    capsys: pytest.CaptureFixture[str], folder: Path, action: str
) -> None:
    folder.chmod(0o777)
    before = files(folder)
    assert "cli.cache.folder" in refused(capsys, "cache", action, code=Exit.USAGE)
    assert files(folder) == before
    finding = next(f for f in json.loads(told(capsys, "doctor", "--json")) if f["name"] == "cache folder")
    assert finding["state"] == "broken"
    assert "refused" not in told(capsys, "db", "list", "--db", str(folder / "t.sqlite3"))
    assert "tuning.database.folder" in refused(capsys, "db", "list", code=Exit.USAGE)


def test_no_folder_yet(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(tmp_path / "none"))
    for action in ("list", "verify", "prune"):
        assert "0 " in told(capsys, "cache", action)
    assert not (tmp_path / "none").exists(), "looking must not change anything"


@pytest.mark.usefixtures("no_home")
def test_no_folder_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert "stay in memory" in told(capsys, "cache", "list")
    assert json.loads(told(capsys, "cache", "verify", "--json")) == {"folder": None}


@pytest.mark.parametrize("arguments", [(), ("remove",), ("prune", "--limit", "-1"), ("prune", "--days", "soon")])
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert "usage: graphdnn cache" in told(capsys, "cache", *arguments, code=Exit.USAGE)


def test_a_file_that_goes_while_it_is_looked_at(folder: Path) -> None:
    file = cache_maintenance.stored(folder)[0]
    file.path.unlink()
    assert not cache_maintenance.is_damaged(file)
    assert cache_maintenance._removed([file]) == cache_maintenance.Pruned(0, 0)
