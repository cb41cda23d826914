"""What stands for NVRTC where the kernel cache is tested, and kernels to load."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from graphdnn import storage
from graphdnn.cuda.nvrtc import Compiled, KernelText
from graphdnn.cuda.private import KEY_NAME

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


def files(folder: Path) -> list[Path]:
    """What the cache keeps there, its key aside."""
    return sorted(p for p in folder.iterdir() if p.name != KEY_NAME) if folder.exists() else []


def named(name: str) -> KernelText:
    return KernelText(name, f"text of {name}")


def no_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root every folder can be written, so the calls are refused instead."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for module, call in ((storage.tempfile, "mkstemp"), (os, "utime"), (os, "replace")):
        monkeypatch.setattr(module, call, refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
