"""Text of generators calls device functions by name: every name exists, and a compiled problem contains each call.

A renamed device function leaves calls with the earlier name in the strings of generators. The compiler finds such a call
only in the text of a problem that contains it, so the strings themselves are read here.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from emulator.libraries import host_libraries
from repository import ROOT

from graphdnn.device.profiles import device_spec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.operations.pointwise_modes import POINTWISE

sys.path.append(str(Path(__file__).resolve().parents[2] / "gpu"))
import compare_sass

DEVICES = ("h200", "a100")
ENGINES = ROOT / "graphdnn" / "engines" / "cuda"
_DEFINITION = re.compile(r"(?:__device__|__global__|\binline)\b[^;{}=]*?[\s&*](\w+)\s*\(")
_RENAMED = re.compile(r"\bvoid (\w+)\($")  # the definition that ``replace`` makes of another one
_TYPE = re.compile(r"\bstruct\s+(?:__align__\(\w+\)\s+)?(\w+)")
_CALL = re.compile(r"(?<![\w.:>])([A-Za-z_]\w*)(?:<[^<>()]*>)?\(")
_MESSAGES = ("reason", "fix", "expected", "summary", "why", "detail")  # keyword arguments that are prose
# Functions of CUDA's headers, and words of C++ before a parenthesis
_OF_CUDA = re.compile(
    r"__\w+|(?:fabs|exp|fmod|copysign|fmax|fmin|log1p|log|sqrt|rsqrt|pow|ceil|floor|trunc|cos|sin|tan|erf|atan2|tanh|"
    r"expm1|cosh|exp2|abs|min|max|fma)(?:f)?"
)
_KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "alignas", "volatile", "decltype", "static_assert"}
# Calls in text of which no problem of these devices is made, with the reason.
UNREACHED: dict[str, str] = {}


def _names(folder: Path, *suffixes: str) -> frozenset[str]:
    """Functions and types of a folder."""
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.suffix in suffixes]
    return frozenset(name for text in texts for pattern in (_DEFINITION, _TYPE) for name in pattern.findall(text))


@cache
def defined() -> frozenset[str]:
    """Functions and types of the kernel files."""
    return _names(ENGINES, ".cu", ".cuh")


@cache
def emulated() -> frozenset[str]:
    """Functions of the emulator, which kernel text calls where the emulator compiles it."""
    return _names(ROOT / "tests" / "emulator", ".h")


def strings(source: str) -> Iterator[str]:
    """The strings of a module that may be kernel text; a formatted value is a NUL character."""
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # docstrings
            skipped.add(id(node.value))
        prose = node.value if isinstance(node, ast.keyword) and node.arg in _MESSAGES else None
        if prose is not None or isinstance(node, (ast.Raise, ast.Assert)):
            skipped |= {id(inner) for inner in ast.walk(prose or node)}
        if isinstance(node, ast.JoinedStr) and id(node) not in skipped:
            skipped |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def calls(text: str) -> set[str]:
    """Names before a parenthesis that are no definitions, no words of C++ and no functions of CUDA."""
    code = re.sub(_DEFINITION, "(", text)
    return {name for name in _CALL.findall(code) if name not in _KEYWORDS and not _OF_CUDA.fullmatch(name)}


@cache
def called() -> dict[str, set[str]]:
    """Name -> the files of generators with a call of it."""
    found: dict[str, set[str]] = {}
    for path in sorted(ENGINES.rglob("*.py")):
        for text in strings(path.read_text(encoding="utf-8")):
            for name in calls(text):
                found.setdefault(name, set()).add(path.name)
    expressions = (text for row in POINTWISE.values() for text in (row.cuda, row.cuda_double, row.cuda_int))
    for name in {name for text in expressions for name in calls(text)}:
        found.setdefault(name, set()).add("pointwise_modes.py")
    return found


@cache
def generated_names() -> frozenset[str]:
    """Names that generators define: the text of a definition, or a string that is a name."""
    found: set[str] = set()
    for path in ENGINES.rglob("*.py"):
        for text in strings(path.read_text(encoding="utf-8")):
            found |= {name for pattern in (_DEFINITION, _TYPE, _RENAMED) for name in pattern.findall(text)}
            if text.isidentifier():
                found.add(text)
    return frozenset(found)


def unknown(name: str) -> bool:
    return name not in defined() | emulated() | generated_names()


def test_every_called_function_exists() -> None:
    gone = {name: files for name, files in called().items() if unknown(name)}
    assert not gone


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('x = f"    load_{kind}(p, at); store(p, {at});"', {"store"}),
        ('"""Calls gone(x)."""', set()),
        ('need(reason="the sum gone(x) is")', set()),
        ('x = "if (gone<float>(p.x[0])) return;"', {"gone"}),
        ('x = "    const float y = gone(expf(a));"', {"gone"}),
        ('x = "__device__ float gone(float x) { return here(x); }"', {"here"}),
        ('raise ValueError("gone(x)")', set()),
    ],
)
def test_calls_in_text_are_found(source: str, expected: set[str]) -> None:
    assert {name for text in strings(source) for name in calls(text)} == expected


def _pairs(lines: list[str]) -> Iterator[tuple[str, str]]:
    return pairwise(line for line in lines if line.strip())


@cache
def _kernel_pairs() -> frozenset[tuple[str, str]]:
    """Pairs of adjacent lines of kernel files."""
    return frozenset(
        pair for path in ENGINES.rglob("*.cu*") for pair in _pairs(path.read_text(encoding="utf-8").splitlines())
    )


def generated(text: str) -> str:
    """The lines of a kernel's text that do not stand in a kernel file with the same neighbours."""
    pairs = list(_pairs(text.splitlines()))
    found = [after for (before, after) in pairs if (before, after) not in _kernel_pairs()]
    return "\n".join(found)


def kernel_texts() -> set[str]:
    """The texts of the problems."""
    found: set[str] = set()
    with host_libraries():
        for device in map(device_spec, DEVICES):
            for problem in compare_sass.PROBLEMS:
                for config in compare_sass.configurations_of(problem, device):
                    for choice in config.choices:
                        kernel = choice.engine.compile(choice.task, choice.knobs)
                        steps = kernel.steps if isinstance(kernel, DeviceKernel) else ()
                        found |= {step.text.text for step in steps if isinstance(step, Launch)}
    return found


@pytest.fixture(scope="module")
def called_in_texts() -> dict[str, set[str]]:
    """Text of a kernel -> the names that its generated lines call."""
    return {text: calls(generated(text)) for text in kernel_texts()}


def is_defined_in(text: str, name: str) -> bool:
    """Whether a type stands before the name and a parenthesis, or the name is a type."""
    function = rf"\b(?!return\b|else\b|case\b)\w+[>\]]?[&*]*\s+[&*]?{name}(?:<[^;(]*>)?\s*\("
    definition = rf"{function}|\bstruct [^;{{]*\b{name}\b"
    return re.search(definition, text) is not None


def test_lines_of_kernel_files_are_not_generated() -> None:
    """A generated call may be the same line as a call in a kernel file."""
    header = (ENGINES / "norm" / "norm_backward.cuh").read_text(encoding="utf-8")
    assert not generated(header)
    assert calls(generated(f"{header}\n    load_row(p, at, row);\n    average(p, row);\n}}\n")) >= {"average"}


def test_a_problem_contains_every_call(called_in_texts: dict[str, set[str]]) -> None:
    reached = {name for names in called_in_texts.values() for name in names}
    left = {name for name in called() if name in defined()} - reached
    assert left == UNREACHED.keys(), "add a problem for these calls to tests/random_problems/named_problems.py"


def test_a_text_defines_what_its_generated_lines_call(called_in_texts: dict[str, set[str]]) -> None:
    of_generators = called().keys() - emulated()
    gone = {
        name
        for text, names in called_in_texts.items()
        for name in names & of_generators
        if not is_defined_in(text, name)
    }
    assert not gone


def test_a_call_with_an_earlier_name_is_found() -> None:
    text = "__device__ float renamed(float x) {\n    return x;\n}\n"
    assert is_defined_in(text, "renamed")
    assert not is_defined_in(f"{text}    const float y = earlier(x);\n    return earlier(y);\n", "earlier")
