"""Kernel files name what they use; the joiner resolves the names, each file once, and refuses what it cannot resolve."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from graphdnn.engines.cuda.codegen import included_files, source
from graphdnn.engines.cuda.codegen.included_files import (
    IncludeError,
    IncludeExpander,
    file_names,
    file_text,
    kernel_file,
    parse,
)

_KERNELS = Path(source.__file__).parents[1]
_OF_TUNING = {"array_digest.cu", "array_gather.cu"}  # no engine launches these
_FUNCTION = re.compile(r"^(?:template <[^\n]*>\s*)?(?:constexpr|__device__|__host__)[^\n;(=]*?(\w+)\(", re.M)
_CALL = re.compile(r"(?<![.:\w])([A-Za-z_]\w*)(?:<[^;()]*>)?\(")
_OWN = re.compile(r"^[A-Za-z_][^\n;={]*?\b(\w+)\(", re.M)  # a definition begins in the first column
_LAMBDA = re.compile(r"\bauto (\w+) = \[")
_COMMENT = re.compile(r"//[^\n]*")
# Entries that follow another file of their text, and use that file's functions.
_SECOND = {
    "direct_wgrad_sum.cu",
    "direct_grouped_wgrad_sum.cu",
    "reduce_splits.cu",
    "reduction_splits.cu",
    "matmul_splits.cu",
    "split_k_reduce.cu",
}


def _generated() -> set[str]:
    """Headers that generated functions include."""
    names: set[str] = set()
    for file in _KERNELS.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "include" in text:
            names |= set(re.findall(r'"(\w+\.cuh)"', text))
    return names


def _closure(name: str) -> set[str]:
    found: set[str] = set()
    left = [name]
    while left:
        file = kernel_file(left.pop())
        new = {*file.includes, *file.variants} - found
        found |= new
        left += new
    return found


def test_every_file_joins() -> None:
    for name in file_names():
        text = "\n".join(IncludeExpander().expand_file(name))
        assert "#include" not in text, name


def test_every_header_is_reached() -> None:
    roots = {name for name in file_names() if name.endswith(".cu")} | _generated() | set(source._HEADERS)
    reached = roots | {need for root in roots for need in _closure(root)}
    assert set(file_names()) <= reached


def test_every_entry_file_is_named_in_python() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in _KERNELS.rglob("*.py"))
    entries = {name for name in file_names() if name.endswith(".cu")} - _OF_TUNING
    built = {"depthwise_rows.cu", "depthwise_sliding.cu", "direct_stem.cu", "hopper_stem.cu", "pool_disjoint.cu"}
    built |= {"pool_disjoint_backward.cu"}  # names that Python puts together
    assert {name for name in entries - built if f'"{name}"' not in text} == set()


def _functions() -> dict[str, set[str]]:
    """Device functions of headers, and the headers that define them."""
    found: dict[str, set[str]] = {}
    for name in (name for name in file_names() if name.endswith(".cuh")):
        for function in _FUNCTION.findall(_COMMENT.sub("", file_text(name))):
            found.setdefault(function, set()).add(name)
    return found


@cache
def _generated_functions() -> set[str]:
    """Words that Python puts into kernel text, the names of generated functions among them."""
    texts = [file.read_text(encoding="utf-8") for file in _KERNELS.rglob("*.py")]
    pattern = re.compile(r'"(\w+)"|(\w+)\(const Params')
    return {word for text in texts for words in pattern.findall(text) for word in words}


def _missing(name: str, text: str, available: set[str], functions: dict[str, set[str]]) -> set[str]:
    """Functions that a file calls, that one header defines, and that the file does not include."""
    code = _COMMENT.sub("", text)
    called = set(_CALL.findall(code)) - set(_OWN.findall(code)) - set(_LAMBDA.findall(code)) - _generated_functions()
    return {
        function
        for function, headers in functions.items()
        if function in called and name not in headers and len(headers) == 1 and headers.isdisjoint(available)
    }


@pytest.mark.parametrize("name", sorted({n for n in file_names() if n.endswith(".cu")} - _SECOND - _OF_TUNING))
def test_entry_files_include_what_they_call(name: str) -> None:
    available = _closure(name) | set(source._HEADERS) | _generated()
    assert _missing(name, file_text(name), available, _functions()) == set()


def test_a_missing_include_is_seen() -> None:
    name = "softmax.cu"
    available = (_closure(name) | set(source._HEADERS) | _generated()) - {"pdl.cuh"}
    assert "pdl_wait" in _missing(name, file_text(name), available, _functions())


def test_an_unknown_file_is_refused_with_its_line() -> None:
    with pytest.raises(IncludeError, match=r'one\.cu:2: #include "two\.cuh": there is no such kernel file'):
        parse("one.cu", '// One.\n#include "two.cuh"\n', {"one.cu"})


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Kernel files of the test's own."""
    files: dict[str, str] = {}
    monkeypatch.setattr(included_files, "kernel_file", lambda name: parse(name, files[name], files))
    return files


def test_a_cycle_is_refused(written: dict[str, str]) -> None:
    written |= {"a.cuh": '#include "b.cuh"', "b.cuh": '#include "a.cuh"'}
    with pytest.raises(IncludeError, match=r"a\.cuh includes b\.cuh includes a\.cuh"):
        list(IncludeExpander().expand_file("a.cuh"))


def test_each_file_is_joined_once_and_before_its_users(written: dict[str, str]) -> None:
    written |= {"a.cu": '#include "b.cuh"\n#include "c.cuh"\nA', "b.cuh": '#include "c.cuh"\nB', "c.cuh": "C"}
    joined = IncludeExpander()
    assert [*joined.expand_file("a.cu"), *joined.expand_file("b.cuh")] == ["C", "B", "A"]


def test_variants_stay_at_their_place(written: dict[str, str]) -> None:
    written |= {
        "a.cu": '#include "d.cuh"\n#if X\n#include "b.cuh"\n#else\n#include "c.cuh"\n#endif\nA',
        "b.cuh": '#include "d.cuh"\n#include "e.cuh"\nB', "c.cuh": "C", "d.cuh": "D", "e.cuh": "E",
    }  # fmt: skip
    assert list(IncludeExpander().expand_file("a.cu")) == ["D", "#if X\nE\nB\n#else\nC\n#endif\nA"]


def test_a_file_is_not_both_a_variant_and_always_there(written: dict[str, str]) -> None:
    written |= {"a.cu": '#if X\n#include "b.cuh"\n#endif\nA', "b.cuh": "B", "c.cu": '#include "b.cuh"\nC'}
    joined = IncludeExpander()
    list(joined.expand_file("a.cu"))
    with pytest.raises(IncludeError, match="another file under a condition"):
        list(joined.expand_file("c.cu"))
    joined = IncludeExpander()
    list(joined.expand_file("c.cu"))
    with pytest.raises(IncludeError, match="another file always"):
        list(joined.expand_file("a.cu"))


def test_a_generated_include_of_an_unknown_file_is_refused() -> None:
    with pytest.raises(IncludeError, match="generated text"):
        list(IncludeExpander().expand_lines('#include "no such.cuh"\n'))
