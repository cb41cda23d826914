"""The instructions of a compiled kernel, where NVIDIA's disassembler is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections import Counter
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

# What tests compile, and find in it, is kept for later runs.
KEPT = Path(tempfile.gettempdir()) / f"graphdnn-test-kernels-{os.getuid()}"
_FOUND = KEPT / "loads_before_the_wait.jsonl"


def _disassembler() -> str:
    installed = Path(sysconfig.get_paths()["purelib"]).glob("nvidia/**/bin/nvdisasm")
    return next((str(path) for path in installed), shutil.which("nvdisasm") or "")


DISASSEMBLER = _disassembler()
# Tests mark themselves with pytest.mark.skipif(NO_DISASSEMBLER, reason=NO_DISASSEMBLER).
NO_DISASSEMBLER = "" if DISASSEMBLER else "nvdisasm is not installed (nvidia-cuda-nvdisasm)"


def _disassembled(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([DISASSEMBLER, "-c", file.name], capture_output=True, text=True, check=True).stdout


# A line that counts: a label, or an instruction's predicate and what it is with its operands.
_LINE = re.compile(r"^(?:(\.L\w*):|\s*/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][^;]*))", re.M)
_READS = re.compile(r"LDG|LD\.|ATOM|UTMALDG|UBLKCP")  # LDGSTS as well
_BY_THE_COPY_UNIT = re.compile(r"UTMALDG|UBLKCP")
_JUMPS = re.compile(r"BRA|BRX|CALL")
_LEAVES = re.compile(r"EXIT|RET|BRX|BRA(?!.*\bU?P\d)")  # without a predicate: what follows is not reached from here


def loads_before_the_wait(cubin: bytes, entry: str) -> list[str]:
    """What a kernel that starts early reads from memory ahead of its wait for the launch before it (ACQBULK).

    Loads count that a thread reaches by any path without a wait. Copies by the copy unit, which a loop orders whose first
    round waits, count where they are listed ahead of every wait: the compiler moves no such copy.

    Starting the disassembler takes a fifth of a second, so what was found of the same bytes by the same text is kept.
    """
    parts = Path(__file__).read_bytes(), DISASSEMBLER.encode(), entry.encode(), cubin
    key = sha256(b"".join(sha256(part).digest() for part in parts)).hexdigest()
    known = _known()
    if key not in known:
        known[key] = _loads_before_the_wait(cubin, entry)
        _FOUND.parent.mkdir(mode=0o700, exist_ok=True)
        with _FOUND.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, known[key]]) + "\n")
    return known[key]


@cache
def _known() -> dict[str, list[str]]:
    """What all runs found, of which one that was interrupted may have left half a line."""
    found = {}
    for line in _FOUND.read_text(encoding="utf-8").splitlines() if _FOUND.exists() else ():
        with suppress(ValueError):
            key, loads = json.loads(line)
            found[key] = loads
    return found


def _loads_before_the_wait(cubin: bytes, entry: str) -> list[str]:
    text = re.split(rf"^\s*\.section\s+\.text\.{entry},", _disassembled(cubin), maxsplit=1, flags=re.M)[1]
    lines = [
        m.groups(default="") for m in _LINE.finditer(re.split(r"^\s*\.section\s", text, maxsplit=1, flags=re.M)[0])
    ]
    labels = {label: i for i, (label, _, _) in enumerate(lines) if label}
    first = next(i for i, (_, _, line) in enumerate(lines) if line.startswith("ACQBULK"))
    reached: set[int] = set()
    starts = [0]
    while starts:
        for i in range(starts.pop(), len(lines)):
            _, predicate, line = lines[i]
            if i in reached or line.startswith("ACQBULK"):
                break
            reached.add(i)
            if _JUMPS.match(line):
                starts += [labels[label] for label in re.findall(r"`\((\.L\w*)\)", line) if label in labels]
            if not predicate and _LEAVES.match(line):
                break
    reads = [(i, line.strip()) for i in sorted(reached) if _READS.match(line := lines[i][2])]
    return [line for i, line in reads if i < first or not _BY_THE_COPY_UNIT.match(line)]


def instructions(cubin: bytes, *, whole: bool = False) -> Counter[str]:
    """How often each instruction occurs, by its name up to the first dot, or with all that is said of it."""
    found = [line.split()[0] for _, _, line in _LINE.findall(_disassembled(cubin)) if line]
    return Counter(name if whole else name.split(".")[0] for name in found)


def ordered(cubin: bytes, names: tuple[str, ...]) -> list[str]:
    """Those of the instructions that are called so, in the order of the listing."""
    lines = (line for _, _, line in _LINE.findall(_disassembled(cubin)) if line)
    return [name for line in lines for name in names if line.startswith(name)]
