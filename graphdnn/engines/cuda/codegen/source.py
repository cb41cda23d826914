"""Kernel text: headers, generated struct, constants and functions, and kernel files as one text for the compiler.

Kernel files name what they need by ``#include`` lines; ``included_files.py`` resolves the lines. The text includes no
file by name, so it identifies the kernel completely.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from graphdnn.bounded_cache import BoundedCache
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.engines.cuda.codegen.included_files import Joined, file_names, file_text, kernel_file

_HEADERS = ("types.cuh", "values.cuh", "arithmetic.cuh", "power.cuh", "activations.cuh")
_KEPT = 512  # texts


def include(name: str) -> str:
    """The line that includes a header among generated functions."""
    return f'#include "{name}"\n'


@cache
def _headers() -> tuple[str, Any]:
    """The start of every text, and a digest that has read it: to hash it each time would be half a plan's time."""
    text = "\n".join(map(file_text, _HEADERS))
    return text, hashlib.sha256(text.encode())


def common_headers() -> str:
    """The text that every kernel begins with: element types and arithmetic."""
    return _headers()[0]


def prepare() -> None:
    """Read all texts, a megabyte: one by one they would be a part of the first plans."""
    _headers()
    for name in file_names():
        kernel_file(name)


def kernel_text(
    name: str,
    files: Sequence[str],
    *,
    parameters: str,
    functions: Sequence[str],
    constants: Mapping[str, int | bool | str],
    variants: Mapping[str, int] | None = None,
) -> KernelText:
    """The text of a kernel.

    The name ends with a digest of the text, so that it is one text's and stays the same from run to run.

    Args:
        name: The name without the digest.
        files: The files with the entries, after the generated functions. Their ``#include`` lines are resolved.
        parameters: The text of ``struct Params``.
        functions: Generated functions, and ``include`` lines of headers that the functions need.
        constants: Numbers become ``constexpr``, strings name types.
        variants: Macros that choose among the headers of a file.
    """
    # With the types of constants: a number and a truth value are equal, and are not the same constant.
    values = tuple(constants.values())
    types = tuple(map(type, values))
    chosen = tuple(variants.items()) if variants else ()
    key = name, tuple(files), parameters, tuple(functions), tuple(constants), values, types, chosen
    found = _texts.get(key)
    if found is None:
        macros = "".join(f"#define {macro} {value:d}\n" for macro, value in chosen)
        preamble = macros + "".join(_constant(key, value) for key, value in constants.items())
        made = _joined(name, files, (parameters, preamble, *functions))
        found = _texts.remember(key, made)  # one object, whichever thread made it
    return found


_texts = BoundedCache[tuple[object, ...], KernelText](
    _KEPT
)  # another shape's is the same object: nothing of it is made again


def _joined(name: str, files: Sequence[str], generated: Sequence[str]) -> KernelText:
    headers, known = _headers()
    own = "\n".join(("", *_pieces(files, generated)))
    digest = known.copy()
    digest.update(own.encode())
    return KernelText(f"{name}__{digest.hexdigest()[:8]}", headers + own)


def _pieces(files: Sequence[str], generated: Sequence[str]) -> Iterator[str]:
    """Generated text and files in order, each file once."""
    joined = Joined(_HEADERS)
    for text in generated:
        yield from joined.of_text(text) if text.startswith("#include") else (text,)
    for file in files:
        yield from joined.of_file(file)


def _constant(name: str, value: int | bool | str) -> str:
    if isinstance(value, str):
        return f"using {name} = {value};\n"
    if isinstance(value, bool):
        return f"constexpr bool {name} = {'true' if value else 'false'};\n"
    return f"constexpr int {name} = {value};\n"
