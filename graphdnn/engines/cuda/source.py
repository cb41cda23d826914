"""Join the parts of a kernel into one text for the compiler: generated struct and constants, headers, generated
functions, and the kernel's file. Nothing is included by name, so the text is all there is to know of a kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from graphdnn.cuda.nvrtc import KernelText

_TEXT = Path(__file__).parent / "text"
_HEADERS = ("types.cuh", "values.cuh", "arithmetic.cuh")


@cache
def file_text(name: str) -> str:
    return (_TEXT / name).read_text(encoding="utf-8")


def kernel_text(
    name: str,
    files: Sequence[str],
    *,
    parameters: str,
    functions: Sequence[str],
    constants: Mapping[str, int | bool | str],
    options: Sequence[str] = (),
) -> KernelText:
    """``files`` follow the generated functions. ``constants``: numbers become ``constexpr``, strings name types.

    The name ends with a digest of the text, so that it is one text's and stays the same from run to run.
    """
    preamble = "".join(_constant(key, value) for key, value in constants.items())
    files_before, files_after = map(file_text, _HEADERS), map(file_text, files)
    parts = [*files_before, parameters, preamble, *functions, *files_after]
    text = "\n".join(parts)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return KernelText(f"{name}__{digest}", text, tuple(options))


def _constant(name: str, value: int | bool | str) -> str:
    if isinstance(value, str):
        return f"using {name} = {value};\n"
    if isinstance(value, bool):
        return f"constexpr bool {name} = {'true' if value else 'false'};\n"
    return f"constexpr int {name} = {value};\n"
