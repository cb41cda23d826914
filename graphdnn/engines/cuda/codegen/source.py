"""Kernel text: headers, generated struct, constants and functions, and kernel files as one text for the compiler.

The text includes no file by name, so it identifies the kernel completely.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from graphdnn.cuda.nvrtc import KernelText

_KERNELS = Path(__file__).parents[1]  # a kernel lies beside the engine that launches it
_HEADERS = ("types.cuh", "values.cuh", "arithmetic.cuh", "power.cuh", "activations.cuh")
_KEPT = 512  # texts


@cache
def _places() -> dict[str, str]:
    """Where each text lies: names are unique, whichever folder they are in."""
    return {
        name: os.path.join(folder, name)
        for folder, _, names in os.walk(_KERNELS)
        for name in names
        if name.endswith((".cu", ".cuh"))
    }


@cache
def file_text(name: str) -> str:
    with open(_places()[name], encoding="utf-8") as file:
        return file.read()


@cache
def _headers() -> tuple[str, Any]:
    """What every text begins with, and a digest that has read it: hashing it each time would be half a plan's time."""
    text = "\n".join(map(file_text, _HEADERS))
    return text, hashlib.sha256(text.encode())


def common_headers() -> str:
    """The text that every kernel begins with: element types and arithmetic."""
    return _headers()[0]


def prepare() -> None:
    """Read all texts, a megabyte: one by one they would be a part of the first plans."""
    _headers()
    for name in _places():
        file_text(name)


def kernel_text(
    name: str,
    files: Sequence[str],
    *,
    parameters: str,
    functions: Sequence[str],
    constants: Mapping[str, int | bool | str],
) -> KernelText:
    """``files`` follow the generated functions. ``constants``: numbers become ``constexpr``, strings name types.

    The name ends with a digest of the text, so that it is one text's and stays the same from run to run.
    """
    # With the types of constants: a number and a truth value are equal, and are not the same constant.
    values = tuple(constants.values())
    types = tuple(map(type, values))
    key = name, tuple(files), parameters, tuple(functions), tuple(constants), values, types
    found = _texts.get(key)
    if found is None:
        preamble = "".join(_constant(key, value) for key, value in constants.items())
        made = _joined(name, files, (parameters, preamble, *functions))
        if len(_texts) >= _KEPT:
            _texts.clear()
        found = _texts.setdefault(key, made)  # one object, whichever thread made it
    return found


_texts: dict[tuple[object, ...], KernelText] = {}  # another shape's is the same object: nothing of it is made again


def _joined(name: str, files: Sequence[str], generated: Sequence[str]) -> KernelText:
    headers, known = _headers()
    own = "\n".join(("", *generated, *map(file_text, files)))
    digest = known.copy()
    digest.update(own.encode())
    return KernelText(f"{name}__{digest.hexdigest()[:8]}", headers + own)


def _constant(name: str, value: int | bool | str) -> str:
    if isinstance(value, str):
        return f"using {name} = {value};\n"
    if isinstance(value, bool):
        return f"constexpr bool {name} = {'true' if value else 'false'};\n"
    return f"constexpr int {name} = {value};\n"
