"""The instructions of a compiled kernel, where NVIDIA's disassembler is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path


def _disassembler() -> str:
    installed = Path(sysconfig.get_paths()["purelib"]).glob("nvidia/**/bin/nvdisasm")
    return next((str(path) for path in installed), shutil.which("nvdisasm") or "")


DISASSEMBLER = _disassembler()
# Tests mark themselves with pytest.mark.skipif(NO_DISASSEMBLER, reason=NO_DISASSEMBLER).
NO_DISASSEMBLER = "" if DISASSEMBLER else "nvdisasm is not installed (nvidia-cuda-nvdisasm)"


def _listing(cubin: bytes) -> list[str]:
    """Instructions in order, each with its operands and without its predicate."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([DISASSEMBLER, "-c", file.name], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][^;]*)", text, re.M)


def loads_before_the_wait(cubin: bytes) -> list[str]:
    """What a kernel that starts early reads from memory ahead of its wait for the launch before it (ACQBULK)."""
    listing = _listing(cubin)
    wait = next(i for i, line in enumerate(listing) if line.startswith("ACQBULK"))
    return [line for line in listing[:wait] if re.match(r"LDG|LD\.|UTMALDG|UBLKCP|ATOM", line)]


def instructions(cubin: bytes, *, whole: bool = False) -> Counter[str]:
    """How often each instruction occurs, by its name up to the first dot, or with all that is said of it."""
    found = [line.split()[0] for line in _listing(cubin)]
    return Counter(name if whole else name.split(".")[0] for name in found)
