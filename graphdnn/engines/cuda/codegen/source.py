"""Kernel text: common headers, the struct ``Params``, constants, generated functions and kernel files, in this order.

Kernel files include each other by ``#include`` lines, which included_files.py expands. The final text includes no file,
so the text alone identifies the kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from graphdnn.bounded_cache import BoundedCache
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.engines.cuda.codegen.included_files import IncludeExpander, file_names, file_text, kernel_file

_HEADERS = ("types.cuh", "values.cuh", "arithmetic.cuh", "power.cuh", "activations.cuh")
_MAX_CACHED = 512  # texts


def include(name: str) -> str:
    """The line that includes a header among generated functions."""
    return f'#include "{name}"\n'


@cache
def _headers() -> tuple[str, Any]:
    """The beginning of every text, and its digest so far: hashing it for each text would take half a plan's time."""
    text = "\n".join(map(file_text, _HEADERS))
    return text, hashlib.sha256(text.encode())


def common_headers() -> str:
    """The beginning of every kernel text: element types and arithmetic."""
    return _headers()[0]


def prepare() -> None:
    """Read all kernel files, about a megabyte, which otherwise lengthens the first plans."""
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

    The name ends with a digest of the text, so that different texts have different names in every run.

    Args:
        name: The name without the digest.
        files: The files with the kernels. Their ``#include`` lines are expanded.
        parameters: The text of ``struct Params``.
        functions: Generated functions, and ``include`` lines of headers that the functions use.
        constants: Numbers become ``constexpr``, strings name types.
        variants: Macros by which a file chooses among its headers.
    """
    # The key has the types of constants, because 1 and True are equal and are different constants.
    values = tuple(constants.values())
    types = tuple(map(type, values))
    variant_macros = tuple(variants.items()) if variants else ()
    key = name, tuple(files), parameters, tuple(functions), tuple(constants), values, types, variant_macros
    cached = _texts.get(key)
    if cached is None:
        macros = "".join(f"#define {macro} {value:d}\n" for macro, value in variant_macros)
        preamble = macros + "".join(_constant(key, value) for key, value in constants.items())
        made = _assemble(name, files, (parameters, preamble, *functions))
        cached = _texts.remember(key, made)  # one object for all threads
    return cached


_texts = BoundedCache[tuple[object, ...], KernelText](_MAX_CACHED)  # kernels of other shapes get the same object


def _assemble(name: str, files: Sequence[str], generated: Sequence[str]) -> KernelText:
    headers, header_digest = _headers()
    body = "\n".join(("", *_expand(files, generated)))
    digest = header_digest.copy()
    digest.update(body.encode())
    return KernelText(f"{name}__{digest.hexdigest()[:8]}", headers + body)


def _expand(files: Sequence[str], generated: Sequence[str]) -> Iterator[str]:
    """Generated text and files in order, with each included file once."""
    expander = IncludeExpander(_HEADERS)
    for text in generated:
        yield from expander.expand_lines(text) if text.startswith("#include") else (text,)
    for file in files:
        yield from expander.expand_file(file)


def _constant(name: str, value: int | bool | str) -> str:
    if isinstance(value, str):
        return f"using {name} = {value};\n"
    if isinstance(value, bool):
        return f"constexpr bool {name} = {'true' if value else 'false'};\n"
    return f"constexpr int {name} = {value};\n"
