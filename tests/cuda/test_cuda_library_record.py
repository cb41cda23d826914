"""Libraries that loaded here before: known without being opened, and never trusted further than their file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

from graphdnn.cuda import library_record, nvrtc, vendor_libraries
from graphdnn.cuda.cache_entry import unpacked
from graphdnn.cuda.kernel_cache import KernelCache
from graphdnn.cuda.nvrtc import Compiled, KernelText
from graphdnn.cuda.private import made_key


def _forget() -> None:
    for remembered in (library_record._file, library_record._notes, nvrtc._loaded, vendor_libraries.find):
        remembered.cache_clear()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A file that every library is in, with a folder for notes."""
    file = tmp_path / "libany.so.13"
    file.write_bytes(b"code")
    found = types.SimpleNamespace(load_nvidia_dynamic_lib=lambda name: types.SimpleNamespace(abs_path=str(file)))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", found)
    monkeypatch.setitem(sys.modules, "cuda.bindings", types.SimpleNamespace(__version__="13.0"))
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(tmp_path / "kept"))
    _forget()
    yield file
    _forget()


def next_process() -> None:
    _forget()


def test_what_loaded_is_known_to_the_next_process(library: Path) -> None:
    assert library_record.note_of("nvrtc") is None
    library_record.keep("nvrtc", (13, 5))
    library_record.keep("cublas")
    next_process()
    assert nvrtc.version() == (13, 5), "NVRTC was not opened"
    assert vendor_libraries.missing("cublas") == ""
    assert library_record.note_of("cufft") is None


@pytest.mark.parametrize("change", ["content", "time", "gone"])
def test_another_file_is_looked_at_again(library: Path, change: str) -> None:
    library_record.keep("nvrtc", (13, 5))
    if change == "content":
        library.write_bytes(b"another code")
    elif change == "time":
        os.utime(library, (1, 1))
    else:
        library.unlink()
    next_process()
    assert library_record.note_of("nvrtc") is None


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "CUDA_PATH"])
def test_another_environment_has_notes_of_its_own(
    library: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    library_record.keep("nvrtc", (13, 5))
    next_process()
    monkeypatch.setenv(variable, "/elsewhere")
    assert library_record.note_of("nvrtc") is None


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "{", '{"format": 2, "libraries": {}}', '{"format": 1}', '{"format": 1, "libraries": {"nvrtc": 1}}',
        '{"format": 1, "libraries": {"nvrtc": {"path": 1, "bytes": 4, "changed": 0, "version": null}}}',
        '{"format": 1, "libraries": {"nvrtc": {"path": "\\u0000", "bytes": 4, "changed": 0, "version": [1]}}}',
    ],
)  # fmt: skip
def test_malformed_notes_are_as_good_as_none(library: Path, content: str) -> None:
    library_record.keep("nvrtc", (13, 5))
    (file,) = (library.parent / "kept").glob("libraries-*.json")
    file.write_text(content)
    next_process()
    assert library_record.note_of("nvrtc") is None
    library_record.keep("nvrtc", (13, 5))
    next_process()
    if content and not content.startswith('{"format": '):
        assert file.read_text() == content, "nothing in it says that it is graphdnn's"
    else:
        assert json.loads(file.read_text())["libraries"].keys() == {"nvrtc"}
    assert nvrtc.version() == (13, 5)


def test_a_folder_that_cannot_be_written(library: Path) -> None:
    (library.parent / "kept").write_text("no folder")
    library_record.keep("nvrtc", (13, 5))
    next_process()
    assert library_record.note_of("nvrtc") is None


def test_a_kernel_is_kept_under_the_compiler_that_made_it(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note tells 13.5, and when NVRTC is opened to compile it turns out to be 13.6."""
    library_record.keep("nvrtc", (13, 5))
    next_process()

    def compile_text(kernel: KernelText, arch: str) -> Compiled:
        nvrtc.loaded_version()
        return Compiled(b"\x7fELF", "", 0.0)

    fake: Any = types.SimpleNamespace(nvrtcVersion=lambda: (0, 13, 6))
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", fake)
    monkeypatch.setattr(nvrtc, "compile_text", compile_text)
    cache, kernel = KernelCache(library.parent / "kept"), KernelText("k", "text")
    assert cache.load(kernel, "sm_80").origin == "compiled"
    assert cache.load(kernel, "sm_80").origin == "memory"
    (file,) = (library.parent / "kept").glob("*.kernel")
    assert unpacked(file.read_bytes(), made_key(file.parent)).manifest["nvrtc"] == [13, 6]
    next_process()
    assert nvrtc.version() == (13, 6)
    assert KernelCache(library.parent / "kept").load(kernel, "sm_80").origin == "disk"


PLANS = """
import sys
from graphdnn import build
from graphdnn.problem import parse
build(parse("pointwise x=f32[8,8] + relu").build_operation_graph(), "h200")
print(int("cuda.bindings.nvrtc" in sys.modules))
"""


@pytest.mark.skipif(find_spec("cuda") is None, reason="needs cuda-bindings")
def test_the_second_process_does_not_open_the_compiler(tmp_path: Path) -> None:
    try:
        nvrtc.loaded_version()
    except Exception as error:
        pytest.skip(str(error))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRAPHDNN_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", PLANS], capture_output=True, text=True, env=environment, check=True)
        for _ in range(2)
    ]
    assert [run.stdout.strip() for run in runs] == ["1", "0"]
